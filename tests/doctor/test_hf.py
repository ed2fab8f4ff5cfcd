"""The callback for transformers' trainers, in a real one with a model of one layer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
torch = pytest.importorskip("torch")

from trimtab.doctor.hf import DoctorCallback  # noqa: E402
from trimtab.errors import TrimtabError  # noqa: E402

SOURCE = Path(__file__).parents[2] / "src"


class Trainer(transformers.Trainer):
    """Logs, beside what the trainer logs, what TRL's GRPO would: a KL that runs off, or one that does not."""

    runs_off = True

    def log(self, logs, *args, **kwargs):
        step = self.state.global_step
        if "loss" in logs:
            kl = 0.02 * 1.35**step if self.runs_off else 0.02 + 0.001 * (step % 3)
            logs |= {"reward": 0.5 + 0.01 * step, "reward_std": 0.3, "kl": kl, "frac_reward_zero_std": 0.1}
            logs |= {"completions/mean_length": 200 + step % 5, "completions/clipped_ratio": 0.0, "entropy": 0.9}
        super().log(logs, *args, **kwargs)


def train(directory: Path, callback, *, steps: int = 30, runs_off: bool = True, resume: bool = False) -> Trainer:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=1, n_head=1, n_embd=8, vocab_size=16, n_positions=8, bos_token_id=0, eos_token_id=0
    )
    data = [{"input_ids": torch.arange(i, i + 6) % 16, "labels": torch.arange(i, i + 6) % 16} for i in range(16)]
    arguments = transformers.TrainingArguments(
        output_dir=str(directory), max_steps=steps, per_device_train_batch_size=4, logging_steps=1, save_steps=10,
        report_to=[], disable_tqdm=True, use_cpu=True, learning_rate=1e-3,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[callback])
    trainer.runs_off = runs_off
    trainer.train(resume_from_checkpoint=resume or None)
    return trainer


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(autouse=True)
def no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a model this small are as quick as a look: the limit on time would leave none."""
    monkeypatch.setattr("trimtab.doctor.watch.SHARE", float("inf"))


def test_it_is_a_trainer_callback_and_its_module_needs_no_transformers():
    assert issubclass(DoctorCallback, transformers.TrainerCallback)
    assert DoctorCallback.__module__ == "trimtab.doctor.hf"
    code = "import sys; import trimtab.doctor.hf; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert done.stdout == "set()\n"


def test_a_run_that_goes_wrong_is_told_kept_and_sent(tmp_path, capsys):
    target = tmp_path / "sent.jsonl"
    script = "import sys; open(sys.argv[1], 'ab').write(sys.stdin.buffer.read() + b'\\n')"
    callback = DoctorCallback(every=5, command=[sys.executable, "-c", script, str(target)])
    trainer = train(tmp_path / "out", callback)
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("doctor: ")]
    assert any("kl-explosion since step" in line for line in told)
    kept = lines(tmp_path / "out" / "findings.jsonl")
    found = [line["finding"]["id"] for line in kept]
    assert "kl-explosion" in found
    assert len(told) == len(kept)
    first = next(line for line in kept if line["finding"]["id"] == "kl-explosion")
    assert first["step"] < 30
    sent = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert [alarm["id"] for payload in sent for alarm in payload["alarms"]] == found
    assert trainer.state.global_step == 30


def test_a_healthy_run_hears_nothing(tmp_path, capsys):
    train(tmp_path / "out", DoctorCallback(every=5), runs_off=False)
    assert "doctor:" not in capsys.readouterr().err
    assert not (tmp_path / "out" / "findings.jsonl").exists()


def test_a_resumed_run_repeats_no_alarm(tmp_path, capsys):
    train(tmp_path / "out", DoctorCallback(every=5), steps=30)
    before = lines(tmp_path / "out" / "findings.jsonl")
    capsys.readouterr()
    train(tmp_path / "out", DoctorCallback(every=5), steps=34, resume=True)
    after = lines(tmp_path / "out" / "findings.jsonl")
    assert after[: len(before)] == before
    raised = [(line["finding"]["id"], line["finding"]["severity"]) for line in after]
    assert len(raised) == len(set(raised))


def test_a_hook_that_fails_does_not_stop_the_training(tmp_path, capsys):
    callback = DoctorCallback(every=5, webhook="http://127.0.0.1:9/nobody", timeout=1)
    assert train(tmp_path / "out", callback).state.global_step == 30
    assert "doctor: the web hook failed" in capsys.readouterr().err


def test_what_makes_no_sense_is_refused_at_once():
    with pytest.raises(TrimtabError, match="no web address"):
        DoctorCallback(webhook="localhost:80")


def test_a_command_that_is_one_text_is_refused():
    from trimtab.doctor.hf import _Behaviour

    with pytest.raises(TrimtabError, match="list of words"):
        _Behaviour(command="notify-send Trimtab")
