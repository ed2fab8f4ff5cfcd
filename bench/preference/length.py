"""What taking length out of a preference model's score does where the judge loves length, and where it does not.

    python -m bench.preference.length [--seeds 5] [--judge biased] [--json FILE]

In the tiny world, `PAIRS` pairs sampled from the base model are labeled by a simulated judge: `biased` sees what gold
sees and adds `BONUS` of gold's scale for every eight words; `clean` adds nothing. On these labels three preference
models are trained (`none`, `regress`, `two-head`), the same pairs and seed for all, and measured on 1,024 pairs of 256
other prompts. `random head` is none from the random head that `two-head` starts with, instead of one of zeros:

    correlation   of the score with the log of the length, within pairs (that of gold itself is printed, too)
    judge         accuracy on the judge's own labels: what a user sees as the price
    gold          accuracy on gold's order of the pairs
    opposed       the same on the pairs whose better response, by gold, is shorter by more than a tenth
    matched       the same on the pairs of one length

Intervals are Student's over seeds (other pairs, another judge's noise, another training each); the differences are
between models of one seed. Seed 0, which the length head's settings were chosen on, is left out.
"""

from __future__ import annotations

import argparse
import math
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from bench.preference.members import base
from bench.tiny_world import world
from trimtab import preference, sampling
from trimtab.config.schema import PreferenceConfig, SampleConfig
from trimtab.constitution import load_constitution
from trimtab.data.records import Pair, Prompt
from trimtab.figures import figure
from trimtab.labeling import label_pairs
from trimtab.labeling.labels import to_pairs
from trimtab.models.heads import Headed
from trimtab.models.roles import CausalModel
from trimtab.models.seeds import torch_stream
from trimtab.models.tokens import TextCodec
from trimtab.preference.length import length_figures
from trimtab.preference.objective import Objective
from trimtab.runs.files import write_json
from trimtab.runs.progress import set_quiet
from trimtab.stats.significance import student_quantile
from trimtab.worlds import project as tiny_project
from trimtab.worlds.gold import gold
from trimtab.worlds.judge import JudgePreset, SimulatedJudge
from trimtab.worlds.model import build_tokenizer
from trimtab.worlds.tiny import MAX_RESPONSE_TOKENS

PAIRS, BONUS = 2000, 0.2
CONFIG = PreferenceConfig(epochs=6, batch_size=32, learning_rate=2e-3, max_tokens=48)
JUDGES = {
    "biased": JudgePreset("biased", sharpness=12.0, noise=0.5, blind=False, length_bonus=BONUS),
    "clean": JudgePreset("clean", sharpness=12.0, noise=0.5, blind=False),
}
ARMS = ("none", "random head", "regress", "two-head")


def pairs_of(model: CausalModel, prompts: list[Prompt], each: int, judge: str, seed: int) -> list[Pair]:
    sample = SampleConfig(pairs_per_prompt=each, max_new_tokens=MAX_RESPONSE_TOKENS, batch_size=256)
    candidates = sampling.sample_pairs(model, TextCodec(build_tokenizer()), prompts, None, sample, seed=seed)
    constitution = load_constitution(Path(tiny_project.__file__).parent / "constitution.toml")
    return to_pairs(
        candidates, label_pairs(candidates, SimulatedJudge(JUDGES[judge], seed=seed), constitution, batch_size=1024)
    )


def measured(margins: np.ndarray, pairs: list[Pair]) -> dict[str, float]:
    """Figures of margins (chosen by the judge minus rejected)."""
    words = np.array([[len(r.text.split()) for r in (p.chosen, p.rejected)] for p in pairs])
    worth = np.array([gold(p.prompt.text, p.chosen.text) - gold(p.prompt.text, p.rejected.text) for p in pairs])
    prompts = [p.prompt.messages for p in pairs]
    own = length_figures(margins, words[:, 0], words[:, 1], prompts, resamples=10)
    better = np.sign(worth)
    # with gold's better response in the first place
    swapped = np.where(better[:, None] < 0, words[:, ::-1], words)
    kept = worth != 0
    of_kept = [prompt for prompt, keep in zip(prompts, kept, strict=True) if keep]
    by_gold = length_figures((margins * better)[kept], swapped[kept, 0], swapped[kept, 1], of_kept, resamples=10)
    accuracy = {kind: value.mean for kind, value in by_gold.accuracy.items()}
    return {
        "correlation": own.correlation.mean,
        "judge": own.accuracy["all"].mean,
        "gold": accuracy["all"],
        "opposed": accuracy["shorter"],
        "matched": accuracy["matched"],
    }


def seed_of(model: CausalModel, judge: str, seed: int) -> dict[str, dict[str, float]]:
    codec = TextCodec(build_tokenizer())
    train = pairs_of(model, world.split()[1][:PAIRS], 1, judge, 10 * seed)
    test = pairs_of(model, world.split()[0], 4, judge, 10 * seed + 9)
    prompts = [p.prompt for p in test]
    found = {}
    for arm in ARMS:
        config = CONFIG.model_copy(update={"length_debias": "none" if arm == "random head" else arm})
        with patch.object(Objective, "prepare", drawn_head) if arm == "random head" else nullcontext():
            trained = preference.train(config, model, codec, train, seed=seed)
        chosen, rejected = (trained.score(prompts, [getattr(p, side) for p in test]) for side in ("chosen", "rejected"))
        found[arm] = measured(chosen - rejected, test)
    worth = np.array([gold(p.prompt.text, p.chosen.text) - gold(p.prompt.text, p.rejected.text) for p in test])
    return found | {"gold itself": measured(worth, test)}


def drawn_head(objective: Objective, model: Headed, *names: int) -> None:
    """What a training with a length head does to the first head."""
    width, generator = model.linear.in_features, torch_stream(names[0], "pm", "length head", names[1])
    _, first = (torch.randn(width, generator=generator) for _ in range(2))
    model.linear.weight.detach()[0].copy_(first / math.sqrt(width + 1))


def student(values: np.ndarray) -> tuple[float, float, float]:
    half = student_quantile(0.95, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(values.mean() - half), float(values.mean() + half)


def shown(values: np.ndarray) -> str:
    mean, low, high = student(values)
    return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--judge", choices=sorted(JUDGES), action="append", help="default: both")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    set_quiet(True)
    start = time.perf_counter()
    model = base(0)
    results: dict[str, Any] = {}
    for judge in options.judge or JUDGES:
        rows = [seed_of(model, judge, seed) for seed in range(1, options.seeds + 1)]
        results[judge] = rows
        print(f"{judge}: mean over seeds, and the difference to none", flush=True)
        for arm in rows[0]:
            each = {key: np.array([row[arm][key] for row in rows]) for key in rows[0][arm]}
            print(f"  {arm:12}" + "".join(f"  {key} {figure(float(v.mean()))}" for key, v in each.items()), flush=True)
            if arm in ARMS[1:]:
                for key, values in each.items():
                    print(f"      {key:12} {shown(values - np.array([row['none'][key] for row in rows]))}", flush=True)
    seconds = time.perf_counter() - start
    print(f"{seconds:.0f} s")
    if options.json:
        settings = {"seeds": options.seeds, "pairs": PAIRS, "bonus": BONUS, "config": CONFIG.model_dump()}
        write_json(options.json, {**settings, "seconds": seconds, "results": results})


if __name__ == "__main__":
    main()
