"""What a judge prefers besides quality: length, format, its own responses.

Each is an attribute that one response of a pair has more of. Where there are reference labels, the share of verdicts
for it is balanced by them (`balanced_share`): better responses may well be longer. Where there are none the plain share
is compared with one half and with people's, and only a large distance counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.labeling.audit.inference import Balanced, balanced_share, finite, missing, share_of, signed_share
from trimtab.labeling.audit.results import Check, CheckStatus
from trimtab.labeling.verdicts import PairTexts, VerdictTable
from trimtab.stats.resampling import bootstrap_sums, percentile_interval
from trimtab.stats.significance import (
    detectable_mean,
    holm,
    mantel_haenszel,
    mantel_haenszel_odds,
    student_p,
    student_quantile,
)

__all__ = ["FORMATS", "attribute", "format_bias", "format_features", "length_bias", "self_preference"]

Signs = NDArray[np.int8]
Floats = NDArray[np.float64]

THRESHOLD = 0.05
"""Distance from one half that matters once the reference labels are balanced."""
LENGTH_THRESHOLD = 0.15
"""Without reference labels: people choose the longer response in 64 % of pairs (AlpacaEval's annotators)."""
PLAIN_THRESHOLD = 0.1
"""Without reference labels, for everything else."""
MATCHED = 1.2
"""Lengths are matched where the longer response is at most this many times the shorter."""

FORMATS: dict[str, re.Pattern[str]] = {
    "lists": re.compile(r"^[ \t]*(?:[-*+•][ \t]+\S|\d{1,3}[.)、][ \t]*\S)", re.MULTILINE),
    "headings": re.compile(r"^[ \t]{0,3}#{1,6}[ \t]+\S", re.MULTILINE),
    "bold": re.compile(r"\*\*[^*\n]+\*\*|__[^_\n]+__"),
    "code": re.compile(r"```|^(?: {4}|\t)\S", re.MULTILINE),
}
"""What counts as an occurrence of each format."""


def attribute(
    check: str,
    table: VerdictTable,
    sign: Signs,
    threshold: float,
    *,
    resamples: int,
    seed: int,
    details: Mapping[str, Any] | None = None,
) -> Check | None:
    """Does a judge choose the response that has more of something?

    Args:
        check: its id.
        table: of one judge.
        sign: [n] 1 where the pair's first response has more of it, -1 the second, 0 neither.
        threshold: the distance of the plain share from one half that matters, without reference labels.
        resamples: for the odds ratio.
        seed: likewise.
        details: further figures.

    Returns:
        None where no decided verdict is on a pair that differs in it.
    """
    rows = np.flatnonzero(table.decided & (sign != 0))
    if len(rows) == 0:
        return None
    toward = (table.winner[rows] == 1) == (sign[rows] == 1)
    cluster = table.cluster[rows]
    more: dict[str, Any] = dict(details or {})
    known = table.gold[rows] > 0
    reference = (table.gold[rows] == 1) == (sign[rows] == 1)
    if not known.any():
        return signed_share(check, toward, cluster, threshold, adjusted=False, **more)
    plain = share_of(toward, cluster)
    more |= {"plain_share": plain.value, "plain_low": plain.low, "plain_high": plain.high, "plain_n": plain.n}
    more["reference_share"] = float(reference[known].mean())
    balanced = balanced_share(toward[known], reference[known], cluster[known])
    if balanced is None:
        what = f"10 verdicts on either side: where the reference label has it, and where it has not (check: {check})"
        few = signed_share(check, toward, cluster, threshold)
        return Check(
            check, CheckStatus.NOT_MEASURABLE, few.effect, few.low, few.high, n=few.n, missing=(what,), details=more
        )  # fmt: skip
    winner_first, has_first = table.winner[rows][known] == 1, sign[rows][known] == 1
    more |= _odds(winner_first, has_first, table.gold[rows][known] == 1, cluster[known], resamples, seed)
    return _evened(check, balanced, more)


def _evened(check: str, balanced: Balanced, details: dict[str, Any]) -> Check:
    """The check from a share with the reference labels evened out."""
    half = student_quantile(0.95, balanced.freedom) * balanced.error
    t = (balanced.share - 0.5) / balanced.error
    sides = {
        "adjusted": True,
        "share_where_reference_has_it": balanced.with_side,
        "share_where_reference_has_it_not": balanced.against_side,
    }
    return Check(
        check,
        CheckStatus.OK,
        balanced.share,
        max(0.0, balanced.share - half),
        min(1.0, balanced.share + half),
        student_p(t, balanced.freedom),
        n=balanced.n,
        null=0.5,
        threshold=THRESHOLD,
        detectable=min(detectable_mean(balanced.error), 0.5),
        details=details | sides,
    )


def _odds(
    winner_first: NDArray[np.bool_],
    has_first: NDArray[np.bool_],
    gold_first: NDArray[np.bool_],
    cluster: NDArray[np.integer[Any]],
    resamples: int,
    seed: int,
) -> dict[str, float | None]:
    """Mantel-Haenszel odds ratio of winning with and without the attribute, by reference label."""
    cell = (~gold_first).astype(int) * 4 + (~has_first).astype(int) * 2 + (~winner_first).astype(int)
    items = np.zeros((len(cell), 8))
    items[np.arange(len(cell)), cell] = 1
    found = mantel_haenszel(items.sum(axis=0).reshape(2, 2, 2))
    drawn = bootstrap_sums(items, cluster, resamples, seed).reshape(-1, 2, 2, 2)
    low, high = percentile_interval(mantel_haenszel_odds(drawn))
    return {"odds_ratio": finite(found.odds_ratio), "odds_ratio_low": finite(low), "odds_ratio_high": finite(high)}


# length


def length_bias(table: VerdictTable, resamples: int, seed: int) -> Check:
    """Does the judge choose the longer response, beyond what the reference labels do, and where lengths are matched?"""
    a, b = table.length_1, table.length_2
    if not (np.isfinite(a) & np.isfinite(b)).any():
        return missing("length-bias", "length_1 and length_2 (or the texts response_1 and response_2)")
    with np.errstate(invalid="ignore"):
        sign = np.nan_to_num(np.sign(a - b)).astype(np.int8)
        matched = np.maximum(a, b) <= MATCHED * np.minimum(a, b)
    rows = np.flatnonzero(table.decided & (sign != 0) & matched)
    toward = (table.winner[rows] == 1) == (sign[rows] == 1)
    close = share_of(toward, table.cluster[rows])
    details = {
        "matched_share": close.value,
        "matched_low": close.low,
        "matched_high": close.high,
        "matched_n": close.n,
        "matched_ratio": MATCHED,
    }
    found = attribute("length-bias", table, sign, LENGTH_THRESHOLD, resamples=resamples, seed=seed, details=details)
    return found or missing("length-bias", "decided verdicts on pairs of unequal length")


# format


def format_features(texts: Mapping[int, PairTexts], pairs: int) -> dict[str, Signs]:
    """For every format, which response of each pair has more of it: [pairs] 1, -1 or 0, by code of the pair."""
    signs = {name: np.zeros(pairs, dtype=np.int8) for name in FORMATS}
    for code, text in texts.items():
        for name, pattern in FORMATS.items():
            first, second = len(pattern.findall(text.first)), len(pattern.findall(text.second))
            # having it at all is what shows; the number of bullets is a matter of length
            signs[name][code] = (first > 0) - (second > 0)
    return signs


def format_bias(table: VerdictTable, features: Mapping[str, Signs], resamples: int, seed: int) -> Check:
    """The format that the judge favours (or disfavours) most surely; the others are in the details."""
    if not table.texts:
        return missing("format-bias", "the texts response_1 and response_2")
    found: dict[str, Check] = {}
    for name, sign in features.items():
        one = attribute("format-bias", table, sign[table.pair.codes], PLAIN_THRESHOLD, resamples=resamples, seed=seed)
        if one is not None:
            found[name] = one
    details: dict[str, Any] = {name: _brief(one) for name, one in found.items()}
    tested = {name: one for name, one in found.items() if one.p is not None}
    if not tested:
        return missing("format-bias", f"enough pairs where one response only has {', '.join(FORMATS)}", **details)
    adjusted = dict(zip(tested, holm([c.p for c in tested.values() if c.p is not None]).tolist(), strict=True))
    name = min(tested, key=lambda n: (adjusted[n], -tested[n].n))
    worst = tested[name]
    return Check(
        "format-bias",
        CheckStatus.OK,
        worst.effect,
        worst.low,
        worst.high,
        adjusted[name],
        n=worst.n,
        null=worst.null,
        threshold=worst.threshold,
        # "ok" speaks of all formats: the one that the sample shows least of decides
        detectable=max((c.detectable for c in tested.values() if c.detectable is not None), default=None),
        details={"format": name, "formats": details},
    )


def _brief(check: Check) -> dict[str, Any]:
    return {
        "effect": check.effect,
        "low": check.low,
        "high": check.high,
        "p": check.p,
        "n": check.n,
        "detectable": check.detectable,
        "plain_share": check.details.get("plain_share", check.effect),
        "reference_share": check.details.get("reference_share"),
    }


# its own responses


def self_preference(
    table: VerdictTable, everyone: VerdictTable, own: frozenset[str], resamples: int, seed: int
) -> Check:
    """Does the judge choose responses of its own model?

    Balanced by reference labels where there are any; else less the share in which the other judges choose them on the
    same pairs; else the plain share.

    Args:
        table: verdicts of the judge.
        everyone: verdicts of all judges.
        own: names of the generators that are the judge's own model.
        resamples: for intervals.
        seed: likewise.
    """
    if not (table.generator_1.known and table.generator_2.known):
        return missing("self-preference", "generator_1 and generator_2")
    sign = _own_sign(table, own)
    if not own or not (sign != 0).any():
        what = "pairs with one response of the judge's own model (a generator named like the judge or its model)"
        return missing("self-preference", what)
    details: dict[str, Any] = {"own": sorted(own)}
    rows = np.flatnonzero(table.decided & (sign != 0))
    toward = (table.winner[rows] == 1) == (sign[rows] == 1)
    others = _others(table, everyone)[table.pair.codes[rows]]
    expected = np.where(sign[rows] == 1, others, 1 - others)
    compared = np.isfinite(expected)
    if compared.any():
        details["others_share"] = float(expected[compared].mean())
        details["share_on_their_pairs"] = float(toward[compared].mean())
    if (table.gold[rows] > 0).any() or not compared.any():
        found = attribute(
            "self-preference", table, sign, PLAIN_THRESHOLD, resamples=resamples, seed=seed, details=details
        )
        return found or missing("self-preference", "decided verdicts on such pairs")
    share = share_of(toward, table.cluster[rows])
    details |= {"plain_share": share.value, "plain_low": share.low, "plain_high": share.high, "adjusted": True}
    gap = toward[compared] - expected[compared]
    return _beyond_others(gap, table.cluster[rows][compared], details, resamples, seed)


def _beyond_others(
    gap: Floats, cluster: NDArray[np.integer[Any]], details: dict[str, Any], resamples: int, seed: int
) -> Check:
    """Self-preference as the mean difference from the other judges on the same pairs."""
    drawn = bootstrap_sums(np.stack([gap, np.ones(len(gap))], axis=1), cluster, resamples, seed)
    values = drawn[:, 0] / drawn[:, 1]
    low, high = percentile_interval(values)
    clusters = len(np.unique(cluster))
    error = float(values.std()) if clusters > 1 else 0.0
    # the bootstrap's error over this many clusters, as Student's
    p = student_p(float(gap.mean()) / error, clusters - 1) if error > 0 else 1.0
    return Check(
        "self-preference",
        CheckStatus.OK,
        float(gap.mean()),
        finite(low) if clusters > 1 else None,
        finite(high) if clusters > 1 else None,
        p,
        n=len(gap),
        null=0.0,
        threshold=PLAIN_THRESHOLD,
        detectable=detectable_mean(error) if error > 0 else None,
        unit="difference",
        details=details,
    )


def _own_sign(table: VerdictTable, own: frozenset[str]) -> Signs:
    signs = []
    for column in (table.generator_1, table.generator_2):
        mine = np.array([name in own for name in column.names] + [False])
        signs.append(mine[column.codes])
    return signs[0].astype(np.int8) - signs[1].astype(np.int8)


def _others(table: VerdictTable, everyone: VerdictTable) -> Floats:
    """[pairs] mean over the other judges of their share of verdicts for the pair's first response; NaN without any."""
    pairs = len(everyone.pair.names)
    this = int(table.judge.codes[0])
    judges = len(everyone.judge.names)
    rows = everyone.decided & (everyone.judge.codes != this)
    key = everyone.pair.codes[rows].astype(np.int64) * judges + everyone.judge.codes[rows]
    asked, index = np.unique(key, return_inverse=True)
    share = np.bincount(index, everyone.winner[rows] == 1) / np.maximum(np.bincount(index), 1)
    pair = (asked // judges).astype(np.int64)
    count = np.bincount(pair, minlength=pairs)
    total = np.bincount(pair, share, minlength=pairs)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
