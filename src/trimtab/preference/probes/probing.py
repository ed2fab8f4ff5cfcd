"""Run every probe on a scorer and name the faults that they show.

Thresholds are those of the doctor (`trimtab.doctor.detectors.scores`) where it has the same figure; the others are
heuristic: an added phrase that is worth .2 score SDs beyond a neutral sentence, at p < .01 after Holm's correction.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from trimtab.data.records import Pair, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.preference.probes.duplicates import NEAR_DUPLICATES, near_duplicates
from trimtab.preference.probes.edits import append, is_chinese
from trimtab.preference.probes.edits_file import BUILT_IN, EditSet
from trimtab.preference.probes.figures import (
    Changed,
    EditEffect,
    LengthFigures,
    Slice,
    Spread,
    edit_effects,
    length_figures,
    slices,
    spread,
)
from trimtab.preference.probes.phrases import Phrase, mine
from trimtab.preference.probes.slicing import parts_of
from trimtab.preference.probes.sycophancy import Agreement, Language, agreement
from trimtab.preference.probes.verdicts import Fault, Probed, faults, ranked
from trimtab.scoring import Scorer, checked_scores
from trimtab.stats.intervals import Interval, clustered_share
from trimtab.stats.text import length

__all__ = ["Flips", "PhraseProbe", "ProbeReport", "probe"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Row = tuple[Prompt, Response]

_TRIED_PHRASES: Final = 5


@dataclass(frozen=True, slots=True)
class Flips:
    """How often a change that no reader would notice, made to both responses, turns a pair's order round.

    `edit`: of the surface; `all`: all of them together; `NEAR_DUPLICATES`: not an edit, but pairs that say nearly the
    same in the data and are labeled alike.
    """

    edit: str
    share: Interval

    def as_dict(self) -> dict[str, Any]:
        return {"edit": self.edit, "share": self.share._asdict()}


@dataclass(frozen=True, slots=True)
class PhraseProbe:
    """A mined phrase, and what appending it to other responses does beyond a neutral sentence; None: not tried."""

    phrase: Phrase
    effect: EditEffect | None

    def as_dict(self) -> dict[str, Any]:
        own = self.phrase
        return {
            "text": own.text, "mined": own.mined, "lift": own.lift._asdict(), "p": own.p,
            "appended": None if self.effect is None else self.effect.as_dict(),
        }  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class ProbeReport:
    """What a scorer pays for.

    Args:
        scorer: its name.
        pairs: labeled pairs.
        responses: distinct responses that were scored.
        edited: how many of them were edited.
        unread: edited responses that the scorer refused, as too long ones.
        accuracy: share of pairs whose chosen response scores higher, a tie counts half; without pairs NaN.
        slices: accuracy by part.
        length: score against length.
        spread: the distribution of the scores.
        edits: effects in score SDs.
        phrases: that go with score on prompts that they were not mined from.
        flips: by edit of the surface, `all` for all of them together, and between near-duplicates in the data.
        agreement: what taking the user's side is worth; None: could not be scored.
        faults: what is wrong, worst first.
        pair_scores: [n, 2] scores of the chosen and the rejected response of every pair.
    """

    scorer: str
    pairs: int
    responses: int
    edited: int
    unread: int
    accuracy: Interval
    slices: tuple[Slice, ...]
    length: LengthFigures
    spread: Spread
    edits: tuple[EditEffect, ...]
    phrases: tuple[PhraseProbe, ...]
    flips: tuple[Flips, ...]
    agreement: Agreement | None
    faults: tuple[Fault, ...]
    pair_scores: Floats

    def with_faults(self, more: Sequence[Fault]) -> ProbeReport:
        """With further faults of other ids, worst first."""
        found = {fault.id: fault for fault in reversed([*self.faults, *more])}
        return replace(self, faults=tuple(ranked(list(found.values())[::-1])))

    @property
    def status(self) -> Literal["sick", "healthy"]:
        """`sick` where there is a fault that is more than a note."""
        return "sick" if any(f.severity != "info" for f in self.faults) else "healthy"

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        lists = {name: [x.as_dict() for x in getattr(self, name)] for name in ("slices", "edits", "phrases", "flips")}
        return {
            "status": self.status, "scorer": self.scorer, "faults": [f.as_dict() for f in self.faults],
            "pairs": self.pairs, "responses": self.responses, "edited": self.edited, "unread": self.unread,
            "accuracy": self.accuracy._asdict(), "length": self.length.as_dict(), "spread": self.spread.as_dict(),
            "agreement": None if self.agreement is None else self.agreement.as_dict(), **lists,
        }  # fmt: skip


def probe(
    scorer: Scorer, pairs: Sequence[Pair] = (), *, responses: Sequence[Row] = (), most: int = 100, seed: int = 0,
    resamples: int = 1000, edits: EditSet = BUILT_IN,
) -> ProbeReport:  # fmt: skip
    """Score responses, edit some of them, and say what buys score.

    Args:
        scorer: anything that scores responses.
        pairs: labeled pairs, which the accuracies need.
        responses: prompts with responses, besides those of the pairs.
        most: responses that are edited, drawn over all prompts; each costs about twenty scores.
        seed: of what is drawn.
        resamples: of the bootstrap over prompts.
        edits: what is done to responses; `read_edits` takes some from a file.

    Raises:
        TrimtabError: no response, or scores that are no finite numbers.
    """
    rows = _distinct([(p.prompt, r) for p in pairs for r in (p.chosen, p.rejected)] + [*responses])
    if not rows:
        raise TrimtabError(ErrorKind.DATA, "there are no responses to probe with", "name a file with pairs")
    return _Probe(scorer, pairs, rows, most, seed, resamples, edits).report()


def _distinct(rows: Sequence[Row]) -> list[Row]:
    """The first of every (prompt, text)."""
    return list({(prompt.messages, response.text): (prompt, response) for prompt, response in reversed(rows)}.values())[
        ::-1
    ]


class _Probe:
    def __init__(
        self, scorer: Scorer, pairs: Sequence[Pair], rows: list[Row], most: int, seed: int, resamples: int,
        edits: EditSet,
    ) -> None:  # fmt: skip
        self.scorer, self.pairs, self.rows, self.edits = scorer, pairs, rows, edits
        self.most, self.seed, self.resamples = most, seed, resamples
        self.scores = checked_scores(scorer, [p for p, _ in rows], [r for _, r in rows])
        number: dict[Any, int] = {}
        self.groups = np.array([number.setdefault(p.messages, len(number)) for p, _ in rows])
        self.pair_groups = np.array([number[p.prompt.messages] for p in pairs], dtype=np.int64)
        at = {(p.messages, r.text): i for i, (p, r) in enumerate(rows)}
        self.sides = [
            np.array([at[p.prompt.messages, r.text] for p, r in zip(pairs, side, strict=True)], dtype=np.int64)
            for side in ([p.chosen for p in pairs], [p.rejected for p in pairs])
        ]
        self.sd = float(self.scores.std())
        self.unread = 0

    def report(self) -> ProbeReport:
        chosen, rejected = self.sides
        margin = self.scores[chosen] - self.scores[rejected]
        wins = (np.sign(margin) + 1) / 2
        # a label of .5 says nothing about who is right, one below it that the rejected is
        label = np.array([1.0 if p.p_chosen is None else p.p_chosen for p in self.pairs])
        decided = label != 0.5
        right = np.where(label > 0.5, wins, 1 - wins)[decided]
        words = np.array([length(r.text) for _, r in self.rows], dtype=np.float64)
        turned = np.where(label >= 0.5, 1.0, -1.0)
        accuracy = clustered_share(right, self.pair_groups[decided])
        lengths = length_figures(
            self.scores, words, self.groups, (turned * margin)[decided],
            (turned * (words[chosen] - words[rejected]))[decided], self.pair_groups[decided],
            resamples=self.resamples, seed=self.seed,
        )  # fmt: skip
        texts = [r.text for _, r in self.rows]
        spreads = spread(self.scores, self.groups, margin, texts, self.seed)
        kinds = {k: [v for v, d in zip(names, decided, strict=True) if d] for k, names in parts_of(self.pairs).items()}
        parts = slices(right, self.pair_groups[decided], kinds)
        edited = self._sample()
        edits = self._edits(edited) if self.sd > 0 else []
        phrases = self._phrases(texts, edited) if self.sd > 0 else []
        flips = [*self._flips(), *self._near_duplicates()] if self.sd > 0 and self.pairs else []
        agreed = self._agreement() if self.sd > 0 and self.edits.sentences else None
        made = Probed(len(self.pairs), accuracy, lengths, spreads, edits, phrases, flips, agreed)
        return ProbeReport(
            self.scorer.name, len(self.pairs), len(self.rows), len(edited), self.unread, accuracy, tuple(parts),
            lengths, spreads, tuple(edits), tuple(phrases), tuple(flips), agreed, tuple(faults(made)),
            np.column_stack([self.scores[chosen], self.scores[rejected]]),
        )  # fmt: skip

    def _sample(self) -> Ints:
        """Rows to edit: one response of every prompt in turn, in an order of chance."""
        rng = np.random.default_rng([self.seed, 11])
        order = rng.permutation(len(self.rows))
        turn: dict[int, int] = {}
        rank = np.empty(len(self.rows), dtype=np.int64)
        for i in order.tolist():
            group = int(self.groups[i])
            rank[i] = turn[group] = turn.get(group, -1) + 1
        ranked = order[np.argsort(rank[order], kind="stable")]
        return np.sort(ranked[: self.most])

    def _score(self, rows: Sequence[Row]) -> Floats:
        """Scores; NaN where the scorer refuses a text, as one that is too long for it."""
        if not rows:
            return np.empty(0)
        try:
            return checked_scores(self.scorer, [p for p, _ in rows], [r for _, r in rows])
        except TrimtabError as problem:
            if problem.kind is not ErrorKind.DATA:
                raise
            if len(rows) == 1:
                self.unread += 1
                return np.array([np.nan])
        half = len(rows) // 2
        return np.concatenate([self._score(rows[:half]), self._score(rows[half:])])

    def _rescored(self, rows: Ints, texts: Sequence[str | None]) -> tuple[Ints, Floats]:
        """Those of the rows that have a new text which can be read, and their changes in score SDs."""
        applied = [(i, text) for i, text in zip(rows.tolist(), texts, strict=True) if text is not None]
        new = self._score([(self.rows[i][0], replace(self.rows[i][1], text=text, tokens=None)) for i, text in applied])
        at = np.array([i for i, _ in applied], dtype=np.int64)
        old = self.scores[at]
        good = np.isfinite(new)
        return at[good], ((new - old) / self.sd)[good]

    def _edits(self, sample: Ints) -> list[EditEffect]:
        changes: list[Changed] = []
        for number, edit in enumerate(self.edits.edits):
            rng = random.Random(self.seed * 1000 + number)
            edited = {int(i): edit.apply(self.rows[i][1].text, rng) for i in sample}
            at, change = self._rescored(sample, list(edited.values()))
            beyond = None
            if edit.kind == "style":
                added = [length(edited[i] or "") - length(self.rows[i][1].text) for i in at.tolist()]
                beyond = change - self._neutral(at, added) if min(added, default=0) > 0 else None
            changes.append(Changed(edit.name, edit.kind, change, beyond, self.groups[at]))
        return edit_effects(changes, resamples=self.resamples, seed=self.seed)

    def _neutral(self, rows: Ints, sizes: Sequence[int]) -> Floats:
        """What as many neutral words, the sentence's first, change; 0 where they cannot be read."""
        texts = [self.rows[i][1].text for i in rows.tolist()]
        words = [_first(self.edits.neutral_of(text), size) for text, size in zip(texts, sizes, strict=True)]
        before = self.unread
        at, change = self._rescored(rows, [append(text, own) for text, own in zip(texts, words, strict=True)])
        self.unread = before
        found = dict(zip(at.tolist(), change.tolist(), strict=True))
        return np.array([found.get(i, 0.0) for i in rows.tolist()])

    def _phrases(self, texts: Sequence[str], sample: Ints) -> list[PhraseProbe]:
        found = mine(self.scores, texts, self.groups, seed=self.seed, resamples=self.resamples)
        kept = [p for p in found if p.p < 0.05 and p.lift.mean > 0.1][:_TRIED_PHRASES]
        changes: list[Changed] = []
        for each in kept:
            without = np.array([i for i in sample.tolist() if each.text not in self.rows[i][1].text.lower()], np.int64)
            at, change = self._rescored(without, [append(self.rows[i][1].text, each.text) for i in without])
            beyond = change - self._neutral(at, [length(each.text)] * len(at))
            changes.append(Changed(each.text, "phrase", change, beyond, self.groups[at]))
        effects = {e.name: e for e in edit_effects(changes, resamples=self.resamples, seed=self.seed)}
        return [PhraseProbe(each, effects.get(each.text)) for each in found if each.p < 0.05 or each in kept]

    def _flips(self) -> list[Flips]:
        """Orders of pairs before and after an edit of both responses; what cannot be read is left out."""
        chosen, rejected = self.sides
        margin = self.scores[chosen] - self.scores[rejected]
        use = np.flatnonzero(margin != 0)
        rng = np.random.default_rng([self.seed, 13])
        use = np.sort(rng.permutation(use)[: max(self.most // 2, 20)])
        found: list[Flips] = []
        every: list[tuple[Floats, Ints]] = []
        for number, edit in enumerate(self.edits.edits):
            if edit.kind != "surface":
                continue
            draw = random.Random(self.seed * 1000 + number)
            texts = [[self.rows[i][1].text for i in side[use].tolist()] for side in (chosen, rejected)]
            edited = [[edit.apply(text, draw) for text in side] for side in texts]
            touched = np.array([a is not None or b is not None for a, b in zip(*edited, strict=True)], dtype=bool)
            scores = [
                self._side(use[touched], number, side) for number, side in enumerate(_kept(edited, texts, touched))
            ]
            new, good = scores[0] - scores[1], np.isfinite(scores[0] - scores[1])
            pairs = use[touched][good]
            if not len(pairs):
                continue
            flipped = (np.sign(new[good]) == -np.sign(margin[pairs])).astype(np.float64)
            found.append(Flips(edit.name, clustered_share(flipped, self.pair_groups[pairs])))
            every.append((flipped, self.pair_groups[pairs]))
        if every:
            together = clustered_share(np.concatenate([f for f, _ in every]), np.concatenate([g for _, g in every]))
            found.append(Flips("all", together))
        return found

    def _near_duplicates(self) -> list[Flips]:
        """Orders of pairs against those of pairs that say nearly the same."""
        chosen, rejected = self.sides
        margin = self.scores[chosen] - self.scores[rejected]
        found = near_duplicates(self.pairs)
        found = found[(margin[found] != 0).all(axis=1)]
        if not len(found):
            return []
        turned = (np.sign(margin[found[:, 0]]) != np.sign(margin[found[:, 1]])).astype(np.float64)
        return [Flips(NEAR_DUPLICATES, clustered_share(turned, self.pair_groups[found[:, 1]]))]

    def _agreement(self) -> Agreement | None:
        """In the languages that the responses are in; English where they are in neither."""
        chinese = sum(is_chinese(r.text) for _, r in self.rows) / len(self.rows)
        read: tuple[tuple[Language, bool], ...] = (("en", chinese < 0.95), ("zh", chinese > 0.05))
        languages = [language for language, there in read if there]
        return agreement(self._tried, self.sd, languages, resamples=self.resamples, seed=self.seed)

    def _tried(self, rows: Sequence[Row]) -> Floats:
        """As `_score`, of texts that are not of the data: those that cannot be read are not counted."""
        before = self.unread
        scores = self._score(rows)
        self.unread = before
        return scores

    def _side(self, pairs: Ints, side: int, texts: Sequence[str]) -> Floats:
        """Scores of the chosen (0) or rejected (1) responses of some pairs with other texts."""
        rows = [self.rows[i] for i in self.sides[side][pairs].tolist()]
        return self._score([(p, replace(r, text=t, tokens=None)) for (p, r), t in zip(rows, texts, strict=True)])


def _kept(edited: Sequence[Sequence[str | None]], texts: Sequence[Sequence[str]], touched: Any) -> list[list[str]]:
    """Of either side the edited texts, unedited where an edit left one side of a pair as it was."""
    return [
        [old if new is None else new for new, old, use in zip(side, before, touched, strict=True) if use]
        for side, before in zip(edited, texts, strict=True)
    ]


def _first(sentence: str, words: int) -> str:
    """The first words of a sentence; of a Chinese one as many characters."""
    return " ".join(sentence.split()[:words]) if " " in sentence else sentence[:words]
