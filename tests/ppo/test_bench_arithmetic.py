"""What the benchmarks say an iteration has to compute and to hold, against what it does compute and hold."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from bench.ppo.arithmetic import PHASES, Shape, flops, kept_bytes, memory_bytes, optimiser_bytes  # noqa: E402
from bench.ppo.common import Case, Llama, causal, train  # noqa: E402
from bench.ppo.phases import GROUPS, REST, Phases, group_of  # noqa: E402

from trimtab.config.layout import Layout  # noqa: E402
from trimtab.models.roles import CausalModel, ScalarModel  # noqa: E402

LLAMA = Llama(vocabulary=64, width=32, layers=3, heads=4, key_heads=2, inner=48)
LAYOUTS = ("full", "top:1", "lora", "lora-top:1")


def shape_of(layout: str, llama: Llama = LLAMA) -> Shape:
    parsed = Layout.parse(layout)
    return Shape.of(llama.config(), parsed.boundary(llama.layers), 0 if parsed.lora is None else parsed.lora.rank)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_phase_computes_what_the_arithmetic_says(layout: str, precision: str) -> None:
    case = Case(LLAMA, precision, batch=3, prompt=5, response=4)
    phases, counted = Phases(), []

    def after() -> None:
        found = phases.close()[1]
        if counted:
            counted[0] = found
            phases.count(on=False)
        else:
            counted.append({})
            phases.count(on=True)

    with phases:
        train(case, layout, 2, after)
    assert {name: counted[0].get(name, 0) for name in PHASES} == flops(shape_of(layout), case)
    assert counted[0].get(REST, 0) == 0


def test_functions_are_their_own_again_after_the_phases() -> None:
    from trimtab.ppo import update

    before = (update._step, torch.Tensor.backward)
    with Phases():
        assert update._step is not before[0]
    assert (update._step, torch.Tensor.backward) == before


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numbers_and_trained_numbers_are_those_of_the_model(layout: str) -> None:
    parsed = Layout.parse(layout)
    base = CausalModel(causal(Case(LLAMA, "float32", 1, 1, 1)), parsed.boundary(LLAMA.layers), lora=parsed.lora)
    policy, value = base.fork(trainable=True), ScalarModel.from_causal(base)
    shape = shape_of(layout)
    assert shape.numbers == sum(p.numel() for p in base.parameters())
    assert shape.trained == sum(p.numel() for p in policy.trainable_parameters())
    both = sum(p.numel() for role in (policy, value) for p in role.trainable_parameters())
    assert optimiser_bytes(shape) == 4 * 32 * both


@pytest.mark.parametrize(("width", "inner", "length"), [(64, 160, 32), (96, 96, 16)])
def test_a_backward_pass_keeps_about_what_the_arithmetic_says(width: int, inner: int, length: int) -> None:
    llama = Llama(vocabulary=64, width=width, layers=6, heads=4, inner=inner)
    model, batch = CausalModel(causal(Case(llama, "float32", 1, 1, 1))), 8
    kept: dict[int, int] = {}
    held = []

    def keep(x: torch.Tensor) -> torch.Tensor:
        held.append(x)  # else a new tensor may take its place
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    ids = torch.randint(0, 64, (batch, length))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        model.hidden(ids, torch.ones_like(ids, dtype=torch.bool))
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    real = sum(size for place, size in kept.items() if place not in weights)
    case = Case(llama, "float32", batch, length // 2, length // 2)
    assert 0.9 < real / kept_bytes(Shape.of(llama.config()), case) < 1.1


def test_memory_of_whole_models_grows_by_forty_bytes_a_number() -> None:
    # float32: four roles' weights, two roles' gradients and moments; a layer more, at next to no activations
    case = Case(LLAMA, "float32", batch=1, prompt=1, response=1)
    one, two = (shape_of("full", Llama(64, 32, layers, 4, 2, 48)) for layers in (1, 2))
    more = memory_bytes(two, case) - memory_bytes(one, case) - kept_bytes(one, case)
    assert more == 40 * (two.numbers - one.numbers)
    with pytest.raises(ValueError, match="whole models"):
        memory_bytes(shape_of("top:1"), case)


def test_operators_are_told_apart() -> None:
    of = {
        "aten::mm": "matrix products", "aten::addmm_": "matrix products", "aten::linear": "dispatch",
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward": "attention", "aten::logsumexp": "softmax",
        "aten::mul": "elementwise", "aten::silu_backward": "elementwise", "aten::_fused_adamw_": "optimiser",
        "aten::copy_": "memory", "autograd::engine::evaluate_function: MmBackward0": "dispatch",
    }  # fmt: skip
    assert {name: group_of(name) for name in of} == of
    assert set(of.values()) | {"python"} == set(GROUPS)
