"""Several preference models as one scorer: their mean, the lowest, or a lower bound, and how far they disagree.

Members on one trunk cost one pass through it for all of them; what they all fail to see, because the trunk does not
show it or the labels do not say it, no disagreement tells. Source of the ideas: Lakshminarayanan et al., arXiv
1612.01474 (ensembles); Coste et al., arXiv 2310.02743 (conservative rewards from them).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from trimtab.data.records import Pair, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.heads import OVERALL
from trimtab.models.roles import CausalModel
from trimtab.preference.card import Card
from trimtab.preference.heads import HeadWeights, described, mixed
from trimtab.preference.model import PreferenceModel
from trimtab.stats.shift import auc
from trimtab.training.precision import Precision

__all__ = [
    "Combine",
    "MemberFigures",
    "PreferenceEnsemble",
    "combination",
    "combined",
    "load_preference",
    "member_figures",
]

Combine = Literal["mean", "min", "lower_bound"]


def combined(scores: np.ndarray, combine: Combine, pessimism: float) -> np.ndarray:
    """One score a response from those of several members.

    Args:
        scores: [k, B].
        combine: "mean", "min", or "lower_bound": mean minus pessimism times the population standard deviation.
        pessimism: used by "lower_bound".

    Returns:
        float64 [B].
    """
    if combine == "min":
        return np.asarray(scores.min(0))
    mean = scores.mean(0)
    return np.asarray(mean if combine == "mean" else mean - pessimism * scores.std(0))


def combination(members: int, combine: Combine, pessimism: float, head_weights: HeadWeights = OVERALL) -> str:
    """What a combined score is, in words that a calibration is kept under; empty for a single model of one head."""
    if members == 1:
        return described(head_weights)
    return f"{combine} of {members} members" + (f", pessimism {pessimism:g}" if combine == "lower_bound" else "")


class PreferenceEnsemble(PreferenceModel):
    """Scores by several members. `model` is the first member's, which a value model can start from.

    A preference model is free up to a number added to all its scores. Each member's mean over the training responses
    (`offsets`, set by `centre`) is therefore subtracted before members are compared or combined; else the lowest
    score would be that of the member that happens to lie lowest.

    Args:
        members: at least two, with one tokenizer; those with shared layers stand on the same ones.
        combine: see `combined`.
        pessimism: see `combined`.
        offsets: [k] what is subtracted from each member's scores; None: nothing.
    """

    def __init__(
        self,
        members: Sequence[PreferenceModel],
        *,
        combine: Combine = "mean",
        pessimism: float = 1.0,
        offsets: Sequence[float] | None = None,
    ) -> None:
        first = members[0]
        super().__init__(
            first.model, first.codec, first.precision, batch_size=first.batch_size, max_tokens=first.max_tokens,
            calibration=first.calibration,
        )  # fmt: skip
        self.scale = first.scale
        if len(members) < 2:
            raise ValueError("an ensemble of one")
        self.models = [member.model for member in members]
        self.length_fits = [member.length_fits[0] for member in members]
        self.length_heads = [member.length_heads[0] for member in members]
        self.combine: Combine = combine
        self.pessimism = pessimism
        self.offsets = [0.0] * len(members) if offsets is None else [float(x) for x in offsets]
        if len(self.offsets) != len(members):
            raise ValueError(f"{len(self.offsets)} offsets for {len(members)} members")

    @property
    def combination(self) -> str:
        return combination(len(self.models), self.combine, self.pessimism)

    def centre(self, rows: Sequence[list[int]]) -> None:
        """Take the members' mean scores of these tokenised rows as their offsets."""
        self.offsets = self.read_ids(rows).scores.mean(1).tolist()

    def member_scores(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> np.ndarray:
        """Every member's scores, float64 [k, B], less its offset; asked again for the same batch, the same."""
        return self.less_offsets(self.read(prompts, responses).scores)

    def less_offsets(self, raw: np.ndarray) -> np.ndarray:
        """Members' raw scores [k, B] less their offsets, float64 [k, B]."""
        return np.asarray(raw - np.array(self.offsets)[:, None])

    def score(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> np.ndarray:
        """Combined scores, float64 [B]."""
        return np.asarray(combined(self.member_scores(prompts, responses), self.combine, self.pessimism) / self.scale)

    def score_ids(self, rows: Sequence[list[int]]) -> np.ndarray:
        """Raw combined scores of tokenised rows, float64 [B]."""
        return combined(self.less_offsets(self.read_ids(rows).scores), self.combine, self.pessimism)

    def levelled(self, raw: np.ndarray) -> np.ndarray:
        """As of one model; each member's mean over the batch stands for its offset."""
        return np.asarray(raw - raw.mean(axis=-1, keepdims=True) + np.array(self.offsets)[:, None, None])

    def score_of_heads(self, heads: np.ndarray) -> np.ndarray:
        """The score float64 [B] that heads [k, H, B] of every member make."""
        members = self.less_offsets(mixed(heads, self.head_weights))
        return np.asarray(combined(members, self.combine, self.pessimism) / self.scale)

    def disagreement(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> np.ndarray:
        """Population standard deviation of the members' scores, float64 [B]."""
        return np.asarray(self.member_scores(prompts, responses).std(0))

    def save(self, directory: Path, **card: Any) -> None:
        """Write the first member as a preference model alone would be, the others below it as `member-1` and so on.

        Each is an ordinary sequence classifier; the card of the first says how many there are and their offsets.
        """
        facts = {"members": len(self.models), "offsets": self.offsets}
        super().save(directory, **card, **facts)
        for k, model in enumerate(self.models[1:], 1):
            member = PreferenceModel(model, self.codec, self.precision, max_tokens=self.max_tokens)
            member.length_fits = [self.length_fits[k]]
            member.save(_place(directory, k))


@dataclass(frozen=True)
class MemberFigures:
    """How alike the members of an ensemble are on labeled pairs.

    `accuracy`: of each member. `shared_mistakes`: mean correlation (phi) of two members' mistakes, 1 = the same ones,
    0 = independent; None where no two members make some and not all mistakes. `disagreement`: mean standard deviation
    of a response's score over the members. `warns`: how often the members disagree more on the score difference of a
    pair that the ensemble gets wrong than on one that it gets right (0.5 = disagreement says nothing about mistakes);
    None without mistakes.
    """

    accuracy: tuple[float, ...]
    shared_mistakes: float | None
    disagreement: float
    warns: float | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"accuracy": list(self.accuracy)}


def member_figures(ensemble: PreferenceEnsemble, pairs: Sequence[Pair]) -> MemberFigures:
    """Compare the members on labeled pairs; a tie counts as a mistake.

    Raises:
        ValueError: no pairs.
    """
    if not pairs:
        raise ValueError("no pairs")
    prompts = [pair.prompt for pair in pairs]
    chosen = ensemble.member_scores(prompts, [pair.chosen for pair in pairs])
    rejected = ensemble.member_scores(prompts, [pair.rejected for pair in pairs])
    return figures_of_margins(chosen - rejected, float(np.concatenate([chosen, rejected], axis=1).std(0).mean()))


def figures_of_margins(margins: np.ndarray, disagreement: float) -> MemberFigures:
    """`MemberFigures` from margins (chosen minus rejected score) of k members on P pairs, [k, P]."""
    wrong = margins <= 0
    mixed = wrong[wrong.any(1) & ~wrong.all(1)].astype(float)
    shared = None
    if len(mixed) > 1:
        correlation = np.corrcoef(mixed)
        shared = float(correlation[np.triu_indices(len(mixed), 1)].mean())
    together, spread = margins.mean(0) <= 0, margins.std(0)
    return MemberFigures(
        accuracy=tuple(float(x) for x in 1 - wrong.mean(1)),
        shared_mistakes=shared,
        disagreement=disagreement,
        warns=auc(spread[together], spread[~together]) if together.any() and not together.all() else None,
    )


def load_preference(
    directory: Path,
    precision: Precision,
    base: CausalModel | None = None,
    *,
    calibrated_score: bool = False,
    combine: Combine = "mean",
    pessimism: float = 1.0,
    head_weights: HeadWeights = OVERALL,
) -> PreferenceModel:
    """Load what `trimtab.preference.train` gave and `save` wrote: a model, or an ensemble.

    Args:
        directory: of the model.
        precision: what the forward pass computes in, and where.
        base: the model whose shared layers it stands on; without it each member is a whole model of its own.
        calibrated_score: as for `PreferenceModel`; of an ensemble, by the temperature of its combined score.
        combine: how members are combined, see `combined`.
        pessimism: see `combined`.
        head_weights: see `preference.head_weights`.

    Returns:
        The model; without the calibration that lies beside it where that was fitted on another combination of the
        members' scores, or of the heads'.

    Raises:
        TrimtabError: as `PreferenceModel.load`, or a member is missing; `calibrated_score` with a calibration of
            another combination.
    """
    card = Card.read(directory)
    first = PreferenceModel.load(
        directory, precision, base, calibrated_score=calibrated_score, head_weights=head_weights
    )
    if card.members == 1:
        return _with_fitting_calibration(first, directory, calibrated_score)
    others = [PreferenceModel.load(_place(directory, k), precision, base) for k in range(1, card.members)]
    ensemble = PreferenceEnsemble([first, *others], combine=combine, pessimism=pessimism, offsets=card.offsets)
    return _with_fitting_calibration(ensemble, directory, calibrated_score)


def _with_fitting_calibration(model: PreferenceModel, directory: Path, calibrated_score: bool) -> PreferenceModel:
    kept = model.calibration
    if kept is not None and kept.scores != model.combination:
        if calibrated_score:
            raise TrimtabError(
                ErrorKind.MODEL,
                f"{directory}: the calibration was fitted on {kept.scores or 'other scores'}; "
                f"the score is now {model.combination or 'the overall head'}",
                "make it again with: trimtab pm calibrate PROJECT",
            )
        model.calibration = None
    return model


def _place(directory: Path, number: int) -> Path:
    return directory / f"member-{number}"
