"""Work in parts: halved when memory runs out, and what a pass keeps counted beforehand."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.training.memory import RowLimit, RowMemory, is_out_of_memory, kept_for_backward, machine_bytes


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (MemoryError(), True),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"),
            True,
        ),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_out_of_memory_is_told_from_other_errors(error, expected):
    assert is_out_of_memory(error) is expected


def _real() -> None:
    torch.empty(2**62, dtype=torch.uint8)


def test_what_torch_raises_on_this_machine_is_out_of_memory():
    with pytest.raises(RuntimeError) as found:
        _real()
    assert is_out_of_memory(found.value)


@given(count=st.integers(1, 100), fits=st.integers(1, 100))
def test_rows_are_halved_until_they_fit_and_stay_so(count, fits):
    limit, tried, undone = RowLimit("work", None, adapts=True), [], []

    def work(rows: int) -> str:
        tried.append(rows)
        if rows > fits:
            raise MemoryError
        return "done"

    assert limit.run(work, count, lambda: undone.append(1)) == "done"
    expected = [count]
    while expected[-1] > fits:
        expected.append(expected[-1] // 2)
    assert tried == expected
    assert len(undone) == len(tried) - 1
    tried.clear()
    limit.run(work, count)
    assert tried == expected[-1:]


def test_what_a_failed_attempt_held_is_free_before_the_next():
    held: list[weakref.ref[torch.Tensor]] = []
    alive = []

    def work(rows: int) -> None:
        alive.append([ref() is not None for ref in held])
        big = torch.zeros(3)
        held.append(weakref.ref(big))
        if rows > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    gc.disable()
    try:
        RowLimit("work", None, adapts=True).run(work, 8)
    finally:
        gc.enable()
    assert alive == [[], [False], [False, False]]


def test_one_row_that_does_not_fit_is_told_with_what_helps():
    def work(rows: int) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: 99 bytes\nsecond line")

    with pytest.raises(TrimtabError) as e:
        RowLimit("an update", None, adapts=True).run(work, 4)
    assert e.value.message == (
        "memory ran out in an update with 1 response at once: DefaultCPUAllocator: can't allocate memory: 99 bytes"
    )
    assert e.value.kind == ErrorKind.FAILED
    assert "model.trainable" in e.value.hint
    with pytest.raises(TrimtabError, match="with 3 responses at once") as e:
        RowLimit("an update", 3, adapts=False, instead="find; or ").run(work, 4)
    assert e.value.hint.startswith("find; or shorten")


def test_other_errors_pass():
    def work(rows: int) -> None:
        raise RuntimeError("shapes")

    with pytest.raises(RuntimeError, match="shapes"):
        RowLimit("work", None, adapts=True).run(work, 4)


class _Others:
    """A world of two in which the other process says what it is told to."""

    size = 2

    def __init__(self, *says: str) -> None:
        self.says, self.heard = list(says), []

    def hear(self, value):
        self.heard.append(value)
        return [value, self.says.pop(0)]


def test_all_processes_halve_where_one_runs_out():
    world, tried = _Others("", "full", ""), []

    def work(rows: int) -> int:
        tried.append(rows)
        if rows == 8:
            raise MemoryError
        return rows

    assert RowLimit("work", None, adapts=True, world=world).run(work, 8) == 2
    assert tried == [8, 4, 2]  # 8 did not fit here, 4 did not fit there
    assert [bool(value) for value in world.heard] == [True, False, False]


def test_kept_tensors_are_counted_once_and_weights_not_at_all():
    layer = nn.Linear(8, 16)

    def forward(rows: int) -> torch.Tensor:
        x = torch.zeros(rows, 8)
        y = layer(x).exp()  # keeps x (8 numbers) and y (16), which `y * y` keeps again
        return (y * y).sum()

    found = kept_for_backward(forward, layer.parameters())
    assert found == RowMemory(0, 4 * (8 + 16))


def test_what_does_not_grow_with_the_rows_is_told_apart():
    weight = torch.zeros(64, requires_grad=True)

    def forward(rows: int) -> torch.Tensor:
        cast = weight.double()  # kept by the product: 512 bytes whatever the rows
        return (torch.ones(rows, 64, dtype=torch.float64, requires_grad=True) * cast).sum()

    assert kept_for_backward(forward, [weight]) == RowMemory(512, 512)


def test_rows_that_a_budget_holds():
    memory = RowMemory(100, 10)
    assert [memory.rows(budget) for budget in (0, 119, 120, 129, 130)] == [1, 1, 2, 2, 3]


def test_a_machine_is_shared_by_its_processes():
    whole = machine_bytes({})
    assert 2**20 < whole < 2**60
    assert machine_bytes({"LOCAL_WORLD_SIZE": "4"}) == whole / 4


LIMITED = """
import resource, sys, torch
from trimtab.training.memory import RowLimit
torch.set_num_threads(1)
torch.ones(4, 4) @ torch.ones(4, 4)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28,) * 2)
tried = []
def work(rows):
    tried.append(rows)
    parts = [torch.zeros(2**24) for _ in range(rows)]  # 64 MiB each
    return sum(float(p[0]) for p in parts)
assert RowLimit("work", None, adapts=True).run(work, 16) == 0.0
print(tried)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS bounds what malloc gives on Linux alone")
def test_real_memory_that_runs_out_is_halved():
    out = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    assert out.stdout.split() in (["[16,", "8,", "4,", "2]"], ["[16,", "8,", "4]"])


def test_nothing_of_a_counted_pass_stays_in_memory():
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Softmax(-1))
    outputs: list[weakref.ref[torch.Tensor]] = []

    def forward(rows: int) -> torch.Tensor:
        made = layer(torch.ones(rows, 8))
        outputs.append(weakref.ref(made))
        return made.sum()

    kept_for_backward(forward, layer.parameters())
    gc.collect()
    assert [found() for found in outputs] == [None, None]
