"""`constitution diff` in a project: which pairs, which judges, through which store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trimtab.constitution import Constitution
from trimtab.data.pairs import read_candidates
from trimtab.data.readers import read
from trimtab.data.records import CandidatePair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.budget import Budget
from trimtab.labeling.labels import Label, label_pairs
from trimtab.labeling.store import LabelStore
from trimtab.pipeline.build import Workshop
from trimtab.pipeline.constitution_diff import ConstitutionDiff, diff_constitutions
from trimtab.pipeline.project import Project
from trimtab.runs.manifest import check_run_name
from trimtab.runs.progress import counter
from trimtab.runs.run import Run

__all__ = ["diff_in_project", "pairs_to_label"]


def diff_in_project(
    project: Project,
    old: Constitution,
    new: Constitution,
    *,
    run: str = "main",
    data: Path | None = None,
    sample: int = 200,
    seed: int = 0,
    by_principle: bool = False,
    attribute: bool = True,
) -> ConstitutionDiff:
    """What `new` in place of `old` does to the labels of a sample of pairs, by the project's judges.

    Args:
        project: whose settings, judges and label store are used.
        old: as a rule the project's constitution: its verdicts are recorded then.
        new: what is to replace it.
        run: the run whose pairs are sampled from, and whose reference model judges where no other is named.
        data: pairs to sample from instead, in any form that `trimtab data` reads.
        sample: how many pairs, at most.
        seed: of the sample.
        by_principle: ask about every principle by itself, so that a principle that both have is asked about once.
            Where the settings let a principle be drawn for each vote, this is done anyway: another draw is no flip.
        attribute: label under every change alone, too.

    Raises:
        TrimtabError: there are no pairs, the judge goes by no constitution, or it labels nothing.
    """
    label = project.config.label
    if members := [name for name, member in label.members().items() if member.judge == "construction"]:
        raise TrimtabError(
            ErrorKind.CONFIG,
            f"judge {members[0]!r} labels by how a pair was made and reads no constitution: no label could change",
            "choose another for this command: --set label.judge=likelihood",
        )
    shop = Workshop(project, Run.open(project.runs / check_run_name(run)))
    shop.use_threads()
    pairs = _comparable(pairs_to_label(shop, data), old, new, [m.judge for m in label.members().values()])
    chosen = np.random.default_rng([seed, 17]).permutation(len(pairs))[:sample]
    pairs = [pairs[i] for i in sorted(chosen)]
    budget = Budget(label.max_cost, label.max_calls)
    judges = shop.judges(budget)
    mode = "each" if by_principle or label.principles == "sampled" else label.principles
    with LabelStore(project.label_store) as store:

        def label_under(constitution: Constitution, asked: Sequence[CandidatePair]) -> list[Label]:
            bar, report = counter("label")
            with bar:
                return label_pairs(
                    asked, judges, constitution, both_orders=label.both_orders, samples=label.samples,
                    principles=mode, aggregation=label.aggregation, seed=project.config.project.seed, store=store,
                    batch_size=label.batch_size, budget=budget, progress=report,
                )  # fmt: skip

        return diff_constitutions(
            old, new, pairs, label_under, attribute=attribute, resamples=project.config.eval.bootstrap
        )


def pairs_to_label(shop: Workshop, data: Path | None) -> list[CandidatePair]:
    """The run's sampled pairs, or those of a file; of a labeled pair, chosen is the first.

    Raises:
        TrimtabError: the run has none yet, or the file holds none.
    """
    if data is None:
        path = shop.run.artifact("sample") / "pairs.jsonl"
        if not path.is_file():
            raise TrimtabError(ErrorKind.RUN, f"{path}: no pairs have been sampled yet", "run first: trimtab sample")
        return read_candidates(path)
    if _has_candidates(data):
        return read_candidates(data)
    pairs = read(data).pairs
    if not pairs:
        raise TrimtabError(ErrorKind.DATA, f"{data}: holds no pairs", "see what is wrong with it: trimtab data check")
    return [CandidatePair(p.id, p.prompt, p.chosen, p.rejected) for p in pairs]


def _has_candidates(path: Path) -> bool:
    """Whether a JSONL file begins with a pair that nobody has labeled."""
    try:
        with path.open("rb") as file:
            line = file.readline(1 << 20)
    except OSError:
        return False  # the reader says what is wrong
    return b'"first"' in line and b'"second"' in line


def _comparable(
    pairs: Sequence[CandidatePair], old: Constitution, new: Constitution, judges: Sequence[str]
) -> list[CandidatePair]:
    """Pairs that both constitutions can be asked about: the likelihood judge goes by a contrast pair's own principle.

    Raises:
        TrimtabError: there is none.
    """
    if "likelihood" not in judges:
        return list(pairs)
    known = {p.id for p in old.counted} & {p.id for p in new.counted}
    kept = [p for p in pairs if p.origin.get("principle") is None or p.origin["principle"] in known]
    if not kept:
        raise TrimtabError(
            ErrorKind.DATA,
            "every pair was sampled under a principle that one of the two constitutions does not have",
            "compare on pairs that were not sampled by contrast, or with another judge",
        )
    return kept
