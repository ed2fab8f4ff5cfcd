"""The constitutional phase inside a project: what it leaves, what runs it again, and kills at every step of it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from trimtab import sft
from trimtab.config.schema import SFTConfig
from trimtab.data.demonstrations import Demonstration, read_demonstrations, write_demonstrations
from trimtab.data.prompts import write_prompts
from trimtab.data.records import Message, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec
from trimtab.pipeline import revisions
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import plan_run, run_stage
from trimtab.sampling.transcripts import Round, Sifted, Transcript, read_transcripts, sift
from trimtab.worlds import tiny
from trimtab.worlds.model import build_model, build_tokenizer

SETTINGS = """
[project]
threads = 1
[model]
name = "model"
[sft]
source = "constitution"
rounds = 2
max_new_tokens = 10
epochs = 2
batch_size = 8
checkpoint_every = 1
[sample]
batch_size = 16
max_new_tokens = 10
[label]
batch_size = 64
[eval]
measures = ["rule:length"]
bootstrap = 50
max_new_tokens = 10
[ppo]
max_new_tokens = 10
"""
CONSTITUTION = """
name = "two"
[[principles]]
id = "polite"
text = "Be polite."
reading = "please"
opposite = "fool"
critique = "sorry"
revision = "please"
[[principles]]
id = "small"
text = "Be small."
reading = "small"
opposite = "large"
critique = "large"
revision = "small"
"""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a tiny model that speaks, and takes chat turns for plain text."""
    root = tmp_path_factory.mktemp("fresh")
    tokenizer = build_tokenizer()
    shown = [Demonstration(p, r.text, p.id) for p, r in tiny.demonstrations(tiny.prompts(400, 5), 5)]
    shown = [d for d in shown if len(d.response.split()) < 8]
    model = CausalModel(build_model(0))
    sft.train(SFTConfig(epochs=6, batch_size=32, learning_rate=1e-2), model, TextCodec(tokenizer), shown)
    model.hf.save_pretrained(root / "model")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}"
    tokenizer.save_pretrained(root / "model")
    write_prompts(root / "prompts.jsonl", tiny.prompts(40, 1))
    write_prompts(root / "prompts_held_out.jsonl", tiny.prompts(48, 1)[40:])
    write_demonstrations(root / "demonstrations.jsonl", shown[:20])
    (root / "trimtab.toml").write_text(SETTINGS)
    (root / "constitution.toml").write_text(CONSTITUTION)
    return root


@pytest.fixture(scope="module")
def finished(fresh: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("finished") / "p"
    shutil.copytree(fresh, root)
    run_stage(Project.open(root), "sft")
    return root


@pytest.fixture
def project(fresh: Path, tmp_path: Path) -> Path:
    shutil.copytree(fresh, tmp_path / "p")
    return tmp_path / "p"


def artifact(root: Path) -> Path:
    return root / "runs" / "main" / "artifacts" / "sft"


def result(root: Path) -> dict:
    return json.loads((artifact(root) / "result.json").read_text())


def weights(root: Path) -> dict[str, torch.Tensor]:
    return load_file(artifact(root) / "model" / "model.safetensors")


def test_the_stage_keeps_transcripts_trains_on_revisions_and_says_what_they_brought(finished):
    found = result(finished)
    revised = found["revisions"]
    transcripts = read_transcripts(artifact(finished) / "transcripts.jsonl")
    assert [t.prompt.id for t in transcripts] == [p.id for p in tiny.prompts(40, 1)]
    assert revised["prompts"] == 40 == revised["kept"] + sum(revised["dropped"].values())
    kept = read_demonstrations(artifact(finished) / "revisions.jsonl")
    assert [d.response for d in kept] == [s.text for s in sift(transcripts) if s.fate == "kept"]
    assert (found["examples"], found["demonstrations"]) == (len(kept), 0)
    assert revised["kept"] > 8
    lengths = revised["against_drafts"]["rule:length"]
    change = [len(d.response.split()) for d in kept]
    assert lengths["pairs"] == len(change)
    likelihood = revised["against_drafts"]["likelihood"]
    assert likelihood["pairs"] == len(kept)
    assert 0 <= likelihood["revision_preferred"]["low"] <= likelihood["revision_preferred"]["high"] <= 1
    before = load_file(finished / "model" / "model.safetensors")
    assert any(not torch.equal(before[name], weight) for name, weight in weights(finished).items())


def test_it_is_up_to_date_until_something_that_it_reads_changes(finished):
    def first(*changes: str) -> str:
        return [*(s.name for s in plan_run(Project.open(finished, changes))), "none"][0]

    assert first() == "sample"
    assert first("sft.rounds=1") == first("sft.max_new_tokens=9") == first("sft.temperature=0.9") == "sft"
    assert first("sample.batch_size=8") == first("project.seed=1") == first("sft.data='demonstrations.jsonl'") == "sft"
    assert first("eval.bootstrap=60") == first("label.batch_size=8") == "sample"
    path = finished / "constitution.toml"
    path.write_text(CONSTITUTION.replace('"Be polite."', '"Be most polite."').replace('reading = "p', 'reading = "q'))
    assert first() == "sample"
    path.write_text(CONSTITUTION.replace('critique = "sorry"', 'critique = "rude"'))
    assert first() == "sft"
    path.write_text(CONSTITUTION)
    prompts = (finished / "prompts.jsonl").read_text()
    (finished / "prompts.jsonl").write_text(prompts.replace("tiny-00000", "renamed"))
    assert first() == "sft"
    (finished / "prompts.jsonl").write_text(prompts)


KILLED = """
import os, signal, sys
from trimtab.pipeline import revisions
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import run_stage
from trimtab.runs.run import Run

def die():
    os.kill(os.getpid(), signal.SIGKILL)

chunks, append, log = [], revisions.append_jsonl, Run.log

def half(path, records):
    chunks.append(1)
    if sys.argv[2] == "chunk" and len(chunks) == int(sys.argv[3]):
        records = list(records)
        append(path, records[:5])
        with open(path, "a") as file:
            file.write('{"prompt_id": "tiny-000')
        die()
    append(path, records)

def late(run, stage, step, signals):
    log(run, stage, step, signals)
    if sys.argv[2] == "update" and step == int(sys.argv[3]):
        die()

revisions.append_jsonl, Run.log = half, late
run_stage(Project.open(sys.argv[1]), "sft")
"""


@pytest.mark.parametrize("at", [("chunk", 2), ("update", 3)])
def test_a_kill_anywhere_changes_nothing_in_the_end(project, finished, at):
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(project), at[0], str(at[1])], capture_output=True, timeout=120
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    run_stage(Project.open(project), "sft")
    for name in ("transcripts.jsonl", "revisions.jsonl"):
        assert (artifact(project) / name).read_bytes() == (artifact(finished) / name).read_bytes()
    for name, weight in weights(finished).items():
        assert torch.equal(weights(project)[name], weight), name
    assert result(project) == result(finished)


