"""What votes say: hand-made reviews with known answers, and the formulas derived again."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reviews import SYSTEMS, all_votes, good, item, review
from trimtab.errors import TrimtabError
from trimtab.evaluation.review.assignment import next_item
from trimtab.evaluation.review.records import Choice, Plan, Served
from trimtab.evaluation.review.store import ReviewStore, create
from trimtab.evaluation.review.tally import disagreements, results
from trimtab.evaluation.review.versions import guidelines, refresh_guidelines, set_guidelines, version_of
from trimtab.evaluation.review.voting import register, vote

FLIPPED = {Choice.A: Choice.B, Choice.B: Choice.A}


def number(shown: Served) -> int:
    return int(shown.prompt[-1][1].split()[1].removeprefix("g"))


def by_number(rule: dict[int, str]) -> object:
    """Votes `first`, `second`, `tie`, `both_bad` or `skip` by the number of the item."""

    def choose(shown: Served) -> Choice:
        said = rule[number(shown)]
        return {"first": good(shown), "second": FLIPPED[good(shown)]}.get(said) or Choice(said)

    return choose


def vote_all(store: ReviewStore, annotator: str, rule: dict[int, str]) -> None:
    all_votes(store, annotator, by_number(rule))  # type: ignore[arg-type]


def test_votes_are_mapped_back_and_ties_count_half(tmp_path: Path) -> None:
    store = review(tmp_path, 8, Plan(2, 0, 0))
    vote_all(store, "ana", dict(enumerate(["first"] * 4 + ["second"] * 2 + ["tie", "both_bad"])))
    vote_all(store, "ben", dict(enumerate(["first"] * 2 + ["second"] * 2 + ["skip", "second", "tie", "first"])))
    overall = results(store).overall
    assert (overall.votes, overall.items) == (15, 8)
    assert (overall.first, overall.second, overall.ties, overall.both_bad) == (7, 5, 2, 1)
    # items: 1, 1, .5, .5, 0 (one vote), 0, .5, .75
    assert overall.win_rate is not None
    assert overall.win_rate.value == pytest.approx(4.25 / 8)
    assert overall.decided is not None
    assert overall.decided.value == pytest.approx(7 / 12)
    assert overall.tied is not None
    assert overall.tied.value == pytest.approx(3 / 15)
    assert overall.few


def test_the_interval_is_over_prompts_and_as_derived_by_hand(tmp_path: Path) -> None:
    store = ReviewStore(tmp_path / "reviews.sqlite")
    # three items a prompt, which go the same way: 12 prompts are what is independent
    create(store, "r", [item(i, prompt=i // 3) for i in range(36)], Plan(1, 0, 0), systems=SYSTEMS)
    won = {i: "first" if i // 3 in (0, 2, 3, 5, 7, 8, 9, 11) else "second" for i in range(36)}
    vote_all(store, "ana", won)
    rate = results(store).overall.win_rate
    assert rate is not None
    assert (rate.value, rate.n, rate.prompts) == (pytest.approx(24 / 36), 36, 12)
    # Kish's effective size from the scatter of the prompts, one prompt of a kind more, then Wilson's bounds
    p, z = 2 / 3, 1.959963984540054
    scatter = 8 * (3 - 2) ** 2 + 4 * (0 - 2) ** 2 + 9 * p * (1 - p)
    n = p * (1 - p) * 36**2 / (scatter * 12 / 11)
    centre, half = (p + z * z / 2 / n), z * math.sqrt(p * (1 - p) / n + z * z / 4 / n / n)
    assert rate.low == pytest.approx((centre - half) / (1 + z * z / n), abs=1e-12)
    assert rate.high == pytest.approx((centre + half) / (1 + z * z / n), abs=1e-12)
    assert n < 12


def test_agreement_is_that_of_the_formulas(tmp_path: Path) -> None:
    store = review(tmp_path, 6, Plan(2, 0, 0))
    one = ["first", "first", "second", "tie", "second", "first"]
    two = ["first", "second", "second", "tie", "first", "first"]
    vote_all(store, "ana", dict(enumerate(one)))
    vote_all(store, "ben", dict(enumerate(two)))
    found = results(store).agreement
    assert found.items == 6
    assert found.raw is not None
    assert found.raw.value == pytest.approx(4 / 6)
    pooled = [(one + two).count(c) / 12 for c in ("first", "tie", "second")]
    chance = sum(p * p for p in pooled)
    assert found.fleiss is not None
    assert found.fleiss.value == pytest.approx((4 / 6 - chance) / (1 - chance))
    # alpha: chance without replacement
    expected = sum(n * (n - 1) for n in (6, 2, 4)) / (12 * 11)
    assert found.alpha is not None
    assert found.alpha.value == pytest.approx(1 - (2 / 6) / (1 - expected))
    (pair,) = found.pairwise
    shares = sum(one.count(c) * two.count(c) for c in ("first", "tie", "second")) / 36
    assert (pair.first, pair.second, pair.items) == ("ana", "ben", 6)
    assert pair.kappa is not None
    assert pair.kappa.value == pytest.approx((4 / 6 - shares) / (1 - shares))
    assert found.alpha_ordinal is not None
    assert found.alpha_ordinal.value != found.alpha.value
    assert found.ac1 is not None
    assert found.alpha.low is not None
    assert found.alpha.high is not None
    assert found.alpha.low <= found.alpha.value <= found.alpha.high


def test_a_tie_differs_less_than_the_other_side_where_order_counts(tmp_path: Path) -> None:
    values = []
    for name, other in (("near", "tie"), ("far", "second")):
        (tmp_path / name).mkdir()
        store = review(tmp_path / name, 8, Plan(2, 0, 0))
        vote_all(store, "ana", dict(enumerate(["first"] * 5 + ["second"] * 3)))
        vote_all(store, "ben", dict(enumerate(["first"] * 4 + [other] + ["second"] * 3)))
        found = results(store).agreement.alpha_ordinal
        assert found is not None
        values.append(found.value)
    assert values[0] > values[1]


def test_one_annotator_has_no_agreement_and_everything_else(tmp_path: Path) -> None:
    store = review(tmp_path, 30, Plan(1, 0.2, 0))
    all_votes(store, "ana")
    found = results(store)
    assert (found.agreement.items, found.agreement.raw, found.agreement.alpha) == (0, None, None)
    assert found.agreement.pairwise == ()
    assert found.consistency is not None
    assert found.consistency.value == 1
    assert found.annotators[0].with_others is None
    assert found.complete == 30


def test_no_votes_and_one_prompt_give_figures_that_json_has(tmp_path: Path) -> None:
    store = review(tmp_path, 1, Plan(2, 0, 0))
    found = results(store)
    assert (found.overall.votes, found.overall.win_rate, found.annotators) == (0, None, ())
    json.dumps(found.as_dict(), allow_nan=False)
    all_votes(store, "ana")
    all_votes(store, "ben")
    found = results(store)
    assert found.overall.win_rate is not None
    assert (found.overall.win_rate.value, found.overall.win_rate.low) == (1, None)
    assert found.agreement.fleiss is None  # all alike: not defined
    json.dumps(found.as_dict(), allow_nan=False)
    assert disagreements(store) == []


def test_an_annotator_who_takes_what_is_first_is_told_from_one_who_reads(tmp_path: Path) -> None:
    store = review(tmp_path, 40, Plan(2, 0.2, 0.1), gold=20)
    all_votes(store, "lazy", lambda shown: Choice.A)
    all_votes(store, "keen")
    lazy, keen = sorted(results(store).annotators, key=lambda a: a.name != "lazy")
    assert lazy.first_shown is not None
    assert lazy.first_shown.value == 1
    assert lazy.consistency is not None
    assert lazy.consistency.value == 0  # the sides of a repeat are swapped
    assert "prefers the response shown first" in lazy.notes
    assert keen.consistency is not None
    assert keen.gold is not None
    assert (keen.consistency.value, keen.gold.value, keen.notes) == (1, 1, ())
    assert lazy.gold is not None
    assert lazy.gold.value < 1
    without = results(store, without=["lazy"])
    assert [a.name for a in without.annotators] == ["keen"]
    assert without.overall.win_rate is not None
    assert without.overall.win_rate.value == 1
    with pytest.raises(TrimtabError, match="no votes of 'lasy'"):
        results(store, without=["lasy"])


def test_gold_questions_and_repeats_do_not_count_for_the_win_rate(tmp_path: Path) -> None:
    store = review(tmp_path, 20, Plan(1, 0.2, 0.2), gold=20)
    # wrong on every gold question, and on a repeat the other way round
    seen: set[str] = set()

    def choose(shown: Served) -> Choice:
        prompt = shown.prompt[0][1]
        wrong = "g" in prompt.split()[1] or prompt in seen
        seen.add(prompt)
        return FLIPPED[good(shown)] if wrong else good(shown)

    all_votes(store, "ana", choose)
    found = results(store)
    assert found.overall.win_rate is not None
    assert (found.overall.win_rate.value, found.overall.votes) == (1, 20)
    assert found.gold is not None
    assert found.consistency is not None
    assert (found.gold.value, found.consistency.value) == (0, 0)
    assert "misses gold questions" in found.annotators[0].notes
    assert found.annotators[0].votes > 20


def test_slices_by_group_tag_and_version_of_the_guidelines(tmp_path: Path) -> None:
    store = ReviewStore(tmp_path / "reviews.sqlite")
    create(store, "r", [item(i, tags=("even",) if i % 2 == 0 else ("odd", "rare")) for i in range(30)], Plan(2, 0, 0))
    first = set_guidelines(store, "r", "The more helpful one.\n")
    register(store, "ana", ["nurses", "night"])
    register(store, "ben", ["pilots"])
    vote_all(store, "ana", {i: "first" if i % 2 == 0 else "second" for i in range(30)})
    second = set_guidelines(store, "r", "The shorter one.")
    vote_all(store, "ben", dict.fromkeys(range(30), "first"))
    slices = {
        kind: {p.name: p.win_rate.value for p in parts if p.win_rate} for kind, parts in results(store).slices.items()
    }
    assert slices == {
        "group": {"nurses": 0.5, "night": 0.5, "pilots": 1},
        "tag": {"even": 1, "odd": 0.5, "rare": 0.5},
        "guidelines": {first: 0.5, second: 1},
    }
    assert [(v.version, v.votes) for v in guidelines(store, "r")] == [(first, 30), (second, 30)]
    # the group is the one that the vote was given in
    register(store, "ana", ["elsewhere"])
    assert {p.name for p in results(store).slices["group"]} == {"nurses", "night", "pilots"}


def test_guidelines_are_named_by_their_text_and_a_changed_file_is_put_in_force(tmp_path: Path) -> None:
    store = review(tmp_path, 2)
    path = tmp_path / "guidelines.md"
    path.write_text("Be strict.  \n\n", encoding="utf-8")
    version = set_guidelines(store, "r", path.read_text(encoding="utf-8"), path)
    assert version == version_of("Be strict.") != version_of("Be kind.")
    shown = next_item(store, "r", "ana")
    assert shown is not None
    assert shown.guidelines == version
    assert refresh_guidelines(store, "r") is None
    path.write_text("Be kind.\n", encoding="utf-8")
    changed = refresh_guidelines(store, "r")
    assert changed == version_of("Be kind.")
    again = next_item(store, "r", "ana")
    assert again is not None
    assert (again.ticket, again.guidelines) == (shown.ticket, changed)
    path.unlink()
    assert refresh_guidelines(store, "r") is None
    with pytest.raises(TrimtabError, match="empty"):
        set_guidelines(store, "r", " \n")


def test_aspects_have_win_rates_of_their_own(tmp_path: Path) -> None:
    store = review(tmp_path, 10, Plan(1, 0, 0, aspects=("kind", "brief")))
    for i in range(10):
        shown = next_item(store, "r", "ana")
        assert shown is not None
        assert shown.aspects == ("kind", "brief")
        aspects = {"kind": FLIPPED[good(shown)]} if i < 4 else {"kind": good(shown), "brief": Choice.TIE}
        vote(store, shown.ticket, good(shown), annotator="ana", aspects=aspects)
    kind, brief = results(store).aspects
    assert (kind.name, kind.votes, kind.first, kind.second) == ("kind", 10, 6, 4)
    assert (brief.votes, brief.ties, brief.both_bad) == (6, 6, 0)


def test_disagreements_come_with_names_and_reasons_the_most_disputed_first(tmp_path: Path) -> None:
    store = review(tmp_path, 3, Plan(3, 0, 0))
    for who, said in (("ana", "first"), ("ben", "second"), ("cy", "tie")):
        for _ in range(3):
            shown = next_item(store, "r", who)
            assert shown is not None
            choose = by_number({0: said, 1: "second" if who == "cy" else "first", 2: "first"})
            vote(store, shown.ticket, choose(shown), annotator=who, reason=f"{who} says so")  # type: ignore[operator]
    found = disagreements(store)
    assert [(one.item.prompt.id, one.disagreement) for one in found] == [("p0", 1), ("p1", pytest.approx(2 / 3))]
    assert found[0].item.systems == SYSTEMS
    assert {v.annotator: (v.winner, v.reason) for v in found[0].votes} == {
        "ana": (1, "ana says so"),
        "ben": (2, "ben says so"),
        "cy": (0, "cy says so"),
    }
    assert len(disagreements(store, limit=1)) == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=8)
@given(st.integers(0, 10**6), st.integers(2, 8))
def test_the_other_system_has_the_other_share_of_everything(
    tmp_path_factory: pytest.TempPathFactory, seed: int, n: int
) -> None:
    rng = random.Random(seed)
    rule = {i: rng.choice(["first", "second", "tie"]) for i in range(n)}
    other = {i: {"first": "second", "second": "first"}.get(said, said) for i, said in rule.items()}
    rates = []
    for said in (rule, other):
        with review(tmp_path_factory.mktemp("mirror"), n, Plan(1, 0, 0)) as store:
            vote_all(store, "ana", said)
            rates.append(results(store).overall.win_rate)
    one, two = rates
    assert one is not None
    assert two is not None
    assert one.value == pytest.approx(1 - two.value)
    if one.low is not None and two.high is not None:
        assert one.low == pytest.approx(1 - two.high)
