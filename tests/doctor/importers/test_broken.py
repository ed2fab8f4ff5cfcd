"""What is no log is refused in words that name it; nothing ends in a traceback."""

from __future__ import annotations

import gzip
import json
import os
import socket
from pathlib import Path

import pytest

from labeling_fakes import ScriptedJudge, candidate, two_principles
from made_up_logs import grpo_rows, jsonl
from trimtab.data.readers.parquet import write_parquet
from trimtab.doctor.importers import read
from trimtab.doctor.log import Log
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.labels import label_pairs
from trimtab.labeling.protocol import Verdict
from trimtab.labeling.store import LabelStore

_REFUSED = {
    "empty": b"",
    "blank": b" \n\t\n",
    "bom-only": b"\xef\xbb\xbf",
    "zeros": b"\x00" * 5000,
    "random": bytes((i * 7919 + i // 3) % 256 for i in range(4000)),
    "parquet": b"PAR1" + b"\x15\x04" * 100,
    "zip": b"PK\x03\x04" + b"\x00" * 100,
    "sqlite": b"SQLite format 3\x00" + b"\x00" * 100,
    "zstd": b"\x28\xb5\x2f\xfd" + b"abc" * 10,
    "prose": b"Once upon a time there was a run.\nIt never ended.\n",
    "number": b"42\n",
    "null": b"null",
    "empty-object": b"{}",
    "empty-list": b"[]",
    "list-of-numbers": b"[1, 2, 3]",
    "text-object": b'{"a": "b"}',
    "deep-list": b"[" * 100_000,
    "deep-object": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "open-string": b'{"loss": "' + b"x" * 10_000,
    "gzip-of-nothing": gzip.compress(b""),
    "gzip-cut": gzip.compress(jsonl(grpo_rows(3)).encode())[:12],
    "python": b"import torch\n\ndef f(x):\n    return {'a': x}\n",
    "html": b"<!doctype html><html><body>loss</body></html>",
    "header-only": b"step,loss\n",
    "yaml": b"learning_rate: fast\nmodel: small\n",
}  # fmt: skip


@pytest.mark.parametrize("content", _REFUSED.values(), ids=_REFUSED)
def test_what_is_no_log_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "thing.json"
    path.write_bytes(content)
    with pytest.raises(TrimtabError, match="thing") as caught:
        read(path)
    assert caught.value.kind is ErrorKind.DATA


def test_a_path_that_is_none(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path / "a\x00b", tmp_path / ("x" * 5000)):
        with pytest.raises(TrimtabError):
            read(path)


def test_pipes_devices_sockets_and_loops_of_links(tmp_path: Path) -> None:
    fifo, loop, sock = tmp_path / "fifo", tmp_path / "loop", tmp_path / "sock"
    os.mkfifo(fifo)
    loop.symlink_to(loop)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(sock))
        for path, what in ((fifo, "pipe"), (Path("/dev/null"), "device"), (loop, "cannot be read"), (sock, "socket")):
            with pytest.raises(TrimtabError, match=what):
                read(path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(jsonl(grpo_rows(3)))
    path.chmod(0)
    with pytest.raises(TrimtabError, match=r"secret.*[Pp]ermission"):
        read(path)


def test_a_directory_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    with pytest.raises(TrimtabError, match="nothing"):
        read(tmp_path)
    (tmp_path / "sub" / "notes.txt").write_text("nothing here")
    (tmp_path / "sub" / "self").symlink_to(tmp_path)
    with pytest.raises(TrimtabError, match="nothing"):
        read(tmp_path)


def test_only_unknown_names_give_a_log_without_series(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(jsonl([{"step": i, "frobnication": 1.0, "zorkmids": 2.0} for i in range(30)]))
    (log,) = read(path)
    assert isinstance(log, Log)
    assert not log.series
    assert set(log.unmapped) == {"frobnication", "zorkmids"}
    assert log.rows == 30


def test_three_rows_are_three_rows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(jsonl(grpo_rows(3)))
    (log,) = read(path)
    assert isinstance(log, Log)
    assert log.rows == 3


def test_one_line_of_many_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    rows = grpo_rows(1)[0]
    path.write_text(json.dumps([{**rows, "step": i} for i in range(20_000)]))
    (log,) = read(path)
    assert isinstance(log, Log)
    assert log.rows == 20_000
    path.write_bytes(b"a" * 8_000_000)
    with pytest.raises(TrimtabError, match="nothing"):
        read(path)
    path.write_bytes(b'{"a": ' * 1_500_000)
    with pytest.raises(TrimtabError):
        read(path)


def test_a_damaged_archive_gives_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    lines = jsonl([{**row, "step": i} for i in range(400) for row in grpo_rows(1)])
    packed = gzip.compress(lines.encode(), 1)
    path.write_bytes(packed[: len(packed) * 3 // 4])
    (log,) = read(path)
    assert isinstance(log, Log)
    assert 100 < log.rows < 400
    assert log.truncated
    assert any("damaged" in s.reason for s in log.skipped)


def test_latin_1_text_beside_the_numbers_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes("".join(f"durée {r}\n" for r in grpo_rows(3)).encode("latin-1"))
    (log,) = read(path)
    assert isinstance(log, Log)
    assert log.rows == 3


def test_a_map_to_no_quantity_is_a_usage_error(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(jsonl(grpo_rows(3)))
    with pytest.raises(TrimtabError, match="kl/referense") as caught:
        read(path, {"kl/referense": "kl"})
    assert caught.value.kind is ErrorKind.USAGE
    assert "kl/reference" in caught.value.hint


def test_a_parquet_file_of_pairs_is_read_and_one_of_anything_else_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = [{"prompt": f"p{i}", "chosen": "a", "rejected": "b"} for i in range(20)]
    write_parquet(tmp_path / "pairs.parquet", rows)
    (material,) = read(tmp_path / "pairs.parquet")
    assert material.pairs is not None
    write_parquet(tmp_path / "log.parquet", [{"step": i, "loss": 1.0} for i in range(20)])
    with pytest.raises(TrimtabError, match=r"log\.parquet: holds no preference data"):
        read(tmp_path / "log.parquet")


def test_a_label_store_is_read_alone_and_in_its_project(tmp_path: Path) -> None:
    judge = ScriptedJudge(lambda request: Verdict.of_shown(0.8, request.order))
    with LabelStore(tmp_path / "labels.sqlite") as store:
        label_pairs([candidate(i) for i in range(12)], judge, two_principles(tmp_path), store=store)
    (material,) = read(tmp_path / "labels.sqlite")
    assert len(material.verdicts) == 24
    (tmp_path / "trimtab.toml").write_text("")
    assert any(getattr(m, "verdicts", None) is not None for m in read(tmp_path))
