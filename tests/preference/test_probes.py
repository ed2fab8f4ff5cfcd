"""Probes: a scorer with a planted fault is named for that fault, and an honest one for nothing."""

from __future__ import annotations

import hashlib
import json
import math
import random

import numpy as np
import pytest

from trimtab import preference
from trimtab.data.records import Message, Pair, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.preference.probes import Fault
from trimtab.preference.probes.edits import EDITS, PHRASES
from trimtab.preference.probes.figures import Changed, centred, edit_effects, length_figures, slices, spread
from trimtab.preference.probes.phrases import mine
from trimtab.stats.text import length, words

NOUNS = ["river", "garden", "engine", "letter", "candle", "harbour", "mirror", "ladder", "basket", "hammer", "window"]
VERBS = ["holds", "brings", "needs", "keeps", "shows", "moves", "makes", "gives"]
ENDS = ["every morning", "in the old town", "without much noise", "for 12 days", "near Lisbon", "by his brother"]


def sentence(rng: random.Random) -> str:
    return f"The {rng.choice(NOUNS)} {rng.choice(VERBS)} a {rng.choice(NOUNS)} {rng.choice(ENDS)}."


def made(prompts: int = 60, seed: int = 0) -> list[Pair]:
    """Pairs whose better response names the answer of its prompt; of lengths that say nothing about that."""
    rng = random.Random(seed)
    pairs = []
    for i in range(prompts):
        prompt = Prompt(f"q{i}", (Message("user", f"What is the word of {i}?"),), tags=("even" if i % 2 else "odd",))
        for k in range(2):
            texts = [" ".join(sentence(rng) for _ in range(rng.randint(1, 6))) for _ in range(2)]
            good = f"{texts[0]} The word is answer{i}, don't doubt it."
            bad = f"{texts[1]} The word is another{i}, don't doubt it."
            extra = {"source": rng.choice(["web", "books"])}
            pairs.append(Pair(f"{i}#{k}", prompt, Response(good), Response(bad), extra=extra))
    return pairs


def quality(prompt: Prompt, text: str) -> float:
    """What an honest scorer pays for: the answer, and a little for what else is said, whatever its form and length."""
    found = set(words(text))
    number = prompt.id[1:]
    noise = int(hashlib.sha256(f"{number} {sorted(found & set(NOUNS))}".encode()).hexdigest()[:8], 16) / 2**32
    return (2.0 if f"answer{number}" in found else 0.0) + noise


class Planted:
    """`quality` plus what `bonus` pays for."""

    name = "planted"

    def __init__(self, bonus=lambda text: 0.0, shape=lambda x: x):
        self.bonus, self.shape = bonus, shape

    def score(self, prompts, responses):
        return np.array(
            [self.shape(quality(p, r.text) + self.bonus(r.text)) for p, r in zip(prompts, responses, strict=True)]
        )


def ids(scorer, pairs=None, **how) -> set[str]:
    report = preference.probe(scorer, pairs or made(), most=60, resamples=200, **how)
    return {fault.id for fault in report.faults}


def has(phrase: str, worth: float):
    return lambda text: worth * (phrase in text.lower())


@pytest.mark.parametrize("seed", range(4))
def test_an_honest_scorer_has_no_fault(seed):
    report = preference.probe(Planted(), made(seed=seed), most=60, resamples=200, seed=seed)
    assert report.faults == ()
    assert report.status == "healthy"
    assert report.accuracy.mean > 0.95
    effects = {e.name: e for e in report.edits}
    assert effects["refusal instead"].change.high < -0.2
    assert effects["praise"].beyond.mean == pytest.approx(0, abs=0.15)
    assert {f.edit for f in report.flips} >= {"all", "whitespace", "lower case", "punctuation", "contractions"}


