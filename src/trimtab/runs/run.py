"""A run directory: plain files that one process writes and any number of readers look at while it does.

    run.json        manifest: config, seed, versions, hashes, parent, stages
    metrics.jsonl   one JSON object a log step
    samples.jsonl   generations of the probe prompts
    findings.jsonl  what the doctor said while it ran, and what was done
    checkpoints/<stage>/   artifacts/   attempts/<stage>-<n>/ (what earlier attempts of a stage left)

Nothing is pickled, nothing of an earlier attempt is overwritten, and a reader copes with a half-written last line.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.runs.callbacks import Action
from trimtab.runs.files import JsonLines, append_jsonl, read_jsonl, write_json, writing
from trimtab.runs.lock import RunLock, is_locked
from trimtab.runs.manifest import (
    MANIFEST_NAME,
    StageRecord,
    StageStatus,
    check_run_name,
    check_stage_name,
    new_manifest,
    read_manifest,
)
from trimtab.runs.metrics import current_lines, merge_steps, metrics_line, rewind_line, stamp
from trimtab.runs.paths import clear_run, inside, is_taken, make_next_free, set_aside
from trimtab.runs.signals import lookup

__all__ = ["Existing", "Run"]

Existing = Literal["resume", "new", "overwrite", "fail"]
"""What to do when a run of the wanted name is there."""

_ENDINGS = (StageStatus.DONE, StageStatus.FAILED, StageStatus.INTERRUPTED)


class Run:
    """One run directory. `Run.create` makes or takes up one to write into, `Run.open` looks at one.

    The first write locks the run against other processes until every `Run` object on it in this process is closed or
    gone; the lock ends with the process, whatever ends it.
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self._manifest = manifest
        self._lock: RunLock | None = None
        self._lines: dict[str, tuple[tuple[int, int, int], JsonLines]] = {}

    def __repr__(self) -> str:
        return f"Run({os.fspath(self.path)!r})"

    # making and opening

    @classmethod
    def create(
        cls,
        root: str | os.PathLike[str],
        name: str,
        *,
        config: Mapping[str, Any],
        seed: int,
        parent: str | None = None,
        existing: Existing = "fail",
        hashes: Mapping[str, str] | None = None,
    ) -> Run:
        """Make the run `root/name`, locked for writing.

        Args:
            root: directory of the runs; made where missing.
            name: see `check_run_name`.
            config: the resolved settings, as JSON.
            seed: the number that every random stream is derived from.
            parent: the run, or `RUN@STEP`, that this one was made from.
            existing: what to do when there is one: `resume` it (with the new config; the old one stays in the
                manifest), make a `new` one under the next free name (`name-2`), `overwrite` it, or `fail`.
            hashes: of data, constitution and models.

        Raises:
            TrimtabError: the name is bad or taken, or another process writes into the run.
        """
        if existing not in ("resume", "new", "overwrite", "fail"):
            raise ValueError(f"existing is resume, new, overwrite or fail, not {existing!r}")
        path = Path(root) / check_run_name(name)
        if existing == "new":
            path = make_next_free(path)
        taken = is_taken(path)
        if taken and existing == "resume":
            run = cls.open(path)
            run._take_up(config, seed, hashes or {})
            return run
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        run = cls(path, new_manifest(path.name, config, seed, parent, hashes or {}))
        run._write_lock()
        if taken and existing == "overwrite":
            clear_run(path)
        if is_taken(path):
            raise TrimtabError(
                ErrorKind.RUN,
                f"{path}: there is a run of this name",
                "Say what to do: resume it, overwrite it, or make a new one under the next free name.",
            )
        run._save()
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Run:
        """Look at the run in `path`; nothing is locked or written.

        Raises:
            TrimtabError: there is no run, or one that this version cannot read.
        """
        path = Path(path)
        return cls(path, read_manifest(path))

    def reload(self) -> Run:
        """Read the manifest again (another process may have gone on); returns self."""
        self._manifest = read_manifest(self.path)
        return self

    def close(self) -> None:
        """Give up the right to write; the next write takes it again."""
        self._lock = None

    # what the manifest says

    @property
    def name(self) -> str:
        """The run's name: that of its directory."""
        return self.path.resolve().name

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest as last read or written; not to be changed in place."""
        return self._manifest

    @property
    def config(self) -> dict[str, Any]:
        """The resolved settings."""
        return dict(self._manifest["config"])

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self._manifest["seed"])

    @property
    def locked(self) -> bool:
        """Whether a living process writes into the run."""
        return is_locked(self.path)

    @property
    def status(self) -> StageStatus:
        """The run as a whole: running only while a process holds it; a killed one is interrupted."""
        statuses = [s.status for s in self.stages().values()]
        if StageStatus.RUNNING in statuses:
            return StageStatus.RUNNING if self.locked else StageStatus.INTERRUPTED
        for status in (StageStatus.FAILED, StageStatus.INTERRUPTED):
            if status in statuses:
                return status
        return StageStatus.DONE if statuses else StageStatus.PENDING

    def set_hashes(self, hashes: Mapping[str, str]) -> None:
        """Note hashes of data, constitution or models in the manifest."""
        self._for_change()
        self._manifest["hashes"] = {**self._manifest.get("hashes", {}), **hashes}
        self._save()

    # stages

    def stage(self, name: str) -> StageRecord:
        """The record of a stage; a pending one if it was never begun."""
        record = self._manifest["stages"].get(check_stage_name(name))
        return StageRecord(name) if record is None else StageRecord.from_dict(name, record)

    def stages(self) -> dict[str, StageRecord]:
        """The stages that were begun, in that order."""
        return {name: self.stage(name) for name in self._manifest["stages"]}

    def begin_stage(self, name: str, fingerprint: str, *, artifacts: Sequence[str] = ()) -> StageRecord:
        """Begin a stage, or go on with it.

        With the fingerprint of the last attempt, and that one not done, the attempt goes on: checkpoints stay. Else a
        new attempt begins: what the last one wrote (its artifacts, `artifacts/<stage>` and its checkpoints) moves to
        `attempts/<stage>-<n>/`.

        Args:
            name: the stage.
            fingerprint: hash of everything that its result depends on.
            artifacts: names below `artifacts/` that the stage will write.

        Returns:
            The record: status running, and which attempt this is.
        """
        self._for_change()
        old = self.stage(name)
        names = tuple(dict.fromkeys(inside(a) for a in artifacts))
        goes_on = old.attempt > 0 and old.fingerprint == fingerprint != "" and old.status != StageStatus.DONE
        if goes_on:
            names = tuple(dict.fromkeys([*old.artifacts, *names]))
            record = replace(old, status=StageStatus.RUNNING, ended=None, artifacts=names)
        else:
            if old.attempt:
                # The record goes first: were the process killed between the moves, one that says done would stay
                # behind without its artifacts. No fingerprint is empty, so the next begin moves the rest.
                names = tuple(dict.fromkeys([*old.artifacts, *names]))
                self._put(replace(old, status=StageStatus.INTERRUPTED, fingerprint="", artifacts=names))
                self._set_aside(old, names)
                names = tuple(dict.fromkeys(inside(a) for a in artifacts))
            record = StageRecord(name, StageStatus.RUNNING, fingerprint, old.attempt + 1, time.time(), artifacts=names)
        return self._put(record)

    def end_stage(
        self, name: str, status: StageStatus | str = StageStatus.DONE, info: Mapping[str, Any] | None = None
    ) -> StageRecord:
        """End a stage that was begun, as done, failed or interrupted; `info` (JSON) is kept in its record."""
        status = StageStatus(status)
        if status not in _ENDINGS:
            raise ValueError(f"a stage ends as {', '.join(_ENDINGS)}, not as {status}")
        self._for_change()
        old = self.stage(name)
        if old.status != StageStatus.RUNNING:
            raise ValueError(f"stage {name!r} is {old.status}, not running")
        return self._put(replace(old, status=status, ended=time.time(), info={**old.info, **(info or {})}))

    # signals

    def log(self, stage: str, step: int, signals: Mapping[str, float | int | None]) -> None:
        """Append one line to `metrics.jsonl`.

        A value that is not finite is written as null and named under `nonfinite`; None means that there is no value.

        Raises:
            TrimtabError: a key is not in the signal table, or not for this stage.
            TypeError: a value is not a number.
        """
        line = metrics_line(check_stage_name(stage), step, self._attempt(stage), signals)
        self._write_lock()
        append_jsonl(self.path / "metrics.jsonl", [line])

    def rewind(self, stage: str, step: int) -> None:
        """Take back what the attempt logged, sampled and found after `step`: it goes on from there."""
        line = rewind_line(check_stage_name(stage), step, self._attempt(stage))
        self._write_lock()
        for name in ("metrics.jsonl", "samples.jsonl", "findings.jsonl"):
            if (self.path / name).exists():
                append_jsonl(self.path / name, [line])

    def metrics(self, stage: str | None = None, *, attempt: int | None = None) -> list[dict[str, Any]]:
        """One record a stage and step: stage, step, attempt, time and the signals (null where there is no value).

        `stage` None: all, by stage; `attempt` None: each stage's last. Broken lines are skipped (`broken_lines`).
        """
        lines = self._read("metrics.jsonl").records
        return merge_steps(current_lines(lines, stage, self._attempts(), attempt))

    def signal(self, name: str, stage: str | None = None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Steps and values of one signal, by step; steps without a value are left out, NaN and infinities are not.

        `stage` None: the first of the stages that the signal is declared for that has logged it.

        Raises:
            TrimtabError: no such signal is declared.
        """
        declared = lookup(name)
        if declared is None:
            raise TrimtabError(ErrorKind.RUN, f"signal {name!r} is not declared")
        for candidate in declared.stages if stage is None else (stage,):
            points = [(r["step"], r[name]) for r in self.metrics(candidate) if r.get(name) is not None]
            if points:
                steps, values = zip(*points, strict=True)
                return np.array(steps, np.int64), np.array(values, np.float64)
        return np.empty(0, np.int64), np.empty(0, np.float64)

    def broken_lines(self) -> dict[str, list[int]]:
        """Numbers of the lines that cannot be read, by file; a last line that is still being written is none."""
        files = ("metrics.jsonl", "samples.jsonl", "findings.jsonl")
        found = {name: self._read(name).broken for name in files}
        return {name: lines for name, lines in found.items() if lines}

    def record_action(self, stage: str, step: int, action: Action) -> None:
        """Append to `findings.jsonl` what was done about a finding (or for any other reason)."""
        self._record(stage, step, {"action": action.to_dict()})

    def record_finding(self, stage: str, step: int, finding: Mapping[str, Any]) -> None:
        """Append to `findings.jsonl` what the doctor said at `step`; `finding` is strict JSON."""
        self._record(stage, step, {"finding": dict(finding)})

    def findings(self, stage: str | None = None) -> list[dict[str, Any]]:
        """Lines of `findings.jsonl` of each stage's last attempt, in the order written: a `finding` or an `action`."""
        return [dict(x) for x in current_lines(self._read("findings.jsonl").records, stage, self._attempts())]

    def _record(self, stage: str, step: int, what: Mapping[str, Any]) -> None:
        self._write_lock()
        line = {**stamp(check_stage_name(stage), step, self._attempt(stage)), **what}
        append_jsonl(self.path / "findings.jsonl", [line])

    # samples, artifacts, checkpoints

    def write_samples(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records to `samples.jsonl`; each has at least `stage` and `step`."""
        lines = [
            {**record, **stamp(check_stage_name(record["stage"]), record["step"], self._attempt(record["stage"]))}
            for record in records
        ]
        self._write_lock()
        append_jsonl(self.path / "samples.jsonl", lines)

    def samples(self, step: int | None = None, stage: str | None = None) -> list[dict[str, Any]]:
        """The sample records of each stage's last attempt, in the order written; `step` None: of all steps."""
        lines = current_lines(self._read("samples.jsonl").records, stage, self._attempts())
        return [dict(line) for line in lines if step is None or line["step"] == step]

    def artifact(self, name: str) -> Path:
        """The path of an artifact, `artifacts/<name>`; its directory is there when the run may be written into."""
        path = self.path / "artifacts" / inside(name)
        if self._lock is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def checkpoint_dir(self, stage: str) -> Path:
        """The directory of a stage's checkpoints; it is there when the run may be written into."""
        path = self.path / "checkpoints" / check_stage_name(stage)
        if self._lock is not None:
            path.mkdir(parents=True, exist_ok=True)
        return path

    # inside

    def _write_lock(self) -> None:
        if self._lock is None:
            self._lock = RunLock.acquire(self.path)

    def _for_change(self) -> None:
        """Lock, and start from the manifest as it is on disk: another `Run` of this process may have changed it."""
        self._write_lock()
        self.reload()

    def _save(self) -> None:
        write_json(self.path / MANIFEST_NAME, self._manifest)

    def _put(self, record: StageRecord) -> StageRecord:
        self._manifest["stages"] = {**self._manifest["stages"], record.name: record.to_dict()}
        self._save()
        return record

    def _take_up(self, config: Mapping[str, Any], seed: int, hashes: Mapping[str, str]) -> None:
        self._for_change()
        manifest = self._manifest
        if (manifest["config"], manifest["seed"]) != (dict(config), seed):
            earlier = {"until": time.time(), "seed": manifest["seed"], "config": manifest["config"]}
            manifest["earlier_configs"] = [*manifest.get("earlier_configs", []), earlier]
        manifest.update(config=dict(config), seed=seed, hashes={**manifest.get("hashes", {}), **hashes})
        self._save()

    def _attempt(self, stage: str) -> int:
        return max(self.stage(stage).attempt, 1)

    def _attempts(self) -> dict[str, int]:
        return {name: int(record["attempt"]) for name, record in self._manifest["stages"].items()}

    def _read(self, name: str) -> JsonLines:
        path = self.path / name
        try:
            found = path.stat()
        except FileNotFoundError:
            return JsonLines([], [], [], False)
        if stat.S_ISDIR(found.st_mode):
            return JsonLines([], [], [], False)
        key = (found.st_ino, found.st_size, found.st_mtime_ns)
        cached = self._lines.get(name)
        if cached is None or cached[0] != key:
            cached = (key, read_jsonl(path))
            self._lines[name] = cached
        return cached[1]

    def _set_aside(self, old: StageRecord, names: Sequence[str]) -> None:
        target = self.path / "attempts" / f"{old.name}-{old.attempt}"
        for name in dict.fromkeys([*names, old.name]):
            set_aside(self.path / "artifacts" / name, target / "artifacts" / name)
        set_aside(self.path / "checkpoints" / old.name, target / "checkpoints")
