"""Transcripts of the constitutional supervised phase: what was drafted, criticised and revised, and what is kept of it.

A transcript stays as it was sampled; `sift` decides what of it is trained on, by rules that look at the text alone:

- An announcement in front ("Here is the revised response:") and quotation marks around the whole are taken off.
- Dropped is a revision that is missing, empty, cut off, the same as the draft, a copy of the critique or of a request,
  one that still talks about the revising, and one that the same prompt has already.

The rules know English and Chinese phrases. They err on the side of dropping.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trimtab.data.demonstrations import Demonstration
from trimtab.data.lines import (
    LineError,
    messages_of,
    prompt_columns,
    prompt_of,
    read_lines,
    response_columns,
    response_of,
    text_of,
)
from trimtab.data.records import Prompt, Response
from trimtab.runs.files import write_jsonl
from trimtab.stats.text import ngrams, words

__all__ = [
    "Fate",
    "Round",
    "Sifted",
    "Transcript",
    "read_transcripts",
    "sift",
    "summarise_transcripts",
    "to_demonstrations",
    "transcript_record",
    "unannounced",
    "write_transcripts",
]


@dataclass(frozen=True, slots=True)
class Round:
    """One critique and revision under one principle."""

    principle: str
    critique_request: str
    critique: Response
    revision_request: str
    revision: Response


@dataclass(frozen=True, slots=True)
class Transcript:
    """A prompt's draft and its rounds; fewer than were asked for where the conversation outgrew the model's context."""

    prompt: Prompt
    draft: Response
    rounds: tuple[Round, ...]
    too_long: bool = False

    @property
    def revision(self) -> Response | None:
        """The last revision; None where not even the first round fitted."""
        return self.rounds[-1].revision if self.rounds else None


class Fate(StrEnum):
    """What becomes of a transcript's last revision."""

    KEPT = "kept"
    """Trained on."""
    TOO_LONG = "too-long"
    """The conversation outgrew the model's context before all rounds were done."""
    EMPTY = "empty"
    """There is no text."""
    CUT_OFF = "cut-off"
    """It did not end by itself within the length allowed: it would teach not to end."""
    UNCHANGED = "unchanged"
    """It is the draft again."""
    COPIED = "copied"
    """It repeats a request, the prompt, or the critique: most of its four-word runs came up there."""
    ABOUT = "about-revising"
    """It talks about the response or its revision, which nobody asked for."""
    REPEATED = "repeated"
    """An earlier transcript of the same prompt has it already."""


@dataclass(frozen=True, slots=True)
class Sifted:
    """A transcript, what becomes of it, and the text to train on (also of a dropped one: as far as it was cleaned)."""

    transcript: Transcript
    fate: Fate
    text: str

    @property
    def stripped(self) -> bool:
        """Whether an announcement or quotation marks were taken off."""
        revision = self.transcript.revision
        return revision is not None and self.text != revision.text.strip()


