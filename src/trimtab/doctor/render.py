"""The report for a terminal: verdict, story, what could not be told, what was read.

Made of lines of styled parts, without a terminal in sight: the command line colours them. Text from logs is shown with
visible escapes, and lines are folded to the width, wide characters counted as two columns; a line to copy is never
folded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from trimtab.doctor.diagnosis import Diagnosis, Status
from trimtab.doctor.finding import Finding, Message, Prescription, Severity
from trimtab.doctor.log import Log, Skipped
from trimtab.doctor.messages.catalogue import render
from trimtab.doctor.telling import (
    SEVERITY_NAMES,
    Node,
    curve_name,
    fix_line,
    gaps,
    log_facts,
    log_of,
    place,
    sparkline,
    story,
    verdict,
)
from trimtab.hostile import visible

__all__ = ["Line", "Part", "fold", "report"]

NARROW = 60
MOST_KEYS = 12
_SPARK = 24
_RAILS = ("├─ ", "└─ ", "│  ", "   ")
_ASCII_RAILS = ("|- ", "`- ", "|  ", "   ")
_NO_RAILS = ("> ", "> ", "", "")
"""Before a consequence, before the last one, and before the lines of what has consequences, of what has none."""
_WIDE = re.compile(
    "[\u2e80-\u303e\u3041-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uffef][、。，；：！？）」』】]*|[^\u2e80-\u303e\u3041-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uffef]+"
)
_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold cyan"}
_STATUS_STYLES = {Status.SICK: "bold red", Status.HEALTHY: "bold green", Status.INCONCLUSIVE: "bold yellow"}


class Part(NamedTuple):
    """A piece of a line, with a style in rich's words; empty = plain."""

    text: str
    style: str = ""


Line = tuple[Part, ...]


def report(diagnosis: Diagnosis, lang: str = "en", width: int = 80, *, ascii_only: bool = False) -> list[Line]:
    """The diagnosis as lines of at most `width` columns (but for words and commands that are longer).

    Args:
        diagnosis: what `diagnose` returned.
        lang: one of the catalogue's languages.
        width: columns of the terminal.
        ascii_only: the stream takes no other characters: sparklines and tree lines are drawn with ASCII.
    """
    page = _Page(diagnosis, lang, max(width, 20), ascii_only)
    page.verdict()
    page.story()
    page.notes()
    page.gaps()
    page.checked()
    page.read()
    return page.lines


