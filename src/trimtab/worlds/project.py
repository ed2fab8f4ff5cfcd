"""The files of a tiny-world project, as `trimtab init --preset tiny` writes them."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from trimtab.data.demonstrations import Demonstration, write_demonstrations
from trimtab.data.prompts import write_prompts
from trimtab.worlds.tiny import demonstrations, prompts

__all__ = ["DEMONSTRATIONS", "HELD_OUT_PROMPTS", "TRAIN_PROMPTS", "write_project"]

TRAIN_PROMPTS = 2000
"""Prompts for pairs and rollouts."""
HELD_OUT_PROMPTS = 256
"""Prompts that only the evaluation sees."""
DEMONSTRATIONS = 8000
"""Demonstrations, each for a prompt of its own; twelve epochs in batches of 64 are 1,500 updates."""


def write_project(directory: str | os.PathLike[str], seed: int) -> list[Path]:
    """Write prompts, held-out prompts, demonstrations and the constitution of the tiny world.

    No prompt stands in two files. Files of the same names are replaced.

    Args:
        directory: the project; made where it does not exist.
        seed: of the prompts and the demonstrations.

    Returns:
        The files written: prompts.jsonl, prompts_held_out.jsonl, demonstrations.jsonl, constitution.toml.
    """
    root = Path(directory)
    root.mkdir(parents=True, exist_ok=True)
    drawn = prompts(HELD_OUT_PROMPTS + TRAIN_PROMPTS + DEMONSTRATIONS, seed)
    held_out, rest = drawn[:HELD_OUT_PROMPTS], drawn[HELD_OUT_PROMPTS:]
    train, shown = rest[:TRAIN_PROMPTS], rest[TRAIN_PROMPTS:]
    names = ("prompts.jsonl", "prompts_held_out.jsonl", "demonstrations.jsonl", "constitution.toml")
    written = [root / name for name in names]
    write_prompts(written[0], train)
    write_prompts(written[1], held_out)
    write_demonstrations(written[2], [Demonstration(p, r.text, p.id) for p, r in demonstrations(shown, seed)])
    constitution = files("trimtab.worlds").joinpath("constitution.toml").read_text(encoding="utf-8")
    written[3].write_text(constitution, encoding="utf-8")
    return written
