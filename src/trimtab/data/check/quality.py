"""Responses that teach nothing good: empty, cut off, refusing, looping, in the wrong language, echoing.

Every mark is read off the text alone; where it is a guess (cut off without a `finished` column, language) the share
from which it is a warning is high.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.data.check.findings import DataFinding, Level
from trimtab.data.check.language import asks_for_another, differ, languages
from trimtab.data.check.material import Material, counted, percent
from trimtab.data.records import Pair

__all__ = ["Flaw", "flaws", "quality_findings"]

Flags = NDArray[np.bool_]

_LONG = 20
_REFUSAL = re.compile(
    r"\W*(?:(?:i['’]?m|i am|we['’]re)\s+(?:very |really |so |truly )?(?:sorry|afraid|unable|not able|not comfortable)"
    r"|i\s+(?:apologi[sz]e|must decline|have to decline|cannot|can['’]t|can not|won['’]t|will not|am not able)"
    r"|i\s+don['’]t feel comfortable"
    r"|sorry,? (?:but )?i\b|as an ai\b|unfortunately,? i (?:cannot|can['’]t|am)"
    r"|(?:很|非常|十分)?(?:抱歉|对不起|遗憾)|(?:我|作为).{0,12}(?:不能|无法|不可以)(?:为|帮|提供|回答|协助|满足|继续))",
    re.IGNORECASE,
)
_REMNANT = re.compile(
    r"<\|[\w .-]{1,40}\|>|<｜[^｜<>]{1,40}｜>|\[/?INST\]|<</?SYS>>|</?s>"
    r"|<(?:pad|unk|bos|eos|start_of_turn|end_of_turn)>"
    r"|\[(?:PAD|UNK|CLS|SEP|MASK)\]|&(?:nbsp|amp|lt|gt|quot|#\d{2,5});"
    r"|</?(?:div|span|p|br|td|tr|table|font|h[1-6]|script|a)\b[^<>]{0,200}>"
    r"|\ufffd|(?:^|\n)\s*(?:#{2,3}\s*)?(?:Human|Assistant|USER|ASSISTANT|### ?Instruction|### ?Response):",
)
_ENDS = re.compile(r"[.!?。！？…:：;；\"'”’)\]）】》」』}>`~*|♥\u2600-\u27bf\U0001f000-\U0001faff]\s*\Z")
_LIST_LINE = re.compile(r"\s*(?:[-*•+]|\(?\d{1,3}[.)、:]|[a-zA-Z][.)])\s")
_CODE = re.compile(r"```|^\s*(?:def |class |import |#include|<\?php|SELECT )", re.MULTILINE)
_URL = re.compile(r"https?://\S+\Z")


@dataclass(frozen=True, slots=True)
class Flaw:
    """A mark of a bad response.

    Args:
        id: kind of the finding.
        what: `are empty`, for `12 chosen responses ...`.
        warning: share of chosen responses with it from which it is a warning.
        advice: what to do.
    """

    id: str
    what: str
    warning: float
    advice: str


_FLAWS = {
    "empty": Flaw("empty", "are empty", 0.0, "Drop them"),
    "truncated": Flaw("truncated", "seem to end in mid-sentence", 0.1, "Sample with more tokens, or drop them"),
    "refusals": Flaw("refusals", "refuse", 0.5, "Look whether the refusals are wanted"),
    "loops": Flaw("loops", "repeat the same words over and over", 0.01, "Drop them"),
    "wrong-language": Flaw(
        "wrong-language", "are in another language than their prompt", 0.02, "Look at some, drop them"
    ),
    "prompt-echo": Flaw("prompt-echo", "begin by repeating their prompt", 0.02, "Cut the prompt off, or drop them"),
    "remnants": Flaw("remnants", "hold special tokens, markup or turn labels", 0.01, "Clean or drop them"),
}


def flaws(material: Material) -> dict[str, Flags]:
    """id -> [2, pairs] which chosen (row 0) and rejected (row 1) responses have the flaw."""
    sides = np.stack([material.chosen, material.rejected])
    texts = np.unique(sides)
    by_text = {
        name: np.zeros(len(material.corpus), dtype=np.bool_)
        for name in ("empty", "truncated", "refusals", "loops", "remnants")
    }
    lengths, looping = material.corpus.lengths, _looping(material, texts)
    for number in texts.tolist():
        text = material.corpus.texts[number]
        by_text["empty"][number] = not text.strip()
        by_text["truncated"][number] = lengths[number] >= _LONG and _cut(text)
        by_text["refusals"][number] = _REFUSAL.match(text) is not None
        by_text["remnants"][number] = (
            "<" in text or "[" in text or "&" in text or ":" in text or "\ufffd" in text
        ) and (_REMNANT.search(text) is not None)
    by_text["loops"] = looping
    result = {name: flags[sides] for name, flags in by_text.items()}
    finished = np.array([[p.chosen.finished for p in material.pairs], [p.rejected.finished for p in material.pairs]])
    result["truncated"] = ~finished if not finished.all() else result["truncated"]
    result["wrong-language"] = _wrong_language(material)
    result["prompt-echo"] = _of_pairs(material, _echo)
    return result


def quality_findings(material: Material, marks: dict[str, Flags]) -> Iterator[DataFinding]:
    """A finding for every flaw that some response has, and for pairs of identical responses."""
    n = len(material)
    for name, flags in marks.items():
        chosen, rejected = (int(x) for x in flags.sum(axis=1))
        if not chosen + rejected:
            continue
        flaw = _FLAWS[name]
        share = chosen / n
        # a rejected response may be bad: that is what it is there for, unless nearly all are bad in one way
        loud = (chosen > 0 and share >= flaw.warning) or rejected / n >= max(0.5, flaw.warning)
        index = np.flatnonzero(flags.any(axis=0))
        ids = material.ids(index)
        where = {True: "chosen", False: "rejected"}
        yield DataFinding(
            name,
            Level.WARNING if loud else Level.INFO,
            f"{counted(chosen, 'chosen response')} ({percent(chosen, n)}) and {rejected:,} rejected {flaw.what}.",
            f"{flaw.advice}: trimtab data filter FILE -o OUT --drop {name}",
            chosen + rejected,
            share,
            ids,
            {i: "both" if flags[:, k].all() else where[bool(flags[0, k])] for i, k in zip(ids, index, strict=True)},
            {"chosen": chosen, "rejected": rejected},
        )
    keys = material.keys
    same = np.array(
        [keys[a] == keys[b] for a, b in zip(material.chosen, material.rejected, strict=True)], dtype=np.bool_
    )
    if same.any():
        index = np.flatnonzero(same)
        yield DataFinding(
            "identical-responses",
            Level.WARNING,
            f"{counted(len(index), 'pair')} ({percent(len(index), n)}) {'has' if len(index) == 1 else 'have'} the same "
            "text as chosen and as rejected.",
            "Drop them, there is nothing to learn: trimtab data filter FILE -o OUT --drop identical-responses",
            len(index),
            len(index) / n,
            material.ids(index),
        )


def _of_pairs(material: Material, test: Callable[[Pair, str], bool]) -> Flags:
    rows = [[test(p, p.chosen.text) for p in material.pairs], [test(p, p.rejected.text) for p in material.pairs]]
    return np.array(rows, dtype=np.bool_).reshape(2, len(material))


def _wrong_language(material: Material) -> Flags:
    """Responses in another language than their prompt, both known, where the prompt does not speak of languages."""
    asked = material.questions
    spoken = languages(material.corpus)
    flags = differ(spoken[np.stack([material.chosen, material.rejected])], spoken[asked])
    for i in np.flatnonzero(flags.any(axis=0)).tolist():
        if asks_for_another(material.pairs[i].prompt.text):
            flags[:, i] = False
    return flags


def _looping(material: Material, texts: NDArray[np.int64]) -> Flags:
    """Texts of 20 words or more in which over half of the runs of four words have occurred before."""
    flags = np.zeros(len(material.corpus), dtype=np.bool_)
    for chunk in material.corpus.grams_of(texts, 4):
        # one number for text and run: 40 bits of the hash tell the runs of one text apart
        keys = np.sort((chunk.texts.astype(np.uint64) << np.uint64(40)) | (chunk.hashes >> np.uint64(24)))
        fresh = keys[np.flatnonzero(np.diff(keys, prepend=~keys[:1]) != 0)] >> np.uint64(40)
        distinct = np.bincount(fresh.astype(np.int64), minlength=len(chunk.counts))
        long = chunk.counts >= _LONG - 3
        repeated = 1 - distinct / np.maximum(chunk.counts, 1)
        flags[texts[chunk.first + np.flatnonzero(long & (repeated > 0.5))]] = True
    return flags


def _cut(text: str) -> bool:
    """Whether a text seems to stop in mid-sentence: no closing mark, no list item, no code, no address."""
    tail = text.rstrip()[-400:]
    if _ENDS.search(tail) or _URL.search(tail) or _CODE.search(text):
        return False
    last = tail.rsplit("\n", 1)[-1]
    return len(last.split()) > 3 and not _LIST_LINE.match(last)


def _echo(pair: Pair, response: str) -> bool:
    """Whether a response begins with the whole prompt (its last message, of five words or more) and is not just it."""
    asked = " ".join(pair.prompt.messages[-1].content.split()).casefold()
    if len(asked) < 20 or asked.count(" ") < 4:
        return False
    return " ".join(response[: 2 * len(asked) + 200].split()).casefold().startswith(asked)
