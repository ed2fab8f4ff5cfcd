"""The audit of a verdict table: every judge through every check, then the judges against each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.audit import consistency, headline, identity, preferences, principles
from trimtab.labeling.audit.between import agreement_between, pool
from trimtab.labeling.audit.inference import missing, rate, settle
from trimtab.labeling.audit.results import CHECKS, Audit, Check, JudgeAudit, SliceAudit
from trimtab.labeling.audit.units import order_couples
from trimtab.labeling.verdicts import OUTCOMES, VerdictTable

__all__ = ["audit", "own_generators"]

ACCURACY_LIMIT = 0.6
"""Under this a judge says little more than a coin; people reach .65 to .8 against each other on chat."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class _Context:
    """What is worked out once for all judges."""

    table: VerdictTable
    formats: Mapping[str, preferences.Signs]
    identities: identity.Identities
    own: Mapping[str, Collection[str]]
    resamples: int
    seed: int


def audit(
    table: VerdictTable,
    *,
    seed: int = 0,
    resamples: int = 1000,
    own: Mapping[str, Collection[str]] | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Measure every judge in a table, and the judges against each other.

    The same table and seed give the same audit. Nothing is asked of any judge; see `canary` for that.

    Args:
        table: the verdicts.
        seed: of the bootstrap.
        resamples: bootstrap samples for kappas, odds ratios and differences; shares need none.
        own: by judge, names of the generators that are its own model; where a judge is not named there, generators
            named like the judge, the part of its name before "/", or its model, or a version of these.
        progress: called after each judge with (done, all).

    Raises:
        TrimtabError: the table is empty, or `resamples` below 1.
    """
    if len(table) == 0:
        raise TrimtabError(ErrorKind.DATA, f"{table.source or 'the table'}: no verdicts to audit")
    if resamples < 1:
        raise TrimtabError(ErrorKind.USAGE, f"{resamples} resamples", "at least 1, and 1000 for two digits")
    formats = preferences.format_features(table.texts, len(table.pair.names)) if table.texts else {}
    context = _Context(table, formats, identity.identities(table.texts), own or {}, resamples, seed)
    judges = {}
    for i, name in enumerate(table.judge.names):
        judges[name] = _judge(context, name)
        if progress is not None:
            progress(i + 1, len(table.judge.names))
    return Audit(
        source=table.source,
        n=len(table),
        pairs=len(table.pair.names),
        clusters=len(np.unique(table.cluster)),
        judges=judges,
        agreement=agreement_between(table, resamples, seed),
        pool=pool(table),
        seed=seed,
        resamples=resamples,
        notes=_notes(table),
    )


def own_generators(table: VerdictTable, judge: str) -> frozenset[str]:
    """Names of generators that are the judge's own model: named like it or its model, or a version of these."""
    rows = table.judge.codes == table.judge.names.index(judge)
    models = {table.model.names[c] for c in np.unique(table.model.codes[rows]).tolist() if c >= 0}
    names = {n.casefold() for n in (judge, judge.split("/")[0], *models, *(m.rsplit("/", 1)[-1] for m in models)) if n}

    def is_own(generator: str) -> bool:
        plain = generator.casefold().rsplit("/", 1)[-1]
        return any(
            plain == n or plain.startswith((f"{n}-", f"{n}:", f"{n}@")) or generator.casefold() == n for n in names
        )

    return frozenset(g for g in {*table.generator_1.names, *table.generator_2.names} if is_own(g))


def _judge(context: _Context, name: str) -> JudgeAudit:
    table = context.table.of_judge(name)
    both = order_couples(table)
    figures = headline.headline(table, both)
    models = [table.model.names[c] for c in np.unique(table.model.codes).tolist() if c >= 0]
    mass = table.mass[np.isfinite(table.mass)]
    return JudgeAudit(
        name=name,
        model=", ".join(models) or None,
        n=len(table),
        pairs=figures.pairs,
        clusters=len(np.unique(table.cluster)),
        outcomes={o.value: int((table.status == i).sum()) for i, o in enumerate(OUTCOMES)},
        accuracy=figures.accuracy,
        inconsistent_rate=figures.inconsistent_rate,
        first_share=figures.first_share,
        slices=headline.parts(table, table.slice, nested=True),
        groups=headline.parts(table, table.group),
        annotators=headline.parts(table, table.annotator),
        templates=headline.parts(table, table.template),
        principles=headline.parts(table, table.principle),
        checks=_checks(context, table, figures, name),
        gold_kappa=headline.gold_kappa(table, context.resamples, context.seed),
        cost=_cost(table),
        mass=float(mass.mean()) if len(mass) else None,
    )


def _checks(context: _Context, table: VerdictTable, figures: SliceAudit, name: str) -> dict[str, Check]:
    both = order_couples(table)
    repeat, again = consistency.repeats(table)
    noise = repeat.effect if repeat.effect is not None else figures.inconsistent_rate.value
    own = frozenset(context.own[name]) if name in context.own else own_generators(context.table, name)
    draws = {"resamples": context.resamples, "seed": context.seed}
    found = [
        _reference(figures),
        consistency.position_bias(table, both),
        consistency.swap_consistency(figures, table, both),
        repeat,
        consistency.contradictory_repeats(table),
        consistency.template_consistency(table, again),
        consistency.unparsed(table),
        preferences.length_bias(table, **draws),
        preferences.format_bias(table, context.formats, **draws),
        preferences.self_preference(table, context.table, own, **draws),
        identity.identity_preference(table, context.identities),
        identity.identity_swap(table, context.identities, noise),
        principles.principle_decisiveness(table),
        principles.principle_conflict(table),
        principles.intransitive_triads(table, figures.inconsistent_rate.value),
        missing("null-response", "a judge that can be asked (--canary)"),
    ]
    settled = settle(found)
    return {check: settled[check] for check in CHECKS}


def _reference(figures: SliceAudit) -> Check:
    if figures.accuracy.value is None:
        return missing("reference-agreement", "gold (reference labels)")
    return rate("reference-agreement", figures.accuracy, ACCURACY_LIMIT, "verdicts", bad_above=False, coin=0.5)


def _cost(table: VerdictTable) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, column in (("cost", table.cost), ("tokens", table.tokens), ("latency", table.latency)):
        known = column[np.isfinite(column)]
        if len(known):
            found |= {
                name: float(known.sum()),
                f"{name}_per_verdict": float(known.mean()),
                f"{name}_n": float(len(known)),
            }
    usable = int((table.winner >= 0).sum())
    if "cost" in found and usable:
        found["cost_per_usable_verdict"] = found["cost"] / usable
    return found


def _notes(table: VerdictTable) -> tuple[str, ...]:
    notes = []
    if not table.prompt.known:
        notes.append("prompt_id is not known: intervals draw pairs, and are too narrow where pairs share a prompt")
    if table.ignored:
        notes.append(f"columns that are not read: {', '.join(table.ignored)}")
    return tuple(notes)
