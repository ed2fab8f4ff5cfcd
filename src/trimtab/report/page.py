"""The page itself: facts, verdict and curves into one HTML file without script, and a few lines for the terminal."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from trimtab import __version__
from trimtab.figures import figure, share, signed, with_interval
from trimtab.hostile import cut, visible, visible_html
from trimtab.report import chain, sections
from trimtab.report.curves import curves, number_table
from trimtab.report.facts import Figure, algorithm, figure_of, read_facts, trained
from trimtab.report.health import health
from trimtab.report.preference_model import preference_model
from trimtab.report.verdict import Kind, verdict
from trimtab.runs.files import atomic_write_text
from trimtab.runs.run import Run

__all__ = ["render", "summary", "write"]

REPORT_NAME = "report.html"


def write(run: Run) -> Path:
    """Write `report.html` into the run directory: one file that opens offline, whatever stages the run has.

    Returns:
        Its path.
    """
    path = run.path / REPORT_NAME
    atomic_write_text(path, render(run))
    return path


def render(run: Run) -> str:
    """The HTML of the report."""
    facts = read_facts(run)
    shown, missing = curves(facts)
    header, rows = number_table(facts, [curve.key for curve in shown])
    return _environment().get_template("report.html.j2").render(
        run=run,
        facts=facts,
        verdict=verdict(facts),
        algorithm=algorithm(run),
        status=sections.status_text(facts),
        written=_when(time.time()),
        created=_when(run.manifest.get("created")),
        tiles=sections.tiles(facts),
        evaluation=sections.evaluation(facts),
        chain=chain.chain(facts),
        pm=preference_model(facts),
        constitution=chain.constitution(facts),
        health=health(run),
        curves=shown,
        missing_curves=missing,
        numbers={"header": header, "rows": rows},
        samples=sections.samples(facts),
        settings=sections.changed_settings(run.config),
        versions=sections.versions(facts),
        files=sections.files(run),
        version=__version__,
    )  # fmt: skip


def summary(run: Run) -> str:
    """What `trimtab run` prints at the end: verdict, preference model, training, the doctor's word, the report."""
    facts = read_facts(run)
    said = verdict(facts)
    lines = [f"{said.kind.capitalize()}: {said.sentence}", *said.details]
    accuracy = figure_of(facts.result("pm").get("accuracy"))
    if accuracy is not None:
        known = with_interval(accuracy.value, accuracy.low, accuracy.high, percent=True)
        lines.append(f"Preference model: {known} of the held-out pairs ordered as labeled.")
    if said.kind not in (Kind.UNTRAINED, Kind.UNMEASURED):
        lines.append(trained(facts))
    lines += facts.notes
    said_by_doctor = health(run)
    if said_by_doctor is not None:
        lines.append(said_by_doctor.line)
    report = run.path / REPORT_NAME
    if report.is_file():
        lines.append(f"Report: {report}")
    return "\n".join(visible(line) for line in lines)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("trimtab.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters.update(
        fig=figure, signed=signed, share=share, estimate=_estimate, minus=_minus, cut=cut, visible=_visible
    )
    return environment


def _finalize(value: object) -> object:
    """Every text that a template prints goes through here; only Markup of our own making passes as it is."""
    if isinstance(value, Markup):
        return value
    return visible_html(value) if isinstance(value, str) else value


def _visible(text: object) -> Markup:
    """For places that hold no elements, such as `<title>`."""
    return escape(visible(text))


def _minus(text: object) -> str:
    """Typographic minus signs in front of figures; intervals and percentages do not break across lines."""
    plain = re.sub(r"(?<![\w-])-(?=[\d.])", "−", str(text))
    return re.sub(r"(?<=\d) (?=%|\[)|(?<=%) (?=\[)|(?<=\d,) (?=[−\d.e+]+\])", "\u00a0", plain)


def _estimate(value: Figure | None, **how: Any) -> str:
    return "" if value is None else _minus(with_interval(value.value, value.low, value.high, **how))


def _when(seconds: object) -> str:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1 << 34:
        return ""
    return time.strftime("%d %B %Y, %H:%M", time.localtime(seconds)).lstrip("0")
