"""Losses on preference pairs: Bradley-Terry for a preference model, DPO for a policy."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from trimtab.core.masked import Number
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["bradley_terry_loss", "centering_loss", "dpo_loss", "ipo_loss", "principle_losses"]


def bradley_terry_loss(
    chosen: Float[Tensor, " P"],
    rejected: Float[Tensor, " P"],
    p_chosen: Float[Tensor, " P"] | None = None,
    margin: Float[Tensor, " P"] | None = None,
    label_smoothing: Number = 0.0,
    weight: Float[Tensor, " P"] | None = None,
) -> Float[Tensor, ""]:
    """Cross entropy of the labels under P(chosen > rejected) = sigmoid(chosen - rejected - margin), mean over pairs.

    Sources: Bradley and Terry (1952); margin: Touvron et al., arXiv 2307.09288.

    Args:
        chosen: [P] scores of the chosen responses.
        rejected: [P] scores of the rejected ones.
        p_chosen: [P] soft labels P(chosen > rejected) in [0, 1]; None = all 1.
        margin: [P] by how much the chosen score should lead; None = 0.
        label_smoothing: in [0, 0.5); each label p becomes (1 - s) p + s (1 - p).
        weight: [P] how much each pair counts, at least 0; None = all 1. The sum is divided by P, not by the weights:
            over minibatches of one size the pairs keep their shares. Scale them to mean 1 over the whole data.

    Returns:
        Scalar, nats a pair.

    Raises:
        TrimtabError: no pairs, a label outside [0, 1], a negative weight, or a smoothing out of range.
    """
    lead = chosen.float() - rejected.float()
    if margin is not None:
        lead = lead - margin.float()
    p = _labels(lead, p_chosen, label_smoothing)
    return _mean(-(p * logsigmoid(lead) + (1 - p) * logsigmoid(-lead)), weight)


def _labels(
    lead: Float[Tensor, " P"], p_chosen: Float[Tensor, " P"] | None, label_smoothing: Number
) -> Float[Tensor, " P"]:
    """The labels that a loss goes by, smoothed; refuses what is none."""
    if lead.numel() == 0:
        raise TrimtabError(ErrorKind.FAILED, "a preference loss over no pairs", "give at least one pair")
    if not 0 <= label_smoothing < 0.5:
        raise TrimtabError(
            ErrorKind.CONFIG, f"label_smoothing = {label_smoothing} is out of range", "it must be in [0, 0.5)"
        )
    if p_chosen is None:
        p = lead.new_ones(lead.shape)
    else:
        p = p_chosen.float()
        good = (p >= 0) & (p <= 1)
        if not bool(good.all()):
            raise TrimtabError(
                ErrorKind.DATA,
                f"p_chosen = {float(p[~good][0])} of pair {int((~good).nonzero()[0])} is no probability",
                "labels are in [0, 1]",
            )
    return (1 - label_smoothing) * p + label_smoothing * (1 - p)


def _mean(losses: Float[Tensor, " P"], weight: Float[Tensor, " P"] | None) -> Float[Tensor, ""]:
    """The weighted losses' sum over P."""
    if weight is None:
        return losses.mean()
    if not bool((weight >= 0).all()):
        raise TrimtabError(ErrorKind.DATA, "a pair has a negative weight", "weights are 0 or more")
    return (losses * weight.float()).mean()


def principle_losses(
    chosen: Float[Tensor, "P K"],
    rejected: Float[Tensor, "P K"],
    p_chosen: Float[Tensor, "P K"],
    label_smoothing: Number = 0.0,
    weight: Float[Tensor, "P K"] | None = None,
) -> Float[Tensor, " K"]:
    """The Bradley-Terry loss of each of K heads on the pairs that have a label by its principle.

    Each is divided by P, the pairs of the batch, as in `bradley_terry_loss`: give weights that are 0 where there is no
    label and have mean 1 over the whole data for every head, and each head's loss is, over the data, the mean over its
    own pairs.

    Args:
        chosen: [P, K] scores of the chosen responses by each head.
        rejected: [P, K] scores of the rejected ones.
        p_chosen: [P, K] P(chosen > rejected) by each principle, in [0, 1]; NaN = no label.
        label_smoothing: in [0, 0.5).
        weight: [P, K], at least 0; None = all 1. That of a missing label is not read.

    Returns:
        [K], nats a pair.

    Raises:
        TrimtabError: as `bradley_terry_loss`.
    """
    there = ~torch.isnan(p_chosen)
    labels = torch.where(there, p_chosen, 0.5)
    weights = there.float() if weight is None else torch.where(there, weight.float(), 0.0)
    losses = [
        bradley_terry_loss(chosen[:, k], rejected[:, k], labels[:, k], None, label_smoothing, weights[:, k])
        for k in range(chosen.shape[1])
    ]
    return torch.stack(losses) if losses else chosen.new_zeros(0)


