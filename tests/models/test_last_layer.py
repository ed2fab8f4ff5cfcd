"""Hidden states at some tokens: the last layer is computed there alone, and gives what it gives everywhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedModel

from trimtab.models.roles import CausalModel, ScalarModel, last_column, positions_of

IDS = torch.randint(3, 40, (3, 9), generator=torch.Generator().manual_seed(5))
MASK = torch.arange(9) < torch.tensor([9, 4, 6])[:, None]


def test_the_last_column_is_the_last_real_token_on_either_side_of_the_padding() -> None:
    assert last_column(MASK).tolist() == [8, 3, 5]
    assert last_column(MASK.flip(1)).tolist() == [8, 8, 8]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "sliding"])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_states_are_the_hidden_states_at_the_columns(
    build: Callable[..., PreTrainedModel], kind: str, side: str, attention: str
) -> None:
    mask, ids = (MASK, IDS) if side == "right" else (MASK.flip(1), IDS.flip(1))
    hf = build(kind, attn_implementation=attention)
    model = ScalarModel.from_causal(CausalModel(hf.eval()), 0.5, generator=torch.Generator().manual_seed(1))
    at = torch.tensor([[8, 2], [3, 1], [5, 5]]) if side == "right" else torch.tensor([[8, 2], [8, 6], [8, 8]])
    with torch.no_grad():
        everywhere = model.hidden(ids, mask)
        torch.testing.assert_close(model.states(ids, mask, at), everywhere[torch.arange(3)[:, None], at])


@pytest.mark.parametrize("boundary", [0, 1, 2, 3])
def test_states_go_on_from_the_trunk(build: Callable[..., PreTrainedModel], boundary: int) -> None:
    model = ScalarModel.from_causal(CausalModel(build().eval(), boundary), 0.5)
    with torch.no_grad():
        expected = model.hidden(IDS, MASK)[torch.arange(3), last_column(MASK)]
        found = model.features(IDS, MASK, trunk=model.trunk(IDS, MASK))
    torch.testing.assert_close(found, expected)


def test_who_sees_whom_holds_in_the_last_layer_too(build: Callable[..., PreTrainedModel]) -> None:
    """Two rows with a common start in one row of a batch."""
    model = ScalarModel.from_causal(CausalModel(build().eval()), 0.5)
    first, second = [4, 9, 8, 30], [4, 9, 11]
    packed = torch.tensor([[4, 9, 8, 30, 11]])
    positions = torch.tensor([[0, 1, 2, 3, 2]])
    sees = torch.ones(5, 5, dtype=torch.bool).tril()
    sees[4, 2:4] = False
    with torch.no_grad():
        found = model.states(packed, sees[None], torch.tensor([[3, 4]]), positions)[0]
        for row, state in zip((first, second), found, strict=True):
            ids = torch.tensor([row])
            torch.testing.assert_close(state, model.hidden(ids, torch.ones_like(ids, dtype=torch.bool))[0, -1])


def test_gradients_are_those_of_the_whole_layer(build: Callable[..., PreTrainedModel]) -> None:
    model = ScalarModel.from_causal(CausalModel(build().eval()), 0.5)
    model.score(IDS, MASK).square().sum().backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    at = torch.arange(3), last_column(MASK)
    model.scalars(model.hidden(IDS, MASK)[at]).square().sum().backward()
    expected = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        # sums over tokens in another order: compared against the largest entry
        assert (found[name] - gradient).abs().max() <= 1e-5 * gradient.abs().max(), name


def test_the_last_layers_mlp_sees_only_what_is_read(build: Callable[..., PreTrainedModel]) -> None:
    model = ScalarModel.from_causal(CausalModel(build().eval()), 0.5)
    widths: list[list[int]] = []
    for layer in model.backbone.body.layers:
        layer.mlp.register_forward_hook(lambda _module, inputs, _out: widths.append(list(inputs[0].shape[:2])))
    with torch.no_grad():
        model.score(IDS, MASK)
    assert widths == [[3, 9], [3, 9], [3, 1]]


def test_positions_are_handed_on(build: Callable[..., PreTrainedModel]) -> None:
    model = ScalarModel.from_causal(CausalModel(build().eval()), 0.5)
    at, shifted = last_column(MASK)[:, None], positions_of(MASK) * 2
    with torch.no_grad():
        found = model.states(IDS, MASK, at, shifted)
        expected = model.hidden(IDS, MASK, shifted)[torch.arange(3)[:, None], at]
    torch.testing.assert_close(found, expected)


def test_a_layer_that_hands_nothing_to_a_cache_is_computed_everywhere(
    build: Callable[..., PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScalarModel.from_causal(CausalModel(build().eval()), 0.5)
    attention = type(model.backbone.body.layers[0].self_attn)
    forward = attention.forward
    monkeypatch.setattr(attention, "forward", lambda self, *args, cache=None, **rest: forward(self, *args, **rest))
    with torch.no_grad():
        expected = model.hidden(IDS, MASK)[torch.arange(3), last_column(MASK)]
        torch.testing.assert_close(model.features(IDS, MASK), expected)
