"""Preference models on other backbones: they learn, are saved, and plain transformers scores the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import pipeline

from backbones import CAUSAL, ENCODERS, saved
from preference_training import CONFIG, die_at, polite_pairs, same_weights, started
from trimtab import preference
from trimtab.data.records import Message, Pair, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.encoder import EncoderScalar
from trimtab.models.starts import load_backbone
from trimtab.preference.ensemble import load_preference
from trimtab.preference.rows import readable
from trimtab.training.precision import Precision

SHORT = CONFIG.model_copy(update={"epochs": 1, "max_tokens": 60})
FLOAT32 = Precision("float32")


def lines(pairs: list[Pair]) -> list[Pair]:
    """The same pairs with a line break behind each prompt, so that no token reaches into the response."""
    return [
        Pair(p.id, Prompt(p.prompt.id, (Message("user", p.prompt.text + "\n"),)), p.chosen, p.rejected) for p in pairs
    ]


def texts(pairs: list[Pair]) -> tuple[list[Prompt], list[Response]]:
    return [p.prompt for p in pairs], [p.chosen for p in pairs]


@pytest.mark.parametrize("kind", ENCODERS)
def test_an_encoder_learns_what_the_labels_say(tmp_path, kind):
    start, codec = load_backbone(str(saved(tmp_path, kind)))
    before = {name: weight.clone() for name, weight in start.own_state().items()}
    model = preference.train(CONFIG, start, codec, polite_pairs(120), seed=1)
    assert isinstance(model.model, EncoderScalar)
    metrics = preference.evaluate(model, polite_pairs(60, seed=9))
    assert metrics.accuracy.mean > 0.9
    assert all(torch.equal(weight, before[name]) for name, weight in start.own_state().items())


def test_from_a_head_of_zeros_every_pair_starts_at_one_half(tmp_path):
    start, codec = load_backbone(str(saved(tmp_path, "roberta")))
    still = SHORT.model_copy(update={"learning_rate": 1e-30})
    scores = preference.train(still, start, codec, polite_pairs(8)).score(*texts(polite_pairs(5)))
    assert np.abs(scores).max() < 1e-20


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("kind", [*ENCODERS, *CAUSAL])
def test_a_pipeline_of_plain_transformers_gives_the_same_score(tmp_path, kind, chat):
    start, codec = load_backbone(str(saved(tmp_path, kind, chat=chat)))
    pairs = lines(polite_pairs(24))
    model = preference.train(SHORT, start, codec, pairs)
    model.save(tmp_path / "pm", backbone=kind)
    loaded = load_preference(tmp_path / "pm", FLOAT32)
    prompts, responses = texts(pairs)
    expected = loaded.score(prompts, responses)
    classify = pipeline("text-classification", str(tmp_path / "pm"), device="cpu")
    extra = {} if kind in ENCODERS else {"add_special_tokens": False}
    given = [loaded.codec.pair_text(p, r) for p, r in zip(prompts, responses, strict=True)]
    found = [classify([one], function_to_apply="none", **extra)[0]["score"] for one in given]
    together = [row["score"] for row in classify(given, function_to_apply="none", batch_size=8, **extra)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(together, expected, rtol=0, atol=1e-5)
    assert np.std(expected) > 1e-4


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("kind", CAUSAL)
def test_the_text_for_a_pipeline_is_read_as_the_same_tokens(tmp_path, kind, chat):
    _, codec = load_backbone(str(saved(tmp_path, kind, chat=chat)))
    prompt, response = lines(polite_pairs(1))[0].prompt, Response("please  thanks\n\n dear", finished=False)
    text = codec.pair_text(prompt, response)
    assert codec.tokenizer(text, add_special_tokens=False).input_ids == codec.pair_ids(prompt, response)
    assert text.startswith("<s>") == (kind == "llama" or chat)
    assert text.endswith("</s>")


def test_a_token_that_reaches_over_the_boundary_is_told(tmp_path):
    _, codec = load_backbone(str(saved(tmp_path, "gpt2")))
    with pytest.raises(TrimtabError, match="other tokens than read apart"):
        codec.pair_text(Prompt("p", (Message("user", "ple"),)), Response("ase"))


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_members_on_a_backbone_are_whole_models(tmp_path, kind):
    start, codec = load_backbone(str(saved(tmp_path, kind)))
    ensemble = preference.train(
        SHORT.model_copy(update={"members": 2, "bootstrap": True}), start, codec, polite_pairs(24), seed=3
    )
    assert isinstance(ensemble, preference.PreferenceEnsemble)
    assert not same_weights(*ensemble.models)
    ensemble.save(tmp_path / "pm", backbone=kind)
    loaded = load_preference(tmp_path / "pm", FLOAT32)
    prompts, responses = texts(polite_pairs(6))
    np.testing.assert_allclose(
        loaded.member_scores(prompts, responses), ensemble.member_scores(prompts, responses), atol=1e-6
    )


def test_an_encoder_that_was_stopped_goes_on_to_the_same_weights(tmp_path):
    start, codec = load_backbone(str(saved(tmp_path, "bert")))
    config = SHORT.model_copy(update={"checkpoint_every": 2, "dropout": 0.1, "head_dropout": 0.1, "epochs": 2})
    pairs = polite_pairs(40)
    whole = preference.train(config, start, codec, pairs, run=started(tmp_path, "whole"), seed=4)
    run = started(tmp_path, "stopped")
    die_at(run, 5, lambda: preference.train(config, start, codec, pairs, run=run, seed=4))
    assert same_weights(preference.train(config, start, codec, pairs, run=run, seed=4).model, whole.model)
    plain = preference.train(
        config.model_copy(update={"dropout": 0.0, "head_dropout": 0.0}), start, codec, pairs, seed=4
    )
    assert not same_weights(plain.model, whole.model)
    prompts, responses = texts(pairs)
    assert np.array_equal(whole.score(prompts, responses), whole.score(prompts, responses))


def test_a_classifier_of_one_label_goes_on_from_its_scores(tmp_path):
    start, codec = load_backbone(str(saved(tmp_path, "bert")))
    first = preference.train(CONFIG, start, codec, polite_pairs(80))
    first.save(tmp_path / "first")
    again, own = load_backbone(str(tmp_path / "first"))
    still = preference.train(SHORT.model_copy(update={"learning_rate": 1e-30}), again, own, polite_pairs(8))
    prompts, responses = texts(polite_pairs(6))
    np.testing.assert_allclose(still.score(prompts, responses), first.score(prompts, responses), atol=1e-6)


def test_a_chat_is_lines_of_roles_for_an_encoder(tmp_path):
    _, codec = load_backbone(str(saved(tmp_path, "bert")))
    talk = Prompt("t", (Message("system", "sun"), Message("user", "rain"), Message("user", "please")))
    assert codec.pair_text(talk, Response("dear")) == {
        "text": "system: sun\nuser: rain\nuser: please", "text_pair": "dear",
    }  # fmt: skip


# what is refused, for every kind


KINDS = ["bert", "roberta", "gpt2", "llama"]


def refused(tmp_path, kind: str, pairs: list[Pair], **changes) -> TrimtabError:
    start, codec = load_backbone(str(saved(tmp_path, kind)))
    with pytest.raises(TrimtabError) as caught:
        preference.train(SHORT.model_copy(update=changes), start, codec, pairs)
    assert caught.value.kind is ErrorKind.DATA
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
def test_labels_that_are_all_ties_teach_nothing(tmp_path, kind):
    pairs = [Pair(p.id, p.prompt, p.chosen, p.rejected, p_chosen=0.5) for p in polite_pairs(12)]
    message = refused(tmp_path, kind, pairs).message
    assert "none of 9 training pairs prefers one response to another: 9 are ties" in message


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_of_one_text_twice_teach_nothing(tmp_path, kind):
    pairs = [Pair(p.id, p.prompt, p.chosen, p.chosen) for p in polite_pairs(12)]
    assert "9 have the same tokens as chosen and as rejected" in refused(tmp_path, kind, pairs).message


@pytest.mark.parametrize("kind", KINDS)
def test_a_response_of_ten_thousand_tokens_is_named_with_what_helps(tmp_path, kind):
    pairs = polite_pairs(12)
    pairs[3] = Pair("endless", pairs[3].prompt, Response("please " * 10_000), pairs[3].rejected)
    error = refused(tmp_path, kind, pairs)
    assert "pair 'endless'" in error.message
    assert "reads 60 (1 of 12 pairs are too long" in error.message
    assert "preference.max_tokens" in error.hint
    assert 'preference.too_long = "drop"' in error.hint
    assert "a model that reads more" in refused(tmp_path, kind, pairs, max_tokens=4096).hint


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_pairs_that_are_too_long_can_be_left_out(tmp_path, kind):
    start, codec = load_backbone(str(saved(tmp_path, kind)))
    pairs = polite_pairs(12)
    pairs[3] = Pair("endless", pairs[3].prompt, Response("please " * 10_000), pairs[3].rejected)
    config = SHORT.model_copy(update={"too_long": "drop"})
    kept, rows = readable(config, start, codec, pairs)
    assert [p.id for p in kept] == [p.id for p in pairs if p.id != "endless"]
    assert len(rows) == 11
    others = [p for p in pairs if p.id != "endless"]
    assert same_weights(
        preference.train(config, start, codec, pairs).model, preference.train(config, start, codec, others).model
    )
    with pytest.raises(TrimtabError, match=r"1 of 1 pairs"):
        preference.train(config, start, codec, [pairs[3]])


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_response_has_a_score(tmp_path, kind):
    start, codec = load_backbone(str(saved(tmp_path, kind)))
    pairs = polite_pairs(12)
    pairs[0] = Pair("empty", pairs[0].prompt, pairs[0].chosen, Response(""))
    model = preference.train(SHORT, start, codec, pairs)
    assert np.isfinite(model.score([pairs[0].prompt], [Response("")])).all()


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_character_is_named(tmp_path, kind):
    pairs = polite_pairs(12)
    pairs[2] = Pair("half", pairs[2].prompt, Response("please \ud83d"), pairs[2].rejected)
    assert "half a character" in refused(tmp_path, kind, pairs).message
