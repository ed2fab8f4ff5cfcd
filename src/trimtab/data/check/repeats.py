"""Pairs that are there twice, pairs that contradict each other, and preferences that go in a circle."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from trimtab.data.check.findings import DataFinding, Level, level_of
from trimtab.data.check.material import Material, counted, percent
from trimtab.data.check.similar import Clusters

__all__ = ["NEAR", "orientation", "repeat_findings"]

NEAR = 0.8
"""Jaccard similarity from which two texts are near-duplicates."""

_CLOSE_CALL = 0.1
_MOST_RESPONSES = 60


def repeat_findings(material: Material) -> list[DataFinding]:
    """Duplicates, contradictions, near-duplicates, and cycles."""
    groups = _same(material)
    found = [*_duplicates(material, groups), *_contradictions(material, groups)]
    found += _near(material, [group[0] for group in groups])
    found += _cycles(material)
    return found


def _same(material: Material) -> list[list[int]]:
    """Pairs of the same prompt and the same two responses, in either order; every pair is in one group."""
    keys = material.keys
    groups: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for i, (prompt, a, b) in enumerate(zip(material.prompts, material.chosen, material.rejected, strict=True)):
        x, y = keys[a], keys[b]
        groups[(keys[prompt], min(x, y), max(x, y))].append(i)
    return list(groups.values())


def _first_wins(material: Material, i: int) -> float:
    """P(the response whose text came first in the file wins), as pair i says."""
    a, b = material.keys[material.chosen[i]], material.keys[material.rejected[i]]
    return float(material.p[i] if a <= b else 1 - material.p[i])


def _voter(material: Material, i: int) -> object:
    extra = material.pairs[i].extra
    return next((str(extra[c]) for c in ("annotator", "annotator_id", "rater", "judge", "worker") if c in extra), None)


def _duplicates(material: Material, groups: list[list[int]]) -> Iterator[DataFinding]:
    again: list[int] = []
    notes: dict[str, str] = {}
    votes = 0
    for group in groups:
        seen: dict[tuple[bool, object], int] = {}
        voters = {_voter(material, i) for i in group}
        for i in group:
            side = _first_wins(material, i) >= 0.5
            voter = _voter(material, i)
            if (side, voter) in seen:
                again.append(i)
                notes[material.pairs[i].id] = f"repeats {material.pairs[seen[(side, voter)]].id}"
            seen.setdefault((side, voter), i)
        votes += len(group) if len(voters) > 1 else 0
    if again:
        share = len(again) / len(material)
        yield DataFinding(
            "duplicates",
            level_of(share, 0.005, 0.1),
            f"{counted(len(again), 'pair')} ({percent(len(again), len(material))}) "
            f"{'repeats' if len(again) == 1 else 'repeat'} another with the same label.",
            "Drop them: trimtab data filter FILE -o OUT --drop duplicates",
            len(again),
            share,
            material.ids(sorted(again)),
            notes,
            {"votes_of_several_raters": votes},
        )


def _contradictions(material: Material, groups: list[list[int]]) -> Iterator[DataFinding]:
    repeated = [
        g
        for g in groups
        if len(g) > 1 and material.keys[material.chosen[g[0]]] != material.keys[material.rejected[g[0]]]
    ]
    against: list[int] = []
    close = 0
    notes: dict[str, str] = {}
    for group in repeated:
        said = np.array([_first_wins(material, i) for i in group])
        if said.max() >= 0.5 + _CLOSE_CALL and said.min() <= 0.5 - _CLOSE_CALL:
            against += group
            for i, p in zip(group, said, strict=True):
                other = group[int(said.argmin() if p >= 0.5 else said.argmax())]
                notes[material.pairs[i].id] = f"against {material.pairs[other].id}"
        elif said.max() > 0.5 > said.min():
            close += 1
    if not against:
        return
    conflicts = sum(1 for group in repeated if group[0] in set(against))
    share = len(against) / len(material)
    of_repeats = conflicts / len(repeated)
    bad = share >= 0.005 or (of_repeats > 0.1 and len(repeated) >= 30)
    yield DataFinding(
        "contradictions",
        level_of(share, 0.005, 0.05) if bad and share >= 0.005 else Level.WARNING if bad else Level.INFO,
        f"{counted(len(against), 'pair')} of {counted(conflicts, 'comparison')} say the opposite of each other about "
        f"the same two responses: {percent(conflicts, len(repeated))} of the {counted(len(repeated), 'comparison')} "
        f"that occur more than once. {counted(close, 'more is a close call', 'more are close calls')}.",
        "Make them one soft label (--merge) or drop them: trimtab data filter FILE -o OUT --drop contradictions",
        len(against),
        share,
        material.ids(sorted(against)),
        notes,
        {"comparisons": conflicts, "repeated_comparisons": len(repeated), "close_calls": close},
    )


def _near(material: Material, heads: list[int]) -> Iterator[DataFinding]:
    """Pairs whose prompt and two responses are each nearly those of another pair; exact repeats are left to others."""
    index = np.array(heads)
    rows = np.minimum(material.signatures[material.chosen[index]], material.signatures[material.rejected[index]])
    near: list[int] = []
    against: list[int] = []
    notes: dict[str, str] = {}
    clusters = Clusters(len(heads))

    def alike(x: int, y: int) -> bool:
        side = _alike(material, heads[x], heads[y])
        if side < 0:
            against.extend((heads[x], heads[y]))
            notes.setdefault(material.pairs[heads[y]].id, f"nearly the opposite of {material.pairs[heads[x]].id}")
        elif side > 0:
            near.append(heads[y])
            notes.setdefault(material.pairs[heads[y]].id, f"nearly {material.pairs[heads[x]].id}")
        return side > 0

    clusters.of(rows, alike)
    drop = sorted({heads[i] for i in range(len(heads)) if clusters.head(i) != i})
    if drop:
        share = len(drop) / len(material)
        yield DataFinding(
            "near-duplicates",
            level_of(share, 0.02, 0.2),
            f"{counted(len(drop), 'pair')} ({percent(len(drop), len(material))}) "
            f"{'is' if len(drop) == 1 else 'are'} nearly the same as an earlier one: prompt and both responses share "
            f"{NEAR:.0%} of their three-word runs.",
            "Drop them: trimtab data filter FILE -o OUT --drop near-duplicates",
            len(drop),
            share,
            material.ids(drop),
            notes,
        )
    if against:
        ids = sorted(set(against))
        share = len(ids) / len(material)
        yield DataFinding(
            "near-contradictions",
            level_of(share, 0.01, 0.1),
            f"{counted(len(ids), 'pair')} say nearly the opposite of a nearly identical pair.",
            "Look at some of them; if the responses do not differ in what matters, drop or merge them: "
            "trimtab data filter FILE -o OUT --drop near-contradictions",
            len(ids),
            share,
            material.ids(ids),
            {k: v for k, v in notes.items() if "opposite" in v},
        )


def orientation(material: Material, i: int, j: int) -> int:
    """1: pairs i and j are nearly the same; -1: nearly the same with chosen and rejected exchanged; 0: not."""
    like = material.similarity
    if like(int(material.prompts[i]), int(material.prompts[j])) < NEAR:
        return 0
    a, b, c, d = (int(x) for x in (material.chosen[i], material.rejected[i], material.chosen[j], material.rejected[j]))
    straight, crossed = min(like(a, c), like(b, d)), min(like(a, d), like(b, c))
    if max(straight, crossed) < NEAR:
        return 0
    return 1 if straight >= crossed else -1


def _alike(material: Material, i: int, j: int) -> int:
    """1: nearly the same pair; -1: nearly the same with the opposite label; 0: another pair."""
    side = orientation(material, i, j)
    if side >= 0:
        return side
    decided = min(material.p[i], material.p[j]) >= 0.5 + _CLOSE_CALL
    return -1 if decided else 1


def _cycles(material: Material) -> Iterator[DataFinding]:
    """Triads a > b > c > a among the responses to one prompt."""
    wins: dict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    who: dict[int, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    keys = material.keys
    for i, (prompt, a, b) in enumerate(zip(material.prompts, material.chosen, material.rejected, strict=True)):
        x, y, p = keys[a], keys[b], float(material.p[i])
        if x != y and abs(p - 0.5) >= _CLOSE_CALL:
            wins[keys[prompt]][(x, y) if p > 0.5 else (y, x)] += 1
            who[keys[prompt]][(min(x, y), max(x, y))].append(i)
    triads = cyclic = 0
    inside: set[int] = set()
    for prompt, counts in wins.items():
        if len(counts) < 3:
            continue
        for beats, trio in _triads(counts):
            triads += 1
            if beats in ((True, True, False), (False, False, True)):  # a > b > c > a, or the other way round
                cyclic += 1
                for pair in combinations(trio, 2):
                    inside.update(who[prompt][pair])
    if cyclic:
        share = cyclic / triads
        yield DataFinding(
            "cycles",
            Level.WARNING if triads >= 100 and share > 0.05 else Level.INFO,
            f"{counted(cyclic, 'triad')} of {triads:,} ({percent(cyclic, triads)}) "
            f"{'goes' if cyclic == 1 else 'go'} in a circle: a over b, b over c, c over a. Coin flips give 25 %.",
            "Label these prompts again by several judges, or fit scores to all comparisons of a prompt first.",
            cyclic,
            share,
            material.ids(sorted(inside)),
            {},
            {"triads": triads},
        )


def _triads(counts: Counter[tuple[int, int]]) -> Iterator[tuple[tuple[bool, bool, bool], tuple[int, int, int]]]:
    """(a beats b, b beats c, a beats c) of every three responses that were all compared, majorities deciding."""
    nodes = sorted({node for edge in counts for node in edge})[:_MOST_RESPONSES]
    lead = {(x, y): counts[(x, y)] - counts[(y, x)] for x, y in combinations(nodes, 2)}
    for a, b, c in combinations(nodes, 3):
        three = (lead[(a, b)], lead[(b, c)], lead[(a, c)])
        if all(three):
            yield (three[0] > 0, three[1] > 0, three[2] > 0), (a, b, c)
