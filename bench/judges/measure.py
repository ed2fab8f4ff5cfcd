"""What a small model says about a pair: raw figures, one record a pair, kept in bench/results/judges.

A measurement is a function of one pair. Response 1 is the chosen one and 2 the rejected one in every figure.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.judges.material import domain
from bench.judges.model import SmallModel
from bench.judges.wordings import AFTER, CONSTITUTION, PRINCIPLES, QUESTIONS, SCALE, SYSTEMS, WORDINGS
from trimtab.data.records import CandidatePair, Message, Pair, Prompt
from trimtab.labeling.protocol import JudgeRequest, Order
from trimtab.labeling.templates import Template

__all__ = ["MEASUREMENTS"]

Figures = dict[str, Any]


def letters(template: Template, model: SmallModel, pair: Pair) -> Figures:
    """Probabilities of A and B in either order, as `labeling.local.LocalJudge` reads them."""
    candidate = CandidatePair(pair.id, pair.prompt, pair.chosen, pair.rejected)
    rows = []
    for order in Order:
        system, text = template.messages(JudgeRequest(candidate, CONSTITUTION, order))
        rows.append(model.codec.prompt_ids_with_system(_user(pair, text), system))
    forward, reverse = model.masses(rows, [model.tokens_of("A"), model.tokens_of("B")])
    return {"forward": forward, "reverse": reverse}


def under(systems: Callable[[Pair], tuple[str, str]], model: SmallModel, pair: Pair) -> Figures:
    """Log-probabilities of both responses under a reading and under its opposite, as system messages."""
    reading, opposite = (model.codec.prompt_ids_with_system(pair.prompt, s) for s in systems(pair))
    return _sums(model, pair, reading, opposite)


def after(model: SmallModel, pair: Pair) -> Figures:
    """The same with the contrast at the end of the prompt."""
    *before, last = pair.prompt.messages
    ids = [
        model.codec.prompt_ids(Prompt(pair.id, (*before, Message(last.role, f"{last.content}\n\n{words}"))))
        for words in AFTER
    ]
    return _sums(model, pair, *ids)


def alone(model: SmallModel, pair: Pair) -> Figures:
    """Log-probabilities of both responses to the prompt, and to no prompt."""
    prompt = model.codec.prompt_ids(pair.prompt)
    start = model.codec.tokenizer.bos_token_id
    nothing = [model.codec.eos_id if start is None else start]
    ids = _responses(model, pair)
    return {
        "prompt": model.sums([(prompt, y) for y in ids]),
        "nothing": model.sums([(nothing, y) for y in ids]),
        "tokens": [len(y) for y in ids],
    }


def pointwise(model: SmallModel, pair: Pair) -> Figures:
    """Of each response by itself: probabilities of Yes and No to two questions, of 1 to 5 to a third."""
    rows = []
    questions = [*QUESTIONS.values(), SCALE]
    found: Figures = {name: [] for name in (*QUESTIONS, "scale")}
    yes_no = [model.tokens_of("Yes", "yes"), model.tokens_of("No", "no")]
    digits = [model.tokens_of(str(i)) for i in range(1, 6)]
    for response in (pair.chosen, pair.rejected):
        shown = f"Prompt:\n{pair.prompt.text}\n\nResponse:\n{response.text}\n\n"
        rows += [model.codec.prompt_ids(_user(pair, shown + question)) for question in questions]
    masses = model.masses(rows, [*yes_no, *digits])
    for i, row in enumerate(masses):
        name = list(found)[i % len(questions)]
        found[name].append(row[2:] if name == "scale" else row[:2])
    return found


def _sums(model: SmallModel, pair: Pair, reading: list[int], opposite: list[int]) -> Figures:
    ids = _responses(model, pair)
    return {
        "reading": model.sums([(reading, y) for y in ids]),
        "opposite": model.sums([(opposite, y) for y in ids]),
        "tokens": [len(y) for y in ids],
    }


def _responses(model: SmallModel, pair: Pair) -> list[list[int]]:
    return [model.codec.response_ids(y, pair.id) for y in (pair.chosen, pair.rejected)]


def _user(pair: Pair, text: str) -> Prompt:
    return Prompt(pair.id, (Message("user", text),))


def _own(pair: Pair) -> tuple[str, str]:
    """Reading and opposite of the principle of the pair's domain."""
    principle = PRINCIPLES.get(domain(pair), PRINCIPLES["helpful"])
    return principle.reading or "", principle.opposite or ""


MEASUREMENTS: dict[str, Callable[[SmallModel, Pair], Figures]] = {
    "likelihood-general": partial(under, lambda pair: SYSTEMS),
    "alone": alone,
    "letters-bare": partial(letters, WORDINGS["bare"]),
    "letters-plain": partial(letters, WORDINGS["plain"]),
    "pointwise": pointwise,
    "likelihood-principle": partial(under, _own),
    "likelihood-after": after,
    "letters-direct": partial(letters, WORDINGS["direct"]),
    "letters-careful": partial(letters, WORDINGS["careful"]),
}
"""In the order in which they are made."""
