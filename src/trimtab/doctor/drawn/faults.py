"""One fault at a time, planted into a sound run together with what it drags along: a policy that collapses stops
improving, a policy that runs away has large gradients.

Each plant changes a run in place from row `at` on, with a strength from .4 (a moderate case) to 1 (a clear one).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trimtab.doctor.drawn import planted_other as other
from trimtab.doctor.drawn import planted_policy as policy
from trimtab.doctor.drawn.curves import Drawn, Generator

__all__ = ["FAULTS", "Fault"]

Plant = Callable[[Drawn, Generator, int, float], None]


class Fault(NamedTuple):
    """`base`: the kind of run that it is planted into; `from_start`: it is there from the first row on; `signals`: a
    log has to show one of each group for it to be seen; `not_in`: dresses that leave a unit or sign open."""

    base: str
    plant: Plant
    signals: tuple[tuple[str, ...], ...]
    from_start: bool = False
    not_in: tuple[str, ...] = ()


_SCORE = ("score/mean",)
_KL = ("kl/reference_per_token", "kl/reference")
_HELD = ("accuracy/validation",)

FAULTS: dict[str, Fault] = {
    "kl-explosion": Fault("grpo ppo", policy.kl_explosion, (_KL,)),
    "negative-kl": Fault("ppo", policy.negative_kl, (("kl/reference", "kl/reference_per_token"),), True),
    "policy-not-moving": Fault("grpo ppo", policy.not_moving, (_KL, _SCORE), True),
    "over-constrained": Fault("ppo", policy.over_constrained, (("kl/reference",), ("kl/beta",), ("score/std",)), True),
    "ratio-blow-up": Fault("grpo ppo", policy.ratio, (("policy/ratio_mean", "policy/ratio_max"),)),
    "logprob-mismatch": Fault("grpo", policy.mismatch, (("rollout/logprob_gap_mean", "policy/ratio_first"),)),
    "clip-fraction-high": Fault("grpo ppo", policy.clip, (("policy/clip_fraction",),)),
    "entropy-collapse": Fault("grpo ppo", policy.entropy_down, (("policy/entropy",), _SCORE)),
    "entropy-explosion": Fault("grpo ppo", policy.entropy_up, (("policy/entropy",), _SCORE)),
    "no-gradient": Fault("grpo", policy.no_gradient, (("policy/gradient_norm",),), True),
    "exploding-gradients": Fault("grpo ppo", policy.spikes, (("policy/gradient_norm",),)),
    "nan-inf": Fault("grpo ppo", policy.nan, (("policy/loss", "policy/gradient_norm"),)),
    "diverging-loss": Fault("ppo", policy.diverging, (("value/loss",),)),
    "oscillating": Fault("grpo ppo", policy.oscillating, (_SCORE,), True),
    "reward-not-improving": Fault("grpo ppo", policy.flat, (_SCORE,), True),
    "reward-decreasing": Fault("grpo ppo", policy.falling, (_SCORE,)),
    "length-explosion": Fault("grpo", policy.too_long, (("response/length_mean",), _SCORE)),
    "length-collapse": Fault("grpo", policy.too_short, (("response/length_mean",), _SCORE)),
    "truncated-responses": Fault("grpo", policy.cut, (("response/truncated_fraction",),)),
    "missing-eos": Fault("grpo ppo", policy.no_eos, (("response/eos_count", "response/eos_fraction",
                                                "response/truncated_fraction"),), True),
    "value-not-learning": Fault("ppo", policy.blind_critic, (("value/explained_variance",),), True),
    "no-reward-signal": Fault("grpo", policy.alike, (("group/zero_std_fraction",),), True),
    "reward-scale": Fault("ppo", policy.scale, (("score/std",), ("value/loss", "value/return_std")), True),
    "reward-noise": Fault("grpo ppo", policy.noisy, (_SCORE, ("score/std",)), True),
    "advantage-not-centred": Fault("grpo", policy.no_baseline, (("advantage/mean",), _SCORE), True),
    "reward-hacking": Fault("grpo ppo", other.hacking, (("eval/win_rate",), _SCORE)),
    "length-exploitation": Fault("grpo", other.by_length, (("response/length_mean",), _SCORE)),
    "repetitive-outputs": Fault("grpo ppo", other.repeats, (("response/distinct_2", "response/repetition"),)),
    "style-exploitation": Fault("grpo ppo", other.hedges, (("style/hedges",),)),
    "sycophancy": Fault("grpo ppo", other.flattery, (("style/sycophancy",),)),
    "pm-distribution-shift": Fault("ppo", other.left_behind, (("shift/distance",), ("shift/outside_fraction",))),
    "alignment-tax": Fault("grpo ppo", other.tax, (("eval/mmlu",),)),
    "benchmark-overfitting": Fault("grpo ppo", other.public, (("eval/gsm8k",), ("eval/gsm8k_fresh",))),
    "invalid-metric": Fault("grpo ppo", other.impossible, (("policy/entropy_sequence", "policy/entropy"),), True,
                            ("plain-csv", "plain-jsonl")),
    "reference-mismatch": Fault("direct", other.wrong_reference, (("dpo/chosen_reward",),), True),
    "preference-overfit": Fault("direct", other.by_heart, (("loss/train",), ("dpo/accuracy",)), True),
    "preference-not-generalising": Fault("direct", other.not_general, (("dpo/accuracy",), _HELD), True),
    "likelihood-displacement": Fault("direct", other.displaced, (("dpo/chosen_logprob", "dpo/chosen_reward"),
                                                            ("dpo/margin",)), True),
    "pm-low-accuracy": Fault("preference-model", other.weak_pm, (("accuracy/validation", "accuracy/train"),), True),
    "pm-overfit": Fault("preference-model", other.overfit_pm, (("accuracy/validation", "loss/validation"),), True),
    "pm-score-collapse": Fault("preference-model", other.collapsed_pm, (("pm/score_std", "margin/mean"),), True),
    "pm-miscalibrated": Fault("preference-model", other.overconfident_pm, (("calibration/ece",),), True),
    "pm-length-bias": Fault("preference-model", other.long_pm, (("margin/length_correlation",),), True),
}  # fmt: skip
"""What a training log can show, by finding."""
