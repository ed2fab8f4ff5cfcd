"""Wrong labels among Bradley-Terry preferences: the margin model of `trimtab.data.noise` beside cleanlab.

    python -m bench.data.noisy_labels [--seeds 20] [--json FILE]

2,000 pairs whose true margins are a linear function of 20 features with standard deviation 2.2; the label is a draw
from sigmoid(margin), and 10 % of the labels are then turned over. Both tools get the same out-of-fold probabilities of
the same logistic regression (5 folds). `good` sees all 20 features, `weak` the first 4. `raters` is `good` with ten
raters, two of whom turn 35 % of their labels over and the others 4 %; only the margin model can be told who rated.

What is reported, mean over seeds with its standard error:
 - flagged: precision, recall and F1 of what each tool flags by default (cleanlab: find_label_issues; here: more likely
   wrong than not), and of the list with the greatest expected F1 (here only);
 - at cleanlab's recall: precision of each ranking when it is read down to the recall that cleanlab's flags had;
 - PR-AUC of each ranking;
 - ceiling: the same with the exact posterior, from the true margins and rates, which no method can beat;
 - the good of it: how often the sign of a regression trained on what is left agrees with the true margin's sign on
   5,000 fresh pairs, for all labels, cleanlab's flags dropped, ours dropped, and our posterior as soft labels.

Needs cleanlab and scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from cleanlab.filter import find_label_issues
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict

from trimtab.data.noise import fit_noise, flip_posterior

N, FEATURES, SPREAD, RATE = 2_000, 20, 2.2, 0.1
RATERS = (0.35, 0.35, *[0.04] * 8)
SCENARIOS = {"good": (20, False), "weak": (4, False), "raters": (20, True)}


def simulate(seed: int, raters: bool) -> dict[str, np.ndarray]:
    """One data set: features, true margins, labels, who rated, which labels were turned over; and fresh pairs."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=FEATURES)
    w *= SPREAD / np.linalg.norm(w)
    x = rng.normal(size=(N, FEATURES))
    margin = x @ w
    honest = rng.random(N) < 1 / (1 + np.exp(-margin))
    rater = rng.integers(len(RATERS), size=N)
    rate = np.array(RATERS)[rater] if raters else np.full(N, RATE)
    turned = rng.random(N) < rate
    fresh = rng.normal(size=(5_000, FEATURES))
    label = (honest ^ turned).astype(int)
    known = {"x": x, "margin": margin, "label": label, "rater": rater, "rate": rate, "turned": turned}
    return {**known, "fresh": fresh, "better": fresh @ w > 0}


def scored(flags: np.ndarray, turned: np.ndarray) -> dict[str, float]:
    hits = float((flags & turned).sum())
    precision, recall = hits / max(flags.sum(), 1), hits / turned.sum()
    return {
        "flagged": float(flags.sum()),
        "precision": precision if flags.any() else float("nan"),
        "recall": recall,
        "f1": 2 * hits / float(flags.sum() + turned.sum()),
    }


def at_recall(suspicion: np.ndarray, turned: np.ndarray, recall: float) -> float:
    found = np.cumsum(turned[np.argsort(-suspicion, kind="stable")])
    rank = int(np.searchsorted(found, recall * turned.sum() - 1e-9))
    return float(found[rank] / (rank + 1))


def agreement(data: dict[str, np.ndarray], used: int, weights: np.ndarray, wrong: np.ndarray | None = None) -> float:
    """Share of fresh pairs on which a regression trained with these weights has the true sign."""
    x, y = data["x"][:, :used], data["label"]
    if wrong is not None:  # soft labels: each row with both labels, weighted
        x, y = np.concatenate([x, x]), np.concatenate([y, 1 - y])
        weights = np.concatenate([weights * (1 - wrong), weights * wrong])
    model = LogisticRegression().fit(x, y, sample_weight=weights)
    return float(((data["fresh"][:, :used] @ model.coef_[0] > 0) == data["better"]).mean())


def one(seed: int, used: int, raters: bool) -> dict[str, float]:
    data = simulate(seed, raters)
    label, turned = data["label"], data["turned"]
    p = cross_val_predict(LogisticRegression(), data["x"][:, :used], label, cv=5, method="predict_proba")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cleanlab = find_label_issues(label, p)
    fit = fit_noise(np.log(p[:, 1] / p[:, 0]), label, data["rater"].tolist() if raters else None)
    rankings = {
        "cleanlab": 1 - p[np.arange(N), label],
        "trimtab": fit.posterior,
        "ceiling": flip_posterior(data["margin"], label, data["rate"]),
    }
    flags = {
        "cleanlab": cleanlab,
        "trimtab": fit.likely(),
        "trimtab best f1": fit.best_f1(),
        "ceiling": rankings["ceiling"] > 0.5,
    }
    result: dict[str, float] = {"rate": fit.rate, "rate low": fit.low, "rate high": fit.high}
    for name, flag in flags.items():
        result |= {f"{name}: {k}": v for k, v in scored(flag, turned).items()}
    recall = result["cleanlab: recall"]
    for name, ranking in rankings.items():
        result[f"{name}: precision at cleanlab's recall"] = at_recall(ranking, turned, recall)
        result[f"{name}: PR-AUC"] = float(average_precision_score(turned, ranking))
    everything = np.ones(N)
    result["expected wrong"] = float(fit.posterior[fit.likely()].sum())
    result["sign right: all labels"] = agreement(data, used, everything)
    result["sign right: cleanlab dropped"] = agreement(data, used, (~cleanlab).astype(float))
    result["sign right: trimtab dropped"] = agreement(data, used, (~fit.likely()).astype(float))
    result["sign right: trimtab soft"] = agreement(data, used, everything, fit.posterior)
    result["labels against the true sign"] = float(((data["margin"] > 0) != label).mean())
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    table: dict[str, dict[str, list[float]]] = {}
    for scenario, (used, raters) in SCENARIOS.items():
        rows = [one(seed, used, raters) for seed in range(arguments.seeds)]
        print(f"\n{scenario} ({used} of {FEATURES} features), {len(rows)} seeds: mean (standard error)")
        table[scenario] = {}
        for key in rows[0]:
            values = np.array([row[key] for row in rows])
            known = values[np.isfinite(values)]
            mean = float(known.mean()) if len(known) else float("nan")
            error = float(known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else float("nan")
            table[scenario][key] = [mean, error, len(known)]
            print(f"  {key:<44} {mean:8.3f} ({error:.3f})" + ("" if len(known) == len(rows) else f" over {len(known)}"))
    if arguments.json:
        arguments.json.write_text(json.dumps({"seeds": arguments.seeds, "scenarios": table}, indent=2) + "\n")


if __name__ == "__main__":
    main()
