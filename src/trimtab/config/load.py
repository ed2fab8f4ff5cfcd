"""Settings from the defaults, a TOML file and `--set`, in this order; every problem is named in plain words."""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from trimtab.config.describe import fields, flatten, nearest_key, sections
from trimtab.config.fields import LARGEST_WHOLE
from trimtab.config.presets import PRESETS
from trimtab.config.schema import Config
from trimtab.config.template import write_toml
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["Resolved", "Row", "default_config", "json_schema", "load_config", "write_toml"]

Tree = dict[str, dict[str, Any]]


class Row(NamedTuple):
    """One setting as resolved: its dotted key, its value as JSON, and where that is from."""

    key: str
    value: Any
    origin: str


@dataclass(frozen=True)
class Resolved:
    """Settings with their origins.

    `origins` maps every dotted key to `default`, `--set`, or `<file>:<line>`. `directory`: the project, which relative
    paths in the settings start from.
    """

    config: Config
    origins: Mapping[str, str]
    directory: Path

    def rows(self) -> list[Row]:
        """Every setting in order."""
        return [Row(key, value, self.origins[key]) for key, value in flatten(self.config).items()]


@dataclass
class _Layers:
    """The values given so far, where each is from, and what is wrong with them."""

    source: str = "settings"
    tree: Tree = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def put(self, section: str, name: str, value: Any, origin: str) -> None:
        key = f"{section}.{name}"
        if key not in fields():
            self.problems.append(_unknown(key, origin))
            return
        self.tree.setdefault(section, {})[name] = value
        self.origins[key] = origin


def load_config(path: str | os.PathLike[str] | None = None, overrides: Sequence[str] = ()) -> Resolved:
    """Resolve the settings: defaults < file < overrides.

    Args:
        path: a TOML file; None = defaults only, relative to the current directory.
        overrides: `section.key=value`, the value in TOML; what is no TOML value is a text (`model.name=my/model`), and
            `none` unsets a setting that may be unset. The last of several for one key holds.

    Raises:
        TrimtabError: a file that cannot be read, an unknown key (the nearest is named), a value out of range (key,
            value and allowed range are named), settings at odds; all problems are listed.
    """
    layers = _Layers()
    directory = Path.cwd()
    if path is not None:
        path = Path(path)
        directory = path.parent.resolve()
        layers.source = str(path)
        _read_file(path, layers)
    for override in overrides:
        _apply_override(override, layers)
    config = _validate(layers)
    return Resolved(config, {key: layers.origins.get(key, "default") for key in fields()}, directory)


def default_config(preset: str | None = None, **values: Any) -> Config:
    """A preset's settings (None: the defaults), with some changed: `default_config("tiny", **{"ppo.beta": 0.1})`.

    Raises:
        TrimtabError: there is no such preset or key, or a value is out of range.
    """
    layers = _Layers()
    if preset is not None:
        if preset not in PRESETS:
            raise TrimtabError(
                ErrorKind.CONFIG, f"there is no preset {preset!r}", f"There are {', '.join(map(repr, PRESETS))}."
            )
        for section, table in PRESETS[preset].items():
            for name, value in table.items():
                layers.put(section, name, value, f"preset {preset}")
    for key, value in values.items():
        section, _, name = key.replace("__", ".").partition(".")
        layers.put(section, name, value, "argument")
    return _validate(layers)


def json_schema() -> dict[str, Any]:
    """The JSON schema of trimtab.toml, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Config.model_json_schema(),
        "title": "trimtab.toml",
    }


# the file


def _read_file(path: Path, layers: _Layers) -> None:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise TrimtabError(ErrorKind.CONFIG, f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TrimtabError(ErrorKind.CONFIG, f"{path}: is not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TrimtabError(ErrorKind.CONFIG, f"{path}: is not valid TOML: {error}") from None
    except ValueError:  # only a whole number of thousands of digits
        raise TrimtabError(ErrorKind.CONFIG, f"{path}: holds a number with too many digits") from None
    except RecursionError:
        raise TrimtabError(ErrorKind.CONFIG, f"{path}: holds lists or tables that are nested too deeply") from None
    lines = _key_lines(text)
    for section, table in document.items():
        where = _place(path, lines.get(section))
        if section not in sections():
            layers.problems.append(_unknown(section, where))
        elif not isinstance(table, dict):
            layers.problems.append(f"{where}: {section} = {_show(table)}: it is a section, written [{section}]")
        else:
            for name, value in table.items():
                layers.put(section, name, value, _place(path, lines.get(f"{section}.{name}", lines.get(section))))


def _place(path: Path, line: int | None) -> str:
    return str(path) if line is None else f"{path}:{line}"


_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")


def _key_lines(text: str) -> dict[str, int]:
    """Line numbers of the headers and keys of a TOML text, for messages: lines inside long strings may confuse it."""
    lines: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        if header := _HEADER.match(line):
            section = header[1].strip("\"'")
            lines.setdefault(section, number)
        elif key := _KEY.match(line):
            parts = [part.strip().strip("\"'") for part in key[1].split(".")]
            dotted = ".".join([section, *parts] if section else parts)
            lines.setdefault(dotted, number)
            lines.setdefault(".".join(dotted.split(".")[:2]), number)
            lines.setdefault(dotted.split(".")[0], number)
    return lines


# --set


def _apply_override(override: str, layers: _Layers) -> None:
    key, equals, text = override.partition("=")
    section, dot, name = key.strip().partition(".")
    if not equals or not dot:
        layers.problems.append(f"--set {override}: is not of the form section.key=value")
        return
    try:
        value = _parse_value(f"{section}.{name}", text.strip())
    except RecursionError:
        layers.problems.append(f"--set {key.strip()} = {text.strip()[:40]}...: is nested too deeply")
        return
    layers.put(section, name, value, "--set")


def _parse_value(key: str, text: str) -> Any:
    """A TOML value, else a text; a text as well where the setting takes texts but not the value's type."""
    kinds = fields()[key].kinds if key in fields() else frozenset({"string"})
    if text.lower() == "none" and "null" in kinds:
        return None
    try:
        document = tomllib.loads(f"v = {text}")
    except ValueError:  # no TOML, or a whole number of thousands of digits
        return text
    value = document["v"]
    kind = {bool: "boolean", int: "integer", float: "number"}.get(type(value))
    if set(document) != {"v"} or ("string" in kinds and not isinstance(value, str | list | dict) and kind not in kinds):
        return text
    return value


