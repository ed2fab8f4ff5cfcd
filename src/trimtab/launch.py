"""How many processes work on a command: what the launcher says, held against itself and against what was asked for.

A launcher that promises several processes and starts one, or starts several that know nothing of each other, would
train something else than was asked for without a word: both are refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["Launch", "launched", "several"]

_TORCHRUN = "launch with: torchrun --nproc_per_node=N -m trimtab ppo PROJECT"
_FOREIGN = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
"""Sizes set by MPI launchers, whose processes do not find each other here."""


@dataclass(frozen=True)
class Launch:
    """`rank` of `size` processes in all; `local_rank` among those of this machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0


def launched(expected: int | None = None, environment: Mapping[str, str] | None = None) -> Launch:
    """Which of how many processes this one is.

    Args:
        expected: how many there have to be; None: as many as there are.
        environment: None: that of the process.

    Raises:
        TrimtabError: the launcher's variables contradict each other, or there are more or fewer than expected.
    """
    variables = os.environ if environment is None else environment
    found = _read(variables)
    if expected is not None and found.size != expected:
        raise TrimtabError(
            ErrorKind.CONFIG,
            f"project.processes = {expected}, but the launcher started {found.size}"
            + (": this process is alone" if found.size == 1 else ""),
            f"torchrun --nproc_per_node={expected} -m trimtab ... starts {expected}"
            + ("; accelerate launch --cpu starts one, whatever it is told" if found.size == 1 else ""),
        )
    return found


def several() -> bool:
    """Whether this is one of several processes that a launcher started to work together."""
    try:
        return launched().size > 1
    except TrimtabError:
        return False


def _read(variables: Mapping[str, str]) -> Launch:
    size, rank = _number(variables, "WORLD_SIZE"), _number(variables, "RANK")
    if size is None and rank is None:
        for name in _FOREIGN:
            if (_number(variables, name) or 1) > 1:
                raise TrimtabError(
                    ErrorKind.USAGE, f"{name} = {variables[name]}: processes of MPI do not find each other", _TORCHRUN
                )
        return Launch()
    if size is None or (rank is None and size > 1):
        there, lacking = ("RANK", "WORLD_SIZE") if size is None else ("WORLD_SIZE", "RANK")
        raise TrimtabError(
            ErrorKind.USAGE,
            f"{there} = {variables[there]} in the environment, but no {lacking}: the launcher promises "
            "processes that this one cannot find",
            f"{_TORCHRUN}; for one process, unset {there}",
        )
    rank = rank or 0
    if not 0 <= rank < size:
        raise TrimtabError(ErrorKind.USAGE, f"RANK = {rank} with WORLD_SIZE = {size}", f"0 to {size - 1}; {_TORCHRUN}")
    lacking_address = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not variables.get(name)]
    if size > 1 and lacking_address:
        raise TrimtabError(
            ErrorKind.USAGE, f"WORLD_SIZE = {size}, but no {lacking_address[0]}: where do they meet?", _TORCHRUN
        )
    return Launch(rank, size, _number(variables, "LOCAL_RANK") or 0)


def _number(variables: Mapping[str, str], name: str) -> int | None:
    text = variables.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or (name.endswith("SIZE") and int(text) < 1):
        least = 1 if name.endswith("SIZE") else 0
        raise TrimtabError(
            ErrorKind.USAGE, f"{name} = {text!r} in the environment", f"a whole number, at least {least}"
        )
    return int(text)
