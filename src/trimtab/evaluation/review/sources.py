"""Where a review's items are from: responses that runs have kept, or files of pairs. Nothing is sampled here.

A run keeps responses to its probe prompts at every checkpoint (`samples.jsonl`), and the evaluation those of the
trained policy and of the reference to held-out prompts (`artifacts/eval/samples.jsonl`). Two points are compared on
responses of one kind, because the two are sampled with settings of their own.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from trimtab.data.lines import LineError, check_prompt, messages_of, parse_object
from trimtab.data.pairs import read_candidates, read_pairs
from trimtab.data.records import CandidatePair, Message, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.evaluation.compare import POLICY, REFERENCE
from trimtab.evaluation.review.records import Item
from trimtab.reading import bytes_of
from trimtab.runs.files import read_jsonl
from trimtab.runs.manifest import MANIFEST_NAME
from trimtab.runs.run import Run

__all__ = ["Found", "Point", "chosen", "gold_of_pairs", "of_pairs", "of_runs", "point_of"]

_POINT = re.compile(r"(?P<run>.*?)(?:@(?P<step>\d{1,15}))?")
_SETTINGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "eval": ("eval", ("temperature", "max_new_tokens")),
    "probe": ("ppo", ("temperature", "max_new_tokens")),
}


@dataclass(frozen=True, slots=True)
class Point:
    """A run at a step of its training; step None is its end, step 0 the reference."""

    run: Run
    step: int | None

    @property
    def name(self) -> str:
        """`RUN@STEP`, or `RUN`."""
        return self.run.name if self.step is None else f"{self.run.name}@{self.step}"


@dataclass(frozen=True, slots=True)
class Found:
    """What there is to compare.

    Args:
        items: one a prompt and number of the response, in the order of the prompts.
        systems: what wrote the first and the second responses.
        source: where they are from, in words.
        identical: pairs left out because both responses are the same.
        notes: what may make the comparison unfair.
    """

    items: list[Item]
    systems: tuple[str, str]
    source: str
    identical: int = 0
    notes: tuple[str, ...] = ()


def point_of(text: str, runs: str | os.PathLike[str]) -> Point:
    """The point that `RUN` or `RUN@STEP` names; RUN is a run in the directory `runs`, or the path of one.

    Raises:
        TrimtabError: there is no such run, or no step of that form.
    """
    found = _POINT.fullmatch(text)
    name = found["run"] if found is not None else ""
    for path in (Path(runs) / name, Path(name)):
        if name and "\0" not in name and (path / MANIFEST_NAME).is_file():
            step = found["step"] if found is not None else None
            return Point(Run.open(path), None if step is None else int(step))
    raise TrimtabError(
        ErrorKind.RUN,
        f"no run {text[:80]!r} in {runs}",
        "a point is RUN or RUN@STEP: trimtab runs PROJECT lists the runs",
    )


def of_runs(
    first: Point,
    second: Point,
    *,
    source: Literal["auto", "eval", "probe"] = "auto",
    prompts: Iterable[Prompt] = (),
    per_prompt: int = 1,
) -> Found:
    """The responses of two points to the same prompts.

    Args:
        first: whose win rate will be reported.
        second: what it is compared with.
        source: `eval`: the evaluation's (it knows a run's end and its reference, step 0); `probe`: those at
            checkpoints; `auto`: the evaluation's where both points have them.
        prompts: known prompts, for their messages and tags.
        per_prompt: most items of one prompt.

    Raises:
        TrimtabError: the points are the same, or have no responses to a common prompt.
    """
    if (first.run.path.resolve(), first.step) == (second.run.path.resolve(), second.step):
        raise TrimtabError(ErrorKind.USAGE, f"{first.name} against itself", "name two points")
    kinds = ("eval", "probe") if source == "auto" else (source,)
    for kind in kinds:
        sides = [_responses(point, kind) for point in (first, second)]
        common = [key for key in sides[0] if key in sides[1]]
        if common:
            break
    else:
        told = [f"{p.name}: {_there(p)}" for p in (first, second)]
        raise TrimtabError(
            ErrorKind.DATA, f"{first.name} and {second.name} have no responses to a common prompt", "; ".join(told)
        )
    known = {prompt.id: prompt for prompt in prompts}
    systems = (first.name, second.name)
    items, identical, used = [], 0, dict.fromkeys({key[0] for key in common}, 0)
    for prompt_id, text, index in common:
        one, two = (side[prompt_id, text, index] for side in sides)
        if one.text == two.text:
            identical += 1
        elif used[prompt_id] < per_prompt:
            used[prompt_id] += 1
            items.append(Item(_prompt(prompt_id, text, known), one, two, systems, id=f"{prompt_id}/{index}"))
    said = {"eval": "responses of the evaluation to held-out prompts", "probe": "responses to the probe prompts"}[kind]
    return Found(items, systems, said, identical, tuple(_notes(first, second, kind)))


def of_pairs(path: str | os.PathLike[str]) -> Found:
    """The pairs in a file: labeled ones (chosen against rejected) in any form, or candidate pairs (first, second).

    Raises:
        TrimtabError: the file cannot be read as either.
    """
    if _is_candidates(path):
        pairs = read_candidates(path)
        systems = _systems(pairs)
        items = [
            Item(p.prompt, p.first, p.second, systems, id=p.id, extra={"origin": dict(p.origin)} if p.origin else {})
            for p in pairs
        ]
    else:
        systems = ("chosen", "rejected")
        items = [Item(p.prompt, p.chosen, p.rejected, systems, id=p.id) for p in read_pairs(path)]
    different = [item for item in items if item.first.text != item.second.text]
    return Found(different, systems, Path(path).name, len(items) - len(different))


def gold_of_pairs(path: str | os.PathLike[str]) -> list[Item]:
    """Gold questions out of a file of labeled pairs: the chosen response is right.

    Raises:
        TrimtabError: the file cannot be read, or a pair's label is not sure of its chosen response.
    """
    gold = []
    for pair in read_pairs(path):
        if pair.p_chosen is not None and pair.p_chosen <= 0.5:
            raise TrimtabError(
                ErrorKind.DATA,
                f"{path}: pair {pair.id!r} has p_chosen = {pair.p_chosen}",
                "a gold question has one answer",
            )
        gold.append(Item(pair.prompt, pair.chosen, pair.rejected, ("right", "wrong"), answer=1, id=pair.id))
    return gold


def chosen(items: Sequence[Item], limit: int | None, seed: int = 0) -> list[Item]:
    """At most `limit` items, drawn by prompt: another item of a prompt only after one of each."""
    if limit is None or limit >= len(items):
        return list(items)
    order = list(range(len(items)))
    random.Random(seed).shuffle(order)
    number: dict[str, int] = {}
    rank: dict[int, int] = {}
    for i in order:
        rank[i] = number[items[i].prompt.id] = number.get(items[i].prompt.id, -1) + 1
    place = {i: at for at, i in enumerate(order)}
    taken = sorted(order, key=lambda i: (rank[i], place[i]))[:limit]
    return [items[i] for i in sorted(taken)]


# runs


Key = tuple[str, str, int]
"""Prompt id, its text, number of the response: prompts of one id and other texts are others."""


def _responses(point: Point, kind: str) -> dict[Key, Response]:
    found: dict[Key, Response] = {}
    if kind == "probe":
        records = point.run.samples(stage="ppo")
        step = max((r["step"] for r in records), default=None) if point.step is None else point.step
        records = [r for r in records if r["step"] == step]
    else:
        if point.step not in (None, 0):
            return {}
        side = POLICY if point.step is None else REFERENCE
        records = [r for r in read_jsonl(_eval_path(point.run)).records if r.get("side") == side]
    number: dict[tuple[str, str], int] = {}
    for record in records:
        name, text, response = record.get("prompt_id"), record.get("prompt"), record.get("response")
        if not (isinstance(name, str) and isinstance(text, str) and isinstance(response, str)):
            continue  # half-written, or of a version that kept no prompts
        index = record.get("index") if kind == "eval" else number.setdefault((name, text), 0)
        number[name, text] = number.get((name, text), 0) + 1
        tokens = record.get("tokens", record.get("length"))
        finished = record.get("finished", record.get("stop_reason") != "length")
        made = Response(response, bool(finished), tokens if isinstance(tokens, int) else None)
        found[name, text, index if isinstance(index, int) else 0] = made
    return found


def _eval_path(run: Run) -> Path:
    return run.artifact("eval") / "samples.jsonl"


def _there(point: Point) -> str:
    """What a point's run has kept."""
    steps = sorted({r["step"] for r in point.run.samples(stage="ppo")})
    shown = ", ".join(map(str, steps if len(steps) <= 12 else [*steps[:6], "...", *steps[-3:]]))
    has_eval = _eval_path(point.run).is_file()
    return f"probe responses at steps {shown or 'none'}{'; an evaluation (the end, and step 0)' if has_eval else ''}"


