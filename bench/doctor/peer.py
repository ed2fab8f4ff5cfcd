"""rldoctor (PyPI) on the same files, as well as it can be served.

The adapter: `load_run` decides by the name of the file, so console logs and run directories are turned into the rows
that it accepts (`run_from_records`); verl's JSON lines are unwrapped by its own reader. What it says is its detectors
of severity warning and above; which of our ids each detector speaks of stands in `SPEAKS_OF`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, NamedTuple

SPEAKS_OF = {
    "advantage_collapse": ("no-reward-signal", "advantage-not-centred"),
    "clip_saturation": ("clip-fraction-high", "ratio-blow-up"),
    "entropy_collapse": ("entropy-collapse", "entropy-explosion"),
    "gradient_pathology": ("exploding-gradients", "no-gradient", "nan-inf"),
    "kl_drift": ("kl-explosion", "negative-kl", "policy-not-moving"),
    "length_pathology": ("length-explosion", "length-collapse", "length-exploitation", "truncated-responses",
                         "missing-eos"),
    "plateau": ("reward-not-improving", "reward-decreasing", "oscillating"),
    "reward_composition": ("style-exploitation", "length-exploitation"),
    "reward_hacking": ("reward-hacking", "benchmark-overfitting"),
}  # fmt: skip


KNOWS = frozenset(id for ids in SPEAKS_OF.values() for id in ids)


class Said(NamedTuple):
    """Detectors at warning or above, and whether the file could be read."""

    loud: frozenset[str]
    readable: bool

    def names(self, id: str) -> bool:
        return any(id in SPEAKS_OF.get(d, ()) for d in self.loud)


def installed() -> bool:
    try:
        import rl_doctor  # noqa: F401
    except ImportError:
        return False
    return True


def look(path: Path) -> Said | None:
    """What it says of a file; None where it is not installed."""
    if not installed():
        return None
    from rl_doctor import Severity, diagnose, load_run, run_from_records

    try:
        if path.suffix in (".json", ".jsonl", ".csv"):
            run = load_run(str(path))
        elif (records := _records(path)) is not None:
            run = run_from_records(records)
        else:
            return Said(frozenset(), False)
        found = diagnose(run).findings
    except Exception:  # noqa: BLE001 - whatever it raises on a file counts as not readable
        return Said(frozenset(), False)
    return Said(frozenset(f.detector for f in found if f.severity >= Severity.WARNING), True)


def _records(path: Path) -> list[dict[str, Any]] | None:
    """Rows of a console of dict lines or of verl's `key:value` lines."""
    if path.is_dir():
        return None
    rows: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("{"):
            text = re.sub(r"\bnan\b", "None", re.sub(r"\binf\b", "1e400", line))
            rows.append({"step": len(rows) + 1, **ast.literal_eval(text)})
        elif (at := line.find("step:")) >= 0:
            pairs = (part.partition(":") for part in line[at:].split(" - "))
            rows.append({k: float(v) for k, _, v in pairs})
    return rows
