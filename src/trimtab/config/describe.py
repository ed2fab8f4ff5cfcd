"""The settings as a flat list of dotted keys, each with its description and the values it allows, in words."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel

from trimtab.config.schema import Config

__all__ = ["FieldInfo", "fields", "flatten", "nearest_key", "section_description", "sections"]


@dataclass(frozen=True)
class FieldInfo:
    """One setting. `allowed`: what it may be, in words. `kinds`: JSON types it may have, `null` among them."""

    section: str
    name: str
    default: Any
    description: str
    allowed: str
    kinds: frozenset[str]

    @property
    def key(self) -> str:
        """The dotted key, `section.name`."""
        return f"{self.section}.{self.name}"


@cache
def sections() -> dict[str, type[BaseModel]]:
    """The sections of the tree, in order."""
    found = {name: info.annotation for name, info in Config.model_fields.items()}
    return {name: model for name, model in found.items() if isinstance(model, type) and issubclass(model, BaseModel)}


def section_description(section: str) -> str:
    """What a section is about."""
    return (sections()[section].__doc__ or "").strip()


@cache
def fields() -> dict[str, FieldInfo]:
    """Every setting by its dotted key, in order."""
    found = {}
    for section, model in sections().items():
        properties = model.model_json_schema()["properties"]
        default = flatten_section(model())
        for name in model.model_fields:
            schema = properties[name]
            info = FieldInfo(
                section,
                name,
                default[name],
                " ".join((model.model_fields[name].description or "").split()),
                _allowed(schema) + " (or not set)" * ("null" in _kinds(schema)),
                frozenset(_kinds(schema)),
            )
            found[info.key] = info
    return found


def flatten_section(section: BaseModel) -> dict[str, Any]:
    """A section's values as JSON, by name."""
    return section.model_dump(mode="json")


def flatten(config: Config) -> dict[str, Any]:
    """All values as JSON, by dotted key."""
    return {f"{s}.{name}": v for s in sections() for name, v in flatten_section(getattr(config, s)).items()}


def nearest_key(key: str) -> str | None:
    """The dotted key that `key` was probably meant to be: a near name in its section, else the name in another."""
    section, _, name = key.partition(".")
    if name:
        section = next(iter(difflib.get_close_matches(section, list(sections()), n=1)), section)
        whole = f"{section}.{name.partition('.')[0]}"
        if whole in fields():  # a key below a setting that is a table as a whole
            return whole
        here = [f for f in fields().values() if f.section == section]
        if near := difflib.get_close_matches(name, [f.name for f in here], n=1):
            return f"{section}.{near[0]}"
    leaf = name or key
    elsewhere = {f.name: k for k, f in reversed(fields().items())}
    near = difflib.get_close_matches(leaf, list(elsewhere), n=1)
    return elsewhere[near[0]] if near else None


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    if "anyOf" in schema:
        return set().union(*(_kinds(option) for option in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return {"string"}
    return {str(schema.get("type", "any"))}


def _allowed(schema: Mapping[str, Any]) -> str:
    """A JSON schema in words."""
    if "x-allowed" in schema:
        return str(schema["x-allowed"])
    if "anyOf" in schema:
        options = [_allowed(option) for option in schema["anyOf"] if option.get("type") != "null"]
        return " or ".join(options)
    if "$ref" in schema:
        return "tables"
    if "enum" in schema:
        return "one of " + ", ".join(f'"{value}"' for value in schema["enum"])
    kind = schema.get("type")
    if kind in ("number", "integer"):
        return ("a number" if kind == "number" else "a whole number") + _bounds(schema)
    if kind == "string":
        if "pattern" in schema:
            return f"a text that fits {schema['pattern']}"
        return "a text that is not empty" if schema.get("minLength") else "a text"
    if kind == "array":
        if "prefixItems" in schema:
            return "[" + ", ".join(_allowed(item) for item in schema["prefixItems"]) + "]"
        return f"a list of: {_allowed(schema.get('items', {}))}"
    if kind == "object":
        return f"a table of: {_allowed(schema.get('additionalProperties', {}))}"
    return {"boolean": "true or false"}.get(str(kind), "anything")


def _bounds(schema: Mapping[str, Any]) -> str:
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}"
    words = [f"from {low:g} on"] if low is not None else [f"above {above:g}"] if above is not None else []
    words += [f"up to {high:g}"] if high is not None else [f"below {below:g}"] if below is not None else []
    return f" {' and '.join(words)}" if words else ""
