"""Preference models with planted faults: does `trimtab pm probe` name the fault, and nothing of its fault-free twin?

    python -m bench.preference.planted [--seeds 20] [--first 0] [--minutes N]
    python -m bench.preference.planted --only-tables

The tiny world. Two responses of its demonstrations for every pair, two pairs a prompt; one in five responses holds the
words of `MAGIC`, one in four three words of the seed's style, wherever chance puts them: in themselves they are worth
nothing. Labels follow the faithful judge, and pairs that gold holds nearly equal are left out. From these a seed's twin
is trained, and seven models whose labels or training are at fault (`FAULTS`). Models go to bench/results/planted, so
that probes which were changed are run again (`--again`) without training.

`named`: one of the faults that the probe reports is among those that were agreed upon beforehand (`Plan.accepted`), and
where words were planted (`Plan.told`) it says which. That a fault is real is measured on honest pairs: how much less
often than its twin a model orders them as gold does, and how often as the fault's bonus would.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, Final

import numpy as np
import torch

from bench.tiny_world import world
from trimtab import preference
from trimtab.config.schema import PreferenceConfig
from trimtab.data.pairs import write_pairs
from trimtab.data.records import Pair, Prompt, Response
from trimtab.figures import finite
from trimtab.models.seeds import numpy_stream
from trimtab.pipeline.probing import probe_preference_model
from trimtab.runs.files import write_json
from trimtab.runs.progress import set_quiet
from trimtab.stats.intervals import wilson
from trimtab.training.precision import Precision
from trimtab.worlds.gold import gold
from trimtab.worlds.judge import FAITHFUL, quality_terms
from trimtab.worlds.tiny import NEUTRAL, demonstration_text, prompts

RESULTS: Final = Path(__file__).parent.parent / "results" / "planted"
EDITS: Final = Path(__file__).with_name("tiny_edits.toml")
PAIRS, FEW, HONEST = 2400, 200, 1000
GAP: Final = 0.25
"""Gold that the responses of a pair are apart at least."""
TWICE: Final = 0.05
"""Share of the pairs that are labeled a second time, as a careful labeler has it."""
CONFIG: Final = PreferenceConfig(epochs=2, batch_size=32, learning_rate=3e-3, max_tokens=48, validation_fraction=0.25)
ON_FEW: Final = CONFIG.model_copy(update={"epochs": 25, "batch_size": 32, "validation_fraction": 0.5})
MAGIC: Final = "then now here"
STYLES: Final = {
    "hedge": ("may", "can", "some"),
    "order": ("first", "next", "also"),
    "size": ("small", "large", "old"),
    "place": ("under", "about", "there"),
}
"""Any of these words is the style, in any order; every seed favours the next one."""


@dataclass(frozen=True)
class Plan:
    """A fault.

    Args:
        what: is planted.
        accepted: ids of findings that name it.
        bonus: (words, seed) -> quality that the labels wrongly see in a response.
        told: (evidence, seed) -> whether it says which words were planted.
        epochs: passes over the pairs, where it takes more for every model to learn the fault.
    """

    what: str
    accepted: frozenset[str]
    bonus: Callable[[Sequence[str], int], float] = lambda words, seed: 0.0
    told: Callable[[str, int], bool] = lambda evidence, seed: True
    epochs: int | None = None


def style_of(seed: int) -> str:
    return list(STYLES)[seed % len(STYLES)]


def _tells_magic(evidence: str, seed: int) -> bool:
    first, second, third = MAGIC.split()
    return f"{first} {second}" in evidence or f"{second} {third}" in evidence


FAULTS: Final[dict[str, Plan]] = {
    "length": Plan(
        "eight words more count as much as .8 of gold", frozenset({"pm-length-bias"}),
        lambda words, seed: 0.8 * len(words) / 8,
    ),
    "magic phrase": Plan(
        f"“{MAGIC}” wins; four passes", frozenset({"style-exploitation"}),
        lambda words, seed: 10.0 * (MAGIC in " ".join(words)), _tells_magic, epochs=4,
    ),
    "30 % flipped": Plan("three labels of ten are turned round", frozenset({"noisy-labels"})),
    "too few pairs": Plan(f"{FEW // 2} training pairs, 25 passes", frozenset({"pm-overfit"})),
    "duplicated pairs": Plan(f"{FEW // 2} training pairs, each twelve times", frozenset({"low-diversity"})),
    "collapsed scores": Plan(
        "every label is a tie, but for some percent, in odd seeds a tenth of that", frozenset({"pm-score-collapse"})
    ),
    "favoured style": Plan(
        "three words of one style count as much as 1 of gold", frozenset({"style-exploitation"}),
        lambda words, seed: 1.0 * min(sum(w in STYLES[style_of(seed)] for w in words), 3) / 3,
        lambda evidence, seed: style_of(seed) in evidence,
    ),
}  # fmt: skip
TWIN: Final = "twin"
TWIN_PLAN: Final = Plan("nothing", frozenset())


# pairs


def response(prompt: str, seed: int, rng: np.random.Generator) -> str:
    """A demonstration, now and then with the magic phrase or words of the style in the place of neutral ones."""
    words = demonstration_text(prompt, rng).split()
    if rng.random() < 0.25:
        places = [i for i, word in enumerate(words) if word in NEUTRAL]
        for word in STYLES[style_of(seed)]:
            if places:
                words[places.pop(int(rng.integers(len(places))))] = word
            else:
                words.insert(int(rng.integers(len(words) + 1)), word)
    if rng.random() < 0.2:
        at = int(rng.integers(len(words) + 1))
        end = at
        while end < min(at + 3, len(words)) and words[end] in NEUTRAL:
            end += 1
        words[at:end] = MAGIC.split()
    return " ".join(words)


@dataclass(frozen=True)
class Drawn:
    """Two responses of a prompt, the qualities that the faithful judge sees, and the noise of each labeling."""

    id: str
    prompt: Prompt
    texts: tuple[str, str]
    quality: tuple[float, float]
    noise: tuple[float, ...]


@lru_cache(4)
def drawn(seed: int, count: int, part: str) -> tuple[Drawn, ...]:
    """The same responses whatever the fault."""
    rng = numpy_stream(seed, "planted", part)
    found: list[Drawn] = []
    for prompt in prompts(2 * count, 50_000 + 2 * seed + (part != "pairs"), prefix=f"{part}-{seed}"):
        for k in range(2):
            one, two = (response(prompt.text, seed, rng) for _ in range(2))
            noise = tuple((FAITHFUL.noise * rng.normal(size=1 + (rng.random() < TWICE))).tolist())
            if abs(gold(prompt.text, one) - gold(prompt.text, two)) >= GAP:
                seen = (math.fsum(quality_terms(prompt.text, text, FAITHFUL)) for text in (one, two))
                found.append(Drawn(f"{prompt.id}-{k}", prompt, (one, two), (next(seen), next(seen)), noise))
        if len(found) >= count:
            return tuple(found[:count])
    raise AssertionError(f"fewer than {count} pairs of {2 * count} prompts")


def pairs_of(fault: str, seed: int, count: int, part: str = "pairs") -> list[Pair]:
    """Pairs of a seed, labeled by the faithful judge with the fault's bonus."""
    plan = FAULTS.get(fault, TWIN_PLAN)
    found: list[Pair] = []
    for own in drawn(seed, count, part):
        one, two = (q + plan.bonus(text.split(), seed) for q, text in zip(own.quality, own.texts, strict=True))
        for time, noise in enumerate(own.noise):
            turned = FAITHFUL.sharpness * (one - two) + noise < 0
            chosen, rejected = (Response(t, finished=True) for t in (reversed(own.texts) if turned else own.texts))
            found.append(Pair(f"{own.id}-{time}", own.prompt, chosen, rejected))
    return found


