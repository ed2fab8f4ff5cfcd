"""Where items are from, and where votes go: runs and files in, pairs and verdicts out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews import all_votes, good, item, review
from trimtab.data.pairs import read_pairs, write_candidates, write_pairs
from trimtab.data.records import CandidatePair, Message, Pair, Prompt, Response
from trimtab.errors import TrimtabError
from trimtab.evaluation.review.export import label_records, preference_pairs
from trimtab.evaluation.review.records import Choice, Plan
from trimtab.evaluation.review.sources import chosen, gold_of_pairs, of_pairs, of_runs, point_of
from trimtab.evaluation.review.store import ReviewStore, create
from trimtab.labeling.audit import audit
from trimtab.labeling.protocol import JudgeIdentity, JudgeRequest, Outcome, Verdict
from trimtab.labeling.store import LabelStore
from trimtab.labeling.verdicts import read_verdicts
from trimtab.runs.files import write_jsonl
from trimtab.runs.run import Run

FLIPPED = {Choice.A: Choice.B, Choice.B: Choice.A}


def make_run(root: Path, name: str, *, steps: tuple[int, ...] = (0, 5), temperature: float = 1.0) -> Run:
    """Probe responses of two prompts at steps; an evaluation of three, twice each."""
    run = Run.create(root, name, config={"eval": {"temperature": temperature}, "ppo": {}}, seed=0)
    run.begin_stage("ppo", "f")
    for step in steps:
        run.write_samples(
            {"stage": "ppo", "step": step, "prompt_id": f"q{i}", "prompt": f"ask {i}",
             "response": f"{name} probe {step} {i if step else 'same'}", "length": 3,
             "stop_reason": "length" if i else "eos"}
            for i in range(2)
        )  # fmt: skip
    run.begin_stage("eval", "g")
    rows: list[dict[str, Any]] = [
        {"prompt_id": f"q{i}", "prompt": f"ask {i}", "side": side, "index": k, "tokens": 4, "finished": True,
         "response": f"{name} {side} {i} {k}", "scores": {}}
        for side in ("policy", "reference") for i in range(3) for k in range(2)
    ]  # fmt: skip
    write_jsonl(run.artifact("eval") / "samples.jsonl", rows)
    run.close()
    return run


def texts(items: list[Any]) -> list[tuple[str, str, str]]:
    return [(i.prompt.text, i.first.text, i.second.text) for i in items]


def test_the_end_of_a_run_against_its_reference_is_read_from_the_evaluation(tmp_path: Path) -> None:
    make_run(tmp_path, "main")
    known = [Prompt("q1", (Message("user", "ask 1"),), ("sea",)), Prompt("q0", (Message("user", "another"),), ("sky",))]
    found = of_runs(point_of("main", tmp_path), point_of("main@0", tmp_path), prompts=known)
    assert texts(found.items) == [(f"ask {i}", f"main policy {i} 0", f"main reference {i} 0") for i in range(3)]
    assert found.systems == ("main", "main@0")
    assert "evaluation" in found.source
    assert [i.prompt.tags for i in found.items] == [(), ("sea",), ()]  # tags only of the very same prompt
    assert len(of_runs(point_of("main", tmp_path), point_of("main@0", tmp_path), per_prompt=2).items) == 6


def test_checkpoints_are_compared_on_probe_responses_and_never_on_mixed_ones(tmp_path: Path) -> None:
    make_run(tmp_path, "main")
    make_run(tmp_path, "other", steps=(0, 7))
    found = of_runs(point_of("main@5", tmp_path), point_of("main@0", tmp_path))
    assert texts(found.items) == [(f"ask {i}", f"main probe 5 {i}", "main probe 0 same") for i in range(2)]
    assert [i.first.finished for i in found.items] == [True, False]
    assert "probe" in found.source
    # a checkpoint and an end: the end's probe responses, not its evaluation
    assert texts(of_runs(point_of("main@5", tmp_path), point_of("other", tmp_path)).items)[0][2] == "other probe 7 0"
    assert texts(of_runs(point_of("main", tmp_path), point_of("other", tmp_path)).items)[0][1:] == (
        "main policy 0 0",
        "other policy 0 0",
    )
    with pytest.raises(TrimtabError, match="no responses to a common prompt") as caught:
        of_runs(point_of("main@5", tmp_path), point_of("main@0", tmp_path), source="eval")
    assert "at steps 0, 5; an evaluation" in caught.value.hint


def test_other_sampling_settings_are_told(tmp_path: Path) -> None:
    make_run(tmp_path, "main")
    make_run(tmp_path, "warm", temperature=1.5)
    found = of_runs(point_of("main", tmp_path), point_of("warm", tmp_path))
    assert found.notes == ("eval.temperature is 1.0 in main and 1.5 in warm: not sampled alike",)


@pytest.mark.parametrize("text", ["", "@3", "main@", "main@x", "main@-1", "no", "main\0", "../main@3@4"])
def test_what_is_no_point_is_refused(tmp_path: Path, text: str) -> None:
    make_run(tmp_path, "main")
    with pytest.raises(TrimtabError, match="no run"):
        point_of(text, tmp_path)


def test_a_point_is_not_compared_with_itself(tmp_path: Path) -> None:
    run = make_run(tmp_path, "main")
    with pytest.raises(TrimtabError, match="against itself"):
        of_runs(point_of("main@5", tmp_path), point_of(f"{run.path}@5", "/nowhere"))


def candidate(i: int, **origin: str) -> CandidatePair:
    prompt = Prompt(f"q{i}", (Message("system", "Be brief."), Message("user", f"ask {i}")))
    return CandidatePair(f"c{i}", prompt, Response(f"one {i}"), Response(f"two {i}", False, 9), origin)


def test_files_of_candidates_and_of_labeled_pairs_are_told_apart(tmp_path: Path) -> None:
    write_candidates(tmp_path / "c.jsonl", [candidate(i, generator_1="x", generator_2="y") for i in range(3)])
    found = of_pairs(tmp_path / "c.jsonl")
    assert found.systems == ("x", "y")
    assert next((i.id, i.first.text, i.second.finished) for i in found.items) == ("c0", "one 0", False)
    same = Response("same")
    pairs = [
        Pair("a", candidate(0).prompt, Response("good"), Response("bad")),
        Pair("b", candidate(1).prompt, same, same),
    ]
    write_pairs(tmp_path / "p.jsonl", pairs)
    found = of_pairs(tmp_path / "p.jsonl")
    assert (found.systems, len(found.items), found.identical) == (("chosen", "rejected"), 1, 1)
    assert next((g.answer, g.first.text) for g in gold_of_pairs(tmp_path / "p.jsonl")) == (1, "good")
    write_pairs(tmp_path / "half.jsonl", [replace(pairs[0], p_chosen=0.5)])
    with pytest.raises(TrimtabError, match=r"p_chosen = 0\.5"):
        gold_of_pairs(tmp_path / "half.jsonl")
    (tmp_path / "broken.jsonl").write_text('{"prompt": "x", "first": ', encoding="utf-8")
    for broken in ("broken.jsonl", "missing.jsonl"):
        with pytest.raises(TrimtabError):
            of_pairs(tmp_path / broken)


def test_a_limit_takes_one_of_each_prompt_first() -> None:
    items = [item(i, prompt=i // 4) for i in range(40)]
    assert sorted(i.prompt.id for i in chosen(items, 10)) == sorted({i.prompt.id for i in items})
    assert chosen(items, 10) == chosen(items, 10)
    assert chosen(items, 10, seed=1) != chosen(items, 10)
    assert chosen(items, None) == chosen(items, 99) == items


def reviewed(path: Path) -> ReviewStore:
    """Four items, three votes each: first 3:0, 2:1, second 3:0, and two for the first, one for neither."""
    store = ReviewStore(path / "reviews.sqlite")
    items = [item(i, tags=("sea", "far")) for i in range(4)]
    create(store, "r", items, Plan(3, 0, 0), systems=("x", "y"))
    votes = {"ana": "1121", "ben": "1221", "cy": "1120"}
    for who, said in votes.items():

        def choose(shown: Any, said: str = said) -> Choice:
            code = said[int(shown.prompt[0][1].split()[1])]
            return {"1": good(shown), "2": FLIPPED[good(shown)]}.get(code, Choice.BOTH_BAD)

        all_votes(store, who, choose)
    return store


def test_pairs_have_the_share_of_votes_as_soft_label(tmp_path: Path) -> None:
    pairs = preference_pairs(reviewed(tmp_path))
    assert [p.p_chosen for p in pairs] == pytest.approx([1, 2 / 3, 1, 5 / 6])
    assert [p.chosen.text for p in pairs] == ["pear 0", "pear 1", "plum 2", "pear 3"]
    assert [p.weight for p in pairs] == [1, 1, 1, 1]
    assert pairs[3].extra["both_bad"] == 1
    write_pairs(tmp_path / "pairs.jsonl", pairs)
    again = read_pairs(tmp_path / "pairs.jsonl")
    assert [(p.id, p.p_chosen, p.chosen.text, p.prompt.tags) for p in again] == [
        (p.id, p.p_chosen, p.chosen.text, p.prompt.tags) for p in pairs
    ]
    store = ReviewStore(tmp_path / "reviews.sqlite")
    assert [p.weight for p in preference_pairs(store, without=["ben"])] == pytest.approx([2 / 3] * 4)
    assert preference_pairs(store, min_votes=4) == []


def test_an_even_split_stays_a_tie_and_aspects_follow_the_chosen_response(tmp_path: Path) -> None:
    from trimtab.evaluation.review.assignment import next_item
    from trimtab.evaluation.review.voting import vote

    store = review(tmp_path, 2, Plan(2, 0, 0, aspects=("kind",)))
    for who in ("ana", "ben"):
        for _ in range(2):
            shown = next_item(store, "r", who)
            assert shown is not None
            even = shown.prompt[0][1].endswith("0")
            said = good(shown) if even and who == "ana" else FLIPPED[good(shown)]
            vote(store, shown.ticket, said, annotator=who, aspects={"kind": good(shown)})
    tie, second = preference_pairs(store)
    assert (tie.p_chosen, tie.chosen.text, tie.principles) == (0.5, "pear 0", {"kind": 1.0})
    assert (second.p_chosen, second.chosen.text, second.principles) == (1.0, "plum 1", {"kind": 0.0})


def test_votes_are_verdicts_that_an_audit_reads_with_the_others_as_reference(tmp_path: Path) -> None:
    store = reviewed(tmp_path)
    write_jsonl(tmp_path / "labels.jsonl", label_records(store))
    table = read_verdicts(str(tmp_path / "labels.jsonl"))
    assert len(table) == 12
    found = audit(table, resamples=100)
    assert set(found.judges) == {"ana", "ben", "cy"}
    by_pair = {(r["pair_id"], r["judge"]): (r["winner"], r["gold"]) for r in label_records(store)}
    assert by_pair["pair-1", "ben"] == (2, 1)  # the two others say 1
    assert by_pair["pair-1", "ana"] == (1, None)  # the two others differ
    assert by_pair["pair-3", "cy"] == ("tie", 1)
    orders = {r["order"] for r in label_records(store)}
    assert orders == {"12", "21"}


def test_verdicts_of_judges_on_the_same_pairs_stand_beside_what_people_say(tmp_path: Path) -> None:
    from labeling_fakes import two_principles

    write_candidates(tmp_path / "c.jsonl", [candidate(i, source="samples") for i in range(3)])
    store = ReviewStore(tmp_path / "reviews.sqlite")
    create(store, "r", of_pairs(tmp_path / "c.jsonl").items, Plan(1, 0, 0))
    all_votes(store, "ana", lambda shown: Choice.A if shown.a.startswith("one") else Choice.B)
    (tmp_path / "x").mkdir()
    constitution = two_principles(tmp_path / "x")
    with LabelStore(tmp_path / "labels.sqlite") as labels:
        asked = [candidate(0, source="samples"), candidate(1, source="samples"), candidate(77)]
        requests = [JudgeRequest(pair, constitution) for pair in asked]
        judge = JudgeIdentity("judge", "model", "template", 0)
        labels.put(judge, requests, [Verdict(Outcome.OK, p) for p in (0.9, 0.2, 0.9)])
        records = label_records(store, labels=labels)
    of_judge = [r for r in records if r["judge"] == "judge"]
    assert sorted((r["pair_id"], r["p_1"], r["gold"]) for r in of_judge) == [("c0", 0.9, 1), ("c1", 0.2, 1)]
    write_jsonl(tmp_path / "labels.jsonl", records)
    accuracy = audit(read_verdicts(str(tmp_path / "labels.jsonl")), resamples=50).judges["judge"].accuracy
    assert (accuracy.value, accuracy.n) == (0.5, 2)
    json.dumps(records, allow_nan=False)
