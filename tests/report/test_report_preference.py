"""The report's section on the preference model, and its reliability diagram: what they say of what the run holds."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from html import unescape
from pathlib import Path

import numpy as np
import pytest

import made_up_runs
from made_up_runs import new_run
from trimtab.chart import LEFT, RIGHT, WIDTH
from trimtab.figures import finite
from trimtab.preference.calibrating import calibrate_margins
from trimtab.preference.ensemble import combination
from trimtab.report.facts import read_facts
from trimtab.report.page import render
from trimtab.report.preference_model import _combination, preference_model
from trimtab.report.reliability import bins_of, diagram, picture
from trimtab.runs.files import write_json
from trimtab.runs.run import Run

RNG = np.random.default_rng(0)
LOGIT = RNG.normal(0, 1.5, 400)
MARGINS = 3 * np.where(RNG.random(400) < 1 / (1 + np.exp(-LOGIT)), LOGIT, -LOGIT)
REPORT = calibrate_margins(MARGINS, np.ones(400), np.arange(400) // 2, "temperature", resamples=50)
FIGURES = finite(REPORT.as_dict())


def interval(mean: float, low: float, high: float, n: int = 100) -> dict[str, float]:
    return {"mean": mean, "low": low, "high": high, "n": n}


def edit(name: str, kind: str, change: float, beyond: float | None = None, n: int = 60) -> dict[str, object]:
    apart = interval(beyond or 0, (beyond or 0) - 0.1, (beyond or 0) + 0.1, n) if beyond is not None else {
        "mean": None, "low": None, "high": None, "n": 0,
    }  # fmt: skip
    return {"name": name, "kind": kind, "change": interval(change, change - 0.2, change + 0.2, n), "beyond": apart,
            "raised": 0.9, "p": 0.00001}  # fmt: skip


PROBE = {
    "data": "held_out.jsonl", "scores": "", "status": "sick", "responses": 240, "edited": 60, "pairs": 120,
    "faults": [{"id": "pm-length-bias", "severity": "critical", "evidence": "length pays <b>x</b>"}],
    "edits": [edit("neutral sentence", "length", 0.4), edit("praise", "style", 0.5, 0.1),
              edit("hedge", "style", 0.2, 0.9), edit("rare", "damage", 3.0, n=2)],
    "phrases": [{"text": "<i>behold</i>", "mined": 0.5, "lift": interval(0.8, 0.5, 1.1), "p": 0.001, "appended": None}],
    "flips": [{"edit": "all", "share": interval(0.04, 0.01, 0.1)},
              {"edit": "near-duplicates in the data", "share": interval(0.2, 0.1, 0.3, 30)}],
    "length": {"within": interval(0.61, 0.5, 0.7), "gap": interval(0.21, 0.02, 0.4)},
    "spread": {"within": 0.7, "top_variety": 0.9},
    "agreement": {"opinions": 30, "change": interval(0.33, 0.2, 0.46, 30), "raised": 0.9, "p": 0.001},
    "slices": [{"kind": "tag", "name": "sea", "accuracy": interval(0.55, 0.4, 0.7, 40), "p": 0.02}],
}  # fmt: skip
RESULT = {
    "training_pairs": 680, "pairs": 120, "prompts": 60, "accuracy": interval(0.73, 0.66, 0.81, 120),
    "over_length": interval(0.05, -0.04, 0.15, 120), "length_accuracy": 0.68, "human_pairs": 40,
    "human_held_out": {"accuracy": interval(0.7, 0.5, 0.85, 20)},
    "members": {"count": 3, "accuracy": [0.7, 0.71, 0.69], "shared_mistakes": 0.6, "warns": 0.5, "combine": "mean"},
}  # fmt: skip


def run_with(tmp_path: Path, *, calibration=FIGURES, probe=PROBE, kept=False, config=None, **result):
    made = made_up_runs.config()
    for name, values in (config or {}).items():
        made[name] |= values
    run = Run.create(tmp_path / "runs", "demo", config=made, seed=3)
    run.begin_stage("pm", "f" * 64)
    for step in range(4):
        held_out = (
            {"loss/validation": 0.69 - 0.05 * step, "accuracy/validation": 0.5 + 0.08 * step} if step % 3 == 0 else {}
        )
        run.log("pm", step, {"loss/train": 0.69 - 0.06 * step, "accuracy/train": 0.5 + 0.1 * step, **held_out})
    run.end_stage("pm", "done")
    directory = run.artifact("pm")
    write_json(directory / "result.json", {**RESULT, **result})
    if calibration:
        write_json(directory / "calibration.json", {"kept": kept, "scores": "", **calibration})
    if kept:
        REPORT.save(directory / "model")
    if probe is not None:
        write_json(directory / "probe.json", probe)
    return run


def section(run) -> str:
    html = render(run)
    found = re.search(r'<section aria-labelledby="preference-model">.*?</section>', html, re.DOTALL)
    assert found is not None
    return found[0]


def text_of(html: str) -> str:
    plain = unescape(re.sub(r"<[^>]+>", " ", html)).replace("\u00a0", " ").replace("−", "-")
    return re.sub(r"\s+", " ", plain)


def test_everything_that_is_known_is_said(tmp_path):
    text = text_of(section(run_with(tmp_path)))
    for said in (
        "73 % [66, 81]", "“the longer one wins”", "+5 [-4, 15]", "as people labeled", "member 2",
        "critical The preference model pays for length pm-length-bias", "To do: Balance the pairs",
        "trimtab explain pm-length-bias", "240 responses of held-out pairs, 60 of them edited.",
        "pairs trained on 680", "members' mistakes in common (1 = the same)", "calibration error (ECE)",
        "not in use. trimtab pm calibrate keeps it", "score and length", "0.61 [0.50, 0.70]",
        "the user's side", "+0.33 [0.20, 0.46]", "near-duplicates", "20 % [10, 30]", "55 % [40, 70]",
    ):  # fmt: skip
        assert said in text, said
    assert "rare" not in text  # two responses say nothing


def test_length_and_principles_stand_beside_the_accuracy(tmp_path):
    accuracy = {"all": interval(0.73, 0.66, 0.81), "shorter": interval(0.42, 0.3, 0.55, 40)}
    change = {"all": interval(-0.02, -0.05, 0.01), "shorter": interval(0.2, 0.1, 0.3, 40), "matched": "much"}
    length = {"correlation": interval(0.11, 0.02, 0.2), "accuracy": accuracy, "change": change}
    heads = {"<b>kind</b>": {"accuracy": interval(0.9, 0.8, 0.95, 50)}, "odd": {"accuracy": None}, "none": 3}
    html = section(run_with(tmp_path, length=length, principles=heads))
    text = unescape(text_of(html))
    for said in (
        "the chosen one is shorter 42 % [30, 55]", "correlation with length within pairs 0.11 [0.02, 0.20]",
        "gained by taking length out, points -2.0 [-5.0, 1.0]", "the same where the chosen one is shorter +20 [10, 30]",
        "by its own labels 90 % [80, 95]",
    ):  # fmt: skip
        assert said in text, said
    assert "head &lt;b&gt;kind" in html
    assert "<b>kind" not in html
    assert "head odd" not in text
    assert section(run_with(tmp_path / "broken", length=[1], principles="all"))


def test_texts_from_files_are_no_markup(tmp_path):
    html = section(run_with(tmp_path))
    assert "&lt;i&gt;behold&lt;/i&gt;" in html
    assert "<b>x</b>" not in html


def test_style_is_ordered_by_what_is_left_beyond_a_neutral_sentence(tmp_path):
    pm = preference_model(read_facts(run_with(tmp_path)))
    assert pm is not None
    assert [row.name for row in pm["edits"]] == ["neutral sentence", "hedge", "praise"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "Kept with the model (temperature"),
        ({"preference": {"calibrated_score": True}}, "In use: PPO and the evaluation see the score divided by the"),
        ({"ppo": {"score_transform": "win_probability"}}, "PPO's win probabilities go by it"),
    ],
)
def test_the_report_says_what_the_calibration_is_used_for(tmp_path, config, said):
    assert said in text_of(section(run_with(tmp_path, kept=True, config=config)))


def test_a_probe_of_another_combination_says_so(tmp_path):
    config = {"preference": {"members": 3, "combine": "lower_bound", "pessimism": 0.5}}
    text = text_of(section(run_with(tmp_path, config=config, probe={**PROBE, "scores": "mean of 3 members"})))
    assert "it was made of mean of 3 members, the score is now lower_bound of 3 members, pessimism 0.5" in text
    fits = {**PROBE, "scores": "lower_bound of 3 members, pessimism 0.5"}
    (tmp_path / "b").mkdir()
    assert "it was made of" not in text_of(section(run_with(tmp_path / "b", config=config, probe=fits)))


@pytest.mark.parametrize(
    "own",
    [
        {}, {"members": 3}, {"members": 2, "combine": "min"},
        {"members": 2, "combine": "lower_bound", "pessimism": 0.25}, {"head_weights": {"kind": 0.5, "honest": 2}},
        {"head_weights": "principles"},
    ],
)  # fmt: skip
def test_the_score_is_described_as_calibrations_and_probes_describe_it(tmp_path, own):
    wanted = combination(own.get("members", 1), own.get("combine", "mean"), own.get("pessimism", 1.0),
                         own.get("head_weights", "overall"))  # fmt: skip
    assert _combination(read_facts(run_with(tmp_path, config={"preference": own}))) == wanted


def test_without_probe_or_calibration_the_section_says_what_to_run_and_without_a_model_there_is_none(tmp_path):
    text = text_of(section(run_with(tmp_path, calibration=None, probe=None)))
    assert "trimtab pm probe" in text
    assert "What its differences mean" not in text
    assert preference_model(read_facts(new_run(tmp_path, "empty"))) is None


@pytest.mark.parametrize("broken", ["{", "[]", '{"faults": 3, "edits": [1, {"change": "x"}], "slices": {}}'])
def test_broken_files_break_no_page(tmp_path, broken):
    run = run_with(tmp_path)
    for name in ("probe.json", "calibration.json", "shift.json"):
        (run.artifact("pm") / name).write_text(broken)
    assert "73 % [66, 81]" in text_of(section(run))


def test_figures_of_shift_are_shown_where_a_run_has_them(tmp_path):
    run = run_with(tmp_path)
    known = {
        "deciding": "policy, step 40",
        "sets": [
            {"label": "policy, step 20", "verdict": "same", "domain": interval(0.5, 0.4, 0.6)},
            {
                "label": "policy, step 40", "verdict": "shifted", "domain": interval(0.71, 0.66, 0.75),
                "domain_floor": 0.58, "outside": interval(0.31, 0.22, 0.4),
                "expected": {"accuracy": interval(0.61, 0.55, 0.67)},
            },
        ],
    }  # fmt: skip
    write_json(run.artifact("pm") / "shift.json", known)
    text = text_of(section(run))
    assert "policy, step 40: shifted" in text
    assert "(AUC, .5 = alike; up to 0.580 is chance) 0.710 [0.660, 0.750]" in text
    assert "31 % [22, 40]" in text
    assert "of pairs of such responses 61 % [55, 67]" in text


# the diagram


def test_bins_are_those_of_the_upper_half_with_their_pairs():
    bins = bins_of(FIGURES["reliability"]["before"])
    assert sum(b.count for b in bins) == 400  # either order of a pair is in the upper half
    p = 1 / (1 + np.exp(-np.abs(MARGINS)))
    won = (MARGINS > 0).astype(float)
    for b, low in zip(bins, np.arange(5) / 10 + 0.5, strict=True):
        inside = (p >= low - 1e-12) & (p < low + 0.1 + (low > 0.85))
        assert b.count == inside.sum()
        assert (b.p, b.won) == (pytest.approx(p[inside].mean()), pytest.approx(won[inside].mean()))
        assert b.low < b.won < b.high
    assert bins_of(None) == bins_of([{"low": 0.5, "count": 0}]) == bins_of("x") == []


def test_points_stand_where_their_figures_say():
    bins = bins_of(FIGURES["reliability"]["before"])
    svg = str(diagram(bins, "x"))
    points = [tuple(map(float, xy)) for xy in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', svg)]
    whiskers = [
        tuple(map(float, ys)) for ys in re.findall(r'strong" x1="[\d.]+" x2="[\d.]+" y1="([\d.]+)" y2="([\d.]+)"', svg)
    ]
    diagonal = re.search(r'class="mark" x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)"', svg)
    assert diagonal is not None
    x0, y0, x1, y1 = map(float, diagonal.groups())
    assert (x0, x1) == (LEFT, WIDTH - RIGHT)
    for b, (x, y), (low, high) in zip(bins, points, whiskers, strict=True):
        assert x == pytest.approx(x0 + (b.p - 0.5) / 0.5 * (x1 - x0), abs=0.1)
        for at, value in ((y, b.won), (low, b.low), (high, b.high)):
            assert at == pytest.approx(y0 + (value - 0.5) / 0.5 * (y1 - y0), abs=0.1)


def test_both_diagrams_have_one_axis_and_the_picture_stands_by_itself():
    sides = [bins_of(FIGURES["reliability"][side]) for side in ("before", "after")]
    labels = [re.findall(r">(\d+ %)<", str(diagram(one, "x", other))) for one, other in (sides, sides[::-1])]
    assert labels[0] == labels[1]
    svg = picture(FIGURES)
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in svg
    assert "after calibration (temperature), ECE 0." in svg
    assert ElementTree.fromstring(picture({})) is not None
