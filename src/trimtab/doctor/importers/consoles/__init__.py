"""What trainers print: one small reader for each way of printing, all fed the same lines."""

from __future__ import annotations

from trimtab.doctor.importers.consoles.read import read_console

__all__ = ["read_console"]
