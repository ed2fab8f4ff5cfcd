"""What is in a directory: a run of ours, or what another framework left (checkpoints, event files, logs)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trimtab.doctor.importers.build import build
from trimtab.doctor.importers.events import is_events, read_events
from trimtab.doctor.importers.ours import is_project, is_run, read_project, read_run
from trimtab.doctor.importers.source import Source, no_log
from trimtab.doctor.judgments import JudgmentMaterial, from_store
from trimtab.doctor.log import Log, Skipped
from trimtab.errors import TrimtabError

__all__ = ["directory"]

Material = Log | JudgmentMaterial
ReadFile = Callable[[Path, Mapping[str, str]], list[Material]]
_CHECKPOINT = re.compile(r"(?:checkpoint|ckpt|global_step|step)[-_]?(\d+)")
_INNER = frozenset({"runs", "logs", "log", "tensorboard", "tensorboard_log", "tb", "metrics", "output", "results"})
_NO_LOG = frozenset(
    {
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.json",
        "merges.txt",
        "special_tokens_map.json",
        "added_tokens.json",
        "generation_config.json",
        "adapter_config.json",
        "model.safetensors.index.json",
        "preprocessor_config.json",
        "requirements.txt",
        "run_manifest.json",
        "meta.json",
        "package.json",
        "args.json",
        "training_args.json",
    }
)
_SUFFIXES = (".json", ".jsonl", ".csv", ".tsv", ".log", ".txt", ".out", ".gz", ".ndjson", "")
_LIKELY = re.compile(r"tfevents|trainer_state|progress|metrics|scalars|history|log", re.IGNORECASE)
_PROSE = frozenset({".txt", ".out", ""})
_MOST_ENTRIES, _MOST_READ, _DEEPEST = 20_000, 24, 4
_MOST_TRIED, _MOST_FRUITLESS = 300, 8 << 20


def directory(path: Path, mapping: Mapping[str, str], read_file: ReadFile) -> list[Material]:
    """Everything that the doctor can look at in a directory.

    Raises:
        TrimtabError: it may not be read, or nothing in it is known.
    """
    if is_run(path):
        return _or_nothing(list(read_run(path, mapping)), path, "is a run that has logged nothing yet")
    try:
        os.listdir(path)
    except OSError as error:
        raise no_log(str(path), f"cannot be read: {error.strerror}") from None
    if is_project(path):
        return _or_nothing(
            [*_label_store(path), *read_project(path, mapping)],
            path,
            "is a project without a run that has logged anything",
        )
    groups: dict[Path, list[Path]] = {}
    budget = _Budget()
    files = list(_files(path, budget))
    with_events = {file.parent for file in files if "tfevents" in file.name}
    for file in files:
        groups.setdefault(_home(file, path, with_events), []).append(file)
    found: list[Material] = []
    problems: list[str] = []
    for home, files in groups.items():
        if len(found) < _MOST_READ:
            found += _group(home, files, mapping, read_file, problems, budget)
        else:
            budget.left_out += len(files)
    if any(isinstance(material, Log) and material.series for material in found):
        found = [material for material in found if not isinstance(material, Log) or material.series]
    tried = "; ".join(problems[:3]) or "It has no file that could be a log."
    if budget.left_out:
        tried += f" {_LEFT_OUT.capitalize()}: {budget.left_out}. Point at the log itself."
    found = _or_nothing(found, path, "holds nothing that is known here", tried)
    if budget.left_out:
        found[0] = replace(found[0], skipped=(*found[0].skipped, Skipped(_LEFT_OUT, budget.left_out)))
    return found


_LEFT_OUT = "files that were not looked at, as there are too many here"


class _Budget:
    """How much of a directory is tried: so many files, and so many bytes of files that turn out to hold no log."""

    def __init__(self) -> None:
        self.files, self.bytes, self.left_out = _MOST_TRIED, _MOST_FRUITLESS, 0

    def allows(self) -> bool:
        """Whether one more file may be read; counts it."""
        if self.files <= 0 or self.bytes <= 0:
            self.left_out += 1
            return False
        self.files -= 1
        return True

    def wasted(self, file: Path) -> None:
        """Note that nothing came of a file."""
        with suppress(OSError):
            self.bytes -= file.stat().st_size


def _label_store(project: Path) -> list[Material]:
    """The verdicts that a project's judges gave."""
    path = project / "labels.sqlite"
    if not path.is_file():
        return []
    try:
        found = from_store(str(path))
    except TrimtabError:  # empty, or of another version: the runs say what they can
        return []
    return [found]


