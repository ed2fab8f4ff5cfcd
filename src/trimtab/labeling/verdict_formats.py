"""Verdicts of other projects and of our own label store, turned into the verdict form.

A file is recognised by the columns of its records. Every function here makes plain verdict records, which
`verdict_files` then checks like any others.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.verdict_files import Record, load_records, table_of
from trimtab.labeling.verdicts import VerdictTable
from trimtab.reading import shown

__all__ = [
    "from_llmbar",
    "from_mt_bench",
    "from_pandalm",
    "from_pandalm_model",
    "read_store",
    "records_of",
    "store_records",
]

Converted = tuple[list[Record], str, list[int]]

_PANDALM_KEYS = ("gpt_result", "pandalm_result")
_PANDALM_PEOPLE = "testset-v1.json"
_FOREIGN = {"winner_order12", "pair_hash", "annotator1", *_PANDALM_KEYS, "model_a", "model_1"}
_LLMBAR_ORDERS = (("winner_order12", "12"), ("winner_order21", "21"))


def records_of(records: Sequence[Any], lines: Sequence[int], path: Path) -> Converted | None:
    """Verdict records from a foreign file with the line of each, or None where the records have our own columns."""
    first = records[0] if records and isinstance(records[0], Mapping) else {}
    columns = set(first)
    source = str(path)
    if columns & _FOREIGN and (odd := [n for n, r in zip(lines, records, strict=True) if not isinstance(r, Mapping)]):
        raise TrimtabError(ErrorKind.DATA, f"{path}, line {odd[0]}: is no object", "every record is one like the first")
    if {"winner_order12", "winner_order21", "judge"} <= columns:
        return _with_lines(from_llmbar(records, _llmbar_texts(records, path)), lines, 2, source)
    if {"pair_hash", "shown", "outcome", "p_first"} <= columns:
        made: list[Record] = [*from_label_export(records)]
        return made, source, list(range(1, len(made) + 1))
    if {"annotator1", "response1", "response2"} <= columns:
        return _with_lines(from_pandalm(records), lines, sum(c.startswith("annotator") for c in columns), source)
    if columns & set(_PANDALM_KEYS) and "idx" in columns:
        return _with_lines(from_pandalm_model(records, path.name, _pandalm_people(path)), lines, 1, source)
    if {"question_id", "winner", "model_a", "model_b"} <= columns:
        return _with_lines(from_mt_bench(records), lines, 1, source)
    if {"question_id", "g1_winner", "g2_winner", "model_1", "model_2"} <= columns:
        return _with_lines(from_mt_bench(records), lines, 2, source)
    return None


def _with_lines(made: Iterable[Record], lines: Sequence[int], each: int, source: str) -> Converted:
    return list(made), source, [line for line in lines for _ in range(each)]


# LLMBar


def from_llmbar(
    records: Iterable[Record], texts: Mapping[tuple[str, int], Mapping[str, Any]] | None = None
) -> Iterator[Record]:
    """LLMBar's judge votes: two verdicts a record, both already mapped back; the judge is named "judge/strategy".

    Args:
        records: with `subset`, `idx`, `judge`, `strategy`, `gold`, `winner_order12`, `winner_order21`.
        texts: by subset and index, objects with `input`, `output_1`, `output_2`.
    """
    for r in records:
        subset, index = str(r.get("subset", "")), r.get("idx")
        judge, strategy = str(r.get("judge", "")), str(r.get("strategy", ""))
        shared: dict[str, Any] = {
            "pair_id": f"{subset}/{index}",
            "judge": f"{judge}/{strategy}" if strategy else judge,
            "model": judge,
            "slice": subset,
            "gold": r.get("gold"),
        }
        text = (texts or {}).get((subset, index if isinstance(index, int) else -1))
        if text is not None:
            shared["prompt"], shared["response_1"] = text.get("input"), text.get("output_1")
            shared["response_2"] = text.get("output_2")
        for column, order in _LLMBAR_ORDERS:
            yield {**shared, "order": order, "winner": r.get(column)}


def _llmbar_texts(records: Sequence[Any], path: Path) -> dict[tuple[str, int], Mapping[str, Any]]:
    """The texts of the subsets whose dataset.json lies where LLMBar has it, beside the votes."""
    subsets = {str(r["subset"]) for r in records if isinstance(r, Mapping) and "subset" in r}
    subsets = {s for s in subsets if s.isprintable() and len(s) < 256}
    found: dict[tuple[str, int], Mapping[str, Any]] = {}
    root = path.parent.resolve()
    for subset in subsets:
        file = (root / subset / "dataset.json").resolve()
        # a subset's name is data: it may not lead out of the directory
        if file.is_relative_to(root) and file.is_file():
            rows, _ = load_records(file)
            found |= {(subset, i): row for i, row in enumerate(rows) if isinstance(row, Mapping)}
    return found


# PandaLM


def from_pandalm(records: Iterable[Record]) -> Iterator[Record]:
    """PandaLM's human annotations: each annotator is a judge; 0 is a tie.

    The reference label of an annotator is what the other two agree on, and missing where they do not: a majority that
    holds the annotator's own vote would flatter it. A response that is no text is turned into one.

    Args:
        records: with `idx`, `instruction`, `input`, `response1`, `response2`, `annotator1`, `annotator2`, ...;
            `cmp_key` names the two generators.
    """
    for r in records:
        people = sorted(name for name in r if str(name).startswith("annotator"))
        for person in people:
            others = {_pandalm_vote(r[other]) for other in people if other != person}
            yield {
                **_pandalm_pair(r),
                "judge": person,
                "winner": _pandalm_vote(r[person]),
                "gold": others.pop() if len(others) == 1 else None,
            }


def from_pandalm_model(
    records: Iterable[Record], name: str, people: Mapping[str, Record] | None = None
) -> Iterator[Record]:
    """A model's verdicts on PandaLM's pairs; the reference label is the majority of the people.

    Args:
        records: with `idx` and `gpt_result` or `pandalm_result`.
        name: of the file, which names the judge.
        people: the records of the human annotations by `idx`, for texts and reference labels.
    """
    judge = name.split(".json")[0].removesuffix("-testset-v1")
    for r in records:
        key = next((k for k in _PANDALM_KEYS if k in r), "")
        pair = (people or {}).get(str(r.get("idx")), {})
        votes = [_pandalm_vote(v) for k, v in pair.items() if str(k).startswith("annotator")]
        majority = [v for v in dict.fromkeys(votes) if 2 * votes.count(v) > len(votes)]
        verdict = _pandalm_vote(r.get(key))
        yield {
            **(_pandalm_pair(pair) if pair else {"pair_id": str(r.get("idx"))}),
            "judge": judge,
            "model": judge,
            "winner": verdict if verdict in (1, 2, "tie") else None,
            "gold": majority[0] if majority else None,
        }


def _pandalm_people(path: Path) -> dict[str, Record]:
    """The human annotations beside a file of a model's verdicts, by index; none where they are not there."""
    file = path.parent / _PANDALM_PEOPLE
    if not file.is_file():
        return {}
    return {str(r.get("idx")): r for r in load_records(file)[0] if isinstance(r, Mapping)}


