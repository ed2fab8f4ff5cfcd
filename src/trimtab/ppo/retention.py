"""Which checkpoint is the best by a signal: the one that is kept beside the newest, and that a run may end with.

Nothing is stored for it: which steps have a checkpoint the directory says, and what was measured after them the log,
so that a resumed run, or one with another signal in its settings, finds the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.config.schema import PPOConfig
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.runs.signals import lookup, nearest
from trimtab.training.probe import HeldOut

__all__ = ["Best", "best_by"]


@dataclass(frozen=True)
class Best:
    """`key` of a signal; `lower`: the lower the better."""

    key: str
    lower: bool = False

    def step(
        self, history: Iterable[Mapping[str, float]], steps: Collection[int], actions: Sequence[Mapping[str, Any]] = ()
    ) -> int | None:
        """The step at which the signal was best, the first of equals; None: it was measured at none of them.

        Args:
            history: signals by iteration, with their `step`.
            steps: those that count.
            actions: what was done, `after` which step: one that rolled back left other weights than were measured.
        """
        other = {action.get("after") for action in actions if action["kind"] == "rollback"}
        found = [
            (-row[self.key] if self.lower else row[self.key], -int(row["step"]))
            for row in history
            if row["step"] in steps and row["step"] not in other and math.isfinite(row.get(self.key, math.nan))
        ]
        return -max(found)[1] if found else None


def best_by(config: PPOConfig, held_out: HeldOut | None) -> Best | None:
    """What `ppo.keep_best` says; None: nothing is kept for its signal.

    Raises:
        TrimtabError: no such signal is logged by PPO, or by this run.
    """
    if config.keep_best is None:
        return None
    best = Best(config.keep_best.removeprefix("-"), config.keep_best.startswith("-"))
    signal, near = lookup(best.key), nearest(best.key)
    if signal is None or "ppo" not in signal.stages:
        raise TrimtabError(
            ErrorKind.CONFIG,
            f'ppo.keep_best = "{config.keep_best}": PPO logs no signal {best.key}',
            f"did you mean {near}? All signals stand in docs/signals.md" if near else "see docs/signals.md",
        )
    if best.key.startswith("eval/") or best.key == "gold/mean":
        names = {} if held_out is None else held_out.scorers
        measured = ["gold/mean" if name == "gold" else f"eval/{name}" for name in names]
        if held_out is not None:
            measured.append("eval/score")
        if best.key not in measured:
            raise TrimtabError(
                ErrorKind.CONFIG,
                f'ppo.keep_best = "{config.keep_best}": this run does not measure {best.key}',
                f"it measures {', '.join(measured) or 'nothing on held-out prompts'}; further ones: eval.measures",
            )
    return best
