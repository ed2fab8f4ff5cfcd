"""Drawn runs under the doctor: sound ones, one fault each, and the same run told in other ways."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.doctor import peer
from trimtab.doctor.diagnosis import Diagnosis, Status
from trimtab.doctor.drawn import faulty, sound
from trimtab.doctor.drawn.curves import Drawn
from trimtab.doctor.drawn.dress import DRESSES, Dress, able, write
from trimtab.doctor.drawn.faults import FAULTS
from trimtab.doctor.drawn.judged import JUDGED, SOUND, write_judged
from trimtab.doctor.drawn.sound import DIRECT_KINDS, GRPO_KINDS, PM_KINDS, PPO_KINDS
from trimtab.doctor.driver import diagnose
from trimtab.doctor.finding import Severity

PLAN = (
    ("grpo", GRPO_KINDS, 90),
    ("ppo", PPO_KINDS, 50),
    ("direct", DIRECT_KINDS, 30),
    ("preference-model", PM_KINDS, 30),
)
HABITS = ("", "", "", "sparse", "resumed", "gap", "")


@dataclass
class Case:
    """One file, what was drawn into it, and what was said of it."""

    name: str
    expected: str | None
    onset: int | None
    diagnosis: Diagnosis
    peer: peer.Said | None = None

    @property
    def loud(self) -> dict[str, Severity]:
        return {f.id: f.severity for f in self.diagnosis.findings if f.severity.loud}


@dataclass
class Tally:
    """Cases of one kind."""

    cases: list[Case] = field(default_factory=list)

    def count(self, what: Any) -> int:
        return sum(bool(what(case)) for case in self.cases)


def seed_of(*parts: object) -> np.random.Generator:
    """A generator for a place in the plan, whatever else is drawn."""
    return np.random.default_rng(zlib.crc32("/".join(map(str, parts)).encode()))


def _look(name: str, path: Path, expected: str | None = None, onset: int | None = None, rival: bool = True) -> Case:
    return Case(name, expected, onset, diagnose(path), peer.look(path) if rival else None)


def dresses_for(kind: str, signals: Any = ()) -> list[str]:
    return [name for name, dress in DRESSES.items() if able(dress, kind, signals)]


def healthy(rival: bool) -> Iterator[Case]:
    """200 sound runs of every kind, in every dress, logged by people of every habit."""
    for kind, variants, count in PLAN:
        dresses = dresses_for(kind)
        for i in range(count):
            variant = variants[i % len(variants)]
            rng = seed_of("healthy", kind, i)
            run = sound(kind, rng, variant)
            habit = HABITS[i % len(HABITS)]
            n = len(run)
            if habit == "sparse" and n >= 150:
                run = run.strided(5)
            elif habit == "resumed":
                run = run.resumed(n // 2, n // 12, rng)
            elif habit == "gap":
                run = run.without(int(0.6 * n), n // 8)
            dress = dresses[i % len(dresses)]
            with tempfile.TemporaryDirectory() as place:
                yield _look(
                    f"{kind}/{variant}/{habit or 'plain'}/{dress}/{i}", write(run, dress, Path(place)), rival=rival
                )


def healthy_judged() -> Iterator[Case]:
    """Sound judges, preference models and preference data."""
    for name, draw in SOUND.items():
        for i in range(10):
            with tempfile.TemporaryDirectory() as place:
                path = write_judged(draw(seed_of("judged", name, i)), Path(place))
                yield _look(f"{name}/{i}", path, rival=False)


def faults(seeds: int, rival: bool) -> Iterator[Case]:
    """Each finding that a training log can show, planted with varied onset and strength, in varied dress."""
    for id, fault in FAULTS.items():
        kinds = fault.base.split()
        for i in range(seeds):
            rng = seed_of("fault", id, i)
            kind = kinds[i % len(kinds)]
            able_here = [d for d in dresses_for(kind, fault.signals) if d not in fault.not_in]
            dress = able_here[(i // len(kinds)) % len(able_here)]
            strength, onset = rng.uniform(0.4, 1.0), rng.uniform(0.25, 0.65)
            run, at = faulty(id, rng, strength=strength, onset=onset, kind=kind)
            with tempfile.TemporaryDirectory() as place:
                path = write(run, dress, Path(place))
                told = None if fault.from_start else at
                yield _look(f"{id}/{kind}/{dress}/{i} s={strength:.2f} n={len(run)}", path, id, told, rival)


def judged_faults(seeds: int) -> Iterator[Case]:
    """Each finding that verdicts, scores or pairs can show."""
    for id, draw in JUDGED.items():
        for i in range(seeds):
            rng = seed_of("judged-fault", id, i)
            strength = rng.uniform(0.4, 1.0)
            with tempfile.TemporaryDirectory() as place:
                path = write_judged(draw(rng, strength), Path(place))
                yield _look(f"{id}/judged/{i} s={strength:.2f}", path, id, rival=False)


# the same run told in another way

_COMMON = (
    ("trl-grpo", "verl-jsonl"), ("verl-console", "openrlhf-wandb"), ("plain-csv", "trl-grpo-console"),
    ("trl-dpo", "openrlhf-dpo-wandb"), ("trl-reward", "openrlhf-rm-wandb"), ("trl-ppo", "plain-jsonl"),
)  # fmt: skip


ABOUT_THE_UNIT = ("reward-scale", "over-constrained", "advantage-not-centred")
"""Findings on the number of a score itself, or on a score against something else in its unit."""


def _told(run: Drawn, dress: str) -> tuple[str, str | None]:
    with tempfile.TemporaryDirectory() as place:
        diagnosis = diagnose(write(run, dress, Path(place)))
    return str(diagnosis.status), diagnosis.root_cause


def _only(run: Drawn, *dresses: Dress) -> Drawn:
    shared = {k for k in run.curves if all(k in d.names for d in dresses)}
    return replace(run, curves={k: v for k, v in run.curves.items() if k in shared})


def _with_extras(run: Drawn, dress: str) -> tuple[str, str | None]:
    """The same file with columns that say when and on what it ran."""
    rng = np.random.default_rng(1)
    n = len(run)
    extra = {
        "wall_time": 1.7e9 + 30 * np.arange(n), "gpu_temp": 60 + 5 * rng.standard_normal(n),
        "samples_per_second": 12 + rng.standard_normal(n), "my_odd_counter": rng.integers(0, 9, n).astype(float),
    }  # fmt: skip
    look = DRESSES[dress]
    more = look._replace(names={**look.names, **{k: k for k in extra}})
    DRESSES["with-extras"] = more
    try:
        return _told(replace(run, curves={**run.curves, **extra}), "with-extras")
    finally:
        del DRESSES["with-extras"]


def invariance(seeds: int) -> Iterator[tuple[str, str, tuple[str, str | None], tuple[str, str | None]]]:
    """(what was changed, which run, the verdict before, the verdict after)."""
    runs: list[tuple[str, str, Drawn]] = []
    for kind, variants, _ in PLAN:
        runs += [(f"healthy/{kind}/{v}", "", sound(kind, seed_of("same", kind, v), v, 400)) for v in variants[:8]]
    for id, fault in FAULTS.items():
        for i in range(seeds):
            rng = seed_of("same", id, i)
            kinds = fault.base.split()
            run, _ = faulty(
                id, rng, strength=rng.uniform(0.6, 1), onset=rng.uniform(0.3, 0.5), kind=kinds[i % len(kinds)], rows=400
            )
            runs.append((f"{id}/{i}", id, run))
    for name, id, run in runs:
        signals = FAULTS[id].signals if id else ()
        barred = ("trimtab", *(FAULTS[id].not_in if id else ()))
        own = [d for d in dresses_for(run.kind, signals) if d not in barred]
        if not own:
            continue
        dress = own[zlib.crc32(name.encode()) % len(own)]
        first = _told(run, dress)
        for stride in (2, 5):
            yield f"every {stride} steps", name, first, _told(run.strided(stride), dress)
        if run.kind in ("grpo", "ppo") and id not in ABOUT_THE_UNIT:
            for scale, shift in ((0.2, 0.0), (30.0, -7.0), (1.0, 5.0)):
                yield f"rewards x {scale:g} {shift:+g}", name, first, _told(run.relabeled(scale, shift), dress)
        yield "extra columns", name, first, _with_extras(run, dress)
        for one, two in _COMMON:
            if not {one, two} & set(barred) and all(able(DRESSES[d], run.kind, signals) for d in (one, two)):
                both = _only(run, DRESSES[one], DRESSES[two])
                yield f"{one} as {two}", name, _told(both, one), _told(both, two)


def onset_errors(cases: list[Case]) -> list[float]:
    """How far the step named lies from the true one, as a share of the steps, for faults that set in later."""
    out = []
    for case in cases:
        found = next((f for f in case.diagnosis.findings if f.id == case.expected and f.severity.loud), None)
        if case.onset is None or found is None or found.onset_step is None:
            continue
        spans = [log.steps[1] for log in case.diagnosis.logs if log.steps]
        out.append((found.onset_step - case.onset) / max(spans))
    return out


def is_healthy(case: Case) -> bool:
    return case.diagnosis.status is Status.HEALTHY