def _pandalm_pair(r: Record) -> dict[str, Any]:
    first, _, second = str(r.get("cmp_key", "")).partition("_")
    prompt = f"{r.get('instruction', '')}\n{r.get('input', '')}".strip()
    return {
        "pair_id": str(r.get("idx")),
        "prompt_id": _short_hash(prompt),
        "prompt": prompt,
        "response_1": r.get("response1"),
        "response_2": r.get("response2"),
        "generator_1": first or None,
        "generator_2": second or None,
    }


def _pandalm_vote(value: Any) -> Any:
    votes: dict[str, Any] = {"0": "tie", "1": 1, "2": 2, "tie": "tie"}
    return votes.get(str(value).strip().lower(), value if isinstance(value, str | int | float | None) else shown(value))


# MT-bench


def from_mt_bench(records: Iterable[Record]) -> Iterator[Record]:
    """Pair judgments as FastChat writes them: of people (`winner`) or of a model in both orders (`g1_winner`, ...).

    The two models of a pair are put in alphabetical order, so that verdicts on (a, b) and (b, a) are about one pair.

    Args:
        records: with `question_id`, `turn`, `judge`, and `model_a`, `model_b`, `winner` (model_a, model_b, tie) or
            `model_1`, `model_2`, `g1_winner`, `g2_winner` (model_1, model_2, tie, error).
    """
    for r in records:
        both = "g1_winner" in r
        a, b = (str(r.get(k)) for k in (("model_1", "model_2") if both else ("model_a", "model_b")))
        swapped = b < a
        first, second = sorted((a, b))
        question = f"{r.get('question_id')}/{r.get('turn', 1)}"
        judge = r.get("judge")
        shared = {
            "pair_id": f"{question}/{first}|{second}",
            "prompt_id": str(r.get("question_id")),
            "judge": "/".join(map(str, judge)) if isinstance(judge, list) else judge,
            "model": judge[0] if isinstance(judge, list) and judge else None,
            "generator_1": first,
            "generator_2": second,
            "response_id_1": f"{question}/{first}",
            "response_id_2": f"{question}/{second}",
            "slice": f"turn {r.get('turn', 1)}",
        }
        for key, order in (("g1_winner", 1), ("g2_winner", 2)) if both else (("winner", 0),):
            winner = _mt_bench_winner(r.get(key))
            if swapped:
                winner, order = {1: 2, 2: 1}.get(winner, winner), {1: 2, 2: 1}.get(order, 0)
            yield {**shared, "winner": winner, "order": ("", "12", "21")[order], **_failed(r.get(key))}


