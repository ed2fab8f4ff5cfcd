"""The rows of a classifier's last linear layer as heads: the first is the score, the others stand beside it.

What is saved is a transformers classifier with one label a head. Of several, `id2label` names them, the first being
`overall`; plain transformers gives all of them at once.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel

from trimtab.errors import ErrorKind, TrimtabError

__all__ = [
    "OVERALL",
    "Headed",
    "LogitScaling",
    "classifier",
    "first_head",
    "head_scores",
    "language_head",
    "names_of_heads",
    "narrow",
    "untie",
    "widen",
]

OVERALL = "overall"
"""Name of the first of several heads."""


class Headed(Protocol):
    """A model with a linear head."""

    hf: PreTrainedModel

    @property
    def linear(self) -> nn.Linear:
        """The layer whose rows are the heads."""
        ...


def untie(hf: PreTrainedModel) -> None:
    """Give a language-model head that is tied to the embedding a weight of its own, in place; the same numbers."""
    head, embedding = cast(Any, hf.get_output_embeddings()), cast(Any, hf.get_input_embeddings())
    if head.weight is embedding.weight:
        head.weight = nn.Parameter(embedding.weight.detach().clone(), requires_grad=embedding.weight.requires_grad)
    for config in {id(c): c for c in (hf.config, hf.config.get_text_config())}.values():
        config.tie_word_embeddings = False


class LogitScaling(NamedTuple):
    """What some architectures do to the product of hidden states and head: times `factor`, then cap · tanh(x / cap)."""

    factor: float = 1.0
    cap: float | None = None

    @classmethod
    def of(cls, config: PreTrainedConfig) -> LogitScaling:
        """From a model's configuration: Cohere multiplies, Granite divides, Gemma 2 and 3 cap."""
        text: Any = config.get_text_config()
        factor = float(getattr(text, "logit_scale", None) or 1.0) / float(getattr(text, "logits_scaling", None) or 1.0)
        cap = getattr(text, "final_logit_softcapping", None)
        return cls(factor, float(cap) if cap else None)

    def __call__(self, logits: Tensor) -> Tensor:
        if self.factor != 1.0:
            logits = logits * self.factor
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


def language_head(hf: PreTrainedModel) -> dict[str, nn.Parameter]:
    """The parameters of the language-model head by their names in the model."""
    own = {id(p) for p in cast(nn.Module, hf.get_output_embeddings()).parameters()}
    return {name: p for name, p in hf.named_parameters() if id(p) in own}


def head_scores(linear: nn.Linear, features: Tensor) -> Tensor:
    """Scores of every head, in float32: what the heads read [..., D] -> [..., H]."""
    bias = None if linear.bias is None else linear.bias.float()
    with torch.autocast(features.device.type, enabled=False):
        return F.linear(features.float(), linear.weight.float(), bias)


def first_head(linear: nn.Linear, features: Tensor) -> Tensor:
    """Scores of the first head alone: [..., D] -> [...]."""
    bias = None if linear.bias is None else linear.bias[:1].float()
    with torch.autocast(features.device.type, enabled=False):
        return F.linear(features.float(), linear.weight[:1].float(), bias).squeeze(-1)


def classifier(source: PreTrainedModel, body: nn.Module) -> PreTrainedModel:
    """transformers' sequence classifier for `source`'s configuration around an existing body.

    Its one head, `score`, is float32.

    Raises:
        TrimtabError: there is none with a linear `score` head for this architecture.
    """
    config = copy.deepcopy(source.config)
    config.num_labels = 1
    config.architectures = None
    refusal = TrimtabError(
        ErrorKind.MODEL,
        f"{type(source).__name__} cannot carry a scalar head: transformers has no sequence classifier with a linear "
        f'`score` head for model type "{config.model_type}"',
        "name a decoder-only model such as Llama, Qwen, Mistral or GPT-2",
    )
    if type(config) not in AutoModelForSequenceClassification._model_mapping:
        raise refusal
    # On the meta device the classifier's own body costs nothing before it is replaced.
    with torch.device("meta"):
        hf = AutoModelForSequenceClassification.from_config(config)
    if not isinstance(getattr(hf, "score", None), nn.Linear) or hf.score.bias is not None:
        raise refusal
    setattr(hf, hf.base_model_prefix, body)
    weights = next(body.parameters())
    hf.score = nn.Linear(hf.score.in_features, 1, bias=False, device=weights.device, dtype=torch.float32)
    return cast(PreTrainedModel, hf)


def widen(model: Headed, rows: Sequence[float], generator: torch.Generator | None = None) -> None:
    """Add heads to a model in place, below those that it has.

    Args:
        model: what gets them; its weights decide whether the new ones take gradients.
        rows: for each new head the standard deviation of its weights; 0: it scores 0.
        generator: draws them, on the CPU, so that a seed gives the same heads on every device.
    """
    if not rows:
        return
    old = model.linear
    drawn = [
        torch.randn(old.in_features, generator=generator) * std if std else torch.zeros(old.in_features) for std in rows
    ]
    new = torch.stack(drawn).to(old.weight)
    bias = None if old.bias is None else torch.cat([old.bias.detach(), old.bias.new_zeros(len(rows))])
    _replace(model, torch.cat([old.weight.detach(), new]), bias)


def narrow(model: Headed, names: Sequence[str]) -> Tensor:
    """Keep the first heads in place, as many as there are names, and write the names to the configuration.

    Returns:
        The weights [R, D] of those that were dropped, detached.
    """
    old, count = model.linear, len(names)
    dropped = old.weight.detach()[count:].clone()
    bias = None if old.bias is None else old.bias.detach()[:count].clone()
    if len(dropped):
        _replace(model, old.weight.detach()[:count].clone(), bias)
    config = model.hf.config
    if count > 1:
        config.num_labels = count
        config.id2label = dict(enumerate(names))
        config.label2id = {name: i for i, name in enumerate(names)}
        # else a pipeline would put a softmax over the heads
        config.problem_type = "regression"
        cast(Any, model.hf).num_labels = count
    return dropped


def names_of_heads(config: PreTrainedConfig, name: str) -> tuple[str, ...]:
    """Names of a classifier's heads, the overall one first.

    Raises:
        TrimtabError: it has several labels which are no heads.
    """
    if config.num_labels == 1:
        return (OVERALL,)
    labels = config.id2label if isinstance(config.id2label, Mapping) else {}
    names = tuple(str(labels.get(i)) for i in range(config.num_labels))
    if not names or names[0] != OVERALL or len({*names}) < len(names):
        raise TrimtabError(
            ErrorKind.MODEL,
            f"{name} has {config.num_labels} labels: a preference model has one, or one a head, the first of them "
            f'"{OVERALL}"',
            "name a sequence classifier with num_labels = 1",
        )
    return names


def _replace(model: Headed, weight: Tensor, bias: Tensor | None) -> None:
    """New rows in the same layer, so that whoever holds it goes on holding it."""
    linear = model.linear
    trained = linear.weight.requires_grad
    linear.weight = nn.Parameter(weight, requires_grad=trained)
    if bias is not None:
        linear.bias = nn.Parameter(bias, requires_grad=trained)
    linear.out_features = len(weight)
