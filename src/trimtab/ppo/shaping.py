"""Score shaping: what happens to a score between the scorer and the KL penalty.

Order: outliers -> normalisation -> transform (or win probability) -> clip -> penalties. Penalties come last, so that
their unit is the one the advantages see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trimtab.config.schema import PPOConfig
from trimtab.core.normalisers import RunningMoments
from trimtab.core.rewards import clip_outliers, clip_scores, penalise, transform_scores, win_probability
from trimtab.data.records import Prompt
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["CALIBRATION_RESPONSES", "REFERENCE_RESPONSES", "ScoreShaper"]

CALIBRATION_RESPONSES = 64
"""Responses of the reference that fix the mean and deviation of `score_normalisation = "reference"`."""
REFERENCE_RESPONSES = 2
"""Responses of the reference to each prompt that `score_transform = "win_probability"` compares with."""

ReferenceScores = Callable[[Sequence[Prompt], int], np.ndarray]
"""(prompts, n) -> the scores of n fresh responses of the reference to each prompt, float64 [len(prompts), n]."""
Probability = Callable[[np.ndarray], np.ndarray]
"""Margins of scores -> P(first wins), of the same shape; such as a preference model's calibration."""


class ScoreShaper:
    """Turns raw scores [B] into shaped scores [B]; holds the statistics that this needs, which a checkpoint keeps.

    Args:
        config: the `[ppo]` section.
        reference_scores: scores of fresh responses of the reference.
        probability: what turns margins of the scorer into P(first wins); None: the logistic function.
    """

    def __init__(
        self, config: PPOConfig, reference_scores: ReferenceScores, probability: Probability | None = None
    ) -> None:
        self._probability = probability
        self._config = config
        self._reference_scores = reference_scores
        self._moments = RunningMoments()
        self._opponents: dict[str, list[float]] = {}
        self.outliers: float | None = None
        """Share of the scores shaped last that were outliers; None where they are left alone."""

    def calibrate(self, prompts: Sequence[Prompt]) -> None:
        """Measure the reference's scores once, where the config asks for fixed statistics."""
        if self._config.score_normalisation == "reference" and self._moments.count == 0:
            scores = torch.from_numpy(self._reference_scores(prompts, 1)).flatten()
            if float(scores.max() - scores.min()) == 0:
                raise TrimtabError(
                    ErrorKind.REWARD,
                    f"the reference's {len(scores)} scores are all {float(scores[0]):g}: there is nothing to scale by",
                    'use a reward that tells responses apart, or ppo.score_normalisation = "none"',
                )
            self._moments.update(scores)

    def shape(self, scores: Tensor, prompts: Sequence[Prompt], lengths: Tensor, finished: Tensor) -> Tensor:
        """Shaped scores, float32 [B].

        Args:
            scores: raw scores [B].
            prompts: the prompt of each response.
            lengths: response tokens [B].
            finished: bool [B], whether the response ended with an EOS token.
        """
        config = self._config
        raw = scores.float()
        if config.score_outlier_sds is not None:
            raw, self.outliers = clip_outliers(raw, config.score_outlier_sds)
        shaped = self._normalise(raw)
        if config.score_transform == "win_probability":
            shaped = self._win_probability(shaped, self._opponent_scores(prompts).to(shaped.device))
        else:
            shaped = transform_scores(shaped, config.score_transform)
        if config.score_clip is not None:
            shaped = clip_scores(shaped, config.score_clip)
        return penalise(shaped, lengths, finished, config.length_penalty, config.missing_eos_penalty)

    def _win_probability(self, scores: Tensor, opponents: Tensor) -> Tensor:
        if self._probability is None:
            return win_probability(scores, opponents)
        margins = scores.double().unsqueeze(1) - opponents.double()
        wins = np.asarray(self._probability(margins.cpu().numpy())).mean(axis=1)
        return torch.from_numpy(wins).to(scores)

    def _normalise(self, scores: Tensor) -> Tensor:
        kind = self._config.score_normalisation
        if kind == "none":
            return scores
        if kind == "batch":
            moments = RunningMoments()
            moments.update(scores)
            return moments.normalise(scores)
        if kind == "running":
            self._moments.update(scores)
        return self._moments.normalise(scores)

    def _opponent_scores(self, prompts: Sequence[Prompt]) -> Tensor:
        new = {p.id: p for p in prompts if p.id not in self._opponents}
        if new:
            rows = self._reference_scores(list(new.values()), REFERENCE_RESPONSES)
            self._opponents.update({key: row.tolist() for key, row in zip(new, rows, strict=True)})
        return torch.tensor([self._opponents[p.id] for p in prompts], dtype=torch.float32)

    def state_dict(self) -> dict[str, Any]:
        return {"moments": self._moments.state_dict(), "opponents": self._opponents}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._moments.load_state_dict(state["moments"])
        self._opponents = dict(state["opponents"])
