"""Why each prescribed change helps, and what there is to check or do where no knob does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.doctor.messages import Text
from trimtab.doctor.messages.of_checks import CHECKS
from trimtab.doctor.messages.of_knobs import KNOBS, NAMES

__all__ = ["MESSAGES"]

MESSAGES: Final[Mapping[str, Text]] = {
    **{f"prescribe.{name}": text for name, text in {**KNOBS, **CHECKS}.items()},
    **{f"knob.{name}": text for name, text in NAMES.items()},
    "prescribe.no-key": Text(
        "{why} {framework} has no key for it ({knob}: {change}): it takes a change in the code.",
        "{why}{framework} 没有对应的配置项（{knob}：{change}），需要改代码。",
    ),
    "prescribe.contradicts": Text(
        "{key} is left alone here: the advice for {other} turns it the other way, and {other} comes first.",
        "这里不动 {key}：针对 {other} 的建议要把它往相反方向调，而 {other} 在先。",
    ),
}
"""By `prescribe.<why>` and `knob.<name>`."""
