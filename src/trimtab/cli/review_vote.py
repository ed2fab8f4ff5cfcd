"""The terminal in which annotators vote: one item after the other, a key a vote.

Texts are of unknown origin: nothing in them is obeyed by the terminal, and long ones are cut until asked for.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from trimtab.cli import output
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.evaluation.review.assignment import next_item
from trimtab.evaluation.review.records import Choice, Served
from trimtab.evaluation.review.versions import guidelines, refresh_guidelines
from trimtab.evaluation.review.voting import progress, register, undo, vote
from trimtab.hostile import cut, visible

if TYPE_CHECKING:
    from trimtab.evaluation.review.store import Review, ReviewStore

__all__ = ["sit"]

MOST_CHARACTERS = 3000
"""Of a text are shown at first."""
_WIDEST = 100

_CHOICES = {
    **dict.fromkeys("a1", Choice.A),
    **dict.fromkeys("b2", Choice.B),
    **dict.fromkeys("t3", Choice.TIE),
    **dict.fromkeys("x0", Choice.BOTH_BAD),
    "s": Choice.SKIP,
}
_KEYS = (
    "[a] A is better  [b] B is better  [t] tie  [x] both bad  [s] skip",
    "[u] undo  [r] give a reason  [m] all of a text  [g] guidelines  [q] stop",
)
_ASPECT_KEYS = "[a] A  [b] B  [t] tie  [x] both bad  [Enter] no opinion  [u] start again"


def sit(
    store: ReviewStore,
    review: Review,
    annotator: str,
    groups: Sequence[str] | None = None,
    *,
    key: Callable[[], str] = typer.getchar,
    line: Callable[[str], str] = input,
) -> int:
    """Show items until there are none, or the annotator stops; every vote is on the disk before the next item is shown.

    Args:
        store: the reviews.
        review: which.
        annotator: who votes.
        groups: of the annotator from now on; None: as they were.
        key: reads a key.
        line: asks for a line.

    Returns:
        How many votes stand that were given now.

    Raises:
        TrimtabError: stdin is no terminal, or the store cannot be written to.
        KeyboardInterrupt: Ctrl-C; what was voted is kept.
    """
    if key is typer.getchar and (sys.stdin is None or not sys.stdin.isatty()):
        raise TrimtabError(
            ErrorKind.USAGE,
            "voting needs a terminal, and stdin is none",
            "start it in a terminal; a program votes through trimtab.evaluation.review (docs/review.md)",
        )
    if groups is not None:
        register(store, annotator, groups)
    changed = refresh_guidelines(store, review.name)
    if changed:
        output.say(f"the guidelines have changed: version {changed}")
    session = _Session(store, review.name, annotator, key, line)
    try:
        session.run()
    finally:
        left = progress(store, review.name, annotator).left
        output.say(f"\nvotes recorded: {session.votes}; left for {annotator}: {left}")
    return session.votes


class _Session:
    def __init__(
        self,
        store: ReviewStore,
        review: str,
        annotator: str,
        key: Callable[[], str],
        line: Callable[[str], str],
    ) -> None:
        self.store, self.review, self.annotator = store, review, annotator
        self.key, self.line = key, line
        self.votes = 0
        self.width = max(20, min(shutil.get_terminal_size().columns, _WIDEST) - 1)

    def run(self) -> None:
        going = True
        while going:
            shown = next_item(self.store, self.review, self.annotator)
            if shown is None:
                output.say("nothing is left to vote on; thank you")
                return
            self._show(shown)
            going = self._answer(shown)

    def _answer(self, shown: Served) -> bool:
        """Take keys until the item is voted on, or another one is to be shown; False: stop."""
        reason = ""
        while True:
            pressed = self._pressed()
            if pressed in ("q", ""):
                return False
            if pressed == "u":
                self._undo()
                return True
            if pressed == "m":
                self._show(shown, whole=True)
            elif pressed == "g":
                self._guidelines()
            elif pressed == "r":
                reason = self.line("reason: ").strip()
            elif pressed in _CHOICES:
                choice = _CHOICES[pressed]
                aspects = {} if choice is Choice.SKIP else self._aspects(shown)
                if aspects is None:
                    self._write(*_KEYS)
                    continue
                vote(
                    self.store, shown.ticket, choice, annotator=self.annotator, aspects=aspects, reason=reason[:10_000]
                )
                self.votes += 1
                self._write(f"-> {choice.replace('_', ' ')}")
                return True
            else:
                self._write(*_KEYS)

    def _aspects(self, shown: Served) -> dict[str, Choice] | None:
        """The choice by aspect; None: the annotator wants to begin this item again."""
        found: dict[str, Choice] = {}
        for aspect in shown.aspects:
            self._write(f"{visible(aspect)}: which is better?")
            self._write(_ASPECT_KEYS)
            while True:
                pressed = self._pressed()
                if pressed in ("u", ""):
                    return None
                if pressed in ("\r", "\n", " "):
                    break
                if pressed in _CHOICES and pressed != "s":
                    found[aspect] = _CHOICES[pressed]
                    break
        return found

    def _pressed(self) -> str:
        """The key in lower case; empty at the end of the input."""
        try:
            return self.key().lower()
        except EOFError:
            return ""

    def _undo(self) -> None:
        undone = undo(self.store, self.review, self.annotator)
        if undone is None:
            self._write("there is no vote to undo")
        else:
            self.votes = max(self.votes - 1, 0)
            self._write(f"undone: {undone.replace('_', ' ')}")

    def _guidelines(self) -> None:
        versions = guidelines(self.store, self.review)
        self._text(versions[-1].text if versions else "there are no guidelines", whole=True)
        self._write(*_KEYS)

    def _show(self, shown: Served, whole: bool = False) -> None:
        self._rule(f"{shown.progress.done} done, {shown.progress.left} left")
        for role, content in shown.prompt:
            self._rule(role if len(shown.prompt) > 1 else "prompt")
            self._text(content, whole)
        for side, text in (("A", shown.a), ("B", shown.b)):
            self._rule(side)
            self._text(text, whole)
        self._rule("")
        self._write(*_KEYS)

    def _text(self, text: str, whole: bool = False) -> None:
        begun = cut(text, len(text) if whole else MOST_CHARACTERS)
        for paragraph in visible(begun).expandtabs(4).split("\n"):
            for part in _wrapped(paragraph, self.width):
                output.emit_text(part)
        if begun.is_cut:
            self._write(f"[{begun.total - len(begun)} more characters: m shows all]")
        if not text.strip():
            self._write("[empty]")

    def _write(self, *texts: str) -> None:
        for text in texts:
            for part in _wrapped(text, self.width):
                output.emit_lines([[(part, "dim")]])

    def _rule(self, title: str) -> None:
        head = f"--- {visible(title)} " if title else ""
        output.emit_lines([[(head + "-" * max(self.width - len(head), 3), "bold")]])


def _wrapped(text: str, width: int) -> Iterable[str]:
    """Lines of at most `width` cells, as wide as a terminal draws them."""
    from rich.console import Console
    from rich.text import Text

    safe = output.safe(text)
    if not safe:
        return [""]
    return [line.plain.rstrip() for line in Text(safe).wrap(Console(width=width), width)]
