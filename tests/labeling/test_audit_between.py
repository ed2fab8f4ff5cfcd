"""Agreement between judges, and the canary."""

from __future__ import annotations

import numpy as np
import pytest

from labeling.verdict_draws import draw_records, draw_table
from labeling_fakes import ScriptedJudge, candidate, two_principles
from trimtab.errors import TrimtabError
from trimtab.labeling.audit import CheckStatus, audit, canary, with_canary
from trimtab.labeling.audit.between import vote_matrix
from trimtab.labeling.audit.null_responses import NULL_RESPONSES, null_pairs
from trimtab.labeling.protocol import Order, Outcome, Verdict
from trimtab.labeling.store import LabelStore
from trimtab.labeling.verdicts import VerdictTable
from trimtab.stats.agreement import cohen_kappa


def test_a_judges_vote_is_its_majority():
    rows = [
        ("p", "a", 1),
        ("p", "a", 1),
        ("p", "a", 2),
        ("p", "b", 1),
        ("p", "b", 2),
        ("q", "a", None),
        ("q", "b", None),
    ]
    rows += [("q", "b", 2), ("r", "b", "tie"), ("r", "b", 2)]
    table = VerdictTable.from_records([{"pair_id": p, "judge": j, "winner": w} for p, j, w in rows])
    assert vote_matrix(table).tolist() == [[1, 0], [-1, 2], [-1, 2]]


def test_two_judges_by_hand():
    pairs = [(1, 1)] * 20 + [(1, 2)] * 5 + [(2, 1)] * 10 + [(2, 2)] * 15 + [(1, None)] * 7
    rows = [
        {"pair_id": f"p{i}", "judge": judge, "winner": winner}
        for i, both in enumerate(pairs)
        for judge, winner in zip("ab", both, strict=True)
    ]
    found = audit(VerdictTable.from_records(rows), resamples=200).agreement
    (pair,) = found.pairwise
    assert (pair.first, pair.second, pair.n) == ("a", "b", 50)
    assert pair.raw.value == pytest.approx(0.7)
    assert pair.kappa.value == pytest.approx(0.4)
    assert pair.kappa.low < 0.4 < pair.kappa.high
    assert found.fleiss.n == 50
    assert found.reliability == {}


def test_more_judges_have_reliabilities_without_references():
    rng = np.random.default_rng(0)
    truth = rng.integers(1, 3, 600)
    rows = [
        {"pair_id": f"p{i}", "judge": name, "winner": int(t if rng.random() < accuracy else 3 - t)}
        for i, t in enumerate(truth)
        for name, accuracy in (("good", 0.9), ("fair", 0.8), ("weak", 0.65))
    ]
    found = audit(VerdictTable.from_records(rows), resamples=50).agreement
    assert found.reliability == pytest.approx({"good": 0.9, "fair": 0.8, "weak": 0.65}, abs=0.07)
    votes = vote_matrix(VerdictTable.from_records(rows))
    assert found.pairwise[0].kappa.value == pytest.approx(cohen_kappa(votes[:, 0], votes[:, 1]))


def test_judges_without_common_pairs_and_single_judges():
    records = [{"pair_id": p, "judge": j, "winner": 1} for p, j in (("p", "a"), ("q", "b"))]
    found = audit(VerdictTable.from_records(records), resamples=20).agreement
    assert found.pairwise == ()
    assert found.fleiss.value is None
    assert "no two judges" in found.note
    assert audit(draw_table(0, 5), resamples=20).agreement is None


# the canary


def reads(request):
    """Prefers whatever is longer."""
    first, second = (len(r.text) for r in (request.pair.first, request.pair.second))
    return Verdict(Outcome.OK, 0.9 if first > second else 0.1)


