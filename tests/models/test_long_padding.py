"""Padded batches whose mask [B, L, L] would be too large."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trimtab.models import backbone
from trimtab.models.backbone import Decoder
from trimtab.models.generation import generate
from trimtab.models.logprobs import response_logprobs
from trimtab.models.roles import CausalModel, ScalarModel

WIDTH = 9


@pytest.fixture
def padded() -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts of 9, 4 and 1 tokens, responses of 3, 6 and 1."""
    ids = torch.randint(3, 40, (3, WIDTH + 6), generator=torch.Generator().manual_seed(0))
    at = torch.arange(WIDTH + 6)
    start, end = torch.tensor([[0], [5], [8]]), torch.tensor([[3], [6], [1]]) + WIDTH
    return ids, (at >= start) & (at < end)


class Largest(TorchDispatchMode):
    """The largest tensor that an operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, torch.Tensor):
                self.elements = max(self.elements, x.numel())
        return out


@pytest.mark.parametrize("boundary", [0, 2])
@pytest.mark.parametrize("recompute", [False, True])
def test_rows_alone_give_what_a_masked_batch_gives_and_its_gradients(build, padded, monkeypatch, boundary, recompute):
    ids, mask = padded
    found = []
    roles = [CausalModel(build(), boundary).fork(trainable=True) for _ in range(2)]
    for role, limit in zip(roles, (backbone.MASK_ELEMENTS, 1), strict=True):
        monkeypatch.setattr(backbone, "MASK_ELEMENTS", limit)
        role.backbone.recompute = recompute
        logprobs = response_logprobs(role, ids, mask, WIDTH, 0.7).logprobs[mask[:, WIDTH:]]
        logprobs.sum().backward()
        found.append((logprobs, [p.grad for p in role.trainable_parameters()]))
    (one, its), (other, others) = found
    assert torch.allclose(one, other, atol=1e-5, rtol=0)
    for a, b in zip(its, others, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.allclose(a, b, atol=1e-4, rtol=1e-5)


def test_scores_too(build, padded, monkeypatch):
    ids, mask = padded
    role = ScalarModel.from_causal(CausalModel(build()), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        whole = role.score(ids, mask)
        monkeypatch.setattr(backbone, "MASK_ELEMENTS", 1)
        assert torch.allclose(role.score(ids, mask), whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize("limit", [1, 3 * WIDTH * 2, 3 * WIDTH * WIDTH - 1])
def test_a_prompt_read_in_pieces_is_answered_as_if_read_at_once(build, padded, monkeypatch, limit):
    ids, mask = padded[0][:, :WIDTH], padded[1][:, :WIDTH]
    model = CausalModel(build())

    def sample():
        return generate(
            model, ids, mask, max_new_tokens=6, temperature=1.0, eos_ids={2}, pad_id=0, responses_per_prompt=2,
            generator=torch.Generator().manual_seed(3),
        )  # fmt: skip

    whole = sample()
    monkeypatch.setattr(backbone, "MASK_ELEMENTS", limit)
    pieces = []
    by_pieces = Decoder._prefill_by_pieces
    monkeypatch.setattr(Decoder, "_prefill_by_pieces", lambda *args: pieces.append(1) or by_pieces(*args))
    parts = sample()
    assert pieces
    assert torch.equal(whole.tokens, parts.tokens)
    assert torch.allclose(whole.logprobs, parts.logprobs, atol=1e-5, rtol=0)


def test_no_mask_of_all_pairs_is_made(build, monkeypatch):
    length = 1024
    model = CausalModel(build(max_position_embeddings=length + 8)).fork(trainable=True)
    monkeypatch.setattr(backbone, "MASK_ELEMENTS", 2**18)
    ids = torch.randint(3, 40, (2, length), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[0, :300] = False
    with Largest() as largest:
        response_logprobs(model, ids, mask, length - 4, 1.0).logprobs.sum().backward()
        with torch.no_grad():
            Decoder(model.backbone, mask, length + 4).prefill(ids)
    assert largest.elements < length * length


def test_padding_inside_a_row_is_no_row(build, padded, monkeypatch):
    ids, mask = padded
    mask[0, 3] = False
    model = CausalModel(build())
    monkeypatch.setattr(backbone, "MASK_ELEMENTS", 1)
    with pytest.raises(ValueError, match="row 0 has padding inside it"):
        model.hidden(ids, mask)
