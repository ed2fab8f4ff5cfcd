"""Gold that each layout of `model.trainable` reaches in the tiny world, against training all weights.

    python -m bench.layouts.gold                       20 seeds, one run at a time
    python -m bench.layouts.gold --rates --seeds 3     every candidate of the learning rates, on seeds below 1000

Every seed draws pairs, labels them with the faithful judge and trains one preference model, the same for all layouts
(with all weights trained); the policy is a fine-tuned model of four layers, half of which `top:2` trains. The value
model starts from the reference. Gold is the mean of three measurements on 256 held-out prompts; the gain is over the
fine-tuned model. Told are, for each layout,

(equal iterations)  its gain less that of `full` after 100 iterations, as a share of the gain of `full`. The 95 %
                    interval is over the pairs of a seed; not inferior: it lies above -.05
(equal time)        the same, with as many iterations as fit into the time of 100 of `full`: by the median seconds of
                    an iteration in the same process (measurements not counted); better: the interval lies above 0

Learning rates are those of RATES, chosen for every layout, `full` too, on seeds below 1000. Results are appended to
bench/results/layouts/gold.jsonl; what stands there is not run again.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.tiny_world import world
from bench.tiny_world.claims import CLAIMS
from trimtab import ppo
from trimtab.config.layout import Layout
from trimtab.models.seeds import torch_stream
from trimtab.preference import PreferenceModel
from trimtab.runs.files import append_jsonl, read_jsonl
from trimtab.runs.progress import progress, set_quiet
from trimtab.stats.intervals import bootstrap_mean
from trimtab.worlds.gold import GoldScorer

RESULTS = Path(__file__).parent.parent / "results" / "layouts" / "gold.jsonl"
FIRST_SEED, SEEDS = 1000, 20
LAYERS, ITERATIONS, MARGIN = 4, 100, 0.05
LONGER = 1.6
"""Layouts are trained for so many times the iterations of `full`, so that the time of `full` is used up."""
RATES = {"full": 5e-4, "top:2": 5e-4, "lora": 2e-3, "lora-top:2": 2e-3}
CANDIDATES = {"full": (5e-4, 1e-3), "top:2": (5e-4, 1e-3), "lora": (1e-3, 2e-3, 5e-3), "lora-top:2": (1e-3, 2e-3, 5e-3)}


@dataclass(frozen=True)
class Arm:
    """A layout with its learning rate; the value model's is twice that."""

    layout: str
    rate: float

    def train(self, pm: PreferenceModel, seed: int, iterations: int) -> dict[str, Any]:
        base, codec = world.base(LAYERS, Layout.parse(self.layout))
        held_out, training, _ = world.split()
        config = CLAIMS["faithful"].ppo.model_copy(
            update={
                "learning_rate": self.rate, "value_learning_rate": 2 * self.rate, "value_init": "reference",
                "iterations": iterations,
            }
        )  # fmt: skip
        start = time.perf_counter()
        result = ppo.train(
            config, base.fork(trainable=True, generator=torch_stream(seed, "policy", "adapters")), codec, training, pm,
            seed=seed, held_out=ppo.HeldOut(held_out, {"gold": GoldScorer()}, world.MEASURE_EVERY),
        )  # fmt: skip
        rows = [row for row in result.history if "gold/mean" in row]
        return {
            "layout": self.layout,
            "rate": self.rate,
            "seed": seed,
            "iteration_s": float(np.median([row["time/iteration_s"] for row in result.history])),
            "seconds": time.perf_counter() - start,
            "steps": [row["step"] for row in rows],
            "gold": [row["gold/mean"] for row in rows],
            "kl": [row["kl/reference"] for row in rows],
        }


def gold_at(record: dict[str, Any], iteration: float) -> float:
    """Mean of the last three measurements up to an iteration."""
    done = [gold for step, gold in zip(record["steps"], record["gold"], strict=True) if step <= iteration]
    return float(np.mean(done[-3:]))