def _mt_bench_winner(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("tie"):
        return "tie"
    known = {"model_a": 1, "model_1": 1, "model_b": 2, "model_2": 2, "error": None}
    return known.get(value, value) if isinstance(value, str) else value


def _failed(value: Any) -> dict[str, str]:
    return {"status": "error"} if value == "error" else {}


# our label store


def read_store(path: str | os.PathLike[str]) -> VerdictTable:
    """The verdicts in a label store. See `store_records`."""
    return table_of(store_records(path), str(path))


def store_records(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Verdict records of a label store; another process may be writing. `pair_id` ends in "#" and 8 digits of the hash.

    The null-response canary's verdicts are left out: they would pass for verdicts on real pairs. A judge that stands
    for several models is one judge a model, named "judge/model".

    Raises:
        TrimtabError: the file is no label store, or of a newer version of Trimtab.
    """
    from trimtab.labeling.store import LabelStore

    with LabelStore(path) as store:
        return _stored(list(store.verdict_records()))


def from_label_export(records: Iterable[Record]) -> list[dict[str, Any]]:
    """What `trimtab labels export` wrote, as `store_records`.

    Raises:
        TrimtabError: a record lacks a column of the label store.
    """
    from trimtab.labeling.store_schema import verdict_record

    try:
        return _stored([verdict_record(record) for record in records])
    except (KeyError, TypeError) as error:
        raise TrimtabError(
            ErrorKind.DATA,
            f"an exported verdict lacks or garbles {error}",
            "write the file again: trimtab labels export",
        ) from None


def _stored(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the canary's, and with the model in the name of a judge that stands for several."""
    records = [record for record in records if not record["pair_id"].startswith("canary/")]
    models: dict[str, set[str]] = defaultdict(set)
    for record in records:
        models[record["judge"]].add(record["model"])
    for record in records:
        if len(models[record["judge"]]) > 1:
            record["judge"] = f"{record['judge']}/{record['model']}"
    return records


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
