"""The work of each stage: read its inputs from the run directory, call the room that does it, write its artifacts.

Every function takes a `Workshop`, returns a JSON-able summary that goes into `artifacts/<stage>/result.json`, and goes
on from what an interrupted attempt left: checkpoints, sampled pairs, recorded verdicts, evaluated rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from trimtab import ppo, preference, sampling, sft
from trimtab.data.pairs import candidate_record, read_candidates, read_pairs, write_candidates, write_pairs
from trimtab.data.records import CandidatePair
from trimtab.evaluation import win_rate
from trimtab.labeling.labels import Label, LabelSummary, label_pairs, summarise, to_pairs
from trimtab.labeling.store import LabelStore
from trimtab.pipeline.build import Workshop
from trimtab.pipeline.revisions import revise
from trimtab.pipeline.scorers import measures, reward
from trimtab.pipeline.stages import StageName, wants_preference_model
from trimtab.pipeline.watching import watchers
from trimtab.runs.files import append_jsonl, read_jsonl, write_jsonl
from trimtab.runs.progress import counter

__all__ = ["WORK"]

Result = dict[str, Any]


def run_sft(shop: Workshop) -> Result:
    config = shop.project.config
    if not shop.project.fine_tunes:
        return {"trained": False, "model": config.model.name}
    base, codec = shop.base()
    examples = list(shop.project.demonstrations)
    revised: Result = {}
    if config.sft.source == "constitution":
        revisions, revised = revise(shop, base, codec)
        examples = sft.mix(revisions, examples, config.sft.demonstration_share, config.project.seed)
    model = base.fork(trainable=True)
    sft.train(config.sft, model, codec, examples, run=shop.run, seed=config.project.seed, precision=shop.precision)
    shop.save_model(model, codec, "sft")
    return {
        "trained": True,
        "model": config.model.name,
        "source": config.sft.source,
        "examples": len(examples),
        "demonstrations": len(examples) - revised.get("kept", 0),
        **_validation(shop),
        **({"revisions": revised} if revised else {}),
    }


def _validation(shop: Workshop) -> Result:
    """The validation loss of the weights that were kept, where a part was held out."""
    rows = [row for row in shop.run.metrics("sft") if row["step"] > 0 and "loss/validation" in row]
    if not rows:
        return {}
    kept = rows[-1] if shop.project.config.sft.patience is None else min(rows, key=lambda row: row["loss/validation"])
    return {"validation_loss": kept["loss/validation"], "at_update": kept["step"], "updates": rows[-1]["step"]}


def run_sample(shop: Workshop) -> Result:
    config, target = shop.project.config, shop.run.artifact("sample")
    model, codec = shop.reference()
    partial = target / "partial.jsonl"
    target.mkdir(parents=True, exist_ok=True)
    done = read_candidates(partial, partial=True) if partial.exists() else []
    constitution = shop.project.constitution if config.sample.source == "contrast" else None
    bar, report = counter("sample")
    with bar, shop.precision.autocast():
        pairs = sampling.sample_pairs(
            model, codec, shop.project.prompts, constitution, config.sample, seed=config.project.seed, done=done,
            on_chunk=lambda new: append_jsonl(partial, [candidate_record(pair) for pair in new]), progress=report,
        )  # fmt: skip
    write_candidates(target / "pairs.jsonl", pairs)
    partial.unlink(missing_ok=True)
    summary = sampling.summarise(pairs, len(shop.project.prompts) * config.sample.pairs_per_prompt)
    shop.run.log(
        "sample", 0, {"sample/pairs": len(pairs), "sample/identical_fraction": summary.dropped / summary.wanted}
    )
    return {
        "source": config.sample.source,
        "prompts": len(shop.project.prompts),
        "pairs": len(pairs),
        **summary._asdict(),
    }


def run_label(shop: Workshop) -> Result:
    config, target = shop.project.config, shop.run.artifact("label")
    candidates = read_candidates(shop.run.artifact("sample") / "pairs.jsonl")
    judge = shop.judge()
    bar, report = counter("label")
    with LabelStore(shop.project.label_store) as store, bar:
        labels = label_pairs(
            candidates, judge, shop.project.constitution, both_orders=config.label.both_orders, store=store,
            batch_size=config.label.batch_size, progress=report,
        )  # fmt: skip
    pairs = to_pairs(candidates, labels, abstain=config.label.abstain)
    write_jsonl(
        target / "labels.jsonl",
        (
            {"pair_id": label.pair_id, "outcome": label.outcome, "p_first": label.p_first, "order_gap": label.order_gap}
            for label in labels
        ),
    )
    write_pairs(target / "pairs.jsonl", pairs)
    summary = summarise(labels)
    shop.run.log("label", 0, _label_signals(labels, summary, candidates, len(pairs)))
    return {
        "judge": judge.identity.name,
        "constitution": shop.project.constitution.name,
        "constitution_hash": shop.project.constitution.hash,
        "principles": [{"id": p.id, "text": p.text, "weight": p.weight} for p in shop.project.constitution.principles],
        "labels": summary.n,
        "pairs": len(pairs),
        "outcomes": {str(outcome): count for outcome, count in summary.counts.items()},
        "mean_strength": summary.mean_strength,
        "mean_order_gap": summary.mean_order_gap,
        "flipped": summary.flipped,
    }


def _label_signals(
    labels: Sequence[Label], summary: LabelSummary, candidates: Sequence[CandidatePair], kept: int
) -> dict[str, float | int | None]:
    decided = [
        (label.p_first, pair) for label, pair in zip(labels, candidates, strict=True) if label.p_first is not None
    ]
    of_length = [
        (p > 0.5) == (len(pair.first.text) > len(pair.second.text))
        for p, pair in decided
        if p != 0.5 and len(pair.first.text) != len(pair.second.text)
    ]
    shares = {f"label/{outcome}_fraction": count / summary.n for outcome, count in summary.counts.items()}
    shares.pop("label/ok_fraction")
    return {
        "label/pairs": summary.n,
        **shares,
        "label/order_flip_fraction": summary.flipped,
        "label/p_first_mean": mean(p for p, _ in decided) if decided else None,
        "label/gap_mean": summary.mean_strength,
        "label/longer_wins_fraction": mean(of_length) if of_length else None,
        "label/kept_fraction": kept / summary.n,
    }


def run_pm(shop: Workshop) -> Result:
    config = shop.project.config
    base, codec = shop.reference()
    pairs = read_pairs(shop.run.artifact("label") / "pairs.jsonl")
    model = preference.train(
        config.preference, base, codec, pairs, run=shop.run, seed=config.project.seed, precision=shop.precision
    )
    training, held_out = preference.split_by_prompt(pairs, config.preference.validation_fraction, config.project.seed)
    metrics = preference.evaluate(model, held_out, seed=config.project.seed)
    directory = shop.run.artifact("pm")
    model.save(directory / "model", held_out_accuracy=metrics.accuracy.mean)
    write_pairs(directory / "held_out.jsonl", held_out)
    return {"training_pairs": len(training), **metrics.as_dict()}


def run_ppo(shop: Workshop) -> Result:
    config = shop.project.config
    reference, codec = shop.reference()
    pm = shop.preference_model(reference) if wants_preference_model(shop.project) else None
    scorer = reward(shop.project, pm)
    policy = reference.fork(trainable=True)
    probes = shop.project.held_out_prompts[: config.ppo.probe_prompts]
    beside = {measure.name: measure for measure in measures(shop.project)}
    held_out = ppo.HeldOut(probes, beside, config.ppo.checkpoint_every) if probes else None
    result = ppo.train(
        config.ppo, policy, codec, shop.project.prompts, scorer, preference=pm.model if pm else None, run=shop.run,
        seed=config.project.seed, precision=shop.precision, held_out=held_out,
        callbacks=watchers(config),
    )  # fmt: skip
    shop.save_model(policy, codec, "ppo")
    last = result.history[-1]
    return {
        "iterations": len(result.history),
        "stopped": result.stopped,
        "score": {"first": result.history[0]["score/mean"], "last": last["score/mean"]},
        "kl": last["kl/reference"],
    }


def run_eval(shop: Workshop) -> Result:
    config, target = shop.project.config, shop.run.artifact("eval")
    reference, codec = shop.reference()
    policy, _ = shop.policy()
    independent = measures(shop.project)
    trained_on = reward(
        shop.project, shop.preference_model(reference) if wants_preference_model(shop.project) else None
    )
    rows_path = target / "samples.jsonl"
    target.mkdir(parents=True, exist_ok=True)
    bar, report = counter("eval")
    with bar:
        result = win_rate(
            policy, reference, codec, shop.project.held_out_prompts, [*independent, trained_on], config.eval,
            seed=config.project.seed, precision=shop.precision, progress=report,
            resume=read_jsonl(rows_path).records, save=lambda new: append_jsonl(rows_path, new),
        )  # fmt: skip
    shop.run.log("eval", 0, result.signals())
    return {"independent": bool(independent), "trained_on": trained_on.name, **result.as_dict()}


def run_report(shop: Workshop) -> Result:
    from trimtab.report import write

    path: Path = write(shop.run)
    return {"path": path.name}


WORK: dict[StageName, Callable[[Workshop], Result]] = {
    "sft": run_sft,
    "sample": run_sample,
    "label": run_label,
    "pm": run_pm,
    "ppo": run_ppo,
    "eval": run_eval,
    "report": run_report,
}
