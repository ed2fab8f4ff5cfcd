"""A preference model from a file of pairs, on a backbone of its own: one command, and all that can be asked of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import pipeline
from typer.testing import CliRunner

from backbones import saved
from preference_training import polite_pairs
from trimtab.cli.main import app
from trimtab.data.convert import Form, write
from trimtab.data.pairs import read_pairs, write_pairs
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import ScalarModel
from trimtab.pipeline import work
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import plan_run, run_project, run_stage
from trimtab.pipeline.scaffold import init_project, project_of_pairs
from trimtab.runs.run import Run

QUICK = [
    "project.threads=1", "preference.epochs=1", "preference.max_tokens=60", "preference.learning_rate=3e-3",
    "preference.probe_responses=4",
]  # fmt: skip
SETS = [part for setting in QUICK for part in ("--set", setting)]


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("models"), "bert")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, backbone: Path) -> Path:
    """What `pm train --data` makes of transcripts as in hh-rlhf, where nothing was before."""
    directory = tmp_path_factory.mktemp("project") / "pm"
    data = directory.with_name("harmless.jsonl.gz")
    write(data, polite_pairs(60), Form.DIALOGUES)
    done = said("pm", "train", str(directory), "--data", str(data), "--backbone", str(backbone), *SETS)
    assert done.exit_code == 0, done.output
    assert f"made {directory / 'trimtab.toml'}" in done.stderr
    assert f"model: {directory / 'runs' / 'main' / 'artifacts' / 'pm' / 'model'}" in done.stderr
    return directory


def said(*words: str):
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_one_command_makes_a_preference_model_of_transcripts(trained):
    model = trained / "runs" / "main" / "artifacts" / "pm" / "model"
    score = pipeline("text-classification", str(model), device="cpu")
    asked = {"text": "rain", "text_pair": "please thanks"}
    assert isinstance(score(asked, function_to_apply="none")["score"], float)
    card = json.loads((model / "trimtab.json").read_text())
    assert card["backbone"].endswith("bert")
    stages = Run.open(trained / "runs" / "main").stages()
    assert list(stages) == ["pm"]


@pytest.mark.parametrize(
    "words",
    [
        ("eval", "--json"),
        ("calibrate", "--json"),
        ("probe", "--json"),
        ("compare", "--json", "--folds", "2", "--set", "preference.learning_rate=[3e-3, 1e-4]"),
        ("learning-curve", "--json", "--folds", "2", "--sizes", "2"),
    ],
)
def test_every_pm_command_works_on_it(trained, words):
    done = said("pm", words[0], str(trained), *words[1:], *SETS)
    assert done.exit_code in (0, 3), done.output
    assert json.loads(done.stdout)


def test_again_there_is_nothing_to_do_and_another_file_trains_again(trained, tmp_path):
    project = Project.open(trained, QUICK)
    notes: list[str] = []
    run_stage(project, "pm", say=notes.append)
    assert notes == ["pm: up to date"]
    write_pairs(tmp_path / "other.jsonl", polite_pairs(30, seed=5))
    done = said("pm", "train", str(trained), "--run", "other", "--data", str(tmp_path / "other.jsonl"), *SETS)
    assert done.exit_code == 0, done.output
    assert "made" not in done.stderr
    held_out = trained / "runs" / "other" / "artifacts" / "pm" / "held_out.jsonl"
    ids = {pair.id for pair in read_pairs(tmp_path / "other.jsonl")}
    assert {pair.id for pair in read_pairs(held_out)} <= ids


@pytest.mark.parametrize("broken", ["nowhere.jsonl", "broken.jsonl", "empty.jsonl"])
def test_a_file_that_cannot_be_read_leaves_no_project_behind(tmp_path, broken):
    (tmp_path / "broken.jsonl").write_text('{"prompt": "a"}\n')
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(TrimtabError) as caught:
        project_of_pairs(tmp_path / "p", tmp_path / broken)
    assert broken in caught.value.message
    assert not (tmp_path / "p").exists()


def test_a_backbone_that_is_none_is_named_before_anything_is_read(tmp_path):
    write_pairs(tmp_path / "pairs.jsonl", polite_pairs(10))
    path = project_of_pairs(tmp_path / "p", tmp_path / "pairs.jsonl", str(tmp_path / "nowhere"))
    with pytest.raises(TrimtabError, match=r"preference.backbone = .*does not exist") as caught:
        run_stage(Project.open(path), "pm")
    assert caught.value.kind is ErrorKind.MODEL
    assert not (tmp_path / "p" / "runs").exists()


def test_pairs_of_one_text_are_counted_aloud(tmp_path, backbone):
    pairs = polite_pairs(20)
    records = [{"prompt": p.prompt.text, "chosen": p.chosen.text, "rejected": p.rejected.text} for p in pairs]
    records[4]["rejected"] = records[4]["chosen"]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    path = project_of_pairs(tmp_path / "p", tmp_path / "pairs.jsonl", str(backbone))
    notes: list[str] = []
    run_stage(Project.open(path, QUICK), "pm", say=notes.append)
    assert any("1 of 20 pairs" in note and "teach nothing" in note for note in notes)


# in a project with everything else


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whole")
    init_project(directory, "tiny", "fail")
    for name, lines in (("prompts", 40), ("prompts_held_out", 12), ("demonstrations", 120)):
        path = directory / f"{name}.jsonl"
        path.write_text("\n".join(path.read_text().splitlines()[:lines]) + "\n")
    write_pairs(directory / "pairs.jsonl", polite_pairs(60))
    return directory


def test_ppo_learns_from_a_model_on_another_backbone(whole, backbone, monkeypatch):
    settings = [
        *QUICK, "sft.epochs=1", "ppo.iterations=2", "ppo.batch_size=8", "ppo.probe_prompts=4", "eval.bootstrap=50",
        "eval.responses_per_prompt=1", "ppo.advantage=gae", "preference.data=pairs.jsonl",
        f"preference.backbone={backbone}", "ppo.checkpoint_every=2",
    ]  # fmt: skip
    given = []
    train = work.ppo.train
    monkeypatch.setattr(
        work.ppo, "train", lambda *args, **named: given.append(named["preference"]) or train(*args, **named)
    )
    notes: list[str] = []
    project = Project.open(whole, settings)
    run = run_project(project, say=notes.append)
    assert given == [None]
    assert sum("the value model starts from the reference" in note for note in notes) == 1
    assert list(run.stages()) == ["sft", "pm", "ppo", "eval", "report"]
    why = {state.name: state.why for state in _states(project)}
    assert why["label"] == "not needed: preference.data is labeled"
    assert [state.name for state in plan_run(project)] == []
    changed = Project.open(whole, [*settings, "sft.epochs=2"])
    assert [state.name for state in plan_run(changed)] == ["sft", "ppo", "eval", "report"]
    with (whole / "pairs.jsonl").open("a") as file:
        file.write(json.dumps({"prompt": "rain", "chosen": "please", "rejected": "fool"}) + "\n")
    assert [state.name for state in plan_run(Project.open(whole, settings))] == ["pm", "ppo", "eval", "report"]


def _states(project: Project):
    from trimtab.pipeline.stages import plan

    return plan(project, Run.open(project.runs / "main"))


def test_with_data_and_no_backbone_the_model_stands_on_the_reference(whole):
    project = Project.open(whole, [*QUICK, "sft.epochs=1", "preference.data=pairs.jsonl"])
    assert [state.name for state in plan_run(project, "second", until="pm")] == ["sft", "pm"]
    with pytest.raises(TrimtabError, match="stage pm needs sft"):
        run_stage(project, "pm", "second")
    run = run_project(project, "second", until="pm")
    from trimtab.pipeline.build import Workshop

    shop = Workshop(project, run)
    assert isinstance(shop.preference_model(shop.reference()[0]).model, ScalarModel)


@pytest.mark.parametrize("kind", ["bert", "llama", "chat"])
def test_the_code_of_the_card_gives_the_scores_that_were_kept(tmp_path, kind):
    write_pairs(tmp_path / "pairs.jsonl", polite_pairs(30))
    project = tmp_path / "p"
    backbone = saved(tmp_path, "bert" if kind == "bert" else "llama", **({"chat": True} if kind == "chat" else {}))
    done = said(
        "pm", "train", str(project), "--data", str(tmp_path / "pairs.jsonl"), "--backbone", str(backbone), *SETS
    )
    assert done.exit_code == 0, done.output
    artifacts = project / "runs" / "main" / "artifacts" / "pm"
    card = (artifacts / "model" / "README.md").read_text()
    code = card.split("```python\n")[1].split("```")[0].replace("PATH", repr(str(artifacts / "model")))
    assert f'base_model: "{backbone.name}"' not in card  # a local directory is no name on a hub
    assert "| constitution |" not in card
    assert str(tmp_path) not in card
    pairs = {pair.id: pair for pair in read_pairs(artifacts / "held_out.jsonl")}
    kept = [json.loads(line) for line in (artifacts / "scores.jsonl").read_text().splitlines()]
    for row in kept[:3]:
        pair = pairs[row["id"]]
        for side in ("chosen", "rejected"):
            names = {"prompt": pair.prompt.text, "response": getattr(pair, side).text}
            exec(code, names)
            assert names["score"] == pytest.approx(row[f"{side}_score"], abs=1e-5)


def test_two_pairs_train_and_leave_figures_that_json_has(tmp_path, backbone):
    write_pairs(tmp_path / "pairs.jsonl", polite_pairs(2))
    done = said(
        "pm", "train", str(tmp_path / "p"), "--data", str(tmp_path / "pairs.jsonl"), "--backbone", str(backbone), *SETS
    )
    assert done.exit_code in (0, 3), done.output
    json.loads((tmp_path / "p" / "runs" / "main" / "artifacts" / "pm" / "result.json").read_text())
