"""A backbone that is read up to some layer only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from trimtab.config.layout import Layout
from trimtab.errors import TrimtabError
from trimtab.models.encoder import EncoderScalar
from trimtab.models.loading import load_causal_lm
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.models.starts import check_backbone, load_backbone

IDS = torch.tensor([[4, 9, 30, 7, 2]])
MASK = torch.ones_like(IDS, dtype=torch.bool)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_the_first_layers_give_what_the_whole_model_has_after_them(
    tmp_path: Path, build: Callable[..., PreTrainedModel], tokenizer: PreTrainedTokenizerFast, kind: str
) -> None:
    build(kind).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    whole = load_causal_lm(str(tmp_path))
    with torch.no_grad():
        after_two = whole.hf(IDS, output_hidden_states=True).hidden_states[2]
        norm = whole.hf.base_model.ln_f if kind == "gpt2" else whole.hf.base_model.norm
        expected = norm(after_two)
        cut, _ = load_backbone(str(tmp_path), layers=2)
        assert isinstance(cut, CausalModel)
        torch.testing.assert_close(cut.hidden(IDS, MASK), expected)


def test_what_is_trained_counts_from_the_layer_that_is_read(saved: Path) -> None:
    cut, _ = load_backbone(str(saved), layers=2, layout=Layout(top=1))
    assert isinstance(cut, CausalModel)
    trained = {name.split(".")[2] for name, _ in cut.own_parameters() if ".layers." in name}
    assert trained == {"1"}
    assert cut.boundary == 1


def test_a_saved_score_is_a_classifier_of_so_many_layers(saved: Path, tmp_path: Path) -> None:
    cut, codec = load_backbone(str(saved), layers=2)
    assert isinstance(cut, CausalModel)
    model = ScalarModel.from_causal(cut, 0.5, generator=torch.Generator().manual_seed(1))
    model.save_pretrained(tmp_path / "pm", pad_id=codec.pad_id)
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "pm").eval()
    assert plain.config.num_hidden_layers == 2
    with torch.no_grad():
        torch.testing.assert_close(plain(IDS).logits[:, 0].float(), model.score(IDS, MASK))


def test_an_encoder_is_cut_too(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    torch.manual_seed(0)
    bert = BertModel(
        BertConfig(vocab_size=40, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48)
    )
    bert.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    cut, _ = load_backbone(str(tmp_path), layers=1)
    assert isinstance(cut, EncoderScalar)
    assert cut.hf.config.num_hidden_layers == 1
    assert torch.equal(
        cut.hf.base_model.encoder.layer[0].output.dense.weight, bert.encoder.layer[0].output.dense.weight
    )


@pytest.mark.parametrize("layers", [0, 4])
def test_layers_that_are_not_there_are_refused(saved: Path, layers: int) -> None:
    with pytest.raises(TrimtabError, match=f"{layers} layers of .*, which has 3"):
        load_backbone(str(saved), layers=layers)
    with pytest.raises(TrimtabError, match=f"{layers} layers of .*, which has 3"):
        check_backbone(str(saved), layers=layers)


def test_a_classifier_is_not_cut(saved: Path, tmp_path: Path) -> None:
    base, codec = load_backbone(str(saved))
    assert isinstance(base, CausalModel)
    ScalarModel.from_causal(base).save_pretrained(tmp_path / "pm", pad_id=codec.pad_id)
    codec.save(tmp_path / "pm")
    with pytest.raises(TrimtabError, match="whose head reads its last layer"):
        load_backbone(str(tmp_path / "pm"), layers=2)
    load_backbone(str(tmp_path / "pm"), layers=3)  # all of them is no cut


def test_nothing_is_said_of_the_layers_that_are_left_out(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_backbone(str(saved), layers=1)
    assert capfd.readouterr().err == ""
