"""DPO against TRL's DPOTrainer: the same loss and gradients, and how many pairs a second.

    python -m bench.dpo.vs_trl [--trl DIR] [--model smollm2-135m-instruct] [--steps 4] [--runs 3] [--json FILE]

Needs trl with datasets and accelerate, installed or, for trl itself, unzipped in `--trl` (pip download --no-deps trl).

parity      float32, policy and reference apart by small random changes of all weights. hard: a batch of pairs against
            the trainer's sigmoid loss. Its sigmoid takes no label smoothing, but its aot loss of a single pair is the
            smoothed sigmoid, so one pair each tells: smoothed (.1), soft (a label of .7 is hard with .3 smoothed away),
            language (sigmoid with its sft loss at .5). Gap of the loss, and the largest gap of a gradient over all
            weights, absolute where gradients are below 1, else against the largest; of a small random Llama and of the
            model. `off`: how far either's gradients are from TRL's in float64.
throughput  hh-rlhf pairs of at most `--limit` tokens, the same pairs in the same batches from the same weights, all
            layers trained, AdamW (fused), learning rate, clipping and precision alike, no checkpoint, no validation.
            Log-probabilities of the reference are computed before, on both sides. TRL without gradient checkpointing
            (its default has it on, which is slower). Each run is a process of its own, ours and TRL's in turn, the
            first update is left out. Memory: largest resident set of the training less that after the imports.

Numbers of two runs of this command are comparable only on an idle machine; the ratios of one run come from processes
in turn and stand some noise. Pairs a CPU second, with --threads 1, stand more of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.preference.vs_trl import HH, Clock, furthest, gradients

RATE, SEED, BETA, GAP, SMOOTHED = 1e-5, 0, 0.1, 1e-5, 0.1
PARITY_PAIRS = 4
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any], float | None]] = {
    "hard": ({}, {}, None),
    "smoothed": ({"label_smoothing": SMOOTHED}, {"loss_type": ["aot"], "label_smoothing": SMOOTHED}, None),
    "soft": ({}, {"loss_type": ["aot"], "label_smoothing": 1 - 0.7}, 0.7),
    "language": ({"language_coef": 0.5}, {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.5]}, None),
}
"""Our settings, TRL's, and the label of every pair."""


def pairs_of(options: argparse.Namespace, codec: Any, count: int) -> list[Any]:
    """hh-rlhf pairs of different prompts in the file's order, none too long."""
    from trimtab.data import readers

    pairs, seen = [], set()
    for pair in readers.read(options.data).pairs:
        prompt = codec.prompt_ids(pair.prompt)
        said = [codec.response_ids(r) for r in (pair.chosen, pair.rejected)]
        if pair.prompt.messages in seen or len(prompt) + max(map(len, said)) > options.limit or said[0] == said[1]:
            continue
        seen.add(pair.prompt.messages)
        pairs.append(replace(pair, p_chosen=None))
        if len(pairs) == count:
            return pairs
    raise SystemExit(f"{options.data} has {len(pairs)} such pairs, not {count}: lower --steps or --batch")


def records(codec: Any, pairs: Sequence[Any]) -> list[dict[str, Any]]:
    """Pairs as TRL's collator reads them."""
    return [
        {
            "prompt_ids": codec.prompt_ids(pair.prompt),
            "chosen_ids": codec.response_ids(pair.chosen),
            "rejected_ids": codec.response_ids(pair.rejected),
        }
        for pair in pairs
    ]


