"""Memory of policy, reference, value model and preference model in each layout of `model.trainable`.

    python -m bench.layouts.memory [--model NAME] [--dtype bfloat16] [--rank 16] [LAYOUT ...]

The roles are made as PPO makes them, without memory (on torch's meta device), and their tensors counted, each once:
"LAYOUT + head" trains the head as well (`model.train_head`). `weights`, with what is frozen in --dtype and what is
trained in float32; `gradients`, 4 bytes a trained number, and `Adam`, 8, of policy and value model. Activations are
not in it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import AutoModelForCausalLM

from trimtab.config.layout import Layout, Lora
from trimtab.models.heads import untie
from trimtab.models.loading import DTYPES, load_config
from trimtab.models.roles import CausalModel, Role, ScalarModel

LAYOUTS = ("full", "top:8", "top:4", "lora", "lora-top:8", "lora-top:4", "top:8 + head", "lora-top:8 + head")


class Memory(NamedTuple):
    """`trained`: numbers that the policy trains; the others are bytes."""

    trained: int
    weights: int
    gradients: int
    adam: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.adam


def measure(name: str, dtype: torch.dtype, layout: Layout) -> Memory:
    """Count the tensors of the four roles."""
    config = load_config(name)
    with torch.device("meta"):
        hf = AutoModelForCausalLM.from_config(config, dtype=dtype)
    if layout.head:
        untie(hf)
    layers = int(config.get_text_config().num_hidden_layers)
    reference = CausalModel(hf, layout.boundary(layers), lora=layout.lora, compute_dtype=dtype, probe=False)
    reference.requires_grad_(False)
    policy, value = reference.fork(trainable=True), ScalarModel.from_causal(reference, "zero")
    preference = ScalarModel.from_causal(reference, "zero")
    for _, parameter in preference.own_parameters():  # frozen again, as it is loaded
        parameter.data = parameter.data.to(dtype)
        parameter.requires_grad_(False)
    trained = _numbers([policy, value])
    return Memory(_numbers([policy]), _bytes([reference, policy, value, preference]), 4 * trained, 8 * trained)


def _bytes(roles: Sequence[Role]) -> int:
    weights = {id(p): p for role in roles for p in role.hf.parameters()}
    return sum(p.numel() * p.element_size() for p in weights.values())


def _numbers(roles: Sequence[Role]) -> int:
    return sum(p.numel() for role in roles for p in role.trainable_parameters())


def table(name: str, dtype: str, rank: int, layouts: Sequence[str]) -> str:
    """A row a layout, sizes in MB (10^6 bytes)."""
    lines = [
        "| `model.trainable` | numbers trained | weights, MB | gradients, MB | Adam, MB | together, MB | of full |",
        "|---|---|---|---|---|---|---|",
    ]
    full = measure(name, DTYPES[dtype], Layout.parse("full")).total
    for text in layouts:
        layout, _, head = text.partition(" + ")
        found = measure(name, DTYPES[dtype], Layout.parse(layout, Lora(rank, 2.0 * rank), head == "head"))
        sizes = " | ".join(f"{size / 1e6:,.0f}" for size in (found.weights, found.gradients, found.adam, found.total))
        lines.append(f"| `{text}` | {found.trained:,} | {sizes} | {found.total / full:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layouts", nargs="*", default=LAYOUTS)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--dtype", default="bfloat16", choices=DTYPES)
    parser.add_argument("--rank", type=int, default=16)
    arguments = parser.parse_args()
    print(table(arguments.model, arguments.dtype, arguments.rank, arguments.layouts))


if __name__ == "__main__":
    main()
