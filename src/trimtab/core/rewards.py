"""From scores to rewards.

Order: the **score** is normalised, transformed, clipped, penalised; KL is subtracted; the **reward** is whitened.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trimtab.core.masked import Number, keep, masked_mean, masked_sum, require_counted
from trimtab.errors import ErrorKind, TrimtabError

__all__ = [
    "clip_outliers",
    "clip_scores",
    "penalise",
    "sequence_rewards",
    "token_rewards",
    "transform_scores",
    "win_probability",
]


def _at_last_token(amounts: Float[Tensor, " B"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """`amounts` at the last counted position of each row, 0 elsewhere; a row that counts nothing gets nothing."""
    # counted from the right, the last True is the only one whose running count is 1
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return keep(amounts.unsqueeze(1).expand(mask.shape), last)


def token_rewards(
    scores: Float[Tensor, " B"],
    kl: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    beta: Number,
) -> Float[Tensor, "B T"]:
    """Rewards a token: -beta KL on every response token, plus the score on the last one (EOS, where there is one).

    The penalty is **subtracted** from the reward. Source: Stiennon et al., arXiv 2009.01325.

    Args:
        scores: [B] one a response.
        kl: [B, T] nats a token.
        mask: [B, T].
        beta: KL coefficient, score units a nat.

    Returns:
        [B, T], 0 where the mask is False. A row that counts nothing has no place for its score.

    Raises:
        TrimtabError: the mask is False everywhere.
    """
    require_counted(mask)
    return _at_last_token(scores.float(), mask) - beta * keep(kl, mask)


def sequence_rewards(
    scores: Float[Tensor, " B"],
    kl: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    beta: Number,
    reduce: str = "sum",
) -> Float[Tensor, "B T"]:
    """One reward a response, score - beta KL, on its last token.

    Args:
        scores: [B] one a response.
        kl: [B, T] nats a token.
        mask: [B, T].
        beta: KL coefficient, score units a nat.
        reduce: KL of a response is the "sum" (nats a sequence) or the "mean" (nats a token) over its tokens.

    Returns:
        [B, T], 0 except on the last counted token of each row.

    Raises:
        TrimtabError: the mask is False everywhere, or an unknown `reduce`.
    """
    require_counted(mask)
    if reduce not in ("sum", "mean"):
        raise TrimtabError(ErrorKind.CONFIG, f'KL of a response cannot be reduced by "{reduce}"', 'use "sum" or "mean"')
    per_response = masked_sum(kl, mask, 1) if reduce == "sum" else masked_mean(kl, mask, 1)
    return _at_last_token(scores.float() - beta * per_response, mask)


def penalise(
    scores: Float[Tensor, " B"],
    lengths: Int[Tensor, " B"],
    finished: Bool[Tensor, " B"],
    length_penalty: Number = 0.0,
    missing_eos_penalty: Number = 0.0,
) -> Float[Tensor, " B"]:
    """Scores less `length_penalty` for every response token and `missing_eos_penalty` where the response was cut off.

    Args:
        scores: [B].
        lengths: [B] response tokens, EOS included.
        finished: [B] True where the response ended with an EOS token of its own.
        length_penalty: score units a token.
        missing_eos_penalty: score units; subtracted, it does not replace the score.

    Returns:
        [B].
    """
    cut_off = (~finished).float()
    return scores.float() - length_penalty * lengths.float() - missing_eos_penalty * cut_off


def transform_scores(scores: Float[Tensor, " B"], transform: str) -> Float[Tensor, " B"]:
    """Bounded or compressing shape of a score; all are increasing.

    Args:
        scores: [B].
        transform: "none"; "tanh" to (-1, 1); "sigmoid" to (0, 1); "log" = sign(s) log(1 + |s|), odd and unbounded.

    Returns:
        [B].

    Raises:
        TrimtabError: an unknown transform.
    """
    scores = scores.float()
    if transform == "none":
        return scores
    if transform == "tanh":
        return torch.tanh(scores)
    if transform == "sigmoid":
        return torch.sigmoid(scores)
    if transform == "log":
        return torch.sign(scores) * torch.log1p(scores.abs())
    raise TrimtabError(
        ErrorKind.CONFIG, f'no score transform "{transform}"', 'there are "none", "tanh", "sigmoid", "log"'
    )


def win_probability(scores: Float[Tensor, " B"], reference_scores: Float[Tensor, "B N"]) -> Float[Tensor, " B"]:
    """Probability that a response beats a reference's response to the same prompt: the mean of sigmoid(r - r_n) over n.

    Args:
        scores: [B] Bradley-Terry scores.
        reference_scores: [B, N] scores of N responses of the reference to the same prompts.

    Returns:
        [B] in [0, 1].

    Raises:
        TrimtabError: N is 0.
    """
    if reference_scores.shape[1] == 0:
        raise TrimtabError(ErrorKind.FAILED, "no reference responses to compare with", "sample at least one a prompt")
    return torch.sigmoid(scores.float().unsqueeze(1) - reference_scores.float()).mean(dim=1)


def clip_outliers(scores: Float[Tensor, " B"], sds: Number) -> tuple[Float[Tensor, " B"], float]:
    """Move scores that are far from the rest to the edge of the rest.

    The centre is the median, the deviation 1.4826 times the median absolute deviation (that of a normal distribution
    with the same quartiles): neither is moved by the outliers themselves. Where more than half of the scores are equal
    that deviation is 0 and says nothing; the scores are then returned as they are.

    Args:
        scores: [B] raw scores.
        sds: how many deviations a score may lie from the median, above 0.

    Returns:
        The scores [B], and the share of them that was moved.

    Raises:
        TrimtabError: `sds` is not above 0.
    """
    if not sds > 0:
        raise TrimtabError(ErrorKind.CONFIG, f"score_outlier_sds = {sds}", "it must be above 0")
    # quantile, not median: of an even number of scores torch's median is the lower middle one
    centre = scores.quantile(0.5)
    reach = sds * 1.4826 * (scores - centre).abs().quantile(0.5)
    if float(reach) == 0.0:
        return scores, 0.0
    clipped = scores.clamp(centre - reach, centre + reach)
    return clipped, float((clipped != scores).float().mean())


def clip_scores(scores: Float[Tensor, " B"], limit: Number | None) -> Float[Tensor, " B"]:
    """Scores cut to [-limit, limit]; None = as they are.

    Raises:
        TrimtabError: the limit is not positive.
    """
    if limit is None:
        return scores.float()
    if not limit > 0:
        raise TrimtabError(ErrorKind.CONFIG, f"score_clip = {limit} is out of range", "it must be positive")
    return scores.float().clamp(-limit, limit)
