"""What every face of a diagnosis needs: the verdict as a sentence, the story as a tree, a fix as a line to copy."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from trimtab.doctor.diagnosis import Diagnosis, Status
from trimtab.doctor.finding import Evidence, Finding, Message, NotDiagnosable, Prescription
from trimtab.doctor.log import Log, Series
from trimtab.doctor.messages.catalogue import render

__all__ = [
    "SEVERITY_NAMES",
    "STATUS_NAMES",
    "Gap",
    "Node",
    "alarm_line",
    "curve_name",
    "docs_page",
    "fix_line",
    "gaps",
    "log_facts",
    "log_of",
    "place",
    "series_of",
    "sparkline",
    "story",
    "verdict",
    "walk",
]

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.,-=+*#"
_RULE = re.compile(r"^[x×*/+<>≤≥]")
SEVERITY_NAMES = {"critical": "face.critical", "warning": "face.warning", "info": "face.info"}
STATUS_NAMES = {
    "healthy": "face.status-healthy",
    "sick": "face.status-sick",
    "inconclusive": "face.status-inconclusive",
}
_REASONS = {
    "missing": ("face.missing", "face.missing-alone"),
    "unit-unknown": ("face.unit-unknown", "face.missing-alone"),
    "too-short": ("face.too-short", "face.too-short-alone"),
    "underpowered": ("face.underpowered", "face.underpowered-alone"),
}
"""Why a check could not be made: with and without the names of what would enable it."""


@dataclass(frozen=True, slots=True)
class Node:
    """A finding of the story with the findings that follow from it."""

    finding: Finding
    below: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """Checks that could not be made for one reason, with what would enable them."""

    reason: str
    missing: tuple[str, ...]
    ids: tuple[str, ...]

    def text(self) -> Message:
        """What is missing, as a sentence."""
        named, alone = _REASONS[self.reason]
        return Message(named, {"keys": self.missing}) if self.missing else Message(alone)


def verdict(diagnosis: Diagnosis, lang: str = "en") -> str:
    """The verdict in one sentence: `Sick: length-exploitation since step 64; 4 consequences.`"""
    quiet = sum(not f.severity.loud for f in diagnosis.findings)
    parts = [_headline(diagnosis)]
    if diagnosis.status is Status.SICK:
        loud = [f for f in diagnosis.findings if f.severity.loud]
        nodes = story(loud)
        root = next((n for n in walk(nodes) if n.finding.id == diagnosis.root_cause), nodes[0] if nodes else None)
        under = 0 if root is None else sum(1 for _ in walk(root.below))
        parts += _counted(under, "face.one-consequence", "face.consequences")
        parts += _counted(max(len(loud) - 1 - under, 0), "face.one-other", "face.others")
    else:
        parts += _counted(quiet, "face.one-noted", "face.noted")
    joined = ("；" if lang == "zh" else "; ").join(render(part, lang) for part in parts)
    return joined + ("。" if lang == "zh" else ".")


def _headline(diagnosis: Diagnosis) -> Message:
    if diagnosis.status is not Status.SICK:
        made, unmade = len(set(diagnosis.checked)), len({item.id for item in diagnosis.not_diagnosable})
        key = "face.healthy" if diagnosis.status is Status.HEALTHY else "face.inconclusive"
        return Message(key, {"made": made, "unmade": unmade})
    root = next((f for f in diagnosis.findings if f.id == diagnosis.root_cause), None)
    if root is None or root.onset_step is None:
        return Message("face.sick-without-step", {"finding": diagnosis.root_cause or ""})
    return Message("face.sick", {"finding": root.id, "step": root.onset_step})


def _counted(n: int, one: str, many: str) -> list[Message]:
    return [] if n == 0 else [Message(one)] if n == 1 else [Message(many, {"n": n})]


def story(findings: Sequence[Finding]) -> tuple[Node, ...]:
    """The findings as trees, consequences below their cause, otherwise in the given order.

    A finding whose cause is not among them stands by itself; of two with the cause's id, the one in the same file is
    the cause, else the first.
    """
    parents = [_cause(i, findings) for i in range(len(findings))]

    def grow(i: int, above: frozenset[int]) -> Node:
        inside = above | {i}
        return Node(findings[i], tuple(grow(j, inside) for j, p in enumerate(parents) if p == i and j not in inside))

    return tuple(grow(i, frozenset()) for i in range(len(findings)) if _is_root(i, parents))


def _cause(i: int, findings: Sequence[Finding]) -> int | None:
    wanted = findings[i].because_of
    same = [j for j, f in enumerate(findings) if f.id == wanted and j != i]
    return next((j for j in same if findings[j].where == findings[i].where), same[0] if same else None)


def _is_root(i: int, parents: Sequence[int | None]) -> bool:
    """Whether nothing is above it, or it is the first of a circle (which would else hang nowhere)."""
    seen: list[int] = []
    at: int | None = i
    while at is not None and at not in seen:
        seen.append(at)
        at = parents[at]
    return parents[i] is None or (at == i and i == min(seen))


def walk(nodes: Sequence[Node]) -> Iterator[Node]:
    """Every node, a cause before its consequences."""
    for node in nodes:
        yield node
        yield from walk(node.below)


def gaps(unchecked: Sequence[NotDiagnosable]) -> list[Gap]:
    """The checks that could not be made, grouped by what is missing; what enables most comes first."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for item in unchecked:
        groups.setdefault((item.reason, item.missing), []).append(item.id)
    found = [Gap(reason, missing, tuple(dict.fromkeys(ids))) for (reason, missing), ids in groups.items()]
    return sorted(found, key=lambda gap: -len(gap.ids))


