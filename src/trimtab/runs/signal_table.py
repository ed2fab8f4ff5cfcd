"""The rows of the signal table; `signals.py` says what the table is for and looks things up in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ROWS", "STAGES", "Band", "Signal"]

STAGES = ("sft", "sample", "label", "pm", "ppo", "dpo", "eval")
"""Stages that log signals, in the order in which they run."""


class Band(NamedTuple):
    """An interval; None = open on that side."""

    low: float | None
    high: float | None

    def holds(self, value: float) -> bool:
        """Whether `value` lies inside, ends included; a NaN never does."""
        above = self.low is None or value >= self.low
        return above and (self.high is None or value <= self.high) and value == value


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal, or with `<name>` or `*` in the key a family of them.

    `stages`: where it is logged, the stage it is best known from first. `rules`: ids of the findings that read it.
    """

    key: str
    unit: str
    meaning: str
    stages: tuple[str, ...]
    healthy: Band | None = None
    source: str | None = None
    rules: tuple[str, ...] = ()


def _ppo(
    key: str, unit: str, meaning: str, healthy: Band | None = None, source: str | None = None, *rules: str
) -> Signal:
    return Signal(key, unit, meaning, ("ppo",), healthy, source, rules)


def _pm(
    key: str, unit: str, meaning: str, healthy: Band | None = None, source: str | None = None, *rules: str
) -> Signal:
    return Signal(key, unit, meaning, ("pm",), healthy, source, rules)


def _dpo(
    key: str, unit: str, meaning: str, healthy: Band | None = None, source: str | None = None, *rules: str
) -> Signal:
    return Signal(key, unit, meaning, ("dpo",), healthy, source, rules)


def _label(
    key: str, unit: str, meaning: str, healthy: Band | None = None, source: str | None = None, *rules: str
) -> Signal:
    return Signal(key, unit, meaning, ("label",), healthy, source, rules)


def _eval(
    key: str, unit: str, meaning: str, healthy: Band | None = None, source: str | None = None, *rules: str
) -> Signal:
    return Signal(key, unit, meaning, ("eval",), healthy, source, rules)


_HEURISTIC = "heuristic"

