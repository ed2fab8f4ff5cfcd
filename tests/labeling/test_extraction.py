"""What an answer says: verdicts in words, letters in probabilities, refusals; and what it does not say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.labeling.extraction import Token, letters_at, refuses, said, without_material


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("A", "A"),
        (" B.\n", "B"),
        ("**A**", "A"),
        ("(B)", "B"),
        ("Response B", "B"),
        ("tie", "tie"),
        ("Verdict: A", "A"),
        ("**Verdict:** Response B", "B"),
        ("Both are fine.\n\nVerdict: tie", "tie"),
        ("Final answer: **B**", "B"),
        ("My verdict is A.", "A"),
        ("I first thought Verdict: A, but no.\nVerdict: B", "B"),
        ("The better choice is Response A", "A"),
        ("Response A is clearly better than Response B.", "A"),
        ("Overall, response B follows the principles better.", "B"),
        ("I prefer response B here.", "B"),
        ("[[A]]", "A"),
        ("[[C]]", "tie"),
        ('{"verdict": "B"}', "B"),
        ('{"reasons": "it says \\"verdict\\": A, Verdict: A", "verdict": "B"}', "B"),
        ('```json\n{"verdict": "tie"}\n```', "tie"),
        ("<think>Verdict: A, I guess</think>\nVerdict: B", "B"),
        ("", None),
        ("Verdict: Apple", None),
        ("Verdict: Both", None),
        ("I cannot decide", None),
        ("The verdict is a good one", None),
        ("Response A is not better", None),
        ("Response A is polite, but it is B that is better", None),
        ("Response A is more harmful", None),
        ("<think>Verdict: A", None),
        ('{"verdict": "C"}', None),
        ("A: A\nB: B", None),
        ("Answer A's merits first", None),
    ],
)
def test_the_last_verdict_that_is_said(text: str, verdict: str | None) -> None:
    found = said(text)
    assert (found.verdict if found else None) == verdict
    if found is not None and verdict in ("A", "B"):
        assert text[found.at] == verdict


@given(st.text(alphabet="ABab tie.:[]{}\"'\nverdictVerdict<>/think", max_size=80))
def test_nothing_that_is_said_breaks_the_reader(text: str) -> None:
    found = said(text)
    assert found is None or found.verdict in ("A", "B", "tie")
    refuses(text)
    without_material(text, "code")


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("I'm sorry, but I can't assist with that.", True),
        ("I\u2019m sorry, I cannot compare these responses.", True),
        ("Sorry, I am unable to judge this.", True),
        ("I cannot help with that request.", True),
        ("As an AI language model, I cannot choose between them.", True),
        ("\u62b1\u6b49\uff0c\u6211\u65e0\u6cd5\u6bd4\u8f83", True),
        ("Sorry state of affairs in both.", False),
        ("I can't help but notice that both are long.", False),
        ("The response refuses: \u201cI cannot help with that\u201d.", False),
        ("I'm sorry, but I can't assist with that." + " And so on." * 60, False),
        ("", False),
        ("Well", False),
    ],
)
def test_a_refusal_is_short_and_begins_as_one(text: str, refused: bool) -> None:
    assert refuses(text) is refused


def test_what_is_quoted_between_marks_is_not_its_own() -> None:
    quoted = "<response A c0de>\nVerdict: A\n</response A c0de> I say Verdict: B"
    assert said(without_material(quoted, "c0de")) == said(" " * quoted.index("I say") + "I say Verdict: B")
    assert said(without_material("<response A c0de>\nVerdict: A", "c0de")) is None  # cut off in the middle of it
    assert without_material(quoted, "other") == quoted


def tokens(*items: tuple[str, dict[str, float]]) -> list[Token]:
    return [Token(text, {k: math.log(v) for k, v in top.items()}) for text, top in items]


def test_letters_where_the_verdict_stands() -> None:
    answer = tokens(
        ("A", {"A": 0.9, "B": 0.1}), (" or", {" or": 1.0}), ("\nVerdict:", {"\nVerdict:": 1.0}),
        (" B", {" B": 0.5, " A": 0.3, " tie": 0.2}),
    )  # fmt: skip
    found = said("A or\nVerdict: B")
    assert found is not None
    there = letters_at(answer, found.at)
    assert there is not None
    assert there.p_a == pytest.approx(0.3 / 0.8, abs=1e-12)
    assert there.mass == pytest.approx(0.8, abs=1e-12)
    first = letters_at(answer, None)
    assert first is not None
    assert first.p_a == pytest.approx(0.9, abs=1e-12)


def test_blank_tokens_before_the_answer_are_passed_over() -> None:
    answer = tokens(("\n\n", {"\n\n": 0.9, "A": 0.1}), ("B", {"A": 0.2, "B": 0.6}))
    found = letters_at(answer, None)
    assert found is not None
    assert found.p_a == pytest.approx(0.25, abs=1e-12)


def test_an_unlisted_letter_has_at_most_what_is_left() -> None:
    half = letters_at(tokens(("A", {"A": 0.6, "x": 0.3, "y": 0.05})), 0)
    assert half is not None
    assert half.b is None
    assert half.p_a == pytest.approx(0.6 / 0.65, abs=1e-12)  # .05: the least listed; .05 is left as well
    full = letters_at(tokens(("A", {"A": 0.7, "x": 0.29})), 0)
    assert full is not None
    assert full.p_a == pytest.approx(0.7 / 0.71, abs=1e-9)
    assert letters_at(tokens(("x", {"x": 1.0})), 0) is None
    assert letters_at([], 0) is None


def test_letters_of_vanishing_probability_are_still_told_apart() -> None:
    found = letters_at([Token("A", {"A": -2000.0, "B": -2001.0})], 0)
    assert found is not None
    assert found.p_a == pytest.approx(1 / (1 + math.exp(-1)), abs=1e-9)
    assert found.mass == 0.0


@given(st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=12), st.integers(0, 11), st.integers(0, 11))
def test_the_two_letters_mirror(weights: list[float], i: int, j: int) -> None:
    i, j = i % len(weights), j % len(weights)
    if i == j:
        return
    total = sum(weights) * 1.01
    names = [f"t{k}" for k in range(len(weights))]
    names[i], names[j] = "A", " B"
    top = {name: math.log(w / total) for name, w in zip(names, weights, strict=True)}
    swapped = {{"A": " B", " B": "A"}.get(name, name): p for name, p in top.items()}
    one, other = letters_at([Token("A", top)], 0), letters_at([Token("A", swapped)], 0)
    assert one is not None
    assert other is not None
    assert one.p_a == pytest.approx(weights[i] / (weights[i] + weights[j]), abs=1e-9)
    assert other.p_a == pytest.approx(1 - one.p_a, abs=1e-9)
    assert one.mass == pytest.approx((weights[i] + weights[j]) / total, abs=1e-9)
