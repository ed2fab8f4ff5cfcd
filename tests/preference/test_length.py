"""What length has to do with a score: the fit, its figures, and a training that takes it out."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from preference_training import CONFIG, base, die_at, started
from trimtab import preference
from trimtab.config.schema import PreferenceConfig
from trimtab.data.records import Pair, Response
from trimtab.errors import TrimtabError
from trimtab.models.tokens import TextCodec
from trimtab.preference.length import LengthFit, fit_length, length_figures, log_length
from trimtab.training.precision import Precision
from trimtab.worlds.model import build_tokenizer
from trimtab.worlds.tiny import NEUTRAL, POLITE, RUDE, prompts

lengths = st.integers(0, 40)
rows = st.lists(
    st.tuples(st.integers(-40, 40).map(lambda x: x / 10), st.integers(-40, 40).map(lambda x: x / 10), lengths, lengths),
    min_size=1,
    max_size=12,
)


@pytest.fixture
def codec() -> TextCodec:
    return TextCodec(build_tokenizer())


# the fit


def test_the_slope_by_hand():
    # differences of log(1 + n): ln 2, -ln 2; of scores: 3, 1; slope (3 ln 2 - ln 2) / (2 ln2^2) = 1 / ln 2
    fit = fit_length([[3.0, 1.0]], [[0.0, 0.0]], [3, 1], [1, 3])
    assert fit.slopes == pytest.approx([1 / math.log(2)], abs=1e-12)
    assert fit.centre == pytest.approx((math.log(4) + math.log(2)) / 2, abs=1e-12)
    # what twice (1 + n) adds is then 1, and at the centre nothing is subtracted
    np.testing.assert_allclose(fit.apply([[5.0, 5.0]], [3, 1]), [[4.5, 5.5]])


@given(rows, st.integers(1, 3))
def test_after_the_fit_nothing_within_pairs_depends_on_length_and_the_mean_stays(found, heads):
    chosen, rejected, x, z = (np.array(column, dtype=float) for column in zip(*found, strict=True))
    assume((x != z).any())
    both = [np.stack([side * (k + 1) + k for k in range(heads)]) for side in (chosen, rejected)]
    fit = fit_length(*both, x, z)
    after = fit.apply(both[0], x), fit.apply(both[1], z)
    again = fit_length(*after, x, z)
    np.testing.assert_allclose(again.slopes, 0, atol=1e-9)
    np.testing.assert_allclose(np.concatenate(after, 1).mean(1), np.concatenate(both, 1).mean(1), atol=1e-9)
    # a slow fit of one head: the slope that leaves the least squares, by its normal equation
    longer = [math.log(1 + a) - math.log(1 + b) for a, b in zip(x, z, strict=True)]
    slow = math.fsum((a - b) * d for a, b, d in zip(chosen, rejected, longer, strict=True)) / math.fsum(
        d * d for d in longer
    )
    assert fit.slopes[0] == pytest.approx(slow, abs=1e-9)
    assert fit_length(both[1], both[0], z, x).slopes == pytest.approx(
        fit.slopes
    )  # who is called chosen does not matter


def test_a_fit_survives_its_card_and_a_broken_card_is_refused():
    fit = LengthFit((0.5, -0.25), 2.0)
    assert LengthFit.from_dict(json.loads(json.dumps(fit.as_dict()))) == fit
    for broken in (None, [], {"log_length_slopes": [1.0]}, fit.as_dict() | {"log_length_slopes": ["1"]},
                   fit.as_dict() | {"log_length_centre": math.inf}):  # fmt: skip
        with pytest.raises(ValueError, match="log_length_slopes and log_length_centre"):
            LengthFit.from_dict(broken)


def test_pairs_of_one_length_have_nothing_to_fit():
    with pytest.raises(TrimtabError, match="of one length"):
        fit_length([[1.0]], [[0.0]], [3], [3])


# the figures


def test_figures_by_hand():
    # four pairs of four prompts: same length right, longer right, longer wrong, shorter right
    margins, chosen, rejected = [1.0, 2.0, -1.0, 3.0], [4, 7, 7, 1], [4, 3, 3, 3]
    found = length_figures(margins, chosen, rejected, "abcd", resamples=200)
    ln2 = math.log(2)
    top, below = 2 * ln2 - ln2 - 3 * ln2, math.sqrt(15 * 3 * ln2**2)
    assert found.correlation.mean == pytest.approx(top / below, abs=1e-12)
    assert found.doubling.mean == pytest.approx(ln2 * top / (3 * ln2**2), abs=1e-12)
    means = {kind: (value.mean, value.n) for kind, value in found.accuracy.items()}
    assert means == {"all": (0.75, 4), "matched": (1, 1), "longer": (0.5, 2), "shorter": (1, 1)}
    assert found.before is None
    json.dumps(found.as_dict(), allow_nan=True)


@given(rows, st.integers(0, 5))
def test_figures_do_not_change_with_the_order_of_a_pair_and_say_what_changed(found, seed):
    a, b, x, z = (np.array(column, dtype=float) for column in zip(*found, strict=True))
    margins, before = a - b, a + b
    groups = [i % 3 for i in range(len(a))]
    figures = length_figures(margins, x, z, groups, before=before, resamples=20, seed=seed)
    other = length_figures(-margins, z, x, groups, resamples=20, seed=seed)
    assert other.correlation == pytest.approx(figures.correlation, nan_ok=True)
    assert -1 - 1e-9 <= figures.correlation.mean <= 1 + 1e-9
    assert figures.before is not None
    plain = length_figures(before, x, z, groups, resamples=20, seed=seed)
    assert {k: v.mean for k, v in figures.before.accuracy.items()} == {k: v.mean for k, v in plain.accuracy.items()}
    for kind, change in figures.change.items():
        now = figures.correlation.mean if kind == "correlation" else figures.accuracy[kind].mean
        was = plain.correlation.mean if kind == "correlation" else plain.accuracy[kind].mean
        assert change.mean == pytest.approx(now - was, abs=1e-12)
    assert figures.accuracy["all"].mean == pytest.approx(np.mean((np.sign(margins) + 1) / 2))


def test_the_matched_are_those_within_a_tenth():
    found = length_figures([1.0, 1.0, 1.0], [11, 12, 0], [10, 10, 0], "aab", resamples=2)
    assert {kind: value.n for kind, value in found.accuracy.items()} == {"all": 3, "matched": 2, "longer": 1}


# trainings


def long_winded(n: int, seed: int = 0) -> list[Pair]:
    """Politeness is worth something, and length more: labels of a judge that loves length."""
    rng = np.random.default_rng(seed)
    pairs = []
    for i, prompt in enumerate(prompts(n, 2)):
        sides = []
        for _ in range(2):
            filler = [str(w) for w in rng.choice(NEUTRAL, int(rng.integers(2, 12)))]
            tone = bool(rng.integers(2))
            filler.insert(int(rng.integers(len(filler))), str(rng.choice(POLITE if tone else RUDE)))
            sides.append((Response(" ".join(filler)), 1.5 * tone + 0.35 * len(filler)))
        first, second = sorted(sides, key=lambda side: -side[1])
        p = 1 / (1 + math.exp(second[1] - first[1]))
        pairs.append(Pair(f"l{i}", prompt, first[0], second[0], p_chosen=p))
    return pairs


LONGER = CONFIG.model_copy(update={"epochs": 6, "batch_size": 16, "validation_fraction": 0.4})


def within(model: preference.PreferenceModel, pairs: list[Pair]) -> float:
    of = [p.prompt for p in pairs]
    margins = model.score(of, [p.chosen for p in pairs]) - model.score(of, [p.rejected for p in pairs])
    tokens = [[len(getattr(p, side).text.split()) for p in pairs] for side in ("chosen", "rejected")]
    return length_figures(margins, *tokens, [p.prompt.messages for p in pairs], resamples=2).correlation.mean


@pytest.fixture(scope="module")
def trained() -> dict[str, preference.PreferenceModel]:
    codec, pairs = TextCodec(build_tokenizer()), long_winded(220)
    return {
        kind: preference.train(LONGER.model_copy(update={"length_debias": kind}), base(), codec, pairs, seed=3)
        for kind in ("none", "regress", "two-head")
    }


def test_debiased_scores_depend_less_on_length(trained):
    fresh = long_winded(200, seed=1)
    found = {kind: within(model, fresh) for kind, model in trained.items()}
    assert found["none"] > 0.5
    assert abs(found["regress"]) < 0.2
    assert abs(found["two-head"]) < found["none"] - 0.3


def test_the_regressed_score_is_the_plain_one_less_its_slope(trained):
    pairs = long_winded(30, seed=2)
    of, said = [p.prompt for p in pairs], [p.chosen for p in pairs]
    plain, regressed = trained["none"], trained["regress"]
    fit = regressed.length_fits[0]
    words = np.array([len(r.text.split()) for r in said])
    expected = plain.score(of, said) - fit.slopes[0] * (log_length(words) - fit.centre)
    np.testing.assert_allclose(regressed.score(of, said), expected, atol=1e-5)
    np.testing.assert_allclose(regressed.biased_score(of, said), plain.score(of, said), atol=1e-5)
    assert plain.biased_score(of, said) is None
    # on the pairs of its fit nothing is left
    _, held_out = preference.split_by_prompt(long_winded(220), LONGER.validation_fraction, 3)
    assert abs(within(regressed, held_out)) < 1e-6
    # which is no proof: figures of these pairs are of fits on other ones
    assert preference.length_metrics(regressed, held_out).correlation.mean == pytest.approx(0, abs=1e-6)
    figures = preference.length_metrics(regressed, held_out, cross_fit=True)
    assert 1e-3 < abs(figures.correlation.mean) < 0.3
    assert figures.before.correlation.mean == pytest.approx(within(plain, held_out), abs=1e-5)
    assert figures.change["correlation"].high < -0.3


def test_a_saved_model_takes_length_out_and_plain_transformers_leaves_it_in(trained, tmp_path):
    from transformers import AutoModelForSequenceClassification

    pairs = long_winded(12, seed=2)
    of, said = [p.prompt for p in pairs], [p.chosen for p in pairs]
    for kind, model in trained.items():
        model.save(tmp_path / kind)
        loaded = preference.load_preference(tmp_path / kind, Precision("float32", torch.device("cpu")))
        np.testing.assert_allclose(loaded.score(of, said), model.score(of, said), atol=1e-5)
        hf = AutoModelForSequenceClassification.from_pretrained(tmp_path / kind)
        assert hf.config.num_labels == 1
        with torch.no_grad():
            raw = [float(hf(torch.tensor([model.token_ids(p, r)])).logits[0, 0]) for p, r in zip(of, said, strict=True)]
        biased = model.biased_score(of, said)
        expected = biased if kind == "regress" else model.score(of, said)
        np.testing.assert_allclose(raw, expected, atol=1e-5)


def test_the_two_heads_apart_are_orthogonal_and_together_what_the_labels_say(trained):
    model = trained["two-head"]
    quality, length = model.model.linear.weight[0].detach(), model.length_heads[0]
    assert abs(float(torch.cosine_similarity(quality, length, dim=0))) < 0.1
    pairs = long_winded(200, seed=1)
    of = [p.prompt for p in pairs]
    both = model.biased_score(of, [p.chosen for p in pairs]) - model.biased_score(of, [p.rejected for p in pairs])
    alone = model.score(of, [p.chosen for p in pairs]) - model.score(of, [p.rejected for p in pairs])
    assert (both > 0).mean() > (alone > 0).mean() + 0.05
    assert (both > 0).mean() > 0.65


@pytest.mark.parametrize("kind", ["regress", "two-head"])
def test_members_are_debiased_each_and_survive_saving(codec, tmp_path, kind):
    pairs = long_winded(60)
    config = LONGER.model_copy(update={"length_debias": kind, "members": 2, "combine": "min", "epochs": 2})
    model = preference.train(config, base(1), codec, pairs, seed=3)
    of, said = [p.prompt for p in pairs], [p.chosen for p in pairs]
    model.save(tmp_path / "pm")
    loaded = preference.load_preference(
        tmp_path / "pm", Precision("float32", torch.device("cpu")), base(1), combine="min"
    )
    np.testing.assert_allclose(loaded.score(of, said), model.score(of, said), atol=1e-5)
    assert model.biased_score(of, said) is not None
    if kind == "regress":
        assert len({fit.slopes for fit in model.length_fits}) == 2
        np.testing.assert_allclose(model.member_scores(of * 2, said + [p.rejected for p in pairs]).mean(1), 0, atol=0.6)


def test_a_two_head_training_goes_on_after_a_kill_as_if_nothing_had_been(codec, tmp_path):
    config = LONGER.model_copy(update={"length_debias": "two-head", "checkpoint_every": 2, "epochs": 2})
    pairs = long_winded(60)
    whole, killed = started(tmp_path, "whole"), started(tmp_path, "killed")
    straight = preference.train(config, base(1), codec, pairs, run=whole, seed=1)
    die_at(killed, 4, lambda: preference.train(config, base(1), codec, pairs, run=killed, seed=1))
    resumed = preference.train(config, base(1), codec, pairs, run=killed, seed=1)
    # correlations are sums of few numbers, whose last bit depends on where they lie in memory
    for name, weight in straight.model.own_state().items():
        torch.testing.assert_close(resumed.model.own_state()[name], weight, rtol=0, atol=1e-5)
    torch.testing.assert_close(straight.length_heads[0], resumed.length_heads[0], rtol=0, atol=1e-5)
    assert {"length/score_correlation", "length/head_correlation"} <= set(killed.metrics("pm")[-1])


def test_a_broken_card_of_a_model_is_named(trained, tmp_path):
    trained["regress"].save(tmp_path / "pm")
    card = tmp_path / "pm" / "trimtab.json"
    known = json.loads(card.read_text())
    card.write_text(json.dumps(known | {"length_debias": {"log_length_slopes": [1.0, 2.0], "log_length_centre": 1.0}}))
    with pytest.raises(TrimtabError, match="2 log_length_slopes for 1 heads"):
        preference.load_preference(tmp_path / "pm", Precision("float32", torch.device("cpu")))
    card.write_text(json.dumps(known | {"length_debias": "much"}))
    with pytest.raises(TrimtabError, match=r"trimtab\.json: length_debias is no object"):
        preference.load_preference(tmp_path / "pm", Precision("float32", torch.device("cpu")))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"length_debias": "two-head", "batch_size": 4}, "too few, set at least 8"),
        ({"length_debias": "two-head", "principle_heads": True}, '"regress", which takes it out of every head'),
        ({"length_debias": "odin"}, "regress"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        PreferenceConfig(**settings)


@pytest.mark.parametrize("kind", ["regress", "two-head"])
def test_responses_of_one_length_are_refused(codec, kind):
    pairs = [Pair(f"s{i}", p, Response("please now"), Response("stupid now")) for i, p in enumerate(prompts(20, 1))]
    with pytest.raises(TrimtabError, match="of one length"):
        preference.train(LONGER.model_copy(update={"length_debias": kind}), base(1), codec, pairs)
