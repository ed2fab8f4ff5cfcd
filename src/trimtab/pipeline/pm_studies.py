"""Studies of a run's preference training on its own labels: hyperparameters compared, and a learning curve.

Every fold that was trained is kept in `artifacts/pm-folds.jsonl` of the run, under a hash of all that it depends on: an
interrupted study goes on, and a larger one takes over what smaller ones had.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.config.schema import PreferenceConfig
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.encoder import ScoreCodec, Start
from trimtab.models.kept import TrunkCache
from trimtab.pipeline.build import Workshop
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import open_run
from trimtab.preference.folds import FoldScores, Measured, fold_of_prompts, measure, train_fold
from trimtab.preference.learning_curve import Forecast, forecast
from trimtab.preference.rows import readable
from trimtab.runs.files import append_jsonl, read_jsonl, stable_hash
from trimtab.runs.run import Run
from trimtab.stats.intervals import Interval, paired_bootstrap

__all__ = ["Comparison", "Curve", "Row", "compare_settings", "grid", "learning_curve"]

Say = Callable[[str], None]
_STUDIED = ("preference.", "model.trainable", "model.lora_rank", "model.lora_alpha")


@dataclass(frozen=True)
class Row:
    """One combination of settings; `lead`: accuracy minus that of the first combination, on the same pairs."""

    settings: dict[str, Any]
    measured: Measured
    lead: Interval | None

    def as_dict(self) -> dict[str, Any]:
        lead = None if self.lead is None else self.lead._asdict()
        return {"settings": self.settings, **self.measured.as_dict(), "lead": lead}


@dataclass(frozen=True)
class Comparison:
    """All combinations in the order of the grid, and what "the longer response wins" gets."""

    run: Path
    folds: int
    length_accuracy: float
    rows: list[Row]


@dataclass(frozen=True)
class Curve:
    """Measurements by increasing number of pairs; no forecast from fewer than three sizes."""

    run: Path
    folds: int
    points: list[Measured]
    forecast: Forecast | None


def grid(settings: Sequence[str]) -> tuple[list[str], list[dict[str, Any]]]:
    """(settings that are the same for all, combinations of those that are given as lists of values).

    A list of values for a setting of the preference section, or for `model.trainable`, is an axis of the grid.

    Raises:
        TrimtabError: an empty list.
    """
    fixed, axes = [], {}
    for setting in settings:
        key, _, text = setting.partition("=")
        values = _values(text) if key.startswith(_STUDIED) else None
        if values is None:
            fixed.append(setting)
        elif not values:
            raise TrimtabError(ErrorKind.USAGE, f"--set {setting}: no values to compare", f"as in {key}=[1, 2]")
        else:
            axes[key] = list(dict.fromkeys(values))
    return fixed, [dict(zip(axes, combination, strict=True)) for combination in itertools.product(*axes.values())]


def _values(text: str) -> list[Any] | None:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return None
    return value if isinstance(value, list) else None


def compare_settings(
    directory: Path, name: str, settings: Sequence[str], *, folds: int = 5, say: Say = lambda _: None
) -> Comparison:
    """Measure every combination of the grid on the same folds of the run's labeled pairs.

    Raises:
        TrimtabError: the run has no labels, a setting does not hold, or there are too few prompts.
    """
    fixed, combinations = grid(settings)
    projects = [
        Project.open(directory, [*fixed, *(f"{key}={_toml(value)}" for key, value in combination.items())])
        for combination in combinations
    ]
    rows: list[Row] = []
    before: _Study | None = None
    for project, combination in zip(projects, combinations, strict=True):
        before = study = _Study(project, name, folds, say, before)
        measured = study.measured(", ".join(f"{key}={_toml(value)}" for key, value in combination.items()))
        lead = None
        if rows:
            groups = [pair.prompt.messages for pair in study.pairs]
            lead = paired_bootstrap(measured.wins, rows[0].measured.wins, groups, seed=study.seed)
        rows.append(Row(combination, measured, lead))
    lengths = [len(pair.chosen.text) - len(pair.rejected.text) for pair in study.pairs]
    longer = sum((d > 0) + (d == 0) / 2 for d in lengths) / len(lengths)
    return Comparison(study.run.path, folds, longer, rows)


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def learning_curve(
    directory: Path,
    name: str,
    settings: Sequence[str],
    *,
    folds: int = 5,
    sizes: int = 5,
    say: Say = lambda _: None,
) -> Curve:
    """Measure training on 1, 1/2, 1/4, ... of the prompts of the other folds.

    Args:
        directory: of the project.
        name: of the run whose labels are used.
        settings: changes to the project's.
        folds: at least 2.
        sizes: most halvings plus one; those with fewer than four prompts are left out.
        say: told what is going on.

    Raises:
        TrimtabError: as `compare_settings`.
    """
    study = _Study(Project.open(directory, list(settings)), name, folds, say)
    prompts = len({pair.prompt.messages for pair in study.pairs}) * (folds - 1) / folds
    shares = [0.5**i for i in reversed(range(sizes)) if i == 0 or prompts * 0.5**i >= 4]
    points = [study.measured(f"{share:.3g} of the pairs", share) for share in shares]
    found = None
    if len({point.trained_on for point in points}) >= 3:
        groups = [pair.prompt.messages for pair in study.pairs]
        found = forecast(points, groups, study.of_fold.tolist(), seed=study.seed)
    return Curve(study.run.path, folds, points, found)


class _Study:
    """The labeled pairs of a run in folds, the model that training starts from, and the folds that were trained."""

    def __init__(self, project: Project, name: str, folds: int, say: Say, before: _Study | None = None) -> None:
        """`before`: a study of the same run, whose frozen layers' output is taken over where they are the same."""
        self.project, self.say, self.folds, self.seed = project, say, folds, project.config.project.seed
        self.run = open_run(project, name) if project.config.preference.data else Run.open(project.runs / name)
        self.shop = Workshop(project, self.run)
        self.shop.use_threads()
        self._start: tuple[Start, ScoreCodec] | None = None
        self.pairs = self.shop.training_pairs()
        if self.config.too_long == "drop":
            self.pairs, _ = readable(self.config, *self._model(), self.pairs)
        self.of_fold = fold_of_prompts(self.pairs, folds, self.seed)
        self.kept = self.run.path / "artifacts" / "pm-folds.jsonl"
        same = before is not None and before._origin() == self._origin()
        self.cache: TrunkCache = before.cache if before is not None and same else TrunkCache()

    @property
    def config(self) -> PreferenceConfig:
        return self.project.config.preference

    def measured(self, what: str, share: float = 1.0) -> Measured:
        """All folds, trained where they are not kept."""
        known = {record.get("key"): record for record in read_jsonl(self.kept).records}
        found = []
        for fold in range(self.folds):
            key = self._key(fold, share)
            if key not in known:
                self.say(f"fold {fold + 1} of {self.folds}" + (f": {what}" if what else ""))
                base, codec = self._model()
                scores = train_fold(
                    self.config, base, codec, self.pairs, self.of_fold, fold, share=share, seed=self.seed,
                    precision=self.shop.precision, cache=self.cache,
                )  # fmt: skip
                append_jsonl(self.kept, [{"key": key, **scores.as_dict()}])
                found.append(scores)
            else:
                found.append(FoldScores.from_dict(known[key]))
        return measure(self.pairs, found, seed=self.seed)

    def _model(self) -> tuple[Start, ScoreCodec]:
        if self._start is None:
            self._start = self.shop.preference_start()
        return self._start

    def _key(self, fold: int, share: float) -> str:
        texts = [
            [[m.role, m.content] for m in p.prompt.messages] + [p.chosen.text, p.rejected.text, p.p_chosen, p.margin]
            + [p.weight]
            for p in self.pairs
        ]  # fmt: skip
        recipe = self.config.model_dump(exclude={"data", "human", "human_weight", "calibrated_score"})
        start, model = self._origin()
        return stable_hash([recipe, model, start, self.seed, self.folds, fold, share, stable_hash(texts)])

    def _origin(self) -> tuple[Any, list[Any]]:
        """What the weights that training starts from depend on, and what of them is frozen."""
        config = self.project.config
        start: Any = self.run.stage("sft").fingerprint
        if self.config.backbone is not None:
            start = [self.project.model_stamp(self.config.backbone), self.config.layers]
        return start, [config.model.name, config.model.dtype, str(config.model.layout), config.model.layout.lora]
