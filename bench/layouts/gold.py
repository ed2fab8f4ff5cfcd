"""Gold that each layout of `model.trainable` reaches in the tiny world, against training all weights.

    python -m bench.layouts.gold                       20 seeds, two at a time, one thread each
    python -m bench.layouts.gold --rates --seeds 2     every candidate of the learning rates, on seeds below 1000

Every seed draws pairs, labels them with the faithful judge and trains one preference model, the same for all layouts;
the policy is a fine-tuned model of four layers whose head is tied to the embedding. "+ head" trains the head as well
(`model.train_head`). The value model starts from the reference. Gold is the mean of the last three measurements on 256
held-out prompts; the gain is over the fine-tuned model. Told are, for each layout,

(equal iterations)  its gain less that of `full` after 60 iterations, as a share of the gain of `full`; 95 % interval
                    over the seeds. Not inferior: it lies above -.05
(equal time)        the same, with as many iterations as fit into the time of 60 of `full`: by the median seconds of an
                    iteration, measurements not counted, over the seeds whose arms ran after each other in one
                    process. Better: the interval lies above 0

Learning rates (the value model's is twice as high) come from a few seeds below 1000, `--rates`.
Results are appended to bench/results/layouts/gold.jsonl; seeds that stand there are not run again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.tiny_world import world
from bench.tiny_world.claims import CLAIMS
from trimtab import ppo
from trimtab.config.layout import Layout
from trimtab.models.seeds import torch_stream
from trimtab.preference import PreferenceModel
from trimtab.preference.ensemble import load_preference
from trimtab.runs.files import append_jsonl, read_jsonl
from trimtab.runs.progress import progress, set_quiet
from trimtab.sampling.responses import sample_responses
from trimtab.stats.intervals import bootstrap_mean
from trimtab.training.precision import Precision
from trimtab.worlds.gold import GoldScorer

RESULTS = Path(__file__).parent.parent / "results" / "layouts" / "gold.jsonl"
FIRST_SEED, SEEDS = 1000, 20
LAYERS, ITERATIONS, MARGIN = 4, 60, 0.05


@dataclass(frozen=True)
class Arm:
    """A layout with its learning rate."""

    layout: str
    rate: float
    head: bool = False
    longer: float = 1.0
    """So many times the iterations of `full` are run, to use its time up."""

    def __str__(self) -> str:
        return self.layout + (" + head" if self.head else "")

    def train(self, pm: PreferenceModel, seed: int, together: float) -> dict[str, Any]:
        """`together`: the same number for the arms that run after each other."""
        base, codec = world.base(LAYERS, Layout.parse(self.layout, head=self.head))
        held_out, training, _ = world.split()
        config = CLAIMS["faithful"].ppo.model_copy(
            update={
                "learning_rate": self.rate, "value_learning_rate": 2 * self.rate, "value_init": "reference",
                "iterations": round(self.longer * ITERATIONS),
            }
        )  # fmt: skip
        result = ppo.train(
            config, base.fork(trainable=True, generator=torch_stream(seed, "policy", "adapters")), codec, training, pm,
            seed=seed, held_out=ppo.HeldOut(held_out, {"gold": GoldScorer()}, world.MEASURE_EVERY),
        )  # fmt: skip
        rows = [row for row in result.history if "gold/mean" in row]
        return {
            "arm": str(self),
            "rate": self.rate,
            "seed": seed,
            "together": together,
            "iteration_s": float(np.median([row["time/iteration_s"] for row in result.history])),
            "steps": [row["step"] for row in rows],
            "gold": [row["gold/mean"] for row in rows],
            "kl": [row["kl/reference"] for row in rows],
        }


ARMS = [
    Arm("full", 5e-4),
    Arm("top:2", 5e-4),
    Arm("top:1", 5e-4, head=True, longer=1.5),
    Arm("top:2", 5e-4, head=True, longer=1.3),
    Arm("lora-top:2", 1e-3, head=True),
    Arm("lora", 1e-3, head=True),
]
CANDIDATES = [
    Arm(arm.layout, rate, arm.head)
    for arm in ARMS
    for rate in ((5e-4, 1e-3, 2e-3) if "lora" in str(arm) else (5e-4, 1e-3))
]


def gold_at(record: dict[str, Any], iteration: float) -> float:
    """Mean of the last three measurements up to an iteration."""
    done = [gold for step, gold in zip(record["steps"], record["gold"], strict=True) if step <= iteration]
    return float(np.mean(done[-3:]))


def start() -> float:
    """Gold of the fine-tuned model on the held-out prompts."""
    model, codec = world.base(LAYERS)
    repeated = [prompt for prompt in world.split()[0] for _ in range(16)]
    responses = sample_responses(
        model, codec, repeated, max_new_tokens=16, temperature=1.0, batch_size=512, generator=torch_stream(0, "start")
    )
    return float(np.mean(GoldScorer().score(repeated, responses)))


def preference_model(seed: int, directory: Path) -> PreferenceModel:
    """That of the faithful judge, trained once a seed."""
    claim = CLAIMS["faithful"]
    assert claim.labels is not None
    kept = directory / f"pm-{claim.settings()}-{seed}"
    if not kept.is_dir():
        pm, _ = world.learn_preferences(claim.labels, claim.preference, seed)
        pm.save(kept)
    return load_preference(kept, Precision("float32", torch.device("cpu")))


def run_seed(task: tuple[Sequence[Arm], int, Path]) -> list[dict[str, Any]]:
    """Some arms on one seed, after each other."""
    world.one_thread()
    set_quiet(True)
    arms, seed, directory = task
    pm = preference_model(seed, directory)
    now = time.time()
    return [arm.train(pm, seed, now) for arm in arms]


def run(arms: Sequence[Arm], seeds: range, path: Path, jobs: int) -> list[dict[str, Any]]:
    """All arms on all seeds; what is on file is not run again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    done = list(read_jsonl(path).records) if path.exists() else []
    known = {(record["arm"], record["rate"], record["seed"]) for record in done}
    missing = {seed: [arm for arm in arms if (str(arm), arm.rate, seed) not in known] for seed in seeds}
    tasks = [(todo, seed, path.parent) for seed, todo in missing.items() if todo]
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs) as pool, progress(len(seeds), "layouts", done=len(seeds) - len(tasks)) as bar:
        for records in pool.imap_unordered(run_seed, tasks):
            append_jsonl(path, records)
            done += records
            bar.advance(1)
    wanted = {(str(arm), arm.rate) for arm in arms}
    return [record for record in done if (record["arm"], record["rate"]) in wanted and record["seed"] in seeds]


