"""Probes beyond edits: taking the user's side, near-duplicates in the data, and the parts that pairs fall into."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from trimtab import preference
from trimtab.data.records import Message, Pair, Prompt, Response
from trimtab.preference.probes.duplicates import NEAR_DUPLICATES, near_duplicates
from trimtab.preference.probes.slicing import parts_of
from trimtab.preference.probes.sycophancy import OPINIONS, agreement, opinion_rows

# taking the user's side


def sides(row) -> tuple[str, str]:
    """What the user named as better, and what the response takes."""
    prompt, response = row
    asked, said = prompt.text, response.text
    named = re.search(r"I think that (.+) would be better than", asked) or re.search(r"，(.+?)比", asked)
    taken = re.search(r"choose (.+?)(?: rather than|\. Either)", said) or re.search(r"我会选(.+?)[，。]", said)
    assert named is not None
    assert taken is not None
    return named[1], taken[1]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_agreeing_and_contradicting_differ_in_nothing_but_that(language):
    rows = opinion_rows(language)
    assert len(rows) == len(OPINIONS) >= 24
    split = list if language == "zh" else str.split
    for agreed, against, agreed_too, against_too in rows:
        assert [named == taken for named, taken in map(sides, (agreed, against, agreed_too, against_too))] == [
            True, False, True, False,
        ]  # fmt: skip
        assert agreed[0] is against[0]
        assert agreed_too[0] is against_too[0]
        assert agreed[0].text != agreed_too[0].text
        assert (agreed[1], against[1]) == (against_too[1], agreed_too[1])
        bags = [sorted(split(re.sub(r"[,.?，。？]", "", text.text))) for text in (agreed[1], against[1])]
        assert bags[0] == bags[1]
        asked = [sorted(split(re.sub(r"[,.?，。？]", "", text))) for text in (agreed[0].text, agreed_too[0].text)]
        assert asked[0] == asked[1]


def test_half_of_the_questions_name_the_side_that_is_taken_first():
    for language in ("en", "zh"):
        first = [
            rows[0][1].text.find(sides(rows[0])[1]) < rows[0][1].text.find(sides(rows[1])[1])
            for rows in opinion_rows(language)
        ]
        assert sum(first) == len(first) / 2


def scored(of):
    return lambda rows: np.array([float(of(prompt, response)) for prompt, response in rows])


def sycophant(worth: float, noise: float = 0.0):
    def score(prompt, response) -> float:
        named, taken = sides((prompt, response))
        own = noise * math.sin(sum(map(ord, prompt.text + response.text)))
        return worth * (named == taken) + own

    return score


def test_what_agreement_is_worth_is_found_whatever_a_side_is_worth():
    def biased(prompt, response) -> float:
        return sycophant(0.7)(prompt, response) + 5.0 * (sides((prompt, response))[1] < "m") + 0.1 * len(prompt.text)

    found = agreement(scored(biased), 0.5, ["en", "zh"], resamples=100, seed=0)
    assert found is not None
    assert (found.opinions, found.raised) == (len(OPINIONS), 1.0)
    assert found.change.mean == pytest.approx(1.4)
    assert found.p == pytest.approx(2 * 0.5 ** len(OPINIONS))


def common_words(prompt, response) -> float:
    return len(set(prompt.text.split()) & set(response.text.split())) + 0.01 * len(response.text)


def copied_order(prompt, response) -> float:
    """Pays where what the user named first also stands first in the response."""
    one, two = (re.findall(r"that (.+) would be better than (.+) for", prompt.text) or [("", "")])[0]
    return float(response.text.find(one) < response.text.find(two))


@pytest.mark.parametrize("of", [common_words, copied_order, sycophant(0.0, 1.0)], ids=["words", "order", "noise"])
def test_what_is_not_agreement_cancels(of):
    found = agreement(scored(of), 1.0, ["en"], resamples=200, seed=0)
    assert found is not None
    assert found.p > 0.05
    assert found.change.low <= 1e-12
    assert abs(found.change.mean) < 0.3


def test_by_a_slow_derivation():
    of = sycophant(0.3, 1.0)
    found = agreement(scored(of), 2.0, ["en"], resamples=100, seed=0)
    slow = []
    for rows in opinion_rows("en"):
        gains = {True: [], False: []}
        for row in rows:
            named, taken = sides(row)
            gains[named == taken].append(of(*row))
        slow.append((sum(gains[True]) / 2 - sum(gains[False]) / 2) / 2.0)
    assert found is not None
    assert found.change.mean == pytest.approx(float(np.mean(slow)))
    assert found.raised == np.mean([x > 0 for x in slow])


def test_questions_that_cannot_be_read_are_left_out_and_too_few_say_nothing():
    def short(prompt, response) -> float:
        return math.nan if len(prompt.text) > 90 else sycophant(1.0)(prompt, response)

    found = agreement(scored(short), 1.0, ["en"], resamples=50, seed=0)
    assert found is not None
    assert 2 <= found.opinions < len(OPINIONS)
    assert found.change.mean == 1.0
    assert agreement(scored(lambda *_: math.nan), 1.0, ["en"], resamples=50, seed=0) is None


class Sided:
    """Pays a little for what a response is, and `worth` for taking the user's side."""

    name = "sided"

    def __init__(self, worth: float) -> None:
        self.worth = worth

    def score(self, prompts, responses):
        def one(prompt, response) -> float:
            own = math.sin(sum(map(ord, response.text)))
            return own + (sycophant(self.worth)(prompt, response) if prompt.id.startswith("opinion-") else 0.0)

        return np.array([one(p, r) for p, r in zip(prompts, responses, strict=True)])


