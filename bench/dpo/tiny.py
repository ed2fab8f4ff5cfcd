"""DPO in the tiny world: what it gains in exact gold over the SFT model, at what KL and in how many seconds.

    python -m bench.dpo.tiny [--seeds 3] [--judge faithful] [--pairs 3000] [--set beta=0.1 ...] [--json FILE]

A seed redraws the pairs, the judge's noise and the training; the SFT model is the same. Gold and KL are measured on the
256 held-out prompts, before training and at every checkpoint. `gap` is the share of the way from the SFT model to its
best of 64 (chosen by gold) that was gone.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.tiny_world import world
from trimtab import dpo
from trimtab.config.schema import DPOConfig
from trimtab.data.records import Pair
from trimtab.runs.run import Run
from trimtab.worlds.gold import GoldScorer
from trimtab.worlds.tiny import MAX_RESPONSE_TOKENS

CONFIG = DPOConfig(epochs=1, batch_size=64, learning_rate=3e-4, beta=0.1, max_new_tokens=MAX_RESPONSE_TOKENS)


def once(config: DPOConfig, pairs: list[Pair], seed: int) -> dict[str, Any]:
    """One training; gold, KL and held-out figures by checkpoint, the first before any update."""
    model, codec = world.base()
    held_out = dpo.HeldOut(world.split()[0], {"gold": GoldScorer()})
    with TemporaryDirectory() as directory:
        run = Run.create(Path(directory), "r", config={}, seed=seed)
        run.begin_stage("dpo", "bench")
        start = time.perf_counter()
        dpo.train(config, model.fork(trainable=True), codec, pairs, run=run, seed=seed, held_out=held_out)
        seconds = time.perf_counter() - start
        rows = [row for row in run.metrics("dpo") if "gold/mean" in row]
    keys = ("gold/mean", "kl/reference", "accuracy/validation", "loss/validation", "held_out/dpo/chosen_change")
    return {"seed": seed, "pairs": len(pairs), "seconds": seconds, "step": [row["step"] for row in rows]} | {
        key: [row[key] for row in rows] for key in keys
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--judge", choices=("faithful", "blind"), default="faithful")
    parser.add_argument("--pairs", type=int, default=3000)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of [dpo]")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    world.one_thread()
    changed = {key: _value(value) for key, _, value in (item.partition("=") for item in options.set)}
    config = DPOConfig.model_validate(CONFIG.model_dump() | changed)
    gap = world.gap()
    found = []
    for seed in range(options.seeds):
        one = once(config, world.labeled_pairs(world.Labels(options.judge, options.pairs), seed), seed)
        gold = one["gold/mean"]
        one["gap"] = (gold[-1] - gap["sft"]) / (gap["best_of_64"] - gap["sft"])
        found.append(one)
        print(
            f"seed {seed}: gold {gold[0]:.3f} -> {gold[-1]:.3f} ({one['gap']:.0%} of the gap) at KL "
            f"{one['kl/reference'][-1]:.1f} nats, held-out accuracy {one['accuracy/validation'][-1]:.2f}, "
            f"{one['seconds']:.0f} s for {one['pairs']} pairs",
            flush=True,
        )
    if options.json is not None:
        options.json.write_text(json.dumps({"config": config.model_dump(mode="json"), "gap": gap, "runs": found}))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


if __name__ == "__main__":
    main()
