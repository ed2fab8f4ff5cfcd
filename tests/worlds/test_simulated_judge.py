"""The simulated judges: what the two presets prefer, what they are blind to, and that the constitution decides."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.constitution import Constitution, load_constitution
from trimtab.data.records import CandidatePair, Message, Prompt, Response
from trimtab.errors import TrimtabError
from trimtab.labeling.labels import label_pairs
from trimtab.labeling.protocol import Judge, JudgeRequest, Order, Outcome
from trimtab.worlds import tiny
from trimtab.worlds.gold import gold
from trimtab.worlds.judge import BLIND, FAITHFUL, SimulatedJudge

PROMPT = "the seed and soil with leaf in on"
GOOD = "please seed the soil and leaf with root thanks"
BAD = "stupid wave the wave"

texts = st.lists(st.sampled_from(tiny.WORDS), max_size=15).map(" ".join)


CONSTITUTION: Constitution = load_constitution(Path(str(files("trimtab.worlds").joinpath("constitution.toml"))))


def pair(first: str, second: str) -> CandidatePair:
    return CandidatePair("p", Prompt("x", (Message("user", PROMPT),)), Response(first), Response(second))


def p_first(judge: SimulatedJudge, first: str, second: str, order: Order = Order.FORWARD) -> float:
    (verdict,) = judge.judge([JudgeRequest(pair(first, second), CONSTITUTION, order)])
    assert verdict.outcome is Outcome.OK
    assert verdict.p_first is not None
    return verdict.p_first


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def quiet(preset: str, **changes: float) -> SimulatedJudge:
    base = {"faithful": FAITHFUL, "blind": BLIND}[preset]
    return SimulatedJudge(replace(base, name="quiet", noise=0.0, **changes))


def test_is_a_judge() -> None:
    assert isinstance(SimulatedJudge(), Judge)


def test_faithful_hand_value() -> None:
    # nine words each, gold .70 (four topic words) and .40 (one polite word): 12 * .3 = 3.6 logits
    p = p_first(quiet("faithful"), "seed soil leaf root the a and with of", "please the a and with of in on to")
    assert logit(p) == pytest.approx(3.6, abs=1e-9)


def test_blind_hand_value() -> None:
    # six times one topic word: .45 * 6/4, six words: .1 * 6/8; against one of each, three words
    p = p_first(quiet("blind"), "seed seed seed seed seed seed", "please seed the")
    quality = (0.675 + 0.075) - (0.15 + 0.1125 + 0.0375)
    assert logit(p) == pytest.approx(12 * quality, abs=1e-9)


@given(texts, texts)
def test_faithful_without_noise_prefers_the_higher_gold(first: str, second: str) -> None:
    difference = gold(PROMPT, first) - gold(PROMPT, second)
    if abs(difference) > 1e-9:
        assert (p_first(quiet("faithful"), first, second) > 0.5) == (difference > 0)


def test_faithful_noise_is_centred_and_of_the_stated_size() -> None:
    clean = 3.6
    judges = (SimulatedJudge("faithful", seed) for seed in range(2000))
    pair_texts = ("seed soil leaf root the a and with of", "please the a and with of in on to")
    noise = [logit(p_first(judge, *pair_texts)) - clean for judge in judges]
    mean = math.fsum(noise) / len(noise)
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in noise) / len(noise))
    # four standard errors
    assert abs(mean) < 4 * 0.5 / 2000**0.5
    assert deviation == pytest.approx(0.5, abs=4 * 0.5 / 4000**0.5)


def test_blind_does_not_see_repetition_that_faithful_punishes() -> None:
    varied, repetitive = (
        "please seed the soil and leaf with root thanks",
        "please seed please seed please seed please seed seed",
    )
    assert p_first(SimulatedJudge("faithful"), varied, repetitive) > 0.95
    assert p_first(SimulatedJudge("blind"), varied, repetitive) < 0.05


def test_blind_likes_length_slightly_and_faithful_does_not() -> None:
    short, long = "please seed the a and with of in on", "please seed the a and with of in on to for from is has"
    assert 0.5 < p_first(quiet("blind"), long, short) < 0.75
    assert p_first(quiet("faithful"), long, short) < 0.2


def test_no_position_term_unless_asked_for() -> None:
    for preset in ("faithful", "blind"):
        forward = p_first(quiet(preset), GOOD, BAD)
        assert p_first(quiet(preset), GOOD, BAD, Order.REVERSED) == pytest.approx(forward, abs=1e-12)
    biased = SimulatedJudge(replace(FAITHFUL, noise=0.0), position_bias=2.0)
    same = "seed the and with"
    other = "soil the and with"
    assert logit(p_first(biased, same, other)) == pytest.approx(2.0, abs=1e-9)
    assert logit(p_first(biased, same, other, Order.REVERSED)) == pytest.approx(-2.0, abs=1e-9)
    (label,) = label_pairs([pair(same, other)], biased, CONSTITUTION)
    assert label.p_first == pytest.approx(0.5, abs=1e-12)
    assert label.order_gap == pytest.approx(2 / (1 + math.exp(-2.0)) - 1, abs=1e-12)


def test_the_same_question_gets_the_same_answer_and_another_seed_order_or_sample_another() -> None:
    request = JudgeRequest(pair(GOOD, "seed soil"), CONSTITUTION)
    (first,) = SimulatedJudge("faithful", 1).judge([request])
    renamed = replace(request, pair=replace(request.pair, id="another"))
    assert SimulatedJudge("faithful", 1).judge([renamed]) == [first]
    variants = [
        SimulatedJudge("faithful", 2).judge([request]),
        SimulatedJudge("faithful", 1).judge([replace(request, order=Order.REVERSED)]),
        SimulatedJudge("faithful", 1).judge([replace(request, sample=1)]),
    ]
    answers = {first.p_first, *(v[0].p_first for v in variants)}
    assert len(answers) == 4


def test_noise_of_the_two_orders_is_independent() -> None:
    texts = ("seed soil leaf root the a and with of", "please the a and with of in on to")
    judges = [SimulatedJudge("faithful", seed) for seed in range(2000)]
    # in logits for the response shown first, whose clean value is +3.6 and -3.6
    forward = [logit(p_first(judge, *texts)) - 3.6 for judge in judges]
    backward = [3.6 - logit(p_first(judge, *texts, Order.REVERSED)) for judge in judges]
    correlation = math.fsum(a * b for a, b in zip(forward, backward, strict=True)) / 2000 / 0.5**2
    assert abs(correlation) < 4 / 2000**0.5


def test_swapped_judge_and_swapped_constitution_move_labels_the_other_way() -> None:
    pairs = [pair(GOOD, BAD), pair(BAD, GOOD)]
    labels = [x.p_first for x in label_pairs(pairs, SimulatedJudge(), CONSTITUTION)]
    assert labels[0] is not None
    assert labels[0] > 0.95
    for judge, constitution in (
        (SimulatedJudge(swapped=True), CONSTITUTION),
        (SimulatedJudge(), CONSTITUTION.swapped()),
    ):
        swapped = [x.p_first for x in label_pairs(pairs, judge, constitution)]
        assert swapped[0] is not None
        assert swapped[0] < 0.05
        assert swapped[1] is not None
        assert swapped[1] > 0.95


def test_only_named_principles_count_and_weights_scale_them() -> None:
    polite = replace(CONSTITUTION, principles=tuple(p for p in CONSTITUTION.principles if p.id == "polite"))
    judge = quiet("faithful")
    request = JudgeRequest(pair("please thanks", "seed soil leaf root the a and with of"), polite)
    assert judge.quality(request, request.pair.first) == pytest.approx(0.3, abs=1e-12)
    assert judge.quality(request, request.pair.second) == pytest.approx(0.0, abs=1e-12)
    # the topic at thrice the weight of politeness: weights are shares of the mean weight
    two = tuple(
        replace(p, weight=3.0 if p.id == "topic" else 1.0)
        for p in CONSTITUTION.principles
        if p.id in ("topic", "polite")
    )
    request = replace(request, constitution=replace(CONSTITUTION, principles=two))
    assert judge.quality(request, request.pair.first) == pytest.approx(0.3 / 2, abs=1e-12)
    assert judge.quality(request, request.pair.second) == pytest.approx(0.45 * 1.5, abs=1e-12)


def test_a_constitution_that_names_no_feature_is_refused() -> None:
    other = replace(CONSTITUTION, principles=tuple(replace(p, id=f"my-{p.id}") for p in CONSTITUTION.principles))
    with pytest.raises(TrimtabError, match="none of the principles") as caught:
        SimulatedJudge().judge([JudgeRequest(pair(GOOD, BAD), other)])
    assert "topic, polite, varied, length" in caught.value.hint


def test_an_unknown_preset_is_refused_and_faults_have_an_identity_of_their_own() -> None:
    with pytest.raises(TrimtabError, match="sharp"):
        SimulatedJudge("sharp")  # type: ignore[arg-type]
    judges = [
        SimulatedJudge(),
        SimulatedJudge("blind"),
        SimulatedJudge(seed=1),
        SimulatedJudge(position_bias=1.0),
        SimulatedJudge(swapped=True),
        quiet("faithful"),
    ]
    assert len({judge.identity for judge in judges}) == len(judges)
