"""The parts of OpenAI's chat completions that a judge writes and reads, whatever a server made of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trimtab.labeling.extraction import Token

__all__ = ["JSON_ONLY", "content_of", "schema", "tokens_of"]

JSON_ONLY = (
    ' Reply with JSON only: {"verdict": "A"}, {"verdict": "B"} or {"verdict": "tie"}.',
    ' Reply with JSON only: {"reasons": "...", "verdict": "A"}; the verdict is "A", "B" or "tie".',
)
"""Closes a question that is answered in JSON: without and with reasons."""


def schema(rationale: bool) -> dict[str, Any]:
    """The `response_format` of a verdict, with reasons before it where they are wanted."""
    properties: dict[str, Any] = {"reasons": {"type": "string"}} if rationale else {}
    properties["verdict"] = {"type": "string", "enum": ["A", "B", "tie"]}
    verdict = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": verdict}}


def content_of(value: Mapping[str, Any]) -> str | None:
    """What the model wrote; None where the message has no text."""
    content = value["choices"][0]["message"].get("content")
    return content if isinstance(content, str) else None


def tokens_of(value: Mapping[str, Any]) -> list[Token]:
    """The tokens with their likeliest alternatives; empty where the server gives none, or something else."""
    logprobs = value["choices"][0].get("logprobs")
    listed = logprobs.get("content") if isinstance(logprobs, dict) else None
    tokens = []
    for item in listed if isinstance(listed, list) else []:
        top = item.get("top_logprobs") if isinstance(item, dict) else None
        if not isinstance(top, list) or not isinstance(item.get("token"), str):
            return []
        found = {
            t["token"]: float(t["logprob"])
            for t in top
            if isinstance(t, dict) and isinstance(t.get("token"), str) and _is_logprob(t.get("logprob"))
        }
        if not found:
            return []
        tokens.append(Token(item["token"], found))
    return tokens


def _is_logprob(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value) and value < 1e-3
