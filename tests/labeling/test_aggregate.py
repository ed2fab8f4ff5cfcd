"""Several judges, wordings, principles and votes: what becomes of them in one label."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeling_fakes import ScriptedJudge, candidate, two_principles, votes
from trimtab.constitution import Constitution, Principle
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.aggregate import Vote, aggregate
from trimtab.labeling.budget import Budget
from trimtab.labeling.labels import label_pairs, summarise
from trimtab.labeling.protocol import JudgeIdentity, JudgeRequest, Order, Outcome, Verdict
from trimtab.labeling.questions import questions_about

F, R = Order.FORWARD, Order.REVERSED
FAILED = Verdict(Outcome.UNPARSED)


def ok(p: float) -> Verdict:
    return Verdict(Outcome.OK, p)


def identity(name: str) -> JudgeIdentity:
    return JudgeIdentity(name)


def test_judges_count_alike_however_often_each_was_asked() -> None:
    cast = votes({(F, 0): ok(1.0), (F, 1): ok(1.0), (R, 0): ok(1.0)}, "busy") + votes({(F, 0): ok(0.2)}, "lazy")
    label = aggregate("p", cast)
    assert label.p_first == pytest.approx((1.0 + 0.2) / 2, abs=1e-15)
    assert label.order_gap == pytest.approx(0.0, abs=1e-15)


def test_each_principle_keeps_its_score_and_weighs_what_it_weighs() -> None:
    cast = votes({(F, 0): ok(0.9), (R, 0): ok(0.7)}, principle="warm") + votes({(F, 0): ok(0.1), (R, 0): ok(0.3)},
                 principle="short")  # fmt: skip
    label = aggregate("p", cast, weights={"warm": 3.0, "short": 1.0})
    assert dict(label.principles) == pytest.approx({"warm": 0.8, "short": 0.2}, abs=1e-15)
    assert label.p_first == pytest.approx((3 * 0.8 + 0.2) / 4, abs=1e-15)
    assert label.order_gap == pytest.approx((3 * 0.2 - 0.2) / 4, abs=1e-15)


def test_drawn_principles_count_as_often_as_they_were_drawn() -> None:
    cast = [Vote(identity("j"), name, F, sample, ok(p)) for sample, (name, p) in
            enumerate([("warm", 0.9), ("warm", 0.9), ("short", 0.3)])]  # fmt: skip
    assert aggregate("p", cast).p_first == pytest.approx((0.9 + 0.9 + 0.3) / 3, abs=1e-15)


def test_a_lost_vote_is_not_a_lost_label_but_a_lost_order_is() -> None:
    one_lost = votes({(F, 0): ok(0.9), (F, 1): FAILED, (R, 0): ok(0.7), (R, 1): ok(0.5)})
    assert aggregate("p", one_lost).p_first == pytest.approx((0.9 + 0.6) / 2, abs=1e-15)
    order_lost = votes({(F, 0): FAILED, (F, 1): FAILED, (R, 0): ok(0.7), (R, 1): ok(0.5)})
    assert aggregate("p", order_lost).outcome is Outcome.UNPARSED


@pytest.mark.parametrize(
    ("answered", "judges", "usable"), [(1, 3, False), (2, 3, True), (3, 3, True), (1, 2, False), (2, 4, False)]
)
def test_most_judges_must_have_answered(answered: int, judges: int, usable: bool) -> None:
    cast = [Vote(identity(f"j{i}"), None, F, 0, ok(0.8) if i < answered else FAILED) for i in range(judges)]
    label = aggregate("p", cast)
    assert label.usable is usable
    assert label.p_first == (pytest.approx(0.8) if usable else None)


def test_a_principle_that_nobody_scored_is_missed() -> None:
    cast = [Vote(identity("j"), name, F, 0, v) for name, v in (("a", ok(0.9)), ("b", ok(0.9)), ("c", FAILED))]
    label = aggregate("p", cast, weights={"a": 1.0, "b": 1.0, "c": 1.0})
    assert label.outcome is Outcome.UNPARSED
    assert label.p_first is None


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("jk"), st.sampled_from("xy"), st.sampled_from([F, R])),
        st.floats(0, 1),
        min_size=8,
        max_size=8,
    ),
    st.floats(0.1, 9),
)
def test_the_mean_agrees_with_a_slow_one(p: dict[tuple[str, str, Order], float], weight: float) -> None:
    cast = [Vote(identity(j), x, order, 0, ok(value)) for (j, x, order), value in p.items()]
    found = aggregate("p", cast, weights={"x": weight, "y": 1.0})
    by_principle = {x: sum(v for (_, q, _), v in p.items() if q == x) / 4 for x in "xy"}
    expected = (weight * by_principle["x"] + by_principle["y"]) / (weight + 1)
    assert found.p_first == pytest.approx(expected, abs=1e-12)


# what is asked


def test_the_modes_ask_about_all_at_once_about_each_and_about_one(tmp_path: Path) -> None:
    constitution, judge = two_principles(tmp_path), ScriptedJudge(lambda r: ok(0.6))
    pairs = [candidate(i) for i in range(400)]

    def asked(mode: str, samples: int = 1) -> list[list[JudgeRequest]]:
        found = questions_about(pairs, [judge], constitution, principles=mode, samples=samples)  # type: ignore[arg-type]
        return [[q.request for q in mine] for mine in found]

    assert {(r.principle, r.constitution) for mine in asked("all") for r in mine} == {(None, constitution)}
    each = asked("each")[0]
    assert [(r.principle, r.order) for r in each] == [("warm", F), ("warm", R), ("short", F), ("short", R)]
    assert [p.id for p in each[0].constitution.principles] == ["warm"]
    assert len(asked("each", samples=2)[0]) == 8
    drawn = asked("sampled", samples=2)
    assert asked("sampled", samples=2) == drawn  # a resumed run draws the same
    assert all(len({r.principle for r in mine if r.sample == s}) == 1 for mine in drawn for s in (0, 1))
    assert any(mine[0].principle != mine[-1].principle for mine in drawn)
    share = Counter(r.principle for mine in drawn for r in mine)["warm"] / (4 * 400)
    assert share == pytest.approx(0.75, abs=4 * math.sqrt(0.75 * 0.25 / 800))
    other = questions_about(pairs, [judge], constitution, principles="sampled", seed=1)
    assert [m[0].request.principle for m in other] != [m[0].principle for m in asked("sampled")]


def test_another_weight_is_no_other_question_about_one_principle() -> None:
    judge = ScriptedJudge(lambda r: ok(0.6))

    def keys(weight: float) -> set[object]:
        constitution = Constitution("c", (Principle("a", "Be a.", weight), Principle("b", "Be b.")))
        found = questions_about([candidate(0)], [judge], constitution, principles="each")
        return {q.key for mine in found for q in mine}

    assert keys(1.0) == keys(5.0)


def test_a_panel_is_asked_question_by_question_and_the_label_carries_all(tmp_path: Path) -> None:
    judges = [
        ScriptedJudge(lambda r, i=i: ok(0.2 * i + (0.1 if r.principle == "warm" else 0.0)), identity=identity(f"j{i}"))
        for i in range(3)
    ]
    constitution = two_principles(tmp_path)
    labels = label_pairs([candidate(i) for i in range(5)], judges, constitution, principles="each", batch_size=4)
    assert [len(judge.asked) for judge in judges] == [20, 20, 20]
    assert dict(labels[0].principles) == pytest.approx({"warm": 0.3, "short": 0.2}, abs=1e-12)
    assert labels[0].p_first == pytest.approx((3 * 0.3 + 0.2) / 4, abs=1e-12)
    assert labels[0].constitution == constitution.hash
    assert len(labels[0].votes) == 12
    assert summarise(labels).verdicts == 60


def test_one_judge_twice_is_asked_once(tmp_path: Path) -> None:
    judge = ScriptedJudge(lambda r: ok(0.6))
    label_pairs([candidate(0)], [judge, judge], two_principles(tmp_path))
    assert len(judge.asked) == 2


def test_a_budget_leaves_whole_labels_of_a_panel_behind(tmp_path: Path) -> None:
    judges = [ScriptedJudge(lambda r: ok(0.6), identity=identity(f"j{i}")) for i in range(2)]
    budget = Budget(max_calls=200)
    with pytest.raises(TrimtabError, match="200 of 800") as caught:
        label_pairs([candidate(i) for i in range(200)], judges, two_principles(tmp_path), batch_size=2, budget=budget)
    assert caught.value.kind is ErrorKind.INTERRUPTED
    pairs = [{r.pair.id for r in judge.asked} for judge in judges]
    assert len(pairs[0] & pairs[1]) >= 0.8 * len(pairs[0] | pairs[1])


# Dawid and Skene


def test_dawid_skene_sees_through_a_judge_that_names_a_position(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    truth = rng.random(300) < 0.5
    good = [rng.random((300, 2)) < rate for rate in (0.85, 0.8)]

    def answer(name: str) -> ScriptedJudge:
        def vote(request: JudgeRequest) -> Verdict:
            i, column = int(request.pair.id[1:]), int(request.order is R)
            if name == "first":
                return ok(0.99 if request.order is F else 0.01)
            right = bool(good[int(name)][i, column])
            return ok(0.9 if right == bool(truth[i]) else 0.1)

        return ScriptedJudge(vote, identity=identity(name))

    pairs, constitution = [candidate(i) for i in range(300)], two_principles(tmp_path)
    judges = [answer(name) for name in ("0", "1", "first")]
    plain = label_pairs(pairs, judges, constitution)
    weighed = label_pairs(pairs, judges, constitution, aggregation="dawid-skene")

    def right(labels: object) -> float:
        return float(np.mean([(label.p_first > 0.5) == t for label, t in zip(labels, truth, strict=True)]))  # type: ignore[call-overload]

    assert right(weighed) >= right(plain)
    assert right(weighed) > 0.88
    log_loss = [
        -np.mean(
            [math.log(max(label.p_first if t else 1 - label.p_first, 1e-9)) for label, t in zip(x, truth, strict=True)]
        )
        for x in (weighed, plain)
    ]
    assert log_loss[0] < log_loss[1]
    # order gaps and votes are as they were
    assert [x.order_gap for x in weighed] == [x.order_gap for x in plain]


def test_dawid_skene_needs_three_votes_a_question(tmp_path: Path) -> None:
    judge = ScriptedJudge(lambda r: ok(0.6))
    with pytest.raises(TrimtabError, match="only 2 on a question") as caught:
        label_pairs([candidate(0)], judge, two_principles(tmp_path), aggregation="dawid-skene")
    assert caught.value.kind is ErrorKind.CONFIG
    with pytest.raises(TrimtabError, match="only 2 on a question"):
        label_pairs([candidate(0)], judge, two_principles(tmp_path), aggregation="dawid-skene", principles="each")
    assert judge.asked == []


def test_dawid_skene_by_principle_and_with_labels_that_failed(tmp_path: Path) -> None:
    def vote(request: JudgeRequest) -> Verdict:
        if request.pair.id == "p0":
            return Verdict(Outcome.ERROR)
        if request.pair.id == "p1":
            return Verdict(Outcome.TIE, 0.5)
        return ok(0.9 if request.principle == "warm" else 0.2)

    judges = [ScriptedJudge(vote, identity=identity(f"j{i}")) for i in range(2)]
    pairs = [candidate(i) for i in range(30)]
    labels = label_pairs(pairs, judges, two_principles(tmp_path), aggregation="dawid-skene", principles="each")
    assert (labels[0].outcome, labels[0].p_first) == (Outcome.ERROR, None)
    assert (labels[1].outcome, labels[1].p_first) == (Outcome.TIE, 0.5)
    assert labels[2].principles["warm"] > 0.95
    assert labels[2].principles["short"] < 0.05
    expected = (3 * labels[2].principles["warm"] + labels[2].principles["short"]) / 4
    assert labels[2].p_first == pytest.approx(expected, abs=1e-12)
