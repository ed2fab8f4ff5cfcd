"""Engines of a project: what cannot work is refused before anything runs; the default changes no fingerprint."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.pipeline.preflight import check
from trimtab.pipeline.project import Project
from trimtab.pipeline.scaffold import init_project
from trimtab.pipeline.stages import STAGES


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("project")
    init_project(directory, "tiny", "fail")
    return directory


def test_vllm_that_is_not_installed_is_refused_with_the_command(project, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    asked = Project.open(project, ["ppo.engine=vllm"])
    with pytest.raises(TrimtabError, match="vllm is not installed") as caught:
        check(asked, ["ppo"])
    assert caught.value.kind == ErrorKind.MISSING
    check(asked, ["sample"])


def test_a_correction_of_nothing_is_refused(project):
    with pytest.raises(TrimtabError, match="importance_cap"):
        check(Project.open(project, ["ppo.importance_cap=2.0"]), ["ppo"])
    for others in (["ppo.engine=transformers"], ["model.dtype=bfloat16"]):
        check(Project.open(project, ["ppo.importance_cap=2.0", *others]), ["ppo"])


def test_engine_and_correction_are_inputs_of_the_stage_unless_they_are_off(project):
    plain = STAGES["ppo"].inputs(Project.open(project))["ppo"]
    assert not {"engine", "engine_options", "importance_cap"} & plain.keys()
    found = STAGES["ppo"].inputs(Project.open(project, ["ppo.engine=transformers", "ppo.importance_cap=2.0"]))["ppo"]
    assert (found["engine"], found["importance_cap"]) == ("transformers", 2.0)