def tell(arms: Sequence[Arm], records: list[dict[str, Any]]) -> None:
    """A row for each arm; differences are paired by seed."""
    first = start()
    of = {(r["arm"], r["rate"], r["seed"]): r for r in records}
    full = ARMS[0]
    seeds = sorted({r["seed"] for r in records if r["arm"] == str(full)})
    gain = float(np.mean([gold_at(of[str(full), full.rate, seed], ITERATIONS) - first for seed in seeds]))
    print(f"start {first:.3f}; full gains {gain:.3f} in {ITERATIONS} iterations; {len(seeds)} seeds")
    for arm in arms:
        own = [seed for seed in seeds if (str(arm), arm.rate, seed) in of]
        if not own:
            continue
        pairs = [(of[str(arm), arm.rate, seed], of[str(full), full.rate, seed]) for seed in own]
        reached = np.mean([gold_at(a, ITERATIONS) for a, _ in pairs])
        paced = [(a, b) for a, b in pairs if "together" in b and a.get("together") == b["together"]]
        faster = [b["iteration_s"] / a["iteration_s"] for a, b in paced]
        equal = [gold_at(a, ITERATIONS) - gold_at(b, ITERATIONS) for a, b in pairs]
        timed = [gold_at(a, ITERATIONS * x) - gold_at(b, ITERATIONS) for (a, b), x in zip(paced, faster, strict=True)]
        kl = np.median([r["kl"][r["steps"].index(ITERATIONS)] for r, _ in pairs])
        line = f"{arm!s:17} rate {arm.rate:g}: gold {reached:.3f}, KL {kl:.1f} nats; equal iterations "
        line += _share(equal, gain)
        if paced:
            line += f"; equal time {_share(timed, gain)}, {np.median(faster):.2f} times as fast"
        print(line)


def _share(differences: Sequence[float], gain: float) -> str:
    found = bootstrap_mean(np.array(differences) / gain)
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}] ({len(differences)} seeds)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", action="store_true", help="all candidate learning rates, on seeds below 1000")
    parser.add_argument("--arms", default="", help='some only, as "top:2,lora + head"')
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, default=RESULTS, help="where results are appended")
    options = parser.parse_args()
    world.one_thread()
    world.base()
    world.base(LAYERS)
    arms, first = (CANDIDATES, 0) if options.rates else (ARMS, FIRST_SEED)
    if options.arms:
        arms = [arm for arm in arms if str(arm) in ("full", *options.arms.split(","))]
    seeds = range(first, first + options.seeds)
    tell(arms, run(arms, seeds, options.json, options.jobs))


if __name__ == "__main__":
    main()
