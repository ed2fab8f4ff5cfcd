"""The verdicts of a project or a run: its label store, with the texts of the pairs that its runs sampled."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.config.load import load_config
from trimtab.data.pairs import read_candidates
from trimtab.data.records import CandidatePair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.protocol import pair_hash
from trimtab.labeling.verdict_files import table_of
from trimtab.labeling.verdict_formats import store_records
from trimtab.labeling.verdicts import VerdictTable
from trimtab.runs.listing import list_runs
from trimtab.runs.manifest import MANIFEST_NAME
from trimtab.runs.run import Run

__all__ = ["CONFIG_NAME", "STORE_NAME", "ProjectVerdicts", "project_verdicts"]

CONFIG_NAME = "trimtab.toml"
STORE_NAME = "labels.sqlite"
_DIGITS = 8
"""Digits of a pair's hash in the ids of `LabelStore.verdict_records`."""


@dataclass(frozen=True)
class ProjectVerdicts:
    """What a project knows of its judges.

    Args:
        table: the verdicts; of a run: those on its pairs.
        pairs: the candidate pairs that were sampled, the newest run's first.
        directory: of the project.
    """

    table: VerdictTable
    pairs: tuple[CandidatePair, ...]
    directory: Path


def project_verdicts(path: str | os.PathLike[str]) -> ProjectVerdicts:
    """Read the label store of a project, or of the project that a run belongs to.

    Args:
        path: a project's directory, its trimtab.toml, or the directory of a run.

    Raises:
        TrimtabError: neither a project nor a run, no labels yet, or files that cannot be read.
    """
    path = Path(path)
    run = Run.open(path) if (path / MANIFEST_NAME).is_file() else None
    project = _project_of(path)
    runs = [run] if run is not None else list_runs(_runs_directory(project))
    pairs: dict[str, CandidatePair] = {}
    for one in reversed(runs):
        sampled = one.artifact("sample") / "pairs.jsonl"
        if sampled.is_file():
            for pair in read_candidates(sampled, partial=True):
                pairs.setdefault(pair_hash(pair)[:_DIGITS], pair)
    store = project / STORE_NAME
    if not store.is_file():
        raise TrimtabError(
            ErrorKind.DATA,
            f"{project}: there are no labels yet ({STORE_NAME})",
            f"label pairs: trimtab label {project}",
        )
    records = [_with_texts(r, pairs) for r in store_records(store) if run is None or _digits(r) in pairs]
    return ProjectVerdicts(table_of(records, str(store)), tuple(pairs.values()), project)


def _project_of(path: Path) -> Path:
    start = path.parent if path.name == CONFIG_NAME else path
    for directory in (start.resolve(), *start.resolve().parents):
        if (directory / CONFIG_NAME).is_file():
            return directory
    raise TrimtabError(
        ErrorKind.USAGE, f"{path}: no verdict file, no project and no run", f"a project has a {CONFIG_NAME}"
    )


def _runs_directory(project: Path) -> Path:
    return project / load_config(project / CONFIG_NAME, ()).config.project.runs


def _digits(record: dict[str, Any]) -> str:
    """The digits of the pair's hash in the id that the label store gives it."""
    return str(record["pair_id"]).rpartition("#")[2]


def _with_texts(record: dict[str, Any], pairs: dict[str, CandidatePair]) -> dict[str, Any]:
    pair = pairs.get(_digits(record))
    if pair is None:
        return record
    own: Iterable[tuple[str, Any]] = (
        ("prompt_id", pair.prompt.id),
        ("prompt", pair.prompt.text),
        ("response_1", pair.first.text),
        ("response_2", pair.second.text),
        ("generator_1", pair.origin.get("generator_1")),
        ("generator_2", pair.origin.get("generator_2")),
    )
    return {**{k: v for k, v in own if v is not None}, **{k: v for k, v in record.items() if v is not None}}