def _or_nothing(found: list[Material], path: Path, what: str, hint: str = "") -> list[Material]:
    if not found:
        raise no_log(str(path), what, hint)
    return found


def _files(path: Path, budget: _Budget) -> Iterator[Path]:
    """Regular files that can be logs, near ones first; links are not followed."""
    seen = 0
    level = [path]
    for _ in range(_DEEPEST):
        below: list[Path] = []
        for folder in level:
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in entries:
                seen += 1
                if seen > _MOST_ENTRIES:
                    budget.left_out += 1
                    return
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith(".") and entry.name not in ("__pycache__", "wandb"):
                        below.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False) and _can_be_log(entry.name):
                    yield Path(entry.path)
        level = below


def _can_be_log(name: str) -> bool:
    lower = name.lower()
    if lower in _NO_LOG or lower.startswith("."):
        return False
    return "tfevents" in lower or Path(lower).suffix in _SUFFIXES


def _home(file: Path, top: Path, with_events: set[Path]) -> Path:
    """The directory of the run that a file belongs to: above its checkpoints and folders of logs.

    A folder below one with event files is of the same run: TensorBoard's writers put hyperparameters there.
    """
    home = file.parent
    above = [folder for folder in home.parents if folder in with_events and folder.is_relative_to(top)]
    home = above[-1] if above else home
    while home != top and (_CHECKPOINT.fullmatch(home.name) or home.name in _INNER or home.parent.name == "runs"):
        home = home.parent
    return home


def _group(
    home: Path,
    files: list[Path],
    mapping: Mapping[str, str],
    read_file: ReadFile,
    problems: list[str],
    budget: _Budget,
) -> list[Material]:
    """The materials of one run: of several logs of it the one that says most, and every file of judgments."""
    logs: list[Log] = []
    others: list[Material] = []
    events: dict[Path, list[Path]] = {}
    for file in _likely_first(_without_older_states(files)):
        try:
            if "tfevents" in file.name and is_events(Source(file).head):
                events.setdefault(file.parent, []).append(file)
                continue
            if not budget.allows():
                continue
            found = read_file(file, mapping)
        except TrimtabError as error:
            problems.append(error.message)
            budget.wasted(file)
            continue
        for material in found:
            (logs if isinstance(material, Log) else others).append(material)  # type: ignore[arg-type]
        if not any(not isinstance(material, Log) or material.series for material in found):
            budget.wasted(file)
    for folder, parts in events.items():
        table = read_events(sorted(parts))
        if table is not None:
            logs.append(build(table, str(folder), mapping))
    return [*_richest(logs), *others]


def _likely_first(files: list[Path]) -> list[Path]:
    """Of more files than will be tried those first whose names speak of a log, and those last that may be prose."""
    if len(files) <= _MOST_TRIED // 10:
        return files
    return sorted(files, key=lambda file: (not _LIKELY.search(file.name), file.suffix.lower() in _PROSE))


def _without_older_states(files: list[Path]) -> list[Path]:
    """Files, but of the same file in several checkpoints only that of the last."""
    newest: dict[tuple[Path, str], tuple[int, Path]] = {}
    plain: list[Path] = []
    for file in files:
        match = _CHECKPOINT.fullmatch(file.parent.name)
        if match is None:
            plain.append(file)
            continue
        key = (file.parent.parent, file.name)
        step = int(match.group(1))
        if key not in newest or step > newest[key][0]:
            newest[key] = step, file
    at_top = {(file.parent, file.name) for file in plain}
    return plain + [file for key, (_, file) in newest.items() if key not in at_top]


def _richest(logs: list[Log]) -> list[Log]:
    """Of the logs of one stage the one with most series that cover most of the run."""
    best: dict[str, Log] = {}
    for log in logs:
        if not log.series:
            continue
        before = best.get(log.stage.value)
        if before is None or _weight(log) > _weight(before):
            best[log.stage.value] = log
    known = [log for stage, log in best.items() if stage != "unknown"]
    return known or list(best.values()) or logs[:1]


def _weight(log: Log) -> tuple[int, int]:
    last = log.steps[1] if log.steps else 0
    return len(log.series), last
