"""What a changed constitution does to labels: by hand with a judge that counts letters, and in a tiny-world project."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from trimtab.cli import constitution
from trimtab.constitution import Constitution, Principle, load_constitution
from trimtab.data.pairs import write_candidates, write_pairs
from trimtab.data.records import CandidatePair, Message, Pair, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.aggregate import Label
from trimtab.labeling.protocol import Outcome
from trimtab.labeling.store import LabelStore
from trimtab.pipeline.constitution_diff import diff_constitutions
from trimtab.pipeline.project import Project
from trimtab.pipeline.relabel import diff_in_project
from trimtab.pipeline.scaffold import init_project
from trimtab.runs.run import Run
from trimtab.worlds import tiny

# a principle's text names a letter; a response that has it more often is better by so many times the weight
WORDS = ["aab", "abb", "bbb", "aac", "ccc", "abc"]


def pair(number: int, first: str, second: str, prompt: int | None = None) -> CandidatePair:
    asked = Prompt(f"x{number}", (Message("user", f"q{number if prompt is None else prompt}"),))
    return CandidatePair(f"p{number}", asked, Response(first), Response(second))


PAIRS = [pair(i * 6 + j, a, b) for i, a in enumerate(WORDS) for j, b in enumerate(WORDS) if a != b]


def counting(
    asked: list[tuple[str, int]] | None = None,
) -> Callable[[Constitution, Sequence[CandidatePair]], list[Label]]:
    def label(asked_by: Constitution, pairs: Sequence[CandidatePair]) -> list[Label]:
        if asked is not None:
            asked.append((asked_by.render(), len(pairs)))
        return [Label(p.id, Outcome.OK, _p(asked_by, p), 0.0) for p in pairs]

    return label


def _p(by: Constitution, p: CandidatePair) -> float:
    lead = sum(x.weight * (p.first.text.count(x.text) - p.second.text.count(x.text)) for x in by.counted)
    return 0.5 + max(-0.5, min(0.5, lead / 10))


def of(**weights: float) -> Constitution:
    return Constitution("c", tuple(Principle(name, name, w) for name, w in weights.items()))


def test_flips_are_found_and_given_to_the_change_that_makes_them():
    asked: list[tuple[str, int]] = []
    old, new = of(a=1, b=2), of(a=2, c=1)
    found = diff_constitutions(old, new, PAIRS, counting(asked), resamples=100)
    assert [c.name for c in found.changes] == ["b removed", "c added", "a changed"]
    assert (found.asked, found.compared) == (30, 30)
    # the two constitutions and each change alone, on every pair
    assert [n for _, n in asked] == [30] * 5
    flipped = [p for p in PAIRS if (_p(old, p) - 0.5) * (_p(new, p) - 0.5) < 0]
    assert [f.pair for f in found.flips] == flipped
    assert found.flip_rate.mean == pytest.approx(len(flipped) / 30)
    assert found.flip_rate.low < found.flip_rate.mean < found.flip_rate.high
    for flip in found.flips:
        alone = [
            name
            for name, tried in (("a changed", of(a=2, b=2)), ("b removed", of(a=1)), ("c added", of(a=1, b=2, c=1)))
            if (_p(old, flip.pair) - 0.5) * (_p(tried, flip.pair) - 0.5) < 0
        ]
        assert sorted(flip.alone) == alone
    assert found.mean_move.mean == pytest.approx(sum(abs(_p(old, p) - _p(new, p)) for p in PAIRS) / 30)
    assert [len(s.flips) for s in found.shares] == sorted((len(s.flips) for s in found.shares), reverse=True)


def test_flips_that_no_change_makes_alone_come_from_several():
    one = [pair(0, "aaa", "bbcc")]
    found = diff_constitutions(of(a=1), of(a=1, b=1, c=1), one, counting(), resamples=10)
    assert [f.alone for f in found.flips] == [()]
    assert [len(s.flips) for s in found.shares] == [0, 0]


def test_one_change_costs_no_more_than_the_two_constitutions_and_no_change_costs_one():
    asked: list[tuple[str, int]] = []
    found = diff_constitutions(of(a=1), of(b=1, a=1), PAIRS, counting(asked), resamples=10)
    assert len(asked) == 2
    assert {name for f in found.flips for name in f.alone} == {"b added"}
    asked.clear()
    same = diff_constitutions(of(a=1), Constitution("other", of(a=3).principles), PAIRS, counting(asked), resamples=10)
    assert (len(asked), same.flips, same.changes) == (1, (), ())
    # nothing in thirty: the interval still says how little that shows
    assert same.flip_rate.mean == 0 < same.flip_rate.high < 0.2
    asked.clear()
    diff_constitutions(of(a=1, b=2), of(a=1, c=3), PAIRS, counting(asked), attribute=False, resamples=10)
    assert len(asked) == 2


def test_pairs_without_a_label_are_not_compared_and_a_judge_without_any_is_an_error():
    def failing(by: Constitution, pairs: Sequence[CandidatePair]) -> list[Label]:
        return [Label(p.id, Outcome.ERROR, None) if p.first.text == "aab" else label for p, label in
                zip(pairs, counting()(by, pairs), strict=True)]  # fmt: skip

    found = diff_constitutions(of(a=1, b=2), of(a=1, c=3), PAIRS, failing, resamples=10)
    assert (found.asked, found.compared) == (30, 25)
    with pytest.raises(TrimtabError, match="none of 1 pairs has a label under both"):
        diff_constitutions(of(a=1), of(b=1), [pair(0, "aab", "b")], failing)


def test_what_the_judge_does_by_itself_is_said_beside():
    def leaning(by: Constitution, pairs: Sequence[CandidatePair]) -> list[Label]:
        return [Label(p.id, Outcome.OK, 0.6, 0.5 if p.first.text == "aab" else 0.1) for p in pairs]

    found = diff_constitutions(of(a=1), of(b=1), PAIRS, leaning, resamples=10)
    assert found.order_disagreement == pytest.approx(5 / 30)
    lengths = [pair(0, "long", "x"), pair(1, "x", "long"), pair(2, "x", "longer"), pair(3, "x", "y")]
    assert diff_constitutions(of(a=1), of(b=1), lengths, leaning, resamples=10).longer_old == pytest.approx(1 / 3)


def test_the_interval_is_over_prompts():
    many = [pair(i, *(("a", "b") if i < 20 else ("ac", "bc")), prompt=i // 20) for i in range(40)]
    old, new = of(a=2, c=1), Constitution("n", (Principle("a", "b", 2.0), Principle("c", "c", 1.0)))
    half = [replace(p, second=Response("x")) if i < 20 else p for i, p in enumerate(many)]
    found = diff_constitutions(old, new, half, counting(), resamples=500)
    # two prompts, one all flips, one none: nothing is known
    assert (found.flip_rate.mean, found.flip_rate.low, found.flip_rate.high) == (0.5, 0.0, 1.0)


# in a project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny-world project whose run has sampled pairs; no model is needed, its judge is simulated."""
    root = tmp_path_factory.mktemp("diff")
    init_project(root, "tiny", "fail")
    opened = Project.open(root)
    run = Run.create(opened.runs, "main", config={}, seed=0)
    prompts = tiny.prompts(60, 4)
    told = [[r.text for _, r in tiny.demonstrations(prompts, seed)] for seed in (1, 2)]
    run.artifact("sample").mkdir(parents=True)
    write_candidates(
        run.artifact("sample") / "pairs.jsonl",
        [
            CandidatePair(f"c{i}", p, Response(a), Response(b))
            for i, (p, a, b) in enumerate(zip(prompts, *told, strict=True))
        ],
    )
    run.close()
    text = (root / "constitution.toml").read_text()
    (root / "new.toml").write_text(
        text[: text.index('[[principles]]\nid = "polite"')]
        + '[[principles]]\nid = "length"\ntext = "Prefer nine words."\nweight = 4\n'
    )
    return root


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    constitution.register(app)
    app.command("other")(lambda: None)
    code = typer.main.get_command(app)(["constitution", *arguments], standalone_mode=False)
    return code or 0, capsys.readouterr().out