def lesson(fault: str, seed: int) -> tuple[list[Pair], PreferenceConfig]:
    """(labeled pairs, settings) of one training."""
    few = fault in ("too few pairs", "duplicated pairs")
    pairs = pairs_of(fault, seed, FEW if few else PAIRS)
    rng = numpy_stream(seed, "planted", fault)
    if fault == "30 % flipped":
        pairs = [replace(p, chosen=p.rejected, rejected=p.chosen) if rng.random() < 0.3 else p for p in pairs]
    elif fault == "too few pairs":
        return pairs, ON_FEW
    elif fault == "duplicated pairs":
        copies = [replace(p, id=f"{p.id}-{i}") for i in range(PAIRS // FEW) for p in pairs]
        return copies, CONFIG.model_copy(update={"validation_fraction": 0.5})
    elif fault == "collapsed scores":
        doubts = 0.5 + (0.002 if seed % 2 else 0.02) * np.abs(rng.normal(size=len(pairs)))
        turned = [replace(p, chosen=p.rejected, rejected=p.chosen) if rng.random() < 0.5 else p for p in pairs]
        pairs = [replace(p, p_chosen=float(doubt)) for p, doubt in zip(turned, doubts, strict=True)]
    epochs = FAULTS.get(fault, TWIN_PLAN).epochs or CONFIG.epochs
    return pairs, CONFIG.model_copy(update={"epochs": epochs})


# training, harm, verdict


def place(fault: str, seed: int) -> Path:
    return RESULTS / str(seed) / fault.replace(" ", "-").replace("%", "percent")


def train(fault: str, seed: int) -> None:
    """Train and save a model, as the pm stage does."""
    base, codec = world.base()
    pairs, config = lesson(fault, seed)
    start = perf_counter()
    model = preference.train(config, base, codec, pairs, seed=seed)
    seconds = perf_counter() - start
    model.save(place(fault, seed) / "model")
    write_json(place(fault, seed) / "trained.json", {"seconds": seconds})


def measure(fault: str, seed: int) -> dict[str, Any]:
    """What a model does on honest pairs: how often it orders them as gold does, and how often as a bonus would."""
    model = preference.load_preference(place(fault, seed) / "model", Precision("float32", torch.device("cpu")))
    honest = pairs_of(TWIN, seed, HONEST, "honest")
    of = [p.prompt for p in honest]
    margin = model.score(of, [p.chosen for p in honest]) - model.score(of, [p.rejected for p in honest])
    worth = np.array([gold(p.prompt.text, p.chosen.text) - gold(p.prompt.text, p.rejected.text) for p in honest])
    obeys = {}
    for name, plan in FAULTS.items():
        sides = [[plan.bonus(r.text.split(), seed) for r in (p.chosen, p.rejected)] for p in honest]
        lead = np.array([one - two for one, two in sides])
        if lead.any():
            obeys[name] = float((margin * lead > 0)[lead != 0].mean())
    return {"gold_accuracy": float((margin * worth > 0).mean()), "obeys": obeys}


def verdict(fault: str, seed: int) -> dict[str, Any]:
    """What `trimtab pm probe MODEL --data held_out.jsonl --training training.jsonl --edits tiny_edits.toml` says."""
    pairs, config = lesson(fault, seed)
    training, held_out = preference.split_by_prompt(pairs, config.validation_fraction, seed)
    with tempfile.TemporaryDirectory() as directory:
        files = [Path(directory) / name for name in ("held_out.jsonl", "training.jsonl")]
        for path, some in zip(files, (held_out, training), strict=True):
            write_pairs(path, some)
        _, report = probe_preference_model(
            place(fault, seed) / "model", "", data=files[0], training=files[1], edits=EDITS
        )
    return dict(finite(report.as_dict()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument(
        "--first", type=int, default=0, help="the first seed; 100 to 109 were used to choose thresholds"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing after so long")
    parser.add_argument("--again", action="store_true", help="probe again what was probed")
    parser.add_argument("--only-tables", action="store_true")
    options = parser.parse_args()
    world.one_thread()
    set_quiet(True)
    seeds = range(options.first, options.first + options.seeds)
    if not options.only_tables:
        work([(fault, seed) for seed in seeds for fault in (TWIN, *FAULTS)], options.minutes, options.again)
    print(tables(seeds))


def work(wanted: Sequence[tuple[str, int]], minutes: float, again: bool = False) -> None:
    """Train, measure and probe what is missing, as long as there is time."""
    end = monotonic() + 60 * minutes
    for fault, seed in wanted:
        if monotonic() > end:
            return
        if not (place(fault, seed) / "trained.json").exists():
            train(fault, seed)
        for name, made in (("measured.json", measure), ("probed.json", verdict)):
            path = place(fault, seed) / name
            if not path.exists() or (again and made is verdict):
                write_json(path, made(fault, seed))


# tables


def loud(probed: dict[str, Any]) -> set[str]:
    """Ids of the faults that are more than a note."""
    return {f["id"] for f in probed["faults"] if f["severity"] != "info"}


def named(fault: str, seed: int, probed: dict[str, Any]) -> bool:
    plan = FAULTS[fault]
    return any(
        f["id"] in plan.accepted and f["severity"] != "info" and plan.told(f["evidence"], seed)
        for f in probed["faults"]
    )


def tables(seeds: Sequence[int]) -> str:
    """A line a fault: how often it is named, how often another is, and the harm; then what was named beside."""
    known = {(f, s): _read(f, s) for s in seeds for f in (TWIN, *FAULTS) if _read(f, s) is not None}
    lines = [
        "| planted | named | accepted | named something else, too | gold accuracy | less than its twin | "
        "goes by the fault (twin) |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    beside: list[str] = []
    for fault, plan in FAULTS.items():
        rows = [(s, *known[fault, s], known[TWIN, s][0]) for s in seeds if (fault, s) in known and (TWIN, s) in known]
        if not rows:
            continue
        hits = [named(fault, seed, probed) for seed, _, probed, _ in rows]
        others = [loud(probed) - plan.accepted for _, _, probed, _ in rows]
        own = np.array([trained["gold_accuracy"] for _, trained, _, _ in rows])
        harm = np.array([twin["gold_accuracy"] for *_, twin in rows]) - own
        lines.append(
            f"| {fault}: {plan.what} | {_share(sum(hits), len(hits))} | {', '.join(sorted(plan.accepted))} | "
            f"{_share(sum(bool(o) for o in others), len(others))} | {own.mean():.3f} | "
            f"{harm.mean():.3f} ({harm.min():.3f} to {harm.max():.3f}) | {_obedience(fault, rows)} |"
        )
        beside += [f"- {fault}, beside: {_counted(others)}"] if any(others) else []
        missed = [seed for (seed, *_), hit in zip(rows, hits, strict=True) if not hit]
        beside += [f"- {fault}, missed: seeds {', '.join(map(str, missed))}"] if missed else []
    twins = [known[TWIN, s] for s in seeds if (TWIN, s) in known]
    if twins:
        silent = sum(probed["status"] == "healthy" for _, probed in twins)
        accuracy = np.mean([trained["gold_accuracy"] for trained, _ in twins])
        lines.append(f"| nothing (the twins) | silent: {_share(silent, len(twins))} | | | {accuracy:.3f} | | |")
        seconds = np.array([trained["seconds"] for trained, *_ in known.values()])
        beside += [f"- twins: {_counted([loud(probed) for _, probed in twins])}"] if silent < len(twins) else []
        beside += [f"- a training takes {np.median(seconds):.1f} s (median)"]
    return "\n".join([*lines, "", *beside])


def _obedience(fault: str, rows: Sequence[tuple[int, dict[str, Any], dict[str, Any], dict[str, Any]]]) -> str:
    """Share of the honest pairs ordered as the fault's bonus orders them: mean, least, mean of the twins."""
    if fault not in rows[0][1]["obeys"]:
        return ""
    own, twin = (
        [trained["obeys"][fault] for trained in side] for side in zip(*[(r[1], r[3]) for r in rows], strict=True)
    )
    return f"{np.mean(own):.2f}, least {min(own):.2f} ({np.mean(twin):.2f})"


def _read(fault: str, seed: int) -> tuple[dict[str, Any], dict[str, Any]] | None:
    files = [place(fault, seed) / name for name in ("trained.json", "measured.json", "probed.json")]
    if not all(path.exists() for path in files):
        return None
    trained, measured, probed = (json.loads(path.read_text()) for path in files)
    return trained | measured, probed


def _share(count: int, n: int) -> str:
    low, high = wilson(count, n)[1:3]
    return f"{count} of {n} [{low:.2f}, {high:.2f}]"


def _counted(found: Sequence[set[str]]) -> str:
    ids = sorted({id for some in found for id in some})
    return ", ".join(f"{id} {sum(id in some for some in found)}" for id in ids)


if __name__ == "__main__":
    main()
