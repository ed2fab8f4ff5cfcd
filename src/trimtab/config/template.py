"""The commented trimtab.toml that `trimtab init` writes: every setting, what it does, what it may be, its default."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

from trimtab.config.describe import FieldInfo, fields, flatten, section_description, sections
from trimtab.config.presets import PRESETS
from trimtab.config.schema import Config

__all__ = ["toml_value", "write_toml"]

_WIDTH = 110
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def write_toml(config: Config | None = None, preset: str | None = None) -> str:
    """A trimtab.toml with every setting.

    Settings that `config` has at other values than the default, and those that the preset names, are live; the others
    stand commented out (`#key = value`) at their default. Read back, the text gives `config`.

    Args:
        config: the settings; None = the preset's, or the defaults.
        preset: name of the preset that the settings come from.

    Raises:
        ValueError: a text holds a lone surrogate, which TOML cannot write.
    """
    if config is None:
        config = Config.model_validate(PRESETS[preset]) if preset is not None else Config()
    values = flatten(config)
    named = {f"{s}.{k}" for s, table in PRESETS.get(preset or "", {}).items() for k in table}
    lines = [
        "# Settings of this project. `#key = value` is a default: remove the # to change it.",
        "# Show all with their origins: trimtab config show. Change one for one command: --set section.key=value",
    ]
    for section in sections():
        lines += ["", "", f"[{section}]", *_comment(section_description(section))]
        for info in (f for f in fields().values() if f.section == section):
            lines += ["", *_entry(info, values[info.key], info.key in named)]
    return "\n".join(lines) + "\n"


def _entry(info: FieldInfo, value: Any, named: bool) -> list[str]:
    live = value != info.default or (named and value is not None)
    assignment = f"{info.name} = {toml_value(value)}" if value is not None else f"{info.name} ="
    note = "" if value is not None else "  (not set)"
    return [*_comment(f"{info.description} [{info.allowed}]"), assignment if live else f"#{assignment}{note}"]


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)]


def toml_value(value: Any) -> str:
    """A value in TOML, on one line.

    Raises:
        TypeError: it has no TOML form (None among others).
        ValueError: it is a text with a lone surrogate.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, dict):
        pairs = (f"{k if _BARE.fullmatch(k) else _string(k)} = {toml_value(v)}" for k, v in value.items())
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    raise TypeError(f"a {type(value).__name__} has no TOML form")


def _string(text: str) -> str:
    text.encode("utf-8")  # a lone surrogate fails here
    # JSON escapes what TOML wants escaped, all but DEL; what else JSON leaves as it is TOML takes as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
