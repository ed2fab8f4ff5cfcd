"""What sections of settings are made of: the base class and the kinds of numbers."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = [
    "LARGEST_WHOLE",
    "Count",
    "Finite",
    "Fraction",
    "NonNegative",
    "Point",
    "Positive",
    "Section",
    "Temperature",
    "Whole",
]


def _fits_64_bits(value: int) -> int:
    if value > LARGEST_WHOLE:
        raise ValueError(f"above {LARGEST_WHOLE}")
    return value


LARGEST_WHOLE = 2**63 - 1
"""Of every whole number: generators, arrays and files take no larger ones."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1), AfterValidator(_fits_64_bits)]
Whole = Annotated[int, Field(ge=0), AfterValidator(_fits_64_bits)]
# Logits divided by less leave nothing to sample from, and overflow.
Temperature = Annotated[float, Field(ge=1e-3, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
# TOML and JSON have no tuples: a point comes as a list.
Point = Annotated[tuple[Whole, NonNegative], Field(strict=False)]


class Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, validate_default=True, use_attribute_docstrings=True
    )