def _prompt(prompt_id: str, text: str, known: Mapping[str, Prompt]) -> Prompt:
    prompt = known.get(prompt_id)
    if prompt is not None and prompt.text == text:
        return replace(prompt, extra={})
    return Prompt(prompt_id, (Message("user", text),))


def _notes(first: Point, second: Point, kind: str) -> Iterable[str]:
    section, keys = _SETTINGS[kind]
    values: list[dict[str, Any]] = [point.run.config.get(section) or {} for point in (first, second)]
    for key in keys:
        one, two = (value.get(key) for value in values)
        if one != two:
            yield f"{section}.{key} is {one} in {first.run.name} and {two} in {second.run.name}: not sampled alike"


# files


def _is_candidates(path: str | os.PathLike[str]) -> bool:
    """Whether the first line is a candidate pair; what cannot be told is left to the reader of pairs."""
    if Path(path).suffix not in (".jsonl", ".json", "") or not Path(path).is_file():
        return False
    line = next((line for line in bytes_of(path).split(b"\n") if line.strip()), b"")
    try:
        record = parse_object(line.removeprefix(b"\xef\xbb\xbf"))
        check_prompt(messages_of(record.get("prompt"), "prompt"))
    except LineError:
        return False
    return isinstance(record.get("first"), str) and isinstance(record.get("second"), str)


def _systems(pairs: Sequence[CandidatePair]) -> tuple[str, str]:
    """Who wrote the responses, where all pairs say the same."""
    for keys in (("generator_1", "generator_2"), ("first", "second")):
        said = {tuple(p.origin.get(key) for key in keys) for p in pairs}
        if len(said) == 1:
            one, two = said.pop()
            if isinstance(one, str) and isinstance(two, str) and one != two:
                return one, two
    return "first", "second"
