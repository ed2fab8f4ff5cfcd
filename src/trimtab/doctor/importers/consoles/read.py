"""One pass over a console log: every reader sees every line, the one that found most is believed."""

from __future__ import annotations

from trimtab.doctor.importers.consoles.bars import Bar, BarReader
from trimtab.doctor.importers.consoles.boxes import BoxReader, BulletReader
from trimtab.doctor.importers.consoles.deepspeed import DeepSpeedReader
from trimtab.doctor.importers.consoles.dicts import DictReader
from trimtab.doctor.importers.consoles.pairs import PairReader, StepLineReader
from trimtab.doctor.importers.consoles.rows import ConsoleReader
from trimtab.doctor.importers.consoles.warnings import WarningReader
from trimtab.doctor.importers.source import PATIENCE, Source, clean
from trimtab.doctor.importers.table import Skips, Table

__all__ = ["read_console"]

_LONGEST = 1 << 20


def read_console(source: Source) -> Table | None:
    """The table of a console log; None where no line holds metrics."""
    bar, warnings = Bar(), WarningReader()
    readers: list[ConsoleReader] = [
        DeepSpeedReader(), StepLineReader(), DictReader(bar), BulletReader(), BoxReader(), BarReader(), PairReader(),
    ]  # fmt: skip
    skips = Skips()
    number = 1
    taken = False
    for block in source.blocks():
        if number > PATIENCE and not taken:
            break
        for raw in block.decode("utf-8", "replace").split("\n"):
            for piece in raw.split("\r"):
                if len(piece) > _LONGEST:
                    skips.add(f"lines of more than {_LONGEST} characters", number)
                    continue
                line = clean(piece)
                if line.strip():
                    bar.feed(line, number)
                    # the first that takes it keeps it
                    if warnings.feed(line, number) or any(reader.feed(line, number) for reader in readers):
                        taken = True
            number += 1
        number -= 1
    best: Table | None = None
    for reader in readers:
        table = reader.finish()
        if table is not None and (best is None or _weight(table) > _weight(best)):
            best = table
    best = warnings.added_to(best)
    if best is not None:
        skips.merge(best.skipped)
        if source.broken:
            skips.add(source.broken)
            best.truncated = True
        best.skipped = skips.all
    return best


def _weight(table: Table) -> float:
    numbers = sum(map(len, table.columns.values()))
    return numbers * {"deepspeed-console": 50, "verl-console": 3, "console-dicts": 2}.get(table.format, 1)