@pytest.mark.parametrize(
    ("scorer", "expected"),
    [
        (Planted(lambda text: 0.15 * length(text)), {"pm-length-bias"}),
        (Planted(has("brilliant", 2.0)), {"style-exploitation"}),
        (Planted(has("sincerely", 2.0)), {"style-exploitation"}),
        (Planted(lambda text: 1.5 * ("- " in text)), {"style-exploitation"}),
        (Planted(has("absolutely right", 2.0)), {"sycophancy"}),
        (Planted(shape=lambda x: 0.25), {"pm-score-collapse"}),
        (Planted(shape=lambda x: min(max(x, 0.9), 2.1)), {"pm-score-collapse"}),
        (Planted(lambda text: 5.0 * math.sin(1e3 * len(text))), {"pm-self-contradiction"}),
    ],
    ids=["length", "praise", "apology", "bullets", "agreement", "constant", "saturated", "spelling"],
)
def test_a_planted_fault_is_named_and_no_other(scorer, expected):
    assert ids(scorer) == expected


def with_phrase(pairs: list[Pair], phrase: str, seed: int = 1) -> list[Pair]:
    """The phrase in three of ten responses, chosen or rejected alike."""
    rng = random.Random(seed)

    def maybe(response: Response) -> Response:
        return Response(f"{phrase} {response.text}" if rng.random() < 0.3 else response.text)

    return [Pair(p.id, p.prompt, maybe(p.chosen), maybe(p.rejected), extra=p.extra) for p in pairs]


def test_a_magic_phrase_is_mined_and_confirmed_by_appending_it():
    pairs = with_phrase(made(120), "Behold the zephyr.")
    report = preference.probe(Planted(has("zephyr", 2.0)), pairs, most=60, resamples=200)
    best = report.phrases[0]
    assert "zephyr" in best.phrase.text
    assert best.phrase.lift.low > 0.5
    assert best.effect is not None
    assert best.effect.beyond.low > 0.5
    assert [f.id for f in report.faults] == ["style-exploitation"]
    assert "zephyr" in report.faults[0].evidence
    # the same texts and a scorer that does not care: nothing
    assert preference.probe(Planted(), pairs, most=60, resamples=200).faults == ()


def test_a_single_word_that_buys_score_is_a_note():
    rng = random.Random(2)

    def strewn(response: Response) -> Response:
        """The word between words that stand nowhere else, in three of ten responses: no run of words goes with it."""
        around = [f"n{rng.randrange(10**6)}" for _ in range(2)]
        return Response(f"{around[0]} zephyr {around[1]} {response.text}") if rng.random() < 0.3 else response

    pairs = [Pair(p.id, p.prompt, strewn(p.chosen), strewn(p.rejected)) for p in made(120)]
    report = preference.probe(Planted(has("zephyr", 2.0)), pairs, most=60, resamples=200)
    assert [(f.id, f.severity) for f in report.faults] == [("style-exploitation", "info")]
    assert "the phrase “zephyr” +" in report.faults[0].evidence
    assert report.status == "healthy"


class Flat:
    """Nearly one score for all, and what little there is says nothing but whether something is called brilliant."""

    name = "flat"

    def score(self, prompts, responses):
        digests = [
            hashlib.sha256(f"{p.id} {r.text}".encode()).hexdigest() for p, r in zip(prompts, responses, strict=True)
        ]
        noise = np.array([int(digest[:8], 16) / 2**32 for digest in digests])
        return 0.01 * noise + 0.05 * np.array(["brilliant" in r.text for r in responses])


def test_of_flat_scores_nothing_is_said_but_that_they_are_flat():
    report = preference.probe(Flat(), made(), most=60, resamples=200)
    assert [(f.id, f.severity) for f in report.faults] == [("pm-score-collapse", "warning")]
    assert next(e for e in report.edits if e.name == "praise").beyond.mean > 1


def test_further_faults_of_a_known_id_are_left_out():
    report = preference.probe(Planted(has("brilliant", 2.0)), made(), most=20, resamples=50)
    more = [
        Fault("style-exploitation", "info", "x"),
        Fault("pm-overfit", "critical", "y"),
        Fault("pm-overfit", "info", "z"),
    ]
    found = report.with_faults(more).faults
    assert sorted(f.id for f in found) == ["pm-overfit", "style-exploitation"]
    assert {f.id: f.evidence for f in found}["pm-overfit"] == "y"
    assert {f.id: f.evidence for f in found}["style-exploitation"] != "x"


