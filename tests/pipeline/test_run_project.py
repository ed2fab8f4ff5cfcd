"""A whole project in the tiny world, shrunk: every stage, what runs again, what goes on, what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.pipeline import work
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import plan_run, run_project, run_stage
from trimtab.pipeline.scaffold import init_project
from trimtab.runs.manifest import StageStatus
from trimtab.runs.run import Run

SMALL = [
    "project.threads=1", "sft.epochs=1", "sample.pairs_per_prompt=1", "preference.epochs=1", "ppo.iterations=4",
    "ppo.batch_size=16", "ppo.checkpoint_every=2", "ppo.probe_prompts=4", "eval.responses_per_prompt=1",
    "eval.bootstrap=50",
]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has run once, with a hundred lines a file."""
    directory = tmp_path_factory.mktemp("project")
    init_project(directory, "tiny", "fail")
    for name, lines in (("prompts", 80), ("prompts_held_out", 24), ("demonstrations", 320)):
        path = directory / f"{name}.jsonl"
        path.write_text("\n".join(path.read_text().splitlines()[:lines]) + "\n")
    run_project(Project.open(directory, SMALL))
    return directory


@pytest.fixture
def project(finished: Path, tmp_path: Path) -> Path:
    """A copy of it to spoil."""
    shutil.copytree(finished, tmp_path / "p")
    return tmp_path / "p"


def wanted(directory: Path, *changes: str, **options: str) -> list[str]:
    return [state.name for state in plan_run(Project.open(directory, [*SMALL, *changes]), **options)]


def test_every_stage_leaves_what_others_can_read(finished):
    run = Run.open(finished / "runs" / "main")
    assert {name: record.status for name, record in run.stages().items()} == dict.fromkeys(
        ("sft", "sample", "label", "pm", "ppo", "eval", "report"), StageStatus.DONE
    )
    policy = run.artifact("ppo") / "model"
    assert AutoModelForCausalLM.from_pretrained(policy).config.vocab_size == len(AutoTokenizer.from_pretrained(policy))
    scorer = AutoModelForSequenceClassification.from_pretrained(run.artifact("pm") / "model")
    assert scorer.config.num_labels == 1
    pairs = [json.loads(line) for line in (run.artifact("label") / "pairs.jsonl").read_text().splitlines()]
    assert {"prompt", "chosen", "rejected", "p_chosen"} <= pairs[0].keys()
    assert all(0.5 <= pair["p_chosen"] <= 1 for pair in pairs)
    result = json.loads((run.artifact("eval") / "result.json").read_text())
    assert [measure["name"] for measure in result["measures"]] == ["gold", "preference"]
    steps, scores = run.signal("score/mean", "ppo")
    assert steps.tolist() == [1, 2, 3, 4]
    assert len(scores) == 4
    assert {record["step"] for record in run.samples(stage="ppo")} == {0, 2, 4}
    assert (finished / "runs" / "main" / "report.html").stat().st_size > 10_000


def test_a_second_run_has_nothing_to_do(finished):
    assert wanted(finished) == []


@pytest.mark.parametrize(
    ("change", "stages"),
    [
        ("ppo.beta=0.2", ["ppo", "eval", "report"]),
        ("preference.epochs=2", ["pm", "ppo", "eval", "report"]),
        ("label.simulated='blind'", ["label", "pm", "ppo", "eval", "report"]),
        ("eval.bootstrap=60", ["eval", "report"]),
        ("eval.measures=['gold', 'rule:finished']", ["eval", "report"]),
        ("ppo.probe_prompts=2", []),
        ("project.seed=1", ["sft", "sample", "label", "pm", "ppo", "eval", "report"]),
        ("ppo.reward='rule:length'", ["ppo", "eval", "report"]),
        ("project.threads=2", []),
    ],
)
def test_a_changed_setting_runs_what_depends_on_it(finished, change, stages):
    assert wanted(finished, change) == stages


def test_changed_files_run_what_reads_them(project):
    held_out = project / "prompts_held_out.jsonl"
    held_out.write_text("\n".join(held_out.read_text().splitlines()[:20]) + "\n")
    assert wanted(project) == ["eval", "report"]
    constitution = project / "constitution.toml"
    constitution.write_text(constitution.read_text().replace('text = "', 'text = "Above all: ', 1))
    assert wanted(project) == ["label", "pm", "ppo", "eval", "report"]


def test_from_and_until(finished):
    assert wanted(finished, start="pm", until="ppo") == ["pm", "ppo"]
    assert wanted(finished, "preference.epochs=2", until="pm") == ["pm"]
    with pytest.raises(TrimtabError, match="--from ppo comes after --until pm"):
        wanted(finished, start="ppo", until="pm")
    with pytest.raises(TrimtabError, match="needs pm, which is not up to date") as caught:
        wanted(finished, "preference.epochs=2", start="ppo")
    assert caught.value.hint == f"run it first: trimtab run {finished} --until pm (with the same --set)"


