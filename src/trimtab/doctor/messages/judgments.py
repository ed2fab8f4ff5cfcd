"""What is said of judges, preference models from their scores, and pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.doctor.messages import Text, of_judges, of_scores

__all__ = ["MESSAGES"]

MESSAGES: Final[Mapping[str, Text]] = {**of_judges.MESSAGES, **of_scores.MESSAGES}
"""By `<finding-id>.<what>`."""
