"""The verdicts of a project: its label store with the texts that its runs sampled."""

from __future__ import annotations

import pytest

from labeling_fakes import ScriptedJudge, candidate, two_principles
from trimtab.config.schema import Config
from trimtab.data.pairs import write_candidates
from trimtab.errors import TrimtabError
from trimtab.labeling.labels import label_pairs
from trimtab.labeling.protocol import Verdict
from trimtab.labeling.store import LabelStore
from trimtab.labeling.verdict_project import project_verdicts
from trimtab.runs.run import Run


@pytest.fixture
def project(tmp_path):
    """A project whose store has verdicts on three pairs; run `one` sampled two of them, run `two` the third."""
    (tmp_path / "trimtab.toml").write_text('[model]\nname = "tiny-world"\n')
    pairs = [candidate(i, f"a response {i}", "no") for i in range(3)]
    for name, sampled in (("one", pairs[:2]), ("two", pairs[2:])):
        run = Run.create(tmp_path / "runs", name, config=Config().model_dump(mode="json"), seed=0)
        run.artifact("sample").mkdir(parents=True, exist_ok=True)
        write_candidates(run.artifact("sample") / "pairs.jsonl", sampled)
    judge = ScriptedJudge(lambda r: Verdict.of_shown(0.8, r.order))
    with LabelStore(tmp_path / "labels.sqlite") as store:
        label_pairs(pairs, judge, two_principles(tmp_path), store=store)
    return tmp_path


def test_a_project_has_all_verdicts_with_their_texts(project):
    found = project_verdicts(project)
    assert len(found.table) == 6
    assert {t.first for t in found.table.texts.values()} == {"a response 0", "a response 1", "a response 2"}
    assert len(found.pairs) == 3
    assert sorted(found.table.prompt.names) == ["x0", "x1", "x2"]
    assert found.table.length_1.tolist() == [3] * 6
    assert found.directory == project.resolve()


def test_a_run_has_those_on_its_own_pairs(project):
    found = project_verdicts(project / "runs" / "one")
    assert len(found.table) == 4
    assert {t.first for t in found.table.texts.values()} == {"a response 0", "a response 1"}


def test_the_file_of_settings_names_the_project(project):
    assert len(project_verdicts(project / "trimtab.toml").table) == 6


def test_what_is_no_project_is_refused(tmp_path):
    with pytest.raises(TrimtabError, match="no project"):
        project_verdicts(tmp_path)
    (tmp_path / "trimtab.toml").write_text("")
    with pytest.raises(TrimtabError, match="no labels yet"):
        project_verdicts(tmp_path)