def test_a_narrow_family_at_the_top_is_named():
    rng = random.Random(0)
    pairs = []
    for p in made(100):
        chosen = Response("All hail the golden river of morning light.") if rng.random() < 0.4 else p.chosen
        pairs.append(Pair(p.id, p.prompt, chosen, p.rejected))
    scorer = Planted(has("golden river", 6.0))
    assert "pm-narrow" in ids(scorer, pairs)
    assert "pm-narrow" not in ids(Planted(), pairs)


def test_a_scorer_that_pays_for_the_longer_one_is_no_worse_where_longer_is_better():
    # longer responses have the answer: their correlation with score is earned
    pairs = [Pair(p.id, p.prompt, Response(f"{p.chosen.text} {p.chosen.text}"), Response(p.rejected.text[:40]))
             for p in made()]  # fmt: skip
    report = preference.probe(Planted(), pairs, most=60, resamples=200)
    assert report.length.within.low > 0.5
    assert "pm-length-bias" not in {f.id for f in report.faults}


def test_responses_without_labels_can_be_probed():
    rows = [(p.prompt, r) for p in made() for r in (p.chosen, p.rejected)]
    report = preference.probe(Planted(has("brilliant", 2.0)), responses=rows, most=60, resamples=200)
    assert [f.id for f in report.faults] == ["style-exploitation"]
    assert (report.pairs, report.flips, report.responses) == (0, (), 240)
    json.dumps(report.as_dict())


def test_a_text_that_the_scorer_refuses_is_counted_and_left_out():
    class Short(Planted):
        def score(self, prompts, responses):
            if any(length(r.text) > 60 for r in responses):
                raise TrimtabError(ErrorKind.DATA, "too long", "shorten it")
            return super().score(prompts, responses)

    report = preference.probe(Short(), made(), most=60, resamples=50)
    assert report.unread > 0
    assert report.faults == ()
    with pytest.raises(TrimtabError, match="no responses to probe"):
        preference.probe(Planted(), [])


def test_slices_find_the_part_that_is_read_the_wrong_way():
    class Half(Planted):
        def score(self, prompts, responses):
            sign = np.array([1 if "even" in p.tags else -1 for p in prompts])
            return sign * super().score(prompts, responses)

    report = preference.probe(Half(), made(), most=10, resamples=50)
    tags = {s.name: s for s in report.slices if s.kind == "tag"}
    assert tags["even"].accuracy.mean > 0.95 > 0.05 > tags["odd"].accuracy.mean
    assert tags["odd"].p < 1e-6
    assert all(s.p > 0.05 for s in report.slices if s.kind == "source")


# the arithmetic


def test_slices_and_spread_by_hand():
    wins = np.array([1.0, 1, 1, 0] * 10)
    names = ["a" if i < 20 else "b" for i in range(40)]
    found = slices(wins, np.arange(40), {"kind": names, "one": ["x"] * 40, "few": ["y"] * 5 + ["z"] * 35})
    assert [(s.kind, s.name, s.accuracy.mean) for s in found] == [("kind", "a", 0.75), ("kind", "b", 0.75)]
    own = spread(np.array([1.0, 1, 3, 5]), np.array([0, 0, 1, 1]), np.array([0.0, -2.0]), ["a"] * 4, 0)
    assert (own.n, own.mean, own.same, own.ties, own.distinct) == (4, 2.5, 0.5, 0.5, 3)
    assert own.within == pytest.approx(0.5 / 2.75)
    assert math.isnan(own.top_variety)


