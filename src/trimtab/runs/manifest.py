"""The manifest of a run (`run.json`) and the record that it keeps of each stage."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import reprlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.runs.files import read_json

__all__ = ["MANIFEST_NAME", "SCHEMA_VERSION", "StageRecord", "StageStatus", "check_run_name", "check_stage_name"]

MANIFEST_NAME = "run.json"
SCHEMA_VERSION = 1
_PACKAGES = ("trimtab", "torch", "transformers", "numpy")
_STAGE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_LONGEST_NAME = 120


class StageStatus(StrEnum):
    """Where a stage stands."""

    PENDING = "pending"
    """Not begun."""
    RUNNING = "running"
    """Begun, not ended: under way, or its process was killed."""
    DONE = "done"
    """Ended with its artifacts in place."""
    FAILED = "failed"
    """Ended with an error."""
    INTERRUPTED = "interrupted"
    """Stopped after a checkpoint; it can go on."""


@dataclass(frozen=True, slots=True)
class StageRecord:
    """What the manifest knows of a stage.

    `fingerprint`: hash of everything that the stage's result depends on. `attempt` counts from 1; 0 = never begun.
    `started`, `ended`: seconds since the epoch. `artifacts`: names below `artifacts/` that the stage writes. `info`:
    what the stage chose to note about its result.
    """

    name: str
    status: StageStatus = StageStatus.PENDING
    fingerprint: str = ""
    attempt: int = 0
    started: float | None = None
    ended: float | None = None
    artifacts: tuple[str, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The record as a JSON object."""
        record = asdict(self)
        del record["name"]
        return record | {"status": str(self.status), "artifacts": list(self.artifacts)}

    @classmethod
    def from_dict(cls, name: str, record: Mapping[str, Any]) -> StageRecord:
        """The inverse of `to_dict`; keys that a later version added are ignored."""
        return cls(
            name,
            StageStatus(record["status"]),
            str(record["fingerprint"]),
            int(record["attempt"]),
            record.get("started"),
            record.get("ended"),
            tuple(record.get("artifacts", ())),
            dict(record.get("info", {})),
        )


def check_run_name(name: str) -> str:
    """`name` if it can name a run.

    Raises:
        TrimtabError: it is empty or too long, starts with a dot or a dash, has white space at an end, or holds a path
            separator, `@` (which points at a step: `RUN@STEP`), `:` or a character that cannot be printed.
    """
    if not name:
        problem = "it is empty"
    elif not name.isprintable():
        problem = "it holds a character that cannot be printed"
    elif name[0] in ".-":
        problem = f"it starts with {name[0]!r}"
    elif bad := sorted(set(name) & set("/\\@:")):
        problem = f"it holds {' '.join(bad)}"
    elif name != name.strip():
        problem = "it starts or ends with white space"
    elif len(name.encode("utf-8")) > _LONGEST_NAME:
        problem = f"it is longer than {_LONGEST_NAME} bytes"
    else:
        return name
    raise TrimtabError(
        ErrorKind.USAGE,
        f"{name[:80]!r} cannot name a run: {problem}",
        "Take letters, digits, dots, dashes and underscores.",
    )


def check_stage_name(name: str) -> str:
    """`name` if it can name a stage: lower case letters, digits, `-` and `_`, a letter first."""
    if not _STAGE_NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name a stage: lower case letters, digits, - and _, a letter first")
    return name


