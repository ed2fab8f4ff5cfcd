"""Finding -> knob -> direction -> step, in one table: what to do about each finding, first thing first.

Where code or data are at fault, what to check comes before any knob.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

__all__ = ["PLAN", "Step"]


class Step(NamedTuple):
    """One change.

    Args:
        why: the catalogue's `prescribe.<why>`.
        knob: a key of `KEYS`; empty: nothing to set.
        rule: `x` (times), `=`, `>=` (at least), `<=` (at most).
        amount: what goes with the rule.
    """

    why: str
    knob: str = ""
    rule: str = "="
    amount: Any = None


def _do(why: str) -> Step:
    return Step(why)


def _x(knob: str, factor: float, why: str) -> Step:
    return Step(why, knob, "x", factor)


def _to(knob: str, value: Any, why: str) -> Step:
    return Step(why, knob, "=", value)


def _least(knob: str, value: float, why: str) -> Step:
    return Step(why, knob, ">=", value)


def _most(knob: str, value: float, why: str) -> Step:
    return Step(why, knob, "<=", value)


_SLOWER: Final = _x("learning_rate", 0.5, "slower")
_LEASH: Final = _x("beta", 2, "leash")
_BIGGER: Final = _x("batch_size", 2, "bigger-batch")
_ROLL_BACK: Final = _do("roll-back")

PLAN: Final[Mapping[str, Sequence[Step]]] = {
    # reward hacking
    "reward-hacking": (_ROLL_BACK, _LEASH, _most("kl_target", 6.0, "steer-kl"), _to("score_clip", 5.0, "clip-score"),
                       _do("fresh-pairs"), _do("gate-bonus"), _do("ensemble")),
    "repetitive-outputs": (_ROLL_BACK, _x("beta", 3, "leash"), _SLOWER, _to("temperature", 1.0, "sample-plainly"),
                           _do("repetition-reward"), _do("more-prompts")),
    "style-exploitation": (_do("counterfactual-pairs"), _LEASH, _do("second-judge"), _do("fresh-pairs")),
    "length-exploitation": (_do("balance-length"), Step("length-penalty", "length_penalty", ">", 0.0), _LEASH,
                            _do("token-mean")),
    "sycophancy": (_do("counterfactual-pairs"), _do("second-judge"), _LEASH),
    # preference model
    "pm-low-accuracy": (_do("check-orientation"), _do("check-pm-truncation"), _do("pm-from-sft"), _do("more-pairs"),
                        Step("pm-usual-rate", "pm_learning_rate", "=", 1e-5), _do("bigger-backbone"), _do("relabel")),
    "pm-overfit": (_most("pm_epochs", 1, "one-epoch"), _do("stop-at-best"),
                   _x("pm_learning_rate", 0.5, "pm-slower"), _least("pm_weight_decay", 0.01, "decay"),
                   _least("label_smoothing", 0.05, "smooth"), _do("group-by-prompt")),
    "pm-score-collapse": (_do("check-pooling"), _x("pm_learning_rate", 0.5, "pm-slower"),
                          _to("dtype", "bfloat16", "bf16"), _least("pm_centring", 0.01, "centre"),
                          _to("score_normalisation", "reference", "normalise-score")),
    "pm-narrow": (_do("diverse-pairs"), _least("pm_weight_decay", 0.01, "decay"), _do("ensemble")),
    "pm-self-contradiction": (_do("paraphrase-pairs"), _least("label_smoothing", 0.1, "smooth"), _do("ensemble")),
    "pm-miscalibrated": (_do("temperature-scale"), _least("label_smoothing", 0.05, "smooth"),
                         _most("pm_epochs", 1, "one-epoch"),
                         _to("advantage_whitening", True, "whiten-advantages")),
    "pm-distribution-shift": (_do("fresh-pairs"), _LEASH, _x("iterations", 0.5, "shorter-run")),
    "pm-length-bias": (_do("balance-length"), Step("length-penalty", "length_penalty", ">", 0.0),
                       _do("length-covariate")),
    "inconsistent-preferences": (_do("majority"), _to("soft_labels", True, "soft-labels"),
                                 _least("least_gap", 0.1, "drop-close"), _do("rank-first")),
    # judge and data
    "judge-position-bias": (_to("both_orders", True, "both-orders"), _least("least_gap", 0.1, "drop-close"),
                            _do("logprob-verdict"), _do("stronger-judge")),
    "judge-inconsistency": (_to("both_orders", True, "both-orders"), _least("votes", 3, "repeat-votes"),
                            _least("least_gap", 0.1, "drop-close"), _do("logprob-verdict"), _do("stronger-judge")),
    "judge-disagreement": (_do("rubric"), _do("stronger-judge"), _to("vote_aggregation", "dawid-skene", "weigh-raters"),
                           _do("check-orientation")),
    "judge-length-bias": (_do("balance-length"), _do("judge-prompt-length"), _do("length-covariate"),
                          _do("judge-panel")),
    "judge-self-preference": (_do("other-family"), _do("judge-panel"), _do("hide-authors")),
    "judge-unparsed": (_do("logprob-verdict"), _do("structured-verdict"), _do("judge-room")),
    "judge-template-sensitivity": (_to("judge_templates", ["plain", "direct", "careful"], "average-templates"),
                                   _do("rubric"), _do("stronger-judge")),
    "low-diversity": (_do("deduplicate"), _do("more-prompts"), _least("pair_temperature", 1.0, "pair-temperature"),
                      _do("several-generators")),
    "noisy-labels": (_do("filter-noise"), _least("label_smoothing", 0.1, "smooth"),
                     _to("soft_labels", True, "soft-labels"), _least("least_gap", 0.1, "drop-close"), _do("majority")),
    # policy
    "kl-explosion": (_LEASH, _SLOWER, _x("epochs", 0.5, "fewer-epochs"), _x("gradient_clip", 0.5, "clip-gradient"),
                     _most("kl_target", 6.0, "steer-kl"), _to("kl_estimator", "k2", "tame-estimator"), _ROLL_BACK),
    "negative-kl": (_do("check-sampling"), _to("top_k", 0, "pure-sampling"), _to("top_p", 1.0, "pure-sampling"),
                    _do("check-padding"), _do("check-reference-mode"), _do("check-temperature")),
    "policy-not-moving": (_do("check-trainable"), _x("learning_rate", 5, "faster"), _x("beta", 0.3, "loosen"),
                          _do("check-reward-signal")),
    "over-constrained": (_x("beta", 0.3, "loosen"), _x("kl_target", 2, "raise-target"), _do("check-ceiling")),
    "ratio-blow-up": (_do("check-old-logprobs"), _x("learning_rate", 0.3, "slower"),
                      _x("epochs", 0.5, "fewer-epochs"), _x("minibatches", 0.5, "larger-minibatch"),
                      _x("minibatch_size", 2, "larger-minibatch"), _least("adam_epsilon", 1e-5, "adam-epsilon")),
    "logprob-mismatch": (_do("recompute-old"), _do("check-temperature"), _do("check-precision"),
                         _to("importance_cap", 2.0, "importance-cap"), _most("epochs", 1, "fewer-epochs")),
    "clip-fraction-high": (_SLOWER, _x("epochs", 0.5, "fewer-epochs"), _x("minibatches", 0.5, "larger-minibatch"),
                           _x("minibatch_size", 2, "larger-minibatch"), _to("update_kl_stop", 0.02, "stop-epochs")),
    "entropy-collapse": (_to("clip_range_high", 0.28, "clip-higher"), _to("temperature", 1.0, "sample-plainly"),
                         _SLOWER, _to("entropy_bonus", 0.001, "entropy-bonus"), _LEASH),
    "entropy-explosion": (_to("entropy_bonus", 0.0, "no-entropy-bonus"), _SLOWER,
                          _to("mask_truncated", True, "mask-truncated"), _LEASH),
    "no-gradient": (_do("check-trainable"), _do("check-mask"), _do("check-versions")),
    "exploding-gradients": (_x("gradient_clip", 0.5, "clip-gradient"), _x("learning_rate", 0.3, "slower"), _BIGGER,
                            _to("dtype", "bfloat16", "bf16"), _do("clamp-ratio")),
    "nan-inf": (_ROLL_BACK, _to("dtype", "bfloat16", "bf16"), _do("check-mask"), _x("learning_rate", 0.3, "slower"),
                _do("clamp-ratio")),
    "diverging-loss": (_x("value_learning_rate", 0.3, "value-slower"), _to("value_clip", 0.2, "value-clip"),
                       _to("value_normalisation", True, "value-normalise"),
                       _to("score_normalisation", "reference", "normalise-score"), _SLOWER,
                       _x("epochs", 0.5, "fewer-epochs"), _x("value_coef", 0.5, "value-weight"), _BIGGER),
    "oscillating": (_to("learning_rate_schedule", "linear", "decay-rate"), _BIGGER, _SLOWER, _LEASH,
                    _do("average-checkpoints")),
    "reward-not-improving": (_do("check-reward-signal"), _do("check-trainable"), _x("learning_rate", 2, "faster"),
                             _x("beta", 0.5, "loosen"), _BIGGER, _x("group_size", 2, "larger-group")),
    "reward-decreasing": (_do("check-sign"), _ROLL_BACK, _SLOWER, _x("value_learning_rate", 2, "value-faster"),
                          _BIGGER),
    "length-explosion": (Step("length-penalty", "length_penalty", ">", 0.0),
                         _least("missing_eos_penalty", 1.0, "missing-eos"), _LEASH, _do("token-mean"),
                         _do("balance-length")),
    "length-collapse": (_do("check-score-position"), _to("length_penalty", 0.0, "no-length-penalty"), _LEASH,
                        _do("check-padding")),
    "truncated-responses": (_x("max_new_tokens", 2, "more-room"), _least("missing_eos_penalty", 1.0, "missing-eos"),
                            _to("mask_truncated", True, "mask-truncated"), _do("check-eos")),
    "missing-eos": (_do("check-eos"), _least("missing_eos_penalty", 1.0, "missing-eos"),
                    _x("max_new_tokens", 2, "more-room"), _do("check-padding")),
    # value and reward
    "value-not-learning": (_to("value_init", "preference", "value-init"), _x("value_learning_rate", 3, "value-faster"),
                           _to("value_warmup", 20, "value-warmup"),
                           _to("value_normalisation", True, "value-normalise"),
                           _to("score_normalisation", "reference", "normalise-score"),
                           _least("value_clip", 0.5, "value-clip-looser"), _x("value_coef", 2, "value-weight-up"),
                           _to("gamma", 1.0, "no-discount"), _least("lambda", 0.95, "lambda-up")),
    "no-reward-signal": (_do("check-reward-signal"), _do("warm-start"), _to("temperature", 1.0, "sample-plainly"),
                         _x("group_size", 2, "larger-group"), _to("drop_flat_groups", True, "drop-flat"),
                         _do("match-difficulty")),
    "reward-scale": (_to("score_normalisation", "reference", "normalise-score"), _to("score_clip", 5.0, "clip-score"),
                     _to("value_normalisation", True, "value-normalise"),
                     _to("reward_whitening", True, "whiten-reward")),
    "reward-noise": (_BIGGER, _x("group_size", 2, "larger-group"), _do("ensemble"),
                     _most("lambda", 0.9, "lambda-down")),
    "advantage-not-centred": (_do("check-groups"), _least("group_size", 4, "larger-group"),
                              _to("advantage_whitening", True, "whiten-advantages")),
    # direct preference optimisation
    "reference-mismatch": (_do("check-reference"), _do("check-adapters"), _do("check-template")),
    "preference-overfit": (_most("dpo_epochs", 1, "one-epoch"), _x("dpo_learning_rate", 0.3, "slower"),
                           _x("dpo_beta", 2, "leash"), _least("dpo_label_smoothing", 0.1, "smooth"),
                           _do("on-policy-pairs")),
    "preference-not-generalising": (_do("check-split"), _do("more-pairs"), _most("dpo_epochs", 1, "one-epoch"),
                                    _x("dpo_learning_rate", 0.5, "slower"), _x("dpo_beta", 2, "leash")),
    "likelihood-displacement": (_least("dpo_sft_weight", 0.1, "sft-term"), _x("dpo_beta", 2, "leash"),
                                _x("dpo_learning_rate", 0.5, "slower"), _do("on-policy-pairs")),
    # evaluation
    "alignment-tax": (_do("check-parser"), _to("language_loss_mix", 0.05, "mix-language"), _LEASH,
                      _do("average-weights"), _do("adapters")),
    "benchmark-overfitting": (_do("decontaminate"), _do("private-test"), _do("rotate-test")),
    # the log itself
    "invalid-metric": (_do("check-metric"), _do("upgrade-trainer")),
    "unit-unknown": (_do("name-unit"),),
    "log-truncated": (_do("resume-run"),),
}  # fmt: skip
"""What to do about each finding, first thing first."""
