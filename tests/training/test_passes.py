"""Which examples each update has: everything once a pass, groups in one piece, and the same when asked again."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trimtab.models.seeds import numpy_stream
from trimtab.training.passes import Passes


def all_updates(passes: Passes) -> list[list[int]]:
    return [passes.update(step) for step in range(passes.total)]


def test_without_groups_each_pass_is_a_permutation_cut_into_updates():
    updates = all_updates(Passes((7, "pm"), 0, 10, 4, 2))
    for epoch in range(2):
        order = numpy_stream(7, "pm", "order", epoch).permutation(10).tolist()
        assert updates[3 * epoch : 3 * epoch + 3] == [order[:4], order[4:8], order[8:]]
    assert len(updates) == 6


def test_members_have_orders_of_their_own():
    orders = [all_updates(Passes((7, "pm"), member, 30, 30, 1))[0] for member in range(3)]
    assert len({tuple(order) for order in orders}) == 3


@given(
    groups=st.lists(st.integers(0, 9), min_size=1, max_size=40), size=st.integers(1, 8), epochs=st.integers(1, 3),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_groups_stay_whole_and_every_example_comes_once_a_pass(groups, size, epochs, seed):
    passes = Passes((seed, "pm"), 0, len(groups), size, epochs, groups)
    updates = all_updates(passes)
    sizes = np.bincount(groups)
    seen: list[int] = []
    for update in updates:
        assert len(update) <= size or len({groups[i] for i in update}) == 1
        for group in {groups[i] for i in update}:
            assert sum(groups[i] == group for i in update) == sizes[group]
        seen += update
    for epoch in range(epochs):
        assert sorted(seen[epoch * len(groups) : (epoch + 1) * len(groups)]) == list(range(len(groups)))
    # what is asked for out of turn, as by a resumed training, is the same
    again = Passes((seed, "pm"), 0, len(groups), size, epochs, groups)
    assert [again.update(step) for step in reversed(range(again.total))] == updates[::-1]
