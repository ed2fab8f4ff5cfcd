"""The constitutional part of the sft stage: sample, sift, write down, ask those who did not write it what it brought.

Writes `artifacts/sft/transcripts.jsonl` (everything that was said, and what became of it) and `revisions.jsonl` (what
is trained on, in the form of demonstrations).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trimtab.data.demonstrations import Demonstration, write_demonstrations
from trimtab.data.records import CandidatePair, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.judges import JudgeContext, load_judge
from trimtab.labeling.labels import label_pairs
from trimtab.labeling.store import LabelStore
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec
from trimtab.pipeline.build import Workshop
from trimtab.pipeline.names import model_name
from trimtab.pipeline.scorers import measures
from trimtab.runs.files import append_jsonl, stable_hash
from trimtab.runs.progress import counter
from trimtab.sampling.critique import sample_revisions
from trimtab.sampling.transcripts import (
    Fate,
    Sifted,
    read_transcripts,
    sift,
    summarise_transcripts,
    to_demonstrations,
    transcript_record,
    write_transcripts,
)
from trimtab.stats.intervals import Interval, bootstrap_mean

__all__ = ["compare_with_drafts", "revise"]

COMPARED = 100
"""Revisions that are compared with their drafts at most: a share is then known to about a tenth."""

Ask = Callable[[Sequence[CandidatePair]], Sequence[float | None]]
"""Pairs of draft and revision -> by how much, or with what probability above one half, the revision is preferred."""


def revise(shop: Workshop, base: CausalModel, codec: TextCodec) -> tuple[list[Demonstration], dict[str, Any]]:
    """Revisions to train on, and a summary; goes on from the transcripts that an interrupted attempt wrote down.

    Raises:
        TrimtabError: nothing of what was revised can be trained on.
    """
    project, target = shop.project, shop.run.artifact("sft")
    target.mkdir(parents=True, exist_ok=True)
    path = target / "transcripts.jsonl"
    done = read_transcripts(path, partial=True) if path.exists() else []
    bar, report = counter("revise")
    with bar, shop.precision.autocast():
        transcripts = sample_revisions(
            base, codec, project.prompts, project.constitution, project.config.sft,
            batch_size=project.config.sample.batch_size, seed=project.config.project.seed, done=done,
            on_chunk=lambda new: append_jsonl(path, [transcript_record(t) for t in new]), progress=report,
        )  # fmt: skip
    sifted = sift(transcripts)
    write_transcripts(path, sifted)
    revisions = to_demonstrations(sifted)
    summary = summarise_transcripts(sifted)
    if not revisions:
        reasons = ", ".join(f"{n} {fate}" for fate, n in summary["dropped"].items() if n)
        raise TrimtabError(
            ErrorKind.DATA,
            f"none of {len(sifted)} revisions can be trained on ({reasons})",
            f"read them in {path}; cut off: raise sft.max_new_tokens; unchanged or about revising: the model is too "
            "weak for these requests, or they are worded badly",
        )
    write_demonstrations(target / "revisions.jsonl", revisions)
    return revisions, {**summary, "against_drafts": _against_drafts(shop, base, codec, sifted)}


def _against_drafts(shop: Workshop, base: CausalModel, codec: TextCodec, sifted: Sequence[Sifted]) -> dict[str, Any]:
    project, found = shop.project, {}
    for measure in measures(project):
        found[measure.name] = compare_with_drafts(sifted, _by_score(measure), project.config.eval.bootstrap)
    if not project.constitution.lacking(("reading", "opposite")):
        found["likelihood"] = compare_with_drafts(
            sifted, _by_likelihood(shop, base, codec), project.config.eval.bootstrap
        )
    return found


def compare_with_drafts(sifted: Sequence[Sifted], ask: Ask, resamples: int = 2000) -> dict[str, Any]:
    """How often what is kept is preferred to its draft, by someone who did not write it.

    Args:
        sifted: transcripts; of the kept ones, `COMPARED` at most are asked about, spread evenly over them.
        ask: says of each pair (first the draft, second the revision) how much better the revision is; above 0 it is
            preferred, at 0 it counts one half, None is left out.
        resamples: of the prompts, for the intervals.

    Returns:
        `pairs` asked about and answered, `revision_preferred` and `difference` with their 95 % intervals.
    """
    kept = [s for s in sifted if s.fate is Fate.KEPT]
    chosen = [kept[i] for i in np.linspace(0, len(kept) - 1, min(len(kept), COMPARED)).round().astype(int)]
    pairs = [
        CandidatePair(f"revision-{s.transcript.prompt.id}", s.transcript.prompt, s.transcript.draft, Response(s.text))
        for s in chosen
    ]
    answers = [(p, d) for p, d in zip(pairs, ask(pairs), strict=True) if d is not None]
    differences = np.array([d for _, d in answers])
    groups = [p.prompt.messages for p, _ in answers]
    if not answers:
        return {"pairs": 0}
    wins = bootstrap_mean((np.sign(differences) + 1) / 2, groups, resamples)
    change = bootstrap_mean(differences, groups, resamples)
    return {
        "pairs": len(answers),
        "revision_preferred": _estimate(wins),
        "difference": _estimate(change),
    }


def _estimate(interval: Interval) -> dict[str, float | None]:
    """For JSON: one prompt has no interval."""
    found = {"mean": interval.mean, "low": interval.low, "high": interval.high}
    return {name: value if math.isfinite(value) else None for name, value in found.items()}


def _by_score(measure: Any) -> Ask:
    def ask(pairs: Sequence[CandidatePair]) -> list[float]:
        prompts = [p.prompt for p in pairs]
        before = measure.score(prompts, [p.first for p in pairs])
        after = measure.score(prompts, [p.second for p in pairs])
        return [float(b) - float(a) for a, b in zip(before, after, strict=True)]

    return ask


def _by_likelihood(shop: Workshop, base: CausalModel, codec: TextCodec) -> Ask:
    """The likelihood judge on the base model: it reads the principles' readings, and never saw a critique request."""
    project = shop.project
    name = model_name(project, project.config.model.name)
    model_id = stable_hash([name, project.model_stamp(project.config.model.name), project.config.model.dtype])
    own = project.config.label.model_copy(update={"judge": "likelihood"})

    def ask(pairs: Sequence[CandidatePair]) -> list[float | None]:
        judge = load_judge(JudgeContext(own, project.config.project.seed, model_id, lambda: (base, codec)))
        bar, report = counter("compare")
        with LabelStore(project.label_store) as store, bar:
            labels = label_pairs(
                pairs, judge, project.constitution, store=store, batch_size=project.config.label.batch_size,
                progress=report,
            )  # fmt: skip
        return [None if label.p_first is None else 0.5 - label.p_first for label in labels]

    return ask
