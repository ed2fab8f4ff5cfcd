"""pm compare and pm learning-curve on a small project: what they print, what they keep, what is not trained again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from trimtab.cli.pm_compare import compare, learning_curve
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.pipeline import pm_studies
from trimtab.pipeline.pm_studies import compare_settings, grid
from trimtab.pipeline.pm_studies import learning_curve as study_curve
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import run_project
from trimtab.pipeline.scaffold import init_project

SETTINGS = [
    "project.threads=1",
    "sft.epochs=1",
    "sample.pairs_per_prompt=1",
    "preference.epochs=2",
    "preference.batch_size=8",
]
RATES = "preference.learning_rate=[3e-3, 1e-5]"


@pytest.fixture(scope="module")
def labeled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has run up to its labels."""
    directory = tmp_path_factory.mktemp("project")
    init_project(directory, "tiny", "fail")
    for name, lines in (("prompts", 60), ("prompts_held_out", 16), ("demonstrations", 160)):
        path = directory / f"{name}.jsonl"
        path.write_text("\n".join(path.read_text().splitlines()[:lines]) + "\n")
    run_project(Project.open(directory, SETTINGS), until="label")
    return directory


@pytest.fixture
def project(labeled: Path) -> Path:
    (labeled / "runs" / "main" / "artifacts" / "pm-folds.jsonl").unlink(missing_ok=True)
    return labeled


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float]]:
    """(fold, share) of each training that was made."""
    made: list[tuple[int, float]] = []
    real = pm_studies.train_fold

    def counting(*arguments, **rest):
        made.append((arguments[5], rest["share"]))
        return real(*arguments, **rest)

    monkeypatch.setattr(pm_studies, "train_fold", counting)
    return made


def test_lists_of_values_are_the_axes_of_a_grid():
    fixed, combinations = grid([RATES, "preference.epochs=[1,2]", "project.seed=3", "eval.measures=['gold']"])
    assert fixed == ["project.seed=3", "eval.measures=['gold']"]
    assert combinations[0] == {"preference.learning_rate": 3e-3, "preference.epochs": 1}
    assert len(combinations) == 4
    assert grid(["preference.epochs=2"]) == (["preference.epochs=2"], [{}])
    assert grid(["model.trainable=['lora','top:1','lora']"])[1] == [
        {"model.trainable": "lora"},
        {"model.trainable": "top:1"},
    ]
    with pytest.raises(TrimtabError, match="no values to compare") as caught:
        grid(["preference.epochs=[]"])
    assert caught.value.kind is ErrorKind.USAGE


def test_combinations_are_measured_on_the_same_pairs_and_kept_folds_are_not_trained_again(project, trainings):
    settings = [*SETTINGS, RATES, "model.trainable=['full', 'top:1']"]
    stop_after = 3

    def dying(text: str) -> None:
        if len(trainings) == stop_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare_settings(project, "main", settings, folds=3, say=dying)
    assert len(trainings) == 3
    found = compare_settings(project, "main", settings, folds=3)
    assert len(trainings) == 12
    first = found.rows[0].measured
    assert first.pairs >= 50
    assert all(row.measured.pairs == first.pairs for row in found.rows)
    assert found.rows[0].lead is None
    # a rate near nothing leaves every pair near one half; the difference is paired
    slow = found.rows[2]
    assert slow.settings == {"preference.learning_rate": 1e-5, "model.trainable": "full"}
    assert slow.lead.mean == pytest.approx(slow.measured.accuracy.mean - first.accuracy.mean)
    assert slow.measured.log_loss.mean == pytest.approx(0.6931, abs=2e-3)
    assert abs(first.log_loss.mean - 0.6931) > 5e-3
    again = compare_settings(project, "main", settings, folds=3)
    assert len(trainings) == 12
    assert [row.as_dict() for row in again.rows] == [row.as_dict() for row in found.rows]
    compare_settings(project, "main", [*SETTINGS, "preference.center_coef=0.1"], folds=3)
    assert len(trainings) == 15


def test_sizes_are_halved_and_the_whole_is_what_compare_measures(project, trainings):
    curve = study_curve(project, "main", SETTINGS, folds=3, sizes=4)
    assert [share for _, share in trainings] == [0.125] * 3 + [0.25] * 3 + [0.5] * 3 + [1.0] * 3
    sizes = [point.trained_on for point in curve.points]
    assert sizes == sorted(sizes)
    assert sizes[3] == pytest.approx(2 * sizes[2], rel=0.1)
    assert curve.forecast is not None
    compared = compare_settings(project, "main", SETTINGS, folds=3)
    assert len(trainings) == 12
    assert compared.rows[0].measured.as_dict() == curve.points[-1].as_dict()
    assert study_curve(project, "main", SETTINGS, folds=3, sizes=2).forecast is None


def app() -> typer.Typer:
    group = typer.Typer()
    group.command("compare")(compare)
    group.command("learning-curve")(learning_curve)
    return group


def test_the_commands_print_a_table_and_json(project):
    common = [str(project), "--folds", "2", *(x for s in SETTINGS for x in ("--set", s))]
    table = CliRunner().invoke(app(), ["compare", *common, "--set", RATES])
    assert table.exit_code == 0, table.output
    assert "learning_rate" in table.stdout
    assert "points against the first" in table.stdout
    parsed = json.loads(CliRunner().invoke(app(), ["compare", *common, "--set", RATES, "--json"]).stdout)
    assert parsed["count"] == 2
    assert parsed["combinations"][1]["lead"]["n"] == parsed["combinations"][0]["pairs"]
    curve = CliRunner().invoke(app(), ["learning-curve", *common, "--sizes", "3"])
    assert curve.exit_code == 0, curve.output
    assert "points of accuracy by the fit accuracy =" in curve.stdout
    told = json.loads(CliRunner().invoke(app(), ["learning-curve", *common, "--sizes", "3", "--json"]).stdout)
    assert told["count"] == 3
    assert told["forecast"]["verdict"] in ("worth it", "little", "cannot tell")
    few = CliRunner().invoke(app(), ["learning-curve", *common, "--sizes", "2"])
    assert "Too few sizes for a forecast" in few.stdout


def test_a_run_without_labels_and_settings_that_do_not_hold_are_refused_before_anything_is_trained(
    project, trainings, tmp_path
):
    with pytest.raises(TrimtabError, match=r"preference\.epochs"):
        compare_settings(project, "main", [*SETTINGS, "preference.epochs=[1, 0]"], folds=3)
    with pytest.raises(TrimtabError, match="folds of"):
        compare_settings(project, "main", SETTINGS, folds=50)
    run_project(Project.open(project, SETTINGS), "early", until="sft")
    with pytest.raises(TrimtabError, match="has no labeled pairs yet"):
        compare_settings(project, "early", SETTINGS, folds=3)
    assert trainings == []