def log_facts(log: Log, say: Callable[..., str]) -> list[str]:
    """What was read of a log, a few words each; `say(key, **values)` renders a message in the reader's language."""
    values = {"format": log.format, "rows": log.rows, "series": len(log.series)}
    if log.steps is None:
        facts = [say("face.log-without-steps", **values)]
    else:
        facts = [say("face.one-log", **values, first=log.steps[0], last=log.steps[1])]
    if log.planned_steps is not None:
        facts.append(say("face.of-planned", planned=log.planned_steps))
    if log.algorithm and log.framework not in ("unknown", ""):
        facts.append(say("face.algorithm", algorithm=log.algorithm, framework=log.framework))
    if log.truncated:
        facts.append(say("face.cut-off"))
    return facts


def log_of(finding: Finding, diagnosis: Diagnosis) -> Log | None:
    """The training log that a finding is about; None for one about judgments or data."""
    where = finding.where
    named = [log for log in diagnosis.logs if where in (log.path, str(log.stage), f"{log.path} ({log.stage})")]
    return named[0] if named else diagnosis.logs[0] if len(diagnosis.logs) == 1 and not finding.where else None


def series_of(evidence: Evidence, finding: Finding, diagnosis: Diagnosis) -> Series | None:
    """The series that a piece of evidence speaks of, by the log's own name or by ours.

    One column of a log may be several series (a share and its complement): the one that the evidence's curve is of.
    """
    log = log_of(finding, diagnosis)
    if log is None or not evidence.signal:
        return None
    named = [s for s in log.series.values() if evidence.signal in (s.key, s.name) and len(s)]
    return min(named, key=lambda s: _apart(s, evidence.curve), default=None)


def place(finding: Finding, diagnosis: Diagnosis) -> str:
    """Where a finding was made, without what all places have in common; empty where there is only one."""
    if not finding.where or len(diagnosis.formats) < 2:
        return ""
    first, last = min(diagnosis.formats), max(diagnosis.formats)
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    shared = first[:same]
    shared = shared[: max(shared.rfind("/") + 1, shared.rfind(" [") + 1)]
    return finding.where.removeprefix(shared)


def curve_name(evidence: Evidence, finding: Finding, diagnosis: Diagnosis) -> str:
    """What a curve is of, in the log's words: its key, or what it was computed from."""
    series = series_of(evidence, finding, diagnosis)
    return evidence.signal if series is None else series.derived or evidence.signal


def _apart(series: Series, curve: Sequence[float]) -> float:
    """How far the middle of a curve is from the middle of a series; 0 where there is none to compare."""
    drawn = sorted(v for v in curve if math.isfinite(v))
    whole = sorted(series.finite[1].tolist())
    return abs(drawn[len(drawn) // 2] - whole[len(whole) // 2]) if drawn and whole else 0.0


def fix_line(change: Prescription, framework: str) -> str:
    """A prescription as one line to copy: its command, or its settings as the framework takes them.

    Our runs: `--set ppo.beta=0.2`. Elsewhere `learning_rate=5e-07`, or `--beta 0.2` where the framework's keys are
    flags. A rule in place of a value is shown beside its key: `learning_rate x0.5`. Empty where nothing is to be set.
    """
    if change.command:
        return change.command
    return " ".join(_assignment(key, value, framework) for key, value in change.set.items())


def _assignment(key: str, value: Any, framework: str) -> str:
    if isinstance(value, str) and _RULE.match(value):
        return f"{key} {value}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if key.startswith("-"):
        return f"{key} {shlex.quote(text)}"
    return f"{'--set ' if framework == 'trimtab' else ''}{key}={shlex.quote(text)}"


def docs_page(finding: str) -> str:
    """The docs page of a finding, from the root of the source tree."""
    return f"docs/failures/{finding}.md"


def alarm_line(finding: Finding, lang: str = "en") -> str:
    """One line for a terminal or a chat: severity, id, onset, cause."""
    values: Mapping[str, Any] = {
        "severity": Message(SEVERITY_NAMES[finding.severity]),
        "finding": finding.id,
        "step": finding.onset_step,
        "cause": finding.cause,
    }
    return render(Message("face.alarm" if finding.onset_step is not None else "face.alarm-without-step", values), lang)


def sparkline(curve: Sequence[float], width: int = 24, *, ascii_only: bool = False) -> str:
    """A curve in blocks of eight heights, at most `width` of them (means of neighbours where there are more points).

    A point that is not finite is shown as `!`; empty for fewer than two points.
    """
    if len(curve) < 2 or width < 2:
        return ""
    n = min(len(curve), width)
    cuts = [round(i * len(curve) / n) for i in range(n + 1)]
    points = [_mean(curve[a:b]) for a, b in pairwise(cuts)]
    finite = [p for p in points if math.isfinite(p)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    marks = _ASCII if ascii_only else _BLOCKS
    return "".join(_mark(p, low, high, marks) for p in points)


def _mark(point: float, low: float, high: float, marks: str) -> str:
    if not math.isfinite(point):
        return "!"
    # halves, so that a span near the largest float does not overflow
    share = (point / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
    return marks[min(int(share * len(marks)), len(marks) - 1)]


def _mean(values: Sequence[float]) -> float:
    """The mean; NaN as soon as one value is lost, so that it shows."""
    return math.fsum(v / len(values) for v in values) if all(map(math.isfinite, values)) else math.nan