_PPO = [
    # score: what the scorer says, before anything is done to it
    _ppo("score/mean", "score", "Mean raw score of the batch's responses, before penalties and shaping.", None, None,
         "reward-hacking", "reward-not-improving", "reward-decreasing", "oscillating"),
    _ppo("score/std", "score", "Population standard deviation of the raw scores.", Band(0.01, 10), _HEURISTIC,
         "reward-scale", "reward-noise", "no-reward-signal", "pm-score-collapse"),
    _ppo("score/min", "score", "Lowest raw score of the batch."),
    _ppo("score/max", "score", "Highest raw score of the batch."),
    _ppo("score/outlier_fraction", "fraction", "Share of the batch's raw scores that ppo.score_outlier_sds moved.",
         Band(0, 0.05), _HEURISTIC, "reward-noise"),
    _ppo("score/<name>", "score", "Mean score of one scorer of a mixture, before its weight; of a preference model "
         "with heads by principle, of each head (score/<principle>).", None, None, "reward-hacking"),
    _ppo("shift/distance", "fraction", "Where the responses' hidden states in the preference model lie: mean "
         "percentile of their Mahalanobis distance among pairs that it was not trained on.", Band(0, 0.7),
         "half = as those pairs; tiny world: healthy runs .41-.62, policies that exploit blind spots .81-.86",
         "pm-distribution-shift"),
    _ppo("shift/outside_fraction", "fraction", "Share of responses beyond the 99th percentile of those distances.",
         Band(0, 0.1), "one in a hundred where nothing has moved; heuristic", "pm-distribution-shift"),
    _ppo("shift/score_psi", "1", "Population stability index of the scores against those pairs', less what chance "
         "gives a batch of this size. Progress alone raises it.", None, None, "pm-distribution-shift"),
    _ppo("score/disagreement", "score", "Standard deviation of the score over the members of an ensemble, mean over "
         "the batch; it rises where the policy goes to what the members were not trained on."),
    _ppo("score/shaped_mean", "score", "Mean score after penalties, normalisation, transform and clip; it enters "
         "the reward."),
    _ppo("score/shaped_std", "score", "Population standard deviation of the shaped scores.", Band(0.01, 10),
         _HEURISTIC, "reward-scale"),
    _ppo("reward/mean", "reward/response", "Sum of a response's token rewards (shaped score minus the KL penalty), "
         "mean over the batch."),
    _ppo("reward/std", "reward/response", "Population standard deviation over responses of the summed token "
         "rewards."),
    # KL
    Signal("kl/reference", "nats/sequence", "KL of the policy from the reference: k1 summed over response tokens, "
           "mean over the batch (dpo: over the held-out probe responses). Slightly below 0 is sampling noise.",
           ("ppo", "dpo"), Band(-1, 10), "TRL FAQ: "
           "keep it between 0 and 10, warning below -1; lm-human-preferences steers to 6",
           ("kl-explosion", "negative-kl", "policy-not-moving", "over-constrained")),
    Signal("kl/reference_per_token", "nats/token", "k1 against the reference, mean over the response tokens of the "
           "batch (dpo: of the probe responses).", ("ppo", "dpo"), Band(-0.1, 0.5), "healthy public runs .03-.16, "
           "diverging ones 2.3-5.7; the bound .5 is a heuristic", ("kl-explosion", "policy-not-moving")),
    _ppo("kl/reference_k3_per_token", "nats/token", "k3 against the reference (never negative, fat tail), mean "
         "over the response tokens of the batch.", Band(0, 0.5), _HEURISTIC, "kl-explosion"),
    _ppo("kl/beta", "1", "KL coefficient in force in this iteration.", None, None, "over-constrained"),
    _ppo("kl/update", "nats/token", "k3 of the new against the old policy, mean over the iteration's updates.",
         Band(0, 0.02), "Spinning Up, Stable-Baselines3: target_kl .01-.02", "ratio-blow-up", "policy-not-moving"),
    # policy
    _ppo("policy/loss", "loss", "Clipped surrogate, mean over updates. Its level says nothing about how well the "
         "run goes.", None, None, "diverging-loss", "nan-inf"),
    _ppo("policy/clip_fraction", "fraction", "Share of response tokens whose clipped term was chosen, mean over "
         "updates. Exactly 0 is right with one update a rollout.", Band(0, 0.3), ".01-.2 usual, above .3 look",
         "clip-fraction-high"),
    _ppo("policy/dual_clip_fraction", "fraction", "Share of response tokens whose loss the dual clip bounded.",
         Band(0, 0.05), _HEURISTIC, "ratio-blow-up"),
    _ppo("policy/entropy", "nats/token", "Entropy of the policy's distribution at the sampling temperature, mean "
         "over the response tokens of the batch.", Band(0, None), "a discrete entropy is never negative",
         "entropy-collapse", "entropy-explosion", "invalid-metric"),
    _ppo("policy/ratio_max", "1", "Largest probability ratio new/old over the iteration's updates.", Band(None, 10),
         "above 10 is a blow-up", "ratio-blow-up"),
    _ppo("policy/gradient_norm", "1", "Norm of the policy's gradient before clipping, mean over updates.",
         Band(0, 100), "median .1-10 healthy, above 100 exploding", "exploding-gradients", "no-gradient", "nan-inf"),
    _ppo("policy/updates", "1", "Updates that were made in the iteration: fewer than epochs x minibatches where "
         "ppo.max_update_kl ended it or updates were skipped."),
    _ppo("policy/gradient_noise_scale", "responses", "About how many responses an update can average before more of "
         "them stop helping; running estimate, logged where there are micro-batches."),
    _ppo("policy/language_loss", "nats/token", "Language-model loss of the demonstrations that ppo.language_data mixes "
         "in, mean over updates."),
    _ppo("policy/learning_rate", "1", "Learning rate of the policy's last update."),
    # value model
    _ppo("value/loss", "reward^2", "Squared error of the value model against the returns, mean over updates.", None,
         None, "diverging-loss", "value-not-learning", "nan-inf"),
    _ppo("value/clip_fraction", "fraction", "Share of values whose clipped error was the larger one.", Band(0, 0.3),
         _HEURISTIC),
    _ppo("value/explained_variance", "1", "1 - Var(return - value) / Var(return), before the iteration's updates.",
         Band(0, 1), "below 0 after the first tenth of a run: the value model explains nothing; above .5 good",
         "value-not-learning"),
    _ppo("value/gradient_norm", "1", "Norm of the value model's gradient before clipping, mean over updates; large "
         "at first.", None, None, "exploding-gradients", "no-gradient"),
    _ppo("value/learning_rate", "1", "Learning rate of the value model's last update."),
    _ppo("value/mean", "reward", "Value, mean over the response tokens of the batch.", None, None,
         "value-not-learning"),
    _ppo("value/return_mean", "reward", "Return, mean over the response tokens of the batch."),
    _ppo("value/return_std", "reward", "Population standard deviation of the returns over response tokens.",
         Band(0.01, 10), _HEURISTIC, "reward-scale", "value-not-learning"),
    _ppo("advantage/mean", "reward", "Advantage before whitening, mean over the response tokens of the batch.", None,
         None, "advantage-not-centred"),
    _ppo("advantage/std", "reward", "Population standard deviation of the advantages before whitening.",
         Band(1e-06, None), "an advantage that never varies teaches nothing", "advantage-not-centred",
         "no-reward-signal"),
    # guards
    _ppo("rollout/logprob_gap_mean", "nats/token", "Mean |rollout - trainer| log-probability of the sampled tokens.",
         Band(0, 0.06), "SmolLM2-135M: 1e-5 in float32, .036 in bfloat16", "logprob-mismatch"),
    _ppo("rollout/logprob_gap_max", "nats", "Largest |rollout - trainer| log-probability of a sampled token.",
         Band(0, 0.5), "SmolLM2-135M: 1e-5 in float32, .20 in bfloat16", "logprob-mismatch"),
    _ppo("rollout/is_weight_mean", "1", "Importance weight trainer/engine of the sampled tokens, cut off at "
         "ppo.importance_cap: mean.", Band(0.9, 1.1), "1 where engine and trainer agree", "logprob-mismatch"),
    _ppo("rollout/is_truncated_fraction", "fraction", "Share of the sampled tokens whose importance weight was cut "
         "off.", Band(0, 0.05), _HEURISTIC, "logprob-mismatch"),
    _ppo("check/first_ratio_deviation", "1", "Largest |ratio - 1| at the first minibatch of the iteration, before "
         "any update.", Band(0, 0.001), "the ratio is 1 by construction", "logprob-mismatch"),
    _ppo("check/padding_gap", "nats", "Largest difference of a log-probability computed padded and unpadded.",
         Band(0, 0.2), "SmolLM2-135M: 1e-5 in float32, .145 in bfloat16", "logprob-mismatch"),
    _ppo("check/kl_at_start", "nats/token", "k1 against the reference before the first update, mean over tokens.",
         Band(-0.001, 0.001), "policy and reference are the same model at step 0", "reference-mismatch",
         "logprob-mismatch"),
    # what the batch was made of, and what it cost
    _ppo("batch/duplicate_fraction", "fraction", "Share of responses of the batch that repeat another one word "
         "for word.", Band(0, 0.5), _HEURISTIC, "entropy-collapse", "no-reward-signal"),
    _ppo("group/zero_std_fraction", "fraction", "Share of prompts whose responses all have the same score.",
         Band(0, 0.5), "healthy runs .29-.40, above .5 look, above .8 critical", "no-reward-signal"),
    _ppo("memory/micro_batch_size", "responses", "Responses that a process has in memory at once in an update: "
         "ppo.micro_batch_size, or what was found."),
    _ppo("memory/scoring_rows", "responses", "The same in the passes that score, where that is not all."),
    _ppo("memory/rollout_rows", "responses", "The same while they are sampled, where that is not all."),
    _ppo("time/update_s", "s", "Time of the iteration's updates."),
    _ppo("time/synchronisation_s", "s", "Time of an iteration that a process spent communicating with the others, or "
         "waiting for them: mean over the processes, logged where there are several."),
    Signal("gold/mean", "gold score", "Mean exact gold score of held-out prompts (tiny world only; nothing trains on "
           "it).", ("ppo", "dpo"), Band(0, 1), "gold scores lie in [0, 1]", ("reward-hacking",)),
]  # fmt: skip

