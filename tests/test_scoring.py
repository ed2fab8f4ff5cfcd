"""Scorers: functions of the user, rules, mixtures, and what is no score."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trimtab.data.records import Message, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.scoring import RULES, FunctionScorer, MixtureScorer, RuleScorer, Scorer, build_scorer, checked_scores

PROMPTS = [Prompt("a", (Message("user", "Hello"),)), Prompt("b", (Message("user", "Bye"),))]
RESPONSES = [Response("please wait a moment"), Response("", finished=False)]


class Fixed:
    def __init__(self, values: object, name: str = "fixed") -> None:
        self.name = name
        self.values = values
        self.calls = 0

    def score(self, prompts, responses):
        self.calls += 1
        return self.values


@pytest.fixture
def project(tmp_path):
    def write(code: str, name: str = "rewards.py") -> Path:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(code))
        return tmp_path

    before, path = set(sys.modules), list(sys.path)
    yield write
    assert sys.path == path
    for name in set(sys.modules) - before:
        del sys.modules[name]


# what is a score


@pytest.mark.parametrize(
    "values", [[1, 2.5], (1, 2.5), np.array([1, 2.5], np.float32), iter([1, 2.5]), [np.float64(1), np.array(2.5)]]
)
def test_sequences_of_numbers_become_float64(values):
    scores = checked_scores(Fixed(values), PROMPTS, RESPONSES)
    assert scores.dtype == np.float64
    assert scores.tolist() == [1.0, 2.5]


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor([0.5, 2.0], requires_grad=True),
        torch.tensor([0.5, 2.0], dtype=torch.bfloat16),
        [torch.tensor(0.5, requires_grad=True), 2],
    ],
)
def test_tensors_of_the_right_shape_are_scores(values):
    assert checked_scores(Fixed(values), PROMPTS, RESPONSES).tolist() == [0.5, 2.0]


def test_whole_numbers_beyond_64_bits_are_scores_as_far_as_a_float_goes():
    assert checked_scores(Fixed([1, 10**30]), PROMPTS, RESPONSES).tolist() == [1.0, 1e30]


def test_booleans_count_as_zero_and_one_and_nothing_gives_nothing():
    assert checked_scores(Fixed([True, False]), PROMPTS, RESPONSES).tolist() == [1.0, 0.0]
    assert checked_scores(Fixed([]), [], []).shape == (0,)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ([1.0], r"shape \(1,\) for 2 responses"),
        ([[1.0], [2.0]], r"shape \(2, 1\) for 2 responses"),
        (1.0, "returned a float, not 2 numbers"),
        (None, "returned a NoneType, not 2 numbers"),
        ([1.0, None], "score of response 1 is None, not a number"),
        ([1.0, "2"], "score of response 1 is '2', not a number"),
        ([1.0, 2j], "score of response 1 is 2j, not a number"),
        ([1.0, 10**400], r"score of response 1 is a number of about 401 digits, too large for a float"),
        ([10**5000, 1], r"score of response 0 is a number of about 5001 digits"),
        ([1.0, "x" * 10**6], r"score of response 1 is 'x+\.\.\.x+', not a number"),
        ([np.float32(1), None], "score of response 1 is None"),
        ({0: 1.0, 1: 2.0}, "returned a dict, not 2 numbers"),
        ({1.0, 2.0}, "returned a set, not 2 numbers"),
        ("12", "returned a str, not 2 numbers"),
        (torch.ones(()), "returned a Tensor, not 2 numbers"),
        (torch.ones(2, 1), r"shape \(2, 1\) for 2 responses"),
        ([1.0, float("nan")], r"score of response 1 is nan \(1 of 2 are not finite\)"),
        ([float("inf"), float("nan")], r"score of response 0 is inf \(2 of 2"),
    ],
)
def test_what_is_no_score_names_the_scorer_and_the_response(values, what):
    with pytest.raises(TrimtabError, match=f"scorer fixed: .*{what}") as caught:
        checked_scores(Fixed(values), PROMPTS, RESPONSES)
    assert caught.value.kind == ErrorKind.REWARD


def test_prompts_and_responses_must_match():
    with pytest.raises(ValueError, match="2 prompts for 1 responses"):
        checked_scores(Fixed([1.0]), PROMPTS, RESPONSES[:1])


# functions of the user


def test_a_function_of_the_project_gets_lists_of_texts(project):
    directory = project("""
        import helper
        def reward(prompts, responses):
            assert isinstance(prompts, list) and isinstance(responses, list)
            return [helper.weight * len(r) + len(p) for p, r in zip(prompts, responses)]
    """)
    project("weight = 2", "helper.py")
    scorer = build_scorer("rewards:reward", {}, directory)
    assert isinstance(scorer, Scorer)
    assert scorer.name == "rewards:reward"
    assert checked_scores(scorer, PROMPTS, RESPONSES).tolist() == [45.0, 3.0]


def test_two_projects_with_a_module_of_one_name_keep_their_own(project, tmp_path):
    one = project("def f(p, r): return [1.0] * len(r)", "one/mine.py").joinpath("one")
    two = project("def f(p, r): return [2.0] * len(r)", "two/mine.py").joinpath("two")
    scorers = [build_scorer("mine:f", {}, d) for d in (one, two, one)]
    assert [s.score(PROMPTS, RESPONSES)[0] for s in scorers] == [1.0, 2.0, 1.0]
    with pytest.raises(TrimtabError, match="there is no module 'mine'"):
        build_scorer("mine:f", {}, tmp_path)


def test_modules_in_packages_and_installed_ones_work(project):
    directory = project("def f(p, r): return [3.0] * len(r)", "pack/inner.py")
    assert build_scorer("pack.inner:f", {}, directory).score(PROMPTS, RESPONSES).tolist() == [3.0, 3.0]
    assert FunctionScorer.load("operator:concat").name == "operator:concat"


def test_only_functions_of_trimtab_have_a_short_name(project):
    directory = project("def f(p, r): return [1.0] * len(r)\nf.label = 'score'")
    assert build_scorer("rewards:f", {}, directory).name == "rewards:f"  # eval/score is another signal
    assert build_scorer("trimtab.evaluation.relevance:relevance", {}, directory).name == "relevance"


@pytest.mark.parametrize(
    ("spec", "code", "what"),
    [
        ("nothing_here:f", "", "there is no module 'nothing_here' in .* or among the installed"),
        ("rewards:f", "import not_there_at_all", "there is no module 'not_there_at_all'"),
        ("rewards:rewrad", "def reward(p, r): ...", "has no function 'rewrad'.*\n.*Did you mean rewards:reward"),
        ("rewards:x", "x = 3", "has no function 'x'"),
        ("rewards:f", "def f(p): ...", r"f\(p\) cannot be called with two arguments"),
        ("rewards:f", "def f(:", r"importing rewards failed: SyntaxError: .*rewards\.py, line 1"),
        ("rewards:f", "\n1 / 0", r"importing rewards failed: ZeroDivisionError: .*rewards\.py, line 2"),
        ("rewards:f", "import sys\nsys.exit(0)", r"importing rewards failed: SystemExit: 0 \(.*rewards\.py, line 2"),
        ("rewards:", "", "is not of the form module:function"),
        ("a/b:f", "", "is not of the form module:function"),
    ],
)
def test_functions_that_cannot_be_loaded_are_refused_by_name(project, spec, code, what):
    with pytest.raises(TrimtabError, match=f"(?s)scorer .*{what}") as caught:
        build_scorer(spec, {}, project(code))
    assert caught.value.kind == ErrorKind.CONFIG
    assert spec in str(caught.value)


def test_a_project_file_may_not_shadow_a_standard_module(project):
    with pytest.raises(TrimtabError, match="has the name of another module"):
        build_scorer("random:f", {}, project("def f(p, r): ...", "random.py"))


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("raise KeyError('x')", r"scorer rewards:f: KeyError: 'x' \(.*rewards\.py, line 3\)"),
        ("import sys; sys.exit(0)", r"scorer rewards:f: SystemExit: 0 \(.*rewards\.py, line 3\)"),
        ("return (1 / 0 for _ in r)", r"scorer rewards:f: ZeroDivisionError: .* \(.*rewards\.py, line 3\)"),
        ("return r", "scorer rewards:f: the score of response 0 is 'please wait a moment', not a number"),
        ("return [1.0]", r"scorer rewards:f: .*shape \(1,\) for 2 responses"),
        ("return", "scorer rewards:f: returned a NoneType"),
    ],
)
def test_a_function_that_fails_is_named_with_file_and_line(project, body, what):
    scorer = build_scorer("rewards:f", {}, project(f"\ndef f(p, r):\n    {body}\n"))
    with pytest.raises(TrimtabError, match=what) as caught:
        checked_scores(scorer, PROMPTS, RESPONSES)
    assert caught.value.kind == ErrorKind.REWARD


def test_what_a_function_prints_goes_to_stderr(project, capsys):
    code = "print('at import')\ndef f(p, r):\n    print('at call')\n    return (print('later') or 1.0 for _ in r)\n"
    build_scorer("rewards:f", {}, project(code)).score(PROMPTS, RESPONSES)
    assert tuple(capsys.readouterr()) == ("", "at import\nat call\nlater\nlater\n")


def test_an_error_that_says_what_helps_keeps_saying_it():
    def reward(prompts, responses):
        raise TrimtabError(ErrorKind.MISSING, "no encoder", "get one")

    with pytest.raises(TrimtabError, match="scorer mine: no encoder") as caught:
        FunctionScorer("mine", reward).score(PROMPTS, RESPONSES)
    assert (caught.value.kind, caught.value.hint) == (ErrorKind.MISSING, "get one")


# rules


def test_rules_by_hand():
    responses = [Response("please wait, please"), Response("", finished=False), Response("a b c a b c")]
    prompts = [PROMPTS[0]] * 3
    assert RuleScorer("rule:length").score(prompts, responses).tolist() == [3.0, 0.0, 6.0]
    assert RuleScorer("rule:finished").score(prompts, responses).tolist() == [1.0, 0.0, 1.0]
    assert RuleScorer("rule:repetition").score(prompts, responses).tolist() == [0.0, 0.0, 0.25]
    assert RuleScorer("rule:words=please, wait a").score(prompts, responses).tolist() == pytest.approx(
        [2 / 3, 0.0, 0.0]
    )


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("rule:lenght", "no such rule.*\n.*Did you mean 'length'"),
        ("rule:", "no such rule"),
        ("rule:words", "needs an argument"),
        ("rule:words=", "names no words"),
        ("rule:length=3", "takes no argument"),
    ],
)
def test_rules_that_are_none(spec, what):
    with pytest.raises(TrimtabError, match=f"(?s)scorer {re.escape(spec)[:8]}.*{what}"):
        build_scorer(spec, {})


def test_every_rule_is_documented_and_can_be_built():
    for rule, (_, takes, meaning) in RULES.items():
        assert meaning
        assert build_scorer(f"rule:{rule}" + "=x" * takes, {}).name.startswith(f"rule:{rule}")


# mixtures and names


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-10, 10)), min_size=1, max_size=4))
def test_a_mixture_is_the_weighted_sum_of_its_parts(parts):
    scorers = [(Fixed([x, -x], f"s{i}"), w) for i, (x, w) in enumerate(parts)]
    mixture = MixtureScorer(scorers)
    expected = sum(w * x for x, w in parts)
    assert checked_scores(mixture, PROMPTS, RESPONSES) == pytest.approx([expected, -expected])
    assert {k: v.tolist() for k, v in mixture.parts(PROMPTS, RESPONSES).items()} == {
        f"s{i}": [x, -x] for i, (x, _) in enumerate(parts)
    }


def test_parts_of_the_batch_just_scored_are_not_computed_again():
    fixed = Fixed([1.0, 2.0])
    mixture = MixtureScorer([(fixed, 2.0)])
    mixture.score(PROMPTS, RESPONSES)
    mixture.parts(list(PROMPTS), list(RESPONSES))
    assert fixed.calls == 1
    mixture.score(PROMPTS, RESPONSES[::-1])
    assert fixed.calls == 2


def test_a_part_that_is_no_score_is_named():
    mixture = MixtureScorer([(Fixed([1.0, 1.0]), 1.0), (Fixed([0.0, float("nan")], "bad"), 0.0)])
    with pytest.raises(TrimtabError, match="scorer bad: the score of response 1 is nan"):
        mixture.score(PROMPTS, RESPONSES)


def test_scorers_are_built_by_name():
    fixed = Fixed([1.0, 2.0], "preference")
    assert build_scorer("preference", {"preference": fixed}) is fixed
    mixture = build_scorer({"preference": 1.0, "rule:length": -0.5}, {"preference": fixed})
    assert mixture.score(PROMPTS, RESPONSES).tolist() == [-1.0, 2.0]
    with pytest.raises(
        TrimtabError, match=r"(?s)'preferense'.*Did you mean 'preference'.*There are preference, rule:length"
    ):
        build_scorer("preferense", {"preference": fixed})
    with pytest.raises(TrimtabError, match="its weight is nan, not finite"):
        build_scorer({"preference": float("nan")}, {"preference": fixed})