def recorded(root: Path) -> int:
    with LabelStore(root / "labels.sqlite") as store:
        return len(store)


def both(root: Path) -> tuple[Constitution, Constitution]:
    return load_constitution(root / "constitution.toml"), load_constitution(root / "new.toml")


def test_nothing_recorded_is_asked_again(project):
    opened = Project.open(project)
    first = diff_in_project(opened, *both(project), sample=40)
    assert first.compared == 40
    assert 0 < len(first.flips) < 40
    before = recorded(project)
    # two orders, of forty pairs: old, new, and the three changes alone
    assert before == 2 * 40 * 5
    assert diff_in_project(opened, *both(project), sample=40) == first
    assert recorded(project) == before
    other = diff_in_project(opened, *both(project), sample=40, seed=1)
    assert {f.pair.id for f in other.flips} != {f.pair.id for f in first.flips}


def test_by_principle_a_principle_that_both_have_is_asked_about_once(project):
    before = recorded(project)
    found = diff_in_project(Project.open(project), *both(project), sample=10, by_principle=True)
    # four principles and one other wording of `length`, two orders; changes alone need nothing more
    assert recorded(project) - before == 2 * 10 * 5
    assert len(found.shares) == 3


def test_pairs_come_from_files_of_either_kind(project, tmp_path):
    opened, asked = Project.open(project), tiny.prompts(5, 9)
    told = [r.text for _, r in tiny.demonstrations(asked, 3)]
    write_pairs(tmp_path / "l.jsonl", [Pair(f"l{i}", p, Response(t), Response("stupid")) for i, (p, t) in
                                       enumerate(zip(asked, told, strict=True))])  # fmt: skip
    write_candidates(tmp_path / "c.jsonl", [pair(0, "please", "fool")])
    assert diff_in_project(opened, *both(project), data=tmp_path / "l.jsonl").compared == 5
    assert diff_in_project(opened, *both(project), data=tmp_path / "c.jsonl").compared == 1
    (tmp_path / "e.jsonl").write_text("{}\n")
    with pytest.raises(TrimtabError):
        diff_in_project(opened, *both(project), data=tmp_path / "e.jsonl")


def test_judges_and_runs_that_cannot_tell_are_refused(project, tmp_path):
    with pytest.raises(TrimtabError, match="reads no constitution") as caught:
        diff_in_project(
            Project.open(project, ["label.judge='construction'", "sample.source='contrast'"]), *both(project)
        )
    assert caught.value.kind is ErrorKind.CONFIG
    with pytest.raises(TrimtabError, match=r"other"):
        diff_in_project(Project.open(project), *both(project), run="other")


def test_the_command_prints_flips_by_change(project, capsys):
    here = [str(project / "constitution.toml"), str(project / "new.toml"), str(project), "--sample", "40"]
    code, out = call(capsys, "diff", *here)
    assert code == 0
    assert "polite removed" in out
    assert "by " in out
    code, out = call(capsys, "diff", *here, "--json")
    document = json.loads(out)
    assert (code, document["count"], document["truncated"]) == (0, len(document["flips"]), False)
    assert {c["name"] for c in document["by_change"]} == {"polite removed", "varied removed", "length changed"}
    assert sum(c["flips"] for c in document["by_change"]) > 0
