"""Detectors of other packages: found, asked, and believed only as far as what they say has the right form.

Whatever somebody else's code does, our own findings are told; what went wrong becomes a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from numbers import Real
from operator import index
from typing import Any, get_args

from trimtab.doctor.detector import GROUP, Detector
from trimtab.doctor.finding import Evidence, Finding, Message, NotDiagnosable, Prescription, Reason, Severity
from trimtab.doctor.log import Skipped

__all__ = ["ask", "is_plugin", "plugins"]

Verdict = Finding | NotDiagnosable
_LARGEST = 2**63


def plugins() -> tuple[list[Detector], list[Skipped]]:
    """The detectors that installed packages offer; one that cannot be loaded is a note."""
    known: list[Detector] = []
    notes: list[Skipped] = []
    for entry in entry_points(group=GROUP):
        try:
            loaded = list(entry.load())
            good = [d for d in loaded if isinstance(d, Detector)]
        except (Exception, SystemExit) as error:  # noqa: BLE001 - somebody else's code must not hide our findings
            notes.append(_note(entry.name, error))
            continue
        known += good
        if len(good) < len(loaded):
            notes.append(Skipped("plugin", len(loaded) - len(good), None, f"{entry.name}: not a detector"))
    return known, notes


def is_plugin(detector: Detector) -> bool:
    """Whether it is not ours; ours may fail loudly."""
    return not type(detector).__module__.startswith("trimtab.")


def ask(detector: Detector, material: Any) -> tuple[list[str], list[Verdict], list[Skipped]]:
    """What a plugin looked for in `material`, what it says, and what went wrong; no id: it does not read this."""
    name = type(detector).__qualname__
    try:
        if not detector.reads(material):
            return [], [], []
        ids = [str(i) for i in detector.ids]
        said = list(detector.look(material))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - somebody else's code
        return [], [], [_note(name, error)]
    verdicts: list[Verdict] = []
    notes: list[Skipped] = []
    for verdict in said:
        try:
            verdicts.append(_checked(verdict))
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            notes.append(_note(f"{name}: a verdict of the wrong form", error))
    return ids, verdicts, notes


def _note(name: str, error: BaseException) -> Skipped:
    return Skipped("plugin", 1, None, f"{name}: {type(error).__name__}: {error}"[:500])


def _checked(verdict: Any) -> Verdict:
    """The verdict with plain values throughout.

    Raises:
        TypeError, ValueError, AttributeError, OverflowError: something in it is of the wrong kind.
    """
    if isinstance(verdict, NotDiagnosable):
        needed: Any = verdict.missing
        missing = (needed,) if isinstance(needed, str) else tuple(map(str, needed))
        reason = verdict.reason if verdict.reason in get_args(Reason) else "missing"
        return NotDiagnosable(_text(verdict.id), missing, reason)
    if not isinstance(verdict, Finding):
        raise TypeError(f"{type(verdict).__name__} is no finding")
    return replace(
        verdict,
        id=_text(verdict.id),
        severity=Severity(verdict.severity),
        onset_step=_whole(verdict.onset_step),
        evidence=tuple(_evidence(item) for item in verdict.evidence),
        cause=_message(verdict.cause),
        ruled_out=tuple(_message(item) for item in verdict.ruled_out),
        prescriptions=tuple(_prescription(item) for item in verdict.prescriptions),
        source=_text(verdict.source or ""),
        because_of=None,
        where=_text(verdict.where or ""),
    )


def _evidence(item: Evidence) -> Evidence:
    value = None if item.value is None else float(item.value)
    curve = tuple(float(x) for x in item.curve)
    return Evidence(_message(item.text), _text(item.signal or ""), _whole(item.step), value, curve)


def _prescription(item: Prescription) -> Prescription:
    settings = {_text(key): _plain(value) for key, value in item.set.items()}
    return Prescription(settings, _message(item.why), _text(item.command or ""))


def _message(message: Any) -> Message:
    if isinstance(message, str):
        return Message(message)
    if not isinstance(message, Message) or not isinstance(message.values, Mapping):
        raise TypeError(f"{type(message).__name__} is no message")
    return Message(_text(message.key), message.values)


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where a text is expected")
    return value


def _whole(step: Any) -> int | None:
    if step is None:
        return None
    whole = index(int(float(step)) if isinstance(step, Real) and not hasattr(step, "__index__") else step)
    if abs(whole) > _LARGEST:
        raise OverflowError("a step beyond all runs")
    return whole


def _plain(value: Any) -> Any:
    """A setting that JSON can hold."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Real):
        return index(value) if hasattr(value, "__index__") else float(value)
    if isinstance(value, Iterable) and not isinstance(value, Mapping | bytes):
        return [_plain(item) for item in value]
    return str(value)
