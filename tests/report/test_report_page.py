"""The page of whole, partial, half-written and hostile runs."""

from __future__ import annotations

import html
import html.parser
import json
import re
import subprocess
import sys

import pytest

import trimtab.report
from made_up_runs import PROMPTS, add_eval, add_ppo, add_preference, build, eval_rows, new_run
from trimtab.report.page import render
from trimtab.runs.files import write_json
from trimtab.runs.run import Run


class Page(html.parser.HTMLParser):
    """Elements, their attributes and the visible text; notes elements that are not closed in order."""

    VOID = frozenset({"meta", "br", "link", "img", "input", "hr"})

    def __init__(self, source):
        super().__init__()
        self.elements, self.open, self.broken, self.parts, self.cells = [], [], [], [], []
        self.feed(source)
        self.text = re.sub(r"\s+", " ", "".join(self.parts))

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag == "td":
            self.cells[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.broken.append(tag)

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.parts.append(data)
        if "td" in self.open:
            self.cells[-1][-1] += data


def page(run):
    made = Page(render(run))
    assert made.broken == []
    assert made.open == []
    return made


def test_a_whole_run(tmp_path):
    run = build(tmp_path)
    path = trimtab.report.write(run)
    assert path == run.path / "report.html"
    source = path.read_text(encoding="utf-8")
    made = Page(source)
    assert made.broken == []
    assert "On 240 held-out prompts the trained policy scores higher than the reference on sentiment:vader" in made.text
    assert "Orders 84 % [77, 90] of 118 held-out pairs as labeled." in made.text
    assert "Choose the response that is warmer" in made.text
    assert "40 of 40" in made.text
    assert [c for c in made.cells if "ppo.beta" in c] == [["ppo.beta", "0.02", "0.05"]]
    assert len(source) < 200_000


def test_every_curve_has_title_unit_last_value_band_and_label(tmp_path):
    made = page(build(tmp_path))
    charts = [attrs for tag, attrs in made.elements if tag == "svg"]
    assert all(attrs["role"] == "img" and attrs["aria-label"] for attrs in charts)
    labels = " / ".join(attrs["aria-label"] for attrs in charts)
    for title in (
        "Score",
        "Held out: sentiment:vader",
        "KL",
        "Response length",
        "Entropy",
        "Clip",
        "Explained",
        "Gradient",
    ):
        assert title in labels
    assert "Outside the healthy band: −1 to 10" in made.text
    assert "1 value not finite" in made.text
    assert "nats/sequence" in made.text


def test_nothing_is_loaded_and_nothing_runs(tmp_path):
    made = page(build(tmp_path))
    assert not {"script", "iframe", "object", "embed", "link", "img", "base", "form"} & {
        tag for tag, _ in made.elements
    }
    for tag, attrs in made.elements:
        assert not {"src", "href", "srcset"} & set(attrs), tag
        assert not [name for name in attrs if name.startswith("on")]
    policy = next(a["content"] for t, a in made.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_samples_stand_side_by_side(tmp_path):
    made = page(build(tmp_path))
    assert made.text.count("Iteration 0") == made.text.count("Iteration 40") == len(PROMPTS)
    assert "cut off before its end" in made.text
    assert "The first 6 of 6 prompts in file order, not selected" in made.text


def test_without_probes_the_evaluation_supplies_the_samples(tmp_path):
    run = new_run(tmp_path)
    add_eval(run)
    made = page(run)
    assert "Trained policy" in made.text
    assert "The first 8 of 240 prompts" in made.text


def test_a_run_with_nothing(tmp_path):
    made = page(new_run(tmp_path))
    assert "No policy has been trained in this run yet" in made.text
    assert made.text.count("missing") >= 6
    assert "Nothing has been run yet" in made.text


def test_a_run_with_only_ppo(tmp_path):
    run = new_run(tmp_path)
    add_ppo(run)
    made = page(run)
    assert "trained for 40 iterations, but not compared with its reference" in made.text
    assert made.text.count("missing") >= 5


def test_a_run_under_way_and_one_that_was_killed(tmp_path):
    run = new_run(tmp_path)
    add_ppo(run, 12, status=None)
    assert "Stage ppo is under way" in page(run).text
    run.close()
    killed = page(Run.open(run.path))
    assert "Stage ppo was interrupted" in killed.text
    assert "12 of 40" in killed.text


def test_the_report_stage_itself_does_not_make_the_run_look_unfinished(tmp_path):
    run = build(tmp_path)
    run.begin_stage("report", "r" * 64)
    assert "is under way" not in page(run).text


def test_a_failed_stage_is_named(tmp_path):
    run = build(tmp_path)
    run.begin_stage("label", "new")
    run.end_stage("label", "failed")
    assert "Stage label failed" in page(run).text


def test_a_half_written_run(tmp_path):
    run = build(tmp_path)
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('garbage\n{"stage": "ppo", "step": 41, "score/me')
    run.artifact("pm/result.json").write_text('{"accuracy": [0.8')
    run.artifact("eval/result.json").write_text("[]")
    made = page(Run.open(run.path))
    assert re.search(r"metrics\.jsonl: 1 line could not be read \(line \d+\)", made.text)
    assert "artifacts/pm/result.json is not valid JSON" in made.text
    assert "artifacts/eval/result.json holds no JSON object" in made.text
    assert "40 of 40" in made.text


@pytest.mark.parametrize("value", [None, True, "x", [], [[]], {}, {"value": "x"}, -1e400, 10**400, [None, 1, 2, 3]])
def test_results_of_any_shape_are_survived(tmp_path, value):
    run = build(tmp_path)
    for stage in ("sft", "sample", "label", "pm", "ppo", "eval"):
        path = run.artifact(f"{stage}/result.json")
        content = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(dict.fromkeys(content, value)))
    page(Run.open(run.path))
    trimtab.report.summary(run)


HOSTILE = [
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "</style></title></p>{{ 7 * 7 }}{% raw %}",
    "evil\u202etxt.exe\u2066 \x1b[2J\x00\x07 bell \ud800 alone \U000e0041",
    "a" + "\u0301" * 5000,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_anywhere_stays_text(tmp_path, text):
    run = build(tmp_path)
    record = {"prompt_id": text, "prompt": text, "response": text, "measures": {text: 1.0}, "score": 0.5}
    run.write_samples({"stage": "ppo", "step": step, **record} for step in (0, 40))
    for stage in ("sft", "sample", "label", "pm", "eval"):
        path = run.artifact(f"{stage}/result.json")
        result = _replace_texts(json.loads(path.read_text()), text)
        write_json(path, result)
    run.manifest["config"]["ppo"]["reward"] = {text: 1.0}
    run.manifest["versions"][text] = text
    run.manifest["hashes"][text] = text
    source = render(run)
    made = Page(source)
    assert made.broken == []
    assert not {"script", "img"} & {tag for tag, _ in made.elements}
    assert not [name for _, attrs in made.elements for name in attrs if name.startswith("on")]
    source.encode("utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", source)
    if "{{" in text:
        assert "{{ 7 * 7 }}{% raw %}" in made.text


def _replace_texts(value, text):
    if isinstance(value, str):
        return text
    if isinstance(value, list):
        return [_replace_texts(v, text) for v in value]
    if isinstance(value, dict):
        return {k: _replace_texts(v, text) for k, v in value.items()}
    return value


def test_hidden_characters_are_shown_as_escapes(tmp_path):
    run = build(tmp_path)
    response = HOSTILE[2]
    run.write_samples([{"stage": "ppo", "step": 40, "prompt_id": "h0", "prompt": PROMPTS[0], "response": response}])
    text = page(run).text
    for escape in (r"\u202e", r"\u2066", r"\x1b", r"\x00", r"\x07", r"\ud800", r"\U000e0041"):
        assert escape in text


def test_a_megabyte_is_cut_with_a_note(tmp_path):
    run = build(tmp_path)
    run.write_samples([{"stage": "ppo", "step": 40, "prompt_id": "h0", "prompt": "p", "response": "word " * 250_000}])
    source = render(run)
    assert len(source) < 200_000
    assert "the response has 1,250,000 characters" in html.unescape(source)


def test_a_long_run_stays_small(tmp_path):
    run = new_run(tmp_path, iterations=3000)
    run.begin_stage("ppo", "f")
    lines = [
        json.dumps({"stage": "ppo", "step": i, "attempt": 1, "time": 0, "score/mean": i % 7, "score/std": 1.0})
        for i in range(3000)
    ]
    (run.path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert len(render(Run.open(run.path))) < 120_000


def test_the_page_is_the_same_for_the_same_run(tmp_path):
    run = build(tmp_path)

    def without_date(source):
        return re.sub(r"page of [^<]*", "", source)

    assert without_date(render(run)) == without_date(render(Run.open(run.path)))


def test_the_constitution_of_the_project_is_shown_where_the_run_has_none(tmp_path):
    run = new_run(tmp_path)
    add_preference(run)
    path = run.artifact("label/result.json")
    result = json.loads(path.read_text())
    del result["principles"]
    write_json(path, result)
    assert "its text is not in the run directory" in page(run).text
    (tmp_path / "constitution.toml").write_text('[[principles]]\nid = "calm"\ntext = "Choose the calmer response."\n')
    made = page(run)
    assert "Choose the calmer response." in made.text
    assert "as constitution.toml stands now" in made.text


def test_summary_says_what_the_page_says_and_where_it_is(tmp_path):
    run = build(tmp_path)
    trimtab.report.write(run)
    lines = trimtab.report.summary(run).splitlines()
    assert lines[0].startswith("Better: On 240 held-out prompts")
    assert lines[-1] == f"Report: {run.path / 'report.html'}"
    assert any(line.startswith("Preference model: 84 % [77, 90]") for line in lines)


def test_summary_is_safe_for_a_terminal(tmp_path):
    run = new_run(tmp_path)
    rows = [{**r, "scores": {"\x1b[31mred": 1.0}} for r in eval_rows(4)]
    add_eval(run, rows)
    assert "\x1b" not in trimtab.report.summary(run)
    assert r"\x1b[31mred" in trimtab.report.summary(run)


def test_the_report_needs_no_torch(tmp_path):
    run = build(tmp_path)
    code = f"""
import sys, trimtab.report
from trimtab.runs.run import Run
trimtab.report.write(Run.open({str(run.path)!r}))
print("torch" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
