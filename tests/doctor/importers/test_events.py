"""TensorBoard event files are read without TensorBoard; what it writes itself is the oracle."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from trimtab.doctor.importers import read
from trimtab.doctor.importers.events import is_events
from trimtab.doctor.log import Log
from trimtab.errors import TrimtabError


def _varint(n: int) -> bytes:
    out = b""
    while True:
        n, low = n >> 7, n & 0x7F
        out += bytes([low | (0x80 if n else 0)])
        if not n:
            return out


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _event(step: int, *values: bytes, version: str = "") -> bytes:
    body = b"\x09" + struct.pack("<d", 1.7e9)
    body += b"\x10" + _varint(step & (1 << 64) - 1) if step else b""
    if version:
        body += _field(3, version.encode())
    if values:
        body += _field(5, b"".join(_field(1, value) for value in values))
    return struct.pack("<QI", len(body), 0) + body + b"\0\0\0\0"


def _simple(tag: str, value: float) -> bytes:
    return _field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)


def _tensor(tag: str, value: float, *, content: bool = False, double: bool = False, size: int = 1) -> bytes:
    form = "<d" if double else "<f"
    shape = _field(2, _field(2, b"\x08" + _varint(size))) if size != 1 else _field(2, b"")
    data = struct.pack(form, value) * size
    tensor = (b"\x08\x02" if double else b"\x08\x01") + shape + _field(4 if content else 6 if double else 5, data)
    return _field(1, tag.encode()) + _field(8, tensor)


_HEAD = _event(0, version="brain.Event:2")


def _read(path: Path) -> Log:
    (log,) = read(path)
    assert isinstance(log, Log)
    return log


def test_old_and_new_scalars(tmp_path: Path) -> None:
    path = tmp_path / "any.name"
    path.write_bytes(
        _HEAD
        + _event(1, _simple("train/objective/kl", 2.5), _tensor("train/objective/scores", 0.5))
        + _event(
            2, _tensor("train/objective/kl", 3.5, content=True), _tensor("train/objective/scores", 0.75, double=True)
        )
        + _event(3, _tensor("train/objective/kl", 4.5, content=True, double=True), _tensor("histogram", 1.0, size=9))
    )
    log = _read(path)
    assert log.format == "tensorboard"
    assert log.series["kl/reference"].values.tolist() == [2.5, 3.5, 4.5]
    assert log.series["kl/reference"].steps.tolist() == [1, 2, 3]
    assert log.series["score/mean"].values.tolist() == [0.5, 0.75]
    assert "histogram" not in log.unmapped


def test_a_file_cut_anywhere_keeps_its_complete_events(tmp_path: Path) -> None:
    parts = [_HEAD, *(_event(i, _simple("objective/kl", float(i))) for i in range(1, 5))]
    data, ends = b"".join(parts), []
    for part in parts:
        ends.append((ends[-1] if ends else 0) + len(part))
    path = tmp_path / "events"
    for cut in range(len(data)):
        whole = sum(cut >= end for end in ends[1:])
        path.write_bytes(data[:cut])
        try:
            log = _read(path)
        except TrimtabError:
            assert not whole
            continue
        assert len(log.series["kl/reference"]) == whole
        assert log.truncated == (cut not in ends)


def test_a_damaged_record_costs_only_itself(tmp_path: Path) -> None:
    bad = bytearray(_event(2, _simple("objective/kl", 2.0)))
    bad[24:30] = b"\xff" * 6
    path = tmp_path / "events"
    path.write_bytes(
        _HEAD + _event(1, _simple("objective/kl", 1.0)) + bytes(bad) + _event(3, _simple("objective/kl", 3.0))
    )
    log = _read(path)
    assert 3 in log.series["kl/reference"].steps
    assert log.skipped


def test_a_length_beyond_all_measure_ends_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(_HEAD + _event(1, _simple("objective/kl", 1.0)) + struct.pack("<QI", 1 << 60, 0) + b"x" * 50)
    log = _read(path)
    assert len(log.series["kl/reference"]) == 1
    assert any("impossible length" in s.reason for s in log.skipped)


def test_events_without_a_scalar_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(_HEAD)
    with pytest.raises(TrimtabError, match="without a single scalar"):
        read(path)


def test_text_is_no_event_file() -> None:
    assert not is_events(b'{"step": 1, "loss": 0.5}' * 10)
    assert not is_events(b"")


def test_two_files_of_a_resumed_run(tmp_path: Path) -> None:
    for i, (first, value) in enumerate(((1, 1.0), (3, 2.0))):
        data = _HEAD + b"".join(
            _event(s, _simple("objective/kl", value), _simple("objective/scores", 0.5)) for s in range(first, first + 4)
        )
        (tmp_path / f"events.out.tfevents.{i}").write_bytes(data)
    series = _read(tmp_path).series["kl/reference"]
    assert series.steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert series.values.tolist() == [1.0, 1.0, 2.0, 2.0, 2.0, 2.0]


def test_what_tensorboard_itself_writes(tmp_path: Path) -> None:
    writer = pytest.importorskip("torch.utils.tensorboard", reason="tensorboard is not installed").SummaryWriter(
        str(tmp_path / "runs" / "a")
    )
    for step in range(50):
        writer.add_scalar("train/kl", 0.01 * step, step)
        writer.add_scalar("train/reward", 0.5, step)
        writer.add_scalar("train/reward_std", 0.125, step, new_style=True)
    writer.add_text("note", "hello", 3)
    writer.add_hparams({"lr": 0.1}, {"done": 1.0})
    writer.close()
    log = _read(tmp_path)
    assert (log.framework, log.algorithm) == ("trl", "grpo")
    assert log.series["kl/reference_per_token"].values == pytest.approx([0.01 * s for s in range(50)], rel=1e-6)
    assert log.series["score/group_std"].values.tolist() == [0.125] * 50


def test_a_step_beyond_all_runs_costs_only_its_record(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(
        _HEAD
        + _event(-2, _simple("train/loss", 2.0))
        + _event(2**63 - 1, _simple("train/loss", 9.0))
        + _event(-(2**63), _simple("train/loss", 9.0))
        + b"".join(_event(i, _simple("train/loss", 1.0)) for i in range(1, 4))
    )
    log = _read(path)
    assert (log.rows, log.steps) == (4, (-2, 3))
    assert sum(s.count for s in log.skipped if "do not decode" in s.reason) == 2