def test_sampled_transcripts_are_not_sampled_again(project, monkeypatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sft, "train", stop)
        with pytest.raises(TrimtabError, match="was interrupted"):
            run_stage(Project.open(project), "sft")
    monkeypatch.setattr("trimtab.sampling.critique.sample_responses", stop)
    run_stage(Project.open(project), "sft")
    assert result(project)["revisions"]["prompts"] == 40


def test_demonstrations_are_mixed_in_by_their_share(project):
    changes = ["sft.data='demonstrations.jsonl'", "sft.demonstration_share=0.25", "sft.rounds=1"]
    run_stage(Project.open(project, changes), "sft")
    found = result(project)
    assert found["demonstrations"] == round(found["revisions"]["kept"] / 3)


def test_nothing_kept_is_an_error_that_counts_the_reasons(project):
    with pytest.raises(
        TrimtabError, match=r"none of 40 revisions can be trained on \(\d+ empty, \d+ cut-off\)"
    ) as caught:
        run_stage(Project.open(project, ["sft.max_new_tokens=1", "sft.temperature=0.001"]), "sft")
    assert caught.value.kind is ErrorKind.DATA
    assert "transcripts.jsonl" in caught.value.hint


def test_what_cannot_work_is_refused_before_anything_runs(project):
    for change, what in (
        ("model.chat_template='off'", "no chat template"),
        ("sft.max_new_tokens=41", "with 41 new ones it exceeds the model's context of 48"),
        ("model.name='tiny-world'", "takes no instructions"),
    ):
        with pytest.raises(TrimtabError, match=what):
            run_stage(Project.open(project, [change, "eval.measures=[]"]), "sft")
    (project / "constitution.toml").write_text(CONSTITUTION.replace('critique = "large"\n', ""))
    with pytest.raises(TrimtabError, match="needs critique and revision of every principle; not so small"):
        run_stage(Project.open(project), "sft")
    assert not (project / "runs").exists()


def pair(number: int, revision: str) -> Sifted:
    prompt = Prompt(f"p{number}", (Message("user", f"q{number}"),))
    rounds = (Round("a", "c", Response("x"), "r", Response(revision)),)
    return sift([Transcript(prompt, Response("draft"), rounds)])[0]


def test_the_comparison_with_drafts_by_hand():
    sifted = [pair(i, f"better {i}") for i in range(4)] + [pair(9, "draft"), pair(10, "")]
    answers = iter([0.5, 0.0, -0.1, None])
    found = revisions.compare_with_drafts(sifted, lambda pairs: [next(answers) for _ in pairs], 200)
    assert found["pairs"] == 3
    assert found["revision_preferred"]["mean"] == pytest.approx((1 + 0.5 + 0) / 3)
    assert found["difference"]["mean"] == pytest.approx(0.4 / 3)
    alone = revisions.compare_with_drafts(sifted[:1], lambda pairs: [0.5])
    assert alone["difference"] == {"mean": 0.5, "low": None, "high": None}
    assert revisions.compare_with_drafts(sifted, lambda pairs: [None] * len(pairs)) == {"pairs": 0}
    assert revisions.compare_with_drafts([], lambda pairs: []) == {"pairs": 0}


def test_the_comparison_asks_about_a_hundred_at_most_spread_over_all():
    asked: list[str] = []

    def ask(pairs):
        asked.extend(p.second.text for p in pairs)
        assert all(p.first.text == "draft" for p in pairs)
        return [1.0] * len(pairs)

    assert revisions.compare_with_drafts([pair(i, f"n {i}") for i in range(250)], ask, 10)["pairs"] == 100
    assert (asked[0], asked[-1], len(set(asked))) == ("n 0", "n 249", 100)
