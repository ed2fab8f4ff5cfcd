"""Verdicts to labels to pairs: averaging over orders, failures that stay failures, nothing asked twice."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeling_fakes import ScriptedJudge, candidate, two_principles, votes
from trimtab.errors import TrimtabError
from trimtab.labeling.labels import Label, aggregate, label_pairs, summarise, to_pairs
from trimtab.labeling.protocol import JudgeRequest, Order, Outcome, Verdict, pair_hash
from trimtab.labeling.store import LabelStore

F, R = Order.FORWARD, Order.REVERSED


def ok(p: float, mass: float | None = None) -> Verdict:
    return Verdict(Outcome.OK, p, mass)


def by_order(forward: Verdict, reversed_: Verdict) -> ScriptedJudge:
    return ScriptedJudge(lambda r: forward if r.order is F else reversed_)


def test_a_label_is_the_mean_of_the_two_orders_and_keeps_the_gap(tmp_path: Path) -> None:
    (label,) = label_pairs([candidate(0)], by_order(ok(0.9, 0.8), ok(0.4, 0.6)), two_principles(tmp_path))
    assert label.outcome is Outcome.OK
    assert label.p_first == pytest.approx(0.65, abs=1e-15)
    assert label.order_gap == pytest.approx(0.5, abs=1e-15)
    assert label.mass == pytest.approx(0.7, abs=1e-15)


def test_the_reversed_question_shows_the_second_response_first(tmp_path: Path) -> None:
    # a judge that always finds what it sees first a little better, and "yes" much better
    def answer(request: JudgeRequest) -> Verdict:
        shown = 0.9 if request.shown[0].text == "yes" else 0.3
        return Verdict.of_shown(shown, request.order)

    judge = ScriptedJudge(answer)
    (label,) = label_pairs([candidate(0)], judge, two_principles(tmp_path))
    assert [tuple(y.text for y in r.shown) for r in judge.asked] == [("yes", "no"), ("no", "yes")]
    assert label.p_first == pytest.approx((0.9 + 0.7) / 2, abs=1e-15)
    assert label.order_gap == pytest.approx(0.2, abs=1e-15)


def test_repeated_votes_are_averaged_within_each_order() -> None:
    label = aggregate("p", votes({(F, 0): ok(1.0), (F, 1): ok(0.5), (F, 2): ok(0.0), (R, 0): ok(0.1)}))
    assert label.p_first == pytest.approx((0.5 + 0.1) / 2, abs=1e-15)
    assert label.order_gap == pytest.approx(0.4, abs=1e-15)


probabilities = st.floats(0, 1)


@given(st.lists(st.tuples(probabilities, probabilities), min_size=1, max_size=5))
def test_aggregation_agrees_with_a_slow_mean_and_mirrors(cast: list[tuple[float, float]]) -> None:
    verdicts = {(o, s): ok(v[i]) for s, v in enumerate(cast) for i, o in enumerate((F, R))}
    label = aggregate("p", votes(verdicts))
    forward = sum(v[0] for v in cast) / len(cast)
    backward = sum(v[1] for v in cast) / len(cast)
    assert label.p_first == pytest.approx((forward + backward) / 2, abs=1e-12)
    assert label.order_gap == pytest.approx(forward - backward, abs=1e-12)
    # the pair the other way round: 1 - p, and the same lean to what is seen first
    other_way = {(R if o is F else F, s): ok(1 - (v.p_first or 0.0)) for (o, s), v in verdicts.items()}
    mirrored = aggregate("p", votes(other_way))
    assert mirrored.p_first == pytest.approx(1 - (forward + backward) / 2, abs=1e-12)
    assert mirrored.order_gap == pytest.approx(forward - backward, abs=1e-12)


@pytest.mark.parametrize("failure", [Outcome.ERROR, Outcome.REFUSED, Outcome.UNPARSED])
def test_a_failed_order_is_no_tie_and_no_label(failure: Outcome, tmp_path: Path) -> None:
    judge = by_order(ok(0.9), Verdict(failure, detail="why"))
    labels = label_pairs([candidate(0)], judge, two_principles(tmp_path))
    assert labels[0].outcome is failure
    assert labels[0].p_first is None
    assert not labels[0].usable
    assert to_pairs([candidate(0)], labels) == []
    summary = summarise(labels)
    assert summary.n == 1
    assert summary.usable == 0.0
    assert summary.counts == {o: int(o is failure) for o in Outcome}


def test_summary_counts_every_label() -> None:
    labels = [
        aggregate("a", votes({(F, 0): ok(0.9), (R, 0): ok(0.7)})),
        aggregate("b", votes({(F, 0): ok(0.8), (R, 0): ok(0.1)})),
        aggregate("c", votes({(F, 0): Verdict(Outcome.TIE, 0.5), (R, 0): Verdict(Outcome.TIE, 0.5)})),
        aggregate("d", votes({(F, 0): Verdict(Outcome.ERROR), (R, 0): ok(0.5)})),
    ]
    summary = summarise(labels)
    assert [label.outcome for label in labels] == [Outcome.OK, Outcome.OK, Outcome.TIE, Outcome.ERROR]
    assert summary.counts == {Outcome.OK: 2, Outcome.TIE: 1, Outcome.UNPARSED: 0, Outcome.REFUSED: 0, Outcome.ERROR: 1}
    assert summary.usable == pytest.approx(0.75)
    assert summary.flipped == pytest.approx(1 / 3)
    assert summary.mean_order_gap == pytest.approx((0.2 + 0.7 + 0) / 3)
    assert summary.mean_strength == pytest.approx((0.3 + 0.05 + 0) / 3)
    assert summarise([]).usable == 0.0


def test_one_order_where_asked_for_or_where_it_cannot_matter(tmp_path: Path) -> None:
    constitution = two_principles(tmp_path)
    for judge, both in (
        (ScriptedJudge(lambda r: ok(0.8)), False),
        (ScriptedJudge(lambda r: ok(0.8), sees_order=False), True),
    ):
        (label,) = label_pairs([candidate(0)], judge, constitution, both_orders=both)
        assert [r.order for r in judge.asked] == [F]
        assert label.p_first == 0.8
        assert label.order_gap is None


def test_to_pairs_chooses_the_likelier_response_and_abstains_below_the_band() -> None:
    candidates = [candidate(0, "a", "b", source="samples"), candidate(1, "c", "d"), candidate(2, "e", "f")]
    labels = [aggregate(f"p{i}", votes({(F, 0): ok(p)})) for i, p in enumerate((0.8, 0.3, 0.55))]
    pairs = to_pairs(candidates, labels, abstain=0.1)
    assert [(p.id, p.chosen.text, p.rejected.text) for p in pairs] == [("p0", "a", "b"), ("p1", "d", "c")]
    assert [p.p_chosen for p in pairs] == pytest.approx([0.8, 0.7], abs=1e-15)
    assert pairs[0].extra["origin"] == {"source": "samples"}
    assert [p.extra["chosen_was"] for p in pairs] == ["first", "second"]
    assert len(to_pairs(candidates, labels)) == 3
    with pytest.raises(TrimtabError, match="do not belong"):
        to_pairs(candidates, labels[::-1])


def test_labels_by_principle_stay_with_the_pair_and_turn_with_it() -> None:
    of = {"kind": 0.25, "short": 0.375}
    labels = [Label(f"p{i}", Outcome.OK, p, principles=of) for i, p in enumerate((0.75, 0.25))]
    first, second = to_pairs([candidate(0), candidate(1)], labels)
    assert first.principles == of
    assert (second.principles, second.p_chosen) == ({"kind": 0.75, "short": 0.625}, 0.75)


def test_only_what_is_missing_is_asked(tmp_path: Path) -> None:
    constitution = two_principles(tmp_path)
    with LabelStore(tmp_path / "labels.sqlite") as store:
        first = ScriptedJudge(lambda r: ok(0.6))
        label_pairs([candidate(i) for i in range(3)], first, constitution, store=store)
        assert len(first.asked) == 6
        again = ScriptedJudge(lambda r: ok(0.1))
        labels = label_pairs([candidate(i) for i in range(5)], again, constitution, store=store)
        assert {r.pair.id for r in again.asked} == {"p3", "p4"}
        assert [x.p_first for x in labels] == pytest.approx([0.6, 0.6, 0.6, 0.1, 0.1])
        # another constitution is another question
        label_pairs([candidate(0)], again, constitution.swapped(), store=store)
        assert again.asked[-1].constitution != constitution
        # with one more vote, only the new votes are missing
        third = ScriptedJudge(lambda r: ok(0.2))
        label_pairs([candidate(0)], third, constitution, store=store, samples=2)
        assert [(r.order, r.sample) for r in third.asked] == [(F, 1), (R, 1)]


def test_recorded_errors_are_asked_again_and_other_failures_are_not(tmp_path: Path) -> None:
    constitution = two_principles(tmp_path)
    with LabelStore(tmp_path / "labels.sqlite") as store:
        failing = ScriptedJudge(lambda r: Verdict(Outcome.ERROR if r.pair.id == "p0" else Outcome.REFUSED, detail="x"))
        label_pairs([candidate(0), candidate(1)], failing, constitution, store=store)
        healed = ScriptedJudge(lambda r: ok(0.7))
        labels = label_pairs([candidate(0), candidate(1)], healed, constitution, store=store)
        assert {r.pair.id for r in healed.asked} == {"p0"}
        assert [x.outcome for x in labels] == [Outcome.OK, Outcome.REFUSED]
        assert store.counts()[Outcome.ERROR] == 0


def test_pairs_of_equal_content_are_one_question(tmp_path: Path) -> None:
    twin = candidate(0)
    twins = [twin, type(twin)("other", twin.prompt, twin.first, twin.second, twin.origin)]
    judge = ScriptedJudge(lambda r: ok(0.6))
    labels = label_pairs(twins, judge, two_principles(tmp_path))
    assert len(judge.asked) == 2
    assert [label.pair_id for label in labels] == ["p0", "other"]


def test_batches_and_progress(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    judge = ScriptedJudge(lambda r: ok(0.6))
    label_pairs(
        [candidate(i) for i in range(5)],
        judge,
        two_principles(tmp_path),
        batch_size=4,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert judge.batches == [4, 4, 2]
    assert seen == [(0, 10), (4, 10), (8, 10), (10, 10)]


def test_a_judge_that_skips_a_request_is_refused(tmp_path: Path) -> None:
    judge = ScriptedJudge(lambda r: ok(0.6))
    judge.judge = lambda requests: [ok(0.6)]  # type: ignore[method-assign]
    with pytest.raises(TrimtabError, match="1 verdicts for 2 requests"):
        label_pairs([candidate(0)], judge, two_principles(tmp_path))


@pytest.mark.parametrize(
    ("outcome", "p"),
    [(Outcome.OK, None), (Outcome.OK, math.nan), (Outcome.OK, 1.5), (Outcome.TIE, 0.6), (Outcome.ERROR, 0.5)],
)
def test_a_verdict_that_is_no_verdict_is_refused(outcome: Outcome, p: float | None) -> None:
    with pytest.raises(TrimtabError):
        Verdict(outcome, p)


def test_pair_hash_is_of_the_content() -> None:
    base = candidate(0)
    assert pair_hash(base) == pair_hash(type(base)("other", base.prompt, base.first, base.second, {"redraws": 3}))
    different = [
        base,
        candidate(1),
        candidate(0, "no", "yes"),
        candidate(0, "yes", "maybe"),
        candidate(0, principle="warm"),
        candidate(0, principle="warm", first="reading"),
    ]
    assert len({pair_hash(p) for p in different}) == len(different)


def test_package_exports() -> None:
    import trimtab.labeling as room

    assert room.label_pairs is label_pairs
    assert room.Label is Label
    assert room.LabelStore is LabelStore
