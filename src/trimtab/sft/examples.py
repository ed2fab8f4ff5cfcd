"""What is trained on: revisions mixed with demonstrations, and the part that is held out."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.data.demonstrations import Demonstration
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.seeds import numpy_stream
from trimtab.training.splits import hold_out

__all__ = ["mix", "split_by_prompt"]


def mix(
    revisions: Sequence[Demonstration], demonstrations: Sequence[Demonstration], share: float | None, seed: int
) -> list[Demonstration]:
    """Revisions, followed by as many demonstrations as make up `share` of the whole.

    Args:
        revisions: all of them are taken, once.
        demonstrations: where more are wanted than there are, they are taken several times over; the rest is drawn.
        share: of demonstrations in the result, in (0, 1), to the nearest example; None: every demonstration once.
        seed: of the drawing.
    """
    if share is None or not demonstrations or not revisions:
        return [*revisions, *demonstrations]
    wanted = round(len(revisions) * share / (1.0 - share))
    times, rest = divmod(wanted, len(demonstrations))
    drawn = numpy_stream(seed, "sft", "mix").permutation(len(demonstrations))[:rest]
    return [*revisions, *(list(demonstrations) * times), *(demonstrations[i] for i in sorted(drawn))]


def split_by_prompt(
    demonstrations: Sequence[Demonstration], fraction: float, seed: int
) -> tuple[list[Demonstration], list[Demonstration]]:
    """The demonstrations to train on, and those of `fraction` of the prompts, held out; in their order.

    All demonstrations of one prompt (the same messages) lie on one side. Above 0, at least one prompt is held out and
    one is not.

    Raises:
        TrimtabError: a part is to be held out of fewer than two prompts.
    """
    if fraction == 0 or not demonstrations:
        return list(demonstrations), []
    found = hold_out(demonstrations, fraction, seed, "sft")
    if found is None:
        raise TrimtabError(
            ErrorKind.DATA,
            f"{len(demonstrations)} demonstrations of one prompt cannot be split",
            "set sft.validation_fraction = 0, or add demonstrations of other prompts",
        )
    return found
