"""The relevance measure, on a tiny encoder of random weights; and on the real one where it has been fetched."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, BertTokenizer

from made_up_runs import new_run
from trimtab.config.schema import Config
from trimtab.data.records import Message, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.evaluation import relevance as module
from trimtab.evaluation.relevance import relevance
from trimtab.models import embedded
from trimtab.pipeline import work
from trimtab.report.facts import read_facts
from trimtab.runs.files import write_json
from trimtab.scoring import build_scorer

NAME = "trimtab.evaluation.relevance:relevance"
WORDS = [f"w{i}" for i in range(40)]
SENTENCES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=50).map(" ".join)
ROUNDING = 0.5e-4 + 1e-6
REAL = embedded.target_dir(embedded.MINILM)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A BERT of two layers in a directory; attention that is far from even, so that padding would show."""
    directory = tmp_path_factory.mktemp("encoder")
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    BertTokenizer(vocab={name: i for i, name in enumerate(names)}).save_pretrained(directory)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(names), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=128, initializer_range=0.4, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3,
    )  # fmt: skip
    BertModel(config).save_pretrained(directory)
    return directory


@pytest.fixture
def fetched(encoder, monkeypatch):
    """What was asked of `embedded.fetch`, which gives the tiny encoder."""
    asked = []

    def fetch(name):
        asked.append(name)
        return encoder

    monkeypatch.setattr(embedded, "fetch", fetch)
    module._encoder.cache_clear()
    yield asked
    module._encoder.cache_clear()


def slow(directory, prompt, response):
    """The cosine of two texts, one at a time without padding, in float64."""
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModel.from_pretrained(directory, dtype=torch.float64).eval()

    def embedding(text):
        with torch.no_grad():
            return model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].numpy().mean(0)

    a, b = embedding(prompt), embedding(response)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def texts(n, low=1, high=30, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(low, high))) for _ in range(n)]


def test_it_is_the_cosine_of_mean_pooled_embeddings_in_the_order_given(fetched, encoder):
    prompts, responses = texts(7, seed=1), texts(7, seed=2)
    expected = [slow(encoder, p, r) for p, r in zip(prompts, responses, strict=True)]
    assert np.ptp(expected) > 0.2
    np.testing.assert_allclose(relevance(prompts, responses), expected, atol=ROUNDING, rtol=0)


def test_order_and_company_do_not_matter_over_several_batches(fetched):
    prompts, responses = texts(100, seed=3), texts(100, seed=4)
    together = relevance(prompts, responses)
    assert relevance(prompts[::-1], responses[::-1]) == together[::-1]
    alone = [relevance([p], [r])[0] for p, r in zip(prompts[:10], responses[:10], strict=True)]
    np.testing.assert_allclose(alone, together[:10], atol=1.01e-4, rtol=0)


def test_the_model_is_loaded_once_and_only_where_there_is_something_to_embed(fetched):
    assert relevance([], []) == []
    assert relevance(["w1"], [""]) == [0.0]
    assert fetched == []
    relevance(["w1"], ["w2"])
    relevance(["w3"], ["w4"])
    assert fetched == ["all-minilm-l6-v2"]


def test_an_empty_response_is_zero_and_leaves_the_others_in_place(fetched):
    full = relevance(["w1 w2", "w3"], ["w4", "w5 w6"])
    assert 0.0 not in full
    assert relevance(["w1 w2", "w9", "w3"], ["w4", " \n\t", "w5 w6"]) == [full[0], 0.0, full[1]]


def test_only_the_first_32_words_count(fetched):
    response = texts(1, 60, 61)[0].split()
    cut, changed = " ".join(response[:32]), " ".join([*response[:31], "w0" if response[31] != "w0" else "w1"])
    long, exact, other = relevance(["w1 w2"] * 3, ["\n ".join(response), cut, changed])
    assert long == exact
    assert other != exact


