"""A preference model on people's preferences, against a logistic regression on n-grams, on the same folds.

    python -m bench.preference.hh_rlhf DATA [--results DIR] [--arms NAME ...] [--folds K ...] [--only-tables]

DATA is hh-rlhf's harmless-base/test.jsonl.gz: 2,312 pairs, of which five part before their last turn and are left out.
Five folds by prompt. Nothing is chosen by what it does on a test fold. The arms:

    trimtab    SmolLM2-135M-Instruct (`preference.backbone`), its first `layers` layers, of which the topmost `top` and
               a head are trained and the rest is frozen, its output computed once for all folds. A fold trains every
               candidate in `CANDIDATES` on 85 % of the other folds' prompts and takes the one that the remaining 15 %
               give the least log loss; those also end its training (`patience`) and set its temperature. The frozen
               layers' output is kept in DIR/states, too.
    minilm     all-MiniLM-L6-v2, an encoder, trained whole, in the same way
    tuned      n-grams of words or characters, counts or tf-idf, and the ridge, chosen by five folds of the training
               pairs; then fitted on all of them
    textbook   pairs of words, counted, at scikit-learn's own ridge (C = 1)
    longer, shorter

An arm runs in a process of its own, whose peak memory is measured. Every fold is kept in DIR/folds.jsonl when it is
done: what is interrupted goes on. Printed: accuracy, expected calibration error (10 bins, each pair in both orders),
Brier score and log loss with 95 % bootstrap intervals over prompts, and the differences to `tuned` and to `textbook` on
the same resamples. Needs scikit-learn.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.config.layout import Layout
from trimtab.config.schema import PreferenceConfig
from trimtab.data.readers import read
from trimtab.data.records import Pair
from trimtab.figures import with_interval
from trimtab.preference.folds import fold_of_prompts
from trimtab.runs.files import append_jsonl, read_jsonl, stable_hash
from trimtab.stats.resampling import bootstrap_sums, percentile_interval

FOLDS, SEED, BINS, RESAMPLES = 5, 0, 10, 4000
RESULTS = Path(__file__).parents[1] / "results" / "hh"
PEERS = ("tuned", "textbook")


class Candidate(NamedTuple):
    """A way to train: how many layers are read, how many of them are trained (None: all), and settings."""

    layers: int | None
    top: int | None
    settings: dict[str, Any]


_COMMON: dict[str, Any] = {"batch_size": 16, "max_tokens": 1024, "patience": 1, "soft_labels": False}
BACKBONES = {"trimtab": "smollm2-135m-instruct", "minilm": "all-minilm-l6-v2"}
CANDIDATES = {
    # what is below the trained layers is the same eighteen layers for all
    "trimtab": [
        Candidate(19, 1, {"epochs": 2, "learning_rate": 3e-4, "checkpoint_every": 49}),
        Candidate(19, 1, {"epochs": 1, "learning_rate": 1e-3, "checkpoint_every": 49}),
        Candidate(19, 1, {"epochs": 3, "learning_rate": 1e-4, "checkpoint_every": 49}),
    ],
    "minilm": [
        Candidate(None, None, {"epochs": 2, "learning_rate": 5e-5, "too_long": "drop", "checkpoint_every": 99}),
    ],
}


def load(path: Path) -> list[Pair]:
    """The pairs that differ in their last turn only."""
    return read(path).pairs


def key_of(arm: str, fold: int, pairs: Sequence[Pair]) -> str:
    """What a fold's result depends on."""
    texts = [[m.content for m in p.prompt.messages] + [p.chosen.text, p.rejected.text] for p in pairs]
    recipe = [[c.layers, c.top, _COMMON | c.settings] for c in CANDIDATES.get(arm, [])]
    return stable_hash([arm, fold, FOLDS, SEED, recipe, stable_hash(texts)])


# running


def run(arm: str, pairs: Sequence[Pair], folds: Sequence[int], kept: Path) -> None:
    """Measure the folds of an arm that are not kept yet, and keep them."""
    place = fold_of_prompts(pairs, FOLDS, SEED)
    known = {record["key"] for record in read_jsonl(kept).records}
    measured = _trained if arm in CANDIDATES else _counted
    missing = [fold for fold in folds if key_of(arm, fold, pairs) not in known]
    start = time.perf_counter()
    for fold, (found, told) in zip(missing, measured(arm, pairs, place, missing, kept.parent), strict=True):
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        index = np.flatnonzero(place == fold).tolist()
        record = {"key": key_of(arm, fold, pairs), "arm": arm, "fold": fold, "index": index, "margins": found.tolist()}
        append_jsonl(kept, [record | {"seconds": seconds, "peak_bytes": peak} | told])
        print(f"{arm}, fold {fold + 1}: {seconds:.0f} s, {told.get('chosen', '')}", file=sys.stderr, flush=True)
        start = time.perf_counter()