_RESPONSES = [
    Signal("response/length_mean", "tokens", "Mean length of the responses, EOS included.",
           ("ppo", "sample", "eval", "dpo"), None, None,
           ("length-exploitation", "length-explosion", "length-collapse")),
    Signal("response/length_std", "tokens", "Population standard deviation of the lengths.",
           ("ppo", "sample", "eval"), None, None, ("repetitive-outputs",)),
    Signal("response/length_max", "tokens", "Longest response.", ("ppo", "sample", "eval")),
    Signal("response/finished_fraction", "fraction", "Share of responses that ended with an EOS token of their own.",
           ("ppo", "sample", "eval", "dpo"), Band(0.5, 1), "cut off above .1 look, above .5 critical; short limits cut "
           "off more", ("truncated-responses", "missing-eos")),
    Signal("response/empty_fraction", "fraction", "Share of responses without any text.",
           ("ppo", "sample", "eval", "dpo"), Band(0, 0.05), _HEURISTIC, ("length-collapse",)),
    Signal("response/distinct_2", "fraction", "Distinct word pairs over all word pairs of the batch.",
           ("ppo", "sample", "eval", "dpo"), None, None, ("repetitive-outputs", "low-diversity", "pm-narrow")),
    Signal("response/repetition", "fraction", "Mean share of repeated word n-grams inside a response.",
           ("ppo", "sample", "eval", "dpo"), Band(0, 0.5), _HEURISTIC, ("repetitive-outputs",)),
]  # fmt: skip