def test_a_prompt_longer_than_the_encoder_takes_is_cut(fetched):
    start = texts(1, 126, 127)[0]  # and the two tokens that mark its ends
    scores = relevance([start, f"{start} w1 w2 w3"], ["w4 w5"] * 2)
    assert scores[0] == scores[1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_somebody_elses_autocast_and_inference_mode_change_nothing(fetched, dtype):
    prompts, responses = texts(9, seed=5), texts(9, seed=6)
    with torch.autocast("cpu", dtype=dtype), torch.inference_mode():
        inside = relevance(prompts, responses)
    assert inside == relevance(prompts, responses)
    assert torch.is_grad_enabled()


def test_no_random_number_is_drawn(fetched):
    before = torch.random.get_rng_state()
    first = relevance(["w1 w2"], ["w3 w4"])
    assert torch.equal(torch.random.get_rng_state(), before)
    assert relevance(["w1 w2"], ["w3 w4"]) == first


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(prompt=SENTENCES, response=SENTENCES)
def test_an_echo_scores_one_and_nothing_scores_more(fetched, prompt, response):
    start = " ".join(prompt.split()[:32])
    echo, score = relevance([start, start], [prompt, response])
    assert echo == 1.0
    assert -1.0 <= score <= 1.0


def test_lists_of_unlike_length_are_refused(fetched):
    with pytest.raises(ValueError, match="shorter"):
        relevance(["w1", "w2"], ["w3"])


def test_as_a_scorer_it_has_a_short_name_and_says_where_to_get_the_encoder(tmp_path, monkeypatch):
    scorer = build_scorer(NAME, {}, tmp_path)
    assert scorer.name == "relevance"
    monkeypatch.setenv("TRIMTAB_CACHE", str(tmp_path))
    monkeypatch.setenv("TRIMTAB_MINILM_WHEEL", str(tmp_path / "missing.whl"))
    module._encoder.cache_clear()
    with pytest.raises(TrimtabError, match=r"scorer relevance: .*missing\.whl is not the wheel") as error:
        scorer.score([Prompt("a", (Message("user", "Hello"),))], [Response("Hi")])
    assert error.value.kind is ErrorKind.MODEL
    assert "TRIMTAB_MINILM_WHEEL" in error.value.hint


@pytest.mark.skipif(not REAL.is_dir(), reason=f"the encoder has not been fetched: {REAL} is not there")
def test_the_real_encoder_gives_its_published_similarities_and_prefers_an_answer_on_the_topic():
    module._encoder.cache_clear()
    lovely, sunny, stadium = "The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."
    # from the documentation of sentence-transformers, "Quickstart"
    published = [0.6660, 0.1046, 0.1411]
    np.testing.assert_allclose(relevance([lovely, lovely, sunny], [sunny, stadium, stadium]), published, atol=2e-4)
    question = "How do I keep my tomato plants healthy in a hot summer?"
    on, off = relevance(
        [question] * 2,
        ["Water them deeply in the morning and shade the leaves.", "The bank will call you back about your loan."],
    )
    assert on > off + 0.2
    module._encoder.cache_clear()


def test_trained_on_it_is_shown_as_such_though_its_name_is_not_its_spec(tmp_path, monkeypatch):
    figure = {"value": 0.6, "low": 0.5, "high": 0.7, "n": 9}
    names = ["rule:length", "relevance"]
    entries = [{"name": n, "policy": 1.0, "reference": 0.5, "difference": figure, "win_rate": figure} for n in names]
    result = SimpleNamespace(signals=dict, as_dict=lambda: {"measures": entries})
    monkeypatch.setattr(work, "win_rate", lambda *_, **__: result)
    monkeypatch.setattr(work, "wants_preference_model", lambda project: False)
    monkeypatch.setattr(work, "measures", lambda project: [build_scorer("rule:length", {})])
    monkeypatch.setattr(work, "reward", lambda project, preference: build_scorer(NAME, {}))
    run = new_run(tmp_path, reward=NAME)
    shop = SimpleNamespace(
        run=run, project=SimpleNamespace(config=Config(), held_out_prompts=[]), precision=None,
        reference=lambda: (None, None), policy=lambda onto: (None, None),
    )  # fmt: skip
    write_json(run.artifact("eval/result.json"), work.run_eval(shop))
    assert [(m.name, m.trained_on) for m in read_facts(run).measures] == [("rule:length", False), ("relevance", True)]
