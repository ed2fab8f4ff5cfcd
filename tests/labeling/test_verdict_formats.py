"""Files of other projects as verdicts: LLMBar, PandaLM, MT-bench, and our own label store."""

from __future__ import annotations

import json

import numpy as np
import pytest

from labeling_fakes import ScriptedJudge, candidate, two_principles
from trimtab.errors import TrimtabError
from trimtab.labeling.exchange import export_labels
from trimtab.labeling.labels import label_pairs
from trimtab.labeling.protocol import JudgeIdentity, Verdict
from trimtab.labeling.store import LabelStore
from trimtab.labeling.verdicts import COLUMNS, Coded, read_verdicts


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows) if path.suffix == ".json" else "\n".join(map(json.dumps, rows)))
    return str(path)


def test_llmbar_votes_are_two_verdicts_each_with_texts_from_beside(tmp_path):
    votes = {"subset": "Hard/Made", "idx": 1, "judge": "m", "strategy": "plain", "gold": 2}
    other = {"subset": "../..", "idx": 0, "judge": "m", "strategy": "plain", "gold": 1}
    write(tmp_path / "a/b/Hard/Made/dataset.json", [{}, {"input": "q", "output_1": "a b c", "output_2": "a"}])
    # a subset may not lead out of the directory
    write(tmp_path / "dataset.json", [{"input": "secret", "output_1": "x", "output_2": "y"}])
    path = write(
        tmp_path / "a/b/votes.jsonl",
        [
            {**votes, "winner_order12": "1", "winner_order21": None},
            {**other, "winner_order12": "2", "winner_order21": "1"},
        ],
    )
    found = read_verdicts(path)
    assert found.judge.names == ("m/plain",)
    assert found.winner.tolist() == [1, -1, 2, 1]
    assert found.order.tolist() == [1, 2, 1, 2]
    assert found.gold.tolist() == [2, 2, 1, 1]
    assert found.slice.names == ("Hard/Made", "../..")
    assert found.length_1[0] == 3
    assert list(found.texts) == [0]


PANDA = [
    {
        "idx": 0, "instruction": "do", "input": "it", "response1": "yes", "response2": "no", "cmp_key": "m_n",
        "annotator1": 1, "annotator2": 1, "annotator3": 0,
    },
    {
        "idx": 1, "instruction": "do", "input": "it", "response1": 5, "response2": "no", "cmp_key": "m_o",
        "annotator1": 2, "annotator2": 1, "annotator3": 0,
    },
]  # fmt: skip


def test_pandalm_annotators_are_judges_and_no_ones_reference_is_their_own_vote(tmp_path):
    found = read_verdicts(write(tmp_path / "testset-v1.json", PANDA))
    assert found.judge.names == ("annotator1", "annotator2", "annotator3")
    assert found.winner.tolist() == [1, 1, 0, 2, 1, 0]
    # of the first pair: 1 has (1, tie), 2 has (1, tie), 3 has (1, 1)
    assert found.gold.tolist() == [-1, -1, 1, -1, -1, -1]
    assert found.generator_2.names == ("n", "o")
    assert found.texts[1].first == "5"
    assert len(set(found.cluster.tolist())) == 1


def test_pandalm_model_verdicts_find_the_people_beside_them(tmp_path):
    write(tmp_path / "testset-v1.json", PANDA)
    rows = [{"idx": 0, "gpt_result": "2"}, {"idx": 1, "gpt_result": "Tie"}]
    found = read_verdicts(write(tmp_path / "gpt-3.5-turbo-testset-v1.json", rows))
    assert found.judge.names == ("gpt-3.5-turbo",)
    assert found.winner.tolist() == [2, 0]
    assert found.gold.tolist() == [1, -1]


