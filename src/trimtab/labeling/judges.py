"""Judges by name: entry points of the group `trimtab.judges`, the built-in ones like anybody else's.

An entry point names a function that takes a `JudgeContext` and returns a `Judge`. A plugin declares, in its
pyproject.toml,

    [project.entry-points."trimtab.judges"]
    mine = "my_package.judge:make"
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from trimtab.config.schema import LabelConfig
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.budget import Budget
from trimtab.labeling.protocol import Judge, JudgeIdentity
from trimtab.labeling.templates import PLAIN, Template, load_template

__all__ = ["GROUP", "JudgeContext", "check_panel", "judge_names", "load_judge", "load_panel"]

GROUP = "trimtab.judges"


@dataclass(frozen=True, slots=True)
class JudgeContext:
    """What a judge is made from.

    Args:
        config: the `label` section, as if this were the only judge.
        seed: of the judge's own randomness.
        model_id: what stands for the weights of the judge's model in the label store, e.g. name and hash.
        load: returns the judge's model (a `CausalModel`: `label.model`, else the reference) and its `TextCodec`; called
            only by judges that run one.
        template: the wording, for judges that ask in words.
        budget: for judges that make calls of their own: asked before each.
        shared: kept between the judges of one panel, e.g. the connection to a server.
    """

    config: LabelConfig
    seed: int = 0
    model_id: str = ""
    # Any: naming the types would tie the judges that need no model to torch
    load: Callable[[], tuple[Any, Any]] = lambda: _no_model()
    template: Template = PLAIN
    budget: Budget | None = None
    shared: MutableMapping[Any, Any] = field(default_factory=dict)


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
            "judges that run a model need `pip install 'trimtab[train]'`, judges behind a server `pip install "
            "'trimtab[openai]'`",
        ) from error
    judge = make(context)
    if not isinstance(judge, Judge):
        raise TrimtabError(
            ErrorKind.CONFIG,
            f"label.judge = {name!r} ({point.value}) made a {type(judge).__name__}, which is no judge",
            "a judge has `identity`, `sees_order` and `judge(requests)`: see trimtab.labeling.protocol",
        )
    return judge


def check_panel(config: LabelConfig, directory: Path = Path()) -> None:
    """Refuse what can be refused before a judge is made: unknown names, broken wordings, a key that is not set.

    Raises:
        TrimtabError: naming the setting.
    """
    known = judge_names()
    for member in config.members().values():
        if member.judge not in known:
            raise TrimtabError(
                ErrorKind.CONFIG, f"label.judge = {member.judge!r} is not installed", f"installed: {', '.join(known)}"
            )
        if member.api_key_env is not None and not os.environ.get(member.api_key_env, "").strip():
            raise TrimtabError(
                ErrorKind.MISSING,
                f"label.api_key_env = {member.api_key_env!r}: there is no such environment variable, or it is empty",
                "set it to the key; the key itself belongs in no file",
            )
    for name in config.templates:
        load_template(name, directory)


def load_panel(
    config: LabelConfig,
    *,
    seed: int = 0,
    directory: Path = Path(),
    models: Callable[[LabelConfig], tuple[str, Callable[[], tuple[Any, Any]]]] = lambda member: ("", _no_model),
    budget: Budget | None = None,
) -> list[Judge]:
    """Every judge of the `label` section in every wording; those that do not ask in words once.

    Args:
        config: the section.
        seed: of the judges' own randomness.
        directory: where the files of wordings are looked for.
        models: for one judge, what stands for the weights of its model in the label store, and a function that loads
            model and codec.
        budget: of all judges together.

    Raises:
        TrimtabError: as `load_judge`; a wording that is not there or broken.
    """
    templates = [load_template(name, directory) for name in config.templates]
    shared: dict[Any, Any] = {}
    found: dict[JudgeIdentity, Judge] = {}
    for member in config.members().values():
        model_id, load = models(member)
        once = cache(load)
        for template in templates:
            judge = load_judge(JudgeContext(member, seed, model_id, once, template, budget, shared))
            found.setdefault(judge.identity, judge)
    return list(found.values())


def _found() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _no_model() -> tuple[Any, Any]:
    raise TrimtabError(ErrorKind.CONFIG, "this judge runs a model, and none was handed to it", "set label.model")
