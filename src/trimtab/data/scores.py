"""Files of margins by pair: what a preference model says of pairs, as JSON lines with `id` and `margin`."""

from __future__ import annotations

import os
from typing import Any

from trimtab.data.lines import LineError, number_of, read_lines

__all__ = ["read_margins"]


def read_margins(path: str | os.PathLike[str]) -> dict[str, float]:
    """id -> score of the chosen minus score of the rejected response.

    A line has `id` and either `margin`, or `chosen_score` and `rejected_score`.

    Raises:
        TrimtabError: the file is missing or empty, or a line is broken; it is named with its number.
    """
    seen: set[str] = set()

    def parse(record: dict[str, Any], number: int) -> tuple[str, float]:
        name = record.get("id")
        if not isinstance(name, str | int) or isinstance(name, bool):
            raise LineError("id is missing; it is the id of a pair")
        if str(name) in seen:
            raise LineError(f"id {str(name)!r} was given before")
        seen.add(str(name))
        margin = number_of(record, "margin")
        if margin is None:
            chosen, rejected = number_of(record, "chosen_score"), number_of(record, "rejected_score")
            if chosen is None or rejected is None:
                raise LineError("margin is missing, and there are no chosen_score and rejected_score")
            margin = chosen - rejected
        return str(name), margin

    return dict(read_lines(path, "margins", parse))