def test_every_null_meets_a_real_response_in_both_orders(tmp_path):
    judge = ScriptedJudge(reads)
    pairs = [candidate(i, f"a real response {i}", f"another one of them {i}" * 3) for i in range(4)]
    check = canary(judge, two_principles(tmp_path), pairs)
    asked = {(r.pair.first.text, r.pair.second.text, r.order) for r in judge.asked}
    assert len(asked) == len(judge.asked) == 4 * 3 * 2
    assert {first for first, _, _ in asked} == set(NULL_RESPONSES)
    # in turn the first and the second response of the pair
    assert {second for _, second, _ in asked} == {(p.first, p.second)[i % 2].text for i, p in enumerate(pairs)}
    assert {order for _, _, order in asked} == set(Order)
    # the last null response is longer than a short real one
    assert [n["wins"] for n in check.details["nulls"]] == [0, 0, 0.5]
    assert check.n == 24


@pytest.mark.parametrize(
    ("answer", "status", "wins"),
    [
        (lambda r: Verdict(Outcome.OK, 0.1), CheckStatus.OK, 0.0),
        (lambda r: Verdict(Outcome.OK, 0.9), CheckStatus.POOR, 1.0),
        (lambda r: Verdict.of_shown(0.9, r.order), CheckStatus.POOR, 0.5),
        (lambda r: Verdict(Outcome.TIE, 0.5), CheckStatus.OK, 0.0),
        (lambda r: Verdict(Outcome.UNPARSED), CheckStatus.OK, 0.0),
    ],
)
def test_a_judge_that_does_not_read_lets_nulls_win(tmp_path, answer, status, wins):
    pairs = [candidate(i, f"a real response {i}", "other") for i in range(60)]
    check = canary(ScriptedJudge(answer), two_principles(tmp_path), pairs)
    assert check.effect == pytest.approx(wins)
    assert check.status is status
    few = canary(ScriptedJudge(answer), two_principles(tmp_path), pairs[:5])
    assert few.status is not CheckStatus.OK


def test_failures_and_ties_stay_in_the_denominator(tmp_path):
    def answer(request):
        if request.order is Order.FORWARD:
            return Verdict(Outcome.OK, 0.9)
        return Verdict(Outcome.REFUSED) if request.pair.first.text else Verdict(Outcome.TIE, 0.5)

    check = canary(ScriptedJudge(answer), two_principles(tmp_path), [candidate(1, "real"), candidate(2, "y", "real 2")])
    assert check.effect == pytest.approx(0.5)
    assert check.details["failed"] == pytest.approx(2 / 6)
    assert check.details["ties"] == pytest.approx(1 / 6)


def test_recorded_canaries_are_not_asked_again(tmp_path):
    judge, pairs = ScriptedJudge(reads), [candidate(i, f"a real response {i}") for i in range(3)]
    constitution = two_principles(tmp_path)
    with LabelStore(tmp_path / "labels.sqlite") as store:
        first = canary(judge, constitution, pairs, store=store)
        calls = len(judge.asked)
        assert canary(judge, constitution, pairs, store=store) == first
    assert len(judge.asked) == calls


def test_pairs_without_a_real_response_are_left_out():
    assert null_pairs([candidate(1, "", "  ")]) == []
    made = null_pairs([candidate(1, "yes"), candidate(2, "no", "real")])
    assert [p.second.text for p in made] == ["yes"] * 3 + ["real"] * 3
    assert made[0].id == "canary/0/p1"


def test_a_canary_needs_responses(tmp_path):
    with pytest.raises(TrimtabError, match="real responses"):
        canary(ScriptedJudge(reads), two_principles(tmp_path), [])


def test_the_answer_takes_its_place_in_the_audit(tmp_path):
    records = draw_records(np.random.default_rng(0), 10, judge="scripted")
    found = audit(VerdictTable.from_records(records), resamples=20)
    check = canary(ScriptedJudge(reads), two_principles(tmp_path), [candidate(1, "a real one")])
    joined = with_canary(found, "scripted", check)
    assert joined.judges["scripted"].checks["null-response"] is check
    assert list(joined.judges["scripted"].checks) == list(found.judges["scripted"].checks)
    with pytest.raises(TrimtabError, match="no verdicts of judge 'x'"):
        with_canary(found, "x", check)
