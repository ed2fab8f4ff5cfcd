"""Every failure that the doctor knows, explained: for `trimtab explain` and the pages in docs/failures/."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trimtab.doctor.finding import Message
from trimtab.doctor.messages.catalogue import MESSAGES, render
from trimtab.doctor.render import Line, Part, fold
from trimtab.doctor.telling import docs_page

__all__ = ["Explanation", "explained", "pages"]

_MADE = "<!-- Made from the code by `make docs`; change src/trimtab/doctor/messages/explain.py. -->"
_PARTS = (("signals", "face.signals"), ("confusers", "face.confusers"), ("fixes", "face.fixes"))


@dataclass(frozen=True, slots=True)
class Explanation:
    """One failure in words; `signals`, `confusers` and `fixes` are lists of sentences."""

    id: str
    title: str
    what: str
    signals: tuple[str, ...]
    confusers: tuple[str, ...]
    fixes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "id": self.id,
            "title": self.title,
            "what": self.what,
            "signals": list(self.signals),
            "confusers": list(self.confusers),
            "fixes": list(self.fixes),
            "docs": docs_page(self.id),
        }

    def lines(self, width: int, lang: str = "en") -> list[Line]:
        """For a terminal of `width` columns."""
        made: list[Line] = [(Part(self.id, "bold"), Part(f"  {self.title}"))]
        made += [(Part(line),) for line in fold(self.what, width)]
        for part, heading in _PARTS:
            items: tuple[str, ...] = getattr(self, part)
            if items:
                made += [(), (Part(render(Message(heading), lang), "bold"),)]
            for i, item in enumerate(items, 1):
                mark = f"  {i}. " if part == "fixes" else "  - "
                for j, line in enumerate(fold(item, max(width - len(mark), 16))):
                    made.append((Part(" " * len(mark) if j else mark, "dim"), Part(line)))
        return [*made, (), (Part(docs_page(self.id), "dim"),)]

    def page(self) -> str:
        """For the docs, as Markdown."""
        parts = [f"# {self.id}", _MADE, f"**{_plain(self.title)}.** {_plain(self.what)}"]
        for part, heading in _PARTS:
            items: tuple[str, ...] = getattr(self, part)
            if items:
                marks = [f"{i}." if part == "fixes" else "-" for i in range(1, len(items) + 1)]
                listed = "\n".join(f"{mark} {_plain(item)}" for mark, item in zip(marks, items, strict=True))
                parts.append(f"## {render(Message(heading))}\n\n{listed}")
        parts.append(f"`trimtab explain {self.id}` prints this page; [all findings](README.md).")
        return "\n\n".join(parts) + "\n"


def explained(lang: str = "en") -> dict[str, Explanation]:
    """Every explanation by the finding's id, in the order of the catalogue."""
    ids = [key.removesuffix(".what") for key in MESSAGES if key.endswith(".what")]
    return {i: _explanation(i, lang) for i in ids}


def _explanation(finding: str, lang: str) -> Explanation:
    def told(part: str) -> str:
        return render(Message(f"{finding}.{part}"), lang) if f"{finding}.{part}" in MESSAGES else ""

    lists = {part: tuple(line for line in told(part).split("\n") if line) for part, _ in _PARTS}
    return Explanation(finding, told("title") or finding, told("what"), **lists)


def pages() -> dict[str, str]:
    """The pages of docs/failures by file name, with an index."""
    known = explained()
    rows = "\n".join(f"| [{e.id}]({e.id}.md) | {_plain(e.title).replace('|', chr(92) + '|')} |" for e in known.values())
    index = (
        f"# What the doctor can find\n\n{_MADE}\n\nOne page a finding: what it is, which signals show it, what else "
        "could look like it, what to do. [The doctor](../doctor.md) says how they are found.\n\n"
        f"| finding | in a few words |\n| --- | --- |\n{rows}\n"
    )
    return {"README.md": index, **{f"{e.id}.md": e.page() for e in known.values()}}


def _plain(text: str) -> str:
    """Text that Markdown leaves as it is where it would else start an element."""
    return text.replace("<", "\\<")
