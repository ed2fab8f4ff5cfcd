"""Settings: the tree, its presets, and how it is read and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.config.load import Resolved, default_config, json_schema, load_config
    from trimtab.config.presets import PRESETS
    from trimtab.config.schema import Config
    from trimtab.config.template import write_toml

__all__ = ["PRESETS", "Config", "Resolved", "default_config", "json_schema", "load_config", "write_toml"]

_HOMES = {"PRESETS": "presets", "Config": "schema", "write_toml": "template"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'load')}"), name)
