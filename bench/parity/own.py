"""Our fast forms beside slow ones: log-probabilities in chunks, and roles that share their lower layers."""

from __future__ import annotations

import copy
from unittest import mock

import torch
from torch import Tensor, nn

from bench.parity.models import causal
from bench.parity.table import Rows

SHAPES = ((1, 7, 4), (5, 33, 8), (40, 100, 16), (64, 1000, 32), (16, 50_000, 256))
"""Rows, vocabulary, width."""
NARROW = (16, 50_000, 24)
"""Where a product of a few rows over the vocabulary is as inexact as the machine's BLAS: in either form."""


def _naive(hidden: Tensor, weight: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    logits = (hidden @ weight.T).to(torch.promote_types(hidden.dtype, torch.float32)) / temperature
    return logits.log_softmax(-1).gather(-1, wanted[:, None]).squeeze(-1)


def chunked(rows: Rows, seeds: int) -> None:
    """Forward and backward in float32 against the naive form; in bfloat16 both against float64 on the same numbers."""
    from trimtab.models import chosen

    for seed in range(seeds):
        for shape in (*SHAPES, NARROW):
            for trained in (True, False):
                for kept in (chosen.KEPT_LOGITS, 0):  # the backward pass has the probabilities, or makes them again
                    for dtype in (torch.float32, torch.bfloat16):
                        with (
                            mock.patch.object(chosen, "CHUNK_LOGITS", 3 * shape[1]),
                            mock.patch.object(chosen, "KEPT_LOGITS", kept),
                        ):
                            _chunked(rows, seed, shape, trained, dtype)


def _chunked(rows: Rows, seed: int, shape: tuple[int, int, int], trained: bool, dtype: torch.dtype) -> None:
    from trimtab.models.chosen import chosen_logprobs

    count, vocabulary, width = shape
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(count, width, generator=generator).to(dtype)
    weight = torch.randn(vocabulary, width, generator=generator).to(dtype)
    wanted = torch.randint(0, vocabulary, (count,), generator=generator)
    gain = torch.randn(count, generator=generator)

    def run(form: str, kind: torch.dtype) -> list[Tensor]:
        # copies, whatever `to` does: the forms must not share their gradients
        h, w = (x.to(kind, copy=True) for x in (hidden, weight))
        h.requires_grad_()
        w.requires_grad_(trained)
        found = chosen_logprobs(h, w, wanted, 0.7).logprobs if form == "chunked" else _naive(h, w, wanted, 0.7)
        (found * gain).sum().backward()
        return [found, *(x.grad for x in (h, w) if x.grad is not None)]

    exact = run("naive", torch.float64)
    forms = {form: run(form, dtype) for form in ("chunked", "naive")}
    for number, what in enumerate(("log-probabilities", "gradient to the hidden states", "gradient to the head")):
        if number >= len(exact):
            continue
        if dtype == torch.float32 and shape == NARROW:
            for form, found in forms.items():
                rows.of(f"{form} {what}, float32, width 24", "float64", None).add(found[number], exact[number])
        elif dtype == torch.float32:
            rows.of(f"chunked {what}", "naive").add(forms["chunked"][number], forms["naive"][number])
        else:
            for form, found in forms.items():
                rows.of(f"{form} {what}, bfloat16", "float64", None).add(found[number], exact[number])


def trunk(rows: Rows, seeds: int) -> None:
    """Policy, reference and value model on shared layers against whole models of their own with equal weights."""
    from trimtab.models.logprobs import response_logprobs
    from trimtab.models.roles import CausalModel, ScalarModel

    layers, width = 4, 6
    for seed in range(seeds):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(3, 60, (5, width + 9), generator=generator)
        left = torch.randint(0, width, (5, 1), generator=generator)
        end = torch.randint(width + 1, width + 10, (5, 1), generator=generator)
        mask = (torch.arange(ids.shape[1]) >= left) & (torch.arange(ids.shape[1]) < end)
        for boundary in range(1, layers + 1):
            base = CausalModel(causal(60, seed, layers), boundary)
            policy, reference = base.fork(trainable=True), base.fork(trainable=False)
            value = ScalarModel.from_causal(base, generator=generator)
            for role in (policy, value):
                _move(role, generator)
            known = policy.trunk(ids, mask)
            for name, role in (("policy", policy), ("reference", reference)):
                alone = CausalModel(copy.deepcopy(role.hf))
                with torch.no_grad():
                    shared = response_logprobs(role, ids, mask, width, 0.7, trunk=known).logprobs
                    whole = response_logprobs(alone, ids, mask, width, 0.7).logprobs
                rows.of(f"one trunk: log-probabilities of the {name}", "a model of its own", 0.0).add(
                    shared[mask[:, width:]], whole[mask[:, width:]]
                )
            alone_value = ScalarModel(copy.deepcopy(value.hf))
            with torch.no_grad():
                pair = value.values(ids, mask, trunk=known)[mask], alone_value.values(ids, mask)[mask]
            rows.of("one trunk: values", "a model of its own", 0.0).add(*pair)


def _move(role: nn.Module, generator: torch.Generator) -> None:
    with torch.no_grad():
        for parameter in role.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)


def compare(rows: Rows, seeds: int) -> None:
    """All of the above."""
    chunked(rows, seeds)
    trunk(rows, seeds)
