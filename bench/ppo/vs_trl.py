"""PPO against TRL's PPOTrainer: response tokens a second and peak memory for the same work.

    python -m bench.ppo.vs_trl --trl DIR [--case random,smollm2] [--layouts top:8,lora-top:8] [--runs 3] [--json FILE]

Needs TRL 1.12, the last release with PPO (pip download --no-deps trl==1.12.0, unzipped to DIR), datasets, accelerate.

The same on both sides: model, weights, computation in float32 or in bfloat16 under autocast with float32 weights and
optimiser state, batch, prompt and response length (no EOS: all responses are full), 4 epochs of 1 minibatch, separate
value and reward models of the policy's size, all weights trained by AdamW. Each run is a process of its own, the sides
in turn; the first iteration is left out; figures are medians. Memory: largest resident set less that after the imports.
With --pure the peer holds weights and optimiser state in bfloat16, which is half of the memory and other arithmetic.
`--layouts` adds our runs with shared layers: the same algorithm, less of the model trained.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.ppo.common import (
    CASES,
    EPOCHS,
    RATE,
    TEMPERATURE,
    Case,
    causal,
    figures,
    prompt_ids,
    spawn,
    tokenizer,
    train,
)
from bench.preference.vs_trl import Clock


def ours(case: Case, options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    import torch

    import trimtab.ppo
    import trimtab.preference  # noqa: F401 - what is imported now is not counted as the training's memory

    clock.start()
    torch.set_num_threads(options.threads)
    history = train(case, options.layout, options.iterations, clock.tick)
    parts = {
        part: statistics.median(row[f"time/{part}_s"] for row in history[1:]) for part in ("rollout", "score", "update")
    }
    return figures(case, clock) | parts


def theirs(case: Case, options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    clock.start()
    torch.set_num_threads(options.threads)
    words = tokenizer(case)
    if words.pad_token_id is None:
        words.pad_token = words.eos_token
    policy = causal(case)

    def scalar() -> Any:
        config = policy.config.__class__.from_dict(policy.config.to_dict() | {"num_labels": 1})
        config.pad_token_id = words.pad_token_id
        model = AutoModelForSequenceClassification.from_config(config)
        getattr(model, model.base_model_prefix).load_state_dict(policy.base_model.state_dict())
        return model

    reference = causal(case)
    models = [policy, reference, scalar(), scalar()]
    for model in models:
        # responses are to be full: no token ends one
        if getattr(model, "generation_config", None) is not None:
            model.generation_config.eos_token_id = None
        model.config.eos_token_id = words.eos_token_id
    low = case.precision == "bfloat16"
    if low and options.pure:
        models = [model.to(torch.bfloat16) for model in models]
    data = Dataset.from_dict({"input_ids": prompt_ids(case, case.batch * options.iterations, len(words))})
    with tempfile.TemporaryDirectory() as directory:
        arguments = PPOConfig(
            output_dir=directory, per_device_train_batch_size=case.batch, gradient_accumulation_steps=1,
            num_mini_batches=1, num_ppo_epochs=EPOCHS, total_episodes=case.batch * options.iterations,
            response_length=case.response, local_rollout_forward_batch_size=case.batch, num_sample_generations=0,
            report_to=[], save_strategy="no", bf16=low and not options.pure, use_cpu=True, temperature=TEMPERATURE,
            learning_rate=RATE, logging_steps=1, disable_tqdm=True, gradient_checkpointing=False,
            optim="adamw_torch_fused",
        )  # fmt: skip

        class Trainer(PPOTrainer):  # type: ignore[misc]
            def log(self, *_: Any, **__: Any) -> None:
                clock.tick()

        trainer = Trainer(
            args=arguments, processing_class=words, model=models[0], ref_model=models[1], reward_model=models[2],
            value_model=models[3], train_dataset=data, eval_dataset=data,
        )  # fmt: skip
        trainer.train()
    return figures(case, clock)


def run(side: str, name: str, layout: str, options: argparse.Namespace) -> dict[str, Any] | None:
    """One side in a process of its own; None: it failed, which is told on stderr."""
    arguments = [
        f"--worker={side}", f"--case={name}", f"--layout={layout}", f"--iterations={options.iterations}",
        *(["--pure"] if options.pure else []),
    ]  # fmt: skip
    paths = os.pathsep.join(p for p in (options.trl, os.environ.get("PYTHONPATH")) if p)
    more = {"TRL_EXPERIMENTAL_SILENCE": "1", "PYTHONPATH": paths}
    return spawn("bench.ppo.vs_trl", arguments, options.threads, f"{side} ({name})", more)


def compare(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """All sides of a case in turn, `options.runs` times, and their medians."""
    layouts = [] if name == "random" else [x for x in options.layouts.split(",") if x]
    sides = [("ours", "full"), ("trl", "full"), *(("ours", layout) for layout in layouts)]
    runs: dict[str, list[dict[str, Any]]] = {}
    for number in range(options.runs):
        for side, layout in sides if number % 2 == 0 else sides[::-1]:
            if side == "trl" and not options.trl:
                continue
            label = "trl" if side == "trl" else layout
            if found := run(side, name, layout, options):
                runs.setdefault(label, []).append(found)
                parts = " ".join(
                    f"{part} {found[part]:.2f}" for part in ("rollout", "score", "update") if part in found
                )
                print(
                    f"  {name} {label:10} {found['tokens_per_s']:7.1f} tokens/s {found['gib']:5.2f} GiB  {parts}",
                    flush=True,
                )
    medians = {
        label: {key: statistics.median(run[key] for run in found) for key in ("tokens_per_s", "gib")}
        for label, found in runs.items()
    }
    if "trl" in medians:
        for label, found in medians.items():
            if label != "trl":
                speed, memory = (found[key] / medians["trl"][key] for key in ("tokens_per_s", "gib"))
                print(f"{name}, {label}: {speed:.2f} times TRL's tokens a second with {memory:.2f} of its memory")
    return {"medians": medians, "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl", default="", help="directory that trl was unzipped to")
    parser.add_argument("--case", default="random,smollm2", help=f"of {', '.join(CASES)}")
    parser.add_argument("--layouts", default="top:8,lora-top:8")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pure", action="store_true", help="the peer holds everything in bfloat16")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", choices=("ours", "trl"), help=argparse.SUPPRESS)
    parser.add_argument("--layout", default="full", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        with contextlib.redirect_stdout(sys.stderr):
            work = ours if options.worker == "ours" else theirs
            found = work(CASES[options.case], options, Clock())
        print(json.dumps(found))
        return
    results = {name: compare(name, options) for name in options.case.split(",")}
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
