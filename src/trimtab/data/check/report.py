"""The result of a check of preference data, and how it is told: the verdict first, then findings, then figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab.data.check.findings import DataFinding, Level
from trimtab.data.check.material import counted
from trimtab.data.check.topics import Topics

__all__ = ["Check"]

_MARKS = {Level.CRITICAL: "CRITICAL", Level.WARNING: "warning ", Level.INFO: "info    "}
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Check:
    """What was found in a file of pairs.

    Args:
        path: the file.
        form: what its records are.
        records: how many there are.
        pairs: how many pairs they hold.
        prompts: distinct prompts among them.
        findings: the most severe first.
        lengths: how often the longer response wins.
        labels: how strong the labels are.
        words: what a bag of words predicts; empty where there are too few pairs.
        noise: the model of wrong labels; empty where there are too few pairs.
        topics: what the prompts are about.
        composition: who and what the pairs come from.
        left_out: records passed over by the reader, by reason.
    """

    path: str
    form: str
    records: int
    pairs: int
    prompts: int
    findings: tuple[DataFinding, ...]
    lengths: Mapping[str, Any]
    labels: Mapping[str, Any]
    words: Mapping[str, Any]
    noise: Mapping[str, Any]
    topics: Topics
    composition: Mapping[str, Mapping[str, Any]]
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def worst(self) -> Level | None:
        """The level of the most severe finding."""
        return max((f.level for f in self.findings), key=lambda level: level.rank, default=None)

    def at_least(self, level: Level) -> list[DataFinding]:
        """Findings at this level or above."""
        return [f for f in self.findings if f.level.rank >= level.rank]

    def as_dict(self) -> dict[str, Any]:
        """For `--json`; keys are always present."""
        loud = self.at_least(Level.WARNING)
        return {
            "status": "problems" if loud else "ok",
            "path": self.path,
            "form": self.form,
            "records": self.records,
            "pairs": self.pairs,
            "prompts": self.prompts,
            "findings": [f.as_dict() for f in self.findings],
            "count": len(self.findings),
            "truncated": False,
            "lengths": dict(self.lengths),
            "labels": dict(self.labels),
            "words": dict(self.words),
            "noise": dict(self.noise),
            "topics": self.topics.as_dict(),
            "composition": {kind: dict(spread) for kind, spread in self.composition.items()},
            "left_out": dict(self.left_out),
        }

    def text(self) -> str:
        """The report; what comes from the file is not made safe here."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        loud = self.at_least(Level.WARNING)
        size = f"{counted(self.pairs, 'pair')} of {counted(self.prompts, 'prompt')}"
        if loud:
            yield f"{self.path}: {size}; {counted(len(loud), 'problem')}: {', '.join(f.id for f in loud)}"
        else:
            yield f"{self.path}: {size}; no problem found"
        for finding in self.findings:
            yield ""
            yield f"{_MARKS[finding.level]} {finding.id}"
            yield f"  {finding.text}"
            if finding.ids:
                more = len(finding.ids) - len(finding.examples)
                yield f"  ids: {', '.join(finding.examples)}" + (f", and {more:,} more" if more > 0 else "")
            if finding.advice:
                yield f"  -> {finding.advice.replace('FILE', self.path)}"
        yield ""
        yield from self._figures()

    def _figures(self) -> Iterator[str]:
        lengths, labels, words, noise = self.lengths, self.labels, self.words, self.noise
        yield f"format          {self.form}, {counted(self.records, 'record')}" + "".join(
            f"; {n:,} left out: {why}" for why, n in self.left_out.items() if n
        )
        strength = ", ".join(f"{n:,} in {band}" for band, n in labels["strength"].items() if n)
        yield f"labels          {labels['hard']:,} hard, {labels['soft']:,} soft, {labels['ties']:,} ties" + (
            f" (soft ones: {strength})" if strength else ""
        )
        if lengths["n"]:
            yield (
                f"length          the longer response wins {_interval(lengths, 'longer_wins')} (people: about 64 %); "
                f"median {lengths['median_words_chosen']:.0f} and {lengths['median_words_rejected']:.0f} words"
            )
        if words:
            yield (
                f"bag of words    predicts {_interval(words, 'accuracy')} of the labels on other prompts, calibration "
                f"error {words['ece']:.3f}, log loss {words['log_loss']:.3f} (a coin: 0.693): what a preference model "
                "must beat"
            )
        if noise:
            yield (
                f"wrong labels    about {100 * noise['rate']:.1f} % [{100 * noise['low']:.1f}, "
                f"{100 * noise['high']:.1f}], judged by {noise['by']}" + _unsure(noise)
            )
        yield from self._diversity()
        for kind, spread in self.composition.items():
            top = ", ".join(f"{name} {n:,}" for name, n in list(spread["counts"].items())[:_SHOWN])
            more = len(spread["counts"]) - _SHOWN
            yield (
                f"{kind + 's':<15} {top}"
                + (f", {more:,} more" if more > 0 else "")
                + (f" (as even as {spread['effective']:.1f})" if len(spread["counts"]) > 1 else "")
            )

    def _diversity(self) -> Iterator[str]:
        topics = self.topics
        if not topics.effective:
            yield "topics          cannot be told: the prompts have no word in common that says something"
            return
        yield (
            f"topics          {topics.effective:.1f} in effect over {counted(topics.looked_at, 'distinct prompt')} "
            f"(Vendi score {topics.vendi:.0f})"
        )
        for share, words in topics.largest[:_SHOWN]:
            yield f"                {100 * share:3.0f} %  {', '.join(words)}"


def _interval(figures: Mapping[str, Any], key: str) -> str:
    return f"{100 * figures[key]:.1f} % [{100 * figures['low']:.1f}, {100 * figures['high']:.1f}]"


def _unsure(noise: Mapping[str, Any]) -> str:
    if noise["high"] - noise["low"] < 0.2:
        return ""
    return "; these scores are too weak to tell: hand in a preference model's with --scores"
