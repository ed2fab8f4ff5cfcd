"""Whole runs of a tiny-world project in which adapters are trained."""

from __future__ import annotations

from pathlib import Path

import peft
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.adapters import ADAPTER, adapted
from trimtab.pipeline.build import Workshop
from trimtab.pipeline.evaluate import evaluate_preference_model
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import run_project
from trimtab.pipeline.scaffold import init_project
from trimtab.runs.manifest import StageStatus

SMALL = [
    "project.threads=1", "sft.epochs=1", "sample.pairs_per_prompt=1", "preference.epochs=1", "ppo.iterations=2",
    "ppo.batch_size=16", "ppo.checkpoint_every=2", "ppo.probe_prompts=4", "ppo.value_init=preference",
    "eval.responses_per_prompt=1", "eval.bootstrap=50", "model.lora_rank=4", "model.lora_alpha=8",
]  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    init_project(tmp_path, "tiny", "fail")
    for name, lines in (("prompts", 64), ("prompts_held_out", 16), ("demonstrations", 128)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(path.read_text().splitlines()[:lines]) + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "members"),
    [(["model.trainable=lora"], 1), (["model.trainable=lora-top:1", "preference.members=2"], 2)],
)
def test_a_project_runs_on_adapters_from_end_to_end(project, settings, members):
    opened = Project.open(project, [*SMALL, *settings])
    run = run_project(opened)
    assert run.status == StageStatus.DONE
    first, last = run.metrics("ppo")[1], run.metrics("ppo")[-1]
    assert abs(first["check/kl_at_start"]) < 1e-5
    assert last["kl/reference"] != 0
    shop = Workshop(opened, run)
    reference, codec = shop.reference()
    assert not adapted(reference.hf)  # what fine-tuning's adapters added is part of its weights
    body = {p.data_ptr() for p in reference.backbone.body.parameters()}
    policy = shop.policy(reference)[0]
    pm = shop.preference_model(reference)
    models = getattr(pm, "models", [pm.model])
    assert len(models) == members
    for role in (policy, *models):
        assert adapted(role.hf)
        assert body <= {p.data_ptr() for p in role.hf.parameters()}
    # what was written is read elsewhere, merged or as an adapter on the reference
    prompt = opened.held_out_prompts[0]
    ids = torch.tensor([codec.prompt_ids(prompt)])
    mask = torch.ones_like(ids, dtype=torch.bool)
    written = run.artifact("ppo") / "model"
    fine_tuned = str(run.artifact("sft") / "model")
    with torch.no_grad():
        expected = policy.lm_logits(policy.hidden(ids, mask))
        plain = AutoModelForCausalLM.from_pretrained(written)(ids).logits
        base = AutoModelForCausalLM.from_pretrained(fine_tuned)
        of_peft = peft.PeftModel.from_pretrained(base, written / ADAPTER).eval()(ids).logits
        torch.testing.assert_close(plain, expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(of_peft, expected, rtol=0, atol=1e-5)
        scored = AutoModelForSequenceClassification.from_pretrained(run.artifact("pm") / "model")(ids).logits[0, 0]
        torch.testing.assert_close(scored, models[0].score(ids, mask)[0], rtol=0, atol=1e-5)
    assert evaluate_preference_model(opened, run.name)[1].pairs > 0


def test_layouts_that_the_model_has_not_are_refused_before_anything_runs(project):
    for setting, message in (
        ("model.trainable=lora-top:3", r'"lora-top:3": the model has 2 layers'),
        ("model.trainable=top:0", "from 1 layer on"),
    ):
        with pytest.raises(TrimtabError, match=message) as caught:
            run_project(Project.open(project, [*SMALL[:-2], setting]))
        assert caught.value.kind is ErrorKind.CONFIG
    with pytest.raises(TrimtabError, match=r"lora_rank = 4 speaks of adapters"):
        Project.open(project, SMALL)
    opened = Project.open(project, [*SMALL, "model.trainable=lora", "model.lora_targets=['q_projection']"])
    with pytest.raises(TrimtabError, match=r"no linear layer q_projection") as caught:
        run_project(opened)
    assert "q_proj" in caught.value.hint
    assert not (project / "runs").exists()
