"""`diagnose`: read what a run left behind, look at it with every detector, and tell one story.

diagnosis = trimtab.doctor.diagnose("runs/mine")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.doctor.conclusive import conclusive
from trimtab.doctor.detector import Detector
from trimtab.doctor.detectors import LOG_DETECTORS
from trimtab.doctor.diagnosis import Diagnosis, Status
from trimtab.doctor.finding import Finding, NotDiagnosable
from trimtab.doctor.log import Log, Skipped
from trimtab.doctor.plugins import ask, is_plugin, plugins
from trimtab.doctor.prescriptions import prescribe, reconcile
from trimtab.doctor.story import tell

if TYPE_CHECKING:
    from trimtab.doctor.judgments import JudgmentMaterial

    Material = Log | JudgmentMaterial

_Place = tuple[Finding, str, str]
"""A finding, its stage, and where it was made."""

__all__ = ["detectors", "diagnose", "diagnose_materials"]


def diagnose(path_or_run: str | Path | Any, *, mapping: Mapping[str, str] | None = None) -> Diagnosis:
    """What is wrong with a run, since when, and why.

    Args:
        path_or_run: a log, a directory of logs, a run, a project, or a file of judgments, scores or pairs; or an
            object with such a path as its `path` (`trimtab.runs.Run`).
        mapping: for logs with names of their own: canonical key -> name in the log.

    Raises:
        TrimtabError: kinds of `importers.read`: nothing there, not readable, nothing recognisable in it.
    """
    from trimtab.doctor import importers

    path = getattr(path_or_run, "path", path_or_run)
    return diagnose_materials(importers.read(Path(path), mapping=dict(mapping or {})))


def diagnose_materials(materials: Sequence[Material], *, extra: Sequence[Detector] = ()) -> Diagnosis:
    """The same of materials that are in memory already; no file is read.

    Args:
        materials: logs and judgments; several are told as one chain, from labels to policy.
        extra: detectors besides the built-in ones and those of plugins.
    """
    known, notes = detectors(judgments=any(not isinstance(m, Log) for m in materials))
    found: list[_Place] = []
    unmade: list[NotDiagnosable] = []
    checked: dict[str, None] = {}
    concluded: list[bool] = []
    several = len(materials) > 1
    for material in materials:
        stage = material.stage.value if isinstance(material, Log) else material.stage
        place = material.path if isinstance(material, Log) else material.beside or material.path
        here: list[NotDiagnosable] = []
        looked: set[str] = set()
        findings: list[Finding] = []
        for detector in (*known, *extra):
            if is_plugin(detector):
                asked, verdicts, note = ask(detector, material)
                looked.update(asked)
                notes += note
            elif detector.reads(material):
                looked.update(detector.ids)
                verdicts = list(detector.look(material))
            else:
                continue
            findings += [v for v in verdicts if isinstance(v, Finding)]
            here += [v for v in verdicts if isinstance(v, NotDiagnosable)]
        found += [(_finished(f, material, several), stage, place) for f in _one_each(findings)]
        ids = {f.id for f in findings}
        if not isinstance(material, Log):  # what a probe looked for need not show in the scores
            here = [n for n in here if n.id not in material.probed]
        unmade += [n for n in here if n.id not in ids]
        checked |= dict.fromkeys(sorted(looked - {n.id for n in here} | ids))
        concluded.append(conclusive(material, looked, here))
    span = max((m.steps[1] - m.steps[0] for m in materials if isinstance(m, Log) and m.steps), default=0)
    story, root = tell(_one_place(found), span)
    told = reconcile(story)
    logs = tuple(m for m in materials if isinstance(m, Log))
    return Diagnosis(
        status=_status(told, concluded),
        root_cause=root,
        findings=told,
        not_diagnosable=_once(n for n in unmade if n.id not in checked),
        checked=tuple(checked),
        logs=logs,
        formats={m.path: m.format for m in materials},
        skipped=(*(s for m in materials for s in m.skipped), *notes),
    )


def detectors(*, judgments: bool = True) -> tuple[list[Detector], list[Skipped]]:
    """The built-in detectors and those of plugins; a plugin that cannot be loaded is a note.

    Args:
        judgments: with those that read judgments; loading them takes time that a training log need not wait for.
    """
    known: list[Detector] = list(LOG_DETECTORS)
    if judgments:
        from trimtab.doctor.detectors import judge, judge_statistics, preference_data, probed, scores

        known += (*judge.DETECTORS, *judge_statistics.DETECTORS, *preference_data.DETECTORS, *scores.DETECTORS)
        known += probed.DETECTORS
    others, notes = plugins()
    return [*known, *others], notes


def _finished(finding: Finding, material: Material, several: bool) -> Finding:
    """With prescriptions where the detector gave none, and with the place where there are several materials."""
    if not finding.prescriptions:
        finding = replace(finding, prescriptions=prescribe(finding, material if isinstance(material, Log) else None))
    if several and not finding.where:
        stage = material.stage.value if isinstance(material, Log) else material.stage or material.format
        finding = replace(finding, where=f"{material.path} ({stage})")
    return finding


def _one_each(findings: Sequence[Finding]) -> list[Finding]:
    """One finding of an id for each material: the loudest, with what spoke for the others as further evidence."""
    out: dict[str, Finding] = {}
    for finding in sorted(findings, key=lambda f: -f.severity.rank):
        first = out.get(finding.id)
        out[finding.id] = finding if first is None else replace(first, evidence=first.evidence + finding.evidence[:1])
    return list(out.values())


def _one_place(found: Sequence[_Place]) -> list[tuple[Finding, str]]:
    """Findings with their stages; what a log and what stands beside it both show is one finding."""
    kept: dict[tuple[str, str, str], list[Finding]] = {}
    for finding, stage, place in found:
        kept.setdefault((place, stage, finding.id), []).append(finding)
    return [(_one_each(same)[0], stage) for (_, stage, _), same in kept.items()]


def _once(unmade: Any) -> tuple[NotDiagnosable, ...]:
    return tuple(dict.fromkeys(unmade))


def _status(findings: Sequence[Finding], concluded: Sequence[bool]) -> Status:
    if any(f.severity.loud for f in findings):
        return Status.SICK
    return Status.HEALTHY if concluded and all(concluded) else Status.INCONCLUSIVE
