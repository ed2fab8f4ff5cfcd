"""Rows of parquet files, as JSON would hold them. Needs pyarrow, which is no part of the light installation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from trimtab.data.lines import LineError
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["parquet_records", "pyarrow_modules", "write_parquet"]

_BATCH = 1024


def pyarrow_modules() -> tuple[Any, Any]:
    """(pyarrow, pyarrow.parquet).

    Raises:
        TrimtabError: it is not installed.
    """
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError:
        raise TrimtabError(
            ErrorKind.MISSING, "parquet files need pyarrow, which is not installed", "pip install 'trimtab[parquet]'"
        ) from None
    return pyarrow, pyarrow.parquet


def parquet_records(path: Path) -> Iterator[dict[str, Any] | LineError]:
    """The rows of a file, in order; one with a value that JSON cannot hold is a `LineError`.

    Raises:
        TrimtabError: pyarrow is missing, or this is no sound parquet file.
    """
    arrow, parquet = pyarrow_modules()
    try:
        file = parquet.ParquetFile(path)
    except (arrow.ArrowException, OSError) as error:
        raise _broken(path, error) from None
    return _rows(file, path, arrow.ArrowException)


def _rows(file: Any, path: Path, failure: type[Exception]) -> Iterator[dict[str, Any] | LineError]:
    with file:
        try:
            for batch in file.iter_batches(batch_size=_BATCH):
                for row in batch.to_pylist():
                    try:
                        yield {str(name): _plain(value, str(name)) for name, value in row.items()}
                    except LineError as problem:
                        yield problem
        except (failure, OSError) as error:
            raise _broken(path, error) from None


def _broken(path: Path, error: Exception) -> TrimtabError:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return TrimtabError(ErrorKind.DATA, f"{path}: is no sound parquet file: {first}", "write or fetch it again")


def _plain(value: Any, name: str) -> Any:
    """A cell in terms of JSON: NaN is what pandas writes for nothing."""
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if math.isinf(value):
            raise LineError(f"{name} is {value}, which JSON cannot hold")
        return value
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v, name) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, name) for v in value]
    raise LineError(f"{name} is {type(value).__name__}, which JSON cannot hold")


def write_parquet(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write records; a column whose values are not of one kind is written as JSON texts.

    Raises:
        TrimtabError: pyarrow is missing, or a text holds half a character.
    """
    from trimtab.runs.files import dump_json

    arrow, parquet = pyarrow_modules()
    names = list(dict.fromkeys(name for record in records for name in record))
    columns: dict[str, Any] = {}
    for name in names:
        values = [record.get(name) for record in records]
        try:
            columns[name] = arrow.array(values)
        except UnicodeEncodeError:
            raise TrimtabError(
                ErrorKind.DATA, f"column {name} holds half a character, which parquet cannot hold", "write JSON lines"
            ) from None
        except (arrow.ArrowException, OverflowError):
            columns[name] = arrow.array([None if v is None else dump_json(v) for v in values])
    parquet.write_table(arrow.table(columns), path)