def start() -> float:
    """Gold of the fine-tuned model on the held-out prompts."""
    from trimtab.sampling.responses import sample_responses

    model, codec = world.base(LAYERS)
    repeated = [prompt for prompt in world.split()[0] for _ in range(16)]
    responses = sample_responses(
        model, codec, repeated, max_new_tokens=16, temperature=1.0, batch_size=512, generator=torch_stream(0, "start")
    )
    return float(np.mean(GoldScorer().score(repeated, responses)))


def run(arms: list[Arm], seeds: range, path: Path, longer: float) -> list[dict[str, Any]]:
    """Every arm on every seed, those of a seed after each other."""
    done = list(read_jsonl(path).records) if path.exists() else []
    known = {(record["layout"], record["rate"], record["seed"]) for record in done}
    with progress(len(arms) * len(seeds), "layouts") as bar:
        for seed in seeds:
            todo = [arm for arm in arms if (arm.layout, arm.rate, seed) not in known]
            bar.advance(len(arms) - len(todo))
            if not todo:
                continue
            claim = CLAIMS["faithful"]
            assert claim.labels is not None
            pm, _ = world.learn_preferences(claim.labels, claim.preference, seed)
            for arm in todo:
                iterations = ITERATIONS if arm.layout == "full" else round(longer * ITERATIONS)
                done.append(arm.train(pm, seed, iterations))
                append_jsonl(path, done[-1:])
                bar.advance(1)
    return [r for r in done if Arm(r["layout"], r["rate"]) in arms and r["seed"] in seeds]


def tell(records: list[dict[str, Any]], first: float) -> None:
    """A row for each arm; differences are paired by seed."""
    full = {r["seed"]: r for r in records if r["layout"] == "full" and r["rate"] == RATES["full"]}
    gain = np.mean([gold_at(r, ITERATIONS) - first for r in full.values()])
    print(f"start {first:.3f}; full gains {gain:.3f} in {ITERATIONS} iterations, {len(full)} seeds")
    for arm in sorted({Arm(r["layout"], r["rate"]) for r in records}, key=lambda arm: (arm.layout, arm.rate)):
        own = [r for r in records if (r["layout"], r["rate"]) == (arm.layout, arm.rate) and r["seed"] in full]
        pairs = [(r, full[r["seed"]]) for r in own]
        faster = float(np.median([b["iteration_s"] / a["iteration_s"] for a, b in pairs]))
        equal = [(gold_at(a, ITERATIONS) - gold_at(b, ITERATIONS)) / gain for a, b in pairs]
        timed = [
            (gold_at(a, ITERATIONS * b["iteration_s"] / a["iteration_s"]) - gold_at(b, ITERATIONS)) / gain
            for a, b in pairs
        ]
        texts = []
        for shares in (equal, timed):
            interval = bootstrap_mean(shares)
            texts.append(f"{np.mean(shares):+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]")
        kl = np.median([r["kl"][[i for i, s in enumerate(r["steps"]) if s <= ITERATIONS][-1]] for r in own])
        print(
            f"{arm.layout:11} rate {arm.rate:g}: equal iterations {texts[0]}, equal time {texts[1]}; "
            f"{faster:.2f} times as fast, KL {kl:.1f} nats, {len(own)} seeds"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", action="store_true", help="all candidate learning rates, on seeds below 1000")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--json", type=Path, default=RESULTS, help="where results are appended")
    options = parser.parse_args()
    world.one_thread()
    set_quiet(False)
    if options.rates:
        arms = [Arm(layout, rate) for layout, rates in CANDIDATES.items() for rate in rates]
        records = run(arms, range(options.seeds), options.json, 1.0)
    else:
        arms = [Arm(layout, rate) for layout, rate in RATES.items()]
        records = run(arms, range(FIRST_SEED, FIRST_SEED + options.seeds), options.json, LONGER)
    tell(records, start())


if __name__ == "__main__":
    main()
