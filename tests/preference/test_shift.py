"""References, reports of shift and the accuracy to expect: what is stored, what is told, and what is not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from preference_training import CONFIG, base, polite_pairs
from trimtab import ppo, preference
from trimtab.config.schema import PPOConfig
from trimtab.data.records import Prompt, Response
from trimtab.errors import TrimtabError
from trimtab.models.tokens import TextCodec
from trimtab.preference.ensemble import load_preference
from trimtab.preference.model import Observed
from trimtab.preference.shift import shift, verdict_of
from trimtab.preference.shift_accuracy import expected_accuracy
from trimtab.preference.shift_reference import MOST_ROWS, REFERENCE_FILE, Reference, bins_for, reference_of
from trimtab.runs.files import read_json, write_json
from trimtab.scoring import MixtureScorer, RuleScorer, signals
from trimtab.stats.intervals import Interval
from trimtab.stats.shift import expected_psi, fit_gaussian, psi
from trimtab.training.precision import Precision
from trimtab.worlds.model import build_tokenizer
from trimtab.worlds.tiny import RUDE

DIMENSIONS = 6


def made(pairs: int = 200, seed: int = 0, *, unseen: float = 0.5, skill: float = 1.0) -> Reference:
    """A reference of normal states; a pair near the middle is ordered right more often than one far out."""
    rng = np.random.default_rng(seed)
    radius = np.repeat(rng.uniform(0.5, 2.5, pairs), 2)
    states = rng.normal(size=(2 * pairs, DIMENSIONS)) * radius[:, None]
    right = rng.random(pairs) < 1 / (1 + np.exp(-skill * (2.5 - 1.5 * radius[::2])))
    scores = np.column_stack([np.where(right, 1.0, 0.0), np.where(right, 0.0, 1.0)]).ravel()
    scores += 0.01 * rng.normal(size=2 * pairs)
    words = rng.poisson(8, 2 * pairs).astype(float)
    held = np.arange(pairs) >= round((1 - unseen) * pairs)
    return Reference(states, scores, words, np.zeros(2 * pairs), np.arange(pairs) // 2, held, np.ones(pairs))


class Stub:
    """A preference model whose states are what a test says."""

    combination, scale = "", 1.0

    def __init__(self, states: np.ndarray, scores: np.ndarray | None = None) -> None:
        self.states = states
        self.scores = np.zeros(len(states)) if scores is None else scores

    def token_ids(self, prompt: Prompt, response: Response) -> list[int]:
        if len(response.text) > 500:
            raise TrimtabError("data", "too long", "")  # type: ignore[arg-type]
        return [1]

    def observe(self, prompts, responses) -> Observed:
        return Observed(self.states, self.scores, np.zeros(len(self.states)))


def told(reference: Reference, states: np.ndarray, scores: np.ndarray | None = None, each: int = 2):
    prompts = [Prompt(f"x{i // each}", polite_pairs(1)[0].prompt.messages) for i in range(len(states))]
    prompts = [replace(p, messages=(replace(p.messages[0], content=p.id),)) for p in prompts]
    stub = Stub(states, scores)
    return shift(stub, reference, prompts, [Response("a b c d e f g h")] * len(states), relabelings=100)  # type: ignore[arg-type]


def like(reference: Reference, n: int, seed: int, factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    drawn = made(n // 2, seed)
    return drawn.states * factor, drawn.scores


# verdicts


def test_responses_of_the_same_kind_are_not_shifted():
    found = [told(made(seed=s), *like(made(), 120, 50 + s)) for s in range(10)]
    assert sum(f.verdict == "same" for f in found) >= 9
    assert all(f.verdict in ("same", "moved") for f in found)
    assert abs(np.mean([f.distance.mean for f in found]) - 0.5) < 0.05
    assert np.mean([f.outside.mean for f in found]) < 0.03
    assert sum(f.domain.mean > f.domain_floor for f in found) <= 2


def test_responses_far_out_are_shifted_and_say_nothing_of_accuracy():
    found = told(made(), *like(made(), 120, 50, factor=5))
    assert (found.verdict, found.status) == ("shifted", "sick")
    assert found.distance.low > 0.75
    assert "beyond the distances" in found.expected.why_not


def test_responses_in_the_midst_but_apart_have_moved():
    reference = made()
    rng = np.random.default_rng(1)
    states = 0.3 * rng.normal(size=(120, DIMENSIONS)) + np.r_[0.8, np.zeros(DIMENSIONS - 1)]
    found = told(reference, states, rng.normal(size=120))
    assert found.domain.low > 0.7
    assert found.distance.mean < 0.5
    assert (found.verdict, found.status) == ("moved", "healthy")


def test_scores_alone_decide_nothing():
    states, scores = like(made(), 120, 50)
    found = told(made(), states, scores + 3)
    assert found.scores is not None
    assert found.scores.moved
    assert found.scores.beyond == 1
    assert found.verdict == "moved"


@pytest.mark.parametrize(
    ("figures", "verdict"),
    [
        ({}, "same"),
        ({"outside": (0.06, 0.026, 0.1)}, "shifted"),
        ({"outside": (0.06, 0.02, 0.1)}, "same"),
        ({"outside": (0.04, 0.03, 0.05)}, "same"),
        ({"distance": (0.8, 0.76, 0.84)}, "shifted"),
        ({"distance": (0.8, 0.74, 0.86)}, "same"),
        ({"domain": (0.8, 0.71, 0.9)}, "moved"),
        ({"domain": (0.8, 0.69, 0.9)}, "same"),
        ({"by_distance": (-0.06, -0.1, -0.01)}, "shifted"),
        ({"by_distance": (-0.06, -0.1, 0.01)}, "same"),
        ({"by_distance": (-0.04, -0.05, -0.01)}, "same"),
    ],
)
def test_each_bound_by_itself(figures, verdict):
    quiet = told(made(), *like(made(), 40, 51))
    plain = {"outside": (0.01, 0.0, 0.02), "distance": (0.5, 0.45, 0.55), "domain": (0.5, 0.4, 0.6)}
    given = {key: Interval(*value, 40) for key, value in (plain | figures).items() if key != "by_distance"}
    nothing = Interval(0.0, -0.01, 0.01, 40)
    change = Interval(*figures["by_distance"], 40) if "by_distance" in figures else nothing
    own = replace(quiet, **given, scores=None, expected=replace(quiet.expected, by_distance=change))
    assert verdict_of(own) == verdict


@pytest.mark.parametrize(("n", "each"), [(10, 1), (100, 20)])
def test_few_responses_or_few_prompts_tell_nothing(n, each):
    found = told(made(), *like(made(), n, 50, factor=5), each=each)
    assert (found.verdict, found.status) == ("cannot tell", "inconclusive")


def test_what_the_model_cannot_read_is_left_out_and_counted():
    states, _ = like(made(), 40, 50)
    prompts = [polite_pairs(41)[i].prompt for i in range(41)]
    responses = [Response("fine")] * 40 + [Response("x" * 501)]
    found = shift(Stub(states), made(), prompts, responses, relabelings=20)  # type: ignore[arg-type]
    assert (found.responses, found.unread) == (40, 1)
    with pytest.raises(TrimtabError, match="none of 1 responses"):
        shift(Stub(states), made(), prompts[:1], responses[-1:])  # type: ignore[arg-type]
    with pytest.raises(TrimtabError, match="no responses"):
        shift(Stub(states), made(), [], [])  # type: ignore[arg-type]


def test_states_of_another_width_are_refused():
    with pytest.raises(TrimtabError, match="states of 6 numbers, the model's have 3"):
        told(made(), np.zeros((40, 3)))


# accuracy to expect


def expected(reference: Reference, states: np.ndarray, scores: np.ndarray, each: int = 2):
    seen = Observed(states, scores, np.zeros(len(states)))
    return expected_accuracy(reference, seen, np.arange(len(states)) // each, True)


def test_accuracy_falls_with_the_distance_as_it_does_on_held_out_pairs():
    rng = np.random.default_rng(3)
    reference = made(1000)
    for radius, low, high in ((0.6, 0.75, 0.9), (2.0, 0.33, 0.5)):
        states = radius * rng.normal(size=(400, DIMENSIONS))
        found = expected(reference, states, np.tile([0.0, 1.0], 200))
        truth = 1 / (1 + math.exp(-(2.5 - 1.5 * radius)))
        assert low < truth < high
        assert found.by == "distance and gap"
        assert abs(found.accuracy.mean - truth) < 0.08
        assert found.accuracy.low - 0.03 < truth < found.accuracy.high + 0.03
        assert found.loses(0.05) == (radius == 2.0)


def test_pairs_that_are_close_lower_the_accuracy_but_not_by_distance():
    rng = np.random.default_rng(4)
    pairs = 600
    gap = rng.exponential(1, pairs) * rng.choice([-1, 1], pairs)
    right = rng.random(pairs) < 1 / (1 + np.exp(-2 * np.abs(gap)))
    scores = np.column_stack([np.where(right, np.abs(gap), 0), np.where(right, 0, np.abs(gap))]).ravel()
    plain = made(pairs, unseen=0.5)
    states = rng.normal(size=(2 * pairs, DIMENSIONS))
    reference = replace(plain, states=states, scores=scores)
    found = expected(reference, rng.normal(size=(200, DIMENSIONS)), 0.1 * rng.normal(size=200))
    assert found.by == "distance and gap"
    assert found.accuracy.mean < 0.6
    assert found.change.high < 0
    assert abs(found.by_distance.mean) < 0.03
    assert not found.loses(0.05)


def test_a_label_below_one_half_turns_what_is_right():
    reference = made(400)
    turned = replace(reference, scores=-reference.scores, labels=np.zeros(400))
    states = np.random.default_rng(5).normal(size=(100, DIMENSIONS))
    scores = np.tile([0.0, 1.0], 50)
    one, other = expected(reference, states, scores), expected(turned, states, scores)
    assert 0.5 < one.accuracy.mean < 1
    assert list(one.accuracy) == pytest.approx(list(other.accuracy))
    assert list(one.reference) == pytest.approx(list(other.reference))


def test_without_held_out_pairs_or_with_few_nothing_is_told():
    states = np.random.default_rng(5).normal(size=(100, DIMENSIONS))
    assert "no held-out pairs" in expected(made(unseen=0.0), states, np.zeros(100)).why_not
    few = expected(made(60), states, np.zeros(100))
    assert "too few" in few.why_not
    assert math.isnan(few.accuracy.mean)
    assert not few.loses(0.0)


# what is stored


@pytest.fixture(scope="module")
def trained():
    codec = TextCodec(build_tokenizer())
    pairs = polite_pairs(120)
    model = preference.train(CONFIG.model_copy(update={"epochs": 1}), base(1), codec, pairs, seed=2)
    parts = preference.split_by_prompt(pairs, CONFIG.validation_fraction, 2)
    return model, parts


def test_the_reference_holds_what_the_head_reads(trained):
    model, (training, held_out) = trained
    reference = reference_of(model, training, held_out)
    pairs = [*training, *held_out]
    prompts = [p.prompt for p in pairs for _ in range(2)]
    responses = [r for p in pairs for r in (p.chosen, p.rejected)]
    head = model.model.linear.weight.detach().double().numpy()[0]
    assert reference.states @ head == pytest.approx(reference.scores, abs=1e-5)
    assert reference.scores == pytest.approx(model.score(prompts, responses), abs=1e-6)
    assert reference.unseen.sum() == len(held_out)
    assert reference.labels.tolist() == pytest.approx([0.9] * 120)
    assert not model.watches
    assert model.read(prompts[:2], responses[:2]).states is None


def test_it_comes_back_from_disk_to_rounding_and_goes_with_the_weights(trained, tmp_path):
    model, (training, held_out) = trained
    reference = reference_of(model, training, held_out)
    model.reference = reference
    model.save(tmp_path)
    back = Reference.load(tmp_path)
    assert back is not None
    assert back.states == pytest.approx(reference.states, rel=2e-3, abs=1e-4)
    assert back.scores == pytest.approx(reference.scores, rel=1e-6)
    assert back.unseen.tolist() == reference.unseen.tolist()
    load_preference(tmp_path, Precision("float32", model.model.device))
    model.reference = None
    model.save(tmp_path)
    assert Reference.load(tmp_path) is None


def test_states_too_large_for_half_precision_are_kept(tmp_path):
    plain = made()
    big = replace(plain, states=plain.states * 1e6)
    big.save(tmp_path)
    back = Reference.load(tmp_path)
    assert back is not None
    assert back.states == pytest.approx(big.states, rel=2e-3, abs=1e4)


def test_the_sample_is_bounded_half_of_it_held_out(trained):
    model, _ = trained
    many = polite_pairs(700)
    reference = reference_of(model, many[:400], many[400:])
    assert len(reference.scores) == MOST_ROWS
    assert reference.unseen.sum() == MOST_ROWS // 4
    alone = reference_of(model, [], many[:600])
    assert len(alone.scores) == MOST_ROWS
    assert alone.usual.all()


@pytest.mark.parametrize("harm", ["text", "format", "tensor", "nan"])
def test_a_broken_reference_is_named(tmp_path, harm):
    reference = made(40)
    if harm == "nan":
        reference = replace(reference, scores=np.full(80, math.nan))
    if harm == "tensor":
        reference = replace(reference, words=np.zeros(3))
    reference.save(tmp_path)
    if harm == "text":
        (tmp_path / REFERENCE_FILE).write_text("hello")
    if harm == "format":
        facts = read_json(tmp_path / "reference.json")
        write_json(tmp_path / "reference.json", facts | {"format": 99})
    with pytest.raises(TrimtabError, match="is no reference of format 1") as raised:
        Reference.load(tmp_path)
    assert "--reference" in raised.value.hint


# signals


def test_signals_by_their_definitions():
    reference = made()
    states, scores = like(reference, 64, 7, factor=1.5)
    found = reference.signals(states, scores)
    seen, unseen = np.repeat(~reference.unseen, 2), np.repeat(reference.unseen, 2)
    fitted = fit_gaussian(reference.states[seen])
    usual, own = fitted.distances(reference.states[unseen]), fitted.distances(states)
    ranks = np.array([(usual < d).mean() for d in own])
    assert found["shift/distance"] == pytest.approx(ranks.mean(), abs=1e-9)
    assert found["shift/outside_fraction"] == pytest.approx((ranks > 0.99).mean())
    want = psi(reference.scores[unseen], scores, 10) - expected_psi(int(unseen.sum()), 64, 10)
    assert found["shift/score_psi"] == pytest.approx(want)
    assert "shift/score_psi" not in reference.signals(states, None)


def test_bins_hold_five_values_where_they_can():
    assert [bins_for(n) for n in (1, 10, 32, 50, 1000)] == [2, 2, 6, 10, 10]


def test_ppo_logs_them_from_the_pass_that_scores(trained, monkeypatch):
    model, (training, held_out) = trained
    model.watch(reference_of(model, training, held_out))
    passes = []
    read = type(model).read_ids
    monkeypatch.setattr(
        type(model), "read_ids", lambda self, rows, **k: passes.append(len(rows)) or read(self, rows, **k)
    )
    config = PPOConfig(iterations=2, batch_size=16, max_new_tokens=4, epochs=1, minibatches=1)
    codec = TextCodec(build_tokenizer())
    policy = base(1).fork(trainable=True)
    result = ppo.train(config, policy, codec, [p.prompt for p in training], model, seed=1)
    model.watch(None)
    assert passes == [16, 16]
    for row in result.history:
        assert 0 <= row["shift/distance"] <= 1
        assert {"shift/outside_fraction", "shift/score_psi"} <= row.keys()
    quiet = ppo.train(config, base(1).fork(trainable=True), codec, [p.prompt for p in training], model, seed=1)
    assert not any(key.startswith("shift/") for row in quiet.history for key in row)
    assert [row["score/mean"] for row in quiet.history] == [row["score/mean"] for row in result.history]


def test_in_a_mixture_the_preference_model_tells_and_scores_of_another_making_are_not_compared(trained):
    model, (training, held_out) = trained
    model.watch(reference_of(model, training, held_out))
    prompts, responses = [p.prompt for p in held_out], [p.chosen for p in held_out]
    mixture = MixtureScorer([(model, 0.5), (RuleScorer("rule:length"), 0.1)])
    found = signals(mixture, prompts, responses)
    assert found["shift/distance"] == signals(model, prompts, responses)["shift/distance"]
    assert {"score/preference", "score/rule:length"} <= found.keys()
    model.watch(replace(model.reference, combination="min of 3"))
    assert "shift/score_psi" not in signals(model, prompts, responses)
    model.watch(None)


def test_other_words_are_far_from_the_pairs(trained):
    model, (training, held_out) = trained
    reference = reference_of(model, training, held_out)
    prompts = [p.prompt for p in held_out]
    rng = np.random.default_rng(0)
    same = shift(model, reference, prompts, [p.chosen for p in held_out], relabelings=40)
    odd = [Response(" ".join(rng.choice(RUDE, 12))) for _ in prompts]
    other = shift(model, reference, prompts, odd, relabelings=100)
    assert same.distance.mean < 0.65
    assert other.verdict in ("moved", "shifted")
    assert other.domain.low > 0.7
    assert other.words is not None
    assert other.words.moved
