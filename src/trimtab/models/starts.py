"""Loading what preference models start from, and preference models: of any kind that gives a text one number."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch
from torch import nn
from transformers import AutoModel, AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel

from trimtab.config.layout import FULL, Layout
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.encoder import EncoderScalar, PairCodec, ScoreCodec, ScoreModel, Start
from trimtab.models.heads import names_of_heads
from trimtab.models.loading import (
    DTYPES,
    fewer_layers,
    from_pretrained,
    load_causal_lm,
    load_codec,
    load_config,
    load_scalar,
    load_tokenizer,
    resolve,
)
from trimtab.models.narration import without_warnings
from trimtab.models.roles import CausalModel, Role
from trimtab.models.seeds import stream_seed

__all__ = ["check_backbone", "load_backbone", "load_scorer"]


def _is_encoder(config: PreTrainedConfig, name: str) -> bool:
    """Whether transformers' classifier for this configuration pools, or reads the last token by a plain `score` head.

    Raises:
        TrimtabError: there is none, or it is of an encoder with a decoder.
    """
    if config.is_encoder_decoder or type(config) not in AutoModelForSequenceClassification._model_mapping:
        why = "has an encoder and a decoder" if config.is_encoder_decoder else "transformers has no classifier of it"
        raise TrimtabError(
            ErrorKind.MODEL,
            f'{name} (model type "{config.model_type}") cannot be a preference model: {why}',
            "name a causal language model, or an encoder such as BERT, RoBERTa, DeBERTa, MiniLM or ModernBERT",
        )
    with torch.device("meta"):
        classifier = AutoModelForSequenceClassification.from_config(copy.deepcopy(config))
    score = getattr(classifier, "score", None)
    return not (isinstance(score, nn.Linear) and score.bias is None)


def load_backbone(
    name: str,
    dtype: str = "float32",
    device: str | torch.device = "cpu",
    *,
    chat: Literal["auto", "off"] = "auto",
    layout: Layout = FULL,
    layers: int | None = None,
    seed: int = 0,
) -> tuple[Start, ScoreCodec]:
    """Any model to train a preference model from, frozen, and its tokenizer.

    A classifier with one label keeps its head, and training goes on from its scores. Of others the head is new, and so
    is what an encoder's checkpoint lacks around it (a pooler, a dense layer), which is drawn from the seed.

    Args:
        name: a local directory, a hub id or a packaged model.
        dtype: what it computes in.
        device: where to.
        chat: whether a causal model's prompts go through the tokenizer's chat template, where it has one.
        layout: what of a causal language model is trained; encoders and classifiers are trained whole.
        layers: how many layers of it are read, from the first on; None: all.
        seed: of what is drawn.

    Raises:
        TrimtabError: it is missing, broken, no model of these kinds, does not fit its tokenizer, or has too few layers.
    """
    with _naming(name):
        return _load_backbone(name, dtype, device, chat, layout, layers, seed)


def check_backbone(name: str, chat: Literal["auto", "off"] = "auto", layers: int | None = None) -> None:
    """Refuse what can be refused of a backbone, and of reading `layers` layers of it, without its weights.

    Raises:
        TrimtabError: as `load_backbone`.
    """
    with _naming(name):
        config = load_config(name)
        fewer_layers(config, layers, name)
        if _is_encoder(config, name):
            PairCodec(load_tokenizer(name), int(config.get_text_config().vocab_size))
        else:
            load_codec(name, chat).check_model(int(config.get_text_config().vocab_size), name)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Errors name the setting that the backbone comes from."""
    try:
        yield
    except TrimtabError as error:
        hint = error.hint.replace("model.name", "preference.backbone")
        raise TrimtabError(error.kind, f'preference.backbone = "{name}": {error.message}', hint) from error


def _load_backbone(
    name: str,
    dtype: str,
    device: str | torch.device,
    chat: Literal["auto", "off"],
    layout: Layout,
    layers: int | None,
    seed: int,
) -> tuple[Start, ScoreCodec]:
    config = load_config(name)
    shorter = fewer_layers(config, layers, name)
    kinds = [str(kind) for kind in config.architectures or []]
    scores = config.num_labels == 1 and any(kind.endswith("ForSequenceClassification") for kind in kinds)
    if scores:
        if shorter:
            raise TrimtabError(
                ErrorKind.CONFIG,
                f"{layers} layers of {name}, a classifier whose head reads its last layer",
                "leave preference.layers out, or name the model that it was made of",
            )
        return load_scorer(name, dtype, device, chat=chat)
    if not _is_encoder(config, name):
        codec = load_codec(name, chat)
        if not kinds or any(kind.endswith("ForCausalLM") or kind.endswith("LMHeadModel") for kind in kinds):
            return load_causal_lm(name, dtype, device, layout=layout, codec=codec, layers=layers), codec
        with without_warnings():
            hf = from_pretrained(AutoModel, name, resolve(name), dtype, device, **shorter)
        body = CausalModel(hf, compute_dtype=DTYPES[dtype])
        codec.check_model(body.vocabulary_size, name)
        return body.requires_grad_(False), codec
    with torch.random.fork_rng(devices=[]), without_warnings():
        torch.manual_seed(stream_seed(seed, "pm", "backbone"))
        hf = from_pretrained(
            AutoModelForSequenceClassification, name, resolve(name), dtype, device, may_lack=_around_the_body,
            num_labels=1, ignore_mismatched_sizes=True, **shorter,
        )  # fmt: skip
    return _encoder(hf, name, dtype, fresh=True)


def _around_the_body(hf: PreTrainedModel, tensor: str) -> bool:
    """Whether a tensor belongs to the head or the pooler, which a language model's checkpoint need not have."""
    prefix = f"{hf.base_model_prefix}."
    return not tensor.startswith(prefix) or tensor.removeprefix(prefix).startswith("pooler")


def _encoder(hf: PreTrainedModel, name: str, dtype: str, *, fresh: bool) -> tuple[EncoderScalar, PairCodec]:
    codec = PairCodec(load_tokenizer(name), int(hf.config.get_text_config().vocab_size))
    model = EncoderScalar(hf, compute_dtype=DTYPES[dtype], fresh=fresh)
    # A head of 1 x D numbers is kept in float32 whatever the body computes in.
    model.linear.float()
    model.requires_grad_(False)
    return model, codec


def load_scorer(
    directory: Path | str,
    dtype: str = "float32",
    device: str | torch.device = "cpu",
    *,
    trunk_from: Role | None = None,
    chat: Literal["auto", "off"] = "auto",
) -> tuple[ScoreModel, ScoreCodec]:
    """A sequence classifier with one label, frozen, and its tokenizer: what `save_pretrained` wrote, ours or anybody's.

    Args:
        directory: a local directory, a hub id or a packaged model.
        dtype: what it computes in.
        device: where to.
        trunk_from: as in `load_scalar`; an encoder shares nothing.
        chat: as in `load_backbone`.

    Raises:
        TrimtabError: it is missing or broken, has not one label, or does not fit its tokenizer or the trunk.
    """
    name = str(directory)
    config = load_config(name)
    names_of_heads(config, name)
    if _is_encoder(config, name):
        hf = from_pretrained(AutoModelForSequenceClassification, name, resolve(name), dtype, device)
        return _encoder(hf, name, dtype, fresh=False)
    codec = load_codec(name, chat)
    return load_scalar(name, dtype, device, trunk_from=trunk_from, codec=codec), codec
