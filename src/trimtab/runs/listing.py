"""The runs of a directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from trimtab.errors import TrimtabError
from trimtab.runs.manifest import MANIFEST_NAME
from trimtab.runs.run import Run

__all__ = ["list_runs"]


def list_runs(
    root: str | os.PathLike[str], *, on_broken: Callable[[Path, TrimtabError], None] | None = None
) -> list[Run]:
    """The runs below `root`, oldest first; `on_broken` hears of the directories whose manifest cannot be read."""
    root = Path(root)
    runs = []
    for path in sorted(root.iterdir()) if root.is_dir() else []:
        if not (path / MANIFEST_NAME).is_file():
            continue
        try:
            runs.append(Run.open(path))
        except TrimtabError as error:
            if on_broken is not None:
                on_broken(path, error)
    return sorted(runs, key=lambda run: (run.manifest["created"], run.name))
