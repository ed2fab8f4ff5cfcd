"""Run directories: creation, stages and attempts, signals, samples, one writer."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.runs import Action, Run, list_runs
from trimtab.runs.manifest import StageStatus, check_run_name
from trimtab.runs.paths import set_aside


def make(root: Path, name: str = "r", **more: object) -> Run:
    return Run.create(root, name, **({"config": {"a": 1}, "seed": 3} | more))


def in_another_process(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], capture_output=True, text=True, check=False
    )


# names and creation


@pytest.mark.parametrize(
    "name", ["", ".x", "..", "-x", "a/b", "a\\b", "a@3", "a:b", " a", "a ", "a\nb", "a\x1b", "a\ud800", "x" * 121]
)
def test_bad_run_names_are_refused(tmp_path, name):
    with pytest.raises(TrimtabError, match="cannot name a run") as caught:
        make(tmp_path, name)
    assert caught.value.kind == ErrorKind.USAGE
    assert list(tmp_path.iterdir()) == []


@given(st.text(max_size=130))
def test_an_accepted_name_is_one_plain_path_component(name):
    try:
        check_run_name(name)
    except TrimtabError:
        return
    assert Path("root", name).parent == Path("root")
    assert not name.startswith((".", "-"))


def test_manifest_holds_config_seed_versions_parent_hashes(tmp_path):
    make(tmp_path, parent="p@12", hashes={"prompts": "ff"}).set_hashes({"model": "ee"})
    manifest = json.loads((tmp_path / "r" / "run.json").read_text())
    assert manifest["schema_version"] == 1
    assert (manifest["name"], manifest["config"], manifest["seed"], manifest["parent"]) == ("r", {"a": 1}, 3, "p@12")
    assert manifest["hashes"] == {"prompts": "ff", "model": "ee"}
    assert manifest["versions"]["python"].startswith("3.")
    assert "numpy" in manifest["versions"]


def test_existing_fail_resume_new_overwrite(tmp_path):
    run = make(tmp_path)
    run.log("ppo", 1, {"score/mean": 1})
    with pytest.raises(TrimtabError, match="there is a run of this name") as caught:
        make(tmp_path)
    assert caught.value.kind == ErrorKind.RUN
    resumed = make(tmp_path, existing="resume", config={"a": 2})
    assert resumed.config == {"a": 2}
    assert resumed.manifest["earlier_configs"][0]["config"] == {"a": 1}
    assert len(resumed.metrics()) == 1
    assert make(tmp_path, existing="new").path.name == "r-2"
    assert make(tmp_path, existing="new").path.name == "r-3"
    assert make(tmp_path, "fresh", existing="new").path.name == "fresh"
    (resumed.path / "artifacts").mkdir()
    again = make(tmp_path, existing="overwrite")
    assert again.metrics() == []
    assert sorted(p.name for p in again.path.iterdir()) == ["run.json", "run.lock"]


def test_resuming_with_the_same_config_notes_no_earlier_one(tmp_path):
    make(tmp_path)
    assert make(tmp_path, existing="resume").manifest["earlier_configs"] == []


@pytest.mark.parametrize("existing", ["fail", "resume", "overwrite"])
def test_what_is_not_a_run_is_never_touched(tmp_path, existing):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "thesis.tex").write_text("years of work")
    with pytest.raises(TrimtabError, match="is not a run"):
        make(tmp_path, existing=existing)
    assert (tmp_path / "r" / "thesis.tex").read_text() == "years of work"


def test_overwrite_does_not_follow_links_out_of_the_run(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_text("x")
    run = make(tmp_path)
    (run.path / "artifacts").symlink_to(tmp_path / "outside")
    make(tmp_path, existing="overwrite")
    assert (tmp_path / "outside" / "kept").exists()


def test_a_broken_manifest_can_be_overwritten_but_not_resumed(tmp_path):
    run = make(tmp_path)
    run.close()
    (run.path / "run.json").write_text("{")
    with pytest.raises(TrimtabError, match="not valid JSON"):
        make(tmp_path, existing="resume")
    assert make(tmp_path, existing="overwrite").config == {"a": 1}


def test_a_directory_left_by_a_process_killed_at_birth_is_free(tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "run.lock").touch()
    assert make(tmp_path).config == {"a": 1}


@pytest.mark.parametrize(
    ("manifest", "what"),
    [
        ({"schema_version": 99}, "schema_version is 99"),
        ({}, "schema_version is None"),
        ({"schema_version": 1, "name": "r"}, "lacks created, seed, config, stages"),
    ],
)
def test_a_manifest_that_cannot_be_read_says_why(tmp_path, manifest, what):
    (tmp_path / "run.json").write_text(json.dumps(manifest))
    with pytest.raises(TrimtabError, match=what):
        Run.open(tmp_path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("stages", []),
        ("stages.ppo", {}),
        ("stages.ppo", 3),
        ("stages.ppo.status", "sleeping"),
        ("stages.ppo.status", []),
        ("stages.ppo.fingerprint", None),
        ("stages.ppo.attempt", "x"),
        ("stages.ppo.attempt", -1),
        ("stages.ppo.started", "yesterday"),
        ("stages.ppo.ended", 1e300),
        ("stages.ppo.artifacts", ["../../other"]),
        ("stages.ppo.info", []),
        ("stages.No Stage", {}),
        ("created", None),
        ("created", "today"),
        ("created", math.nan),
        ("config", None),
        ("seed", "x"),
        ("seed", True),
        ("parent", 3),
        ("hashes", []),
    ],
)
def test_an_odd_manifest_is_refused_by_file_and_key_and_listed_as_broken(tmp_path, place, value):
    run = make(tmp_path, "odd")
    run.begin_stage("ppo", "f")
    make(tmp_path, "fine")
    manifest = json.loads((run.path / "run.json").read_text())
    *path, last = place.split(".")
    table = manifest
    for part in path:
        table = table[part]
    table[last] = value
    (run.path / "run.json").write_text(json.dumps(manifest))
    named = {"stages.No Stage": "stages is 'No Stage'"}.get(place, place + (".status" if value == {} else "") + " is ")
    with pytest.raises(TrimtabError, match=f"odd/run.json: {re.escape(named)}.*must be") as caught:
        Run.open(run.path)
    assert caught.value.kind == ErrorKind.RUN
    heard = []
    assert [r.name for r in list_runs(tmp_path, on_broken=lambda path, _: heard.append(path.name))] == ["fine"]
    assert heard == ["odd"]


@pytest.mark.parametrize("existing", ["fail", "resume", "overwrite", "new"])
def test_a_root_that_is_a_file_is_told_in_plain_words(tmp_path, existing):
    (tmp_path / "root").touch()
    with pytest.raises(TrimtabError, match="root/r: cannot be written: "):
        make(tmp_path / "root", existing=existing)


def test_a_run_deleted_under_its_writer_is_told_in_plain_words(tmp_path):
    run = make(tmp_path)
    shutil.rmtree(run.path)
    with pytest.raises(TrimtabError, match=r"metrics\.jsonl: cannot be written: No such file"):
        run.log("ppo", 1, {"score/mean": 1.0})


def test_open_of_no_run_says_so(tmp_path):
    with pytest.raises(TrimtabError, match="is not a run"):
        Run.open(tmp_path / "nothing")


def test_list_runs_oldest_first_and_tells_of_broken_ones(tmp_path):
    for name in ("b", "a"):
        make(tmp_path, name)
    (tmp_path / "notes").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("nope")
    heard = []
    runs = list_runs(tmp_path, on_broken=lambda path, error: heard.append((path.name, error.kind)))
    assert [r.name for r in runs] == ["b", "a"]
    assert heard == [("broken", ErrorKind.RUN)]
    assert list_runs(tmp_path / "missing") == []


# stages


def test_a_stage_goes_on_under_its_fingerprint_and_begins_anew_under_another(tmp_path):
    run = make(tmp_path)
    assert run.stage("ppo").status == StageStatus.PENDING
    first = run.begin_stage("ppo", "f1", artifacts=["policy"])
    assert (first.attempt, first.status) == (1, "running")
    run.artifact("policy").write_text("old policy")
    (run.checkpoint_dir("ppo") / "step-1").mkdir()
    run.end_stage("ppo", "interrupted", {"step": 1})
    assert run.begin_stage("ppo", "f1").attempt == 1
    assert (run.checkpoint_dir("ppo") / "step-1").exists()
    again = run.begin_stage("ppo", "f2", artifacts=["policy"])
    assert (again.attempt, again.info) == (2, {})
    assert not run.artifact("policy").exists()
    assert list(run.checkpoint_dir("ppo").iterdir()) == []
    assert (run.path / "attempts/ppo-1/artifacts/policy").read_text() == "old policy"
    assert (run.path / "attempts/ppo-1/checkpoints/step-1").is_dir()


def test_a_done_stage_begins_anew_even_under_its_fingerprint(tmp_path):
    run = make(tmp_path)
    run.begin_stage("sft", "f")
    run.artifact("sft").mkdir()
    run.end_stage("sft", "done", {"loss": 1.0})
    assert run.stage("sft").info == {"loss": 1.0}
    assert run.begin_stage("sft", "f").attempt == 2
    assert (run.path / "attempts/sft-1/artifacts/sft").is_dir()


def test_setting_aside_never_overwrites_what_an_interrupted_move_left(tmp_path):
    run = make(tmp_path)
    run.begin_stage("sft", "f1", artifacts=["m"])
    run.artifact("m").write_text("second half")
    (run.path / "attempts/sft-1/artifacts").mkdir(parents=True)
    (run.path / "attempts/sft-1/artifacts/m").write_text("first half")
    run.begin_stage("sft", "f2")
    assert (run.path / "attempts/sft-1/artifacts/m").read_text() == "first half"
    assert (run.path / "attempts/sft-1/artifacts/m.2").read_text() == "second half"


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_a_kill_while_setting_aside_never_leaves_a_stage_done_without_its_artifacts(tmp_path, monkeypatch, moves):
    run = make(tmp_path)
    run.begin_stage("sft", "f1", artifacts=["a", "b"])
    for name in ("a", "b"):
        run.artifact(name).write_text(name)
    run.end_stage("sft")
    done = []

    class Killed(BaseException):
        pass

    def move_until_killed(source: Path, target: Path) -> None:
        if len(done) == moves:
            raise Killed
        done.append(source)
        set_aside(source, target)

    monkeypatch.setattr("trimtab.runs.run.set_aside", move_until_killed)
    with pytest.raises(Killed):
        run.begin_stage("sft", "f2", artifacts=["b"])
    monkeypatch.undo()
    left = Run.open(run.path).stage("sft")
    assert (left.status, left.fingerprint, left.attempt) == ("interrupted", "", 1)
    # whichever fingerprint comes next, even the old one
    assert run.begin_stage("sft", "f1", artifacts=["a", "b"]).attempt == 2
    assert [(run.path / "attempts/sft-1/artifacts" / name).read_text() for name in ("a", "b")] == ["a", "b"]
    assert list((run.path / "artifacts").iterdir()) == []


def test_records_survive_reopening_and_a_second_run_object_loses_nothing(tmp_path):
    run, other = make(tmp_path), Run.open(tmp_path / "r")
    run.begin_stage("sft", "f")
    other.begin_stage("label", "g")
    run.end_stage("sft", info={"n": 2})
    stages = Run.open(run.path).stages()
    assert list(stages) == ["sft", "label"]
    assert (stages["sft"].status, stages["sft"].fingerprint, stages["sft"].info) == ("done", "f", {"n": 2})
    assert stages["sft"].ended >= stages["sft"].started


def test_ending_what_is_not_running_and_odd_endings_are_errors(tmp_path):
    run = make(tmp_path)
    with pytest.raises(ValueError, match="pending, not running"):
        run.end_stage("sft")
    run.begin_stage("sft", "f")
    with pytest.raises(ValueError, match="not as running"):
        run.end_stage("sft", "running")
    with pytest.raises(ValueError, match="cannot name a stage"):
        run.begin_stage("../x", "f")


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "", "."])
def test_artifacts_stay_inside_the_run(tmp_path, name):
    with pytest.raises(ValueError, match="no name below artifacts"):
        make(tmp_path).artifact(name)


# signals


def test_signal_reads_back_steps_and_values_with_nan_and_infinities(tmp_path):
    run = make(tmp_path)
    run.log("ppo", 1, {"score/mean": np.float32(0.5), "kl/reference": math.nan, "response/length_max": np.int64(7)})
    run.log("ppo", 2, {"score/mean": -math.inf, "kl/reference": None})
    steps, values = run.signal("score/mean")
    assert (steps.dtype, values.dtype) == (np.int64, np.float64)
    assert (steps.tolist(), values.tolist()) == ([1, 2], [0.5, -math.inf])
    steps, values = run.signal("kl/reference")
    assert steps.tolist() == [1]
    assert math.isnan(values[0])
    assert run.signal("score/max")[0].tolist() == []
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    first = json.loads(lines[0], parse_constant=pytest.fail)
    assert first["kl/reference"] is None
    assert first["nonfinite"] == {"kl/reference": "nan"}
    assert first["response/length_max"] == 7
    assert {"stage": "ppo", "step": 1, "attempt": 1}.items() <= first.items()


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("score/meen ", None),
        ("policy/los", "Did you mean 'policy/loss'"),
        ("mine", "user/my_signal"),
        ("step", "not declared"),
        ("score/<name>", "not declared"),
        ("accuracy/train", "declared for pm, not for stage 'ppo'"),
    ],
)
def test_undeclared_keys_are_refused_and_nothing_is_written(tmp_path, key, what):
    run = make(tmp_path)
    if what is None:  # fits the pattern score/<name>
        run.log("ppo", 1, {key: 1.0})
        return
    with pytest.raises(TrimtabError, match=what):
        run.log("ppo", 1, {"score/mean": 1.0, key: 1.0})
    assert not (run.path / "metrics.jsonl").exists()


def test_values_that_are_no_numbers_are_refused(tmp_path):
    run = make(tmp_path)
    with pytest.raises(TypeError, match="str is not a number"):
        run.log("ppo", 1, {"score/mean": "high"})
    with pytest.raises(ValueError, match="whole number from 0"):
        run.log("ppo", -1, {"score/mean": 1.0})


def test_readers_see_the_last_attempt_and_the_last_value_of_a_step(tmp_path):
    run = make(tmp_path)
    run.begin_stage("pm", "f1")
    run.log("pm", 5, {"loss/train": 9.0})
    run.begin_stage("pm", "f2")
    assert run.signal("loss/train")[0].tolist() == []
    run.log("pm", 2, {"loss/train": 2.0})
    run.log("pm", 1, {"loss/train": 1.0})
    run.log("pm", 2, {"loss/train": 3.0})
    run.log("pm", 2, {"loss/validation": 4.0})
    assert run.signal("loss/train")[1].tolist() == [1.0, 3.0]
    assert run.metrics("pm")[1].items() >= {"step": 2, "loss/train": 3.0, "loss/validation": 4.0, "attempt": 2}.items()
    assert run.metrics("pm", attempt=1)[0]["loss/train"] == 9.0


def test_rewind_takes_back_later_steps_of_this_stage_only(tmp_path):
    run = make(tmp_path)
    run.log("sft", 9, {"loss/train": 9.0})
    for step in range(5):
        run.log("ppo", step, {"score/mean": step})
        run.write_samples([{"stage": "ppo", "step": step, "response": "x"}])
    run.rewind("ppo", 2)
    assert run.signal("score/mean")[0].tolist() == [0, 1, 2]
    run.log("ppo", 3, {"score/mean": 30})
    assert run.signal("score/mean")[1].tolist() == [0, 1, 2, 30]
    assert [s["step"] for s in run.samples()] == [0, 1, 2]
    assert run.signal("loss/train")[0].tolist() == [9]


def test_signal_prefers_the_stage_it_is_best_known_from(tmp_path):
    run = make(tmp_path)
    run.log("eval", 0, {"eval/score": 5.0})
    assert run.signal("eval/score")[1].tolist() == [5.0]
    run.log("ppo", 1, {"eval/score": 1.0})
    assert run.signal("eval/score")[1].tolist() == [1.0]
    assert run.signal("eval/score", "eval")[1].tolist() == [5.0]
    with pytest.raises(TrimtabError, match="not declared"):
        run.signal("nope")


def test_a_run_still_being_written_and_broken_lines_are_readable(tmp_path):
    run = make(tmp_path)
    run.log("ppo", 1, {"score/mean": 1.0})
    path = run.path / "metrics.jsonl"
    with path.open("ab") as file:
        file.write(b'{"stage": "ppo", "step": 2, "sco')
    reader = Run.open(run.path)
    assert reader.signal("score/mean")[0].tolist() == [1]
    assert reader.broken_lines() == {}
    run.log("ppo", 3, {"score/mean": 3.0})
    with path.open("ab") as file:
        file.write(b'{"no": "stage"}\n{"stage": "ppo", "step": "x"}\n{"stage": "ppo", "step": 4, "attempt": "z"}\n')
    assert reader.signal("score/mean")[1].tolist() == [1.0, 3.0]
    assert reader.broken_lines() == {"metrics.jsonl": [2]}


def test_odd_lines_of_metrics_are_skipped_value_by_value(tmp_path):
    run = make(tmp_path)
    run.log("ppo", 1, {"score/mean": 1.0, "kl/reference": math.nan})
    odd = [
        {"stage": "ppo", "step": 2, "score/mean": "hi", "kl/reference": 0.5, "time": "noon"},
        {"stage": "ppo", "step": 3, "score/mean": [1], "kl/reference": True},
        {"stage": "ppo", "step": 4, "score/mean": 4, "nonfinite": ["score/mean"]},
        {"stage": "ppo", "step": 5, "score/mean": 10**400, "nonfinite": {"step": "nan", "kl/reference": []}},
        {"stage": "ppo", "step": 10**30, "score/mean": 6.0},
        {"stage": "ppo", "step": -1, "score/mean": 6.0},
        {"stage": "ppo", "step": True, "score/mean": 6.0},
        {"stage": "ppo", "step": 6, "attempt": 10**30, "score/mean": 6.0},
    ]
    with (run.path / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in odd)
    steps, values = run.signal("score/mean")
    assert (steps.tolist(), values.tolist()) == ([1, 4], [1.0, 4.0])
    steps, values = run.signal("kl/reference")
    assert steps.tolist() == [1, 2, 5]
    assert np.array_equal(values, [math.nan, 0.5, math.nan], equal_nan=True)


def test_a_directory_in_the_place_of_metrics_is_no_metrics(tmp_path):
    run = make(tmp_path)
    (run.path / "metrics.jsonl").mkdir()
    assert (run.metrics(), run.broken_lines(), len(run.signal("score/mean")[0])) == ([], {}, 0)
    with pytest.raises(TrimtabError, match=r"metrics\.jsonl: cannot be written"):
        run.log("ppo", 1, {"score/mean": 1.0})


def test_samples_keep_hostile_text_and_order(tmp_path):
    run = make(tmp_path)
    texts = ["a\nb\r\n\0", "\x1b[31m", "\ud800", "\u2028", "x" * 1_000_000]
    run.write_samples({"stage": "ppo", "step": i % 2, "response": t} for i, t in enumerate(texts))
    assert [s["response"] for s in run.samples()] == texts
    assert [s["response"] for s in Run.open(run.path).samples(step=1)] == texts[1::2]
    with pytest.raises(KeyError):
        run.write_samples([{"stage": "ppo"}])


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(allow_nan=True), st.integers(-1, 5) | st.none()), max_size=12))
def test_signal_equals_a_plain_replay_of_logs_and_rewinds(tmp_path_factory, events):
    run = make(tmp_path_factory.mktemp("runs"))
    expected: dict[int, float] = {}
    for step, value, back in events:
        run.log("ppo", step, {"user/x": value})
        expected[step] = value
        if back is not None:
            run.rewind("ppo", back)
            expected = {s: v for s, v in expected.items() if s <= back}
    steps, values = run.signal("user/x", "ppo")
    assert steps.tolist() == sorted(expected)
    np.testing.assert_array_equal(values, [expected[s] for s in sorted(expected)])


# one writer

HOLD = """
    import sys
    from trimtab.runs import Run
    run = Run.create(sys.argv[1], "r", config={}, seed=0)
    run.begin_stage("ppo", "f")
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_may_read_but_not_write_until_the_first_is_killed(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLD), str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert child.stdout.readline() == "ready\n"
        run = Run.open(tmp_path / "r")
        assert (run.locked, run.status) == (True, StageStatus.RUNNING)
        for write in (
            lambda: run.log("ppo", 1, {"score/mean": 1.0}),
            lambda: run.begin_stage("ppo", "g"),
            lambda: make(tmp_path, existing="resume"),
            lambda: make(tmp_path, existing="overwrite"),
        ):
            with pytest.raises(TrimtabError, match=rf"another process \({child.pid}\) is writing into this run"):
                write()
        assert run.metrics() == []
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
    assert (run.locked, run.status) == (False, StageStatus.INTERRUPTED)
    run.log("ppo", 1, {"score/mean": 1.0})
    assert Run.open(run.path).locked


