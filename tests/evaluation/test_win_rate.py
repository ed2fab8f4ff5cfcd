"""Sampling, scoring and resuming an evaluation, on the tiny world's model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trimtab.config.schema import EvalConfig
from trimtab.data.records import Message, Prompt
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.evaluation import compare_samples, held_out, win_rate
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec
from trimtab.worlds.model import build_model, build_tokenizer
from trimtab.worlds.tiny import WORDS

torch.set_num_threads(1)

CONFIG = EvalConfig(responses_per_prompt=2, max_new_tokens=6, bootstrap=50)


class Words:
    """Counts the words of a response."""

    name = "words"

    def __init__(self):
        self.asked = []

    def score(self, prompts, responses):
        self.asked += [(p.id, r.text) for p, r in zip(prompts, responses, strict=True)]
        return np.array([len(r.text.split()) for r in responses], dtype=np.float64)


class Constant(Words):
    name = "constant"

    def score(self, prompts, responses):
        return np.full(len(responses), 2.5)


@pytest.fixture(scope="module")
def models():
    return [CausalModel(build_model(seed)) for seed in (0, 1)]


@pytest.fixture(scope="module")
def codec():
    return TextCodec(build_tokenizer())


def make_prompts(n=5):
    words = list(WORDS)
    return [Prompt(f"p{i}", (Message("user", " ".join(words[i : i + 2 + i % 3])),)) for i in range(n)]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(held_out, "BATCH_ROWS", 3)


def run(models, codec, measures=None, prompts=None, config=CONFIG, **more):
    return win_rate(*models, codec, prompts or make_prompts(), measures or [Words()], config, **({"seed": 4} | more))


def test_every_response_is_sampled_scored_and_handed_out_once(models, codec):
    rows, seen, scorer = [], [], Words()
    result = run(models, codec, [scorer], save=rows.extend, progress=lambda done, total: seen.append((done, total)))
    keys = [(r["prompt_id"], r["side"], r["index"]) for r in rows]
    assert sorted(keys) == sorted((p.id, s, k) for p in make_prompts() for s in ("policy", "reference") for k in (0, 1))
    assert (result.prompts, result.pairs, seen[-1]) == (5, 20, (20, 20))
    assert all(r["scores"] == {"words": len(r["response"].split())} for r in rows)
    assert all(1 <= r["tokens"] <= 6 and r["tokens"] - r["finished"] >= r["scores"]["words"] for r in rows)
    assert len(scorer.asked) == 20


def test_the_result_is_what_the_saved_rows_give(models, codec):
    rows = []
    result = run(models, codec, save=rows.extend)
    ordered = sorted(rows, key=lambda r: r["prompt_id"])
    assert compare_samples(ordered, ["words"], resamples=50, seed=4) == result


@pytest.mark.parametrize("kept", [0, 1, 4, 11, 19, 20])
def test_taken_up_anywhere_it_gives_the_same_rows_and_result(models, codec, kept):
    rows = []
    result = run(models, codec, save=rows.extend)
    new, scorer = [], Words()
    again = run(models, codec, [scorer], resume=rows[:kept], save=new.extend)
    assert again == result
    assert len(new) == len(scorer.asked) == 20 - kept

    def by_key(given):
        return {(r["prompt_id"], r["side"], r["index"]): r for r in given}

    assert by_key(rows[:kept] + new) == by_key(rows)


def test_a_measure_added_later_scores_the_saved_responses_and_samples_nothing(models, codec, monkeypatch):
    rows = []
    first = run(models, codec, save=rows.extend)
    monkeypatch.setattr(held_out, "generate", None)
    new = []
    result = run(models, codec, [Constant(), Words()], resume=rows, save=new.extend)
    assert [m.name for m in result.measures] == ["constant", "words"]
    assert result.measures[1] == first.measures[0]
    assert (result.win_rate.value, result.measures[0].ties) == (0.5, 1.0)
    assert all(set(r["scores"]) == {"words", "constant"} for r in new)
    assert len(new) == 20


def test_the_sides_have_streams_of_their_own(models, codec):
    rows = []
    run([models[0], models[0]], codec, save=rows.extend)
    policy, reference = ([r["response"] for r in rows if r["side"] == side] for side in ("policy", "reference"))
    assert policy != reference


def test_batches_have_streams_of_their_own(models, codec):
    rows = []
    same = [Prompt(f"p{i}", make_prompts(1)[0].messages) for i in range(6)]
    run(models, codec, prompts=same, config=CONFIG.model_copy(update={"responses_per_prompt": 1}), save=rows.extend)
    texts = [r["response"] for r in rows if r["side"] == "policy"]
    assert texts[:3] != texts[3:]


def test_the_seed_decides_the_responses(models, codec):
    def texts(seed):
        rows = []
        run(models, codec, save=rows.extend, seed=seed)
        return [r["response"] for r in rows]

    assert texts(1) == texts(1)
    assert texts(1) != texts(2)


def test_a_batch_holds_prompts_of_about_equal_length(models, codec):
    plan = held_out._plan(make_prompts(7), codec, CONFIG, models)
    lengths = [[len(task.ids) for task in batch] for batch in plan]
    assert [n for batch in lengths for n in batch] == sorted(n for batch in lengths for n in batch)
    assert [len(batch) for batch in lengths] == [3, 3, 3, 3, 2]


class Recorder:
    def __init__(self):
        self.entered = 0

    def autocast(self):
        self.entered += 1
        return torch.autocast("cpu", dtype=torch.bfloat16)


def test_models_compute_in_the_given_precision(models, codec):
    precision = Recorder()
    run(models, codec, precision=precision)
    assert precision.entered == 8  # four batches of each side


class NotANumber(Words):
    name = "broken"

    def score(self, prompts, responses):
        return np.full(len(responses), np.nan)


def long_prompt():
    return Prompt("long", (Message("user", " ".join(list(WORDS) * 8)),))


@pytest.mark.parametrize(
    ("measures", "prompts", "kind", "names"),
    [
        ([NotANumber()], None, ErrorKind.REWARD, "broken"),
        ([Words(), Words()], None, ErrorKind.CONFIG, "words"),
        ([Words()], [*make_prompts(2), long_prompt()], ErrorKind.DATA, "'long'"),
        ([Words()], [*make_prompts(2), make_prompts(1)[0]], ErrorKind.DATA, "same id"),
    ],
)
def test_what_cannot_be_evaluated_is_named(models, codec, measures, prompts, kind, names):
    with pytest.raises(TrimtabError, match=names) as caught:
        run(models, codec, measures, prompts)
    assert caught.value.kind is kind


def test_no_measure_and_no_prompt_are_refused_before_anything_is_sampled(models, codec, monkeypatch):
    monkeypatch.setattr(held_out, "generate", None)
    with pytest.raises(TrimtabError, match=r"eval\.measures"):
        win_rate(*models, codec, make_prompts(), [], CONFIG, seed=0)
    with pytest.raises(TrimtabError, match=r"prompts\.held_out"):
        win_rate(*models, codec, [], [Words()], CONFIG, seed=0)


def test_rows_of_other_prompts_are_refused(models, codec):
    rows = []
    run(models, codec, save=rows.extend)
    for change in ({"prompt": "something else"}, {"prompt_id": "p99"}, {"index": 2}):
        with pytest.raises(TrimtabError, match="nobody asked for") as caught:
            run(models, codec, resume=[{**rows[0], **change}])
        assert caught.value.kind is ErrorKind.RUN
