"""Our formulas beside functions that TRL has, on random inputs of many shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bench.parity.table import Rows

SHAPES = ((1, 2), (2, 1), (1, 17), (3, 5), (8, 12), (16, 33), (64, 128))
VOCABULARY, WIDTH, EOS, PAD = 50, 16, 1, 2


def bessel(count: Tensor) -> Tensor:
    """TRL divides squared deviations by n - 1, we by n: what our whitened deviations are to be multiplied with."""
    return ((count - 1) / count).sqrt()


def masks(shape: tuple[int, int], generator: torch.Generator) -> list[Tensor]:
    """All positions, and lengths drawn from 1 to T; TRL's variance needs two positions."""
    batch, width = shape
    lengths = torch.randint(1, width + 1, (batch, 1), generator=generator)
    found = [torch.ones(shape, dtype=torch.bool), torch.arange(width) < lengths]
    return [mask for mask in found if int(mask.sum()) > 1]


def statistics(rows: Rows, seeds: int) -> None:
    """Masked means, variances, whitening."""
    from trl.experimental.ppo import ppo_trainer as trl

    from trimtab.core import masked as core

    for seed in range(seeds):
        generator = torch.Generator().manual_seed(seed)
        for shape in SHAPES:
            for mask in masks(shape, generator):
                x = torch.randn(shape, generator=generator) * 3 + seed
                n = mask.sum()
                rows.of("masked mean", "masked_mean").add(core.masked_mean(x, mask), trl.masked_mean(x, mask))
                some = mask.any(1)
                rows.of("masked mean by row", "masked_mean").add(
                    core.masked_mean(x, mask, 1)[some],
                    trl.masked_mean(x, mask, 1)[some],
                )
                ours = core.masked_var(x, mask)
                rows.of("variance", "masked_var(unbiased=False)").add(ours, trl.masked_var(x, mask, unbiased=False))
                rows.of("variance x n/(n-1)", "masked_var").add(ours * n / (n - 1), trl.masked_var(x, mask))
                theirs = trl.masked_whiten(x, mask)[mask]
                rows.of("whitened x sqrt((n-1)/n)", "masked_whiten").add(core.whiten(x, mask)[mask] * bessel(n), theirs)
                mean = core.masked_mean(x, mask)
                kept = (core.whiten(x, mask, shift_mean=False)[mask] - mean) * bessel(n) + mean
                rows.of("the same, mean kept", "masked_whiten(shift_mean=False)").add(
                    kept, trl.masked_whiten(x, mask, shift_mean=False)[mask]
                )
                if int(n) >= 96:  # a batch as small as they come
                    rows.of("whitened, as it is (96 tokens and more)", "masked_whiten", None).add(
                        core.whiten(x, mask)[mask], theirs
                    )


def logprobs(rows: Rows, seeds: int) -> None:
    """Log-probabilities of chosen tokens with their gradients, and entropies."""
    from trl.trainer.utils import entropy_from_logits, selective_log_softmax

    from trimtab.models.chosen import chosen_logprobs

    for seed in range(seeds):
        generator = torch.Generator().manual_seed(1000 + seed)
        for batch, width in SHAPES:
            for temperature in (1.0, 0.7):
                hidden = torch.randn(batch * width, WIDTH, generator=generator)
                weight = torch.randn(VOCABULARY, WIDTH, generator=generator)
                wanted = torch.randint(0, VOCABULARY, (batch * width,), generator=generator)
                gain = torch.randn(batch * width, generator=generator)
                sides = []
                for _ in range(2):
                    h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
                    sides.append((h, w))
                (h, w), (peer_h, peer_w) = sides
                ours = chosen_logprobs(h, w, wanted, temperature, want_entropy=True)
                logits = (peer_h @ peer_w.T / temperature).view(batch, width, -1)
                theirs = selective_log_softmax(logits, wanted.view(batch, width)).flatten()
                (ours.logprobs * gain).sum().backward()
                (theirs * gain).sum().backward()
                rows.of("log-probabilities", "selective_log_softmax").add(ours.logprobs, theirs)
                rows.of("their gradient to the hidden states", "autograd of it").add(_grad(h), _grad(peer_h))
                rows.of("their gradient to the head", "autograd of it").add(_grad(w), _grad(peer_w))
                assert ours.entropy is not None
                rows.of("entropy", "entropy_from_logits").add(ours.entropy, entropy_from_logits(logits).flatten())


def _grad(x: Tensor) -> Tensor:
    assert x.grad is not None
    return x.grad


def lengths(rows: Rows, seeds: int) -> None:
    """Where a response ends, told by the sampler and by TRL from the tokens."""
    from trl.experimental.ppo.ppo_trainer import truncate_response
    from trl.experimental.utils import first_true_indices

    for seed in range(seeds):
        generator = torch.Generator().manual_seed(2000 + seed)
        for shape in SHAPES:
            tokens = torch.randint(0, 8, shape, generator=generator)
            ends = tokens == EOS
            counted = (ends.cumsum(1) - ends.long() == 0).sum(1)
            for pad_is_sampled in (False, True):
                drawn = tokens if pad_is_sampled else tokens.masked_fill(tokens == PAD, 3)
                cut = truncate_response(EOS, PAD, drawn)
                theirs = first_true_indices(cut == PAD)
                name = "lengths" if not pad_is_sampled else "lengths where the pad token is sampled (tokens)"
                rows.of(name, "truncate_response, first_true_indices", None if pad_is_sampled else 0.0).add(
                    counted.double(), theirs.double()
                )


def scores(rows: Rows, seeds: int, scalar: Any) -> None:
    """A model's score of a sequence and its value at every token.

    Args:
        scalar: seed -> a transformers sequence classifier of 50 tokens.
    """
    from trl.experimental.utils import get_reward

    from trimtab.models.roles import ScalarModel

    for seed in range(seeds):
        generator = torch.Generator().manual_seed(3000 + seed)
        hf = scalar(seed)
        role = ScalarModel(hf)
        for batch, width in SHAPES[:-1]:
            prompt = 4
            ids = torch.randint(3, VOCABULARY, (batch, prompt + width), generator=generator)
            left = torch.randint(0, prompt, (batch, 1), generator=generator)
            long = torch.randint(1, width + 1, (batch, 1), generator=generator)
            at = torch.arange(prompt + width)
            mask = (at >= left) & (at < prompt + long)
            ids = ids.masked_fill(~mask, PAD)
            with torch.no_grad():
                values, last, _ = get_reward(hf, ids, PAD, prompt)
                rows.of("scores", "get_reward").add(role.score(ids, mask), last)
                rows.of("values", "get_reward").add(role.values(ids, mask)[mask], values.squeeze(-1)[mask])


def compare(rows: Rows, seeds: int, scalar: Any) -> None:
    """All of the above."""
    statistics(rows, seeds)
    logprobs(rows, seeds)
    lengths(rows, seeds)
    scores(rows, max(1, seeds // 3), scalar)
