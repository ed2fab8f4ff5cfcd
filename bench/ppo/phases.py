"""Where an iteration of PPO spends its time: seconds, operations and kinds of operators of each phase.

`Phases` stands before the functions that do a phase's work while `train` runs; a function called within another's is
counted by itself alone.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

__all__ = ["GROUPS", "REST", "Phases", "group_of"]

REST = "rest"
GROUPS = ("matrix products", "attention", "softmax", "elementwise", "optimiser", "memory", "dispatch", "python")
_PLACES = {
    "trimtab.ppo.trainer": {"sample_rollout": "decode", "score": "preference"},
    "trimtab.ppo.shared": {"batch_trunk": "shared layers", "batch_logprobs": "log-probs", "batch_values": "values"},
    "trimtab.ppo.update": {"_policy_part": "policy forward", "_value_part": "value forward", "_step": "step"},
    "trimtab.models.backbone:Decoder": {"prefill": "prefill"},
    "torch:Tensor": {"backward": "backward"},
}
_OPERATORS = {
    "matrix products": ("mm", "addmm", "bmm", "baddbmm", "mkldnn_linear", "addmv", "mv", "dot", "addmm_"),
    "attention": ("_scaled_dot_product", "scaled_dot_product", "_flash_attention"),
    "softmax": (
        "_log_softmax", "_softmax", "logsumexp", "cumsum", "searchsorted", "gather", "scatter", "exp", "amax",
        "nll_loss",
    ),
    "optimiser": ("_fused_adamw", "_foreach_norm", "_foreach_mul", "linalg_vector_norm"),
    "memory": (
        "copy_", "_to_copy", "to", "clone", "contiguous", "cat", "fill_", "zero_", "empty", "new_empty", "index",
        "index_select", "embedding", "embedding_dense_backward", "repeat_interleave", "zeros", "ones", "full",
        "resize_", "index_put", "_index_put", "zeros_like", "empty_like", "new_zeros", "masked_fill", "stack",
    ),
    "dispatch": (
        "linear", "matmul", "view", "_unsafe_view", "reshape", "transpose", "t", "unsqueeze", "squeeze", "expand",
        "slice", "select", "as_strided", "detach", "detach_", "alias", "split", "unbind", "chunk", "lift_fresh",
        "result_type", "item", "_local_scalar_dense", "is_nonzero", "permute", "numpy_T", "narrow", "flatten",
    ),
}  # fmt: skip


def group_of(operator: str) -> str:
    """Which of `GROUPS` an operator of the profiler's belongs to; what does arithmetic by elements is the rest."""
    if not operator.startswith(("aten::", "mkldnn::")):
        return "dispatch"  # autograd's own nodes and annotations: the time between the operators that they call
    name = operator.split("::", 1)[1]
    for group, names in _OPERATORS.items():
        if name in names or name.rstrip("_") in names or (group == "attention" and name.startswith(names)):
            return group
        if group == "optimiser" and name.startswith(names):
            return group
    return "elementwise"


class Phases:
    """Seconds and operations of each phase since the last `close`; see `PHASES` in `arithmetic` for their names.

    `clock`: what seconds are read from.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._stack: list[str] = [REST]
        self._since = (clock(), 0)
        self._seconds: dict[str, float] = defaultdict(float)
        self._flops: dict[str, int] = defaultdict(int)
        self._counter: FlopCounterMode | None = None
        self._profiler: profile | None = None
        self._undo: list[tuple[Any, str, Any]] = []
        self._last = "policy"

    def __enter__(self) -> Phases:
        for place, functions in _PLACES.items():
            module, _, kind = place.partition(":")
            owner = importlib.import_module(module)
            owner = getattr(owner, kind) if kind else owner
            for name, phase in functions.items():
                own = getattr(owner, name)
                self._undo.append((owner, name, own))
                setattr(owner, name, self._before(own, phase))
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, own in reversed(self._undo):
            setattr(owner, name, own)
        self._undo.clear()

    def _before(self, function: Callable[..., Any], phase: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **more: Any) -> Any:
            name = f"{self._last} backward" if phase == "backward" else phase
            if phase.endswith(" forward"):
                self._last = phase.removesuffix(" forward")
            self._charge()
            self._stack.append(name)
            try:
                with record_function(f"phase: {name}"):
                    return function(*args, **more)
            finally:
                self._charge()
                self._stack.pop()

        return run

    def _charge(self) -> None:
        now = self._clock(), self._counter.get_total_flops() if self._counter else 0
        self._seconds[self._stack[-1]] += now[0] - self._since[0]
        self._flops[self._stack[-1]] += now[1] - self._since[1]
        self._since = now

    def close(self) -> tuple[dict[str, float], dict[str, int]]:
        """Seconds and counted operations by phase; from here on a new iteration is measured."""
        self._charge()
        found = dict(self._seconds), dict(self._flops)
        self._seconds.clear()
        self._flops.clear()
        self._since = self._clock(), self._since[1]
        return found

    def count(self, on: bool) -> None:
        """Count operations, also of kernels that the counter does not know by itself."""
        if on:
            aten = torch.ops.aten
            known = {
                aten._scaled_dot_product_flash_attention_for_cpu: _attention,
                aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
                aten.addmm_: _added_product,
            }
            self._counter = FlopCounterMode(display=False, custom_mapping=known)
            self._counter.__enter__()
        elif self._counter is not None:
            self._counter.__exit__(None, None, None)
            self._counter = None
        self._since = self._since[0], 0

    def start_profile(self) -> None:
        self._profiler = profile(activities=[ProfilerActivity.CPU], acc_events=True)
        self._profiler.start()

    def end_profile(self) -> dict[str, dict[str, float]]:
        """Seconds of each phase's operators by group, nothing for "python", which is what is left of the time."""
        assert self._profiler is not None
        self._profiler.stop()
        found: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(GROUPS, 0.0))
        phases: dict[int, str] = {}
        for event in self._profiler.events() or ():
            above = event
            seen = []
            while above is not None and above.id not in phases and not above.name.startswith("phase: "):
                seen.append(above.id)
                above = above.cpu_parent
            phase = REST if above is None else phases.get(above.id, above.name.removeprefix("phase: "))
            phases.update(dict.fromkeys(seen, phase))
            if not event.name.startswith("phase: "):
                found[phase][group_of(event.name)] += event.self_cpu_time_total / 1e6
        return dict(found)


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    batch, heads, queries, width = query
    return int(2 * batch * heads * queries * key[2] * (width + value[3]))


def _attention_backward(_: Any, query: Any, key: Any, value: Any, *__: Any, **___: Any) -> int:
    # needed are four products; the kernel makes the logits a second time
    return 2 * _attention(query, key, value)


def _added_product(_: Any, left: Any, right: Any, *__: Any, **___: Any) -> int:
    return int(2 * left[0] * left[1] * right[1])
