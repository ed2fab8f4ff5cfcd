"""Checkpoints: a nested dictionary as safetensors and JSON, written whole or not at all.

A checkpoint directory holds `tensors.safetensors` and `state.json`; nothing is pickled. It is written beside its final
place under a temporary name, flushed to the disk and renamed, so that a directory with the final name is complete.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.writing import writing_weights

__all__ = [
    "checkpoints",
    "latest_checkpoint",
    "load_checkpoint",
    "prune",
    "save_checkpoint",
    "step_path",
]

_TENSORS, _STATE, _FORMAT = "tensors.safetensors", "state.json", 1
_NAME = re.compile(r"step-(\d{6,})")


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> Path:
    """Write `state` to the directory `path`, atomically; an existing checkpoint there is replaced.

    Args:
        path: the checkpoint's own directory, see `step_path`.
        state: nested mappings, lists and tuples (read back as lists) of tensors, numbers, strings, booleans and None;
            an optimiser's `state_dict()` and a generator's `get_state()` are such. Keys are strings or integers.

    Raises:
        TypeError: a value of another kind.
        TrimtabError: the disk is full or not writable; an earlier checkpoint is as it was, nothing else stays.
    """
    tensors: dict[str, Tensor] = {}
    tree = _flatten(state, "", tensors)
    with writing_weights(path):
        _write(path, tree, tensors)
    return path


def _write(path: Path, tree: Any, tensors: dict[str, Tensor]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        save_file(tensors, temporary / _TENSORS)
        document = {"format": _FORMAT, "tensors": len(tensors), "sha256": _digest(temporary / _TENSORS), "state": tree}
        (temporary / _STATE).write_text(json.dumps(document, allow_nan=False), "utf-8")
        for name in (_TENSORS, _STATE, ""):
            _flush(temporary / name)
        if path.exists():
            # A directory cannot be renamed over another: the old one steps aside first.
            aside = path.with_name(f".{path.name}.{os.getpid()}.old.tmp")
            shutil.rmtree(aside, ignore_errors=True)
            os.replace(path, aside)
            try:
                os.replace(temporary, path)
            except OSError:
                os.replace(aside, path)
                raise
            shutil.rmtree(aside)
        else:
            os.replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _flush(path.parent)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read back what `save_checkpoint` wrote: equal bit for bit, tensors on the CPU.

    Raises:
        TrimtabError: the directory is missing, half written or damaged (its hash does not fit), or its `state.json`
            holds what none of ours does; the file is named.
    """
    try:
        document = json.loads((path / _STATE).read_text("utf-8"))
        if document["format"] != _FORMAT:
            raise _broken(path, f"format {document['format']}, this version reads {_FORMAT}")
        if _digest(path / _TENSORS) != document["sha256"]:
            raise _broken(path, f"{_TENSORS} is not what was written (its hash differs)")
        tensors = load_file(path / _TENSORS)
    except FileNotFoundError as error:
        raise _broken(path, f"{Path(error.filename or path).name} is missing") from error
    except (IsADirectoryError, NotADirectoryError) as error:
        raise _broken(path, f"{Path(error.filename or path).name} is not a file in a directory") from error
    except SafetensorError as error:
        raise _broken(path, f"{_TENSORS}: {error}") from error
    except _WRONG_SHAPE as error:
        raise _broken(path, f"{_STATE}: {type(error).__name__}: {error}") from error
    try:
        state = _restore(document["state"], tensors)
    except _WRONG_SHAPE as error:
        raise _broken(path, f"{_STATE}: {type(error).__name__}: {error}") from error
    if not isinstance(state, dict):
        raise _broken(path, f"{_STATE}: state is a {type(state).__name__}, not an object")
    for count in _COUNTS & state.keys():
        if type(state[count]) is not int or state[count] < 0:
            raise _broken(path, f"{_STATE}: {count} is {str(state[count])[:60]!r}, not a whole number from 0 on")
    return state


_WRONG_SHAPE = (KeyError, TypeError, ValueError, RecursionError)
"""What reading JSON raises where it is not what `save_checkpoint` wrote."""
_COUNTS = {"iteration", "step"}
"""Keys of a state that say how far a stage has come."""


def step_path(root: Path, step: int) -> Path:
    """`root`/step-000012."""
    return root / f"step-{step:06d}"


def checkpoints(root: Path) -> list[tuple[int, Path]]:
    """(step, directory) of the complete checkpoints under `root`, oldest first; half-written ones are left out."""
    if not root.is_dir():
        return []
    found = [(int(m[1]), p) for p in root.iterdir() if (m := _NAME.fullmatch(p.name)) and _complete(p)]
    return sorted(found)


def latest_checkpoint(root: Path) -> Path | None:
    """The newest complete checkpoint under `root`, or None."""
    found = checkpoints(root)
    return found[-1][1] if found else None


def prune(root: Path, keep: int, *, spare: frozenset[int] = frozenset()) -> None:
    """Remove all but the newest `keep` checkpoints; steps in `spare` stay."""
    for step, path in checkpoints(root)[: -keep or None]:
        if step not in spare:
            shutil.rmtree(path)


def _flatten(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """JSON for `value`; tensors go to `tensors` under their place in the tree."""
    match value:
        case Tensor():
            # A copy: safetensors refuses tensors that share storage, and tied weights would.
            tensors[place] = value.detach().to("cpu", copy=True).contiguous()
            return {"$tensor": place}
        case Mapping():
            if not all(type(k) in (str, int) for k in value):
                raise TypeError(f"checkpoint key at {place or 'the top'} is neither str nor int")
            integers = any(type(k) is int for k in value)
            pairs = [[k, _flatten(v, f"{place}/{k}", tensors)] for k, v in value.items()]
            # Integer keys (an optimiser numbers its parameters) are no JSON keys: such mappings become pairs.
            if integers or any(str(k).startswith("$") for k, _ in pairs):
                return {"$pairs": pairs}
            return dict(pairs)
        case list() | tuple():
            return [_flatten(v, f"{place}/{i}", tensors) for i, v in enumerate(value)]
        case float() if not math.isfinite(value):
            return {"$float": repr(value)}
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(f"checkpoint value at {place} is a {type(value).__name__}")


def _restore(tree: Any, tensors: dict[str, Tensor]) -> Any:
    match tree:
        case {"$tensor": str(place)}:
            return tensors[place]
        case {"$float": str(text)}:
            return float(text)
        case {"$pairs": list(pairs)}:
            return {k: _restore(v, tensors) for k, v in pairs}
        case dict():
            return {k: _restore(v, tensors) for k, v in tree.items()}
        case list():
            return [_restore(v, tensors) for v in tree]
    return tree


def _complete(path: Path) -> bool:
    return (path / _STATE).is_file() and (path / _TENSORS).is_file()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _broken(path: Path, why: str) -> TrimtabError:
    return TrimtabError(
        ErrorKind.RUN,
        f"checkpoint {path} cannot be used: {why}",
        "remove that directory: the stage then goes on from the checkpoint before it, or starts anew",
    )