def new_manifest(
    name: str, config: Mapping[str, Any], seed: int, parent: str | None, hashes: Mapping[str, str]
) -> dict[str, Any]:
    """A manifest without stages."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": name,
        "created": time.time(),
        "seed": seed,
        "parent": parent,
        "versions": installed_versions(),
        "hashes": dict(hashes),
        "stages": {},
        "config": dict(config),
        "earlier_configs": [],
    }


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest in `directory`.

    Raises:
        TrimtabError: `directory` holds no run, or one that this version cannot read.
    """
    path = directory / MANIFEST_NAME
    if not path.is_file():
        raise TrimtabError(
            ErrorKind.RUN, f"{directory}: is not a run (it has no {MANIFEST_NAME})", "`trimtab runs` lists the runs."
        )
    manifest = read_json(path)
    version = manifest.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise TrimtabError(
            ErrorKind.RUN,
            f"{path}: schema_version is {version!r}; this version of Trimtab reads up to {SCHEMA_VERSION}",
            "Upgrade Trimtab.",
        )
    missing = [k for k in ("name", "created", "seed", "config", "stages") if k not in manifest]
    if missing:
        raise TrimtabError(ErrorKind.RUN, f"{path}: lacks {', '.join(missing)}")
    for key, value, fits, what in _manifest_facts(manifest):
        if not fits:
            raise TrimtabError(
                ErrorKind.RUN,
                f"{path}: {key} is {_shown(value)}; it must be {what}",
                "Trimtab did not write this: restore the file from a copy, or move the run's directory away.",
            )
    return manifest


_Fact = tuple[str, Any, bool, str]
_TABLE, _TIME, _WHOLE = "a table", "a time in seconds since 1970", "a whole number from 0 on"
_LAST_TIME = 1e11  # the year 5138: later ones cannot be written as a date everywhere


def _manifest_facts(manifest: Mapping[str, Any]) -> Iterator[_Fact]:
    """What must hold of a manifest: key, value, whether it holds, and in words what it must be."""
    for key in ("config", "stages"):
        yield key, manifest[key], isinstance(manifest[key], dict), _TABLE
    yield "name", manifest["name"], isinstance(manifest["name"], str), "a text"
    yield "created", manifest["created"], _is_time(manifest["created"]), _TIME
    yield "seed", manifest["seed"], _is_whole(manifest["seed"]), _WHOLE
    for key in ("versions", "hashes"):
        value = manifest.get(key, {})
        yield key, value, isinstance(value, dict), _TABLE
    parent, earlier = manifest.get("parent"), manifest.get("earlier_configs", [])
    yield "parent", parent, parent is None or isinstance(parent, str), "a run, or null"
    yield "earlier_configs", earlier, isinstance(earlier, list), "a list"
    for name, record in manifest["stages"].items():
        key = f"stages.{name}"
        yield "stages", name, bool(_STAGE_NAME.fullmatch(name)), "a table of records by the names of stages"
        yield key, record, isinstance(record, dict), _TABLE
        yield from _record_facts(key, record)


def _record_facts(stage: str, record: Mapping[str, Any]) -> Iterator[_Fact]:
    status, fingerprint, attempt = record.get("status"), record.get("fingerprint"), record.get("attempt")
    names, info = record.get("artifacts", []), record.get("info", {})
    yield f"{stage}.status", status, status in list(StageStatus), f"one of {', '.join(StageStatus)}"
    yield f"{stage}.fingerprint", fingerprint, isinstance(fingerprint, str), "a text"
    yield f"{stage}.attempt", attempt, _is_whole(attempt), _WHOLE
    for key in ("started", "ended"):
        value = record.get(key)
        yield f"{stage}.{key}", value, value is None or _is_time(value), f"{_TIME}, or null"
    plain = isinstance(names, list) and all(_is_below(name) for name in names)
    yield f"{stage}.artifacts", names, plain, "a list of names below artifacts/"
    yield f"{stage}.info", info, isinstance(info, dict), _TABLE


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _LAST_TIME


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_below(name: object) -> bool:
    path = PurePosixPath(name) if isinstance(name, str) else PurePosixPath()
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _shown(value: object) -> str:
    """A JSON value in short."""
    if value is None:
        return "missing or null"
    return f"a {type(value).__name__}" if isinstance(value, list | dict) else reprlib.repr(value)


def installed_versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on, where installed."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
