"""Three claims about training, each over fresh seeds in the tiny world; see docs/tiny_world.md for the figures.

    python -m bench.tiny_world.claims                 all three claims, 20 seeds each, two runs at a time
    python -m bench.tiny_world.claims --claim faithful --seeds 3

(gold)      gold itself as the reward (`module:function`): PPO closes at least .8 of the gap in at least 19 of 20 seeds
(faithful)  the faithful judge, its preference model, the preset's settings: at least .5 of the gap in at least 19
(blind)     the judge with blind spots, beta 0: the proxy score rises while smoothed gold ends at least .1 of the gap
            below its maximum, in at least 16

The gap is that between the SFT model and its best of 64 chosen by gold, on 256 held-out prompts. Nothing stops on gold.
Results are appended to bench/results/tiny_world/claims.jsonl; seeds that stand there under the same settings are not
run again.
"""

from __future__ import annotations

import argparse
import multiprocessing
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.tiny_world import world
from trimtab.config.schema import PPOConfig, PreferenceConfig
from trimtab.runs.files import append_jsonl, read_jsonl, stable_hash
from trimtab.runs.progress import progress, set_quiet
from trimtab.stats.intervals import wilson

FIRST_SEED = 1000
"""Seeds below it were used to choose the settings."""
SEEDS = 20

_PPO = {
    "batch_size": 64, "max_new_tokens": 16, "epochs": 2, "minibatches": 2, "learning_rate": 5e-4,
    "value_learning_rate": 1e-3, "checkpoint_every": 10**6, "probe_prompts": 0, "iterations": 100,
}  # fmt: skip
_PM = {"batch_size": 64, "learning_rate": 1e-3, "checkpoint_every": 10**6, "max_tokens": 48}


@dataclass(frozen=True)
class Claim:
    """What is trained, and in how many of 20 seeds what must hold."""

    name: str
    labels: world.Labels | None
    preference: PreferenceConfig
    ppo: PPOConfig
    needed: int

    def settings(self) -> str:
        chosen = (section.model_dump(exclude_defaults=True) for section in (self.preference, self.ppo))
        return stable_hash([repr(self.labels), *chosen])[:12]


CLAIMS = {
    claim.name: claim
    for claim in (
        Claim("gold", None, PreferenceConfig(), PPOConfig(**_PPO, beta=0.0), 19),
        Claim(
            "faithful", world.Labels("faithful", 6000), PreferenceConfig(**_PM, epochs=3),
            PPOConfig(**_PPO, beta=0.1), 19,
        ),
        Claim(
            "blind", world.Labels("blind", 4000), PreferenceConfig(**_PM, epochs=2),
            PPOConfig(**(_PPO | {"learning_rate": 2e-4, "iterations": 120}), beta=0.0), 16,
        ),
    )
}  # fmt: skip


def run_seed(task: tuple[str, int]) -> dict[str, Any]:
    """One seed of one claim, on one thread."""
    world.one_thread()
    set_quiet(True)
    claim, seed = CLAIMS[task[0]], task[1]
    record: dict[str, Any] = {"claim": claim.name, "seed": seed, "settings": claim.settings()}
    pm = None
    if claim.labels is None:
        scorer = world.gold_reward()
    else:
        pm, facts = world.learn_preferences(claim.labels, claim.preference, seed)
        scorer = pm
        record |= facts
    return record | world.train_policy(claim.ppo, scorer, seed, pm) | world.gap()


def outcome(record: dict[str, Any]) -> tuple[bool, float]:
    """Whether the claim holds for this seed, and the share of the gap that decides it."""
    width = record["best_of_64"] - record["sft"]
    closed = [(gold - record["sft"]) / width for gold in record["gold"]]
    if record["claim"] != "blind":
        return closed[-1] >= {"gold": 0.8, "faithful": 0.5}[record["claim"]], closed[-1]
    smoothed = world.smooth(closed)
    fall = float(smoothed.max() - smoothed[-1])
    return fall >= 0.1 and record["proxy"][-1] > record["proxy"][0], fall


def summary(claim: Claim, records: list[dict[str, Any]]) -> str:
    """A line for the docs: seeds that hold with a Wilson interval, spread of the deciding figure, times."""
    held, figures = zip(*map(outcome, records), strict=True)
    share = wilson(sum(held), len(held))
    seconds = [record["seconds"] for record in records]
    extra = ""
    if claim.labels is not None:
        extra = f", PM accuracy {np.median([r['pm_accuracy'] for r in records]):.3f}"
    verdict = "holds" if sum(held) >= claim.needed and len(held) >= SEEDS else "does not hold (yet)"
    return (
        f"{claim.name}: {sum(held)} of {len(held)} seeds (95 % interval {share.low:.2f} to {share.high:.2f}; "
        f"{claim.needed} of {SEEDS} claimed: {verdict}); share of the gap {min(figures):.2f} to {max(figures):.2f}, "
        f"median {np.median(figures):.2f}; end KL {np.median([r['kl'][-1] for r in records]):.1f} nats{extra}; "
        f"PPO {np.median(seconds):.1f} s a run, {max(seconds):.1f} s at most"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claim", choices=list(CLAIMS), action="append", help="only this one (repeatable)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many seeds, from 1000 on")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one thread each")
    arguments = parser.parse_args()
    world.one_thread()
    world.base()
    gap = world.gap()
    print(f"gold: SFT {gap['sft']:.3f}, best of {world.BEST_OF} {gap['best_of_64']:.3f}")
    path = world.RESULTS / "claims.jsonl"
    for name in arguments.claim or CLAIMS:
        claim = CLAIMS[name]
        done = {
            r["seed"]: r for r in read_jsonl(path).records if r["claim"] == name and r["settings"] == claim.settings()
        }
        wanted = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
        tasks = [(name, seed) for seed in wanted if seed not in done]
        context = multiprocessing.get_context("spawn")
        with context.Pool(arguments.jobs) as pool, progress(len(wanted), name, done=len(wanted) - len(tasks)) as bar:
            for record in pool.imap_unordered(run_seed, tasks):
                append_jsonl(path, [record])
                done[record["seed"]] = record
                bar.advance(1)
        print(summary(claim, [done[seed] for seed in wanted]))


if __name__ == "__main__":
    main()
