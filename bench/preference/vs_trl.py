"""Preference-model training against TRL's RewardTrainer: the same loss and gradients, and how many pairs a second.

    python -m bench.preference.vs_trl [--trl DIR] [--model smollm2] [--batch 8] [--steps 4] [--runs 3] [--json FILE]

Needs trl with datasets and accelerate, installed or, for trl itself, unzipped in `--trl` (pip download --no-deps trl).

parity      one batch through both, float32: plain, with margins, with the centring term. Gap of the loss, and the
            largest gap of a gradient over all weights, absolute where gradients are below 1, else against the largest;
            of a small random Llama and of the model.
throughput  hh-rlhf pairs of at most `--limit` tokens (`--cut`: how longer ones get there), the same pairs in the same
            batches from the same weights, all layers trained, AdamW (fused), learning rate, clipping and precision
            alike, no checkpoint, no validation in the time. TRL without gradient checkpointing (its default has it on,
            which is slower). Each run is a process of its own, ours and TRL's in turn, the first update is left out.
            Memory: largest resident set of the training minus that after the imports.
trunk       ours with the top layers trained (`--top`), on the first pass and on the second, whose frozen layers are
            kept from the first.

Numbers of two runs of this command are comparable only on an idle machine; the ratios of one run come from processes
in turn and stand some noise. Pairs a CPU second, with --threads 1, stand more of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HH = Path(__file__).parents[3] / "shared" / "data" / "hh-rlhf" / "harmless-base-test.jsonl.gz"
RATE, SEED = 1e-5, 0
VARIANTS: dict[str, dict[str, Any]] = {"plain": {}, "margin": {"margin": True}, "centring": {"center": 0.01}}
TARGET, GAP, PARITY_PAIRS = 1.3, 1e-5, 4


def pairs_of(options: argparse.Namespace, codec: Any) -> tuple[list[Any], dict[tuple[Any, str], list[int]]]:
    """hh-rlhf pairs of different prompts in the file's order, and the token row of every response."""
    from trimtab.data import readers

    pairs, rows, seen = [], {}, set()
    wanted = options.batch * options.steps + 1  # one is held out
    for pair in readers.read(options.data).pairs:
        prompt = codec.prompt_ids(pair.prompt)
        tails = [codec.pair_ids(pair.prompt, r)[len(prompt) :] for r in (pair.chosen, pair.rejected)]
        found = cut(prompt, tails, options.limit, options.cut)
        if found is None or found[0] == found[1] or pair.prompt.messages in seen:
            continue
        seen.add(pair.prompt.messages)
        pairs.append(pair)
        for response, row in zip((pair.chosen, pair.rejected), found, strict=True):
            rows[pair.prompt.messages, response.text] = row
        if len(pairs) == wanted:
            return pairs, rows
    raise SystemExit(f"{options.data} has {len(pairs)} such pairs, not {wanted}: lower --steps or --batch")


def cut(prompt: list[int], tails: list[list[int]], limit: int, how: str) -> list[list[int]] | None:
    """Rows of at most `limit` tokens: the prompt loses its beginning, both rows their end, or the pair is left out."""
    longest = max(map(len, tails))
    if how == "end":
        return [(prompt + tail)[:limit] for tail in tails]
    if len(prompt) + longest <= limit:
        return [prompt + tail for tail in tails]
    if how == "drop" or longest >= limit:
        return None
    return [prompt[longest - limit :] + tail for tail in tails]


def batches(options: argparse.Namespace, pairs: Sequence[Any]) -> list[Any]:
    """The training pairs in the order of our updates."""
    from trimtab.preference import split_by_prompt
    from trimtab.training.passes import Passes

    training, _ = split_by_prompt(pairs, 1e-9, SEED)
    passes = Passes((SEED, "pm"), 0, len(training), options.batch, 1)
    return [training[i] for step in range(passes.total) for i in passes.update(step)]