# validation


def _validate(layers: _Layers) -> Config:
    problems = list(layers.problems)
    config = None
    try:
        config = Config.model_validate(layers.tree)
    except ValidationError as error:
        problems += [line for detail in error.errors() for line in _problem(dict(detail), layers)]
    if problems or config is None:
        raise TrimtabError(ErrorKind.CONFIG, "\n".join(dict.fromkeys(problems)))
    return config


def _problem(detail: dict[str, Any], layers: _Layers) -> list[str]:
    """A pydantic error in plain words."""
    location = [str(part) for part in detail["loc"]]
    key = ".".join(location[:2])
    if len(location) >= 2 and key in fields():
        value = layers.tree[location[0]][location[1]]
        if len(location) > 2 and fields()[key].allowed.endswith("tables"):
            inside = ".".join(part for part in location[2:] if part not in ("[key]",))
            return [f"{layers.origins[key]}: {key}.{inside} = {_show(detail.get('input'))}: {_lower(detail['msg'])}"]
        more = f", at most {LARGEST_WHOLE}" if isinstance(value, int) and value > LARGEST_WHOLE else ""
        if not more and detail["type"] == "value_error":
            more = f"; {detail['ctx']['error']}"
        return [f"{layers.origins[key]}: {key} = {_show(value)}: it must be {fields()[key].allowed}{more}"]
    if detail["type"] == "value_error":
        lines = str(detail["ctx"]["error"]).split("\n")
        section = f"[{location[0]}] " if location else ""
        return [f"{layers.source}: {section}{line}" for line in lines]
    return [f"{layers.source}: {'.'.join(location)}: {detail['msg']}"]


RESTRICTED_SAMPLING = frozenset(
    {"top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "no_repeat_ngram_size", "min_length",
     "min_new_tokens", "num_beams", "do_sample"}
)  # fmt: skip
"""Settings of other generators that Trimtab has none of on purpose, see `_unknown`."""


REPLACED = {
    "model.shared_layers": 'model.trainable = "top:<layers>" says how many layers at the top are trained; '
    "those below are frozen and shared"
}
"""Settings that are gone, with what does their work."""


def _unknown(key: str, where: str) -> str:
    section, _, name = key.partition(".")
    if key in REPLACED:
        return f"{where}: there is no {key} any more: {REPLACED[key]}"
    if name in RESTRICTED_SAMPLING:
        return (
            f"{where}: there is no {key}: responses are sampled from the whole softmax. With a restricted sampler the "
            "log-probabilities are not those of the tokens' distribution, KL to the reference turns negative and is "
            f"exploited; {section}.temperature is the one knob"
        )
    near = nearest_key(key)
    if "." not in key:
        close = difflib.get_close_matches(key, list(sections()), n=1)
        advice = f"did you mean [{close[0]}]?" if close else f"did you mean {near}?" if near else ""
        return f"{where}: unknown section or key {key!r}" + (f", {advice}" if advice else "")
    what = f"unknown key {key!r}" if section in sections() else f"unknown section {section!r} in {key!r}"
    return f"{where}: {what}" + (f", did you mean {near!r}?" if near else "")


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _show(value: Any) -> str:
    """A value as one would write it, shortened, and without the user and password of a URL."""
    try:
        text = "none" if value is None else json.dumps(value, default=str)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__} that is nested too deeply or has too many digits"
    text = re.sub("://.*@", "://***@", text)
    return text if len(text) <= 80 else text[:77] + "..."