Found = tuple[np.ndarray, dict[str, Any]]


def _parts(pairs: Sequence[Pair], place: np.ndarray, fold: int) -> tuple[list[Pair], list[Pair]]:
    """(pairs of the other folds, pairs of this one)."""
    return [p for p, at in zip(pairs, place, strict=True) if at != fold], [
        p for p, at in zip(pairs, place, strict=True) if at == fold
    ]


def _counted(
    arm: str, pairs: Sequence[Pair], place: np.ndarray, folds: Sequence[int], results: Path
) -> Iterator[Found]:
    from bench.preference import ngrams

    for fold in folds:
        training, test = _parts(pairs, place, fold)
        if arm == "tuned":
            yield ngrams.tuned(training, test, SEED)
        else:
            yield ngrams.margins("words", [1.0], training, test)[1.0], {}


def _trained(
    arm: str, pairs: Sequence[Pair], place: np.ndarray, folds: Sequence[int], results: Path
) -> Iterator[Found]:
    from bench.preference.kept_states import StatesFile
    from trimtab.models.starts import load_backbone
    from trimtab.preference import calibration
    from trimtab.preference.rows import readable
    from trimtab.preference.training import split_by_prompt, train
    from trimtab.training.precision import Precision

    dtype = "bfloat16"
    bases: dict[tuple[int | None, int | None], Any] = {}
    for fold in folds:
        training, test = _parts(pairs, place, fold)
        tried: list[tuple[float, str, Any, np.ndarray]] = []
        for candidate in CANDIDATES[arm]:
            shape = candidate.layers, candidate.top
            if shape not in bases:
                layout = Layout(top=candidate.top)
                loaded = load_backbone(BACKBONES[arm], dtype, layers=candidate.layers, layout=layout, seed=SEED)
                frozen = None if candidate.layers is None else candidate.layers - (candidate.top or 0)
                states = StatesFile(results / "states" / f"{arm}-{frozen}-{dtype}") if frozen else None
                bases[shape] = *loaded, states
            base, codec, cache = bases[shape]
            config = PreferenceConfig(
                backbone=BACKBONES[arm], layers=candidate.layers, **(_COMMON | candidate.settings)
            )
            model = train(config, base, codec, training, seed=SEED, precision=Precision(dtype), cache=cache)
            known, _ = readable(config, base, codec, training)
            held_out = split_by_prompt(known, config.validation_fraction, SEED)[1]
            lead = _lead(model, held_out)
            loss = float(np.logaddexp(0, -lead).mean())
            name = f"{candidate.layers} layers, top {candidate.top}, {candidate.settings}"
            tried.append((loss, name, model, lead))
        loss, name, model, lead = min(tried, key=lambda row: row[0])
        model.calibration = calibration.fit("temperature", lead, np.ones(len(lead)))
        known, _ = readable(config, base, codec, test)
        short = np.isin([p.id for p in test], [p.id for p in known])
        raw = np.zeros(len(test))  # of a pair that is too long for the model nothing is known
        raw[short] = _lead(model, known)
        p = model.probability(raw)
        told = {
            "chosen": name,
            "unread": int((~short).sum()),
            "tried": {row[1]: row[0] for row in tried},
            "raw": raw.tolist(),
        }
        yield np.log(p) - np.log1p(-p), told | {"temperature": model.calibration.temperature}


def _lead(model: Any, pairs: Sequence[Pair]) -> np.ndarray:
    prompts = [p.prompt for p in pairs]
    return np.asarray(
        model.score(prompts, [p.chosen for p in pairs]) - model.score(prompts, [p.rejected for p in pairs])
    )


# telling


def columns(log_odds: np.ndarray) -> np.ndarray:
    """[P, 3 + BINS] what the figures are sums of: wins, squared errors, cross entropies, p - y by bin, both orders."""
    p = 0.5 * (1 + np.tanh(log_odds / 2))
    gaps = np.zeros((len(p), BINS))
    for q, outcome in ((p, 1), (1 - p, 0)):
        np.add.at(gaps, (np.arange(len(p)), np.searchsorted(np.arange(1, BINS) / BINS, q, side="right")), q - outcome)
    return np.column_stack([(np.sign(log_odds) + 1) / 2, (1 - p) ** 2, np.logaddexp(0, -log_odds), gaps])


