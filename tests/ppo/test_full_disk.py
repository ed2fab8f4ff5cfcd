"""A disk that fills up while a policy is trained: said plainly, nothing lost, and the run goes on as if nothing was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / "ppo_full_disk.py"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="small file systems and limits of files as on Linux")


def _ended(command: list[str]) -> dict[str, Any]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _told(found: dict[str, Any], file: str, kept: list[int]) -> None:
    assert found["kind"] == "failed"
    assert file in found["message"]
    assert "make room" in found["hint"]
    assert found["kept"] == kept  # each read back whole
    assert found["rest"] == []  # no half of one, no temporary file
    assert found["steps"] == [1, 2, 3, 4, 5, 6]
    assert found["same"]


@pytest.mark.parametrize(
    ("left", "file"),
    [
        (0, "No space left on device"),
        # room for the metrics, none for a checkpoint
        pytest.param(200_000, "step-000003: cannot be written: ", marks=pytest.mark.slow),
    ],
)
def test_a_small_file_system_that_is_full(tmp_path, left, file):
    small = tmp_path / "small"
    small.mkdir()
    mounted = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=24m none "$0" && exec "$@"', str(small)]
    if subprocess.run([*mounted, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount a small file system")
    _told(_ended([*mounted, sys.executable, str(SCRIPT), str(small), "fill", str(left), "1"]), file, [1, 2])


@pytest.mark.parametrize(
    ("size", "every", "file", "kept"),
    [
        pytest.param(100_000, 1, "step-000003: cannot be written: ", [1, 2], marks=pytest.mark.slow),
        (10, 2, "metrics.jsonl: cannot be written: File too large", [2]),
    ],
)
def test_a_file_that_may_not_grow(tmp_path, size, every, file, kept):
    _told(_ended([sys.executable, str(SCRIPT), str(tmp_path), "limit", str(size), str(every)]), file, kept)
