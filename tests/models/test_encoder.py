"""Encoders as preference models: what goes in, what comes out, what is refused."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from backbones import CAUSAL, ENCODERS, build, saved
from trimtab.data.records import Message, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.encoder import EncoderScalar, PairCodec
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.models.starts import load_backbone, load_scorer
from trimtab.models.tokens import TextCodec, right_pad
from trimtab.worlds.tiny import NEUTRAL, POLITE

PROMPT = Prompt("p", (Message("user", " ".join(NEUTRAL[:3])),))
SAID = [Response(" ".join(POLITE[:2])), Response(POLITE[3]), Response("")]


def rows(codec) -> tuple[torch.Tensor, torch.Tensor]:
    return right_pad([codec.pair_ids(PROMPT, response) for response in SAID], codec.pad_id)


@pytest.mark.parametrize("kind", ENCODERS)
def test_an_encoder_scores_what_its_tokenizer_makes_of_a_pair(tmp_path, kind):
    directory = saved(tmp_path, kind)
    model, codec = load_backbone(str(directory))
    assert isinstance(model, EncoderScalar)
    assert isinstance(codec, PairCodec)
    model.draw_head(1.0, torch.Generator().manual_seed(1))
    tokenizer = AutoTokenizer.from_pretrained(directory)
    with torch.no_grad():
        read = [tokenizer(PROMPT.text, r.text, return_tensors="pt") for r in SAID]
        expected = torch.cat([model.hf(**one).logits[:, 0] for one in read])
    torch.testing.assert_close(model.score(*rows(codec)).detach(), expected, rtol=1e-6, atol=1e-6)
    assert len({round(float(x), 4) for x in expected}) == 3


def test_token_types_follow_the_tokenizer_and_not_separators_in_the_text(tmp_path):
    model, codec = load_backbone(str(saved(tmp_path, "bert")))
    hostile = Prompt("h", (Message("user", f"{NEUTRAL[0]} </s> {NEUTRAL[1]}"),))
    row = codec.pair_ids(hostile, SAID[1])
    size = codec.vocabulary_size
    assert [i // size for i in row] == [0, 0, 0, 0, 0, 1, 1]
    assert row[0] == 1
    alone = torch.tensor([row])
    types = torch.tensor([[i // size for i in row]])
    expected = model.hf(input_ids=alone % size, token_type_ids=types).logits[:, 0]
    torch.testing.assert_close(model.score(alone, torch.ones_like(alone, dtype=torch.bool)), expected)


@pytest.mark.parametrize(("kind", "context"), [("bert", 64), ("roberta", 63)])
def test_the_longest_pair_is_what_the_positions_hold(tmp_path, kind, context):
    model, _ = load_backbone(str(saved(tmp_path, kind)))
    assert model.context_length == context
    ids = torch.full((1, context), 5)
    assert model.score(ids, torch.ones_like(ids, dtype=torch.bool)).isfinite().all()
    with pytest.raises((IndexError, RuntimeError)):
        model.score(torch.full((1, context + 1), 5), torch.ones(1, context + 1, dtype=torch.bool))


def test_what_a_checkpoint_lacks_is_drawn_from_the_seed_and_the_body_is_the_checkpoints(tmp_path):
    directory = str(saved(tmp_path, "bert-mlm"))
    first, again, other = (load_backbone(directory, seed=seed)[0].own_state() for seed in (1, 1, 2))
    pooler = "bert.pooler.dense.weight"
    assert torch.equal(first[pooler], again[pooler])
    assert not torch.equal(first[pooler], other[pooler])
    body = load_file(f"{directory}/model.safetensors")
    name = "bert.encoder.layer.1.output.dense.weight"
    assert torch.equal(first[name], body[name])


def test_loading_leaves_the_global_random_state_alone(tmp_path):
    directory = str(saved(tmp_path, "roberta"))
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    load_backbone(directory)
    assert torch.equal(torch.rand(1), expected)


def test_a_fork_shares_nothing_and_a_saved_one_loads_the_same(tmp_path):
    model, codec = load_backbone(str(saved(tmp_path, "roberta")))
    fork = model.fork(trainable=True)
    assert all(p.requires_grad and p.dtype == torch.float32 for p in fork.parameters())
    assert not any(p.requires_grad for p in model.parameters())
    fork.draw_head(1.0, torch.Generator().manual_seed(1))
    assert not torch.equal(fork.linear.weight, model.linear.weight)
    fork.save_pretrained(tmp_path / "out", pad_id=codec.pad_id)
    codec.save(tmp_path / "out")
    loaded, own = load_scorer(tmp_path / "out")
    torch.testing.assert_close(loaded.score(*rows(own)), fork.score(*rows(codec)).detach(), rtol=0, atol=0)
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert plain.config.num_labels == 1


def test_a_classifier_of_many_labels_gets_a_new_head(tmp_path):
    directory = tmp_path / "five"
    saved(tmp_path, "bert")
    hf = AutoModelForSequenceClassification.from_pretrained(tmp_path / "bert", num_labels=5)
    hf.save_pretrained(directory)
    AutoTokenizer.from_pretrained(tmp_path / "bert").save_pretrained(directory)
    model, _ = load_backbone(str(directory))
    assert model.fresh
    assert model.linear.out_features == 1


@pytest.mark.parametrize("kind", [*ENCODERS, *CAUSAL])
def test_a_classifier_of_one_label_keeps_its_head(tmp_path, kind):
    model, codec = load_backbone(str(saved(tmp_path, kind)))
    scorer = model.fork(True) if isinstance(model, EncoderScalar) else ScalarModel.from_causal(model, 1.0)
    with torch.no_grad():
        scorer.linear.weight.fill_(0.25)
    scorer.save_pretrained(tmp_path / "rm", pad_id=codec.pad_id)
    codec.save(tmp_path / "rm")
    again, _ = load_backbone(str(tmp_path / "rm"))
    assert bool((again.linear.weight == 0.25).all())
    assert not getattr(again, "fresh", False)


@pytest.mark.parametrize("kind", CAUSAL)
def test_another_causal_model_is_a_backbone_with_its_own_tokenizer(tmp_path, kind):
    model, codec = load_backbone(str(saved(tmp_path, kind)))
    assert isinstance(model, CausalModel)
    assert isinstance(codec, TextCodec)


def test_a_causal_body_without_a_head_is_enough(tmp_path):
    directory = saved(tmp_path, "llama")
    build("llama").model.save_pretrained(directory)
    model, _ = load_backbone(str(directory))
    assert isinstance(model, CausalModel)


# what is refused


def spoilt(tmp_path, kind: str, spoil) -> TrimtabError:
    directory = saved(tmp_path, kind)
    spoil(directory)
    with pytest.raises(TrimtabError) as caught:
        load_backbone(str(directory))
    assert f'preference.backbone = "{directory}"' in caught.value.message
    assert "model.name" not in caught.value.hint
    return caught.value


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_weights_with_nan_are_named(tmp_path, kind):
    def spoil(directory):
        weights = load_file(directory / "model.safetensors")
        name = next(n for n in sorted(weights) if "layer" in n and n.endswith("weight"))
        weights[name].view(-1)[3] = float("nan")
        save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})

    error = spoilt(tmp_path, kind, spoil)
    assert error.kind is ErrorKind.MODEL
    assert "1 weights" in error.message
    assert "NaN or infinity" in error.message
    assert "layer" in error.message


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_directory_without_weights_or_tokenizer_says_so(tmp_path, kind):
    error = spoilt(tmp_path, kind, lambda directory: (directory / "model.safetensors").unlink())
    assert "cannot load the model" in error.message
    shutil.rmtree(tmp_path / kind)

    def without_tokenizer(directory):
        for path in directory.glob("tokenizer*"):
            path.unlink()

    assert "has no tokenizer" in spoilt(tmp_path, kind, without_tokenizer).message


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_layers_that_the_file_lacks_are_no_gap_to_fill(tmp_path, kind):
    def spoil(directory):
        weights = load_file(directory / "model.safetensors")
        cut = {n: w for n, w in weights.items() if "layer.1." not in n and "layers.1." not in n}
        save_file(cut, directory / "model.safetensors", metadata={"format": "pt"})

    assert "lack" in spoilt(tmp_path, kind, spoil).message


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_tokenizer_with_more_tokens_than_the_model_has_rows_does_not_fit(tmp_path, kind):
    def spoil(directory):
        tokenizer = AutoTokenizer.from_pretrained(directory)
        tokenizer.add_tokens([f"more{i}" for i in range(400)])
        tokenizer.save_pretrained(directory)

    assert "do not fit" in spoilt(tmp_path, kind, spoil).message


def test_an_encoder_with_a_decoder_is_refused(tmp_path):
    def spoil(directory):
        (directory / "config.json").write_text(json.dumps({"model_type": "t5", "architectures": ["T5Model"]}))

    assert "an encoder and a decoder" in spoilt(tmp_path, "bert", spoil).message


def test_no_such_model_says_what_it_was_taken_for(tmp_path):
    with pytest.raises(TrimtabError, match="does not exist"):
        load_backbone(str(tmp_path / "nowhere"))


def test_what_depends_on_padding_is_refused():
    from transformers import FNetConfig

    torch.manual_seed(0)
    hf = AutoModelForSequenceClassification.from_config(
        FNetConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, intermediate_size=16, num_labels=1)
    )
    with pytest.raises(TrimtabError, match="depends on the padding"):
        EncoderScalar(hf)