def fold(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` columns, broken at spaces and between wide characters.

    What has no place to break stays whole.
    """
    from rich.cells import cell_len

    lines, line = [], ""
    for word in text.split():
        for i, unit in enumerate(_WIDE.findall(word)):
            joined = f"{line} {unit}" if i == 0 and line else line + unit
            if line and cell_len(joined) > width:
                lines.append(line)
                joined = unit
            line = joined
    return [*lines, line] if line or not lines else lines


class _Page:
    def __init__(self, diagnosis: Diagnosis, lang: str, width: int, ascii_only: bool) -> None:
        self.diagnosis, self.lang, self.width, self.ascii_only = diagnosis, lang, width, ascii_only
        self.lines: list[Line] = []
        self.colon, self.semicolon = ("：", "；") if lang == "zh" else (": ", "; ")
        self.rails = _NO_RAILS if width < NARROW else _ASCII_RAILS if ascii_only else _RAILS

    # ---- pieces

    def say(self, key: str, **values: object) -> str:
        return visible(render(Message(key, values), self.lang))

    def told(self, message: Message) -> str:
        return visible(render(message, self.lang))

    def blank(self, rail: str = "") -> None:
        self.lines.append((Part(rail.rstrip(), "dim"),) if rail.strip() else ())

    def paragraph(self, text: str, rail: str = "", indent: str = "", style: str = "", first: str | None = None) -> None:
        """Folded text behind a tree's rail; `first`: what stands before the first line instead of `indent`."""
        from rich.cells import cell_len

        room = max(self.width - cell_len(rail) - cell_len(indent), 16)
        for i, line in enumerate(fold(text, room)):
            lead = first if first is not None and i == 0 else indent
            self.lines.append((Part(rail, "dim"), Part(lead, style if first is None else "dim"), Part(line, style)))

    def heading(self, key: str) -> None:
        self.blank()
        self.lines.append((Part(self.say(key), "bold"),))

    # ---- sections

    def verdict(self) -> None:
        for line in fold(visible(verdict(self.diagnosis, self.lang)), self.width):
            self.lines.append((Part(line, _STATUS_STYLES[self.diagnosis.status]),))

    def story(self) -> None:
        loud = [f for f in self.diagnosis.findings if f.severity.loud]
        for node in story(loud):
            self.blank()
            self.node(node, "", "")

    def node(self, node: Node, head: str, rail: str) -> None:
        """One finding and what follows from it; `head` stands before its first line, `rail` before the others."""
        tee, end, bar, gap = self.rails
        self.header(node.finding, head)
        self.body(node.finding, rail + bar[:1] if node.below else rail, whole=not head)
        for i, child in enumerate(node.below):
            last = i == len(node.below) - 1
            self.blank(rail + bar)
            self.node(child, rail + (end if last else tee), rail + (gap if last else bar))

    def header(self, finding: Finding, head: str) -> None:
        parts = [Part(head, "dim"), Part(self.say(SEVERITY_NAMES[finding.severity]), _STYLES[finding.severity])]
        parts.append(Part(f"  {visible(finding.id)}", "bold"))
        if finding.onset_step is not None:
            parts.append(Part("  " + self.say("face.since", step=finding.onset_step)))
        if finding.id == self.diagnosis.root_cause:
            parts.append(Part("  " + self.say("face.root"), "bold"))
        where = place(finding, self.diagnosis)
        if where:
            parts.append(Part("  " + self.say("face.where", where=where), "dim"))
        self.lines.append(tuple(parts))

    def body(self, finding: Finding, rail: str, *, whole: bool) -> None:
        self.paragraph(self.told(finding.cause), rail, "  ")
        self.evidence(finding, rail)
        if finding.ruled_out:
            self.paragraph(self.say("face.confusers"), rail, "  ", "dim")
        for reason in finding.ruled_out:
            self.paragraph(self.told(reason), rail, "    ", "dim", first="  - ")
        self.fixes(finding, rail, whole=whole)
        if whole and finding.source:
            self.paragraph(self.say("face.source", source=finding.source), rail, "  ", "dim")
        if whole:
            self.paragraph(self.say("face.more", finding=finding.id), rail, "  ", "dim")

    def evidence(self, finding: Finding, rail: str) -> None:
        """Each sentence, and once for each series its curve."""
        drawn: set[str] = set()
        for item in finding.evidence:
            self.paragraph(self.told(item.text), rail, "    ", first="  - ")
            spark = "" if item.signal in drawn else sparkline(item.curve, _SPARK, ascii_only=self.ascii_only)
            if not spark:
                continue
            name = visible(curve_name(item, finding, self.diagnosis))
            if name:
                drawn.add(item.signal)
            line = (Part(rail, "dim"), Part(f"    {spark}", "cyan"), Part(f"  {name}" if name else "", "dim"))
            self.lines.append(line)

    def fixes(self, finding: Finding, rail: str, *, whole: bool) -> None:
        if not finding.prescriptions:
            return
        log = log_of(finding, self.diagnosis)
        framework = "unknown" if log is None else log.framework
        first, *rest = finding.prescriptions
        self.paragraph(self.say("face.first" if whole else "face.if-it-stays"), rail, "  ", "bold" if whole else "dim")
        self.fix(first, framework, rail)
        if whole and rest:
            self.paragraph(self.say("face.then"), rail, "  ", "bold")
            for change in rest:
                self.fix(change, framework, rail)

    def fix(self, change: Prescription, framework: str, rail: str) -> None:
        line = visible(fix_line(change, framework)).replace("\n", " ")
        if line:
            self.lines.append((Part(rail, "dim"), Part("    "), Part(line, "green")))
        why = self.told(change.why)
        if why:
            self.paragraph(why, rail, "      " if line else "    ")

    def notes(self) -> None:
        quiet = [f for f in self.diagnosis.findings if not f.severity.loud]
        if not quiet:
            return
        self.heading("face.notes")
        for finding in quiet:
            self.header(finding, "  ")
            self.paragraph(self.told(finding.cause), "  ", "  ")
            self.evidence(finding, "  ")

    def gaps(self) -> None:
        found = gaps(self.diagnosis.not_diagnosable)
        if not found:
            return
        self.heading("face.gaps")
        self.paragraph(self.say("face.gaps-lead"), "", "  ", "dim")
        for gap in found:
            ids = render(Message("{ids}", {"ids": gap.ids}), self.lang)
            self.paragraph(f"{visible(ids)}{self.colon}{self.told(gap.text())}", "", "    ", first="  - ")

    def checked(self) -> None:
        found = {f.id for f in self.diagnosis.findings}
        clear = [i for i in self.diagnosis.checked if i not in found]
        if clear:
            self.heading("face.checked")
            self.paragraph(visible(render(Message("{ids}", {"ids": clear}), self.lang)), "", "  ", "dim")

    def read(self) -> None:
        self.heading("face.read")
        told = {log.path for log in self.diagnosis.logs}
        for log in self.diagnosis.logs:
            self.log(log)
        for path, form in self.diagnosis.formats.items():
            if path not in told:
                self.paragraph(f"{visible(path)}: {visible(form)}", "", "    ", first="  - ")
        self.skipped(self.diagnosis.skipped or tuple(s for log in self.diagnosis.logs for s in log.skipped))
        self.unmapped()

    def log(self, log: Log) -> None:
        facts = self.semicolon.join(log_facts(log, self.say))
        self.paragraph(f"{visible(log.path)}: {facts}", "", "    ", first="  - ")

    def skipped(self, skipped: Sequence[Skipped]) -> None:
        for item in skipped:
            values = {"n": item.count, "reason": item.reason, "line": item.first_line}
            key = "face.skipped-somewhere" if item.first_line is None else "face.skipped-at"
            self.paragraph(f"{self.say('face.skipped')} {self.say(key, **values)}", "", "    ", first="  - ")

    def unmapped(self) -> None:
        keys = list(dict.fromkeys(key for log in self.diagnosis.logs for key in log.unmapped))
        if not keys:
            return
        shown: list[object] = [*keys[:MOST_KEYS]]
        if len(keys) > MOST_KEYS:
            shown.append(Message("face.unmapped-more", {"n": len(keys) - MOST_KEYS}))
        listed = visible(render(Message("{keys}", {"keys": shown}), self.lang))
        self.paragraph(f"{self.say('face.unmapped')}{self.colon}{listed}", "", "    ", first="  - ")
        if self.diagnosis.not_diagnosable:
            self.paragraph(self.say("face.unmapped-how"), "", "    ", "dim")
