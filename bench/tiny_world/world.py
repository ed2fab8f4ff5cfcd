"""What every tiny-world experiment shares: the cached base model, the gap that training can close, one seed's run.

Only the base model is cached. A seed redraws judge noise, pairs, preference model and PPO.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from trimtab import ppo, preference, sampling, sft
from trimtab.config.layout import FULL, Layout
from trimtab.config.schema import PPOConfig, PreferenceConfig, SampleConfig, SFTConfig
from trimtab.constitution import load_constitution
from trimtab.data.demonstrations import Demonstration
from trimtab.data.records import Pair, Prompt
from trimtab.labeling import label_pairs
from trimtab.labeling.labels import to_pairs
from trimtab.models.loading import load_causal_lm, load_codec
from trimtab.models.roles import CausalModel
from trimtab.models.seeds import torch_stream
from trimtab.models.tokens import TextCodec
from trimtab.preference import PreferenceModel
from trimtab.runs.files import stable_hash, write_json
from trimtab.sampling.responses import sample_responses
from trimtab.scoring import FunctionScorer, Scorer
from trimtab.worlds import project as tiny_project
from trimtab.worlds.gold import GoldScorer, gold
from trimtab.worlds.judge import SimulatedJudge
from trimtab.worlds.model import LAYERS, build_model, build_tokenizer
from trimtab.worlds.tiny import MAX_RESPONSE_TOKENS, demonstrations, prompts

RESULTS = Path(__file__).parent.parent / "results" / "tiny_world"
BASE_SEED = 0
BASE = SFTConfig(data="demonstrations", epochs=12, batch_size=64, learning_rate=3e-3, checkpoint_every=10**6)
BEST_OF = 64
MEASURE_EVERY = 4
"""Iterations between measurements of gold on the held-out prompts."""


@dataclass(frozen=True)
class Labels:
    """How the pairs of a seed are made."""

    judge: Literal["faithful", "blind"]
    pairs: int


@cache
def split() -> tuple[list[Prompt], list[Prompt], list[Prompt]]:
    """(held-out, training, demonstration) prompts, disjoint, the same for every seed."""
    sizes = tiny_project.HELD_OUT_PROMPTS, tiny_project.TRAIN_PROMPTS, tiny_project.DEMONSTRATIONS
    drawn = prompts(sum(sizes), BASE_SEED)
    first, second = sizes[0], sizes[0] + sizes[1]
    return drawn[:first], drawn[first:second], drawn[second:]


def base(layers: int = LAYERS, layout: Layout = FULL) -> tuple[CausalModel, TextCodec]:
    """The SFT model, trained once and cached; `layers`: a deeper one; `layout`: what its forks will train."""
    what = [BASE.model_dump(), BASE_SEED, *([layers] if layers != LAYERS else [])]
    directory = RESULTS / f"base-{stable_hash(what)[:12]}"
    if not (directory / "config.json").exists():
        model = CausalModel(build_model(BASE_SEED, layers)).fork(trainable=True)
        codec = TextCodec(build_tokenizer())
        shown = demonstrations(split()[2], BASE_SEED)
        sft.train(BASE, model, codec, [Demonstration(p, r.text) for p, r in shown], seed=BASE_SEED)
        codec.save(directory)
        model.save_pretrained(directory, pad_id=codec.pad_id)
    codec = load_codec(str(directory))
    return load_causal_lm(str(directory), layout=layout, codec=codec), codec


def gap() -> dict[str, float]:
    """Mean gold of the SFT model and of its best of 64 (chosen by gold) on the held-out prompts."""
    path = RESULTS / "gap.json"
    if not path.exists():
        model, codec = base()
        held_out = split()[0]
        repeated = [p for p in held_out for _ in range(BEST_OF)]
        responses = sample_responses(
            model, codec, repeated, max_new_tokens=MAX_RESPONSE_TOKENS, temperature=1.0, batch_size=512,
            generator=torch_stream(BASE_SEED, "best-of"),
        )  # fmt: skip
        values = np.array([gold(p.text, r.text) for p, r in zip(repeated, responses, strict=True)])
        table = values.reshape(len(held_out), BEST_OF)
        write_json(path, {"sft": float(table.mean()), "best_of_64": float(table.max(1).mean())})
    found: dict[str, float] = json.loads(path.read_text())
    return found


def labeled_pairs(labels: Labels, seed: int) -> list[Pair]:
    """Pairs sampled from the SFT model and labeled by the simulated judge, all from this seed."""
    model, codec = base()
    training = split()[1]
    each = -(-labels.pairs // len(training))
    sample = SampleConfig(pairs_per_prompt=each, max_new_tokens=MAX_RESPONSE_TOKENS, batch_size=256)
    candidates = sampling.sample_pairs(model, codec, training[: labels.pairs // each], None, sample, seed=seed)
    constitution = load_constitution(Path(tiny_project.__file__).parent / "constitution.toml")
    judge = SimulatedJudge(labels.judge, seed=seed)
    return to_pairs(candidates, label_pairs(candidates, judge, constitution, batch_size=1024))


def learn_preferences(labels: Labels, config: PreferenceConfig, seed: int) -> tuple[PreferenceModel, dict[str, Any]]:
    """A preference model trained on `labeled_pairs`, from this seed."""
    model, codec = base()
    labeled = labeled_pairs(labels, seed)
    pm = preference.train(config, model, codec, labeled, seed=seed)
    _, held_out = preference.split_by_prompt(labeled, config.validation_fraction, seed)
    metrics = preference.evaluate(pm, held_out, seed=seed)
    return pm, {"pm_accuracy": metrics.accuracy.mean, "pairs": len(labeled)}


def train_policy(config: PPOConfig, scorer: Scorer, seed: int, pm: PreferenceModel | None = None) -> dict[str, Any]:
    """One PPO run, with gold and the proxy on the 256 held-out prompts every few iterations."""
    model, codec = base()
    held_out, training, _ = split()
    start = time.perf_counter()
    result = ppo.train(
        config, model.fork(trainable=True), codec, training, scorer, preference=pm.model if pm else None, seed=seed,
        held_out=ppo.HeldOut(held_out, {"gold": GoldScorer()}, MEASURE_EVERY),
    )  # fmt: skip
    measured = [row for row in result.history if "gold/mean" in row]
    return {
        "seconds": time.perf_counter() - start,
        "steps": [row["step"] for row in measured],
        "gold": [row["gold/mean"] for row in measured],
        "proxy": [row["eval/score"] for row in measured],
        "kl": [row["kl/reference"] for row in measured],
        "length": [row["response/length_mean"] for row in measured],
    }


def gold_reward() -> Scorer:
    """Gold as a user would name it: `reward = "trimtab.worlds.gold:reward"`."""
    return FunctionScorer.load("trimtab.worlds.gold:reward")


def smooth(values: Sequence[float], width: int = 5) -> np.ndarray:
    """Centred moving mean; at the ends over what there is."""
    half = width // 2
    return np.array([np.mean(values[max(0, i - half) : i + half + 1]) for i in range(len(values))])


def one_thread() -> None:
    """Two runs at a time fit two cores only if each keeps to one."""
    torch.set_num_threads(1)
