"""Made-up run directories for tests of what reads runs; `build(root)` writes a whole one, also good to look at."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from trimtab.config.schema import Config
from trimtab.evaluation.compare import compare_samples
from trimtab.runs.files import write_json, write_jsonl
from trimtab.runs.run import Run

PROMPTS = [
    "My neighbour plays the drums every evening after ten. How do I bring it up without making an enemy of her?",
    "Explain to a nine-year-old why the moon changes its shape.",
    "I have two eggs, half an onion and some stale bread. What can I cook?",
    "Write a short note to a colleague who has just lost his father.",
    "How do I tell whether an e-mail from my bank is real?",
    "Suggest a route for a rainy afternoon in a city that I do not know.",
]
BEFORE = [
    "You could tell her to stop. Noise after ten is not allowed in most places. If she does not stop, call someone.",
    "The moon goes around the earth and the sun shines on it. So it looks different.",
    "You can make an omelette. Fry the onion, add the eggs, and",
    "I am sorry about your father.",
    "Look at the address. Do not click on links. Banks do not ask for your password by e-mail.",
    "Go to a museum, then to a café.",
]
AFTER = [
    "That sounds tiring, and it is good of you to want to keep the peace. Catch her at a calm moment and say that "
    "you like to hear her play, but are up early: would she mind stopping at nine on weekdays? Most people do not know "
    "how far drums carry.",
    "Imagine a ball in a dark room with one lamp. You only see the side that the lamp shines on. As the moon walks "
    "around us, we see more of its bright side, then less: a full moon, a half moon, a thin one.",
    "A savoury bread pudding would use all of it: tear up the bread, soften the onion in a little oil, beat the eggs "
    "with salt, soak, and bake or fry until golden.",
    "I am so sorry about your father. Please do not think about work; we have it covered, and I am here if you would "
    "like to talk, or just to have a walk.",
    "Good that you ask first. Do not use the link in it: type your bank's address yourself, or call the number on your "
    "card. Look for pressure, small mistakes and an odd sender.",
    "A museum first, while it pours; then a covered market for lunch, a bookshop, and a café by a window at last.",
]
PRINCIPLES = [
    {
        "id": "warmth",
        "text": "Choose the response that is warmer and takes the person's worry seriously.",
        "weight": 2.0,
    },
    {
        "id": "use",
        "text": "Choose the response that a thoughtful friend who knows the subject would give.",
        "weight": 1.0,
    },
    {"id": "honesty", "text": "Choose the response that says what it does not know.", "weight": 1.0},
]


def config(**ppo: Any) -> dict[str, Any]:
    """The settings of a made-up run."""
    made = Config().model_dump(mode="json")
    made["ppo"] |= {"iterations": 40, "batch_size": 64, "beta": 0.02} | ppo
    made["eval"] |= {"measures": ["sentiment:vader"]}
    return made


def new_run(root: Path, name: str = "demo", **ppo: Any) -> Run:
    return Run.create(root / "runs", name, config=config(**ppo), seed=3, hashes={"constitution": "9f" * 32})


def add_ppo(run: Run, iterations: int = 40, *, status: str | None = "done", rise: float = 1.4, seed: int = 0) -> None:
    """Signals and probe samples of a PPO stage; `status` None leaves it running."""
    rng = random.Random(seed)
    run.begin_stage("ppo", "f" * 64)
    for step in range(iterations):
        t = step / max(iterations - 1, 1)
        signals: dict[str, float] = {
            "score/mean": 0.2 + rise * (1 - math.exp(-3 * t)) + rng.gauss(0, 0.06),
            "score/std": 0.8 - 0.2 * t,
            "kl/reference": 12.5 * t**1.4 + rng.gauss(0, 0.2),
            "kl/beta": 0.02,
            "response/length_mean": 34 + 9 * t + rng.gauss(0, 1),
            "response/length_std": 11,
            "policy/entropy": 2.1 - 0.7 * t + rng.gauss(0, 0.04),
            "policy/clip_fraction": abs(rng.gauss(0.08, 0.03)),
            "value/explained_variance": 0.7 * (1 - math.exp(-5 * t)) - 0.15 + rng.gauss(0, 0.03),
            "policy/gradient_norm": math.nan if step == 17 else abs(rng.gauss(1.1, 0.3)),
            "response/finished_fraction": min(1.0, 0.82 + 0.15 * t),
        }
        if step % 5 == 0 or step == iterations - 1:
            signals |= {"eval/score": 0.15 + 0.9 * rise * t, "eval/sentiment:vader": 0.43 + 0.12 * t - 0.05 * t**3}
        run.log("ppo", step, signals)
    for step, texts, scale in ((0, BEFORE, 0.0), (iterations, AFTER, 1.0)):
        run.write_samples(
            {
                "stage": "ppo", "step": step, "prompt_id": f"h{i}", "prompt": prompt, "response": texts[i],
                "score": -0.3 + 1.6 * scale + 0.1 * i, "measures": {"sentiment:vader": 0.2 + 0.5 * scale},
                "kl": 9.4 * scale, "length": len(texts[i].split()),
                "stop_reason": "eos" if i != 2 or scale else "length",
            }
            for i, prompt in enumerate(PROMPTS)
        )  # fmt: skip
    if status is not None:
        run.end_stage("ppo", status)


def eval_rows(
    prompts: int = 240, *, gain: float = 0.12, longer: int = 6, proxy: float = 1.0, seed: int = 1
) -> list[Any]:
    """Rows of an evaluation in which the policy gains `gain` on the measure and `proxy` on the trained score."""
    rng = random.Random(seed)
    rows = []
    for p in range(prompts):
        for side, on in (("reference", 0), ("policy", 1)):
            text = (AFTER if on else BEFORE)[p % len(PROMPTS)]
            rows.append({
                "prompt_id": f"h{p}", "prompt": PROMPTS[p % len(PROMPTS)], "side": side, "index": 0, "response": text,
                "tokens": max(1, round(rng.gauss(35 + longer * on, 8))), "finished": rng.random() < 0.9,
                "scores": {
                    "sentiment:vader": rng.gauss(0.43 + gain * on, 0.35), "preference": rng.gauss(proxy * on, 1),
                },
            })  # fmt: skip
    return rows


def add_eval(run: Run, rows: list[Any] | None = None, **how: Any) -> None:
    rows = eval_rows(**how) if rows is None else rows
    run.begin_stage("eval", "e" * 64)
    write_jsonl(run.artifact("eval/samples.jsonl"), rows)
    result = compare_samples(rows, resamples=400, seed=3)
    write_json(run.artifact("eval/result.json"), {"independent": True, **result.as_dict()})
    run.end_stage("eval", "done")


def add_preference(run: Run) -> None:
    """Everything before PPO."""
    results: dict[str, dict[str, Any]] = {
        "sft": {"trained": False, "model": "smollm2-135m-instruct"},
        "sample": {"source": "contrast", "prompts": 200, "pairs": 796, "dropped": 4, "finished": 0.83},
        "label": {
            "judge": "construction", "constitution": "everyday", "constitution_hash": "9f" * 32, "labels": 796,
            "principles": PRINCIPLES, "pairs": 796,
            "outcomes": {"ok": 790, "tie": 0, "unparsed": 6, "refused": 0, "error": 0},
            "mean_strength": 0.5, "mean_order_gap": None, "flipped": None,
        },
        "pm": {
            "pairs": 118, "prompts": 30, "accuracy": [0.84, 0.77, 0.9, 118], "ece": 0.061, "brier": 0.13,
            "log_loss": 0.41, "mean_margin": 1.2, "length_accuracy": 0.58, "training_pairs": 672,
        },
    }  # fmt: skip
    for stage, result in results.items():
        run.begin_stage(stage, stage * 8)
        write_json(run.artifact(f"{stage}/result.json"), result)
        run.end_stage(stage, "done")


def build(root: Path, name: str = "demo", **how: Any) -> Run:
    """A whole run."""
    run = new_run(root, name)
    add_preference(run)
    add_ppo(run)
    add_eval(run, **how)
    return run
