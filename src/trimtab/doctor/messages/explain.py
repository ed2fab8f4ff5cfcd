"""Every finding explained: what it is, what gives it away, what else looks like it, what to do.

The order is that of the stages: reward hacking, preference model, judge and data, policy, value and reward, direct
preference optimisation, evaluation, the log itself. What to do comes from the plan that prescriptions are made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.doctor.messages import Text
from trimtab.doctor.messages.explain_labels import LABELS
from trimtab.doctor.messages.explain_lengths import LENGTHS
from trimtab.doctor.messages.explain_policy import POLICY
from trimtab.doctor.messages.explain_preference import PREFERENCE
from trimtab.doctor.messages.explain_rest import REST
from trimtab.doctor.messages.of_checks import CHECKS
from trimtab.doctor.messages.of_knobs import KNOBS, NAMES
from trimtab.doctor.plan import PLAN, Step

__all__ = ["MESSAGES"]


def _fixes(steps: tuple[Step, ...]) -> Text:
    told = [_fix(step) for step in steps]
    return Text("\n".join(text.en for text in told), "\n".join(text.zh for text in told))


def _fix(step: Step) -> Text:
    why = WHY[step.why]
    if not step.knob:
        return why
    name, amount = NAMES[step.knob], f"{step.amount:g}" if isinstance(step.amount, float) else step.amount
    how = {
        "x": Text(f"times {amount}", f"乘以 {amount}"),
        "=": Text(f"to {_word(amount)}", f"设为 {_word(amount)}"),
        ">=": Text(f"at least {amount}", f"至少 {amount}"),
        "<=": Text(f"at most {amount}", f"至多 {amount}"),
        ">": Text(f"above {amount}", f"大于 {amount}"),
    }[step.rule]
    return Text(f"{name.en[0].upper()}{name.en[1:]} {how.en}. {why.en}", f"{name.zh}{how.zh}。{why.zh}")


def _word(amount: object) -> str:
    if isinstance(amount, list):
        return ", ".join(map(str, amount))
    return ("on" if amount else "off") if isinstance(amount, bool) else str(amount)


WHY: Final[Mapping[str, Text]] = {**KNOBS, **CHECKS}
_PAGES: Final[Mapping[str, Text]] = {**PREFERENCE, **LABELS, **POLICY, **LENGTHS, **REST}

MESSAGES: Final[Mapping[str, Text]] = {
    **_PAGES,
    **{f"{id}.fixes": _fixes(tuple(steps)) for id, steps in PLAN.items()},
}
"""By `<finding-id>.title`, `.what`, `.signals`, `.confusers`, `.fixes`; the last three have one item a line."""
