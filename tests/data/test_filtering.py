"""Filters: nothing is lost without a reason, the same input gives the same output."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from data.made_up import clean_pairs
from trimtab.cli import data as command
from trimtab.data import Response, read_pairs, write_pairs
from trimtab.data.check import check
from trimtab.data.filtering import DROPPABLE, by_kind, drop_kinds, filter_pairs
from trimtab.errors import ErrorKind, TrimtabError


def messy():
    """Pairs with a duplicate, two that contradict each other, an empty and a reversed one."""
    pairs = clean_pairs(120)
    pairs[10] = replace(pairs[10], chosen=Response(""))
    pairs[11] = replace(pairs[11], p_chosen=0.2, extra={"chosen_model": "a", "rejected_model": "b"}, margin=-1.0)
    return [
        *pairs,
        replace(pairs[3], id="again"),
        replace(pairs[5], id="against", chosen=pairs[5].rejected, rejected=pairs[5].chosen),
    ]


def test_every_pair_stays_or_has_a_reason() -> None:
    pairs = messy()
    kinds = ("duplicates", "contradictions", "empty")
    result = filter_pairs(pairs, drop=kinds)
    assert [p.id for p, _ in result.dropped] == ["p5", "p10", "again", "against"]
    assert [list(why) for _, why in result.dropped] == [
        ["contradictions"],
        ["empty"],
        ["duplicates"],
        ["contradictions"],
    ]
    assert dict(result.dropped[2][1]) == {"duplicates": "repeats p3"}
    assert {p.id for p in pairs} == {p.id for p in result.pairs} | {p.id for p, _ in result.dropped}
    assert result.read == len(result.pairs) + len(result.dropped)
    assert result.counts() == {"contradictions": 2, "empty": 1, "duplicates": 1}
    assert filter_pairs(pairs, drop=kinds) == result
    from_report = filter_pairs(pairs, drop=kinds, report=by_kind(check(pairs)))
    assert from_report == result
    assert filter_pairs(result.pairs, drop=kinds).dropped == []


def test_without_a_wish_nothing_changes() -> None:
    pairs = messy()
    result = filter_pairs(pairs)
    assert (result.pairs, result.dropped, result.changed) == (pairs, [], [])


def test_reversed_pairs_are_turned_with_all_that_speaks_of_a_side() -> None:
    pairs = messy()
    result = filter_pairs(pairs, turn_reversed=True)
    (turned,) = (p for p in result.pairs if p.id == "p11")
    assert (turned.chosen, turned.rejected, turned.p_chosen) == (pairs[11].rejected, pairs[11].chosen, 0.8)
    assert (turned.margin, turned.extra) == (1.0, {"rejected_model": "a", "chosen_model": "b"})
    assert result.changed == [("p11", "turned round: p_chosen was 0.2")]


def test_repeats_become_one_soft_label_by_weighted_vote() -> None:
    pair = clean_pairs(1)[0]
    turned = replace(pair, chosen=pair.rejected, rejected=pair.chosen)
    votes = [replace(pair, id="a"), replace(turned, id="b", weight=2.0), replace(turned, id="c", p_chosen=0.75)]
    result = filter_pairs(votes, merge=True)
    (merged,) = result.pairs
    # P(first text wins): weights 1, 2, 1 of 1, 0, .25: 1.25 / 4 = .3125, so the other side is chosen with .6875
    assert (merged.id, merged.chosen, merged.p_chosen) == ("a", pair.rejected, 0.6875)
    assert [(p.id, why) for p, why in result.dropped] == [("b", {"merged": "into a"}), ("c", {"merged": "into a"})]
    same = filter_pairs([replace(pair, id="a"), replace(pair, id="b")], merge=True)
    assert same.pairs == [replace(pair, id="a")]


def test_labels_by_principle_turn_and_merge_with_their_pair() -> None:
    pair = clean_pairs(1)[0]
    low = replace(pair, p_chosen=0.2, principles={"kind": 0.75, "short": 0.5})
    assert filter_pairs([low], turn_reversed=True).pairs[0].principles == {"kind": 0.25, "short": 0.5}
    turned = replace(pair, chosen=pair.rejected, rejected=pair.chosen)
    votes = [
        replace(pair, id="a", principles={"kind": 1.0}),
        replace(turned, id="b", weight=3.0, principles={"kind": 1.0, "short": 0.5}),
    ]
    (merged,) = filter_pairs(votes, merge=True).pairs
    # the second text is chosen; by `kind` it wins with weight 3 of 4
    assert (merged.chosen, merged.principles) == (pair.rejected, {"kind": 0.75, "short": 0.5})


def test_lengths_are_balanced_by_sign_and_size() -> None:
    pairs = []
    for i, p in enumerate(clean_pairs(600)):
        long, short = sorted((p.chosen, p.rejected), key=lambda r: -len(r.text.split()))
        pairs.append(replace(p, chosen=long, rejected=short) if i % 4 else replace(p, chosen=short, rejected=long))
    result = filter_pairs(pairs, balance_length=True)
    assert check(pairs).lengths["longer_wins"] > 0.7
    assert check(result.pairs).lengths["longer_wins"] == 0.5
    assert len(result.pairs) > 0.4 * len(pairs)
    assert set(result.counts()) == {"length-balance"}
    assert filter_pairs(pairs, balance_length=True) == result
    assert filter_pairs(pairs, balance_length=True, seed=1) != result


def test_human_pairs_are_mixed_in_with_a_weight_and_never_dropped(tmp_path) -> None:
    pairs = clean_pairs(50)
    human = [replace(p, chosen=Response("")) for p in clean_pairs(52, seed=8)[48:]]
    result = filter_pairs(pairs, drop=["empty"], human=[*human, replace(human[0], id="h", weight=2.0)], weight=3.0)
    mixed = result.pairs[50:]
    assert [(p.id, p.weight) for p in mixed] == [
        ("human/p48", 3.0), ("human/p49", 3.0), ("p50", 3.0), ("p51", 3.0), ("h", 6.0),
    ]  # fmt: skip
    assert all(p.extra["labeled_by"] == "human" for p in mixed)
    write_pairs(tmp_path / "x.jsonl", result.pairs)
    assert read_pairs(tmp_path / "x.jsonl") == result.pairs
    with pytest.raises(TrimtabError, match="--weight -1"):
        filter_pairs(pairs, human=human, weight=-1)


def test_kinds_and_aliases() -> None:
    assert drop_kinds(["leaks", "duplicates"]) == (
        "duplicates",
        "leaked-prompts",
        "leaked-near-prompts",
        "leaked-passages",
    )
    assert drop_kinds(DROPPABLE) == DROPPABLE
    with pytest.raises(TrimtabError, match="--drop dupes: there is no such kind"):
        drop_kinds(["dupes"])
    with pytest.raises(TrimtabError, match="leaks need a test set"):
        filter_pairs(clean_pairs(5), drop=["leaks"])


# the command line

app = typer.Typer()
command.register(app)


def run(*arguments: object, code: int = 0):
    result = CliRunner().invoke(app, ["data", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def test_check_exits_with_3_where_something_is_at_fail_on_or_above(tmp_path) -> None:
    write_pairs(tmp_path / "clean.jsonl", clean_pairs(100))
    write_pairs(tmp_path / "messy.jsonl", messy())
    assert "no problem found" in run("check", tmp_path / "clean.jsonl").stdout
    assert run("check", tmp_path / "messy.jsonl", code=3).stdout.splitlines()[0].endswith("reversed-labels, empty")
    run("check", tmp_path / "messy.jsonl", "--fail-on", "critical")
    run("check", tmp_path / "messy.jsonl", "--fail-on", "never")


def test_the_ids_of_a_report_are_what_filter_drops(tmp_path) -> None:
    path, out, why = tmp_path / "messy.jsonl", tmp_path / "out.jsonl.gz", tmp_path / "why.jsonl"
    write_pairs(path, messy())
    report = json.loads(run("check", path, "--json", "--fail-on", "never").stdout)
    assert (report["status"], report["truncated"], report["count"]) == ("problems", False, len(report["findings"]))
    (tmp_path / "report.json").write_text(json.dumps(report))
    arguments = (path, "-o", out, "--drop", "duplicates,empty", "--reasons", why, "--json")
    found = json.loads(run("filter", *arguments, "--report", tmp_path / "report.json").stdout)
    ids = {i for f in report["findings"] if f["id"] in ("duplicates", "empty") for i in f["ids"]}
    assert {d["id"] for d in found["dropped"]} == ids == {"p10", "again"}
    assert found["written"] == len(read_pairs(out)) == found["read"] - 2
    first = out.read_bytes()
    assert json.loads(run("filter", *arguments).stdout) == found
    assert out.read_bytes() == first
    assert [json.loads(line)["id"] for line in why.read_text().splitlines()] == ["p10", "again"]


def test_broken_lines_stop_a_conversion_unless_they_are_to_be_skipped_and_are_listed(tmp_path) -> None:
    path, out = tmp_path / "x.jsonl", tmp_path / "out.jsonl"
    path.write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n{"prompt": "a", "chosen": "b"}\n')
    with pytest.raises(TrimtabError, match="line 2: rejected is missing"):
        run("convert", path, out)
    assert not out.exists()
    result = run("convert", path, out, "--skip-broken", "--to", "messages")
    assert "1 pair of 2 records" in result.stdout
    assert f"skipped: {path}, line 2: rejected is missing" in result.stderr
    assert json.loads(out.read_text())["prompt"] == [{"role": "user", "content": "a"}]
    found = run("check", path, code=3).stdout
    assert "1 record of 2 is no pair" in found
    with pytest.raises(TrimtabError, match="written over its own source"):
        run("convert", path, path)


def test_hostile_text_reaches_no_terminal(tmp_path) -> None:
    nasty = "evil\x1b]0;title\x07\u202e"
    pairs = [replace(p, id=f"{nasty}{i}", extra={"source": nasty}) for i, p in enumerate(clean_pairs(60))]
    pairs = [*pairs, replace(pairs[0], id=f"{nasty}x")]
    write_pairs(tmp_path / "x.jsonl", pairs)
    for output in (run("check", tmp_path / "x.jsonl", code=3), run("check", tmp_path / "x.jsonl", "--json", code=3)):
        assert "\x1b" not in output.stdout
        assert "\u202e" not in output.stdout


def test_scores_are_read_by_id(tmp_path) -> None:
    path, scores = tmp_path / "x.jsonl", tmp_path / "s.jsonl"
    write_pairs(path, clean_pairs(300))
    lines = [{"id": f"p{i}", "chosen_score": 1.5, "rejected_score": 0.5} for i in range(300)]
    scores.write_text("\n".join(map(json.dumps, lines)))
    noise = json.loads(run("check", path, "--scores", scores, "--json").stdout)["noise"]
    assert (noise["by"], noise["pairs"]) == ("the scores handed in", 300)
    scores.write_text('{"id": "other", "margin": 1}')
    with pytest.raises(TrimtabError, match="no score has the id of a pair") as error:
        run("check", path, "--scores", scores)
    assert error.value.kind is ErrorKind.DATA
    scores.write_text('{"id": "p1"}')
    with pytest.raises(TrimtabError, match="line 1: margin is missing"):
        run("check", path, "--scores", scores)
