"""The diagnosis as one self-contained HTML page: no script, nothing loaded, light and dark, charts with their onset.

What comes from a log is escaped, and characters that would not show are shown as escapes.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from trimtab import __version__
from trimtab.chart import Line, line_chart
from trimtab.doctor.diagnosis import Diagnosis
from trimtab.doctor.finding import Evidence, Finding, Message
from trimtab.doctor.log import Log
from trimtab.doctor.messages.catalogue import has, render, title
from trimtab.doctor.telling import (
    SEVERITY_NAMES,
    STATUS_NAMES,
    Node,
    curve_name,
    fix_line,
    gaps,
    log_facts,
    log_of,
    place,
    series_of,
    sparkline,
    story,
    verdict,
)
from trimtab.figures import figure
from trimtab.hostile import visible, visible_html
from trimtab.runs.files import atomic_write_text

__all__ = ["page", "write"]

MOST_KEYS = 40
_PART = re.compile(r" \[[^\]]*\]$")


def write(diagnosis: Diagnosis, path: Path, lang: str = "en") -> None:
    """Write the page.

    Raises:
        TrimtabError: it cannot be written.
    """
    atomic_write_text(path, page(diagnosis, lang))


def page(diagnosis: Diagnosis, lang: str = "en") -> str:
    """The HTML of the page.

    Args:
        diagnosis: what `diagnose` returned.
        lang: one of the catalogue's languages.
    """
    face = _Face(diagnosis, lang)
    loud = [f for f in diagnosis.findings if f.severity.loud]
    quiet = [f for f in diagnosis.findings if not f.severity.loud]
    status = str(diagnosis.status)
    return str(
        _environment().get_template("doctor.html.j2").render(
            lang="zh-Hans" if lang == "zh" else "en",
            say=face.say,
            status=status,
            status_name=face.say(STATUS_NAMES[status]),
            name=_name(diagnosis),
            verdict=verdict(diagnosis, lang),
            nodes=[face.node(node) for node in story(loud)],
            notes=[face.finding(f) for f in quiet],
            gaps=[(gap.ids, face.told(gap.text())) for gap in gaps(diagnosis.not_diagnosable)],
            checked=[i for i in diagnosis.checked if i not in {f.id for f in diagnosis.findings}],
            logs=[face.log(log) for log in diagnosis.logs],
            files=[(p, f) for p, f in diagnosis.formats.items() if p not in {log.path for log in diagnosis.logs}],
            skipped=face.skipped(),
            unmapped=face.unmapped(),
            written=time.strftime("%Y-%m-%d %H:%M"),
            version=__version__,
        )
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Fix:
    """A prescription as shown: what to copy (may be empty) and why."""

    line: str
    why: str


@dataclass(frozen=True, slots=True)
class _Proof:
    """Evidence as shown: the sentence, and a chart, or a line of blocks where the steps are not known."""

    text: str
    signal: str
    chart: Markup
    spark: str


@dataclass(frozen=True, slots=True)
class _Card:
    """A finding as shown, with the cards of what follows from it."""

    number: int
    id: str
    title: str
    severity: str
    severity_name: str
    since: str
    root: bool
    where: str
    cause: str
    charts: list[_Proof]
    facts: list[_Proof]
    ruled_out: list[str]
    fixes: list[_Fix]
    source: str
    below: list[_Card]


class _Face:
    def __init__(self, diagnosis: Diagnosis, lang: str) -> None:
        self.diagnosis, self.lang = diagnosis, lang
        self.cards = 0

    def say(self, key: str, **values: Any) -> str:
        return render(Message(key, values), self.lang)

    def told(self, message: Message) -> str:
        return render(message, self.lang)

    def node(self, node: Node) -> _Card:
        return self.finding(node.finding, [self.node(child) for child in node.below])

    def finding(self, finding: Finding, below: list[_Card] | None = None) -> _Card:
        log = log_of(finding, self.diagnosis)
        framework = "unknown" if log is None else log.framework
        proofs = self.proofs(finding)
        since = "" if finding.onset_step is None else self.say("face.since", step=finding.onset_step)
        self.cards += 1
        return _Card(
            number=self.cards,
            id=finding.id,
            title=title(finding.id, self.lang) if has(f"{finding.id}.title") else "",
            severity=str(finding.severity),
            severity_name=self.say(SEVERITY_NAMES[finding.severity]),
            since=since,
            root=finding.id == self.diagnosis.root_cause,
            where=place(finding, self.diagnosis),
            cause=self.told(finding.cause),
            charts=[p for p in proofs if p.chart],
            facts=[p for p in proofs if not p.chart],
            ruled_out=[self.told(m) for m in finding.ruled_out],
            fixes=[_Fix(fix_line(p, framework), self.told(p.why)) for p in finding.prescriptions],
            source=finding.source,
            below=below or [],
        )

    def proofs(self, finding: Finding) -> list[_Proof]:
        """The evidence; a series is drawn once, beside the first sentence about it."""
        made, drawn = [], set()
        for item in finding.evidence:
            chart = Markup("") if item.signal in drawn else self.chart(item, finding)
            if chart:
                drawn.add(item.signal)
            spark = "" if chart or item.signal in drawn else sparkline(item.curve, 40)
            made.append(_Proof(self.told(item.text), curve_name(item, finding, self.diagnosis), chart, spark))
        return made

    def chart(self, item: Evidence, finding: Finding) -> Markup:
        series = series_of(item, finding, self.diagnosis)
        if series is None or len(series) < 2:
            return Markup("")
        values = series.finite[1]
        if not len(values):
            return Markup("")
        told = {
            "signal": series.derived or item.signal,
            "low": float(values.min()),
            "high": float(values.max()),
            "last": float(values[-1]),
        }
        onset = finding.onset_step
        label = self.say("face.chart", **told) if onset is None else self.say("face.chart-onset", **told, step=onset)
        points = list(zip(series.steps.tolist(), series.values.tolist(), strict=True))
        return line_chart(Line(points, label, onset=onset))

    def log(self, log: Log) -> tuple[str, list[str]]:
        return log.path, log_facts(log, self.say)

    def skipped(self) -> list[str]:
        items = self.diagnosis.skipped or tuple(s for log in self.diagnosis.logs for s in log.skipped)
        return [
            self.say("face.skipped-somewhere", n=s.count, reason=s.reason)
            if s.first_line is None
            else self.say("face.skipped-at", n=s.count, reason=s.reason, line=s.first_line)
            for s in items
        ]

    def unmapped(self) -> list[str]:
        keys = list(dict.fromkeys(key for log in self.diagnosis.logs for key in log.unmapped))
        more = len(keys) - MOST_KEYS
        return keys[:MOST_KEYS] + ([self.say("face.unmapped-more", n=more)] if more > 0 else [])


def _name(diagnosis: Diagnosis) -> str:
    """What was looked at: the one file or run, or the directory that all of them are in."""
    named = list(diagnosis.formats) or [log.path for log in diagnosis.logs]
    paths = [Path(path) for path in dict.fromkeys(_PART.sub("", name) for name in named)]  # a run has several stages
    if len(paths) == 1:
        return str(paths[0])
    common = next((p for p in paths[0].parents if all(p in q.parents for q in paths)), None) if paths else None
    return "" if common is None else str(common)


def _environment() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("trimtab.doctor", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters.update(fig=figure, visible=lambda text: escape(visible(text)))
    return environment


def _finalize(value: object) -> object:
    """Every text that the template prints goes through here; only Markup of our own making passes as it is."""
    if isinstance(value, Markup):
        return value
    return visible_html(value) if isinstance(value, str) else value
