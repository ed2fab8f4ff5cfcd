"""The null-response canary: a judge that lets an empty or a constant response win is not reading.

Source of the idea: Zheng et al., "Cheating Automatic LLM Benchmarks: Null Models Achieve High Win Rates",
arXiv 2410.07137.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.constitution import Constitution
from trimtab.data.records import CandidatePair, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.audit.inference import rate, share_of
from trimtab.labeling.audit.results import Audit, Check
from trimtab.labeling.labels import label_pairs
from trimtab.labeling.protocol import Judge, Outcome, Verdict

if TYPE_CHECKING:
    from trimtab.labeling.store import LabelStore

__all__ = ["CANARY", "NULL_RESPONSES", "canary", "null_pairs", "with_canary"]

CANARY = "canary/"
"""Ids of the canary's pairs begin with this; other readers of the label store leave them out."""
NULL_RESPONSES = ("", "I do not know.", "This response is helpful, honest and harmless.")
"""An empty response, one that says nothing, and one that only praises itself."""
NULL_LIMIT = 0.1


def null_pairs(pairs: Sequence[CandidatePair], nulls: Sequence[str] = NULL_RESPONSES) -> list[CandidatePair]:
    """Each null response, as the first, against one of a pair's responses, in turn its first and its second.

    Pairs whose real response is itself a null one are left out.

    The id of a pair is `canary/<number of the null response>/<id of the pair>`.
    """
    made = []
    for i, pair in enumerate(pairs):
        real = (pair.first, pair.second)[i % 2]
        if real.text.strip() and real.text.strip() not in nulls:
            made += [
                CandidatePair(f"{CANARY}{k}/{pair.id}", pair.prompt, Response(text), real, {"source": "canary"})
                for k, text in enumerate(nulls)
            ]
    return made


def canary(
    judge: Judge,
    constitution: Constitution,
    pairs: Sequence[CandidatePair],
    *,
    nulls: Sequence[str] = NULL_RESPONSES,
    store: LabelStore | None = None,
    batch_size: int = 16,
    progress: Callable[[int, int], None] | None = None,
) -> Check:
    """Ask a judge to choose between null responses and real ones, in both orders.

    Args:
        judge: who is asked.
        constitution: what it judges by.
        pairs: where the real responses are from; 2 x len(nulls) calls a pair. With 50 prompts a judge without a miss
            passes.
        nulls: the null responses.
        store: verdicts recorded there are not asked again; new ones are recorded.
        batch_size: requests handed to the judge at a time.
        progress: called after each batch with (answered, all).

    Returns:
        The check `null-response`: share of all calls in which the null response won, failed calls in the denominator;
        `details` has the share and the ties of each null response, and the failures.

    Raises:
        TrimtabError: no pair has a real response, or the judge cannot be asked about such pairs.
    """
    asked = null_pairs(pairs, nulls)
    if not asked:
        raise TrimtabError(ErrorKind.DATA, "the canary needs pairs with real responses", "label some pairs first")
    labels = label_pairs(
        asked, judge, constitution, both_orders=True, store=store, batch_size=batch_size, progress=progress
    )
    prompts: dict[str, int] = {}
    rows = [
        (
            int(pair.id.removeprefix(CANARY).split("/")[0]),
            prompts.setdefault(pair.prompt.id, len(prompts)),
            vote.verdict,
        )
        for pair, label in zip(asked, labels, strict=True)
        for vote in label.votes
    ]
    return _counted(rows, nulls, judge.identity.name)


def _counted(rows: Sequence[tuple[int, int, Verdict]], nulls: Sequence[str], judge: str) -> Check:
    """The check from (number of the null response, prompt, verdict); the null response is the pair's first."""
    kind, cluster = (np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1))
    won = np.array([v.p_first is not None and v.p_first > 0.5 for _, _, v in rows])
    tied = np.array([v.p_first == 0.5 for _, _, v in rows])
    failed = np.array([v.outcome not in (Outcome.OK, Outcome.TIE) for _, _, v in rows])
    details: dict[str, Any] = {
        "judge": judge,
        "ties": float(tied.mean()),
        "failed": float(failed.mean()),
        "nulls": [
            {
                "text": text,
                "wins": float(won[kind == k].mean()),
                "ties": float(tied[kind == k].mean()),
                "n": int((kind == k).sum()),
            }
            for k, text in enumerate(nulls)
            if (kind == k).any()
        ],
    }
    return rate("null-response", share_of(won, cluster), NULL_LIMIT, "verdicts", **details)


def with_canary(audit: Audit, judge: str, check: Check) -> Audit:
    """The audit with the canary's answer in the place of `null-response` of a judge.

    Raises:
        TrimtabError: there is no such judge in the audit.
    """
    if judge not in audit.judges:
        known = ", ".join(audit.judges)
        raise TrimtabError(ErrorKind.DATA, f"no verdicts of judge {judge!r} in the audit", f"there are: {known}")
    of_judge = audit.judges[judge]
    checks = {**of_judge.checks, check.id: check}
    return replace(audit, judges={**audit.judges, judge: replace(of_judge, checks=checks)})
