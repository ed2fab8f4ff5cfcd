"""Settings of a run that lie beside its log: `args.json`, `config.yaml`, Hydra's, what a trainer saved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trimtab.doctor.importers.json_rows import loads

__all__ = ["settings_beside"]

_FILES = (
    "args.json", "training_args.json", "trainer_config.yaml", "train_config.yaml", "config.yaml", "hparams.yaml",
    "training_args.yaml", "llamaboard_config.yaml", ".hydra/config.yaml", "config.json",
)  # fmt: skip
_TELLING = (
    "learning_rate", "lr", "beta", "kl_coef", "init_kl_coef", "num_train_epochs", "algorithm", "actor_rollout_ref",
    "max_completion_length", "per_device_train_batch_size", "ppo_epochs", "trainer",
)  # fmt: skip
_LARGEST = 1 << 20
_MOST = 2_000


def settings_beside(path: Path) -> dict[str, Any]:
    """Settings by dotted keys from the first file beside (or above a checkpoint of) the log that has some."""
    here = path if path.is_dir() else path.parent
    folders = [here, here.parent] if here.name.startswith(("checkpoint-", "global_step")) else [here]
    for folder in folders:
        for name in _FILES:
            table = _read(folder / name)
            if isinstance(table, dict) and any(key in table for key in _TELLING):
                return dict(_dotted(table))
    return {}


def _read(file: Path) -> Any:
    try:
        if not file.is_file() or file.stat().st_size > _LARGEST:
            return None
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    if file.suffix == ".json":
        try:
            return loads(text)
        except ValueError:
            return None
    import yaml  # only where there is such a file

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None


def _dotted(table: Mapping[Any, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    for n, (key, value) in enumerate(table.items()):
        if n >= _MOST:
            return
        if isinstance(value, Mapping):
            if depth < 8:
                yield from _dotted(value, f"{prefix}{key}.", depth + 1)
        elif isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
            yield f"{prefix}{key}", value
