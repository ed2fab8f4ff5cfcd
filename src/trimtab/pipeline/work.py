"""The work of each stage: read its inputs from the run directory, call the room that does it, write its artifacts.

Every function takes a `Workshop`, returns a JSON-able summary that goes into `artifacts/<stage>/result.json`, and goes
on from what an interrupted attempt left: checkpoints, sampled pairs, recorded verdicts, evaluated rows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from trimtab import dpo, ppo, preference, sampling, sft
from trimtab.data.pairs import candidate_record, read_candidates, write_candidates, write_pairs
from trimtab.evaluation import win_rate
from trimtab.models.roles import ScalarModel
from trimtab.pipeline.build import Workshop
from trimtab.pipeline.calibrations import how_scored
from trimtab.pipeline.ensembles import disagreement_of_samples, members_on_pairs
from trimtab.pipeline.labels import run_label
from trimtab.pipeline.pm_figures import figures_beside, principle_weights
from trimtab.pipeline.pm_results import study, write_card
from trimtab.pipeline.revisions import revise
from trimtab.pipeline.scorers import measures, reward
from trimtab.pipeline.stages import StageName, wants_preference_model
from trimtab.pipeline.watching import watchers
from trimtab.preference.shift_reference import Reference, reference_of
from trimtab.runs.files import append_jsonl, read_jsonl
from trimtab.runs.manifest import StageStatus
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
    model = base.fork(trainable=True, generator=shop.adapters("sft"))
    sft.train(config.sft, model, codec, examples, run=shop.run, seed=config.project.seed, precision=shop.precision)
    shop.save_model(model, codec, "sft")
    return {
        "trained": True,
        "model": config.model.name,
        "source": config.sft.source,
        "examples": len(examples),
        "demonstrations": len(examples) - revised.get("kept", 0),
        **_validation(shop, "sft"),
        **({"revisions": revised} if revised else {}),
    }


def _validation(shop: Workshop, stage: Literal["sft", "pm", "dpo"]) -> Result:
    """The validation loss of the weights that were kept (of an ensemble: the first member's), where it was measured."""
    rows = [row for row in shop.run.metrics(stage) if row["step"] > 0 and "loss/validation" in row]
    if not rows:
        return {}
    config = shop.project.config
    patience = {"sft": config.sft.patience, "pm": config.preference.patience, "dpo": config.dpo.patience}[stage]
    kept = rows[-1] if patience is None else min(rows, key=lambda row: row["loss/validation"])
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


def run_pm(shop: Workshop) -> Result:
    config = shop.project.config
    base, codec = shop.preference_start()
    pairs = given = shop.training_pairs()
    if config.preference.too_long == "drop":
        pairs, _ = preference.readable(config.preference, base, codec, given)
    model = preference.train(
        config.preference, base, codec, pairs, run=shop.run, seed=config.project.seed, precision=shop.precision,
        principle_weights=principle_weights(shop.project),
    )  # fmt: skip
    training, held_out = preference.split_by_prompt(pairs, config.preference.validation_fraction, config.project.seed)
    metrics = preference.evaluate(model, held_out, seed=config.project.seed)
    directory = shop.run.artifact("pm")
    own = {"backbone": config.preference.backbone} if config.preference.backbone is not None else {}
    model.reference = reference_of(model, training, held_out, seed=config.project.seed)
    model.save(directory / "model", held_out_accuracy=metrics.accuracy.mean, **own)
    write_pairs(directory / "held_out.jsonl", held_out)
    study(shop, model, held_out, training)
    people = {pair.id for pair in shop.project.human_pairs}
    of_people = [pair for pair in held_out if pair.id in people]
    apart = preference.evaluate(model, of_people, seed=config.project.seed).as_dict() if of_people else None
    result = {
        "training_pairs": len(training),
        **metrics.as_dict(),
        **(_validation(shop, "pm") if config.preference.patience is not None else {}),
        **members_on_pairs(model, held_out),
        **figures_beside(model, held_out, config.project.seed, held_out=True),
        **({"human_pairs": len(people), "human_held_out": apart} if people else {}),
        **({"too_long": len(given) - len(pairs)} if len(pairs) < len(given) else {}),
    }
    write_card(shop.run, result)
    return result


def _value_start(shop: Workshop, pm: preference.PreferenceModel | None) -> ScalarModel | None:
    """The weights that a value model may start from: a preference model on the policy's own backbone."""
    if pm is None or shop.project.config.preference.backbone is not None or not isinstance(pm.model, ScalarModel):
        return None
    return pm.model


def run_ppo(shop: Workshop) -> Result:
    config = shop.project.config
    reference, codec = shop.reference()
    pm = shop.preference_model(reference) if wants_preference_model(shop.project) else None
    if pm is not None:
        pm.watch(Reference.load(shop.run.artifact("pm") / "model"))
    scorer = reward(shop.project, pm)
    policy = reference.fork(trainable=True, generator=shop.adapters("policy"))
    probes = shop.project.held_out_prompts[: config.ppo.probe_prompts]
    beside = {measure.name: measure for measure in measures(shop.project)}
    held_out = ppo.HeldOut(probes, beside, config.ppo.checkpoint_every) if probes else None
    result = ppo.train(
        config.ppo, policy, codec, shop.project.prompts, scorer, preference=_value_start(shop, pm), run=shop.run,
        seed=config.project.seed, precision=shop.precision, held_out=held_out,
        callbacks=watchers(config) if shop.world.first else (),
        demonstrations=shop.project.language_demonstrations, world=shop.world, parallel=config.model.parallel,
    )  # fmt: skip
    if not shop.world.first:
        return {}
    shop.save_model(policy, codec, "ppo")
    last = result.history[-1]
    return {
        "iterations": len(result.history),
        "stopped": result.stopped,
        "score": {"first": result.history[0]["score/mean"], "last": last["score/mean"]},
        "kl": last["kl/reference"],
        **({} if result.best is None else {"best": result.best}),
        **how_scored(shop.project, pm),
    }


def run_dpo(shop: Workshop) -> Result:
    config = shop.project.config
    reference, codec = shop.reference()
    policy = reference.fork(trainable=True, generator=shop.adapters("policy"))
    pairs = given = shop.training_pairs()
    if config.dpo.too_long == "drop":
        pairs, _ = dpo.readable(config.dpo, policy, codec, given)
    there = shop.run.stage("pm").status == StageStatus.DONE and wants_preference_model(shop.project)
    beside = {measure.name: measure for measure in measures(shop.project)}
    probes = shop.project.held_out_prompts[: config.dpo.probe_prompts]
    result = dpo.train(
        config.dpo, policy, codec, pairs, run=shop.run, seed=config.project.seed, precision=shop.precision,
        held_out=dpo.HeldOut(probes, beside),
        scorer=reward(shop.project, shop.preference_model(reference)) if there and probes else None,
    )  # fmt: skip
    shop.save_model(policy, codec, "dpo")
    last = result.history[-1]
    return {
        "training_pairs": result.training_pairs,
        "held_out_pairs": result.held_out_pairs,
        "updates": len(result.history),
        "accuracy": last.get("accuracy/validation"),
        "chosen_change": last.get("held_out/dpo/chosen_change", last["dpo/chosen_change"]),
        "kl": last.get("kl/reference"),
        **_validation(shop, "dpo"),
        **({"too_long": len(given) - len(pairs)} if len(pairs) < len(given) else {}),
    }


def run_eval(shop: Workshop) -> Result:
    config, target = shop.project.config, shop.run.artifact("eval")
    reference, codec = shop.reference()
    policy, _ = shop.policy(reference)
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
    apart = disagreement_of_samples(trained_on, read_jsonl(rows_path).records, shop.project.held_out_prompts)
    return {"independent": bool(independent), "trained_on": trained_on.name, **result.as_dict(), **apart}


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
    "dpo": run_dpo,
    "eval": run_eval,
    "report": run_report,
}