_COMMON = [
    Signal("loss/train", "loss", "Training loss, mean since the last line.", ("pm", "sft", "dpo"), None, None,
           ("pm-overfit", "diverging-loss", "nan-inf")),
    Signal("learning_rate", "1", "Learning rate of the last update.", ("sft", "pm", "dpo")),
    Signal("gradient_norm", "1", "Norm of the gradient before clipping, mean since the last line.",
           ("sft", "pm", "dpo"),
           Band(0, 100), "median .1-10 usual, above 100 exploding",
           ("exploding-gradients", "no-gradient", "nan-inf")),
    Signal("tokens", "tokens", "Tokens that counted in the loss so far.", ("sft", "pm")),
    Signal("precision/loss_scale", "1", "Loss scale of float16 training.", ("sft", "pm", "ppo", "dpo"),
           Band(1, None), "a scale at its minimum: gradients overflow", ("nan-inf",)),
    Signal("precision/skipped_updates", "updates", "Updates skipped so far because a gradient was not finite; "
           "in float16 a few at the start are the loss scale finding its level.", ("sft", "pm", "ppo", "dpo"), None,
           None, ("nan-inf",)),
    Signal("memory/peak_gib", "GiB", "Peak memory: of the device, or of the process on a CPU.",
           ("ppo", "sft", "pm", "sample", "label", "eval")),
    Signal("rate/response_tokens_per_s", "tokens/s", "Response tokens sampled and trained on (ppo) or sampled a "
           "second.", ("ppo", "sample", "eval")),
    Signal("rate/tokens_per_s", "tokens/s", "Tokens trained on a second.", ("sft", "pm")),
    Signal("time/rollout_s", "s", "Time to sample the responses.", ("ppo", "sample", "eval")),
    Signal("time/score_s", "s", "Time to score the responses.", ("ppo", "eval")),
    Signal("time/iteration_s", "s", "Time of the whole iteration, or since the last line.",
           ("ppo", "sft", "pm", "sample", "label", "eval")),
    Signal("loss/validation", "loss", "Loss on held-out data.", ("pm", "sft", "dpo"), None, None, ("pm-overfit",)),
]  # fmt: skip

