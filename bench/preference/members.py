"""How far the members of an ensemble share their mistakes: on one trunk, and further and further apart.

    python -m bench.preference.members [--seeds 2] [--json FILE]

In the tiny world (a Llama of two layers), `PAIRS` pairs sampled from the base model and labeled by a simulated judge
train three members; 1,024 pairs of 256 other prompts, ordered by gold, show their mistakes. The arms:

    trunk              one frozen layer shared; members differ in their heads' first weights and the order of pairs
    trunk, bootstrap   the same, each further member on the prompts drawn anew with replacement
    whole              nothing shared but the base model that all layers start from
    other bases        each member from a base model of its own (other first weights, other order of demonstrations)
    other labels       the same, and pairs of its own, labeled with noise of their own

`faithful` judges mistake pairs by noise alone; `blind` ones take repetition and length for quality: a mistake that is
in the labels. Printed, mean over seeds: a member's accuracy, that of the mean score, `shared`: correlation (phi) of two
members' mistakes (1 the same, 0 independent), `warns`: how often members disagree more on a pair that the mean score
gets wrong than on one that it gets right (0.5: never tells).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.tiny_world import world
from trimtab import preference, sampling, sft
from trimtab.config.schema import PreferenceConfig, SampleConfig
from trimtab.constitution import load_constitution
from trimtab.data.demonstrations import Demonstration
from trimtab.data.records import Pair, Prompt
from trimtab.figures import figure
from trimtab.labeling import label_pairs
from trimtab.labeling.labels import to_pairs
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec
from trimtab.preference import PreferenceModel
from trimtab.preference.ensemble import PreferenceEnsemble, figures_of_margins
from trimtab.runs.files import write_json
from trimtab.runs.progress import set_quiet
from trimtab.worlds import project as tiny_project
from trimtab.worlds.gold import gold
from trimtab.worlds.judge import SimulatedJudge
from trimtab.worlds.model import build_model, build_tokenizer
from trimtab.worlds.tiny import MAX_RESPONSE_TOKENS, demonstrations

PAIRS, MEMBERS = 600, 3
CONFIG = PreferenceConfig(epochs=4, batch_size=32, learning_rate=1e-3, max_tokens=48, members=MEMBERS)
BASE = world.BASE.model_copy(update={"epochs": 3})


def base(seed: int) -> CausalModel:
    """A base model of its own."""
    model = CausalModel(build_model(seed)).fork(trainable=True)
    shown = [Demonstration(p, r.text) for p, r in demonstrations(world.split()[2], world.BASE_SEED)]
    sft.train(BASE, model, TextCodec(build_tokenizer()), shown, seed=seed)
    return model


def shared(model: CausalModel, boundary: int) -> CausalModel:
    """The same weights, frozen, with `boundary` layers that members share."""
    twin = CausalModel(build_model(0), boundary)
    twin.hf.load_state_dict(model.hf.state_dict())
    twin.requires_grad_(False)
    return twin


def pairs_of(model: CausalModel, prompts: list[Prompt], each: int, judge: str, seed: int) -> list[Pair]:
    sample = SampleConfig(pairs_per_prompt=each, max_new_tokens=MAX_RESPONSE_TOKENS, batch_size=256)
    candidates = sampling.sample_pairs(model, TextCodec(build_tokenizer()), prompts, None, sample, seed=seed)
    constitution = load_constitution(Path(tiny_project.__file__).parent / "constitution.toml")
    labels = label_pairs(candidates, SimulatedJudge(judge, seed=seed), constitution, batch_size=1024)
    return to_pairs(candidates, labels)


def margins(model: PreferenceModel, pairs: list[Pair]) -> np.ndarray:
    """Score of the response that gold prefers minus that of the other, [k, P]."""
    of = [p.prompt for p in pairs]
    worth = np.array([gold(p.prompt.text, p.chosen.text) - gold(p.prompt.text, p.rejected.text) for p in pairs])
    sides = [p.chosen for p in pairs], [p.rejected for p in pairs]
    if isinstance(model, PreferenceEnsemble):
        lead = model.member_scores(of, sides[0]) - model.member_scores(of, sides[1])
    else:
        lead = (model.score(of, sides[0]) - model.score(of, sides[1]))[None]
    return np.asarray((lead * np.sign(worth))[:, worth != 0])


def arms(bases: list[CausalModel], judge: str, seed: int) -> dict[str, np.ndarray]:
    """Margins of three members on the test pairs, [3, P], by arm."""
    codec, prompts = TextCodec(build_tokenizer()), world.split()[1]
    sets = [pairs_of(bases[0], prompts[:PAIRS], 1, judge, 10 * seed + i) for i in range(MEMBERS)]
    test = pairs_of(bases[0], world.split()[0], 4, judge, 10 * seed + 9)
    one = CONFIG.model_copy(update={"members": 1})

    def together(boundary: int, bootstrap: bool = False) -> np.ndarray:
        config = CONFIG.model_copy(update={"bootstrap": bootstrap})
        return margins(preference.train(config, shared(bases[0], boundary), codec, sets[0], seed=seed), test)

    def apart(fresh: bool) -> np.ndarray:
        found = [
            margins(preference.train(one, start, codec, sets[i if fresh else 0], seed=seed + 100 * i), test)
            for i, start in enumerate(bases)
        ]
        return np.concatenate(found)

    return {
        "trunk": together(1),
        "trunk, bootstrap": together(1, bootstrap=True),
        "whole": together(0),
        "other bases": apart(fresh=False),
        "other labels": apart(fresh=True),
    }


def measured(found: np.ndarray) -> dict[str, float]:
    figures = figures_of_margins(found, 0.0)
    return {
        "member": float(np.mean(figures.accuracy)),
        "mean": float((found.mean(0) > 0).mean()),
        "shared": float("nan") if figures.shared_mistakes is None else figures.shared_mistakes,
        "warns": float("nan") if figures.warns is None else figures.warns,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    set_quiet(True)
    start = time.perf_counter()
    bases = [base(seed) for seed in range(MEMBERS)]
    results: dict[str, Any] = {}
    for judge in ("faithful", "blind"):
        rows = [{arm: measured(m) for arm, m in arms(bases, judge, seed).items()} for seed in range(options.seeds)]
        print(f"{judge:18}  member   mean  shared (min, max over seeds)  warns", flush=True)
        for arm in rows[0]:
            each = {key: np.array([row[arm][key] for row in rows]) for key in rows[0][arm]}
            results.setdefault(judge, {})[arm] = {key: values.tolist() for key, values in each.items()}
            mean = {key: figure(float(values.mean())) for key, values in each.items()}
            low, high = figure(float(each["shared"].min())), figure(float(each["shared"].max()))
            spread = f"{mean['shared']} ({low}, {high})"
            print(f"  {arm:18}{mean['member']:>6} {mean['mean']:>6}  {spread:28}  {mean['warns']}", flush=True)
    seconds = time.perf_counter() - start
    print(f"{seconds:.0f} s")
    if options.json:
        write_json(options.json, {"seeds": options.seeds, "pairs": PAIRS, "seconds": seconds, "results": results})


if __name__ == "__main__":
    main()
