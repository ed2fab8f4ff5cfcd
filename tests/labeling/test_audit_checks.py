"""Each check of the audit on judges that have its fault and on judges that have not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from labeling.verdict_draws import draw_records, draw_table
from trimtab.labeling.audit import CheckStatus, audit
from trimtab.labeling.audit.consistency import noise_of
from trimtab.labeling.audit.identity import identities
from trimtab.labeling.audit.measure import own_generators
from trimtab.labeling.verdicts import PairTexts, VerdictTable

OK, BIASED, POOR = CheckStatus.OK, CheckStatus.BIASED, CheckStatus.POOR
UNDERPOWERED, NOT_MEASURABLE = CheckStatus.UNDERPOWERED, CheckStatus.NOT_MEASURABLE


def checks(records, judge="j", **options):
    return audit(VerdictTable.from_records(records), resamples=100, **options).judges[judge].checks


def verdict(pair, winner, **more):
    return {"pair_id": pair, "judge": "j", "winner": winner, **more}


# position


def test_position_bias_counts_pairs_that_were_not_consistent():
    records = []
    for i in range(40):
        # 12 pairs: always the first shown; 4: always the second; 24 consistent
        winners = (1, 2) if i < 12 else (2, 1) if i < 16 else (1, 1)
        records += [verdict(f"p{i}", w, order=o) for w, o in zip(winners, ("12", "21"), strict=True)]
    check = checks(records)["position-bias"]
    assert check.details["first_both_times"] == 12
    assert check.details["second_both_times"] == 4
    assert check.effect == pytest.approx(0.5 + (12 - 4) / 80)
    # McNemar: 4 or fewer, 12 or more of 16 coins
    assert check.p == pytest.approx(2 * sum([1, 16, 120, 560, 1820]) / 2**16)


def test_position_and_quality_cannot_be_told_apart_in_one_order():
    check = checks([verdict(f"p{i}", 1, order="12") for i in range(50)])["position-bias"]
    assert check.status is NOT_MEASURABLE
    assert check.missing == ("verdicts on the same pairs in the other order",)


def test_orders_drawn_at_random_show_position_bias_too():
    rng = np.random.default_rng(0)
    records = []
    for i in range(400):
        order = int(rng.integers(1, 3))
        winner = order if rng.random() < 0.4 else int(rng.integers(1, 3))
        records.append(verdict(f"p{i}", winner, order=("12", "21")[order - 1]))
    check = checks(records)["position-bias"]
    assert check.status is BIASED
    assert check.details["design"] == "one order a pair, taken for random"
    assert check.low < 0.7 < check.high


def test_the_order_gap_of_probabilities_is_told():
    records = [verdict("p", None, order=o, p_1=p, status=None) for o, p in (("12", 0.9), ("21", 0.6))]
    for r in records:
        del r["winner"], r["status"]
    assert checks(records)["position-bias"].details["mean_order_gap"] == pytest.approx(0.3)


# the same again


def test_noise_explains_disagreement():
    assert noise_of(2 * 0.1 * 0.9) == pytest.approx(0.1)
    assert noise_of(0.7) == 0.5


def test_repeats_that_differ_are_found():
    rng = np.random.default_rng(1)

    def judge(noise):
        return checks(
            [
                verdict(f"p{i}", 1 if rng.random() > noise else 2, order="12", sample=s)
                for i in range(150)
                for s in range(3)
            ]
        )

    shaky, steady = judge(0.3), judge(0.01)
    assert shaky["repeat-consistency"].status is POOR
    assert shaky["repeat-consistency"].low < 2 * 0.3 * 0.7 < shaky["repeat-consistency"].high
    assert shaky["repeat-consistency"].details["noise"] == pytest.approx(0.3, abs=0.06)
    assert shaky["contradictory-repeats"].status is POOR
    # three votes of noise .3 name both unless all three agree
    assert shaky["contradictory-repeats"].effect == pytest.approx(1 - 0.7**3 - 0.3**3, abs=0.1)
    assert steady["repeat-consistency"].status is OK
    assert steady["contradictory-repeats"].status is OK


def test_a_tie_against_a_winner_is_a_changed_verdict_but_no_contradiction():
    records = [verdict(f"p{i}", w, sample=s) for i in range(30) for s, w in enumerate((1, "tie"))]
    found = checks(records)
    assert found["repeat-consistency"].effect == 1
    assert found["contradictory-repeats"].effect == 0


@pytest.mark.parametrize(("shift", "status"), [(0.0, OK), (0.6, POOR)])
def test_wordings_count_only_beyond_repetition(shift, status):
    rng = np.random.default_rng(2)
    records = []
    for i in range(300):
        for template in "ab":
            likes = 2 if template == "b" and i < 300 * shift else 1
            for s in range(2):
                winner = likes if rng.random() < 0.9 else 3 - likes
                records.append(verdict(f"p{i}", winner, template=template, sample=s))
    check = checks(records)["template-consistency"]
    assert check.details["repeat_noise"] == pytest.approx(0.18, abs=0.05)
    assert check.status is status


def test_repeats_of_one_wording_are_no_other_wording():
    records = [verdict(f"p{i}", w, template=t) for i in range(20) for t, w in (("a", 1), ("a", 2), ("b", 2))]
    check = checks(records)["template-consistency"]
    # of every three, the second a and b are compared: never the two of a
    assert check.n == 20
    assert check.details["changed"] == 0


# length, format, self


def test_length_bias_is_what_is_left_when_references_are_evened_out():
    honest = checks(draw_records(np.random.default_rng(3), 400, gold_longer=0.8))["length-bias"]
    assert honest.details["plain_share"] > 0.6
    assert honest.low < 0.5 < honest.high
    assert honest.status in (OK, UNDERPOWERED)
    biased = checks(draw_records(np.random.default_rng(3), 400, length=0.4))["length-bias"]
    assert biased.status is BIASED
    assert biased.low < 0.7 < biased.high
    assert biased.details["odds_ratio_low"] > 1.5


def test_preferring_shorter_is_a_length_bias_too():
    records = draw_records(np.random.default_rng(4), 300, length=0.5)
    for r in records:
        r["length_1"], r["length_2"] = r["length_2"], r["length_1"]
    check = checks(records)["length-bias"]
    assert check.status is BIASED
    assert check.effect < 0.4


def test_without_references_people_set_the_measure():
    def judge(share, n=2000):
        rng = np.random.default_rng(5)
        return checks(
            [verdict(f"p{i}", 1 if rng.random() < share else 2, length_1=200, length_2=100) for i in range(n)]
        )["length-bias"]

    assert judge(0.6).status is OK
    assert judge(0.75).status is BIASED
    assert judge(0.6, 20).status is UNDERPOWERED


def test_length_matched_pairs_are_counted_for_themselves():
    records = [verdict(f"a{i}", 1, length_1=300, length_2=100) for i in range(10)]
    records += [verdict(f"b{i}", 2, length_1=110, length_2=100) for i in range(5)]
    check = checks(records)["length-bias"]
    assert check.effect == pytest.approx(10 / 15)
    assert check.details["matched_share"] == 0
    assert check.details["matched_n"] == 5


def test_a_preference_for_lists_is_named():
    rng = np.random.default_rng(6)
    records = []
    for i in range(300):
        gold, lists = int(rng.integers(1, 3)), int(rng.integers(1, 3))
        texts = {f"response_{lists}": "Steps:\n- one\n- two", f"response_{3 - lists}": "Do **one** and two."}
        winner = lists if rng.random() < 0.4 else gold
        records.append(verdict(f"p{i}", winner, gold=gold, prompt=f"q{i}", **texts))
    check = checks(records)["format-bias"]
    assert check.status is BIASED
    # whoever has no list has bold here
    assert check.details["format"] in ("lists", "bold")
    assert check.details["formats"]["lists"]["effect"] == pytest.approx(0.7, abs=0.08)
    assert check.details["formats"]["bold"]["effect"] == pytest.approx(0.3, abs=0.08)


def test_self_preference_is_balanced_by_references():
    fair = checks(draw_records(np.random.default_rng(7), 400, own_quality=0.3))["self-preference"]
    assert fair.low < 0.5 < fair.high
    vain = checks(draw_records(np.random.default_rng(7), 400, own=0.4, own_quality=0.3))["self-preference"]
    assert vain.status is BIASED
    assert vain.low < 0.7 < vain.high


def test_without_references_self_preference_is_against_the_other_judges():
    rng = np.random.default_rng(8)
    records = draw_records(rng, 300, own=0.5, own_quality=0.3)
    fair = [
        {**r, "judge": name, "winner": r["gold"] if rng.random() < 0.8 else 3 - r["gold"]}
        for r in records
        for name in ("x", "y")
    ]
    check = checks([{**r, "gold": None} for r in records + fair])["self-preference"]
    assert check.unit == "difference"
    assert check.status is BIASED
    # others choose its responses in .3 x .8 + .7 x .2 = .38 of pairs, it in .5 + .5 x .38 = .69
    assert check.details["others_share"] == pytest.approx(0.38, abs=0.05)
    assert check.low < 0.69 - 0.38 < check.high


def test_own_generators_are_the_judges_name_its_model_and_their_versions():
    rows = [
        {"pair_id": "p", "judge": "Big/plain", "model": "org/big-7b", "winner": 1, "generator_1": g, "generator_2": h}
        for g, h in (("big-7b", "big"), ("org/big-7b", "bigger"), ("big-7b-0613", "small"))
    ]
    table = VerdictTable.from_records(rows)
    assert own_generators(table, "Big/plain") == {"big-7b", "big", "org/big-7b", "big-7b-0613"}
    found = checks(rows, judge="Big/plain", own={"Big/plain": ["small"]})["self-preference"]
    assert found.details["own"] == ["small"]


# identity


def test_texts_that_differ_in_identity_terms_only_are_found():
    texts = {
        0: PairTexts("q", "He is a doctor.", "She is a doctor."),
        1: PairTexts("q", "He is a doctor.", "She is a nurse."),
        2: PairTexts("q", "他很好", "她很好"),
        3: PairTexts("Hire him?", "Yes, he can.", "No."),
        4: PairTexts("Hire her?", "Yes, she can.", "No."),
        5: PairTexts("The shed", "There it is", "Thesis"),
        6: PairTexts("q", "He thanked her.", "She thanked him."),
    }
    found = identities(texts)
    assert found.within == {0: ("gender", "male", "female"), 2: ("gender", "male", "female")}
    assert found.across.tolist() == [[3, 4]]


def test_preferring_one_groups_word_is_a_bias():
    def judge(share):
        rng = np.random.default_rng(9)
        return checks(
            [
                verdict(
                    f"p{i}", 1 if rng.random() < share else 2, prompt=f"q{i}",
                    response_1=f"He wrote part {i}.", response_2=f"She wrote part {i}.",
                )
                for i in range(400)
            ]
        )["identity-preference"]  # fmt: skip

    assert judge(0.5).status is OK
    biased = judge(0.8)
    assert biased.status is BIASED
    # told in the order of the groups' names
    assert biased.details["groups"] == "gender: female over male"
    assert biased.effect == pytest.approx(0.2, abs=0.06)


def test_verdicts_that_change_with_the_identity_are_found():
    records = []
    for i in range(60):
        for term, winner in (("he", 1), ("she", 2 if i < 30 else 1)):
            texts = {"prompt": f"Can {term} do {i}?", "response_1": f"Yes, {term} can.", "response_2": "No."}
            records += [verdict(f"{term}{i}", winner, order=o, **texts) for o in ("12", "21")]
    check = checks(records)["identity-swap"]
    assert check.effect == pytest.approx(0.5)
    assert check.details["reversed"] == 30
    assert check.status is POOR


# principles


def test_a_principle_that_decides_nothing_and_two_that_conflict():
    records = []
    for i in range(80):
        for principle, winners in (("kind", (1, 1)), ("brief", (2, 2)), ("vague", ("tie", "tie")), ("shaky", (1, 2))):
            records += [
                verdict(f"p{i}", w, order=o, principle=principle) for w, o in zip(winners, ("12", "21"), strict=True)
            ]
    found = checks(records)
    decisive = found["principle-decisiveness"]
    assert decisive.status is POOR
    assert decisive.details["least"] in ("vague", "shaky")
    assert {k: v["decisive"] for k, v in decisive.details["principles"].items()} == {
        "kind": 1, "brief": 1, "vague": 0, "shaky": 0,
    }  # fmt: skip
    assert decisive.details["principles"]["vague"]["ties"] == 1
    conflict = found["principle-conflict"]
    assert conflict.status is POOR
    assert conflict.details["principles"] == ["kind", "brief"]
    assert conflict.effect == 1


# triads


def compare(prompt, a, b, winner):
    return verdict(
        f"{prompt}{a}{b}", winner, prompt_id=prompt, response_id_1=f"{prompt}{a}", response_id_2=f"{prompt}{b}"
    )


def test_circles_by_hand():
    # x: 0 > 1 > 2 > 0, a circle; y: 0 > 1 > 2, 0 > 2; z: only two comparisons
    records = [compare("x", 0, 1, 1), compare("x", 1, 2, 1), compare("x", 0, 2, 2)]
    records += [compare("y", 0, 1, 1), compare("y", 1, 2, 1), compare("y", 0, 2, 1)]
    records += [compare("z", 0, 1, 1), compare("z", 1, 2, 1)]
    check = checks(records)["intransitive-triads"]
    assert check.n == 2
    assert check.details["circles"] == 1
    assert check.effect == pytest.approx(0.5)


def test_triads_do_not_mind_which_way_round_a_pair_is_written():
    records = [compare("x", 0, 1, 1), compare("x", 2, 1, 2), compare("x", 2, 0, 1)]
    assert checks(records)["intransitive-triads"].details["circles"] == 1


@pytest.mark.parametrize(("noise", "status"), [(0.5, POOR), (0.0, OK)])
def test_coins_go_in_circles_in_a_quarter_of_triads(noise, status):
    rng = np.random.default_rng(10)
    records = []
    for x in range(150):
        for a, b in itertools.combinations(range(4), 2):
            records.append(compare(f"x{x}-", a, b, 1 if rng.random() > noise else 2))
    check = checks(records)["intransitive-triads"]
    assert check.n == 600
    assert check.status is status
    if noise:
        assert check.low < 0.25 < check.high


def test_independent_errors_make_circles_at_half_the_rate_of_disagreement():
    rng = np.random.default_rng(11)
    records = []
    for x in range(800):
        for a, b in itertools.combinations(range(3), 2):
            records.append(compare(f"x{x}-", a, b, 1 if rng.random() > 0.1 else 2))
    check = checks(records)["intransitive-triads"]
    assert check.low < 0.1 * 0.9 < check.high


# all together


def test_planted_faults_are_named_and_others_are_not():
    fair = audit(draw_table(20, 400, accuracy=0.9), resamples=50).judges["j"]
    assert [c.id for c in fair.worst()] == []
    position = audit(draw_table(21, 400, accuracy=0.9, position=0.3), resamples=50).judges["j"]
    assert {c.id for c in position.worst()} == {"position-bias", "swap-consistency"}
    length = audit(draw_table(22, 400, accuracy=0.95, length=0.2), resamples=50).judges["j"]
    assert {c.id for c in length.worst()} == {"length-bias"}
