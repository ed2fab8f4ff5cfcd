"""The changes between two constitutions: which there are, and each alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.constitution import Constitution, Principle
from trimtab.constitution.changes import Change, ChangeKind, apply, changes
from trimtab.errors import TrimtabError

A, B, C, D = (Principle(name, f"Prefer {name}.", reading=f"r{name}", opposite=f"o{name}") for name in "abcd")


def of(*principles: Principle) -> Constitution:
    return Constitution("c", principles)


def test_each_kind_of_change_is_named():
    new = of(replace(B, text="x", weight=2.0), replace(A, opposite="y", critique="not told"), D)
    found = changes(of(A, B, C), new)
    assert found == [
        Change(ChangeKind.REMOVED, "c"),
        Change(ChangeKind.ADDED, "d"),
        Change(ChangeKind.CHANGED, "a", ("opposite",)),
        Change(ChangeKind.CHANGED, "b", ("text", "weight")),
        Change(ChangeKind.ORDER, ""),
    ]
    assert [c.name for c in found[1:3]] == ["d added", "a changed"]


def test_weight_0_is_absence_and_equal_weights_are_none():
    assert changes(of(A, B), of(A, replace(B, weight=0.0))) == [Change(ChangeKind.REMOVED, "b")]
    assert changes(of(A, replace(B, weight=0.0)), of(A)) == []
    assert changes(of(A, B), of(replace(A, weight=5.0), replace(B, weight=5.0))) == []


def test_one_change_alone():
    old = of(A, B, C)
    new = of(replace(C, text="x"), D, A)
    alone = {c.name: apply(old, new, c).principles for c in changes(old, new)}
    assert alone == {
        "b removed": (A, C),
        "d added": (A, B, C, D),
        "c changed": (A, B, replace(C, text="x")),
        "order of the principles": (C, B, A),
    }
    assert apply(of(A), of(B, A), Change(ChangeKind.ADDED, "b")).principles == (B, A)
    assert apply(of(C, A), of(C, D, A), Change(ChangeKind.ADDED, "d")).principles == (C, D, A)
    with pytest.raises(TrimtabError, match="a removed leaves no principle"):
        apply(of(A), of(B), Change(ChangeKind.REMOVED, "a"))


weighted = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from(["x", "y"])),
    min_size=1, max_size=4, unique_by=lambda entry: entry[0],
).filter(lambda entries: any(w for _, w, _ in entries))  # fmt: skip


@given(weighted, weighted)
def test_there_are_changes_exactly_where_judges_are_told_something_else_and_together_they_are_all(first, second):
    old, new = (of(*(Principle(n, t, w) for n, w, t in entries)) for entries in (first, second))
    found = changes(old, new)
    assert bool(found) == (old.hash != new.hash)
    # additions first, so that something is always left; then each of the others once
    order = [ChangeKind.ADDED, ChangeKind.REMOVED, ChangeKind.CHANGED, ChangeKind.ORDER]
    at = old
    for kind in order:
        for change in (c for c in changes(at, new) if c.kind is kind):
            at = apply(at, new, change)
    assert {p.id: p.text for p in at.counted} == {p.id: p.text for p in new.counted}
    left = changes(at, new)
    assert left in ([], [Change(ChangeKind.ORDER, "")])
    assert apply(at, new, left[0]).hash == new.hash if left else at.hash == new.hash
