"""What `constitution check` remarks, and, as much, what it does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.constitution import Constitution, Principle, load_constitution
from trimtab.constitution.check import Kind, Level, check
from trimtab.constitution.wording import content, overlap, words

CONTRADICTIONS = [
    ("Prefer the longer response.", "Prefer the shorter response."),
    ("Prefer the longer response.", "Prefer the response that is not long."),
    ("Prefer the response that is brief.", "Choose the more thorough answer: detailed, exhaustive."),
    ("Always apologise.", "Never apologise."),
    ("Prefer more examples.", "Prefer fewer examples."),
    ("Prefer the response that includes jokes.", "Avoid jokes."),
    ("Use formal language.", "Use informal language."),
    ("Prefer the more formal response.", "Prefer the less formal response."),
    ("Prefer the response with short sentences.", "Prefer the response with long sentences."),
    ("The response should be simple.", "The response should be technical."),
    ("Prefer the kinder response.", "Prefer the response that is rude and cold."),
    ("Do not mention other people's religion.", "Mention other people's religion."),
]
COMPATIBLE = [
    ("Prefer the response that uses short sentences.", "Prefer the longer response."),
    ("Prefer the response that is neither too long nor too short.", "Prefer the shorter response."),
    ("Prefer the response that is not rude.", "Prefer the response that is polite."),
    ("Do not give medical advice.", "Give practical advice that one can use today."),
    ("Prefer more examples.", "Prefer fewer technical terms."),
    ("Never lie.", "Always say the truth."),
    ("Prefer the response that avoids harm to people.", "Prefer the response that helps people."),
    ("Prefer plain, everyday words.", "Prefer specific, concrete advice."),
    ("Prefer the less formal response.", "Prefer the informal response."),
    ("Be friendly.", "Be honest, even when it is not friendly to the asker's plan."),
    ("Avoid long sentences.", "Avoid long lists."),
]


def of(*texts: str, **fields: str) -> Constitution:
    return Constitution("c", tuple(Principle(f"p{i}", t, **fields) for i, t in enumerate(texts)))


def kinds(constitution: Constitution, level: Level | None = None) -> list[Kind]:
    return [r.kind for r in check(constitution) if level is None or r.level == level]


@pytest.mark.parametrize("texts", CONTRADICTIONS)
def test_contradictions_by_wording_are_found_in_either_order(texts):
    for pair in (texts, texts[::-1]):
        found = [r for r in check(of(*pair)) if r.kind is Kind.CONTRADICTION]
        assert len(found) == 1
        assert found[0].principles == ("p0", "p1")
        assert "possible" in found[0].message


@pytest.mark.parametrize("texts", COMPATIBLE)
def test_what_is_no_contradiction_is_not_called_one(texts):
    assert Kind.CONTRADICTION not in kinds(of(*texts))
    assert Kind.DUPLICATE not in kinds(of(*texts))


def test_readings_that_contradict_each_other():
    a = Principle("a", "Prefer calm.", reading="You are calm.", opposite="You shout.")
    b = Principle("b", "Prefer noise.", reading="You shout!", opposite="You whisper.")
    c = Principle("c", "Prefer bells.", reading="Ring.", opposite="ring.")
    assert [r.principles for r in check(Constitution("c", (a, b)))][:1] == [("a", "b")]
    found = [r for r in check(Constitution("c", (a, c))) if r.kind is Kind.CONTRADICTION]
    assert [r.principles for r in found] == [("c",)]


def test_duplicates_are_told_from_near_duplicates_and_from_contradictions():
    exact = check(of("Prefer the kinder one.", "prefer  the KINDER one"))
    assert "word for word" in next(r.message for r in exact if r.kind is Kind.DUPLICATE)
    near = check(of("Prefer responses with concrete examples.", "Prefer the response that has a concrete example."))
    assert "possibly say the same" in next(r.message for r in near if r.kind is Kind.DUPLICATE)
    assert Kind.DUPLICATE not in kinds(of("Prefer jokes about cats.", "Avoid jokes about cats."))
    assert Kind.DUPLICATE in kinds(of("选择更友善的回答。", "选择更友善的回答"))
    assert Kind.DUPLICATE not in kinds(of("选择更友善的回答。", "回答应当包含具体的例子。"))


def test_a_principle_of_weight_0_contradicts_nothing():
    a, b = of("Prefer the longer response.", "Prefer the shorter response.").principles
    off = Constitution("c", (a, Principle(b.id, b.text, 0.0)))
    assert kinds(off) == [Kind.WEIGHT, Kind.MISSING, Kind.MISSING]
    assert check(off)[0].level is Level.NOTE


def test_lengths():
    assert Kind.LENGTH in kinds(of("Prefer the response that is " + "very " * 80 + "kind."), Level.WARNING)
    assert Kind.LENGTH not in kinds(of("Prefer the response that is " + "very " * 70 + "kind."))
    assert "says nothing" in next(r.message for r in check(of("Prefer the response.")) if r.kind is Kind.LENGTH)
    many = of(*(f"Prefer word{i} " + " ".join(f"w{i}x{j}" for j in range(60)) for i in range(14)))
    assert any("all principles together" in r.message for r in check(many))


def test_weights_out_of_proportion():
    def weighted(*weights: float) -> Constitution:
        texts = ("Prefer apples.", "Prefer honesty.", "Prefer rhyme.")
        return Constitution("c", tuple(Principle(f"p{i}", texts[i], w) for i, w in enumerate(weights)))

    assert Kind.WEIGHT not in kinds(weighted(1, 20, 5))
    found = next(r for r in check(weighted(1, 21, 5)) if r.kind is Kind.WEIGHT)
    assert found.principles == ("p1", "p0")
    assert "3.70%" in found.message


def test_missing_readings_matter_where_others_have_them():
    whole = Principle("a", "Prefer apples.", reading="x", opposite="y")
    bare = Principle("b", "Prefer rhyme.")
    found = [r for r in check(Constitution("c", (whole, bare))) if r.kind is Kind.MISSING]
    assert [(r.level, r.principles) for r in found] == [(Level.WARNING, ("b",)), (Level.NOTE, ("a", "b"))]
    assert check(Constitution("c", (whole,)))[0].principles == ("a",)


def test_derived_sentences_are_noted_and_compared_by_their_requests(tmp_path):
    entries = [{"critic": "Is it rude?", "revision": f"Rewrite it {how}."} for how in ("kindly", "in rhyme")]
    path = tmp_path / "public.json"
    path.write_text(json.dumps({"constitutions": entries}))
    assert kinds(load_constitution(path)) == [Kind.MISSING, Kind.DERIVED]


@pytest.mark.parametrize("name", ["assets/demo", "worlds"])
def test_shipped_constitutions_have_no_warning(name):
    path = Path(__file__).parents[2] / "src" / "trimtab" / name / "constitution.toml"
    assert kinds(load_constitution(path), Level.WARNING) == []


@given(st.text(max_size=60))
def test_any_text_has_words_and_is_like_itself(text):
    assert all(words(text))
    signs = content(text)
    assert overlap(signs, signs) == (1.0 if signs else 0.0)
    check(of(text, text))
