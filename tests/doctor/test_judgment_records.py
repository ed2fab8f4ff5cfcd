"""Files of judgments are recognised by what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeling_fakes import candidate, two_principles
from made_up_judgments import look, pair_rows, score_rows, side_by_side, verdicts
from trimtab.doctor.judgment_keys import columns_of, number, paired, read_winners, words
from trimtab.doctor.judgment_orders import flipped, swapped_back
from trimtab.doctor.judgments import from_records, from_store
from trimtab.labeling.protocol import JudgeIdentity, JudgeRequest, Order, Verdict
from trimtab.labeling.store import LabelStore


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("len_A", ("len", "a")),
        ("lenA", ("len", "a")),
        ("fold_accs", ("fold", "accs")),
        ("output1", ("output", "1")),
        ("winner_order12", ("winner", "order", "12")),
        ("g1_winner", ("g1", "winner")),
        ("Proba. prefer 1", ("proba", "prefer", "1")),
        ("chosenScore", ("chosen", "score")),
        ("RMScore", ("rm", "score")),
    ],
)
def test_a_key_is_compared_by_its_words(key: str, parts: tuple[str, ...]) -> None:
    assert words(key) == parts


@pytest.mark.parametrize(
    ("values", "winners"),
    [
        (["A>B", "B>A", "A=B", None], [1, 2, 0, None]),
        (["[[A]]", "[[B]]", "[[C]]", "error"], [1, 2, 0, None]),
        (["model_1", "model_2", "tie", "error"], [1, 2, 0, None]),
        (["1", "2", "2", ""], [1, 2, 2, None]),
        ([1, 2, "tie", None], [1, 2, 0, None]),
        ([1, -1, 0, 1], [1, 2, 0, 1]),
        ([0, 1, 1, 0], [1, 2, 2, 1]),
    ],
)
def test_verdicts_are_read_in_many_spellings(values: list[Any], winners: list[int | None]) -> None:
    read = read_winners(columns_of([{"winner": v} for v in values])["winner"])
    assert read is not None
    assert read.winners == winners


def test_numbers_and_prose_are_no_verdicts() -> None:
    for values in ([0.25, 0.5, 0.75], ["a long text", "another one"], [[1, 2], [2, 1]]):
        assert read_winners(columns_of([{"winner": v} for v in values])["winner"]) is None


def test_numbers_may_be_written_as_text_or_alone_in_a_list() -> None:
    assert [number(v) for v in ("1.5", [2.5], 3, "40%")] == [1.5, 2.5, 3.0, 40.0]
    assert all(np.isnan(number(v)) for v in (None, True, "x", [1, 2]))


def test_halves_of_a_pair_are_found_by_the_one_word_that_differs() -> None:
    columns = columns_of([{"reward_chosen": 1, "reward_rejected": 0, "len_A": 3, "len_B": 4, "kl": 1}])
    assert [(a.key, b.key) for a, b in paired(columns.values(), "sides")] == [("reward_chosen", "reward_rejected")]
    assert [(a.key, b.key) for a, b in paired(columns.values(), "places")] == [("len_A", "len_B")]


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("place", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("gold", [True, False])
def test_data_tell_whether_the_second_order_is_mapped_back(raw: bool, place: float, gold: bool) -> None:
    told = []
    for seed in range(10):
        rows = side_by_side(verdicts(seed, 250, accuracy=0.93, place=place, gold=gold), raw=raw)
        material = from_records(rows, "x")
        assert material is not None
        told.append(material.second_order)
    assert told.count("raw" if raw else "mapped back") >= 9
    assert told.count("mapped back" if raw else "raw") == 0


@pytest.mark.parametrize("raw", [True, False])
def test_either_way_the_verdicts_speak_of_the_pairs_own_responses(raw: bool) -> None:
    rows = verdicts(0, 200, accuracy=0.93)
    table = from_records(side_by_side(rows, raw=raw), "x").verdicts  # type: ignore[union-attr]
    assert table is not None
    told = {(table.pair.of(i), int(table.order[i])): int(table.winner[i]) for i in range(len(table))}
    assert told == {(row["pair_id"], 1 if row["order"] == "12" else 2): row["winner"] for row in rows}


def test_a_judge_that_tosses_coins_leaves_the_second_order_open() -> None:
    rng = np.random.default_rng(0)
    first, second = (rng.integers(1, 3, 200).tolist() for _ in range(2))
    assert swapped_back(first, second) is None


@given(st.lists(st.sampled_from([1, 2, 0, None]), min_size=1, max_size=60), st.data())
def test_exchanging_the_second_order_exchanges_the_answer(first: list[int | None], data: Any) -> None:
    second = data.draw(st.lists(st.sampled_from([1, 2, 0, None]), min_size=len(first), max_size=len(first)))
    told, turned = swapped_back(first, second), swapped_back(first, flipped(second))
    assert turned == (None if told is None else not told)


def test_an_unknown_second_order_is_left_out_not_guessed() -> None:
    rows = side_by_side(verdicts(0, 60, accuracy=0.6, gold=False), raw=True)
    material = from_records(rows, "x")
    assert material is not None
    assert material.second_order == "unknown"
    assert material.verdicts is not None
    assert set(material.verdicts.order.tolist()) == {1}


def test_a_verdict_file_keeps_its_columns() -> None:
    rows = verdicts(0, 20)
    table = from_records(rows, "x").verdicts  # type: ignore[union-attr]
    assert table is not None
    assert table.winner.tolist() == [row["winner"] for row in rows]
    assert table.gold.tolist() == [row["gold"] for row in rows]
    assert table.length_1.tolist() == [row["length_1"] for row in rows]


def test_strings_of_a_csv_are_read_as_numbers() -> None:
    rows = [{k: str(v) for k, v in row.items()} for row in verdicts(0, 20)]
    table = from_records(rows, "x").verdicts  # type: ignore[union-attr]
    assert table is not None
    assert table.winner.tolist() == [int(row["winner"]) for row in rows]


SCORE_SPELLINGS = [
    ("chosen_score", "rejected_score"), ("score_chosen", "score_rejected"), ("reward_chosen", "reward_rejected"),
    ("chosenReward", "rejectedReward"), ("scores_chosen", "scores_rejected"), ("chosen", "rejected"),
    ("rm_score_win", "rm_score_lose"), ("r_w", "r_l"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "two"), SCORE_SPELLINGS)
def test_scores_of_chosen_and_rejected_in_many_spellings(one: str, two: str) -> None:
    material = from_records([{one: 1.5, two: 0.5}, {one: -1.0, two: 2.0}, {one: 0.0, two: 0.25}], "x")
    assert material is not None
    (table,) = material.scores
    assert table.signed.tolist() == [1.0, -3.0, -0.25]
    assert table.names == (one, two)


@pytest.mark.parametrize(
    ("labels", "better"), [(["A", "B", "A"], [1, 2, 1]), (["A>B", "B>A", "A>B"], [1, 2, 1]), ([1, 2, 1], [1, 2, 1])]
)
def test_lists_of_two_scores_with_a_label(labels: list[Any], better: list[int]) -> None:
    values = [[2.0, 1.0], [0.0, 4.0], [1.0, 3.0]]
    material = from_records([{"scores": s, "label": y} for s, y in zip(values, labels, strict=True)], "x")
    assert material is not None
    assert material.scores[0].gold.tolist() == better
    assert material.scores[0].signed.tolist() == [1.0, 4.0, -2.0]


def test_scores_that_do_not_see_the_order_are_no_judge() -> None:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(60):
        a, b = rng.normal(size=2).tolist()
        rows.append({
            "pair_id": i, "label": "A>B" if rng.random() < 0.7 else "B>A",
            "decision_0": "A>B" if a > b else "B>A", "scores_0": [a, b],
            "decision_1": "B>A" if a > b else "A>B", "scores_1": [b, a],
        })  # fmt: skip
    material = from_records(rows, "x")
    assert material is not None
    assert material.format == "pair-scores"
    assert material.verdicts is None
    assert material.scores[0].same_both_orders == 1.0


def test_nested_judgments_of_both_orders_are_flattened() -> None:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(80):
        better = "A>B" if rng.random() < 0.5 else "B>A"
        turned = {"A>B": "B>A", "B>A": "A>B"}[better]
        rows.append({
            "pair_id": i, "label": better, "response_A": "x" * (5 + i), "response_B": "y" * 20,
            "judgments": [{"judgment": "...", "decision": better}, {"judgment": "...", "decision": turned}],
        })  # fmt: skip
    material = from_records(rows, "x")
    assert material is not None
    assert material.second_order == "raw"
    assert material.verdicts is not None
    assert len(material.verdicts) == 160


def test_our_own_labels_give_both_orders() -> None:
    rows = [
        {"pair_id": "a", "outcome": "ok", "p_first": 0.6, "order_gap": 0.4},
        {"pair_id": "b", "outcome": "ok", "p_first": 0.9, "order_gap": 0.1},
        {"pair_id": "c", "outcome": "unparsed", "p_first": None, "order_gap": None},
    ]
    table = from_records(rows, "x").verdicts  # type: ignore[union-attr]
    assert table is not None
    assert table.winner.tolist() == [1, 1, -1, 2, 1, -1]
    assert table.order.tolist() == [1, 1, 1, 2, 2, 2]


def test_raters_side_by_side_are_several_judges() -> None:
    rows = [{"idx": i, "annotator1": 1, "annotator2": 2 - i % 2, "annotator3": i % 3} for i in range(30)]
    table = from_records(rows, "x").verdicts  # type: ignore[union-attr]
    assert table is not None
    assert table.judge.names == ("annotator1", "annotator2", "annotator3")
    assert not (table.order > 0).any()


def test_dialogues_are_split_at_the_last_shared_turn() -> None:
    start = "\n\nHuman: one\n\nAssistant: two\n\nHuman: three\n\nAssistant:"
    rows = [{"chosen": f"{start} yes {i}", "rejected": f"{start} no {i}"} for i in range(3)]
    pairs = from_records(rows, "x").pairs  # type: ignore[union-attr]
    assert pairs is not None
    assert pairs.prompt[0] == start
    assert (pairs.chosen[0], pairs.rejected[0]) == ("yes 0", "no 0")


def test_messages_are_taken_apart() -> None:
    ask = {"role": "user", "content": "why"}
    rows = [
        {"chosen": [ask, {"role": "assistant", "content": f"because {i}"}],
         "rejected": [ask, {"role": "assistant", "content": "no"}]}
        for i in range(2)
    ]  # fmt: skip
    pairs = from_records(rows, "x").pairs  # type: ignore[union-attr]
    assert pairs is not None
    assert (pairs.prompt[0], pairs.chosen[0], pairs.rejected[0]) == ("user: why", "because 0", "no")


def test_folds_of_one_group_are_put_together_and_counted_once() -> None:
    rows = [
        {"n_pairs": n, "seed": s, "condition": c, "mean_val_acc": 0.6, "fold_accs": [0.5, 0.7]}
        for n in (100, 1000) for c in ("x", "y") for s in range(4)
    ]  # fmt: skip
    material = from_records(rows, "x")
    assert material is not None
    assert material.format == "fold-accuracies"
    assert [(r.group, len(r.folds), r.pairs) for r in material.accuracies] == [
        ("n_pairs=100, condition=x", 8, 100), ("n_pairs=100, condition=y", 8, 100),
        ("n_pairs=1000, condition=x", 8, 1000), ("n_pairs=1000, condition=y", 8, 1000),
    ]  # fmt: skip


def test_a_size_of_the_held_out_part_is_that_of_each_fold() -> None:
    (row,) = from_records([{"fold_accs": [0.6, 0.7, 0.8], "n_val": 50}], "x").accuracies  # type: ignore[union-attr]
    assert row.pairs == 150


def test_one_row_a_fold_is_the_same_thing() -> None:
    rows = [{"fold": i, "val_accuracy": 0.6 + i / 100, "n_val": 50} for i in range(5)]
    (row,) = from_records(rows, "x").accuracies  # type: ignore[union-attr]
    assert row.folds == pytest.approx((0.6, 0.61, 0.62, 0.63, 0.64))
    assert row.pairs == 250


def test_aggregates_are_read_as_shares_or_per_cents() -> None:
    rows = [
        {"judge": "one", "# parsed": 500, "Proba. prefer longer": 0.7, "Proba. prefer 1": 0.5, "Human agreement": 66.0},
        {
            "judge": "humans",
            "# parsed": 500,
            "Proba. prefer longer": 0.64,
            "Proba. prefer 1": 0.52,
            "Human agreement": 65.0,
        },
    ]
    one, people = from_records(rows, "x").statistics  # type: ignore[union-attr]
    assert (one.name, one.n, one.longer, one.first, one.people) == ("one", 500, 0.7, 0.5, False)
    assert one.agreement == pytest.approx(0.66)
    assert people.people


@pytest.mark.parametrize(
    "rows",
    [
        [{"step": i, "loss": 0.5, "rewards/chosen": 1.0, "rewards/rejected": 0.0} for i in range(5)],
        [{"step": i, "accuracy": 0.6, "chosen_reward": 1.0, "rejected_reward": 0.5} for i in range(5)],
        [{"epoch": 1.0, "eval_loss": 0.5, "eval_accuracy": 0.6}],
        [{"prompt": "a", "response": "b"}] * 3,
        [{"prompt": "a", "id": 1}] * 3,
        [{"x": 1, "y": 2.5}] * 3,
        [],
    ],
)
def test_training_logs_and_other_tables_are_none_of_these(rows: list[dict[str, Any]]) -> None:
    assert from_records(rows, "x") is None


def test_rows_that_are_no_objects_are_counted() -> None:
    material = from_records([*score_rows(0, 5), "text", 3], "x")  # type: ignore[list-item]
    assert material is not None
    assert [(s.reason, s.count, s.first_line) for s in material.skipped] == [("not an object", 2, 6)]


_KEYS = st.sampled_from([
    "pair_id", "judge", "order", "winner", "gold", "label", "len_A", "len_B", "decision_0", "decision_1", "scores_0",
    "scores_1", "scores", "chosen", "rejected", "chosen_score", "rejected_score", "fold_accs", "mean_val_acc",
    "n_pairs", "fold", "n", "longer_wins", "self_pref", "first_wins", "flip_rate", "p_1", "outcome", "p_first",
    "order_gap", "annotator1", "annotator2", "response_A", "response_B", "model_a", "model_b", "split", "source",
    "status", "margin", "prompt", "judgments", "sample", "template", "turn",
])  # fmt: skip
_WORDS = ["A", "B", "A>B", "tie", "12", "21", "x", ""]
_PARTS = st.dictionaries(st.sampled_from(["decision", "role", "content"]), st.text(max_size=3), max_size=2)
_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.sampled_from(_WORDS),
    st.lists(st.floats(), max_size=3), st.lists(_PARTS, max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


@given(st.lists(st.dictionaries(_KEYS, _VALUES, max_size=6), max_size=8))
def test_nothing_makes_it_fail(rows: list[dict[str, Any]]) -> None:
    if from_records(rows, "x") is not None:
        look(rows)


@given(st.lists(st.dictionaries(st.text(max_size=6), _VALUES, max_size=4), max_size=5))
def test_no_key_makes_it_fail(rows: list[dict[str, Any]]) -> None:
    from_records(rows, "x")


def test_pairs_with_scores_are_both() -> None:
    rows = [{**pair, "score_chosen": 1.0 + i, "score_rejected": 0.5} for i, pair in enumerate(pair_rows(0, 30))]
    material = from_records(rows, "x")
    assert material is not None
    assert material.format == "pair-scores+pairs"
    assert material.scores[0].texts[0] == (rows[0]["chosen"], rows[0]["rejected"])


def test_a_label_store_is_read_as_verdicts(tmp_path: Path) -> None:
    constitution = two_principles(tmp_path)
    requests = [JudgeRequest(candidate(i), constitution, order) for i in range(3) for order in Order]
    with LabelStore(tmp_path / "labels.sqlite") as store:
        store.put(JudgeIdentity("mine"), requests, [Verdict.of_shown(0.9, r.order) for r in requests])
    material = from_store(str(tmp_path / "labels.sqlite"))
    assert material.verdicts is not None
    # the place shown first always wins
    assert sorted(zip(material.verdicts.order.tolist(), material.verdicts.winner.tolist(), strict=True)) == [
        (1, 1), (1, 1), (1, 1), (2, 2), (2, 2), (2, 2),
    ]  # fmt: skip
