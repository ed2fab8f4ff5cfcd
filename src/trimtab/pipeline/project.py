"""A project: a directory with trimtab.toml and the files that it names."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trimtab.config.load import Resolved, load_config
from trimtab.config.schema import Config
from trimtab.constitution import Constitution, load_constitution
from trimtab.data.demonstrations import Demonstration, read_demonstrations
from trimtab.data.pairs import read_pairs
from trimtab.data.prompts import read_prompts
from trimtab.data.records import Pair, Prompt
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.runs.files import file_hash, stable_hash

__all__ = ["CONFIG_NAME", "Project"]

CONFIG_NAME = "trimtab.toml"


@dataclass(frozen=True)
class Project:
    """A project directory with its resolved settings; files are read when they are first asked for."""

    directory: Path
    resolved: Resolved

    @classmethod
    def open(cls, directory: Path | str, overrides: tuple[str, ...] | list[str] = ()) -> Project:
        """Read the project in `directory` (or the one whose trimtab.toml is named).

        Raises:
            TrimtabError: there is no trimtab.toml, or it does not hold.
        """
        path = Path(directory)
        if path.name == CONFIG_NAME:
            path = path.parent
        if not (path / CONFIG_NAME).is_file():
            raise TrimtabError(
                ErrorKind.USAGE, f"{path}: no {CONFIG_NAME} here", f"make a project with: trimtab init {path}"
            )
        return cls(path.resolve(), load_config(path / CONFIG_NAME, overrides))

    @property
    def config(self) -> Config:
        return self.resolved.config

    @property
    def runs(self) -> Path:
        return self.directory / self.config.project.runs

    @property
    def label_store(self) -> Path:
        return self.directory / "labels.sqlite"

    def file(self, name: str) -> Path:
        """A file that the settings name, relative to the project."""
        return self.directory / name

    @cached_property
    def constitution(self) -> Constitution:
        return load_constitution(self.file(self.config.constitution.path))

    @cached_property
    def prompts(self) -> list[Prompt]:
        return read_prompts(self.file(self.config.prompts.train))

    @cached_property
    def held_out_prompts(self) -> list[Prompt]:
        return read_prompts(self.file(self.config.prompts.held_out))

    @cached_property
    def demonstrations(self) -> list[Demonstration]:
        data = self.config.sft.data
        return read_demonstrations(self.file(data)) if data else []

    @cached_property
    def language_demonstrations(self) -> list[Demonstration]:
        """Demonstrations whose language-model loss PPO mixes in."""
        data = self.config.ppo.language_data
        return read_demonstrations(self.file(data)) if data else []

    @cached_property
    def preference_pairs(self) -> list[Pair]:
        """Labeled pairs of the file that stands instead of the judge's labels."""
        name = self.config.preference.data
        return read_pairs(self.file(name)) if name else []

    @cached_property
    def human_pairs(self) -> list[Pair]:
        """Pairs labeled by people, as they stand in their file."""
        name = self.config.preference.human
        return read_pairs(self.file(name)) if name else []

    @property
    def fine_tunes(self) -> bool:
        """Whether the reference is a model that the sft stage trains; else it is the model as it is."""
        return self.config.sft.source == "constitution" or bool(self.config.sft.data)

    def input_hash(self, name: str) -> str:
        """sha256 of an input file, or of the files in a directory.

        Raises:
            TrimtabError: it is missing.
        """
        path = self.file(name)
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
            return stable_hash([[file.relative_to(path).as_posix(), file_hash(file)] for file in files])
        if not path.is_file():
            raise TrimtabError(
                ErrorKind.DATA, f"{path}: there is no such file", f"it is named in {self.directory / CONFIG_NAME}"
            )
        return file_hash(path)

    def code_hashes(self, specs: list[str]) -> dict[str, str]:
        """sha256 of each project file behind `module:function` rewards and measures, what it imports included."""
        found: dict[str, str] = {}
        todo = [spec.partition(":")[0] for spec in specs if ":" in spec and not spec.startswith("rule:")]
        while todo:
            module = todo.pop()
            for path in self._module_files(module):
                name = path.relative_to(self.directory).as_posix()
                if name not in found:
                    found[name] = file_hash(path)
                    todo += _imports(path)
        return found

    def _module_files(self, module: str) -> list[Path]:
        """The project's files that importing `module` runs: itself and the packages around it."""
        parts = module.split(".")
        inside = [self.directory.joinpath(*parts[: i + 1]) for i in range(len(parts))]
        files = [path for base in inside for path in (base.with_suffix(".py"), base / "__init__.py")]
        return [path for path in files if path.is_file()]

    def model_stamp(self, name: str) -> list[list[object]]:
        """What tells that a local model directory has changed: names, sizes and times of its files; hub ids have none.

        Hashing the weights would take longer than some stages do.
        """
        directory = self.file(name)
        if not directory.is_dir():
            return []
        stats = sorted((path.name, path.stat()) for path in directory.iterdir() if path.is_file())
        return [[file, stat.st_size, stat.st_mtime_ns] for file, stat in stats]


def _imports(path: Path) -> list[str]:
    """Modules that a Python file names in its imports; relative ones are taken from its own package."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return []  # importing it will say what is wrong
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = ".".join(path.parent.parts[-1:]) if node.level else ""
            module = ".".join(part for part in (package, node.module or "") if part)
            names += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return [name for name in names if name]
