"""One story out of many findings: what came first and leads to the others, and what merely followed.

A graph says which finding can lead to which; the onsets say whether it did. A finding hangs under another where the
graph has a way between them and the other one was not later. Which of several causes takes the blame: the nearest in
the graph, then the latest before it, as in a chain of events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from trimtab.doctor.finding import Finding, Severity

__all__ = ["LEADS_TO", "tell"]

_DATA = ("noisy-labels", "inconsistent-preferences", "pm-low-accuracy", "pm-miscalibrated", "pm-self-contradiction")
_WEAK_SCORER = ("reward-hacking", "reward-not-improving", "no-reward-signal", "reward-noise")
_DRIFT = (
    "entropy-collapse", "entropy-explosion", "reward-decreasing", "reward-not-improving", "repetitive-outputs",
    "exploding-gradients", "nan-inf", "oscillating", "alignment-tax", "benchmark-overfitting", "diverging-loss",
)  # fmt: skip
_STARVED = ("no-reward-signal", "reward-not-improving", "value-not-learning", "policy-not-moving", "reward-decreasing")

LEADS_TO: Mapping[str, tuple[str, ...]] = {
    # labels
    "judge-unparsed": _DATA,
    "judge-template-sensitivity": ("judge-inconsistency", "judge-disagreement", *_DATA),
    "judge-position-bias": ("judge-inconsistency", "judge-disagreement", *_DATA),
    "judge-inconsistency": _DATA,
    "judge-disagreement": _DATA,
    "judge-length-bias": ("pm-length-bias", "length-exploitation", "judge-disagreement"),
    "judge-self-preference": ("pm-distribution-shift", "reward-hacking", "judge-disagreement"),
    "low-diversity": ("pm-narrow", "pm-overfit", "pm-distribution-shift", "pm-low-accuracy", "preference-overfit"),
    "noisy-labels": ("inconsistent-preferences", "pm-low-accuracy", "pm-miscalibrated", "pm-overfit",
                     "preference-not-generalising"),
    "inconsistent-preferences": ("pm-low-accuracy", "pm-miscalibrated", "pm-overfit", "preference-not-generalising"),
    # preference model
    "pm-overfit": ("pm-low-accuracy", "pm-miscalibrated", "pm-distribution-shift", "pm-self-contradiction",
                   *_WEAK_SCORER),
    "pm-low-accuracy": ("pm-miscalibrated", "pm-self-contradiction", *_WEAK_SCORER),
    "pm-score-collapse": ("pm-low-accuracy", "no-reward-signal", "reward-scale", "reward-not-improving"),
    "pm-narrow": ("repetitive-outputs", "style-exploitation", "reward-hacking", "entropy-collapse"),
    "pm-self-contradiction": _WEAK_SCORER,
    "pm-miscalibrated": ("reward-scale", "reward-hacking"),
    "pm-distribution-shift": ("reward-hacking", "reward-noise"),
    "pm-length-bias": ("length-exploitation", "pm-low-accuracy", "pm-miscalibrated"),
    # broken machinery
    "no-gradient": ("policy-not-moving", "reward-not-improving", "value-not-learning"),
    "logprob-mismatch": ("ratio-blow-up", "clip-fraction-high", "kl-explosion", "exploding-gradients", "nan-inf",
                         "value-not-learning", *_DRIFT),
    "negative-kl": ("repetitive-outputs", "reward-not-improving", "reward-decreasing", "entropy-explosion",
                    "length-collapse"),
    "reference-mismatch": ("kl-explosion", "negative-kl", "preference-overfit", "preference-not-generalising",
                           "likelihood-displacement", "diverging-loss", "exploding-gradients", "reward-not-improving"),
    "advantage-not-centred": ("reward-noise", "reward-not-improving", "reward-decreasing", "oscillating",
                              "entropy-collapse", "kl-explosion"),
    "missing-eos": ("truncated-responses", "length-explosion", *_STARVED),
    "truncated-responses": _STARVED,
    "no-reward-signal": ("policy-not-moving", "reward-not-improving", "value-not-learning", "repetitive-outputs",
                         "invalid-metric"),
    "reward-scale": ("value-not-learning", "diverging-loss", "exploding-gradients", "clip-fraction-high", "nan-inf",
                     "reward-not-improving", "ratio-blow-up"),
    "reward-noise": ("reward-not-improving", "value-not-learning"),
    # optimisation
    "exploding-gradients": ("nan-inf", "diverging-loss", "entropy-explosion", "reward-decreasing",
                            "reward-not-improving", "oscillating"),
    "diverging-loss": ("nan-inf", "value-not-learning", "exploding-gradients", "reward-decreasing"),
    "value-not-learning": ("reward-not-improving", "oscillating", "reward-decreasing"),
    "clip-fraction-high": ("ratio-blow-up", "kl-explosion", "oscillating", "entropy-collapse", "exploding-gradients",
                           "reward-decreasing", "reward-not-improving"),
    "ratio-blow-up": ("kl-explosion", "exploding-gradients", "clip-fraction-high", *_DRIFT),
    "policy-not-moving": ("reward-not-improving",),
    "over-constrained": ("policy-not-moving", "reward-not-improving"),
    "nan-inf": ("reward-decreasing", "reward-not-improving", "length-collapse", "repetitive-outputs"),
    # exploits
    "length-exploitation": ("reward-hacking", "length-explosion", "truncated-responses", "kl-explosion",
                            "entropy-collapse", "no-reward-signal", "repetitive-outputs", "missing-eos",
                            "reward-decreasing"),
    "style-exploitation": ("reward-hacking", "repetitive-outputs", "kl-explosion", "entropy-collapse"),
    "sycophancy": ("reward-hacking",),
    "reward-hacking": ("kl-explosion", "entropy-collapse", "no-reward-signal", "repetitive-outputs", "alignment-tax",
                       "length-collapse"),
    "kl-explosion": ("clip-fraction-high", "truncated-responses", "length-explosion", "length-collapse", *_DRIFT),
    "entropy-collapse": ("repetitive-outputs", "no-reward-signal", "policy-not-moving", "reward-not-improving",
                         "reward-decreasing", "length-collapse"),
    "entropy-explosion": ("length-explosion", "truncated-responses", "kl-explosion", "reward-decreasing",
                          "reward-not-improving"),
    "repetitive-outputs": ("no-reward-signal", "reward-not-improving", "length-explosion", "truncated-responses"),
    "length-explosion": ("truncated-responses", "reward-decreasing", "kl-explosion"),
    "length-collapse": ("reward-decreasing", "repetitive-outputs", "reward-not-improving"),
    "oscillating": ("reward-decreasing", "reward-not-improving"),
    # direct preference
    "preference-overfit": ("preference-not-generalising", "likelihood-displacement"),
    "preference-not-generalising": ("alignment-tax",),
    "likelihood-displacement": ("alignment-tax",),
}  # fmt: skip
"""What each finding can lead to, directly."""

_UPSTREAM = ("label", "sample", "sft", "pm", "policy", "direct", "eval")
_QUIET_ROOTS = frozenset({"invalid-metric", "unit-unknown", "log-truncated"})
"""Faults of the log, not of the run: another loud finding is the root before one of these."""

_REACH = 2
"""Edges between findings of two stages: what lies between them may not be logged. In one stage it has to be there."""
_OF_THE_WHOLE = frozenset({"reward-not-improving", "value-not-learning", "policy-not-moving", "pm-low-accuracy"})
"""Said of a run as a whole, from its first step on: what sets in before its last third can be the cause."""
_OF_THE_SCORE = _OF_THE_WHOLE | {"no-reward-signal", "reward-scale", "reward-noise"}
"""Can be a fault of the score from the first step on."""

Staged = tuple[Finding, str]
"""A finding, and the stage that it was made in (`Stage` value; empty for judgments and data)."""


@cache
def _distance(cause: str) -> dict[str, int]:
    """How many edges lie between `cause` and each finding that it can lead to."""
    out = {cause: 0}
    queue = deque([cause])
    while queue:
        here = queue.popleft()
        for there in LEADS_TO.get(here, ()):
            if there not in out:
                out[there] = out[here] + 1
                queue.append(there)
    return out


def _rank(stage: str) -> int:
    return _UPSTREAM.index(stage) if stage in _UPSTREAM else 0


def tell(staged: Sequence[Staged], span: int) -> tuple[tuple[Finding, ...], str | None]:
    """Findings with their `because_of`, in the order of the story, and the root cause.

    Args:
        staged: the findings, each with its stage.
        span: steps that the longest log covers; a cause may seem later than its consequence by a tenth of that, as
            onsets are estimates.

    Returns:
        (findings: each cause followed by what hangs under it, causes by onset; root cause: the loud finding without a
        loud cause that is critical first, then explains most, then came first; None without a loud finding).
    """
    slack = 0.1 * span
    # a finding has at most one cause, taken in an order in which none can hang under its own consequence
    order = sorted(staged, key=lambda s: (_rank(s[1]), _onset(s[0])))
    cause: dict[int, int] = {}
    for i, (child, stage) in enumerate(order):
        best: tuple[bool, int, float, int] | None = None
        for j, (parent, above) in enumerate(order):
            away = _distance(parent.id).get(child.id)
            if (
                i == j
                or not away
                or away > (1 if _rank(above) == _rank(stage) else _REACH)
                or parent.severity.rank < min(child.severity.rank, Severity.WARNING.rank)
            ):
                continue
            if not _before(parent, above, child, stage, slack) or _hangs(cause, j, i):
                continue
            if parent.id in LEADS_TO.get(child.id, ()) and above == stage and _onset(parent) > _onset(child):
                continue  # each can lead to the other: the earlier one did
            late = above == stage and _onset(parent) > _onset(child)
            key = (late, away, -_onset(parent), j)
            if best is None or key < best:
                best = key
        if best is not None:
            cause[i] = best[-1]
    children: dict[int | None, list[int]] = {}
    for i in range(len(order)):
        children.setdefault(cause.get(i), []).append(i)
    told: list[Finding] = []

    def visit(i: int) -> None:
        found = order[i][0]
        told.append(replace(found, because_of=order[cause[i]][0].id) if i in cause else found)
        for below in sorted(children.get(i, []), key=lambda k: _onset(order[k][0])):
            visit(below)

    tops = sorted(
        children.get(None, []), key=lambda k: (not order[k][0].severity.loud, _rank(order[k][1]), _onset(order[k][0]))
    )
    for top in tops:
        visit(top)
    return tuple(told), _root(order, cause, children)


def _onset(finding: Finding) -> float:
    return float("-inf") if finding.onset_step is None else float(finding.onset_step)


def _before(parent: Finding, above: str, child: Finding, stage: str, slack: float) -> bool:
    """Whether the parent came first: an earlier stage, or in one stage an earlier onset."""
    if _rank(above) != _rank(stage):
        # what was so before the first update is no work of what the policy was trained on
        at_once = child.onset_step is not None and child.onset_step <= 1 and child.id not in _OF_THE_SCORE
        return _rank(above) < _rank(stage) and not at_once
    if child.id in _OF_THE_WHOLE:
        slack *= 6
    return _onset(parent) <= _onset(child) + slack


def _hangs(cause: Mapping[int, int], j: int, i: int) -> bool:
    """Whether `j` hangs under `i` already."""
    while j in cause:
        j = cause[j]
        if j == i:
            return True
    return False


def _root(
    order: Sequence[Staged], cause: Mapping[int, int], children: Mapping[int | None, Sequence[int]]
) -> str | None:
    def under(i: int) -> int:
        return sum(order[k][0].severity.loud + under(k) for k in children.get(i, ()))

    def key(i: int) -> tuple[bool, int, int, int, float]:
        found, stage = order[i]
        return found.id in _QUIET_ROOTS, _rank(stage), -found.severity.rank, -under(i), _onset(found)

    loud = [
        i for i, (f, _) in enumerate(order) if f.severity.loud and not (i in cause and order[cause[i]][0].severity.loud)
    ]
    return order[min(loud, key=key)][0].id if loud else None
