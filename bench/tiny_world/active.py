"""How many labels choosing saves in the tiny world: accuracy by number of labels, by rule of choice, over fresh seeds.

    python -m bench.tiny_world.active                 12 seeds, all rules; prints the table
    python -m bench.tiny_world.active --only-table

A seed draws 2,000 pairs (two for each of 1,000 prompts) and 1,024 pairs of 256 other prompts from the base model; the
faithful judge labels. Fifty pairs by chance are labeled first, then fifty a round, chosen by the rule; after each round
the preference model is fitted anew on all labels so far. It is a linear one on features that are known beforehand (the
frozen base model's hidden states, word counts, words shared with the prompt, length), fitted in milliseconds: hundreds
of fits of the network would take hours. What is measured is the share of held-out pairs that it orders as gold does.
Seeds below 1000 were used to choose features, ridge and rules. Pools and curves are kept in
bench/results/tiny_world/active: an interrupted run goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.tiny_world import pools, world
from bench.tiny_world.linear import Linear
from trimtab.labeling.active import bald, choose
from trimtab.labeling.rounds import WordLearner
from trimtab.runs.files import append_jsonl, read_jsonl
from trimtab.runs.progress import progress
from trimtab.stats.intervals import paired_bootstrap

FIRST_SEED, SEEDS = 1000, 12
ROUND, MOST = 50, 600
AT = 400
"""Labels of the random choice whose accuracy the others are to reach."""
_RESAMPLES = 2000

Floats = NDArray[np.float64]
Chooser = Callable[["Learning"], NDArray[np.int64]]


class Learning:
    """One run: the pool, what is labeled, the model fitted on it, and a random generator of its own."""

    def __init__(self, pool: pools.Pool, seed: int, rule: str) -> None:
        self.pool, self.seed, self.rule = pool, seed, rule
        self.rng = np.random.default_rng([seed, *rule.encode()])
        self.labeled: list[int] = choose(pool.pairs, ROUND, seed=seed).tolist()
        self.model = Linear()

    def curve(self) -> list[float]:
        """Held-out accuracy after each round."""
        found = []
        while True:
            self.model = Linear.fit(self.pool.features[self.labeled], self.pool.labels[self.labeled])
            right = (self.pool.held_out @ self.model.weights > 0) == (self.pool.gold > 0)
            found.append(float(right.mean()))
            if len(self.labeled) >= MOST:
                return found
            self.labeled += RULES[self.rule](self).tolist()

    def by(self, scores: Floats | None = None, votes: Floats | None = None, **options: object) -> NDArray[np.int64]:
        return choose(
            self.pool.pairs, ROUND, scores=scores, judge_votes=votes, labeled=self.labeled, seed=self.seed,
            **options,  # type: ignore[arg-type]
        )  # fmt: skip

    def members(self, weights: Floats) -> Floats:
        """[M, P, 2] scores of members [M, d]."""
        return _scores(weights @ self.pool.features.T)

    def bootstrap(self) -> Floats:
        x, y = self.pool.features[self.labeled], self.pool.labels[self.labeled]
        return np.stack([self.model.refit(x, y, self.rng).weights for _ in range(8)])


def _scores(margins: Floats) -> Floats:
    return np.stack([margins / 2, -margins / 2], axis=-1)


def _own(run: Learning) -> Floats:
    return _scores(run.pool.features @ run.model.weights)


def _stochastic(run: Learning) -> NDArray[np.int64]:
    """BALD with Gumbel noise on its logarithm: drawn in proportion to it (Kirsch et al., 2023)."""
    information = bald(run.members(run.model.posterior(run.rng, 64)))
    information[run.labeled] = 0
    noisy = np.log(np.maximum(information, 1e-300)) + run.rng.gumbel(size=len(information))
    return np.argsort(-noisy)[:ROUND]


def _reduction(run: Learning) -> NDArray[np.int64]:
    """Expected fall of the variance of all other margins, where they are uncertain (as in Cohn et al., 1996)."""
    margins = run.model.posterior(run.rng, 64) @ run.pool.features.T
    centred = (margins - margins.mean(0)) / np.sqrt(len(margins) - 1)
    p = (0.5 * (1 + np.tanh(margins / 2))).mean(0)
    spread = p * (1 - p)
    targets = run.rng.permutation(len(p))[:400]
    fall = (centred.T @ centred[:, targets]) ** 2 @ spread[targets] / ((centred**2).sum(0) + 1 / spread)
    fall[run.labeled] = -1
    return np.argsort(-fall)[:ROUND]


def _words(run: Learning) -> NDArray[np.int64]:
    learner = run.pool.learner(WordLearner)
    return run.by(learner.scores(run.labeled, run.pool.labels[run.labeled].tolist()))


RULES: dict[str, Chooser] = {
    "random": lambda run: run.by(rule="random"),
    "uncertainty of the model": lambda run: run.by(_own(run)),
    "the same, not spread over prompts": lambda run: run.by(_own(run), per_prompt=MOST),
    "uncertainty, mean of 8 bootstrapped": lambda run: run.by(run.members(run.bootstrap())),
    "BALD, 8 bootstrapped": lambda run: run.by(run.members(run.bootstrap()), rule="disagreement"),
    "BALD, 64 of the posterior": lambda run: run.by(run.members(run.model.posterior(run.rng, 64)), rule="disagreement"),
    "BALD, 64 of the posterior, drawn": _stochastic,
    "expected reduction of variance": _reduction,
    "disagreement of two cheap judges": lambda run: run.by(votes=run.pool.cheap),
    "disagreement of model and a cheap judge": lambda run: run.by(_own(run), run.pool.cheap[:1]),
    "uncertainty of a bag of words (label.choose)": _words,
}


def table(curves: dict[str, Floats], seed: int = 0) -> str:
    """A line a rule: accuracy at some numbers of labels, gain over random, labels to reach random's accuracy at `AT`.

    Args:
        curves: [seeds, rounds] accuracies by rule, seeds in the same order.
        seed: of the bootstrap over seeds, the same seeds for every rule.
    """
    shown = [100, 200, 400, 600]
    lines = [
        f"| rule | {' | '.join(f'at {n}' for n in shown)} | mean gain, 100 to {MOST} labels | labels for random's "
        f"accuracy at {AT} | saved |",
        "| --- |" + " ---: |" * (len(shown) + 3),
    ]
    random = curves["random"]
    drawn = np.random.default_rng(seed).integers(len(random), size=(_RESAMPLES, len(random)))
    for name, curve in curves.items():
        cells = [f"{curve[:, n // ROUND - 1].mean():.3f}" for n in shown]
        gain = paired_bootstrap(curve[:, 1:].mean(1), random[:, 1:].mean(1), seed=seed)
        needed = [_needed(curve[rows].mean(0), random[rows].mean(0)) for rows in drawn]
        low, high = np.quantile(needed, [0.025, 0.975])
        middle = _needed(curve.mean(0), random.mean(0))
        more = "more than " if high >= MOST else ""
        saved = [f"{1 - x / AT:+.0%}" for x in (middle, high, low)]
        lines.append(
            f"| {name} | {' | '.join(cells)} | {gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] | "
            f"{middle:.0f} [{low:.0f}, {more}{high:.0f}] | {saved[0]} [{saved[1]}, {saved[2]}] |"
        )
    return "\n".join(lines)


def _needed(curve: Floats, random: Floats) -> float:
    """Labels at which a curve first reaches random's accuracy at `AT`; `MOST` if never.

    Curves are averaged over three rounds and made to rise: the first lucky round is not what is asked for.
    """
    rising, of_random = (np.maximum.accumulate(world.smooth(c.tolist(), 3)) for c in (curve, random))
    wanted = of_random[AT // ROUND - 1]
    above = np.flatnonzero(rising >= wanted)
    if not len(above):
        return float(MOST)
    k = int(above[0])
    if k == 0:
        return float(ROUND)
    share = (wanted - rising[k - 1]) / (rising[k] - rising[k - 1])
    return float(ROUND * (k + share))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many, from {FIRST_SEED} on")
    parser.add_argument("--only-table", action="store_true")
    arguments = parser.parse_args()
    world.one_thread()
    path = world.RESULTS / "active" / "curves.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    done = _done(path)
    missing = [] if arguments.only_table else [(s, r) for s in seeds for r in RULES if (s, r) not in done]
    with progress(len(seeds) * len(RULES), "active", done=len(seeds) * len(RULES) - len(missing)) as bar:
        for seed, rule in missing:
            curve = Learning(pools.pool(seed), seed, rule).curve()
            append_jsonl(path, [{"seed": seed, "rule": rule, "curve": curve}])
            bar.advance(1)
    done = _done(path)
    complete = [s for s in seeds if all((s, r) in done for r in RULES)]
    print(f"{len(complete)} seeds")
    if complete:
        print(table({r: np.array([done[s, r] for s in complete]) for r in RULES}))


def _done(path: Path) -> dict[tuple[int, str], list[float]]:
    return {(r["seed"], r["rule"]): r["curve"] for r in read_jsonl(path).records}


if __name__ == "__main__":
    main()
