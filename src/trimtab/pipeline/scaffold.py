"""A new project: trimtab.toml, constitution and prompts of a preset, never written over what is there unasked."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.pipeline.project import CONFIG_NAME

__all__ = ["ExistingFiles", "Preset", "Scaffold", "init_project", "project_of_pairs"]

Preset = Literal["demo", "tiny"]
ExistingFiles = Literal["fail", "keep", "overwrite"]
"""What to do about files of a new project that are there."""


@dataclass(frozen=True)
class Scaffold:
    """What `init_project` did: the files that it wrote and those that it left as they were."""

    directory: Path
    written: tuple[Path, ...]
    kept: tuple[Path, ...]


def init_project(directory: Path | str, preset: Preset = "demo", existing: ExistingFiles = "fail") -> Scaffold:
    """Write the files of a project.

    Args:
        directory: the project; made where it does not exist.
        preset: `demo`: a small real model and everyday prompts; `tiny`: the generated language.
        existing: `fail`: write nothing if one of the files is there; `keep`: write the others; `overwrite`: all.

    Raises:
        TrimtabError: `directory` is a file, or with `fail` one of the files is there.
    """
    root = Path(directory)
    if root.exists() and not root.is_dir():
        raise TrimtabError(ErrorKind.USAGE, f"{root}: is a file", "name a directory that is new or empty")
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".trimtab-init-", dir=root) as staging:
        _fill(Path(staging), preset)
        fresh = sorted(Path(staging).iterdir(), key=lambda path: (path.name != CONFIG_NAME, path.name))
        there = [path.name for path in fresh if os.path.lexists(root / path.name)]
        if there and existing == "fail":
            raise TrimtabError(
                ErrorKind.USAGE,
                f"{root}: has {', '.join(there)} already",
                "--existing keep writes only what is missing, --existing overwrite replaces them",
            )
        keep = set(there) if existing == "keep" else set()
        written = [path.name for path in fresh if path.name not in keep]
        for name in written:
            os.replace(Path(staging) / name, root / name)
    return Scaffold(root, tuple(root / name for name in written), tuple(root / n for n in there if n in keep))


def project_of_pairs(directory: Path | str, data: Path | str, backbone: str | None = None) -> Path:
    """Make a project that is only about a preference model: a trimtab.toml that names labeled pairs.

    Args:
        directory: made where it does not exist.
        data: the pairs, read once to see that they are some.
        backbone: see `preference.backbone`.

    Returns:
        The trimtab.toml.

    Raises:
        TrimtabError: the pairs cannot be read, or there is a project already.
    """
    from trimtab.config.load import default_config, write_toml
    from trimtab.data.pairs import read_pairs

    path = Path(directory) / CONFIG_NAME
    if path.exists():
        raise TrimtabError(ErrorKind.USAGE, f"{path}: is there already", "name another directory")
    read_pairs(data)
    settings = {"preference.data": str(Path(data).resolve())}
    settings |= {} if backbone is None else {"preference.backbone": backbone}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(write_toml(default_config(None, **settings)), encoding="utf-8")
    return path


def _fill(staging: Path, preset: Preset) -> None:
    from trimtab.config.load import default_config, write_toml

    config = default_config(preset)
    (staging / CONFIG_NAME).write_text(write_toml(config, preset), encoding="utf-8")
    if preset == "tiny":
        from trimtab.worlds.project import write_project

        write_project(staging, config.project.seed)
        return
    for asset in files("trimtab").joinpath("assets", preset).iterdir():
        if asset.is_file() and asset.name != "__init__.py":
            (staging / asset.name).write_bytes(asset.read_bytes())
