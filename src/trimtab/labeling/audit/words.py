"""An audit in plain English: one line a judge, one sentence a check."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.figures import figure, with_interval
from trimtab.labeling.audit.results import CHECKS, Audit, Check, CheckStatus, JudgeAudit

__all__ = ["check_figures", "check_sentence", "headline", "not_measurable"]


def headline(judge: JudgeAudit) -> str:
    """What to think of a judge, in a line: what is wrong, else what is known and what the sample could not show."""
    bad = judge.worst()
    if bad:
        return "; ".join(check_sentence(check) for check in bad)
    parts = []
    if judge.accuracy.value is not None:
        parts.append(f"agrees with the reference in {_rate(judge.checks['reference-agreement'])} of verdicts")
    weak = [_unshown(c) for c in judge.checks.values() if c.status is CheckStatus.UNDERPOWERED]
    fine = [c.id for c in judge.checks.values() if c.status is CheckStatus.OK and c.id != "reference-agreement"]
    if fine:
        parts.append("nothing found in " + ", ".join(fine))
    if weak:
        parts.append("too few verdicts to tell: " + ", ".join(weak))
    return "; ".join(parts) or "nothing can be measured from these columns"


def check_sentence(check: Check) -> str:
    """What a check found, with its figure."""
    if check.status is CheckStatus.NOT_MEASURABLE:
        return f"{check.id}: not measurable without {' and '.join(check.missing)}"
    text = f"{check.id}: {_SENTENCES[check.id](check)}"
    if check.status is CheckStatus.UNDERPOWERED and check.detectable is not None:
        text += f"; underpowered: {check.n} {check.unit_of_n} show {_distance(check)} or more"
    return text


def check_figures(check: Check) -> tuple[str | None, str | None, str | None]:
    """Effect with interval, p, and the smallest effect that the sample could have shown, as cells of a table."""
    if check.effect is None:
        return None, None, None
    p = None if check.p_adjusted is None else "< 0.001" if check.p_adjusted < 0.001 else f"{check.p_adjusted:.3f}"
    return _effect(check), p, None if check.detectable is None else _distance(check)


def not_measurable(audit: Audit) -> dict[str, str]:
    """The checks that no judge of the audit could be put to, with what is missing."""
    found = {}
    for name in CHECKS:
        checks = [judge.checks[name] for judge in audit.judges.values() if name in judge.checks]
        if checks and all(check.status is CheckStatus.NOT_MEASURABLE for check in checks):
            found[name] = "; ".join(dict.fromkeys(m for check in checks for m in check.missing))
    return found


def _effect(check: Check) -> str:
    if check.effect is None:
        return "-"
    percent = check.unit in ("share", "rate", "difference")
    return with_interval(check.effect, check.low, check.high, percent=percent, sign=check.unit == "difference")


def _rate(check: Check) -> str:
    return "-" if check.effect is None else with_interval(check.effect, check.low, check.high, percent=True)


def _distance(check: Check) -> str:
    assert check.detectable is not None
    return f"{figure(100 * check.detectable)} points"


def _unshown(check: Check) -> str:
    return check.id if check.detectable is None else f"{check.id} (shows {_distance(check)} or more)"


def _for(what: str) -> Callable[[Check], str]:
    """Tells the share of verdicts for something; under one half it leans away from it."""

    def sentence(check: Check) -> str:
        evened = ", references evened out" if check.details.get("adjusted") and check.null == 0.5 else ""
        return f"{_effect(check)} for {what}{evened}"

    return sentence


def _format(check: Check) -> str:
    name = check.details.get("format", "a format")
    return _for(f"the response with {name}")(check)


def _own(check: Check) -> str:
    if check.unit == "difference":
        return f"chooses its own model's responses {_effect(check)} more often than the other judges do"
    return _for("its own model's responses")(check)


def _identity(check: Check) -> str:
    return f"{check.details.get('groups', 'a group')} in {_effect(check)} of pairs that differ in that only"


def _principle(check: Check) -> str:
    return f"principle {check.details.get('least')} decides {_rate(check)} of its pairs"


def _conflict(check: Check) -> str:
    both = " and ".join(map(str, check.details.get("principles", ())))
    return f"{both} name opposite winners in {_rate(check)} of the pairs that both decide"


def _null(check: Check) -> str:
    return f"an empty or constant response wins {_rate(check)} of its comparisons with real ones"


_SENTENCES: dict[str, Callable[[Check], str]] = {
    "reference-agreement": lambda c: f"{_rate(c)} of verdicts equal the reference label",
    "position-bias": _for("the response shown first"),
    "swap-consistency": lambda c: f"{_rate(c)} of pairs change their winner with the order",
    "repeat-consistency": lambda c: f"{_rate(c)} of repeats change the verdict",
    "contradictory-repeats": lambda c: f"{_rate(c)} of repeated questions got both answers",
    "template-consistency": lambda c: f"another wording changes {_rate(c)} of verdicts, beyond repetition",
    "unparsed": lambda c: f"{_rate(c)} of calls gave no verdict",
    "length-bias": _for("the longer response"),
    "format-bias": _format,
    "self-preference": _own,
    "identity-preference": _identity,
    "identity-swap": lambda c: f"exchanging identity terms changes {_rate(c)} of verdicts",
    "principle-decisiveness": _principle,
    "principle-conflict": _conflict,
    "intransitive-triads": lambda c: f"{_rate(c)} of triads go in a circle (coins: 25 %)",
    "null-response": _null,
}
