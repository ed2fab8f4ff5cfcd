"""Rewards from scores and KL."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trimtab.core.rewards import (
    clip_outliers,
    clip_scores,
    penalise,
    sequence_rewards,
    token_rewards,
    transform_scores,
    win_probability,
)
from trimtab.errors import TrimtabError

NAN = math.nan
SCORES = torch.tensor([2.0, -1.0, 5.0])
KL = torch.tensor([[0.1, 0.2, NAN], [0.5, NAN, NAN], [NAN, NAN, NAN]])
MASK = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])


@st.composite
def scored_responses(draw):
    """Scores [B], KL [B, T] and a right-padded mask, some rows of it empty."""
    rows, width = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    lengths = draw(st.lists(st.integers(0, width), min_size=rows, max_size=rows))
    mask = torch.arange(width) < torch.tensor(lengths).unsqueeze(1)
    mask[0, 0] = True
    scores = torch.from_numpy(draw(arrays(np.float32, rows, elements=st.floats(-5, 5, width=32))))
    kl = torch.from_numpy(draw(arrays(np.float32, (rows, width), elements=st.floats(-2, 2, width=32))))
    return scores, kl, mask, draw(st.floats(0, 2))


def test_token_rewards_by_hand() -> None:
    # row 0: -.5 * .1 = -.05; 2 - .5 * .2 = 1.9.  row 1: -1 - .5 * .5 = -1.25.  row 2 has no token to carry its score
    expected = torch.tensor([[-0.05, 1.9, 0.0], [-1.25, 0.0, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(token_rewards(SCORES, KL, MASK, 0.5), expected, rtol=0, atol=2e-7)


def test_sequence_rewards_by_hand() -> None:
    # sum: 2 - .5 * .3 = 1.85; mean: 2 - .5 * .15 = 1.925; both on the last token alone
    by_sum = torch.tensor([[0.0, 1.85, 0.0], [-1.25, 0.0, 0.0], [0.0, 0.0, 0.0]])
    by_mean = torch.tensor([[0.0, 1.925, 0.0], [-1.25, 0.0, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(sequence_rewards(SCORES, KL, MASK, 0.5), by_sum, rtol=0, atol=2e-7)
    torch.testing.assert_close(sequence_rewards(SCORES, KL, MASK, 0.5, reduce="mean"), by_mean, rtol=0, atol=2e-7)


@given(scored_responses())
def test_rewards_equal_a_slow_derivation(batch) -> None:
    scores, kl, mask, beta = batch
    by_token = token_rewards(scores, kl, mask, beta)
    by_sequence = {how: sequence_rewards(scores, kl, mask, beta, reduce=how) for how in ("sum", "mean")}
    for i in range(len(scores)):
        length = int(mask[i].sum())
        penalties = [beta * float(v) for v in kl[i, :length]]
        for t in range(mask.shape[1]):
            last = length > 0 and t == length - 1
            token = (float(scores[i]) if last else 0.0) - (penalties[t] if t < length else 0.0)
            assert by_token[i, t].item() == pytest.approx(token, abs=1e-6)
            total = float(scores[i]) - math.fsum(penalties) if last else 0.0
            assert by_sequence["sum"][i, t].item() == pytest.approx(total, abs=3e-6)
            average = float(scores[i]) - math.fsum(penalties) / length if last else 0.0
            assert by_sequence["mean"][i, t].item() == pytest.approx(average, abs=3e-6)


@given(scored_responses())
def test_a_response_earns_the_same_in_both_forms(batch) -> None:
    scores, kl, mask, beta = batch
    by_token, by_sequence = token_rewards(scores, kl, mask, beta), sequence_rewards(scores, kl, mask, beta)
    torch.testing.assert_close(by_token.sum(1), by_sequence.sum(1), rtol=0, atol=1e-5)


@given(scored_responses())
def test_padding_has_no_influence(batch) -> None:
    scores, kl, mask, beta = batch
    wide_mask = torch.nn.functional.pad(mask, (0, 2), value=False)
    wide_kl = torch.nn.functional.pad(torch.where(mask, kl, NAN), (0, 2), value=math.inf)
    for function in (token_rewards, sequence_rewards):
        wide = function(scores, wide_kl, wide_mask, beta)
        torch.testing.assert_close(wide[:, :-2], function(scores, kl, mask, beta), rtol=0, atol=1e-6)
        assert (wide[~wide_mask] == 0).all()


@given(scored_responses())
def test_more_kl_never_pays(batch) -> None:
    scores, kl, mask, _ = batch
    for function in (token_rewards, sequence_rewards):
        assert (function(scores, kl + 1, mask, 0.5).sum(1) <= function(scores, kl, mask, 0.5).sum(1)).all()


def test_an_empty_batch_of_responses_is_an_error() -> None:
    for function in (token_rewards, sequence_rewards):
        with pytest.raises(TrimtabError, match="nothing to average"):
            function(SCORES, KL, torch.zeros_like(MASK), 0.5)
    with pytest.raises(TrimtabError, match="median"):
        sequence_rewards(SCORES, KL, MASK, 0.5, reduce="median")


def test_nan_in_padding_stays_out_of_the_gradient() -> None:
    for function in (token_rewards, sequence_rewards, lambda *a: sequence_rewards(*a, reduce="mean")):
        scores, kl = SCORES.clone().requires_grad_(), KL.clone().requires_grad_()
        function(scores, kl, MASK, 0.5).sum().backward()
        assert scores.grad is not None
        assert scores.grad.tolist() == [1.0, 1.0, 0.0]
        assert kl.grad is not None
        assert kl.grad.isfinite().all()


def test_penalties_by_hand() -> None:
    # 2 - .1 * 4; -1 - .1 * 10 - 3; 5 - .1 * 1
    scores = penalise(SCORES, torch.tensor([4, 10, 1]), torch.tensor([True, False, True]), 0.1, 3.0)
    torch.testing.assert_close(scores, torch.tensor([1.6, -5.0, 4.9]), rtol=0, atol=5e-7)
    assert torch.equal(penalise(SCORES, torch.tensor([4, 10, 1]), torch.tensor([True, False, True])), SCORES)


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 99), st.booleans()), min_size=1),
    st.floats(0, 1),
    st.floats(0, 9),
)
def test_penalties_equal_a_slow_derivation_and_never_pay(rows, per_token, per_cut) -> None:
    scores, lengths, finished = (list(column) for column in zip(*rows, strict=True))
    result = penalise(torch.tensor(scores), torch.tensor(lengths), torch.tensor(finished), per_token, per_cut)
    for score, length, done, value in zip(scores, lengths, finished, result.tolist(), strict=True):
        expected = score - per_token * length - (0 if done else per_cut)
        assert value == pytest.approx(expected, rel=1e-6, abs=2e-6)
        assert value <= score + 1e-6


def test_transforms_by_hand() -> None:
    # tanh(1) = .761594; 1 / (1 + e^-1) = .731059; ln 2 = .693147; and the same of -1
    scores = torch.tensor([1.0, -1.0, 0.0])
    for name, expected in (
        ("none", (1.0, -1.0, 0.0)),
        ("tanh", (0.761594, -0.761594, 0.0)),
        ("sigmoid", (0.731059, 0.268941, 0.5)),
        ("log", (0.693147, -0.693147, 0.0)),
    ):
        torch.testing.assert_close(transform_scores(scores, name), torch.tensor(expected), rtol=0, atol=6e-7)
    with pytest.raises(TrimtabError, match="cube"):
        transform_scores(scores, "cube")


SLOW_TRANSFORMS = {
    "none": lambda s: s,
    "tanh": lambda s: (math.exp(2 * s) - 1) / (math.exp(2 * s) + 1),
    "sigmoid": lambda s: math.exp(s) / (1 + math.exp(s)),
    "log": lambda s: math.copysign(math.log(1 + abs(s)), s),
}


@given(st.lists(st.floats(-30, 30, width=32), min_size=2), st.sampled_from(sorted(SLOW_TRANSFORMS)))
def test_transforms_equal_a_slow_derivation_and_keep_the_order(scores, name) -> None:
    result = transform_scores(torch.tensor(sorted(scores)), name)
    for score, value in zip(sorted(scores), result.tolist(), strict=True):
        assert value == pytest.approx(SLOW_TRANSFORMS[name](score), rel=2e-6, abs=1e-7)
    assert (result.diff() >= 0).all()


def test_win_probability_by_hand() -> None:
    # (sigmoid(1) + sigmoid(-1)) / 2 = 1/2;  (sigmoid(0) + sigmoid(2)) / 2 = (.5 + .880797) / 2 = .690399
    result = win_probability(torch.tensor([1.0, 2.0]), torch.tensor([[0.0, 2.0], [2.0, 0.0]]))
    torch.testing.assert_close(result, torch.tensor([0.5, 0.690399]), rtol=0, atol=6e-7)
    with pytest.raises(TrimtabError, match="no reference"):
        win_probability(torch.zeros(2), torch.zeros(2, 0))


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=5), st.floats(-9, 9), st.floats(-50, 50))
def test_win_probability_equals_a_slow_derivation_and_ignores_a_shift(references, score, shift) -> None:
    expected = math.fsum(1 / (1 + math.exp(r - score)) for r in references) / len(references)
    assert win_probability(torch.tensor([score]), torch.tensor([references])).item() == pytest.approx(
        expected, abs=1e-6
    )
    moved = win_probability(torch.tensor([score + shift]), torch.tensor([references]) + shift)
    assert moved.item() == pytest.approx(expected, abs=3e-6)
    # whoever loses to a reference with p beats it, seen from the other side, with 1 - p
    other = win_probability(torch.tensor(references), torch.full((len(references), 1), score))
    assert 1 - other.mean().item() == pytest.approx(expected, abs=1e-6)


def test_clip_by_hand() -> None:
    assert clip_scores(SCORES, 1.5).tolist() == [1.5, -1.0, 1.5]
    assert clip_scores(-SCORES, 1.5).tolist() == [-1.5, 1.0, -1.5]
    assert torch.equal(clip_scores(SCORES, None), SCORES)
    with pytest.raises(TrimtabError, match="score_clip = 0"):
        clip_scores(SCORES, 0)


def test_half_precision_is_computed_in_float32() -> None:
    # 300.1 is no float16; 256 + 1 is no bfloat16
    scores = torch.tensor([256.0], dtype=torch.bfloat16)
    kl = torch.tensor([[-1.0]], dtype=torch.bfloat16)
    assert token_rewards(scores, kl, torch.tensor([[True]]), 1.0).tolist() == [[257.0]]
    assert sequence_rewards(scores, kl, torch.tensor([[True]]), 1.0).tolist() == [[257.0]]
    assert penalise(scores, torch.tensor([1]), torch.tensor([True]), -1.0).tolist() == [257.0]
    for result in (transform_scores(scores, "none"), clip_scores(scores, None), win_probability(scores, scores[None])):
        assert result.dtype == torch.float32


def test_outliers_by_hand() -> None:
    # median 3, absolute deviations 2 1 0 1 97: median 1; 1.4826 * 2 = 2.9652
    scores, share = clip_outliers(torch.tensor([1.0, 2.0, 3.0, 4.0, 100.0]), 2.0)
    torch.testing.assert_close(scores, torch.tensor([1.0, 2.0, 3.0, 4.0, 5.9652]))
    assert share == pytest.approx(0.2)
    even, _ = clip_outliers(torch.tensor([0.0, 1.0, 2.0, 3.0]), 0.5)  # median 1.5, deviation 1.4826
    torch.testing.assert_close(even, torch.tensor([0.7587, 1.0, 2.0, 2.2413]))


def test_outliers_of_equal_scores_are_left_alone() -> None:
    scores = torch.tensor([2.0, 2.0, 2.0, 2.0, 9.0])
    same, share = clip_outliers(scores, 3.0)
    assert torch.equal(same, scores)
    assert share == 0.0
    with pytest.raises(TrimtabError, match="score_outlier_sds"):
        clip_outliers(scores, 0.0)


@given(
    arrays(np.float32, st.integers(1, 30), elements=st.floats(-1e4, 1e4, width=32)),
    st.floats(0.5, 10),
)
def test_outliers_keep_order_and_stay_within_reach(values, sds) -> None:
    scores = torch.from_numpy(values)
    clipped, share = clip_outliers(scores, sds)
    wide = values.astype(np.float64)
    middle = np.median(wide)
    reach = sds * 1.4826 * np.median(np.abs(wide - middle))
    expected = wide if reach == 0 else np.clip(wide, middle - reach, middle + reach)
    np.testing.assert_allclose(clipped.numpy(), expected, rtol=1e-5, atol=1e-2)
    order = torch.from_numpy(np.argsort(values, kind="stable"))
    assert bool((clipped[order].diff() >= 0).all())
    assert 0 <= share <= 1