def plain_pairs(n: int = 40, words: str = "stone leaf") -> list[Pair]:
    return [
        Pair(f"p{i}", Prompt(f"q{i}", (Message("user", f"Say {i}."),)), Response(f"{words} {i * 7 + 1}"),
             Response(f"{words} {i * 5 + 2} too"))
        for i in range(n)
    ]  # fmt: skip


def test_a_scorer_that_takes_the_users_side_is_named():
    report = preference.probe(Sided(0.6), plain_pairs(), most=20, resamples=100)
    fault = next(f for f in report.faults if f.id == "sycophancy")
    assert "taking the user's side, whichever that is" in fault.evidence
    assert report.as_dict()["agreement"]["opinions"] == len(OPINIONS)
    quiet = preference.probe(Sided(0.0), plain_pairs(), most=20, resamples=100)
    assert "sycophancy" not in {f.id for f in quiet.faults}


def test_the_questions_are_asked_in_the_language_of_the_responses():
    asked: list[str] = []

    class Noting(Sided):
        def score(self, prompts, responses):
            asked.extend(p.id.split("-")[1] for p in prompts if p.id.startswith("opinion-"))
            return super().score(prompts, responses)

    preference.probe(Noting(0.0), plain_pairs(words="石头和树叶"), most=10, resamples=20)
    assert set(asked) == {"zh"}
    asked.clear()
    preference.probe(Noting(0.0), plain_pairs(), most=10, resamples=20)
    assert set(asked) == {"en"}


# near-duplicates


LONG = "the old harbour wakes early when boats come in with fish and nets and the gulls cry over the wet stones of quay"


def twice(n: int, *, crossed: bool = False) -> list[Pair]:
    """n pairs, each with a second that differs in one word of each response."""
    pairs = []
    for i in range(n):
        prompt = Prompt(f"q{i}", (Message("user", f"Tell me of harbour number {i} and what you see there at dawn"),))
        good, bad = f"{i} good {LONG} number{i} and more", f"{i} bad {LONG[::-1]} number{i} and less"
        for k, end in enumerate(("now", "today")):
            one, two = Response(f"{good} {end}"), Response(f"{bad} {end}")
            pairs.append(Pair(f"{i}#{k}", prompt, *((two, one) if crossed and k else (one, two))))
    return pairs


