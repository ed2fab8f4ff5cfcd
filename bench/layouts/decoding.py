"""What adapters in all layers cost while responses are sampled: none, peft's layers, and the lean ones in their place.

    python -m bench.layouts.decoding [--model DIRECTORY | --model tiny-world] [--dtype bfloat16] [--rounds 5]

Seconds a batch, the best and the median of the rounds, the three taking turns; one CPU thread.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from contextlib import nullcontext

import torch

from trimtab.config.layout import Layout, Lora
from trimtab.models import generation
from trimtab.models.lean_adapters import lean_adapters
from trimtab.models.loading import load_causal_lm
from trimtab.models.roles import CausalModel
from trimtab.training.precision import Precision
from trimtab.worlds.model import build_model


def _models(name: str, dtype: str) -> tuple[CausalModel, CausalModel]:
    """A frozen model, and a fork with adapters that are not at zero."""
    lora = Lora(16, 32.0, ())
    if name == "tiny-world":
        hf = build_model(0).to(getattr(torch, dtype))
        base = CausalModel(hf, lora=lora, compute_dtype=getattr(torch, dtype)).requires_grad_(False)
    else:
        base = load_causal_lm(name, dtype, layout=Layout(None, lora))
    policy = base.fork(trainable=True)
    drawn = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for key, parameter in policy.own_parameters():
            if ".lora_B." in key:
                parameter.copy_(torch.randn(parameter.shape, generator=drawn) * 1e-2)
    return base, policy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    base, policy = _models(options.model, options.dtype)
    precision = Precision(options.dtype)
    ids = torch.randint(base.vocabulary_size, (options.rows, options.prompt))

    def seconds(model: CausalModel, lean: bool) -> float:
        generation.lean_adapters = lean_adapters if lean else lambda hf, dtype: nullcontext()
        began = time.perf_counter()
        with precision.autocast():
            generation.generate(
                model, ids, torch.ones_like(ids, dtype=torch.bool), max_new_tokens=options.new, temperature=1.0,
                eos_ids=[], pad_id=0, generator=torch.Generator().manual_seed(1),
            )  # fmt: skip
        return time.perf_counter() - began

    arms = {"no adapters": (base, False), "peft's layers": (policy, False), "lean": (policy, True)}
    times: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(options.rounds + 1):
        for name, arm in arms.items():
            took = seconds(*arm)
            if turn:  # the first warms up
                times[name].append(took)
    for name, found in times.items():
        print(f"{name}: best {min(found):.3f} s, median {statistics.median(found):.3f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