def test_one_stage_again_is_a_new_attempt_and_keeps_the_old(project):
    run = run_stage(Project.open(project, SMALL), "label", again=True)
    assert run.stage("label").attempt == 2
    assert (run.path / "attempts" / "label-1" / "artifacts" / "label" / "pairs.jsonl").is_file()
    assert (run.artifact("label") / "pairs.jsonl").is_file()


def test_what_follows_from_a_stage_that_ran_again_is_out_of_date(project):
    run_stage(Project.open(project, SMALL), "ppo", again=True)
    assert wanted(project) == ["eval", "report"]


def test_a_stage_without_its_artifacts_is_not_up_to_date(project):
    shutil.rmtree(project / "runs" / "main" / "artifacts" / "pm")
    assert wanted(project) == ["pm", "ppo", "eval", "report"]


def test_modules_behind_a_reward_are_inputs_what_they_import_too(project):
    (project / "rewards.py").write_text("import helpers\n\ndef score(p, r):\n    return [helpers.one() for _ in r]\n")
    (project / "helpers").mkdir()
    (project / "helpers" / "__init__.py").write_text("from .numbers import one\n")
    (project / "helpers" / "numbers.py").write_text("def one():\n    return 1.0\n")
    (project / "unrelated.py").write_text("x = 1\n")
    opened = Project.open(project)
    before = opened.code_hashes(["rewards:score"])
    assert set(before) == {"rewards.py", "helpers/__init__.py", "helpers/numbers.py"}
    (project / "helpers" / "numbers.py").write_text("def one():\n    return 2.0\n")
    assert opened.code_hashes(["rewards:score"]) != before