class Clock:
    """When updates ended, and how much memory was used by then."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.cpu: list[float] = []
        self.base = 0.0
        self.peak = 0.0

    def start(self) -> None:
        """After the imports."""
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.base = pages * os.sysconf("SC_PAGE_SIZE") / 2**30

    def tick(self) -> None:
        self.times.append(time.perf_counter())
        self.cpu.append(time.process_time())
        self.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

    def figures(self, batch: int, losses: Sequence[float], first: int, last: int) -> dict[str, Any]:
        pairs = batch * (last - first)
        return {
            "pairs_per_s": pairs / (self.times[last] - self.times[first]),
            "pairs_per_cpu_s": pairs / (self.cpu[last] - self.cpu[first]),
            "gib": self.peak - self.base,
            "losses": list(losses),
        }


def ours(options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    """One training by `trimtab.preference.train`."""
    import torch

    from trimtab import preference
    from trimtab.config.layout import Layout
    from trimtab.config.preference import PreferenceConfig
    from trimtab.models.loading import load_causal_lm, load_codec
    from trimtab.runs.run import Run
    from trimtab.training.precision import Precision

    clock.start()
    torch.set_num_threads(options.threads)
    codec = load_codec(options.model)
    pairs, rows = pairs_of(options, codec)

    class Rows:
        """The tokenizer, but for rows that are cut."""

        def __getattr__(self, name: str) -> Any:
            return getattr(codec, name)

        def pair_ids(self, prompt: Any, response: Any) -> list[int]:
            return rows[prompt.messages, response.text]

    layout = Layout.parse(f"top:{options.top}") if options.worker == "top" else Layout()
    base = load_causal_lm(options.model, options.precision, layout=layout)
    config = PreferenceConfig(
        batch_size=options.batch, learning_rate=RATE, warmup_fraction=0.0, validation_fraction=1e-9,
        epochs=2 if options.worker == "top" else 1, micro_batch_size=options.micro, max_tokens=options.limit,
    )  # fmt: skip
    step = Precision.step

    def timed(self: Precision, *args: Any, **kwargs: Any) -> bool:
        moved = step(self, *args, **kwargs)
        clock.tick()
        return moved

    Precision.step = timed  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as directory:
        run = Run.create(Path(directory), "r", config={}, seed=SEED)
        run.begin_stage("pm", "bench")
        preference.train(config, base, Rows(), pairs, run=run, seed=SEED, precision=Precision(options.precision))
        log = [row for row in run.metrics("pm") if row["step"] > 0]
    found = clock.figures(options.batch, [row["loss/train"] for row in log], 0, options.steps - 1)
    found |= {key: statistics.mean(row[f"tokens/{key}"] for row in log) for key in ("needed", "computed")}
    if options.worker == "top":
        again = clock.figures(options.batch, [], options.steps, 2 * options.steps - 1)
        found["second_pass_pairs_per_s"] = again["pairs_per_s"]
    return found


def classifier(options: argparse.Namespace, codec: Any) -> Any:
    """transformers' sequence classifier with a head of zeros, as `trimtab.preference.train` starts."""
    import torch
    from transformers import AutoModelForSequenceClassification

    from trimtab.models.loading import resolve

    model = AutoModelForSequenceClassification.from_pretrained(
        resolve(options.model), num_labels=1, dtype=torch.float32
    )
    torch.nn.init.zeros_(model.score.weight)
    model.config.pad_token_id = codec.pad_id
    return model


def reward_trainer(model: Any, codec: Any, records: list[dict[str, Any]], directory: str, **settings: Any) -> Any:
    from datasets import Dataset
    from trl import RewardConfig, RewardTrainer

    common: dict[str, Any] = {
        "output_dir": directory, "num_train_epochs": 1, "learning_rate": RATE, "lr_scheduler_type": "linear",
        "warmup_steps": 0, "max_grad_norm": 1.0, "weight_decay": 0.0, "optim": "adamw_torch_fused", "report_to": [],
        "save_strategy": "no", "logging_steps": 1, "use_cpu": True, "disable_tqdm": True, "max_length": None,
        "gradient_checkpointing": False, "train_sampling_strategy": "sequential", "dataloader_pin_memory": False,
        "bf16": False, "seed": SEED,
    }  # fmt: skip
    args = RewardConfig(**(common | settings))
    return RewardTrainer(
        model=model, args=args, train_dataset=Dataset.from_list(records), processing_class=codec.tokenizer
    )


