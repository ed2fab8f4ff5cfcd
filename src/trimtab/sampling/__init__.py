"""Responses, candidate pairs and revisions from models.

`trimtab.sampling.sample_pairs` is what `trimtab sample` runs, `sample_revisions` what `trimtab sft` runs first where
the constitution is its source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.sampling.critique import sample_revisions
    from trimtab.sampling.pairs import sample_pairs, summarise
    from trimtab.sampling.responses import sample_responses

__all__ = ["sample_pairs", "sample_responses", "sample_revisions", "summarise"]


def __getattr__(name: str) -> Any:
    # on first use: importing the package must not load torch
    if name in ("sample_pairs", "summarise"):
        from trimtab.sampling import pairs

        return getattr(pairs, name)
    if name == "sample_responses":
        from trimtab.sampling.responses import sample_responses

        return sample_responses
    if name == "sample_revisions":
        from trimtab.sampling.critique import sample_revisions

        return sample_revisions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
