"""Judges by name: entry points of the group `trimtab.judges`, the built-in ones like anybody else's.

An entry point names a function that takes a `JudgeContext` and returns a `Judge`. A plugin declares, in its
pyproject.toml,

    [project.entry-points."trimtab.judges"]
    mine = "my_package.judge:make"
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from trimtab.config.schema import LabelConfig
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.protocol import Judge

__all__ = ["GROUP", "JudgeContext", "judge_names", "load_judge"]

GROUP = "trimtab.judges"


@dataclass(frozen=True, slots=True)
class JudgeContext:
    """What a judge is made from.

    Args:
        config: the `label` section.
        seed: of the judge's own randomness.
        model_id: what stands for the weights of the judge's model in the label store, e.g. name and hash.
        load: returns the judge's model (a `CausalModel`: `label.model`, else the reference) and its `TextCodec`; called
            only by judges that run one.
    """

    config: LabelConfig
    seed: int = 0
    model_id: str = ""
    # Any: naming the types would tie the judges that need no model to torch
    load: Callable[[], tuple[Any, Any]] = lambda: _no_model()


def judge_names() -> list[str]:
    """Names that `label.judge` may have, sorted."""
    return sorted(_found())


def load_judge(context: JudgeContext) -> Judge:
    """Make the judge that `context.config.judge` names.

    Raises:
        TrimtabError: no such judge, a plugin that cannot be imported, or one that returns no judge.
    """
    name, found = context.config.judge, _found()
    if name not in found:
        close = difflib.get_close_matches(name, found, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        known = (
            ", ".join(sorted(found))
            or "none: install trimtab itself (`pip install -e .`), its judges are found that way"
        )
        raise TrimtabError(ErrorKind.CONFIG, f"label.judge = {name!r} is not installed", f"{hint}installed: {known}")
    point = found[name]
    try:
        make = point.load()
    except ImportError as error:
        raise TrimtabError(
            ErrorKind.MISSING,
            f"label.judge = {name!r} ({point.value}) cannot be imported: {error}",
            "judges that run a model need `pip install 'trimtab[train]'`",
        ) from error
    judge = make(context)
    if not isinstance(judge, Judge):
        raise TrimtabError(
            ErrorKind.CONFIG,
            f"label.judge = {name!r} ({point.value}) made a {type(judge).__name__}, which is no judge",
            "a judge has `identity`, `sees_order` and `judge(requests)`: see trimtab.labeling.protocol",
        )
    return judge


def _found() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _no_model() -> tuple[Any, Any]:
    raise TrimtabError(ErrorKind.CONFIG, "this judge runs a model, and none was handed to it", "set label.model")
