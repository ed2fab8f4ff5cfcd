"""The quantities that the doctor knows: one canonical key each, the unit expected, what it means.

Importers translate a framework's names into these keys; detectors read nothing else. A key with `<name>` stands for a
family (`score/<component>`). Keys of our own runs are those of the signal table (`trimtab.runs.signal_table`).
"""

from __future__ import annotations

import difflib
import functools
from dataclasses import dataclass

from trimtab.doctor.log import Unit

__all__ = ["FAMILIES", "QUANTITIES", "Quantity", "nearest", "quantity"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity, or with `<name>` in the key a family of them.

    `independent`: nothing trains on it, so it can tell reward hacking from progress.
    """

    key: str
    unit: Unit
    meaning: str
    independent: bool = False


_S, _F, _ONE, _T, _L = Unit.SCORE, Unit.FRACTION, Unit.ONE, Unit.TOKENS, Unit.LOSS
_SEQ, _TOK, _R, _N = Unit.NATS_PER_SEQUENCE, Unit.NATS_PER_TOKEN, Unit.REWARD, Unit.COUNT

_TABLE: tuple[tuple[str, Unit, str], ...] = (
    # what the scorer says, before anything is done to it
    ("score/mean", _S, "mean raw score of the responses"),
    ("score/std", _S, "standard deviation of the raw scores over the batch"),
    ("score/min", _S, "lowest raw score"),
    ("score/max", _S, "highest raw score"),
    ("score/group_std", _S, "mean over prompts of the standard deviation of the scores of one prompt's responses"),
    ("score/shaped_mean", _S, "mean score after penalties, normalisation, transform and clip"),
    ("score/shaped_std", _S, "standard deviation of the shaped scores"),
    ("reward/mean", _R, "what is maximised: score minus the KL penalty, summed over the response, mean over the batch"),
    ("reward/std", _R, "standard deviation of the summed rewards over the batch"),
    ("reward/min", _R, "lowest summed reward"),
    ("reward/max", _R, "highest summed reward"),
    ("reward/penalty", _R, "part of the reward that is no score (minus beta times KL), summed over the response"),
    # KL
    ("kl/reference", _SEQ, "KL of the policy from the reference, summed over the response"),
    ("kl/reference_per_token", _TOK, "KL of the policy from the reference, mean over response tokens"),
    ("kl/reference_k3_per_token", _TOK, "the same by the k3 estimator, where k1 is logged too"),
    ("kl/update", _TOK, "KL of the new from the old policy over the updates of one batch"),
    ("kl/beta", _ONE, "coefficient of the KL penalty"),
    ("kto/kl", _SEQ, "KTO's estimate from mismatched pairs, never below 0; no distance between policy and reference"),
    # policy
    ("policy/loss", _L, "loss of the policy; its level says nothing about how well a run goes"),
    ("policy/clip_fraction", _F, "share of tokens that the ratio clip stopped"),
    ("policy/clip_fraction_low", _F, "share of tokens clipped below"),
    ("policy/clip_fraction_high", _F, "share of tokens clipped above"),
    ("policy/dual_clip_fraction", _F, "share of tokens whose loss the dual clip bounded"),
    ("policy/entropy", _TOK, "entropy of the policy's distribution, mean over response tokens"),
    ("policy/entropy_sequence", _SEQ, "minus the log-probability of the sampled response, summed over its tokens"),
    ("policy/entropy_coefficient", _ONE, "coefficient of the entropy bonus"),
    ("policy/ratio_mean", _ONE, "mean probability ratio new/old"),
    ("policy/ratio_max", _ONE, "largest probability ratio"),
    ("policy/ratio_min", _ONE, "smallest probability ratio"),
    ("policy/ratio_first", _ONE, "mean probability ratio at the first minibatch of a batch; 1 by construction"),
    ("policy/gradient_norm", _ONE, "norm of the policy's gradient before clipping"),
    ("policy/learning_rate", _ONE, "learning rate of the policy"),
    ("policy/updates", _N, "updates made in the iteration"),
    ("policy/gradient_noise_scale", _ONE, "responses that an update can average before more of them stop helping"),
    ("policy/language_loss", _L, "language-model loss that is mixed in"),
    # value model
    ("value/loss", _L, "loss of the value model"),
    ("value/clip_fraction", _F, "share of values whose clipped error was the larger one"),
    ("value/explained_variance", _ONE, "1 - Var(return - value) / Var(return)"),
    ("value/gradient_norm", _ONE, "norm of the value model's gradient before clipping"),
    ("value/learning_rate", _ONE, "learning rate of the value model"),
    ("value/mean", _R, "mean value"),
    ("value/std", _R, "standard deviation of the values"),
    ("value/min", _R, "lowest value"),
    ("value/max", _R, "highest value"),
    ("value/error", _R, "error of the values before the updates, as logged"),
    ("value/return_mean", _R, "mean return"),
    ("value/return_std", _R, "standard deviation of the returns"),
    ("value/return_min", _R, "lowest return"),
    ("value/return_max", _R, "highest return"),
    ("advantage/mean", _R, "mean advantage"),
    ("advantage/std", _R, "standard deviation of the advantages"),
    ("advantage/min", _R, "lowest advantage"),
    ("advantage/max", _R, "highest advantage"),
    # sampler against trainer
    ("rollout/logprob_gap_mean", _TOK, "mean |sampler - trainer| log-probability of the sampled tokens"),
    ("rollout/logprob_gap_max", Unit.NATS, "largest |sampler - trainer| log-probability of a sampled token"),
    ("rollout/kl", _TOK, "KL between sampler and trainer"),
    ("rollout/prob_gap_mean", _F, "mean |sampler - trainer| probability of the sampled tokens"),
    ("rollout/prob_gap_max", _F, "largest |sampler - trainer| probability of a sampled token"),
    ("rollout/prob_correlation", _ONE, "correlation of the sampler's with the trainer's probabilities"),
    ("rollout/prob_ratio_error", _ONE, "mean of exp |sampler - trainer| log-probability; 1 = equal"),
    ("rollout/is_weight_mean", _ONE, "mean importance weight trainer/sampler"),
    ("rollout/is_weight_min", _ONE, "smallest importance weight"),
    ("rollout/is_weight_max", _ONE, "largest importance weight"),
    ("rollout/is_weight_std", _ONE, "standard deviation of the importance weights"),
    ("rollout/is_truncated_fraction", _F, "share of sampled tokens whose importance weight was cut off"),
    ("rollout/ess", _F, "effective sample size of the importance weights as a share of the samples"),
    ("rollout/chi2", _ONE, "chi-square distance of trainer and sampler"),
    ("check/first_ratio_deviation", _ONE, "largest |ratio - 1| before the first update of a batch"),
    ("check/padding_gap", Unit.NATS, "largest difference of a log-probability computed padded and unpadded"),
    ("check/kl_at_start", _TOK, "KL from the reference before the first update"),
    # responses
    ("response/length_mean", _T, "mean length of the responses"),
    ("response/length_std", _T, "standard deviation of the lengths"),
    ("response/length_min", _T, "shortest response"),
    ("response/length_max", _T, "longest response"),
    ("response/terminated_length_mean", _T, "mean length of the responses that ended by themselves"),
    ("response/finished_fraction", _F, "share of responses that ended by themselves"),
    ("response/truncated_fraction", _F, "share of responses cut off at the length limit"),
    ("response/eos_count", _N, "responses of the batch that hold an EOS token"),
    ("response/eos_fraction", _F, "share of responses that hold an EOS token"),
    ("response/empty_fraction", _F, "share of responses without text"),
    ("response/distinct_2", _F, "distinct word pairs over all word pairs"),
    ("response/repetition", _F, "mean share of repeated n-grams inside a response"),
    ("response/aborted_fraction", _F, "share of responses that the sampler gave up"),
    ("sequence/length_mean", _T, "mean length of prompt and response together"),
    ("prompt/length_mean", _T, "mean length of the prompts"),
    ("batch/duplicate_fraction", _F, "share of responses that repeat another one word for word"),
    ("batch/size", _N, "responses of a batch"),
    ("group/zero_std_fraction", _F, "share of prompts whose responses all have the same score"),
    # responses against what the preference model was trained on
    (
        "shift/distance",
        _F,
        "mean percentile of the responses' distance from the preference model's pairs; half = as they",
    ),
    ("shift/outside_fraction", _F, "share of responses beyond the 99th percentile of those distances"),
    ("shift/score_psi", _ONE, "stability index of the scores against those of the pairs, less what chance gives"),
    ("shift/auc", _F, "how well a classifier tells the responses from the pairs; half = not at all"),
    ("shift/accuracy_expected", _F, "accuracy of the preference model to expect on pairs of the responses"),
    ("shift/accuracy_by_distance", _F, "what the distances alone change in it"),
    ("shift/accuracy_by_distance_high", _F, "upper end of its interval"),
    ("accuracy/on_policy", _F, "share of labeled pairs of the policy's own responses ordered as labeled"),
    ("accuracy/on_policy_low", _F, "lower end of its interval"),
    ("accuracy/on_policy_high", _F, "upper end of its interval"),
    # preference model, supervised and direct training
    ("loss/train", _L, "training loss"),
    ("loss/principles", _L, "loss of the heads by principle"),
    ("length/score_correlation", _ONE, "correlation of the score with the response's tokens over an update"),
    ("length/head_correlation", _ONE, "the same of the head that is to hold the length"),
    ("loss/validation", _L, "loss on held-out data"),
    ("accuracy/train", _F, "share of training pairs ordered as labeled"),
    ("accuracy/validation", _F, "share of held-out pairs ordered as labeled"),
    ("accuracy/validation_low", _F, "lower end of its interval"),
    ("accuracy/validation_high", _F, "upper end of its interval"),
    ("accuracy/tokens", _F, "share of next tokens predicted"),
    ("margin/mean", _S, "mean score of chosen minus rejected"),
    ("margin/std", _S, "standard deviation of the margins"),
    ("margin/length_correlation", _ONE, "correlation of the margin with the difference in length"),
    ("calibration/ece", _F, "expected calibration error"),
    ("calibration/brier", _ONE, "mean squared error of the predicted preference"),
    ("calibration/log_loss", Unit.NATS, "log loss of the predicted preference"),
    ("calibration/temperature", _ONE, "temperature that fits the held-out margins best"),
    ("pm/score_mean", _S, "mean score of the preference model over its pairs"),
    ("pm/score_std", _S, "standard deviation of its scores"),
    ("pm/score_min", _S, "lowest score"),
    ("pm/score_max", _S, "highest score"),
    ("pm/chosen_score", _S, "mean score of the chosen responses"),
    ("pm/rejected_score", _S, "mean score of the rejected responses"),
    ("pm/pairs", _N, "pairs trained on so far"),
    ("dpo/chosen_reward", _R, "beta times the log-ratio to the reference, summed, of the chosen responses"),
    ("dpo/rejected_reward", _R, "the same of the rejected responses"),
    ("dpo/margin", _R, "chosen minus rejected reward"),
    ("dpo/accuracy", _F, "share of pairs whose chosen reward is the larger one"),
    ("dpo/chosen_change", _SEQ, "log-probability of the chosen responses less the reference's, summed"),
    ("dpo/rejected_change", _SEQ, "the same of the rejected responses"),
    ("dpo/language_loss", _L, "negative log-likelihood of the chosen responses that is mixed in"),
    ("dpo/chosen_logprob", _SEQ, "log-probability of the chosen responses, summed"),
    ("dpo/rejected_logprob", _SEQ, "log-probability of the rejected responses, summed"),
    ("gradient_norm", _ONE, "norm of the gradient before clipping"),
    ("learning_rate", _ONE, "learning rate"),
    ("tokens", _T, "tokens that counted in the loss so far"),
    ("tokens/needed", _N, "tokens of a pair, each response read with its prompt"),
    ("tokens/computed", _N, "tokens of a pair that the model computed, padding included"),
    ("precision/loss_scale", _ONE, "loss scale of float16 training"),
    ("precision/skipped_updates", _N, "updates skipped so far because a gradient was not finite"),
    ("precision/overflow", _N, "updates of this step skipped because a gradient overflowed"),
    # the judge
    ("label/pairs", _N, "pairs labeled so far"),
    ("label/verdicts", _N, "judge calls so far"),
    ("label/tie_fraction", _F, "share of verdicts that call a tie"),
    ("label/unparsed_fraction", _F, "share of verdicts that could not be read"),
    ("label/refused_fraction", _F, "share of verdicts that the judge refused"),
    ("label/error_fraction", _F, "share of judge calls that failed"),
    ("label/first_slot_fraction", _F, "share of decided verdicts for the response shown first"),
    ("label/order_flip_fraction", _F, "share of pairs whose winner changes with the order shown"),
    ("label/p_first_mean", _F, "mean label P(first response is better)"),
    ("label/gap_mean", _F, "mean distance of the labels from one half"),
    ("label/longer_wins_fraction", _F, "share of decided labels for the longer response"),
    ("label/kept_fraction", _F, "share of pairs decided enough to train on"),
    ("label/from_store_fraction", _F, "share of verdicts that the store already had"),
    ("sample/pairs", _N, "pairs sampled so far"),
    ("sample/identical_fraction", _F, "share of pairs whose two responses are the same text"),
    # measures on held-out data
    ("eval/score", _S, "mean raw score of the trained-on scorer over held-out prompts; not independent"),
    ("eval/win_rate_low", _F, "lower end of the win rate's interval"),
    ("eval/win_rate_high", _F, "upper end of the win rate's interval"),
    ("eval/prompts", _N, "held-out prompts compared"),
    ("eval/length_change", _T, "mean length of the trained policy's responses minus the reference's"),
)

_INDEPENDENT: tuple[tuple[str, Unit, str], ...] = (
    ("gold/mean", _S, "mean score of a scorer that nothing trains on"),
    ("eval/win_rate", _F, "share of held-out prompts on which the policy beats the reference"),
)

_FAMILY_TABLE: tuple[tuple[str, Unit, str, bool], ...] = (
    ("score/<component>", _S, "mean of one component of the trained-on score", False),
    ("eval/<measure>", Unit.UNKNOWN, "an independent measure on held-out data", True),
    ("held_out/<key>", Unit.UNKNOWN, "a trained-on quantity on held-out data; not independent", False),
    ("member/<key>", Unit.UNKNOWN, "the same quantity of a further member of an ensemble", False),
    ("style/<name>", _F, "how often responses show a certain style", False),
    ("label/<name>", Unit.UNKNOWN, "a figure of the labeling", False),
    ("sample/<name>", Unit.UNKNOWN, "a figure of the sampling of pairs", False),
    ("rate/<name>", Unit.UNKNOWN, "a rate of work", False),
    ("time/<name>", Unit.SECONDS, "a time", False),
    ("memory/<name>", Unit.UNKNOWN, "memory used", False),
    ("user/<name>", Unit.UNKNOWN, "what a user's own code logs", False),
)

QUANTITIES: dict[str, Quantity] = {key: Quantity(key, unit, meaning) for key, unit, meaning in _TABLE} | {
    key: Quantity(key, unit, meaning, independent=True) for key, unit, meaning in _INDEPENDENT
}
"""Every quantity that is no family, by key."""

FAMILIES: dict[str, Quantity] = {
    key.partition("<")[0]: Quantity(key, unit, meaning, independent)
    for key, unit, meaning, independent in _FAMILY_TABLE
}
"""The families, by the beginning of their keys."""


@functools.cache
def quantity(key: str) -> Quantity | None:
    """The quantity, or the family, that `key` belongs to; None: no such quantity."""
    found = QUANTITIES.get(key)
    if found is None and (slash := key.find("/")) > 0 and len(key) > slash + 1:
        found = FAMILIES.get(key[: slash + 1])
    return found


def nearest(key: str) -> str | None:
    """The known key that resembles `key` most; None where none does."""
    matches = difflib.get_close_matches(key, [*QUANTITIES, *(f.key for f in FAMILIES.values())], 1, 0.6)
    return matches[0] if matches else None
