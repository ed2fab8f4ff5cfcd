"""YAML as plain values, without its surprises.

Only mappings, lists, texts, numbers, booleans and null: any other tag is an error that is never obeyed, and what looks
like a date stays a text. A key given twice is an error, as in TOML. Aliases are resolved, but not when they hold
themselves, nor when a few lines of them stand for millions of values.
"""

from __future__ import annotations

from typing import Any

import yaml

__all__ = ["plain_yaml"]

_MOST_VALUES = 200_000
_KNOWN = {f"tag:yaml.org,2002:{name}" for name in ("map", "seq", "str", "int", "float", "bool", "null")}
_AS_TEXT = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")
_MERGE = "tag:yaml.org,2002:merge"


def plain_yaml(text: str) -> Any:
    """The value of a YAML document.

    Raises:
        ValueError: it is no YAML, or has what is not allowed here; the line is named.
    """
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        return None if root is None else _Values(loader).of(root)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    finally:
        loader.dispose()


class _Values:
    """Values of nodes; counts them, and knows which ones it is inside of."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self._loader, self._made = loader, 0
        self._inside: set[int] = set()

    def of(self, node: yaml.Node) -> Any:
        self._made += 1
        if self._made > _MOST_VALUES:
            raise ValueError(f"its aliases stand for more than {_MOST_VALUES:,} values")
        if node.tag not in _KNOWN and node.tag not in _AS_TEXT:
            raise _wrong(node, f"the tag {node.tag[:60]} is not known here")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._inside:
            raise _wrong(node, "an alias stands for what it is part of")
        self._inside.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.of(item) for item in node.value]
            return self._mapping(node)
        finally:
            self._inside.discard(id(node))

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        if node.tag in _AS_TEXT:
            return node.value
        try:
            return self._loader.construct_object(node)
        except (KeyError, ValueError):
            raise _wrong(node, f"{node.value[:60]!r} is no {node.tag.rpartition(':')[2]}") from None

    def _mapping(self, node: yaml.Node) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                found = self.of(value)
                for table in found if isinstance(found, list) else [found]:
                    if not isinstance(table, dict):
                        raise _wrong(key, "<< takes in mappings only")
                    merged = {**table, **merged}
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise _wrong(key, "a key is a text")
            name = self.of(key)
            if name in made:
                raise _wrong(key, f"the key {key.value[:60]!r} is given twice")
            made[name] = self.of(value)
        return {**merged, **made}


def _wrong(node: yaml.Node, what: str) -> ValueError:
    return ValueError(f"line {node.start_mark.line + 1}, column {node.start_mark.column + 1}: {what}")