def test_near_duplicates_are_found_with_the_same_label_only():
    found = near_duplicates(twice(5))
    assert sorted(map(tuple, found.tolist())) == [(2 * i, 2 * i + 1) for i in range(5)]
    assert len(near_duplicates(twice(5, crossed=True))) == 0
    doubted = [replace(p, p_chosen=0.2) if p.id.endswith("#1") else p for p in twice(5)]
    assert len(near_duplicates(doubted)) == 0  # the labels differ there: so may the scores
    same = [p for p in twice(5) for _ in range(2)]
    assert all(same[i].id != same[j].id for i, j in near_duplicates(same))  # not what reads the same
    assert near_duplicates(plain_pairs()).shape == (0, 2)


class ByTheLastWord:
    name = "capricious"

    def score(self, prompts, responses):
        return np.array([
            (1.0 if "good" in r.text else 0.0) * (-1 if r.text.endswith("today") else 1)
            + 0.01 * (len(p.text) % 7)
            for p, r in zip(prompts, responses, strict=True)
        ])  # fmt: skip


def test_a_scorer_that_turns_near_duplicates_round_contradicts_itself():
    report = preference.probe(ByTheLastWord(), twice(30), most=10, resamples=50)
    flips = {f.edit: f.share for f in report.flips}
    assert (flips[NEAR_DUPLICATES].mean, flips[NEAR_DUPLICATES].n) == (1.0, 30)
    fault = next(f for f in report.faults if f.id == "pm-self-contradiction")
    assert fault.severity == "critical"


# parts


def with_columns(n: int = 60) -> list[Pair]:
    pairs = []
    for i, p in enumerate(plain_pairs(n)):
        prompt = Prompt(p.prompt.id, p.prompt.messages, tags=(("sea", "land")[i % 2], "x"), extra={"domain": "d"})
        extra = {
            "source": ("web", "book")[i % 2], "group": i % 3, "topic": ["t1", "t2"],
            "origin": {"principle": ("kind", "honest")[i % 2]}, **({"labeled_by": "human"} if i % 4 == 0 else {}),
        }  # fmt: skip
        sure = 0.6 + 0.35 * (i % 2)
        pairs.append(Pair(p.id, prompt, p.chosen, p.rejected, p_chosen=sure, margin=i / 10, extra=extra))
    return pairs


def test_every_column_makes_parts_and_what_no_pair_has_makes_none():
    parts = parts_of(with_columns())
    assert {kind: sorted(set(names)) for kind, names in parts.items()} == {
        "length": ["chosen shorter by 20 % or more"],
        "tag": ["land", "sea"],
        "label": ["sure label (0.9 or more)", "unsure label"],
        "margin": ["1.97 to 3.93", "above 3.93", "below 1.97"],
        "source": ["book", "web"],
        "group": ["0", "1", "2"],
        "principle": ["honest", "kind"],
        "domain": ["d"],
        "topic": ["t1"],
        "labeled_by": ["human", "judge"],
    }
    assert [parts["margin"].count(name) for name in ("below 1.97", "1.97 to 3.93", "above 3.93")] == [20, 20, 20]
    assert set(parts_of(plain_pairs())) == {"length"}


def test_few_margins_are_parts_of_their_own_and_the_deciding_principle_is_one():
    pairs = [
        Pair(p.id, p.prompt, p.chosen, p.rejected, margin=(1.0, 3.0)[i % 2],
             principles={"kind": 0.4, "honest": (0.9, 0.55)[i % 2]})
        for i, p in enumerate(plain_pairs(8))
    ]  # fmt: skip
    parts = parts_of(pairs)
    assert parts["margin"] == ["1", "3"] * 4
    assert parts["principle"] == ["honest", "kind"] * 4


def test_parts_reach_the_report_with_their_accuracy():
    class BySource:
        name = "by source"

        def score(self, prompts, responses):
            return np.array([float(r.text.endswith("too")) * (1 if "sea" in p.tags else -1) + 1e-3 * len(p.id)
                             for p, r in zip(prompts, responses, strict=True)])  # fmt: skip

    report = preference.probe(BySource(), with_columns(), most=10, resamples=20)
    found = {(s.kind, s.name): (s.accuracy.mean, s.p) for s in report.slices}
    assert found["tag", "sea"][0] == 0.0
    assert found["tag", "land"][0] == 1.0
    assert found["principle", "honest"][0] == found["source", "book"][0] == 1.0
    assert found["tag", "sea"][1] < 1e-6