def figures(sums: np.ndarray, pairs: np.ndarray) -> dict[str, np.ndarray]:
    """[R] each, of sums [R, 3 + BINS] over [R] pairs."""
    own = sums / pairs[:, None]
    return {
        "accuracy": own[:, 0], "ece": np.abs(own[:, 3:]).sum(1) / 2, "brier": own[:, 1], "log loss": own[:, 2],
    }  # fmt: skip


def tables(pairs: Sequence[Pair], kept: Path, arms: Sequence[str]) -> None:
    """Print what is known of the arms whose folds are all kept."""
    place = fold_of_prompts(pairs, FOLDS, SEED)
    known = {record["key"]: record for record in read_jsonl(kept).records}
    found: dict[str, np.ndarray] = {}
    costs: dict[str, tuple[float, float]] = {}
    for arm in arms:
        records = [known.get(key_of(arm, fold, pairs)) for fold in range(FOLDS)]
        if any(record is None for record in records):
            print(f"{arm}: {sum(r is not None for r in records)} of {FOLDS} folds are done")
            continue
        found[arm] = np.empty(len(pairs))
        for fold, record in enumerate(records):
            found[arm][place == fold] = record["margins"]  # type: ignore[index]
        costs[arm] = sum(r["seconds"] for r in records), max(r["peak_bytes"] for r in records)  # type: ignore[index]
    number = {messages: i for i, messages in enumerate(dict.fromkeys(p.prompt.messages for p in pairs))}
    groups = np.array([number[p.prompt.messages] for p in pairs])
    rows = np.column_stack([np.ones(len(pairs)), *(columns(m) for m in found.values())])
    whole, drawn = rows.sum(0, keepdims=True), bootstrap_sums(rows, groups, RESAMPLES, SEED)
    width = 3 + BINS
    at, of = (
        {arm: figures(s[:, 1 + i * width : 1 + (i + 1) * width], s[:, 0]) for i, arm in enumerate(found)}
        for s in (whole, drawn)
    )
    names = ("accuracy", "ece", "brier", "log loss")
    print(f"\n{len(pairs)} pairs of {len(number)} prompts, {FOLDS} folds by prompt\n")
    print("| | " + " | ".join(names) + " | minutes | peak memory |\n|" + "---|" * (len(names) + 3))
    for arm in found:
        cells = [_cell(at[arm][n][0], of[arm][n], percent=n == "accuracy") for n in names]
        seconds, peak = costs[arm]
        print(f"| {arm} | " + " | ".join(cells) + f" | {seconds / 60:.1f} | {peak / 1e9:.1f} GB |")
    longer = np.sign([len(p.chosen.text) - len(p.rejected.text) for p in pairs])
    for arm, sign in (("the longer wins", 1), ("the shorter wins", -1)):
        print(f"| {arm} | {100 * float((sign * longer + 1).mean() / 2):.1f} % | | | | | |")
    for peer in (p for p in PEERS if p in found):
        print(f"\n| minus {peer} | " + " | ".join(names) + " |\n|" + "---|" * (len(names) + 1))
        for arm in found:
            if arm not in PEERS:
                cells = [
                    _cell(at[arm][n][0] - at[peer][n][0], of[arm][n] - of[peer][n], percent=n == "accuracy", sign=True)
                    for n in names
                ]
                print(f"| {arm} | " + " | ".join(cells) + " |")


def _cell(value: float, drawn: np.ndarray, *, percent: bool, sign: bool = False) -> str:
    low, high = percentile_interval(drawn)
    if percent and sign:  # a difference of two shares, in points
        return with_interval(100 * value, 100 * low, 100 * high, sign=True)
    if sign:
        return with_interval(value, low, high, sign=True)
    return with_interval(value, low, high, percent=percent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--arms", nargs="*", default=["tuned", "textbook", "trimtab"])
    parser.add_argument("--folds", nargs="*", type=int, default=list(range(FOLDS)))
    parser.add_argument("--only-tables", action="store_true")
    parser.add_argument("--here", action="store_true", help="run in this process: what an arm's own process is told")
    options = parser.parse_args()
    kept = options.results / "folds.jsonl"
    kept.parent.mkdir(parents=True, exist_ok=True)
    pairs = load(options.data)
    if options.here:
        for arm in options.arms:
            run(arm, pairs, options.folds, kept)
        return
    if not options.only_tables:
        for arm in options.arms:
            own = ["--arms", arm, "--folds", *map(str, options.folds), "--results", str(options.results), "--here"]
            subprocess.run([sys.executable, "-m", "bench.preference.hh_rlhf", str(options.data), *own], check=True)
    tables(pairs, kept, options.arms)


if __name__ == "__main__":
    main()