_PM = [
    _pm("accuracy/train", "fraction", "Share of training pairs ordered as labeled, since the last line.", None, None,
        "pm-overfit"),
    Signal("accuracy/validation", "fraction", "Share of held-out pairs ordered as labeled; ties count one half.",
           ("pm", "dpo"), Band(0.62, 0.98), ".65-.80 usual on human chat pairs, under .55 failed; contrast pairs are "
           "easier", ("pm-low-accuracy", "pm-overfit")),
    _pm("accuracy/validation_low", "fraction", "Lower end of the interval of accuracy/validation.", Band(0.5, 1),
        "an interval that holds .5 shows nothing", "pm-low-accuracy"),
    _pm("accuracy/validation_high", "fraction", "Upper end of the interval of accuracy/validation.", None, None,
        "pm-low-accuracy"),
    _pm("margin/mean", "score", "Mean score of chosen minus rejected on held-out pairs.", Band(0.05, None),
        _HEURISTIC, "pm-score-collapse"),
    Signal("tokens/needed", "tokens/pair", "Tokens of a pair, each response read with its prompt, mean over the "
           "update.", ("pm", "dpo")),
    Signal("tokens/computed", "tokens/pair", "Tokens that the model computed for a pair, padding included; fewer than "
           "needed where a prompt is computed once for both responses.", ("pm", "dpo")),
    _pm("loss/principles", "nats", "Sum over the principles of the loss of each one's head, of each update's pairs "
        "(preference.principle_heads)."),
    _pm("length/score_correlation", "1", "Correlation of the score with the tokens of the response over an update "
        "(length_debias = two-head).", Band(-0.3, 0.3), _HEURISTIC),
    _pm("length/head_correlation", "1", "The same of the head that is to hold the length, and that is thrown away.",
        Band(0.5, 1), _HEURISTIC),
    _pm("margin/std", "score", "Population standard deviation of the margins.", Band(0.05, None), _HEURISTIC,
        "pm-score-collapse"),
    _pm("margin/length_correlation", "1", "Spearman correlation of the margin with the difference in length.",
        Band(-0.3, 0.3), _HEURISTIC, "pm-length-bias", "length-exploitation"),
    _pm("calibration/ece", "fraction", "Expected calibration error of P(first wins), equal-width bins.", Band(0, 0.1),
        "heuristic; needs about 300 pairs", "pm-miscalibrated"),
    _pm("calibration/brier", "1", "Mean squared error of P(first wins); always saying .5 gives .25.", Band(0, 0.25),
        "the score of always saying .5", "pm-miscalibrated"),
    _pm("calibration/log_loss", "nats", "Log loss of P(first wins); always saying .5 gives .693.", Band(0, 0.694),
        "the score of always saying .5", "pm-miscalibrated"),
    _pm("calibration/temperature", "1", "Temperature that fits the held-out margins best; above 1: over-confident.",
        Band(0.667, 1.5), "heuristic: |ln T| up to ln 1.5", "pm-miscalibrated"),
    _pm("member/*", "as of the first", "The same signals of the further members of an ensemble (member/1/loss/train); "
        "those without a prefix are the first member's."),
    _pm("pm/score_mean", "score", "Mean score of the held-out responses."),
    _pm("pm/score_std", "score", "Population standard deviation of the held-out responses' scores.", Band(0.05, None),
        _HEURISTIC, "pm-score-collapse"),
    _pm("pm/pairs", "pairs", "Pairs trained on so far."),
]  # fmt: skip

_DPO = [
    _dpo("dpo/accuracy", "fraction", "Share of the update's pairs whose implicit rewards are ordered as labeled; a tie "
         "counts one half.", None, None, "preference-overfit", "preference-not-generalising"),
    _dpo("dpo/margin", "reward", "Implicit reward of the chosen minus that of the rejected response, mean over pairs; "
         "0 at the start.", None, None, "likelihood-displacement", "policy-not-moving"),
    _dpo("dpo/chosen_reward", "reward", "Beta times (policy - reference) log-probability of the chosen response, mean "
         "over pairs.", None, None, "reference-mismatch", "likelihood-displacement"),
    _dpo("dpo/rejected_reward", "reward", "The same of the rejected response.", None, None, "reference-mismatch"),
    _dpo("dpo/chosen_change", "nats/sequence", "Log-probability of the chosen response less the reference's, mean over "
         "pairs. Where it falls while the margin rises, probability goes to responses that nobody preferred.",
         Band(-20, None), "heuristic; Razin et al. 2024 for what it means", "likelihood-displacement"),
    _dpo("dpo/rejected_change", "nats/sequence", "The same of the rejected response."),
    _dpo("dpo/chosen_logprob", "nats/sequence", "Log-probability of the chosen response under the policy, mean over "
         "pairs.", None, None, "likelihood-displacement"),
    _dpo("dpo/rejected_logprob", "nats/sequence", "The same of the rejected response."),
    _dpo("dpo/language_loss", "nats/token", "Negative log-likelihood of the chosen response, which dpo.language_coef "
         "adds to the loss."),
    _dpo("held_out/dpo/margin", "reward", "dpo/margin of the held-out pairs."),
    _dpo("held_out/dpo/chosen_change", "nats/sequence", "dpo/chosen_change of the held-out pairs.", Band(-20, None),
         "heuristic; Razin et al. 2024 for what it means"),
    _dpo("held_out/dpo/rejected_change", "nats/sequence", "dpo/rejected_change of the held-out pairs."),
]  # fmt: skip

