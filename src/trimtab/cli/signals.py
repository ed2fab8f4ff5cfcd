"""`trimtab signals`: what every metric of a run means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from trimtab.cli import output
from trimtab.cli.options import JsonOutput, Panel, Quiet

if TYPE_CHECKING:
    from trimtab.runs.signals import Signal

__all__ = ["register", "signal_row"]


def register(app: typer.Typer) -> None:
    app.command("signals", rich_help_panel=Panel.LOOK)(signals)


def signals(as_json: JsonOutput = False, quiet: Quiet = False) -> None:
    """List the signals: key, unit, healthy band, meaning."""
    from trimtab.runs.signals import SIGNALS

    rows = [signal_row(signal) for signal in SIGNALS.values()]
    if as_json:
        output.emit_json(output.listing("signals", rows))
        return
    output.emit_table(
        ("signal", "unit", "healthy", "stage", "meaning"),
        [
            (row["key"], row["unit"], output.band(row["healthy"]), " ".join(row["stages"]), row["meaning"])
            for row in rows
        ],
    )


def signal_row(signal: Signal) -> dict[str, Any]:
    """One row of the signal table as JSON."""
    healthy = None if signal.healthy is None else {"low": signal.healthy.low, "high": signal.healthy.high}
    return {
        "key": signal.key,
        "unit": signal.unit,
        "meaning": signal.meaning,
        "stages": list(signal.stages),
        "healthy": healthy,
        "source": signal.source,
        "rules": list(signal.rules),
    }
