"""The headline says what the run shows, and no more."""

from __future__ import annotations

import pytest

from made_up_runs import add_eval, add_ppo, add_preference, config, eval_rows, new_run
from trimtab.report.facts import Figure, figure_of, read_facts
from trimtab.report.page import render
from trimtab.report.verdict import Kind, verdict
from trimtab.runs.run import Run


def said(run):
    return verdict(read_facts(run))


def rows_with(prompts=60, **scores):
    """Rows in which each measure differs by a known amount: the reference scores 0 or 1 in turn."""
    return [
        {
            "prompt_id": f"p{p}", "side": side, "index": 0, "response": "a", "tokens": 10, "finished": True,
            "scores": {
                name.replace("_", ":"): p % 2 + (gap(p) if side == "policy" else 0) for name, gap in scores.items()
            },
        }
        for p in range(prompts)
        for side in ("policy", "reference")
    ]  # fmt: skip


def up(p):
    return 1.0 if p % 3 else 0.5


def down(p):
    return -up(p)


def level(p):
    return 1.0 if p % 2 else -1.0


@pytest.mark.parametrize(
    ("scores", "kind", "words"),
    [
        ({"ind_a": up, "preference": up}, Kind.BETTER, "scores higher than the reference on ind:a"),
        ({"ind_a": up, "ind_b": down}, Kind.MIXED, "scores higher than the reference on ind:a"),
        ({"ind_a": up, "ind_b": level}, Kind.BETTER, "scores higher"),
        ({"ind_a": down, "preference": up}, Kind.WORSE, "lower than the reference on ind:a: -0.83 [-0.88, -0.78]"),
        ({"ind_a": level, "preference": up}, Kind.PROXY_ONLY, "Only the score that was trained on rose"),
        ({"ind_a": level, "preference": level}, Kind.UNDECIDED, "no difference"),
        ({"ind_a": level, "preference": down}, Kind.UNDECIDED, "no difference"),
        ({"preference": up}, Kind.CIRCULAR, "does not say whether responses became better"),
    ],
)
def test_kinds(tmp_path, scores, kind, words):
    run = new_run(tmp_path)
    add_eval(run, rows_with(**scores))
    found = said(run)
    assert found.kind is kind
    assert words in found.sentence


def test_a_worse_policy_with_a_risen_score_is_called_out(tmp_path):
    run = new_run(tmp_path)
    add_eval(run, rows_with(ind_a=down, preference=up))
    assert said(run).sentence.endswith("while the score that it was trained on rose.")
    run = new_run(tmp_path, "other")
    add_eval(run, rows_with(ind_a=down, preference=level))
    assert "while" not in said(run).sentence


def test_the_trained_on_measure_never_decides_even_when_listed_first(tmp_path):
    run = new_run(tmp_path)
    add_eval(run, rows_with(preference=up, ind_a=level))
    assert said(run).kind is Kind.PROXY_ONLY


def test_a_function_that_is_the_reward_is_no_independent_measure(tmp_path):
    run = new_run(tmp_path, reward={"mine:f": 1.0, "preference": 1.0})
    add_eval(run, rows_with(mine_f=up))
    assert said(run).kind is Kind.CIRCULAR


def test_one_prompt_tells_nothing(tmp_path):
    run = new_run(tmp_path)
    add_eval(run, rows_with(1, ind_a=up))
    found = said(run)
    assert found.kind is Kind.UNDECIDED
    assert "On 1 held-out prompt there is no telling" in found.sentence


@pytest.mark.parametrize(("longer", "word"), [(8, "longer"), (-8, "shorter"), (0, "shows no change")])
def test_the_change_of_length_is_told(tmp_path, longer, word):
    run = new_run(tmp_path)
    add_eval(run, eval_rows(longer=longer))
    details = said(run).details
    assert word in details[0]
    assert ("pairs of about equal length" in details[0]) == bool(longer)


def test_a_gain_that_vanishes_at_equal_length_is_doubted(tmp_path):
    def row(p, side, tokens, score):
        return {
            "prompt_id": f"p{p}",
            "side": side,
            "response": "a",
            "tokens": tokens,
            "finished": True,
            "scores": {"m": score},
        }

    # longer responses win, equally long ones win and lose in turn
    rows = [
        row(p, side, 30 if side == "policy" and p % 2 else 10, float(side == "policy") if p % 2 else p % 4 / 2)
        for p in range(80)
        for side in ("policy", "reference")
    ]
    for r in rows:
        if not int(r["prompt_id"][1:]) % 2 and r["side"] == "reference":
            r["scores"] = {"m": 1 - r["scores"]["m"]}
    run = new_run(tmp_path)
    add_eval(run, rows)
    found = said(run)
    assert found.kind is Kind.BETTER
    assert "length may account for the gain" in found.details[0]


def test_without_evaluation_the_score_alone_is_no_success(tmp_path):
    run = new_run(tmp_path)
    add_ppo(run)
    found = said(run)
    assert found.kind is Kind.UNMEASURED
    assert "does not say whether responses became better" in found.details[0]


@pytest.mark.parametrize(("rise", "kind"), [(1.4, Kind.PROXY_ONLY), (0.0, Kind.UNDECIDED)])
def test_the_curve_stands_in_for_a_trained_on_score_that_was_not_evaluated(tmp_path, rise, kind):
    run = new_run(tmp_path)
    add_ppo(run, rise=rise)
    add_eval(run, rows_with(ind_a=level))
    assert said(run).kind is kind


def test_kl_outside_its_band_is_told(tmp_path):
    run = new_run(tmp_path)
    add_ppo(run)
    assert "outside the healthy band (-1 to 10)" in said(run).details[-1]


def test_figures_are_read_from_every_form():
    assert figure_of({"value": 1, "low": 0, "high": 2, "n": 5}) == Figure(1.0, 0.0, 2.0, 5)
    assert figure_of({"mean": 1, "low": None, "high": None}) == Figure(1.0)
    assert figure_of([0.5, 0.4, 0.6, 7]) == Figure(0.5, 0.4, 0.6, 7)
    assert figure_of(0.5) == Figure(0.5)
    assert figure_of("0.5") is None
    assert figure_of(True) is None


@pytest.mark.parametrize(
    "scores", [{"ind_a": down, "preference": up}, {"ind_a": level, "preference": up}, {"ind_a": up, "preference": up},
               {"preference": up}],
)  # fmt: skip
def test_of_dpo_no_score_is_called_one_that_the_policy_was_trained_on(tmp_path, scores):
    settings = config() | {"project": {"algorithm": "dpo"}}
    run = Run.create(tmp_path / "runs", "demo", config=settings, seed=3)
    add_preference(run)
    add_eval(run, rows_with(**scores))
    found = said(run)
    text = " ".join([found.sentence, *found.details])
    assert "learned from the same labels" in text
    assert "trained on" not in text
    page = render(run)
    assert "same labels</span>" in page
    assert "trained on</span>" not in page
    assert "What the policy was trained to please" not in page
