"""Two responses with a verdict: LLMBar and AlpacaEval (`output_1`, `output_2`), PandaLM (`response1`, `response2`,
annotators), and the HHH evaluation as prometheus-eval ships it (each response inside a rubric prompt)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trimtab.data.lines import LineError, kind, prompt_of, text_of, without
from trimtab.data.readers.huggingface import transcript
from trimtab.data.records import Message, Pair, Prompt, Response
from trimtab.reading import shown

__all__ = ["hhh_pair", "outputs_pair", "pandalm_pair"]

_RUBRIC = re.compile(
    r"###The instruction to evaluate:\n(?P<prompt>.*)\n\n###Response to evaluate:\n(?P<response>.*)"
    r"\n\n###(?:Reference Answer|Score Rubrics)",
    re.DOTALL,
)
_ANNOTATOR = re.compile(r"annotator_?\d+\Z")


def outputs_pair(record: dict[str, Any], name: str) -> Pair:
    """LLMBar: `input`, `output_1`, `output_2`, `label`; AlpacaEval: `instruction` and `preference` (1 to 2).

    A preference between 1 and 2 is a soft label: 1.25 means P(first) = .75. 1.5, and AlpacaEval's 0, are ties.
    """
    asked = "instruction" if "instruction" in record else "input"
    prompt = text_of(record, asked)
    if asked == "instruction" and isinstance(record.get("input"), str) and record["input"].strip():
        prompt = f"{prompt}\n\n{record['input']}"
    first, second = text_of(record, "output_1"), text_of(record, "output_2")
    column = "label" if "label" in record else "preference"
    value = _number(record, column)
    if not (1 <= value <= 2 or (value == 0 and column == "preference")):
        raise LineError(f"{column} is {shown(record[column])}; it is 1 (the first is better) or 2")
    p_first = 0.5 if value == 0 else 2 - value
    extra = without(record, "id", asked, "input", "output_1", "output_2", column)
    return _pair(name, _prompt(prompt, record), first, second, p_first, extra, record.get("generator_1"))


def pandalm_pair(record: dict[str, Any], name: str) -> Pair:
    """PandaLM: `instruction`, `input`, two responses, and annotators who say 1, 2 or 0 (a tie).

    The label is the share of the annotators, a tie counting half; who said what stays in `votes`.
    """
    prompt = text_of(record, "instruction")
    if isinstance(record.get("input"), str) and record["input"].strip():
        prompt = f"{prompt}\n\n{record['input']}"
    first, second = text_of(record, "response1"), text_of(record, "response2")
    annotators = [column for column in record if _ANNOTATOR.match(column)]
    votes: dict[str, float] = {}
    for column in annotators:
        value = _number(record, column)
        if value not in (0, 1, 2):
            raise LineError(f"{column} is {shown(record[column])}; it is 1, 2 or 0 for a tie")
        votes[column] = {0: 0.5, 1: 1.0, 2: 0.0}[int(value)]
    if not votes:
        raise LineError("has no annotator1, annotator2, ...")
    p_first = sum(votes.values()) / len(votes)
    for_first, for_second = ("chosen", "rejected") if p_first >= 0.5 else ("rejected", "chosen")
    said = {c: "tie" if v == 0.5 else for_first if v == 1 else for_second for c, v in votes.items()}
    extra = without(record, "id", "idx", "instruction", "input", "response1", "response2", *annotators)
    models = str(record.get("cmp_key", "")).split("_")
    if len(models) == 2 and all(models):
        extra |= {f"{for_first}_model": models[0], f"{for_second}_model": models[1]}
    return _pair(name, _prompt(prompt, record), first, second, p_first, {**extra, "votes": said}, None)


def hhh_pair(record: dict[str, Any], name: str) -> Pair:
    """`chosen_instruction` and `rejected_instruction`: one prompt and its response inside the same rubric prompt."""
    found = {}
    for column in ("chosen_instruction", "rejected_instruction"):
        match = _RUBRIC.search(text_of(record, column))
        if match is None:
            raise LineError(
                f"{column} has no `###The instruction to evaluate:` and `###Response to evaluate:` before its rubric"
            )
        found[column] = match
    chosen, rejected = found["chosen_instruction"], found["rejected_instruction"]
    if chosen["prompt"] != rejected["prompt"]:
        raise LineError("chosen_instruction and rejected_instruction have different instructions to evaluate")
    turns = transcript(f"\n\nHuman: {chosen['prompt']}")
    messages = (Message("user", chosen["prompt"]),) if turns is None or turns[-1].role != "user" else turns
    source = record.get("source")
    tags = (source,) if isinstance(source, str) and source else ()
    prompt = prompt_of({}, messages)
    prompt = Prompt(prompt.id, prompt.messages, tags)
    extra = without(record, "id", "chosen_instruction", "rejected_instruction")
    return Pair(name, prompt, Response(chosen["response"]), Response(rejected["response"]), extra=extra)


def _prompt(text: str, record: Mapping[str, Any]) -> Prompt:
    return prompt_of({"tags": record.get("tags")}, (Message("user", text),))


def _pair(
    name: str, prompt: Prompt, first: str, second: str, p_first: float, extra: dict[str, Any], model: Any
) -> Pair:
    """The pair with the better response first; a hard label stays hard."""
    if model is not None:
        first_model, second_model = model, extra.pop("generator_2", None)
        extra.pop("generator_1", None)
        winner, loser = (first_model, second_model) if p_first >= 0.5 else (second_model, first_model)
        extra |= {"chosen_model": winner, "rejected_model": loser}
    chosen, rejected = (first, second) if p_first >= 0.5 else (second, first)
    p = max(p_first, 1 - p_first)
    return Pair(name, prompt, Response(chosen), Response(rejected), None if p == 1 else p, extra=extra)


def _number(record: Mapping[str, Any], column: str) -> float:
    """A number, also where a table wrote it as text."""
    value = record.get(column)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise LineError(f"{column} is {shown(value)}; it is a number") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LineError(f"{column} is {kind(value)}; it is a number")
    return float(value)