def theirs(options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    """One training by TRL's RewardTrainer."""
    import datasets
    import torch
    from transformers import TrainerCallback
    from trl import RewardTrainer

    from trimtab.models.loading import load_codec

    datasets.disable_progress_bars()
    assert RewardTrainer
    clock.start()
    torch.set_num_threads(options.threads)
    codec = load_codec(options.model)
    pairs, rows = pairs_of(options, codec)
    records = [
        {f"{side}_ids": rows[p.prompt.messages, getattr(p, side).text] for side in ("chosen", "rejected")}
        for p in batches(options, pairs)
    ]

    class Ticks(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.tick()

    with tempfile.TemporaryDirectory() as directory:
        trainer = reward_trainer(
            classifier(options, codec), codec, records, directory, per_device_train_batch_size=options.batch,
            bf16=options.precision == "bfloat16", gradient_checkpointing=options.checkpointing,
        )  # fmt: skip
        trainer.add_callback(Ticks())
        trainer.train()
        losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
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
    pairs, rows = pairs_of(options, codec)
    pairs = pairs[:PARITY_PAIRS]

    def small() -> Any:
        torch.manual_seed(SEED)
        config = LlamaConfig(
            vocab_size=codec.tokenizer.vocab_size, hidden_size=64, intermediate_size=128, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, pad_token_id=codec.pad_id, initializer_range=0.1,
        )  # fmt: skip
        return CausalModel(LlamaForCausalLM(config))

    make = small if options.worker == "parity-small" else lambda: load_causal_lm(options.model, "float32")
    return {variant: gaps(make(), codec, pairs, rows, **how) for variant, how in VARIANTS.items()}


def gaps(
    base: Any, codec: Any, pairs: list[Any], rows: Any, *, margin: bool = False, center: float = 0.0
) -> dict[str, float]:
    """Of one batch: |loss - TRL's|, the largest gap of a gradient, and how far either's are from TRL's in float64.

    The head is drawn as transformers draws it.
    """
    from dataclasses import replace

    import torch

    from trimtab.config.preference import PreferenceConfig
    from trimtab.models.roles import ScalarModel
    from trimtab.preference.objective import Objective
    from trimtab.preference.pairs import PairScores

    std = base.hf.config.initializer_range
    model = ScalarModel.from_causal(base, head_std=std, generator=torch.Generator().manual_seed(SEED))
    margins = [0.25 * (i % 5) for i in range(len(pairs))]
    if margin:
        pairs = [replace(pair, margin=m) for pair, m in zip(pairs, margins, strict=True)]
    tokens = [[rows[p.prompt.messages, r.text] for r in (p.chosen, p.rejected)] for p in pairs]
    at = list(range(len(pairs)))
    scores = PairScores(model, [(a, b) for a, b in tokens], codec.pad_id)
    loss, _ = Objective(PreferenceConfig(center_coef=center), pairs).loss(model, at, *scores.heads(at))
    loss.backward()
    mine = gradients(model.hf)
    records: list[dict[str, Any]] = [{"chosen_ids": a, "rejected_ids": b} for a, b in tokens]
    if margin:
        records = [record | {"margin": m} for record, m in zip(records, margins, strict=True)]
    model.hf.config.pad_token_id = codec.pad_id
    with tempfile.TemporaryDirectory() as directory:
        trainer = reward_trainer(
            model.hf, codec, records, directory, per_device_train_batch_size=len(pairs),
            center_rewards_coefficient=center or None,
        )  # fmt: skip
        batch = next(iter(trainer.get_train_dataloader()))
        theirs, exact = [], []
        for dtype, found in ((torch.float32, theirs), (torch.float64, exact)):
            if dtype == torch.float64:  # twice the memory: activations are computed again in the backward pass
                trainer.model.train()
                trainer.model.gradient_checkpointing_enable()
            peer = trainer.compute_loss(trainer.model.to(dtype), dict(batch))
            peer.backward()
            found.extend([peer.detach(), gradients(trainer.model)])
    return {
        "loss": abs(float(loss.detach()) - float(theirs[0])), "gradient": furthest(mine, theirs[1]),
        "ours_off": furthest(mine, exact[1]), "trl_off": furthest(theirs[1], exact[1]),
        "largest_gradient": max(float(g.abs().max()) for g in mine.values()),
        "computed": scores.computed, "padded": int(batch["input_ids"].numel()),
    }  # fmt: skip


def gradients(model: Any) -> dict[str, Any]:
    """Taken off the model, by name."""
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def furthest(some: dict[str, Any], others: dict[str, Any]) -> float:
    """Largest gap, absolute where a weight's gradients are below 1, else against the largest of them."""
    if some.keys() != others.keys():
        raise SystemExit(f"gradients of other weights: {sorted(some.keys() ^ others.keys())}")
    return max(float((g - others[n]).abs().max() / others[n].abs().max().clamp(min=1.0)) for n, g in some.items())


WORKERS = {"ours": ours, "trl": theirs, "top": ours, "parity-small": parity, "parity": parity}


def work(options: argparse.Namespace) -> None:
    """In a process of its own: the last line of stdout is JSON."""
    clock = Clock()
    with contextlib.redirect_stdout(sys.stderr):
        found = WORKERS[options.worker](options, clock)
    print(json.dumps(found))


def python_path(options: argparse.Namespace) -> str:
    return os.pathsep.join(filter(None, [options.trl, os.environ.get("PYTHONPATH")]))


def spawn(worker: str, precision: str, options: argparse.Namespace) -> dict[str, Any] | None:
    """Run this module again as a worker; None: it failed, which was told on stderr."""
    arguments = [f"--{key}={value}" for key, value in vars(options).items() if value not in (None, "", False)]
    arguments = [a for a in arguments if not a.startswith(("--worker", "--precision", "--json", "--only"))]
    arguments = ["--checkpointing" if a == "--checkpointing=True" else a for a in arguments]
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


def peer(options: argparse.Namespace) -> str | None:
    """TRL's version, or None where it cannot be imported."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [options.trl, os.environ.get("PYTHONPATH")]))
    }
    code = "import datasets, accelerate, trl; trl.RewardTrainer; print(trl.__version__)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout.splitlines()[-1]
    print(f"no peer: {(done.stderr.strip().splitlines() or ['it says nothing'])[-1]}", file=sys.stderr)
    print("  pip install datasets accelerate; pip download --no-deps trl, unzip it, name it: --trl", file=sys.stderr)
    return None


def throughput(options: argparse.Namespace, precision: str, there: bool) -> dict[str, Any]:
    """Runs of each side in turn, and their medians."""
    sides = ["ours", *(["trl"] if there else []), *(["top"] if options.top else [])]
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for number in range(options.runs):
        for side in sides if number % 2 == 0 else sides[::-1]:
            if found := spawn(side, precision, options):
                runs[side].append(found)
                print(f"  {precision} {side:5} {found['pairs_per_s']:7.3f} pairs/s {found['gib']:6.2f} GiB", flush=True)
    keys = ("pairs_per_s", "pairs_per_cpu_s", "gib", "second_pass_pairs_per_s", "needed", "computed")
    medians: dict[str, Any] = {}
    for side, repeats in runs.items():
        if repeats:
            medians[side] = {k: statistics.median(r[k] for r in repeats) for k in keys if k in repeats[0]}
            medians[side]["losses"] = repeats[0]["losses"]
    if "ours" in medians and "trl" in medians:
        mine, other = medians["ours"], medians["trl"]
        ratio = mine["pairs_per_s"] / other["pairs_per_s"]
        gap = max(abs(a - b) for a, b in zip(mine["losses"], other["losses"], strict=True))
        of_cpu = mine["pairs_per_cpu_s"] / other["pairs_per_cpu_s"]
        medians |= {
            "ratio": ratio,
            "cpu_ratio": of_cpu,
            "memory_ratio": mine["gib"] / other["gib"],
            "largest_loss_gap": gap,
        }
        met = ratio >= TARGET and mine["gib"] <= other["gib"]
        print(
            f"{precision}: {ratio:.2f} times TRL's pairs a second ({of_cpu:.2f} a CPU second) with "
            f"{medians['memory_ratio']:.2f} times its memory (wanted: {TARGET} and 1: {'met' if met else 'NOT met'}); "
            f"losses differ by {gap:.1e} at most"
        )
    if "ours" in medians and "top" in medians:
        full, top = medians["ours"]["pairs_per_s"], medians["top"]
        gain, later = top["pairs_per_s"] / full, top["second_pass_pairs_per_s"] / full
        print(f"{precision}: top {options.top} layers trained: {gain:.2f} times that, {later:.2f} from the 2nd pass on")
    return {"medians": medians, "runs": runs}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl", default="", help="directory that trl was unzipped to")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--data", default=str(HH))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--micro", type=int, help="our preference.micro_batch_size")
    parser.add_argument("--steps", type=int, default=4, help="updates a run, the first of which is not timed")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=int, default=256, help="most tokens of a row")
    parser.add_argument("--cut", choices=("prompt", "end", "drop"), default="prompt")
    parser.add_argument("--top", type=int, default=8, help="0: without that part")
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
                    f"{worker}, {variant:8}: loss {gap['loss']:.1e}, gradients {gap['gradient']:.1e} (largest "
                    f"{gap['largest_gradient']:.3g}; off float64: ours {gap['ours_off']:.1e}, TRL's "
                    f"{gap['trl_off']:.1e}); {gap['computed']} tokens for {gap['padded']}",
                    flush=True,
                )
                good &= max(gap["loss"], gap["gradient"]) <= GAP
        print(f"parity within {GAP:.0e}: {'yes' if good else 'NO'}", flush=True)
    if options.only != "parity":
        for precision in options.precision.split(","):
            results[precision] = throughput(options, precision, version is not None)
            good &= "ours" in results[precision]["medians"]
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
