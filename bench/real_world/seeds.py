"""The demo under several seeds, in one table; and a control for the sharpness of sampling.

    python -m bench.real_world.seeds                        runs the demo for seeds 0, 1, 2 and prints the table
    python -m bench.real_world.seeds --only-table           prints the table of the runs that are there
    python -m bench.real_world.seeds --control              adds the reference at lower temperatures

Projects lie in bench/results/real_world/seed<n>; each is `trimtab init --preset demo` and `trimtab run` with another
`project.seed`. The control answers an objection: a policy that samples less at random stays on the subject more easily,
and so does the reference at a lower temperature. It compares policy and reference at equal entropy.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trimtab.evaluation.relevance import relevance
from trimtab.models.logprobs import response_logprobs
from trimtab.models.prompts import encode_prompts
from trimtab.models.roles import CausalModel
from trimtab.models.seeds import torch_stream
from trimtab.models.tokens import TextCodec
from trimtab.pipeline.build import Workshop
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import run_project
from trimtab.pipeline.scaffold import init_project
from trimtab.ppo.rollout import sample_rollout
from trimtab.runs.run import Run
from trimtab.stats.intervals import bootstrap_mean

RESULTS = Path(__file__).parent.parent / "results" / "real_world"
TEMPERATURES = (0.8, 0.7, 0.6)
ROWS = 48


def project_of(seed: int) -> Project:
    directory = RESULTS / f"seed{seed}"
    init_project(directory, "demo", "keep")
    return Project.open(directory, [f"project.seed={seed}"])


def table(runs: list[Run]) -> str:
    """One line a seed: independent measure, win rate, length, preference model, KL."""
    columns = (
        "seed", "relevance, reference -> policy", "difference", "win rate", "length, tokens", "PM accuracy",
        "shaped PM score", "KL, nats",
    )  # fmt: skip
    lines = [_line(columns), _line(["---"] * len(columns))]
    for run in runs:
        evaluation, rows = _result(run, "eval"), run.metrics("ppo")
        measure, length = evaluation["measures"][0], evaluation["length"]
        cells = (
            str(run.seed),
            f"{measure['reference']:.3f} -> {measure['policy']:.3f}",
            _interval(measure["difference"]),
            _interval(measure["win_rate"]),
            f"{length['reference']:.1f} -> {length['policy']:.1f}",
            _interval(_result(run, "pm")["accuracy"]),
            f"{rows[1]['score/shaped_mean']:+.2f} -> {rows[-1]['score/shaped_mean']:+.2f}",
            f"{rows[-1]['kl/reference']:.1f}",
        )
        lines.append(_line(cells))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _result(run: Run, stage: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run.artifact(stage) / "result.json").read_text())
    return found


def _interval(estimate: dict[str, Any]) -> str:
    return f"{estimate.get('value', estimate.get('mean')):.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}]"


@torch.no_grad()
def sharpness(shop: Workshop, model: CausalModel, codec: TextCodec, temperature: float) -> tuple[float, np.ndarray]:
    """(mean entropy in nats a token, relevance of every response) of a model's samples on the held-out prompts."""
    config = shop.project.config
    prompts = shop.project.held_out_prompts
    encoded = encode_prompts(prompts, codec, model.context_length, config.eval.max_new_tokens)
    generator = torch_stream(config.project.seed, "control", str(temperature))
    entropies, texts = [], []
    with shop.precision.autocast():
        for start in range(0, len(prompts), ROWS):
            rollout = sample_rollout(
                model, codec, encoded, prompts[start : start + ROWS], responses_per_prompt=1, generator=generator,
                max_new_tokens=config.eval.max_new_tokens, temperature=temperature, device=model.device,
            )  # fmt: skip
            out = response_logprobs(
                model, rollout.ids, rollout.mask, rollout.prompt_width, temperature, want_entropy=True
            )
            assert out.entropy is not None
            entropies.append(out.entropy[rollout.response_mask])
            texts += [response.text for response in rollout.responses]
    return float(torch.cat(entropies).mean()), np.array(relevance([p.text for p in prompts], texts))


def control(project: Project, run: Run) -> str:
    """Relevance and entropy of the reference at falling temperatures, and of the policy at its own."""
    shop = Workshop(project, run)
    reference, codec = shop.reference()
    lines = [_line(("model", "temperature", "entropy, nats a token", "relevance")), _line(["---"] * 4)]
    for name, model, temperatures in (
        ("reference", reference, TEMPERATURES),
        ("policy", shop.policy()[0], (project.config.eval.temperature,)),
    ):
        for temperature in temperatures:
            entropy, values = sharpness(shop, model, codec, temperature)
            mean = bootstrap_mean(values)
            lines.append(
                f"| {name} | {temperature} | {entropy:.2f} | {mean.mean:.3f} [{mean.low:.3f}, {mean.high:.3f}] |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only-table", action="store_true", help="run nothing")
    parser.add_argument("--control", action="store_true", help="the reference at lower temperatures (minutes a seed)")
    arguments = parser.parse_args()
    projects = [project_of(seed) for seed in arguments.seeds]
    if not arguments.only_table:
        for project in projects:
            run_project(project, say=print)
    runs = [Run.open(project.runs / "main") for project in projects]
    print(table(runs))
    if arguments.control:
        for project, run in zip(projects, runs, strict=True):
            print(f"\nseed {run.seed}\n\n{control(project, run)}")


if __name__ == "__main__":
    main()