_LABEL = [
    Signal("sample/pairs", "pairs", "Pairs sampled so far.", ("sample",)),
    Signal("sample/identical_fraction", "fraction", "Share of pairs whose two responses are the same text.",
           ("sample",), Band(0, 0.1), _HEURISTIC, ("low-diversity",)),
    _label("label/pairs", "pairs", "Pairs labeled so far."),
    _label("label/verdicts", "verdicts", "Judge calls so far, those found in the store included."),
    _label("label/from_store_fraction", "fraction", "Share of verdicts that the store already had."),
    _label("label/tie_fraction", "fraction", "Share of verdicts that call a tie.", None, None, "noisy-labels"),
    _label("label/unparsed_fraction", "fraction", "Share of verdicts that could not be read.", Band(0, 0.05),
           _HEURISTIC, "judge-unparsed"),
    _label("label/refused_fraction", "fraction", "Share of verdicts that the judge refused.", Band(0, 0.05),
           _HEURISTIC, "judge-unparsed"),
    _label("label/error_fraction", "fraction", "Share of judge calls that failed.", Band(0, 0.05), _HEURISTIC,
           "judge-unparsed"),
    _label("label/first_slot_fraction", "fraction", "Share of decided verdicts for the response shown first.",
           Band(0.4, 0.6), "people .52, AlpacaEval's annotators .42-.57, .60 critical", "judge-position-bias"),
    _label("label/order_flip_fraction", "fraction", "Share of pairs whose winner changes with the order shown.",
           Band(0, 0.35), "consistency below .65 is critical; GPT-4 .13 on MT-bench", "judge-position-bias",
           "judge-inconsistency"),
    _label("label/p_first_mean", "fraction", "Mean label P(first response is better).", Band(0.4, 0.6), _HEURISTIC,
           "judge-position-bias"),
    _label("label/gap_mean", "fraction", "Mean |P(first) - .5|: how decided the labels are.", Band(0.02, 0.5),
           _HEURISTIC, "noisy-labels"),
    _label("label/longer_wins_fraction", "fraction", "Share of decided labels for the longer response.",
           Band(0.35, 0.65), "people .64; from .75 suspicious", "judge-length-bias"),
    _label("label/mass_mean", "fraction", "Mean probability that the judges' models gave to readable answers, where it "
           "is known.", Band(0.5, None), _HEURISTIC, "judge-unparsed"),
    _label("label/calls", "calls", "Calls made to judges in this attempt, retries included."),
    _label("label/tokens", "tokens", "Prompt and completion tokens of the verdicts, those found in the store "
           "included."),
    _label("label/cost", "money", "Cost of the verdicts in the currency of the prices, those found in the store "
           "included."),
    _label("label/kept_fraction", "fraction", "Share of pairs decided enough to train on (label.abstain)."),
    _label("rate/verdicts_per_s", "verdicts/s", "Judge calls a second."),
]  # fmt: skip

_EVAL = [
    _eval("eval/win_rate", "fraction", "Share of held-out prompts on which the trained policy beats the reference; "
          "ties count one half.", Band(0.5, 1), "one half = no better than the reference", "reward-hacking"),
    _eval("eval/win_rate_low", "fraction", "Lower end of the win rate's interval."),
    _eval("eval/win_rate_high", "fraction", "Upper end of the win rate's interval."),
    _eval("eval/prompts", "prompts", "Held-out prompts compared."),
    _eval("eval/length_change", "tokens", "Mean length of the trained policy's responses minus the reference's.",
          None, None, "length-exploitation"),
    Signal("eval/score", "score", "Mean raw score of the trained-on scorer over held-out responses; nothing "
           "trains on it in dpo.", ("ppo", "dpo", "eval"), None, None, ("reward-hacking", "reward-not-improving")),
    Signal("eval/<measure>", "measure", "Mean of an independent measure over held-out responses; nothing trains on "
           "it.", ("ppo", "dpo", "eval"), None, None, ("reward-hacking", "alignment-tax")),
    Signal("user/*", "as logged", "Anything that a user's own code logs.", STAGES),
]  # fmt: skip

ROWS = (*_PPO, *_RESPONSES, *_COMMON, *_PM, *_DPO, *_LABEL, *_EVAL)
"""Every row, in the order in which docs and dashboards list them."""
