"""TensorBoard event files: records in TFRecord framing, each a protocol-buffer `Event` with scalars.

Only what scalars need is decoded: the framing (length, checksum, data, checksum), the wire format, `Event.step`,
`Summary.Value.tag`, the old `simple_value` and the new scalar tensors. Checksums are not verified: a damaged record
does not decode.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from trimtab.doctor.importers.source import Source
from trimtab.doctor.importers.table import Table, TableBuilder
from trimtab.errors import TrimtabError

__all__ = ["is_events", "read_events"]

_HEAD = struct.Struct("<QI")
_LONGEST = 1 << 28
_DTYPES = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}
_VERSION = b"brain.Event:"
_LARGEST_STEP = 1 << 62


def is_events(head: bytes) -> bool:
    """Whether a file with this beginning holds TensorBoard events."""
    if len(head) < 16:
        return False
    length = _HEAD.unpack_from(head)[0]
    if not 0 < length < _LONGEST or head[12] != 0x09:  # field 1 (wall time), a 64-bit number
        return False
    return _VERSION in head[:200] or head[21:22] in (b"\x10", b"\x1a", b"\x2a")


def read_events(paths: Sequence[Path]) -> Table | None:
    """The scalars of the event files of one run, in the order given; None without any.

    A step that a later file logs again counts as logged there.
    """
    builder = TableBuilder("tensorboard")
    for path in paths:
        try:
            source = Source(path)
        except TrimtabError as error:
            builder.skips.add(error.message)
            continue
        for step, scalars in _by_step(source, builder):
            builder.add(scalars, step=step)
    return builder.table() if builder.rows else None


def _by_step(source: Source, builder: TableBuilder) -> Iterator[tuple[int, dict[str, float]]]:
    """Scalars of consecutive events of one step together."""
    now: dict[str, float] = {}
    at: int | None = None
    for step, name, value in _scalars(source, builder):
        if at is not None and (step != at or name in now):
            yield at, now
            now = {}
        at = step
        now[name] = value
    if at is not None and now:
        yield at, now


def _scalars(source: Source, builder: TableBuilder) -> Iterator[tuple[int, str, float]]:
    for record in _records(source, builder):
        try:
            yield from _event(record)
        except (ValueError, struct.error, IndexError, UnicodeDecodeError):
            builder.skips.add("event records that do not decode")


def _records(source: Source, builder: TableBuilder) -> Iterator[bytes]:
    name = source.path.name
    try:
        with source.open() as stream:
            while True:
                head = stream.read(12)
                if len(head) < 12:
                    cut = bool(head)
                    break
                length = _HEAD.unpack(head)[0]
                if length > _LONGEST:
                    builder.skips.add(f"the rest of {name}: a record of impossible length")
                    return
                data = stream.read(length)
                if len(data) < length or len(stream.read(4)) < 4:
                    cut = True
                    break
                yield data
    except OSError as error:
        builder.skips.add(f"the rest of {name}: {error.strerror or error}")
        return
    if cut:
        builder.skips.add(f"half a record at the end of {name}")
        builder.truncated = True


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Field number, wire type and raw value of each field of a message."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        field, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield field, wire, value
        elif wire in (1, 5):
            width = 8 if wire == 1 else 4
            yield field, wire, data[at : at + width]
            at += width
        elif wire == 2:
            size, at = _varint(data, at)
            if at + size > end:
                raise ValueError("a field beyond the end")
            yield field, wire, data[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {wire}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of too many bytes")


def _event(data: bytes) -> Iterator[tuple[int, str, float]]:
    step = 0
    summaries: list[bytes] = []
    for field, wire, value in _fields(data):
        if field == 2 and isinstance(value, int):
            step = value if value < 1 << 63 else value - (1 << 64)
            if abs(step) > _LARGEST_STEP:
                raise ValueError("a step beyond all runs")
        elif field == 5 and wire == 2 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for field, _, value in _fields(summary):
            if field == 1 and isinstance(value, bytes):
                found = _value(value)
                if found is not None:
                    yield step, *found


def _value(data: bytes) -> tuple[str, float] | None:
    """Tag and number of one summary value; None where it is no scalar."""
    tag = ""
    number: float | None = None
    for field, wire, value in _fields(data):
        if not isinstance(value, bytes):
            continue
        if field == 1:
            tag = value.decode("utf-8")
        elif field == 2 and wire == 5:
            number = struct.unpack("<f", value)[0]
        elif field == 8 and wire == 2:
            number = _tensor(value)
    return (tag, number) if tag and number is not None and not tag.startswith("_hparams_") else None


def _tensor(data: bytes) -> float | None:
    """The number of a tensor that has exactly one; None for any other."""
    dtype, numbers, content = 0, [], b""
    for field, wire, value in _fields(data):
        if field == 1 and isinstance(value, int):
            dtype = value
        elif field == 2 and isinstance(value, bytes) and _size(value) != 1:
            return None
        elif field == 4 and isinstance(value, bytes):
            content = value
        elif field in (5, 6) and isinstance(value, bytes):
            form = "<f" if field == 5 else "<d"
            if len(value) % struct.calcsize(form) == 0:
                numbers += [x[0] for x in struct.iter_unpack(form, value)]
        elif field in (7, 10) and wire == 0 and isinstance(value, int):
            numbers.append(float(value if value < 1 << 63 else value - (1 << 64)))
    form = _DTYPES.get(dtype, "")
    if content and form and len(content) == struct.calcsize(form):
        numbers = [float(struct.unpack(form, content)[0])]
    return float(numbers[0]) if len(numbers) == 1 else None


def _size(shape: bytes) -> int:
    """Elements of a tensor of this shape."""
    sizes = [1]
    for field, _, value in _fields(shape):
        if field == 2 and isinstance(value, bytes):
            sizes += [v for f, _, v in _fields(value) if f == 1 and isinstance(v, int)]
    return math.prod(sizes)