def test_mt_bench_pairs_are_the_same_whichever_way_round(tmp_path):
    rows = [
        {"question_id": 81, "model_a": "x", "model_b": "a", "winner": "model_a", "judge": "expert_1", "turn": 1},
        {"question_id": 81, "model_a": "a", "model_b": "x", "winner": "model_a", "judge": "expert_2", "turn": 1},
        {"question_id": 81, "model_a": "a", "model_b": "x", "winner": "tie (inconsistent)", "judge": "e", "turn": 2},
    ]
    found = read_verdicts(write(tmp_path / "human.jsonl", rows))
    assert found.pair.codes.tolist() == [0, 0, 1]
    assert found.winner.tolist() == [2, 1, 0]
    assert found.generator_1.names == ("a",)
    assert found.order.tolist() == [0, 0, 0]


def test_mt_bench_judgments_are_two_orders(tmp_path):
    row = {"question_id": 81, "model_1": "x", "model_2": "a", "judge": ["gpt-4", "pair-v2"], "turn": 1}
    rows = [{**row, "g1_winner": "model_1", "g2_winner": "model_2"}, {**row, "g1_winner": "tie", "g2_winner": "error"}]
    found = read_verdicts(write(tmp_path / "gpt4.jsonl", rows))
    assert found.judge.names == ("gpt-4/pair-v2",)
    # x is the pair's second; the first game showed it first
    assert found.winner.tolist() == [2, 1, 0, -1]
    assert found.order.tolist() == [2, 1, 2, 1]


def test_the_label_store_is_read_without_the_canarys_verdicts(tmp_path):
    judge = ScriptedJudge(lambda r: Verdict.of_shown(0.8, r.order))
    pairs = [candidate(1), candidate(2)]
    with LabelStore(tmp_path / "labels.sqlite") as store:
        label_pairs(pairs, judge, two_principles(tmp_path), store=store)
        canaries = [type(p)(f"canary/0/{p.id}", p.prompt, p.first, p.second, {"source": "canary"}) for p in pairs]
        label_pairs(canaries, judge, two_principles(tmp_path), store=store)
    found = read_verdicts(str(tmp_path / "labels.sqlite"))
    assert len(found) == 4
    assert found.judge.names == ("scripted",)
    assert found.first_won.all()
    assert sorted(found.p_1.round(9).tolist()) == [0.2, 0.2, 0.8, 0.8]


def test_models_behind_one_judge_are_told_apart(tmp_path):
    constitution = two_principles(tmp_path)
    with LabelStore(tmp_path / "labels.sqlite") as store:
        for model in ("small", "large"):
            judge = ScriptedJudge(lambda r: Verdict.of_shown(0.8, r.order), identity=JudgeIdentity("server", model))
            label_pairs([candidate(1)], judge, constitution, store=store)
    found = read_verdicts(str(tmp_path / "labels.sqlite"))
    assert sorted(found.judge.names) == ["server/large", "server/small"]
    assert found.constitution.known


def test_exported_labels_read_like_the_store(tmp_path):
    judge = ScriptedJudge(lambda r: Verdict.of_shown(0.8, r.order))
    with LabelStore(tmp_path / "labels.sqlite") as store:
        label_pairs([candidate(1), candidate(2)], judge, two_principles(tmp_path), store=store)
        export_labels(store, tmp_path / "labels.jsonl")
    stored, exported = (read_verdicts(str(tmp_path / name)) for name in ("labels.sqlite", "labels.jsonl"))
    for column in COLUMNS:
        first, second = getattr(stored, column), getattr(exported, column)
        if isinstance(first, Coded):
            assert first.names == second.names
            first, second = first.codes, second.codes
        np.testing.assert_array_equal(first, second)


def test_a_garbled_export_is_named(tmp_path):
    path = write(tmp_path / "labels.jsonl", [{"pair_hash": "a", "shown": "forward", "outcome": "ok", "p_first": 1}])
    with pytest.raises(TrimtabError, match="exported verdict lacks or garbles"):
        read_verdicts(path)
