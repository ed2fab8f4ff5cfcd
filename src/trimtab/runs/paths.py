"""Names and moves inside a directory of runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePosixPath

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.runs.files import writing
from trimtab.runs.lock import LOCK_NAME
from trimtab.runs.manifest import MANIFEST_NAME

__all__ = ["clear_run", "inside", "is_taken", "make_next_free", "set_aside"]


def inside(name: str) -> str:
    """`name` if it names something below a directory, in its shortest form."""
    path = PurePosixPath(name)
    if not name or "\0" in name or path.is_absolute() or any(part == ".." for part in path.parts) or not path.parts:
        raise ValueError(f"{name!r} is no name below artifacts/")
    return str(path)


def is_taken(path: Path) -> bool:
    """Whether `path` holds a run.

    Raises:
        TrimtabError: it holds something else.
    """
    if not os.path.lexists(path):
        return False
    if (path / MANIFEST_NAME).is_file():
        return True
    # A process that was killed right after it had made the directory leaves one with nothing but a lock in it.
    if path.is_dir() and all(p.name == LOCK_NAME or p.name.endswith(".tmp") for p in path.iterdir()):
        return False
    raise TrimtabError(ErrorKind.RUN, f"{path}: is there, but is not a run", "Choose another name.")


def make_next_free(path: Path) -> Path:
    """Make `path`, or the first of `path-2`, `path-3`, ... that is not there; two processes never get the same one."""
    number = 1
    candidate = path
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            candidate.mkdir()
        except FileExistsError:
            number += 1
            candidate = path.with_name(f"{path.name}-{number}")
        else:
            return candidate


def clear_run(path: Path) -> None:
    """Delete everything in a run but its lock, the manifest last: an overwrite that is cut short is still a run."""
    for child in sorted(path.iterdir(), key=lambda p: p.name == MANIFEST_NAME):
        if child.name == LOCK_NAME:
            continue
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink()


def set_aside(source: Path, target: Path) -> None:
    """Move `source` to `target`, or to `target.2`, ... so that nothing is overwritten; a missing source is fine."""
    if not os.path.lexists(source):
        return
    number = 1
    free = target
    while os.path.lexists(free):  # an earlier move that was cut short
        number += 1
        free = target.with_name(f"{target.name}.{number}")
    free.parent.mkdir(parents=True, exist_ok=True)
    source.rename(free)
