"""What `pm shift` says of policies in the tiny world: a healthy one, and one that exploits blind spots.

    python -m bench.preference.shift [--seeds 1] [--pairs 2000] [--iterations 60] [--json FILE]

For each seed `PAIRS` pairs of the base model, labeled by a simulated judge, train a preference model; PPO trains on it.
`faithful`: a judge that mistakes by noise alone, beta .1. `blind`: one that takes repetition and length for quality,
beta 0. At several iterations the 256 held-out prompts are answered twice, and each line shows what the responses'
states say against the truth: `accuracy` of their pairs as the same judge would label them (each labeling drawn anew).
`overhead`: share of an iteration that the signals `shift/*` take.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.tiny_world import world
from bench.tiny_world.claims import _PM, _PPO
from trimtab import ppo, preference, sampling
from trimtab.config.schema import PPOConfig, PreferenceConfig, SampleConfig
from trimtab.constitution import load_constitution
from trimtab.data.records import CandidatePair, Pair
from trimtab.labeling import label_pairs
from trimtab.labeling.labels import to_pairs
from trimtab.models.roles import CausalModel
from trimtab.models.seeds import torch_stream
from trimtab.preference import PreferenceModel
from trimtab.preference.shift import ShiftReport, shift
from trimtab.preference.shift_reference import Reference, reference_of
from trimtab.runs.callbacks import IterationView
from trimtab.runs.files import write_json
from trimtab.runs.progress import set_quiet
from trimtab.sampling.responses import sample_responses
from trimtab.worlds import project as tiny_project
from trimtab.worlds.gold import gold
from trimtab.worlds.judge import SimulatedJudge
from trimtab.worlds.tiny import MAX_RESPONSE_TOKENS

ARMS = {"faithful": (0.1, 5e-4, 3), "blind": (0.0, 2e-4, 2)}
"""Judge -> beta, learning rate of the policy, epochs of the preference model."""
AT = (5, 10, 20, 40, 60, 80, 100)


def labeled(candidates: list[CandidatePair], judge: str, seed: int) -> list[Pair]:
    constitution = load_constitution(Path(tiny_project.__file__).parent / "constitution.toml")
    judgments = label_pairs(candidates, SimulatedJudge(judge, seed=seed), constitution, batch_size=1024)
    return to_pairs(candidates, judgments)


def measured(
    pm: PreferenceModel, reference: Reference, policy: CausalModel, judge: str, step: int, seed: int
) -> dict[str, Any]:
    _, codec = world.base()
    prompts = [p for p in world.split()[0] for _ in range(2)]
    responses = sample_responses(
        policy, codec, prompts, max_new_tokens=MAX_RESPONSE_TOKENS, temperature=1.0, batch_size=512,
        generator=torch_stream(seed, "shift", step),
    )  # fmt: skip
    report = shift(pm, reference, prompts, responses, label=f"{judge} {step}", seed=seed)
    candidates = [
        CandidatePair(f"{step}-{i}", prompts[i], responses[i], responses[i + 1])
        for i in range(0, len(prompts), 2)
        if responses[i].text != responses[i + 1].text
    ]
    own = preference.evaluate(pm, labeled(candidates, judge, seed + 77), seed=seed) if len(candidates) > 20 else None
    worth = float(np.mean([gold(p.text, r.text) for p, r in zip(prompts, responses, strict=True)]))
    return {
        "step": step,
        "gold": worth,
        "truth": None if own is None else own.accuracy._asdict(),
        **report.as_dict(),
    } | {"line": _line(report, worth, None if own is None else own.accuracy.mean)}


def _line(report: ShiftReport, worth: float, truth: float | None) -> str:
    expected = report.expected
    shown = "cannot tell       " if expected.why_not else "{:.2f} [{:.2f}, {:.2f}]".format(*expected.accuracy[:3])
    score = report.scores.psi.value if report.scores is not None else float("nan")
    return (
        f"{report.label:14} {report.verdict:8} gold {worth:.2f}  AUC {report.domain.mean:.2f}  "
        f"distance {report.distance.mean:.2f}  outside {report.outside.mean:.3f}  PSI {score:.2f}  "
        f"accuracy expected {shown}  truth {float('nan') if truth is None else truth:.2f}  "
        f"by distance {'-' if expected.why_not else f'{expected.by_distance.mean:+.2f}'}"
    )


class Sampling:
    """A callback that measures the policy."""

    def __init__(self, measure: Any) -> None:
        self.measure, self.rows = measure, []

    def on_iteration(self, view: IterationView) -> None:
        if view.step in AT:
            self.rows.append(self.measure(view.step))
            print(self.rows[-1]["line"], flush=True)


def arm(judge: str, seed: int, pairs: int, iterations: int) -> dict[str, Any]:
    beta, rate, epochs = ARMS[judge]
    base, codec = world.base()
    training = world.split()[1]
    sample = SampleConfig(pairs_per_prompt=1, max_new_tokens=MAX_RESPONSE_TOKENS, batch_size=256)
    candidates = sampling.sample_pairs(base, codec, training[:pairs], None, sample, seed=seed)
    own = labeled(candidates, judge, seed)
    config = PreferenceConfig(**_PM, epochs=epochs)
    pm = preference.train(config, base, codec, own, seed=seed)
    parts = preference.split_by_prompt(own, config.validation_fraction, seed)
    reference = reference_of(pm, *parts, seed=seed)
    policy = base.fork(trainable=True)

    def measure(step: int) -> dict[str, Any]:
        pm.watch(None)
        try:
            return measured(pm, reference, policy, judge, step, seed)
        finally:
            pm.watch(reference)

    sampled = Sampling(measure)
    sampled.rows.append(measure(0))
    print(sampled.rows[-1]["line"], flush=True)
    settings = PPOConfig(**(_PPO | {"learning_rate": rate, "iterations": iterations}), beta=beta)
    spent = _timed(pm)
    result = ppo.train(
        settings,
        policy,
        codec,
        training,
        pm,
        preference=pm.model,
        seed=seed,
        callbacks=[sampled],  # type: ignore[list-item]
    )
    total = sum(row["time/iteration_s"] for row in result.history)
    keys = ("step", "kl/reference", "score/mean", "shift/distance", "shift/outside_fraction", "shift/score_psi")
    return {
        "judge": judge, "seed": seed, "sets": sampled.rows, "overhead": sum(spent[1:]) / total,
        "first_call_s": spent[0], "history": [{key: row[key] for key in keys} for row in result.history],
    }  # fmt: skip


def _timed(pm: PreferenceModel) -> list[float]:
    """Seconds that each call for signals takes, from now on."""
    spent: list[float] = []
    tell = pm.signals

    def signals(*args: Any) -> dict[str, float]:
        start = time.perf_counter()
        found = tell(*args)
        spent.append(time.perf_counter() - start)
        return found

    pm.signals = signals  # type: ignore[method-assign]
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--arm", choices=list(ARMS), action="append")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    set_quiet(True)
    found = []
    for judge in options.arm or ARMS:
        for seed in range(options.seeds):
            found.append(arm(judge, seed, options.pairs, options.iterations))
            ends = [found[-1]["history"][i]["shift/distance"] for i in (0, -1)]
            print(
                f"{judge}, seed {seed}: shift/distance {ends[0]:.2f} to {ends[1]:.2f}, overhead "
                f"{100 * found[-1]['overhead']:.2f} % of an iteration, {found[-1]['first_call_s']:.2f} s at the first",
                flush=True,
            )
    if options.json:
        write_json(options.json, {"pairs": options.pairs, "arms": found})


if __name__ == "__main__":
    main()
