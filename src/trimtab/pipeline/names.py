"""What names in the settings stand for, without loading anything."""

from __future__ import annotations

from trimtab.pipeline.project import Project

__all__ = ["TINY_WORLD", "model_name"]

TINY_WORLD = "tiny-world"
"""`model.name` of the model that is built on the spot."""


def model_name(project: Project, name: str) -> str:
    """A relative path in trimtab.toml is meant from the project's directory; other names are taken as they are."""
    local = project.file(name)
    return str(local) if local.is_dir() else name
