"""What an update keeps for its backward pass: counted beforehand (ppo.micro_batch_size = "auto"), and as it is.

    python -m bench.ppo.activations [--model DIRECTORY] [--dtype bfloat16] [--rows 6] [--prompt 128] [--new 64]

Two processes of one update each, without and with `ppo.recompute`, on one CPU thread (Linux: it reads /proc).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

from trimtab.config.schema import PPOConfig
from trimtab.models.loading import load_causal_lm
from trimtab.models.logprobs import response_logprobs
from trimtab.ppo.memory import update_memory
from trimtab.training.precision import Precision

_MIB = 2**20


def _status(key: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) * 1024


def measure(options: argparse.Namespace) -> dict[str, float | bool]:
    """One update of a policy in this process; MiB and seconds."""
    torch.set_num_threads(1)
    precision = Precision(options.dtype)
    policy = load_causal_lm(options.model, options.dtype).fork(trainable=True)
    policy.backbone.recompute = options.worker == "recompute"
    started = time.perf_counter()
    counted = update_memory(PPOConfig(max_new_tokens=options.new), policy, precision, options.prompt)
    counting = time.perf_counter() - started
    for parameter in policy.trainable_parameters():
        parameter.grad = torch.zeros_like(parameter)
    ids = torch.randint(policy.vocabulary_size, (options.rows, options.prompt + options.new))
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    before, started = _status("VmRSS"), time.perf_counter()
    with precision.autocast():
        found = response_logprobs(policy, ids, torch.ones_like(ids, dtype=torch.bool), options.prompt, 1.0)
    held = _status("VmRSS") - before
    found.logprobs.mean().backward()
    return {
        "recompute": policy.backbone.recompute,
        "counted_fixed": counted.fixed / _MIB,
        "counted_per_response": counted.per_row / _MIB,
        "counted": (counted.fixed + options.rows * counted.per_row) / _MIB,
        "held_after_forward": held / _MIB,
        "peak": (_status("VmHWM") - before) / _MIB,
        "update_s": time.perf_counter() - started,
        "counting_s": counting,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rows", type=int, default=6)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--worker", choices=["keep", "recompute"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        print(json.dumps(measure(options)))
        return 0
    for worker in ("keep", "recompute"):
        command = [sys.executable, "-m", "bench.ppo.activations", *sys.argv[1:], "--worker", worker]
        out = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ).stdout
        row = json.loads(out)
        print(", ".join(f"{k} {v:.1f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