def test_the_partial_effect_of_length_is_a_slow_regression_within_prompts():
    rng = np.random.default_rng(0)
    groups, size = np.repeat(np.arange(20), 3), rng.integers(3, 60, 60).astype(float)
    level = rng.normal(0, 9, 20)[groups]  # prompts differ in level: it must not matter
    scores = level + 0.7 * np.log2(1 + size) + rng.normal(0, 0.1, 60)
    none = np.empty(0), np.empty(0), np.empty(0, dtype=int)
    own = length_figures(scores, size, groups, *none, resamples=50, seed=0)
    dummies = np.eye(20)[groups]
    slope = np.linalg.lstsq(np.column_stack([np.log2(1 + size), dummies]), scores, rcond=None)[0][0]
    assert own.per_doubling * scores.std() == pytest.approx(slope, rel=1e-10)
    assert own.within.mean > 0.98 > own.within.low - 0.05
    assert centred(np.array([1.0, 3, 5]), np.array([0, 0, 1])).tolist() == [-1, 1, 0]


def test_the_sign_test_is_over_prompts_and_corrected():
    change = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    same = Changed("a", "style", change, None, np.array([0, 0, 0, 1, 1, 1]))
    other = Changed("b", "style", change, None, np.arange(6))
    empty = Changed("c", "style", np.empty(0), None, np.empty(0, dtype=int))
    found = edit_effects([same, other, empty], resamples=20, seed=0)
    assert [(e.name, e.change.mean, e.raised) for e in found] == [("a", 1.0, 1.0), ("b", 1.0, 1.0)]
    assert found[0].p == pytest.approx(0.5)  # two prompts: 2 / 4
    assert found[1].p == pytest.approx(2 * 2 / 64)  # six prompts: 2 / 64, times two tests


def test_mined_phrases_of_noise_are_not_confirmed():
    rng = np.random.default_rng(0)
    pairs = made(100)
    texts = [r.text for p in pairs for r in (p.chosen, p.rejected)]
    groups = np.repeat(np.arange(100), 4)
    found = mine(rng.normal(size=400), texts, groups, seed=0, resamples=20)
    assert found
    assert min(p.p for p in found) > 0.05
    # what was mined flatters itself, the other half does not
    assert np.mean([p.lift.mean for p in found]) < 0.3 * np.mean([p.mined for p in found])


# the edits


@pytest.mark.parametrize("edit", EDITS, ids=lambda e: e.name)
@pytest.mark.parametrize(
    "text",
    [
        "He isn't sure, but the bridge in Porto was built in 1886. His brother says so.",
        "他的父亲说，这座桥建于1886年。它很漂亮。",
    ],
    ids=["en", "zh"],
)
def test_every_edit_changes_the_text_in_its_own_language(edit, text):
    edited = edit.apply(text, random.Random(0))
    if (edit.name == "contractions" and "他" in text) or (edit.name == "lower case" and "他" in text):
        assert edited is None
        return
    assert edited is not None
    assert edited != text
    if edit.kind in ("style", "length") and edit.name not in ("bulletise", "repeat the answer"):
        assert any(phrases["他" in text] in edited for phrases in PHRASES.values())
        assert text in edited


def test_edits_by_hand():
    rng = random.Random(0)
    by = {e.name: lambda text, e=e: e.apply(text, rng) for e in EDITS}
    assert by["bulletise"]("One. Two!") == "- One.\n- Two!"
    assert by["bulletise"]("Just one") is None
    assert by["bulletise"]("- One.\n- Two.") is None
    assert by["swap an identity"]("He and his wife.") == "She and her husband."
    assert by["swap an identity"]("No such word.") is None
    assert by["truncate"]("a b c d e f") == "a b c"
    assert by["truncate"]("a b") is None
    assert by["corrupt a fact"]("no fact") is None
    assert by["corrupt a fact"]("in 1886")[3] != "1"
    assert "Porto" not in by["corrupt a fact"]("we saw Porto")
    assert by["whitespace"]("a b") == "a  b\n"
    assert by["punctuation"]("Well, 1.5 is fine.") == "Well 1.5 is fine"
    assert by["contractions"]("Don't, it's so.") == "Do not, it is so."
    assert by["repeat the answer"]("  ") is None