_NEW = r"(?:revis\w+|rewrit\w+|rewrote|rephras\w+|improved|updated|amended|modified|corrected)"
_WORK = r"(?:response|answer|reply|version|text|message|revision|rewrite|draft)"
_ANNOUNCED = re.compile(
    rf"""\s*[*#_]*\s*(?:
        (?=[^\n:]{{0,180}}:)(?=[^\n:]*\b{_NEW})(?=[^\n:]*\b{_WORK}\b)
        (?:(?:sure|certainly|of\ course|okay|ok|absolutely)\b[^\n:\w]*)?
        (?:here(?:'s|’s|\ is|\ are)|below\ is|this\ is|i(?:'ve|’ve|\ have)?\ {_NEW})[^\n:]*
      | (?:my\ |the\ |a\ )?(?:{_NEW}|new|final)\ {_WORK}
      | (?:{_NEW}|{_WORK})
      | (?:好的[，,。！]?\s*)?以下是[^\n：:]{{0,20}}(?:修改|修订|改写|重写|更新)[^\n：:]{{0,20}}
      | (?:修改|修订|改写)后的?(?:回答|回复|版本)
    )\s*[*_]*\s*[:：]\s*[*_]*\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_ABOUT = re.compile(
    rf"""\b(?:{_NEW}|original|previous|preceding|initial)\ (?:response|answer|reply|version)\b
      | \bi(?:'ve|’ve|\ have)?\ (?:revised|rewritten|rewrote|rephrased)\b
      | \b(?:this|the|my)\ (?:revision|rewrite|critique)\b
      | \b(?:the\ new|this|your|my)\ (?:response|answer)\b
      | \bthe\ response\ (?:is|was|could|should|can|does|did|provides|lacks|contains|uses|fails|has)\b
      | (?:修改|修订|改写)后的?(?:回答|回复|版本)
      | 原(?:回答|回复)""",
    re.IGNORECASE | re.VERBOSE,
)
_QUOTES = {'"': '"', "“": "”", "「": "」"}


def unannounced(text: str) -> str:
    """The text without an announcement of the revision in front, and without quotation marks around all of it.

    An announcement is the beginning of the text up to a colon in its first line, if it says nothing but that a new
    version follows: "Here is a revised response:", "Sure! Here's the rewritten version:", "Revised answer:".
    """
    rest = text.strip()
    if found := _ANNOUNCED.match(rest):
        rest = rest[found.end() :].strip()
    closing = _QUOTES.get(rest[:1])
    if closing and len(rest) > 2 and rest[-1] == closing and closing not in rest[1:-1] and rest[0] not in rest[1:-1]:
        rest = rest[1:-1].strip()
    return rest


def sift(transcripts: Iterable[Transcript]) -> list[Sifted]:
    """What becomes of each transcript, in order."""
    seen: set[tuple[Any, str]] = set()
    sifted = []
    for transcript in transcripts:
        revision = transcript.revision
        text = unannounced(revision.text) if revision is not None else ""
        fate = _fate(transcript, text)
        key = (transcript.prompt.messages, _plain(text))
        if fate is Fate.KEPT and key in seen:
            fate = Fate.REPEATED
        if fate is Fate.KEPT:
            seen.add(key)
        sifted.append(Sifted(transcript, fate, text))
    return sifted


def _fate(transcript: Transcript, text: str) -> Fate:
    revision = transcript.revision
    if transcript.too_long or revision is None:
        return Fate.TOO_LONG
    if not text:
        return Fate.EMPTY
    if not revision.finished:
        return Fate.CUT_OFF
    said = _plain(text)
    if said == _plain(transcript.draft.text):
        return Fate.UNCHANGED
    last = transcript.rounds[-1]
    requests = (last.critique_request, last.revision_request, transcript.prompt.messages[-1].content)
    copied = said in {_plain(text) for text in requests} or said.startswith(_plain(last.revision_request))
    if copied or _taken_over(text, transcript) > _TAKEN_OVER:
        return Fate.COPIED
    return Fate.ABOUT if _ABOUT.search(text) else Fate.KEPT


_RUN = 4
_TAKEN_OVER = 0.5


def _taken_over(text: str, transcript: Transcript) -> float:
    """Share of the text's four-word runs that came up in a critique: they stand in one and in no response before it.

    A critique itself counts whole, however short. A critique that quotes a response brings nothing up.
    """
    new: set[tuple[str, ...]] = set()
    known: set[tuple[str, ...]] = set()
    before, response = set(), transcript.draft.text
    for r in transcript.rounds:
        before.add(_plain(response))
        known |= set(ngrams(words(response), _RUN))
        new |= set(ngrams(words(r.critique.text), _RUN)) - known
        if _plain(text) == _plain(r.critique.text) and _plain(text) not in before:
            return 1.0
        response = r.revision.text
    mine = ngrams(words(text), _RUN)
    return sum(run in new for run in mine) / len(mine) if mine else 0.0


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def to_demonstrations(sifted: Iterable[Sifted]) -> list[Demonstration]:
    """Prompt and last revision of what is kept; `extra` names the principles that it was revised by."""
    return [
        Demonstration(
            s.transcript.prompt, s.text, s.transcript.prompt.id,
            {"source": "constitution", "principles": [r.principle for r in s.transcript.rounds]},
        )
        for s in sifted
        if s.fate is Fate.KEPT
    ]  # fmt: skip


def summarise_transcripts(sifted: Sequence[Sifted]) -> dict[str, Any]:
    """Counts and lengths, JSON-able.

    `dropped` counts by reason; `draft_tokens` and `revision_tokens` are mean lengths of the kept ones, EOS included;
    `longer` is the share of kept revisions with more characters than their draft; `principles` tells for each principle
    of a last round how often it was drawn and how many of its revisions were kept.
    """
    kept = [s for s in sifted if s.fate is Fate.KEPT]
    fates = Counter(s.fate for s in sifted)
    drawn = Counter(s.transcript.rounds[-1].principle for s in sifted if s.transcript.rounds)
    used = Counter(s.transcript.rounds[-1].principle for s in kept)
    pairs = [(s.transcript.draft, s.transcript.rounds[-1].revision) for s in kept]
    return {
        "prompts": len(sifted),
        "kept": len(kept),
        "dropped": {str(fate): fates[fate] for fate in Fate if fate is not Fate.KEPT},
        "stripped": sum(s.stripped for s in kept),
        "draft_tokens": _mean([d.tokens for d, _ in pairs]),
        "revision_tokens": _mean([r.tokens for _, r in pairs]),
        "longer": _mean([len(s.text) > len(s.transcript.draft.text.strip()) for s in kept]),
        "principles": {p: {"drawn": drawn[p], "kept": used[p]} for p in sorted(drawn)},
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


# files


def transcript_record(transcript: Transcript) -> dict[str, Any]:
    """The JSON object of a transcript's line."""
    rounds = [
        {
            "principle": r.principle,
            "critique_request": r.critique_request,
            "critique": r.critique.text,
            **response_columns("critique", r.critique),
            "revision_request": r.revision_request,
            "revision": r.revision.text,
            **response_columns("revision", r.revision),
        }
        for r in transcript.rounds
    ]
    draft = {"draft": transcript.draft.text, **response_columns("draft", transcript.draft)}
    line = {**prompt_columns(transcript.prompt), **draft, "rounds": rounds}
    return {**line, "too_long": True} if transcript.too_long else line


def write_transcripts(path: str | os.PathLike[str], sifted: Iterable[Sifted]) -> None:
    """Write transcripts with their `fate` and the `response` that is trained on; `read_transcripts` reads them back."""
    write_jsonl(path, ({**transcript_record(s.transcript), "fate": str(s.fate), "response": s.text} for s in sifted))


def read_transcripts(path: str | os.PathLike[str], *, partial: bool = False) -> list[Transcript]:
    """The transcripts in a JSONL file.

    Args:
        path: the file.
        partial: its writer may have been killed: half-written lines are skipped, and there may be none.

    Raises:
        TrimtabError: the file is missing or empty, or a line is broken; it is named with its number.
    """
    return read_lines(path, "transcripts", lambda record, number: _transcript(record), partial=partial)


def _transcript(record: Mapping[str, Any]) -> Transcript:
    rounds = record.get("rounds")
    if not isinstance(rounds, list) or not all(isinstance(r, dict) for r in rounds):
        raise LineError("rounds is no list of objects")
    return Transcript(
        prompt_of(record, messages_of(record.get("prompt"), "prompt")),
        response_of(record, "draft", text_of(record, "draft")),
        tuple(
            Round(
                text_of(r, "principle"),
                text_of(r, "critique_request"),
                response_of(r, "critique", text_of(r, "critique")),
                text_of(r, "revision_request"),
                response_of(r, "revision", text_of(r, "revision")),
            )
            for r in rounds
        ),
        record.get("too_long") is True,
    )