@pytest.mark.parametrize(
    "change",
    [
        "ppo.reward='rule:lenght'",
        "ppo.reward='rewards:missing'",
        "ppo.reward={preference = 1.0, nonsense = 1.0}",
        "eval.measures=['preference']",
        "eval.measures=['gold', 'gold']",
        "label.judge='nobody'",
        "sample.source='contrast'",
        "model.trainable=top:99",
        "model.name='/nonexistent'",
        "ppo.max_new_tokens=100000",
        "prompts.max_tokens=1",
        "prompts.held_out='constitution.toml'",
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_moved(project, change):
    with pytest.raises(TrimtabError):
        run_project(Project.open(project, [*SMALL, "label.simulated='faithful'", change]))
    assert wanted(project) == []  # the finished run is still one
    assert not (project / "runs" / "main" / "attempts").exists()


def test_prompts_that_are_not_held_out_are_said(project):
    (project / "prompts_held_out.jsonl").write_text((project / "prompts.jsonl").read_text())
    said: list[str] = []
    run_project(Project.open(project, SMALL), say=said.append)
    assert any("80 prompts stand in both" in line for line in said)


def test_a_refused_stage_leaves_no_empty_run(project):
    with pytest.raises(TrimtabError, match="label needs sample") as caught:
        run_stage(Project.open(project, SMALL), "label", "typo")
    assert not (project / "runs" / "typo").exists()
    assert "--run typo" in caught.value.hint


def test_probes_are_not_doubled_when_a_stage_stops_before_its_first_checkpoint(project, monkeypatch):
    from trimtab.ppo import trainer

    settings, iterate = [*SMALL, "ppo.beta=0.4"], trainer._Trainer._iterate

    def dying(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer._Trainer, "_iterate", dying)
    with pytest.raises(TrimtabError, match="interrupted"):
        run_project(Project.open(project, settings))
    monkeypatch.setattr(trainer._Trainer, "_iterate", iterate)
    run = run_project(Project.open(project, settings))
    assert len(run.samples(step=0, stage="ppo")) == 4


def test_a_stage_whose_inputs_are_missing_is_refused(project):
    with pytest.raises(TrimtabError, match="stage ppo needs pm"):
        run_stage(Project.open(project, [*SMALL, "preference.epochs=2"]), "ppo")


def test_an_interrupted_stage_goes_on_from_its_checkpoint(project, monkeypatch):
    settings = [*SMALL, "ppo.beta=0.3"]
    from trimtab.ppo import trainer

    iterate, done = trainer._Trainer._iterate, []

    def dying(self):
        if self.iteration == 3:
            raise KeyboardInterrupt
        done.append(self.iteration)
        return iterate(self)

    monkeypatch.setattr(trainer._Trainer, "_iterate", dying)
    with pytest.raises(TrimtabError, match="stage ppo was interrupted") as caught:
        run_project(Project.open(project, settings))
    assert caught.value.kind == ErrorKind.INTERRUPTED
    assert Run.open(project / "runs" / "main").stage("ppo").status == StageStatus.INTERRUPTED
    done.clear()
    monkeypatch.setattr(trainer._Trainer, "_iterate", lambda self: done.append(self.iteration) or iterate(self))
    run = run_project(Project.open(project, settings))
    assert done == [2, 3]
    assert run.stage("ppo").attempt == 2  # the attempt that the new beta began, not a third
    assert [row["step"] for row in run.metrics("ppo")] == [0, 1, 2, 3, 4]


def test_a_failed_stage_says_so_and_others_keep_their_state(project, monkeypatch):
    def broken(shop):
        raise RuntimeError("boom")

    monkeypatch.setitem(work.WORK, "eval", broken)
    with pytest.raises(RuntimeError, match="boom"):
        run_project(Project.open(project, [*SMALL, "eval.bootstrap=70"]))
    run = Run.open(project / "runs" / "main")
    assert run.stage("eval").status == StageStatus.FAILED
    assert run.stage("ppo").status == StageStatus.DONE


def test_sampling_goes_on_after_a_half_written_line(project):
    changed = [*SMALL, "sample.temperature=0.9"]
    run = run_project(Project.open(project, changed), until="sample")
    pairs = (run.artifact("sample") / "pairs.jsonl").read_text()
    run.close()
    again = Project.open(project, [*SMALL, "sample.temperature=0.9"])
    fresh = Run.open(project / "runs" / "main")
    fresh.begin_stage("sample", next(s.fingerprint for s in plan_run(again, start="sample") if s.name == "sample"))
    half = fresh.artifact("sample") / "partial.jsonl"
    half.parent.mkdir(parents=True, exist_ok=True)
    half.write_text(pairs[: len(pairs) // 2])
    fresh.close()
    resumed = run_project(again, until="sample")
    assert (resumed.artifact("sample") / "pairs.jsonl").read_text() == pairs


def test_a_reward_without_a_preference_model_needs_no_pairs(project):
    shutil.rmtree(project / "runs")
    settings = [*SMALL, "ppo.reward={'rule:length' = 0.1, 'rule:repetition' = -1.0}"]
    assert wanted(project, *settings[len(SMALL) :]) == ["sft", "ppo", "eval", "report"]
    run = run_project(Project.open(project, settings))
    assert "pm" not in run.stages()
    assert {"score/rule:length", "score/rule:repetition"} <= run.metrics("ppo")[-1].keys()


def test_shared_layers_run_through_the_whole_project(project):
    run = run_project(Project.open(project, [*SMALL, "model.trainable=top:1", "ppo.value_normalisation=true"]))
    assert run.status == StageStatus.DONE
    row = run.metrics("ppo")[1]
    assert abs(row["check/kl_at_start"]) < 1e-5


def test_a_measure_that_was_trained_on_is_refused(project):
    with pytest.raises(TrimtabError, match="which the policy was trained on") as caught:
        run_project(Project.open(project, [*SMALL, "ppo.reward='rule:length'", "eval.measures=['rule:length']"]))
    assert caught.value.kind == ErrorKind.CONFIG


def test_a_directory_that_is_no_project(tmp_path):
    with pytest.raises(TrimtabError, match=r"no trimtab\.toml here") as caught:
        Project.open(tmp_path)
    assert "trimtab init" in caught.value.hint


def test_pairs_of_people_are_mixed_in_with_their_weight_and_measured_apart(project, monkeypatch):
    label = project / "runs" / "main" / "artifacts" / "label" / "pairs.jsonl"
    rows = [json.loads(line) for line in label.read_text().splitlines()]
    people = [{"prompt": row["prompt"], "chosen": row["rejected"], "rejected": row["chosen"]} for row in rows]
    (project / "people.jsonl").write_text("".join(json.dumps(row) + "\n" for row in people))
    changes = ("preference.human='people.jsonl'", "preference.human_weight=3")
    assert wanted(project, *changes) == ["pm", "ppo", "eval", "report"]
    assert wanted(project, "preference.human_weight=3") == []  # a weight without pairs changes nothing

    trained_on = []
    train = work.preference.train
    monkeypatch.setattr(
        work.preference, "train", lambda config, base, codec, pairs, **rest: train(
            config, base, codec, trained_on.append(pairs) or pairs, **rest
        ),
    )  # fmt: skip
    run_stage(Project.open(project, [*SMALL, *changes]), "pm")
    (pairs,) = trained_on
    assert [pair.weight for pair in pairs] == [1.0] * len(rows) + [3.0] * len(people)
    assert len({pair.id for pair in pairs}) == len(pairs)
    assert {pair.extra.get("labeled_by") for pair in pairs[len(rows) :]} == {"human"}
    result = json.loads((project / "runs/main/artifacts/pm/result.json").read_text())
    assert result["human_pairs"] == len(people)
    assert result["human_held_out"]["pairs"] == result["pairs"] / 2  # both judged the same prompts

    (project / "people.jsonl").write_text("{}\n")
    with pytest.raises(TrimtabError, match=r"people\.jsonl"):
        run_project(Project.open(project, [*SMALL, *changes]))
