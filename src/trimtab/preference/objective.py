"""What preference training minimises: the loss of every head, from the labels of an update's pairs.

overall:    Bradley-Terry of the first head, or with a length head of the sum of both
principles: principle_coef times the sum over the principles of the loss of each one's head on the pairs that have a
            label by it
length:     what keeps the length head on length and the first head off it (`length_debias = "two-head"`)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.config.schema import PreferenceConfig
from trimtab.core.length import length_head_loss, pearson
from trimtab.core.preference import bradley_terry_loss, centering_loss, principle_losses
from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.heads import OVERALL, Headed, narrow, widen
from trimtab.models.seeds import torch_stream
from trimtab.preference.heads import head_labels, head_names
from trimtab.training.targets import pair_targets, pair_weights

__all__ = ["Objective"]

_TWO_HEAD_STD = 1.0
"""Standard deviation of both heads' first scores beside a length head, for hidden states of unit size."""
_FEWEST = 4
"""Pairs of an update below which correlations over it say nothing."""


class Objective:
    """Labels of the training pairs and the loss of the heads that learn from them.

    Args:
        config: the `[preference]` section.
        pairs: of the training.
        tokens: [P, 2] tokens of their chosen and rejected responses; only a length head needs them.

    Raises:
        TrimtabError: no pair with a weight, or principles that cannot have heads.
    """

    def __init__(self, config: PreferenceConfig, pairs: Sequence[Pair], tokens: Tensor | None = None) -> None:
        self.config = config
        self.targets = pair_targets(pairs, config.soft_labels)
        self.margins = torch.tensor([config.margin_coef * (p.margin or 0.0) for p in pairs])
        self.weights = pair_weights(pairs)
        self.names = (OVERALL, *(head_names(pairs) if config.principle_heads else ()))
        self._by_principle = head_labels(pairs, self.names[1:], config.soft_labels) if self.names[1:] else None
        self._tokens = None
        if config.length_debias == "two-head":
            if tokens is None:
                raise ValueError("a length head needs the lengths")
            if bool((tokens == tokens[0, 0]).all()):
                raise TrimtabError(
                    ErrorKind.DATA,
                    'preference.length_debias = "two-head": all responses are of one length',
                    'there is nothing to take out: set length_debias = "none"',
                )
            self._tokens = tokens.float()

    def prepare(self, model: Headed, *names: int) -> None:
        """Give the model its further heads: of zeros for principles, a random one for length; `names`: seed, member.

        Beside a length head the first one is random, too, unless it has larger weights already: a correlation knows no
        scale, so its gradient grows as scores shrink, and near zero nothing else would be learned.
        """
        if self._tokens is None:
            widen(model, [0.0] * (len(self.names) - 1))
            return
        seed, member = names
        std = _TWO_HEAD_STD / math.sqrt(model.linear.in_features + 1)
        generator = torch_stream(seed, "pm", "length head", member)
        widen(model, [std], generator)
        first = model.linear.weight.detach()[0]
        drawn = (torch.randn(first.shape, generator=generator) * std).to(first)
        if first.norm() < drawn.norm():
            first.copy_(drawn)

    def finish(self, model: Headed) -> Tensor | None:
        """Take the length head off again and name the others; its weights [D], or None where there was none."""
        dropped = narrow(model, self.names)
        return dropped[0] if len(dropped) else None

    def loss(
        self, model: Headed, at: Sequence[int], chosen: Tensor, rejected: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """The loss of an update and its signals.

        Args:
            model: whose heads gave the scores.
            at: the update's pairs.
            chosen: [P, H] scores of their chosen responses by every head.
            rejected: [P, H] of the rejected ones.
        """
        device, config, index = chosen.device, self.config, list(at)
        weights = self.weights[index].to(device)
        first, other = chosen[:, 0], rejected[:, 0]
        signals = {"accuracy/train": float((first > other).float().mean())}
        if self._tokens is not None:
            first, other = first + chosen[:, -1], other + rejected[:, -1]
        total = bradley_terry_loss(
            first,
            other,
            self.targets[index].to(device),
            self.margins[index].to(device),
            config.label_smoothing,
            weights,
        )
        if config.center_coef:
            total = total + config.center_coef * centering_loss(first, other, weights)
        overall = float(total.detach())
        if self._by_principle is not None:
            losses = principle_losses(
                chosen[:, 1:], rejected[:, 1:], self._by_principle.p_chosen[index].to(device),
                config.label_smoothing, self._by_principle.weights[index].to(device),
            )  # fmt: skip
            total = total + config.principle_coef * losses.sum()
            # so that the curve can be held against loss/validation, which is the overall head's
            signals |= {"loss/train": overall, "loss/principles": float(losses.detach().sum())}
        if self._tokens is not None and len(index) >= _FEWEST:
            tokens = self._tokens[index].T.reshape(-1).to(device)
            quality, length = (torch.cat([chosen[:, i], rejected[:, i]]) for i in (0, -1))
            head = model.linear.weight
            total = total + length_head_loss(
                quality, length, tokens, head[0], head[-1], config.length_coef, config.orthogonal_coef
            )
            signals |= {
                "loss/train": overall,
                "length/score_correlation": float(pearson(quality.detach(), tokens)),
                "length/head_correlation": float(pearson(length.detach(), tokens)),
            }
        return total, signals
