"""The pairs that recipes are measured on, read from ../shared/data, which is no part of the project."""

from __future__ import annotations

from pathlib import Path

from trimtab.data.readers import read
from trimtab.data.records import Pair

__all__ = ["SETS", "domain", "load"]

SHARED = Path(__file__).parents[3] / "shared" / "data"
SETS = {"LLMBar Natural": "llmbar/Natural/dataset.json", "HHH": "prometheus/hhh_alignment_eval.json"}
DOMAINS = ("honest", "helpful", "harmless", "other")


def load(name: str) -> list[Pair] | None:
    """The pairs of a set, the better response as `chosen`; None where the file is absent."""
    path = SHARED / SETS[name]
    return list(read(path).pairs) if path.is_file() else None


def domain(pair: Pair) -> str:
    """The domain of a pair of HHH; `natural` for other sets."""
    return next((tag for tag in pair.prompt.tags if tag in DOMAINS), "natural")