def test_run_objects_of_one_process_share_the_lock_and_the_last_gives_it_back(tmp_path):
    first, second = make(tmp_path), Run.open(tmp_path / "r")
    second.log("ppo", 1, {"score/mean": 1.0})
    first.close()
    assert second.locked
    code = "import sys; from trimtab.runs import Run; Run.open(sys.argv[1]).log('ppo', 2, {'score/mean': 2.0})"
    assert "is writing into this run" in in_another_process(code, first.path).stderr
    second.close()
    assert not second.locked
    assert in_another_process(code, first.path).returncode == 0
    assert second.signal("score/mean")[0].tolist() == [1, 2]


def test_reading_takes_no_lock_and_works_where_nothing_can_be_written(tmp_path):
    run = make(tmp_path)
    run.log("ppo", 1, {"score/mean": 1.0})
    run.close()
    (run.path / "run.lock").unlink()
    reader = Run.open(run.path)
    assert reader.signal("score/mean")[0].tolist() == [1]
    assert reader.artifact("policy") == run.path / "artifacts/policy"
    assert reader.checkpoint_dir("ppo") == run.path / "checkpoints/ppo"
    assert sorted(os.listdir(run.path)) == ["metrics.jsonl", "run.json"]


def test_a_run_deleted_and_made_anew_is_locked_anew(tmp_path):
    old = make(tmp_path)
    shutil.rmtree(old.path)
    new = make(tmp_path)
    assert new.locked
    code = "import sys; from trimtab.runs import Run; Run.open(sys.argv[1]).begin_stage('ppo', 'f')"
    assert "is writing into this run" in in_another_process(code, new.path).stderr


def test_findings_are_kept_in_order_and_a_rewind_takes_them_back(tmp_path):
    run = Run.create(tmp_path, "main", config={}, seed=0)
    run.begin_stage("ppo", "a")
    run.record_finding("ppo", 4, {"id": "kl-explosion", "severity": "warning"})
    run.record_action("ppo", 4, Action("set", "ppo.beta", 0.2))
    run.record_finding("ppo", 9, {"id": "nan-inf"})
    told = [(line["step"], line.get("finding", {}).get("id"), "action" in line) for line in run.findings("ppo")]
    assert told == [(4, "kl-explosion", False), (4, None, True), (9, "nan-inf", False)]
    run.rewind("ppo", 4)
    assert [line["step"] for line in run.findings()] == [4, 4]
    with pytest.raises(ValueError, match="not JSON compliant"):
        run.record_finding("ppo", 5, {"value": float("nan")})
