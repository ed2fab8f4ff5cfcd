"""Judges by name, through entry points; and the judge that reads a contrast pair's construction."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from labeling_fakes import candidate, two_principles
from trimtab.config.schema import LabelConfig
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.construction import ConstructionJudge
from trimtab.labeling.judges import JudgeContext, judge_names, load_judge
from trimtab.labeling.labels import label_pairs
from trimtab.labeling.protocol import Judge, JudgeRequest, Outcome, Verdict

PLUGIN = """
class Mine:
    sees_order = False
    def __init__(self, context):
        from trimtab.labeling.protocol import JudgeIdentity
        self.identity = JudgeIdentity("mine", seed=context.seed)
    def judge(self, requests):
        raise NotImplementedError
def no_judge(context):
    return 3
"""
ENTRY_POINTS = """[trimtab.judges]
mine = some_plugin:Mine
broken = missing_package.judge:make
wrong = some_plugin:no_judge
constructed = trimtab.labeling.construction:make
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed distribution with four judges."""
    (tmp_path / "some_plugin.py").write_text(PLUGIN)
    info = tmp_path / "some_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("some_plugin", None)


def context(name: str) -> JudgeContext:
    return JudgeContext(LabelConfig(judge=name), seed=7)


@pytest.mark.usefixtures("plugin")
def test_a_plugin_and_a_built_in_judge_come_through_the_same_seam() -> None:
    assert {"mine", "constructed"} <= set(judge_names())
    mine = load_judge(context("mine"))
    assert (mine.identity.name, mine.identity.seed) == ("mine", 7)
    assert isinstance(load_judge(context("constructed")), ConstructionJudge)


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("name", "kind", "message", "hint"),
    [
        ("minee", ErrorKind.CONFIG, "is not installed", "did you mean 'mine'"),
        ("broken", ErrorKind.MISSING, "missing_package", "trimtab[train]"),
        ("wrong", ErrorKind.CONFIG, "made a int, which is no judge", "sees_order"),
    ],
)
def test_a_judge_that_cannot_be_had_is_explained(name: str, kind: ErrorKind, message: str, hint: str) -> None:
    with pytest.raises(TrimtabError, match=message) as caught:
        load_judge(context(name))
    assert caught.value.kind is kind
    assert hint in caught.value.hint


def test_a_judge_that_needs_a_model_says_so() -> None:
    with pytest.raises(TrimtabError, match="none was handed to it"):
        context("local").load()


WARM = {"source": "contrast", "principle": "warm", "reading": "please kindly", "opposite": "stupid fool"}


def test_construction_prefers_the_reading_in_either_place(tmp_path: Path) -> None:
    judge: Judge = ConstructionJudge()
    pairs = [candidate(0, **WARM, first="reading"), candidate(1, **WARM, first="opposite")]
    asked = [JudgeRequest(p, two_principles(tmp_path)) for p in pairs]
    assert judge.judge(asked) == [Verdict(Outcome.OK, 1.0), Verdict(Outcome.OK, 0.0)]


def test_with_the_readings_swapped_the_labels_move_the_other_way(tmp_path: Path) -> None:
    constitution = two_principles(tmp_path)
    pairs = [candidate(0, **WARM, first="reading"), candidate(1, **WARM, first="opposite")]
    before = [x.p_first for x in label_pairs(pairs, ConstructionJudge(), constitution)]
    after = [x.p_first for x in label_pairs(pairs, ConstructionJudge(), constitution.swapped())]
    assert before == [1.0, 0.0]
    assert after == [0.0, 1.0]


@pytest.mark.parametrize(
    "origin",
    [
        {"source": "samples"},
        {},
        {**WARM, "principle": "unknown", "first": "reading"},
        {**WARM, "reading": "something else", "first": "reading"},
        {**WARM, "reading": None, "opposite": None, "first": "reading"},
    ],
)
def test_construction_refuses_what_it_cannot_know(tmp_path: Path, origin: dict[str, object]) -> None:
    with pytest.raises(TrimtabError, match="'p0' was"):
        ConstructionJudge().judge([JudgeRequest(candidate(0, **origin), two_principles(tmp_path))])
