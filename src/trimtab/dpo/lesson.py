"""What the policy learns from: tokenised pairs, their labels, and the loss on them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.config.schema import DPOConfig
from trimtab.core.preference import dpo_loss, ipo_loss
from trimtab.data.records import Pair
from trimtab.dpo.logprobs import PairLogprobs
from trimtab.dpo.reference import reference_logprobs
from trimtab.dpo.rows import readable
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec
from trimtab.runs.run import Run
from trimtab.training.precision import Precision
from trimtab.training.splits import hold_out
from trimtab.training.targets import check_teachable, pair_targets, pair_weights

__all__ = ["Lesson", "split_by_prompt"]


def split_by_prompt(pairs: Sequence[Pair], fraction: float, seed: int) -> tuple[list[Pair], list[Pair]]:
    """(training pairs, held-out pairs): those that the preference model's training holds out with the same fraction.

    Raises:
        TrimtabError: a part is to be held out of fewer than two prompts.
    """
    if fraction == 0:
        return list(pairs), []
    found = hold_out(pairs, fraction, seed, "pm")
    if found is None:
        raise TrimtabError(
            ErrorKind.DATA,
            f"{len(pairs)} pairs over {len({pair.prompt.messages for pair in pairs})} prompts cannot be split",
            "label pairs of at least two prompts, or set dpo.validation_fraction = 0",
        )
    return found


class Lesson:
    """The pairs with their labels, and the loss of the policy on them; held-out pairs stand after the others.

    Args:
        config: the `[dpo]` section.
        policy: what is trained.
        codec: its tokenizer.
        pairs: labeled.
        seed: of the split.
        precision: what is computed in.

    Raises:
        TrimtabError: the pairs cannot be trained on.
    """

    def __init__(
        self,
        config: DPOConfig,
        policy: CausalModel,
        codec: TextCodec,
        pairs: Sequence[Pair],
        seed: int,
        precision: Precision,
    ) -> None:
        self._config, self._policy, self._precision = config, policy, precision
        kept, rows = readable(config, policy, codec, pairs)
        of_pair = {id(pair): row for pair, row in zip(kept, rows, strict=True)}
        self.training, self.held_out = split_by_prompt(kept, config.validation_fraction, seed)
        ordered = [*self.training, *self.held_out]
        self._rows = [of_pair[id(pair)] for pair in ordered]
        of_training = self._rows[: len(self.training)]
        check_teachable(self.training, [(row.chosen, row.rejected) for row in of_training], margins=False)
        device = policy.device
        self._targets = pair_targets(ordered, config.soft_labels).to(device)
        self._weights = pair_weights(self.training).to(device)
        self._tokens = torch.tensor([row.response_tokens for row in self._rows], device=device)
        self._logprobs = PairLogprobs(policy, self._rows, codec.pad_id)
        self._reference = torch.empty(0)

    def read_reference(self, run: Run | None) -> None:
        """To be called before the policy's first update, and before a checkpoint is loaded."""
        self._reference = reference_logprobs(self._policy, self._logprobs, self._rows, self._precision, run)

    def parts(self, index: list[int]) -> list[list[int]]:
        """An update's pairs in micro-batches."""
        return [[index[at] for at in part] for part in self._logprobs.parts(index, self._config.micro_batch_size)]

    def loss(self, index: list[int]) -> tuple[Tensor, dict[str, float]]:
        """What is minimised, and its signals; `loss/train` is the part that held-out pairs have, too."""
        config, computed = self._config, self._logprobs.computed
        with self._precision.autocast():
            logprobs = self._logprobs(index)
        weights = self._weights[index]
        loss = self._preference(index, logprobs, weights)
        signals = self._signals(index, logprobs.detach()) | {
            "tokens/needed": self._logprobs.needed(index) / len(index),
            "tokens/computed": (self._logprobs.computed - computed) / len(index),
        }
        if config.language_coef:
            language = -(logprobs[:, 0] / self._tokens[index, 0] * weights).mean()
            signals |= {"loss/train": float(loss.detach()), "dpo/language_loss": float(language.detach())}
            loss = loss + config.language_coef * language
        return loss, signals

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Loss and accuracy on the held-out pairs, each counted once."""
        index = list(range(len(self.training), len(self._rows)))
        size = self._config.micro_batch_size or self._config.batch_size
        found: dict[int, Tensor] = {}
        for part in self._logprobs.parts(index, size):
            with self._precision.autocast():
                found |= dict(zip(part, self._logprobs([index[at] for at in part]), strict=True))
        logprobs = torch.stack([found[at] for at in range(len(index))])
        signals = self._signals(index, logprobs)
        return {
            "loss/validation": float(self._preference(index, logprobs, None)),
            "accuracy/validation": signals["dpo/accuracy"],
            "held_out/dpo/margin": signals["dpo/margin"],
            "held_out/dpo/chosen_change": signals["dpo/chosen_change"],
            "held_out/dpo/rejected_change": signals["dpo/rejected_change"],
        }

    def _preference(self, index: Sequence[int], logprobs: Tensor, weights: Tensor | None) -> Tensor:
        formula = dpo_loss if self._config.loss == "sigmoid" else ipo_loss
        at = list(index)
        reference = self._reference[at]
        return formula(
            logprobs[:, 0], logprobs[:, 1], reference[:, 0], reference[:, 1], self._config.beta, self._targets[at],
            self._config.label_smoothing, weights,
        )  # fmt: skip

    def _signals(self, index: Sequence[int], logprobs: Tensor) -> dict[str, float]:
        """Means over pairs; of a pair, accuracy is a half where the label or the rewards are level."""
        at = list(index)
        change = logprobs - self._reference[at]
        margin = change[:, 0] - change[:, 1]
        right = (margin * (self._targets[at] - 0.5)).sign() / 2 + 0.5
        chosen, rejected = change.double().mean(0).tolist()
        beta = self._config.beta
        return {
            "dpo/accuracy": float(right.mean()),
            "dpo/margin": beta * (chosen - rejected),
            "dpo/chosen_reward": beta * chosen,
            "dpo/rejected_reward": beta * rejected,
            "dpo/chosen_change": chosen,
            "dpo/rejected_change": rejected,
            "dpo/chosen_logprob": float(logprobs[:, 0].double().mean()),
            "dpo/rejected_logprob": float(logprobs[:, 1].double().mean()),
        }