def centering_loss(
    chosen: Float[Tensor, " P"], rejected: Float[Tensor, " P"], weight: Float[Tensor, " P"] | None = None
) -> Float[Tensor, ""]:
    """Mean over pairs of (chosen + rejected)^2, to be added to the Bradley-Terry loss with a small coefficient.

    That loss knows differences only: a number added to all scores changes nothing. This term pulls the scores of a pair
    to lie around 0. Source: Eisenstein et al., arXiv 2312.09244; TRL's `center_rewards_coefficient`.

    Args:
        chosen: [P] scores of the chosen responses.
        rejected: [P] scores of the rejected ones.
        weight: as in `bradley_terry_loss`.

    Returns:
        Scalar, in squared units of the score.

    Raises:
        TrimtabError: no pairs.
    """
    if chosen.numel() == 0:
        raise TrimtabError(ErrorKind.FAILED, "a centring term over no pairs", "give at least one pair")
    squares = (chosen.float() + rejected.float()).square()
    return squares.mean() if weight is None else (squares * weight.float()).mean()


def dpo_loss(
    policy_chosen: Float[Tensor, " P"],
    policy_rejected: Float[Tensor, " P"],
    ref_chosen: Float[Tensor, " P"],
    ref_rejected: Float[Tensor, " P"],
    beta: Number,
    p_chosen: Float[Tensor, " P"] | None = None,
    label_smoothing: Number = 0.0,
    weight: Float[Tensor, " P"] | None = None,
) -> Float[Tensor, ""]:
    """Bradley-Terry loss of the implicit scores beta (log policy - log reference).

    Source: Rafailov et al., arXiv 2305.18290.

    Args:
        policy_chosen: [P] log-probability of the whole chosen response under the trained policy, in nats.
        policy_rejected: [P] of the rejected response.
        ref_chosen: [P] of the chosen response under the reference; no gradient.
        ref_rejected: [P] of the rejected response under the reference; no gradient.
        beta: strength of the pull to the reference, positive.
        p_chosen: [P] soft labels in [0, 1]; None = all 1.
        label_smoothing: in [0, 0.5).
        weight: as in `bradley_terry_loss`.

    Returns:
        Scalar, nats a pair.

    Raises:
        TrimtabError: no pairs, a label outside [0, 1], a smoothing or a beta out of range.
    """
    if not beta > 0:
        raise TrimtabError(ErrorKind.CONFIG, f"dpo: beta = {beta} is out of range", "it must be positive")
    chosen = beta * (policy_chosen.float() - ref_chosen.detach().float())
    rejected = beta * (policy_rejected.float() - ref_rejected.detach().float())
    return bradley_terry_loss(chosen, rejected, p_chosen=p_chosen, label_smoothing=label_smoothing, weight=weight)


def ipo_loss(
    policy_chosen: Float[Tensor, " P"],
    policy_rejected: Float[Tensor, " P"],
    ref_chosen: Float[Tensor, " P"],
    ref_rejected: Float[Tensor, " P"],
    beta: Number,
    p_chosen: Float[Tensor, " P"] | None = None,
    label_smoothing: Number = 0.0,
    weight: Float[Tensor, " P"] | None = None,
) -> Float[Tensor, ""]:
    """Squared distance of the log-ratios' lead h from 1 / (2 beta), or for the other winner from -1 / (2 beta).

    With a label p it is p (h - 1 / (2 beta))^2 + (1 - p) (h + 1 / (2 beta))^2: the lead stops growing where the
    sigmoid of DPO would pull for ever. Source: Azar et al., arXiv 2310.12036, equation 17. Log-probabilities are those
    of whole responses, as there (TRL divides them by the number of tokens).

    Args:
        policy_chosen: and all others as in `dpo_loss`.

    Returns:
        Scalar, nats^2 a pair.

    Raises:
        TrimtabError: as `dpo_loss`.
    """
    if not beta > 0:
        raise TrimtabError(ErrorKind.CONFIG, f"dpo: beta = {beta} is out of range", "it must be positive")
    lead = (policy_chosen.float() - ref_chosen.detach().float()) - (
        policy_rejected.float() - ref_rejected.detach().float()
    )
    p = _labels(lead, p_chosen, label_smoothing)
    aim = 1 / (2 * beta)
    return _mean(p * (lead - aim).square() + (1 - p) * (lead + aim).square(), weight)