def trainer(model: Any, reference: Any, codec: Any, rows: list[dict[str, Any]], directory: str, **settings: Any) -> Any:
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    class Tokenised(DPOTrainer):  # type: ignore[misc]
        """The rows are token ids already."""

        def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
            return dataset

    common: dict[str, Any] = {
        "output_dir": directory, "num_train_epochs": 1, "learning_rate": RATE, "lr_scheduler_type": "linear",
        "warmup_steps": 0, "max_grad_norm": 1.0, "weight_decay": 0.0, "optim": "adamw_torch_fused", "report_to": [],
        "save_strategy": "no", "logging_steps": 1, "use_cpu": True, "disable_tqdm": True, "max_length": None,
        "gradient_checkpointing": False, "train_sampling_strategy": "sequential", "dataloader_pin_memory": False,
        "bf16": False, "seed": SEED, "beta": BETA,
    }  # fmt: skip
    return Tokenised(
        model=model, ref_model=reference, args=DPOConfig(**(common | settings)), train_dataset=Dataset.from_list(rows),
        processing_class=codec.tokenizer,
    )  # fmt: skip


def ours(options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    """One training by `trimtab.dpo.train`."""
    import torch

    from trimtab import dpo
    from trimtab.config.dpo import DPOConfig
    from trimtab.models.loading import load_causal_lm, load_codec
    from trimtab.training.precision import Precision

    clock.start()
    torch.set_num_threads(options.threads)
    codec = load_codec(options.model)
    policy = load_causal_lm(options.model, options.precision).fork(trainable=True)
    config = DPOConfig(
        batch_size=options.batch, learning_rate=RATE, warmup_fraction=0.0, validation_fraction=0.0, beta=BETA,
        micro_batch_size=options.micro, max_tokens=options.limit,
    )  # fmt: skip
    step = Precision.step

    def timed(self: Precision, *args: Any, **kwargs: Any) -> bool:
        moved = step(self, *args, **kwargs)
        clock.tick()
        return moved

    Precision.step = timed  # type: ignore[method-assign]
    pairs = pairs_of(options, codec, options.batch * options.steps)
    log = dpo.train(config, policy, codec, pairs, seed=SEED, precision=Precision(options.precision)).history
    found = clock.figures(options.batch, [row["loss/train"] for row in log], 0, options.steps - 1)
    return found | {key: statistics.mean(row[f"tokens/{key}"] for row in log) for key in ("needed", "computed")}


def theirs(options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    """One training by TRL's DPOTrainer, on our updates' pairs."""
    import datasets
    import torch
    from transformers import AutoModelForCausalLM, TrainerCallback
    from trl import DPOTrainer

    from trimtab.models.loading import load_codec, resolve
    from trimtab.training.passes import Passes

    datasets.disable_progress_bars()
    assert DPOTrainer
    clock.start()
    torch.set_num_threads(options.threads)
    codec = load_codec(options.model)
    pairs = pairs_of(options, codec, options.batch * options.steps)
    passes = Passes((SEED, "dpo"), 0, len(pairs), options.batch, 1)
    rows = records(codec, [pairs[i] for step in range(passes.total) for i in passes.update(step)])
    model = AutoModelForCausalLM.from_pretrained(resolve(options.model), dtype=torch.float32)

    class Ticks(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.tick()

    with tempfile.TemporaryDirectory() as directory:
        made = trainer(
            model, None, codec, rows, directory, per_device_train_batch_size=options.batch,
            bf16=options.precision == "bfloat16", precompute_ref_log_probs=True,
            gradient_checkpointing=options.checkpointing,
        )  # fmt: skip
        made.add_callback(Ticks())
        made.train()
        losses = [row["loss"] for row in made.state.log_history if "loss" in row]
    return clock.figures(options.batch, losses, 0, options.steps - 1)


def parity(options: argparse.Namespace, _: Clock) -> dict[str, Any]:
    """Gaps of loss and gradients by variant, of a small random Llama or of the model."""
    import datasets
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from trimtab.models.loading import load_causal_lm, load_codec
    from trimtab.models.roles import CausalModel

    datasets.disable_progress_bars()
    torch.set_num_threads(options.threads)
    codec = load_codec(options.model)
    pairs = pairs_of(options, codec, PARITY_PAIRS)

    def small() -> Any:
        torch.manual_seed(SEED)
        config = LlamaConfig(
            vocab_size=codec.tokenizer.vocab_size, hidden_size=64, intermediate_size=128, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, pad_token_id=codec.pad_id, initializer_range=0.1,
        )  # fmt: skip
        return CausalModel(LlamaForCausalLM(config))

    make = small if options.worker == "parity-small" else lambda: load_causal_lm(options.model, "float32")
    return {name: gaps(make(), codec, pairs if name == "hard" else pairs[:1], *how) for name, how in VARIANTS.items()}


def gaps(
    base: Any, codec: Any, pairs: list[Any], mine: dict[str, Any], other: dict[str, Any], label: float | None
) -> dict[str, float]:
    """Of one batch: |loss - TRL's|, the largest gap of a gradient, and how far either's are from TRL's in float64."""
    import torch

    from trimtab.config.dpo import DPOConfig
    from trimtab.dpo.lesson import Lesson
    from trimtab.training.precision import Precision

    policy = base.fork(trainable=True)
    config = DPOConfig(beta=BETA, validation_fraction=0.0, max_tokens=4096, **mine)
    labeled = [replace(pair, p_chosen=label) for pair in pairs]
    lesson = Lesson(config, policy, codec, labeled, SEED, Precision("float32", policy.device))
    lesson.read_reference(None)
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for p in policy.trainable_parameters():
            p.add_(0.02 * p.std() * torch.randn(p.shape, generator=generator))
    loss, signals = lesson.loss(list(range(len(pairs))))
    loss.backward()  # type: ignore[no-untyped-call]
    found = gradients(policy.hf)
    policy.hf.config.pad_token_id = codec.pad_id
    with tempfile.TemporaryDirectory() as directory:
        made = trainer(
            policy.hf, base.hf, codec, records(codec, pairs), directory, per_device_train_batch_size=len(pairs), **other
        )
        batch = next(iter(made.get_train_dataloader()))
        theirs, exact = [], []
        for dtype, kept in ((torch.float32, theirs), (torch.float64, exact)):
            made.ref_model.to(dtype)
            peer = made.compute_loss(made.model.to(dtype), dict(batch))
            peer.backward()
            kept.extend([peer.detach(), gradients(made.model)])
    return {
        "loss": abs(float(loss.detach()) - float(theirs[0])), "gradient": furthest(found, theirs[1]),
        "ours_off": furthest(found, exact[1]), "trl_off": furthest(theirs[1], exact[1]),
        "largest_gradient": max(float(g.abs().max()) for g in found.values()), "margin": signals["dpo/margin"],
        "value": float(loss.detach()),
    }  # fmt: skip


WORKERS = {"ours": ours, "trl": theirs, "parity-small": parity, "parity": parity}


def work(options: argparse.Namespace) -> None:
    """In a process of its own: the last line of stdout is JSON."""
    clock = Clock()
    with contextlib.redirect_stdout(sys.stderr):
        found = WORKERS[options.worker](options, clock)
    print(json.dumps(found))


def spawn(worker: str, precision: str, options: argparse.Namespace) -> dict[str, Any] | None:
    """Run this module again as a worker; None: it failed, which was told on stderr."""
    given = {k: v for k, v in vars(options).items() if k not in ("worker", "precision", "json", "only")}
    arguments = [f"--{k}={v}" for k, v in given.items() if v not in (None, "", False, True)]
    arguments += [f"--{k}" for k, v in given.items() if v is True]
    threads = str(options.threads)
    environment = os.environ | {
        "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error", "PYTHONPATH": python_path(options),
    }  # fmt: skip
    command = [sys.executable, "-m", __spec__.name, f"--worker={worker}", f"--precision={precision}", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{worker} ({precision}) failed with {done.returncode}:\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def python_path(options: argparse.Namespace) -> str:
    return os.pathsep.join(filter(None, [options.trl, os.environ.get("PYTHONPATH")]))


def peer(options: argparse.Namespace) -> str | None:
    """TRL's version, or None where it cannot be imported."""
    code = "import datasets, accelerate, trl; trl.DPOTrainer; print(trl.__version__)"
    environment = os.environ | {"PYTHONPATH": python_path(options)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout.splitlines()[-1]
    print(f"no peer: {(done.stderr.strip().splitlines() or ['it says nothing'])[-1]}", file=sys.stderr)
    print("  pip install datasets accelerate; pip download --no-deps trl, unzip it, name it: --trl", file=sys.stderr)
    return None


def throughput(options: argparse.Namespace, precision: str, there: bool) -> dict[str, Any]:
    """Runs of each side in turn, and their medians."""
    sides = ["ours", *(["trl"] if there else [])]
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for number in range(options.runs):
        for side in sides if number % 2 == 0 else sides[::-1]:
            if found := spawn(side, precision, options):
                runs[side].append(found)
                print(f"  {precision} {side:5} {found['pairs_per_s']:7.3f} pairs/s {found['gib']:6.2f} GiB", flush=True)
    keys = ("pairs_per_s", "pairs_per_cpu_s", "gib", "needed", "computed")
    medians: dict[str, Any] = {
        side: {k: statistics.median(r[k] for r in repeats) for k in keys if k in repeats[0]}
        | {"losses": repeats[0]["losses"]}
        for side, repeats in runs.items()
        if repeats
    }
    if len(medians) == 2:
        mine, other = medians["ours"], medians["trl"]
        medians |= {
            key: mine[k] / other[k] for key, k in zip(("ratio", "cpu_ratio", "memory_ratio"), keys, strict=False)
        }
        medians["largest_loss_gap"] = max(abs(a - b) for a, b in zip(mine["losses"], other["losses"], strict=True))
        print(
            f"{precision}: {medians['ratio']:.2f} times TRL's pairs a second ({medians['cpu_ratio']:.2f} a CPU second) "
            f"with {medians['memory_ratio']:.2f} times its memory; losses differ by "
            f"{medians['largest_loss_gap']:.1e} at most; {mine['computed']:.0f} tokens a pair computed of "
            f"{mine['needed']:.0f}"
        )
    return {"medians": medians, "runs": runs}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl", default="", help="directory that trl was unzipped to")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--data", default=str(HH))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--micro", type=int, help="our dpo.micro_batch_size")
    parser.add_argument("--steps", type=int, default=4, help="updates a run, the first of which is not timed")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--limit", type=int, default=256, help="most tokens of prompt and response; longer are left out"
    )
    parser.add_argument("--precision", default="bfloat16,float32")
    parser.add_argument("--checkpointing", action="store_true", help="TRL's gradient checkpointing, its default")
    parser.add_argument("--only", choices=("parity", "throughput"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", choices=tuple(WORKERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options)
        return 0
    if options.steps < 2 or options.runs < 1 or options.batch < 1:
        parser.error("--steps must be at least 2, --runs and --batch at least 1")
    version = peer(options)
    results: dict[str, Any] = {"trl": version, **{k: str(v) for k, v in vars(options).items() if k != "worker"}}
    good = True
    if version and options.only != "throughput":
        for worker in ("parity-small", "parity"):
            results[worker] = found = spawn(worker, "float32", options)
            good &= found is not None
            for variant, gap in (found or {}).items():
                print(
                    f"{worker}, {variant:8}: loss {gap['loss']:.1e} of {gap['value']:.3f}, gradients "
                    f"{gap['gradient']:.1e} (largest {gap['largest_gradient']:.3g}; off float64: ours "
                    f"{gap['ours_off']:.1e}, TRL's {gap['trl_off']:.1e})",
                    flush=True,
                )
                good &= max(gap["loss"], gap["gradient"]) <= GAP
        print(f"parity within {GAP:.0e}: {'yes' if good else 'NO'}", flush=True)
    if options.only != "parity":
        for precision in options.precision.split(","):
            results[precision] = throughput(options, precision, version is not None)
            good &= "ours" in results[precision]["medians"]
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
