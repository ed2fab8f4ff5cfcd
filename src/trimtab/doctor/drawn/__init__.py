"""Logs drawn with one thing wrong in them, or nothing: what the doctor's demos and its bench look at.

    trimtab doctor --demo length-exploitation

Everything is drawn from a seed; nothing is taken from a real log. No torch.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np

from trimtab.doctor.drawn.curves import Drawn, Generator
from trimtab.doctor.drawn.dress import DRESSES, able, write
from trimtab.doctor.drawn.faults import FAULTS
from trimtab.doctor.drawn.judged import JUDGED, write_judged
from trimtab.doctor.drawn.sound import direct, grpo, ppo, preference_model

__all__ = ["NAMES", "demo", "faulty", "sound"]

_OF_THE_LOG = ("unit-unknown", "log-truncated")
_DRAW = {"grpo": grpo, "ppo": ppo, "direct": direct, "preference-model": preference_model}
_PREFERRED = (
    "trl-grpo", "trl-ppo-old-wandb", "plain-csv", "verl-jsonl", "trl-ppo", "trl-dpo", "trl-reward", "trimtab",
)  # fmt: skip
_CLEAR = 0.75

NAMES: tuple[str, ...] = ("healthy", *sorted({*FAULTS, *JUDGED, *_OF_THE_LOG}))
"""What `demo` can show: every finding that a file can show, and a healthy run."""


def sound(kind: str, rng: Generator, variant: str = "plain", rows: int | None = None) -> Drawn:
    """A run of `kind` (grpo, ppo, direct, preference-model) in which nothing is wrong."""
    return _DRAW[kind](rng, variant, rows)


def faulty(
    id: str, rng: Generator, *, strength: float, onset: float, kind: str = "", rows: int | None = None
) -> tuple[Drawn, int]:
    """A run with one fault, and the step at which it sets in (the first one where it is there all along).

    Args:
        id: a finding of `FAULTS`.
        rng: of the drawing.
        strength: .4 is a moderate case, 1 a clear one.
        onset: share of the run that goes well.
        kind: of run, where the fault can be planted into several.
        rows: of the log; drawn if None.
    """
    fault = FAULTS[id]
    kinds = fault.base.split()
    run = sound(kind if kind in kinds else kinds[0], rng, "plain", rows)
    at = 0 if fault.from_start else int(onset * len(run))
    fault.plant(run, rng, at, strength)
    return run, int(run.steps[at])


def demo(name: str, directory: Path) -> Path:
    """Write the log (or verdicts, scores, pairs) of a failure; the same one every time.

    Args:
        name: one of `NAMES`.
        directory: exists; what is written goes into it.

    Returns:
        The file or directory that the doctor is to look at.
    """
    if name not in NAMES:
        raise ValueError(f"no demo of the name {name!r}; there are {', '.join(NAMES)}")
    rng = np.random.default_rng(zlib.crc32(f"{name}, drawn".encode()))
    if name == "healthy":
        return write(sound("grpo", rng, "plain", 200), "trl-grpo", directory)
    if name == "unit-unknown":
        return _unit_unknown(rng, directory)
    if name == "log-truncated":
        return _torn(rng, directory)
    if name not in FAULTS:
        return write_judged(JUDGED[name](rng, _CLEAR), directory)
    run, _ = faulty(name, rng, strength=_CLEAR, onset=0.4, rows=200)
    signals = FAULTS[name].signals
    dress = next(d for d in _PREFERRED if able(DRESSES[d], run.kind, signals))
    return write(run, dress, directory)


def _unit_unknown(rng: Generator, directory: Path) -> Path:
    """A CSV whose `kl` may be of a token or of a response."""
    source = write(sound("grpo", rng, "plain", 200), "plain-csv", directory)
    head, _, rest = source.read_text(encoding="utf-8").partition("\n")
    head = head.replace("kl_per_token", "kl").replace("policy_loss", "surrogate_loss")
    source.write_text(f"{head}\n{rest}", encoding="utf-8")
    return source


def _torn(rng: Generator, directory: Path) -> Path:
    """A `trainer_state.json` whose writer was killed two thirds through."""
    source = write(sound("grpo", rng, "plain", 200), "trl-grpo", directory)
    text = source.read_text(encoding="utf-8")
    source.write_text(text[: 2 * len(text) // 3], encoding="utf-8")
    return source
