"""The signal table is complete, consistent, and finds what fits."""

from __future__ import annotations

import math
import re

import pytest

from trimtab.runs.signals import PATTERNS, RESERVED, SIGNALS, STAGES, Band, lookup, nearest

PPO_KEYS = [
    "score/mean",
    "score/std",
    "score/min",
    "score/max",
    "score/<name>",
    "score/shaped_mean",
    "score/shaped_std",
    "reward/mean",
    "reward/std",
    "kl/reference",
    "kl/reference_per_token",
    "kl/reference_k3_per_token",
    "kl/beta",
    "kl/update",
    "policy/loss",
    "policy/clip_fraction",
    "policy/dual_clip_fraction",
    "policy/entropy",
    "policy/ratio_max",
    "policy/gradient_norm",
    "policy/learning_rate",
    "value/loss",
    "value/clip_fraction",
    "value/explained_variance",
    "value/gradient_norm",
    "value/learning_rate",
    "value/mean",
    "value/return_mean",
    "value/return_std",
    "advantage/mean",
    "advantage/std",
    "response/length_mean",
    "response/length_std",
    "response/length_max",
    "response/finished_fraction",
    "response/empty_fraction",
    "response/distinct_2",
    "response/repetition",
    "rollout/logprob_gap_mean",
    "rollout/logprob_gap_max",
    "check/first_ratio_deviation",
    "check/padding_gap",
    "check/kl_at_start",
    "precision/loss_scale",
    "precision/skipped_updates",
    "batch/duplicate_fraction",
    "group/zero_std_fraction",
    "time/rollout_s",
    "time/score_s",
    "time/update_s",
    "time/iteration_s",
    "rate/response_tokens_per_s",
    "memory/peak_gib",
    "eval/<measure>",
    "gold/mean",
    "user/*",
]


@pytest.mark.parametrize("key", PPO_KEYS)
def test_every_signal_of_the_ppo_loop_is_declared_for_ppo(key):
    assert "ppo" in SIGNALS[key].stages


def test_rows_are_well_formed():
    assert len(set(SIGNALS)) == len(SIGNALS)
    for key, signal in SIGNALS.items():
        assert key == signal.key == key.strip()
        assert key not in RESERVED
        assert signal.unit
        assert signal.meaning.endswith("."), key
        assert set(signal.stages) <= set(STAGES)
        assert signal.stages
        assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", rule) for rule in signal.rules), key
        if signal.healthy is not None:
            assert signal.source, f"{key}: a band without a source"
            low, high = signal.healthy
            assert low is None or high is None or low < high


def test_kl_keys_carry_their_unit():
    assert SIGNALS["kl/reference"].unit == "nats/sequence"
    assert all(s.unit == "nats/token" for k, s in SIGNALS.items() if k.startswith("kl/") and "per_token" in k)


def test_patterns_are_found_after_exact_keys():
    assert lookup("score/mean").key == "score/mean"
    assert lookup("score/preference").key == "score/<name>"
    assert lookup("score/my.module:reward").key == "score/<name>"
    assert lookup("user/a/b").key == "user/*"
    assert lookup("eval/win_rate").key == "eval/win_rate"
    assert lookup("eval/vader").key == "eval/<measure>"
    for key in ("score/", "user/", "score", "xuser/a", "score/a\nb", *PATTERNS):
        assert lookup(key) is None, key


def test_nearest_key():
    assert nearest("kl/referense") == "kl/reference"
    assert nearest("zzzz") is None


def test_bands_hold_their_ends_and_no_nan():
    assert Band(0, 1).holds(0)
    assert Band(0, 1).holds(1)
    assert not Band(0, 1).holds(1.1)
    assert Band(None, 1).holds(-math.inf)
    assert not Band(None, None).holds(math.nan)
