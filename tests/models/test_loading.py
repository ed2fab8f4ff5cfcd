"""Models by name, and what is said when there is none."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, BertLMHeadModel, T5Config, T5ForConditionalGeneration

from trimtab.config.layout import Layout
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.loading import load_causal_lm, load_codec, load_scalar, load_tokenizer, pick_device, resolve
from trimtab.models.roles import CausalModel, ScalarModel


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    # Read once at import by huggingface_hub: patched where it is kept.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_load_round_trip(saved, build, batch):
    codec = load_codec(str(saved))
    model = load_causal_lm(str(saved), layout=Layout(top=2), codec=codec)
    expected = CausalModel(build())
    with torch.no_grad():
        assert torch.equal(model.hidden(*batch)[batch[1]], expected.hidden(*batch)[batch[1]])
    assert not any(p.requires_grad for p in model.parameters())
    assert (codec.pad_id, codec.eos_id, codec.eos_ids) == (0, 2, {2})
    assert {p.dtype for p in load_causal_lm(str(saved), "bfloat16").parameters()} == {torch.bfloat16}


def test_a_loaded_model_and_its_fork_agree_in_the_last_bit(saved, batch):
    model = load_causal_lm(str(saved))
    assert all(p.data_ptr() % 64 == 0 for p in model.parameters())
    with torch.no_grad():
        assert torch.equal(model.hidden(*batch), model.fork(trainable=True).hidden(*batch))


def test_every_eos_id_of_the_generation_configuration_ends_a_response(saved):
    (saved / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7]}))
    assert load_codec(str(saved)).eos_ids == {2, 7}
    (saved / "generation_config.json").unlink()
    assert load_codec(str(saved)).eos_ids == {2}


@pytest.mark.parametrize("name", ["/nowhere/model", "./nowhere", "a/b/c"])
def test_a_path_that_does_not_exist(name):
    with pytest.raises(TrimtabError, match="does not exist") as error:
        load_causal_lm(name)
    assert error.value.kind is ErrorKind.MODEL


def test_a_file_and_a_directory_without_configuration(tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(TrimtabError, match="is a file"):
        resolve(str(tmp_path / "f"))
    with pytest.raises(TrimtabError, match=r"no config\.json"):
        resolve(str(tmp_path))


def test_a_directory_without_tokenizer(saved):
    for path in saved.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(TrimtabError, match="has no tokenizer") as error:
        load_codec(str(saved))
    assert "save_pretrained" in error.value.hint


def test_a_hub_id_offline_names_the_alternatives(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    for load in (load_causal_lm, load_tokenizer):
        with pytest.raises(TrimtabError, match=r"cannot load the .* of owner/model") as error:
            load("owner/model")
        assert error.value.kind is ErrorKind.MISSING
        assert "HF_HUB_OFFLINE" in error.value.hint
        assert "smollm2-135m-instruct" in error.value.hint


@pytest.mark.parametrize("damage", ["config.json", "model.safetensors", "missing weights"])
def test_a_damaged_directory(saved, damage):
    if damage == "missing weights":
        (saved / "model.safetensors").unlink()
    else:
        (saved / damage).write_bytes(b"{broken")
    with pytest.raises(TrimtabError, match="cannot load the") as error:
        load_causal_lm(str(saved))
    assert error.value.kind is ErrorKind.MODEL


def test_weights_that_are_not_there_are_not_made_up(saved):
    config = json.loads((saved / "config.json").read_text()) | {"num_hidden_layers": 4}
    (saved / "config.json").write_text(json.dumps(config))
    with pytest.raises(TrimtabError, match=r"lack \d+ of LlamaForCausalLM's tensors, first model\.layers\.3\."):
        load_causal_lm(str(saved))
    with pytest.raises(TrimtabError, match=r"first .*score\.weight"):
        load_scalar_from_policy(saved)


def load_scalar_from_policy(directory):
    config = json.loads((directory / "config.json").read_text())
    config |= {"num_hidden_layers": 3, "id2label": {"0": "score"}, "label2id": {"score": 0}}
    (directory / "config.json").write_text(json.dumps(config))
    return load_scalar(directory)


def test_encoders_are_refused(tmp_path):
    small = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    bert = BertConfig(**small, intermediate_size=32)
    t5 = T5Config(vocab_size=40, d_model=32, d_ff=32, d_kv=8, num_layers=1, num_heads=4)
    models = [BertForMaskedLM(bert), BertLMHeadModel(bert), T5ForConditionalGeneration(t5)]
    for i, hf in enumerate(models):
        hf.save_pretrained(tmp_path / str(i))
        with pytest.raises(TrimtabError, match="no causal language model"):
            load_causal_lm(str(tmp_path / str(i)))


def test_tokenizer_and_model_that_do_not_fit(saved, build, tmp_path):
    build(vocab_size=30).save_pretrained(tmp_path / "small")
    with pytest.raises(TrimtabError, match="30 embedding rows"):
        load_causal_lm(str(tmp_path / "small"), codec=load_codec(str(saved)))


def test_weights_of_another_shape_are_refused(saved, build, tmp_path):
    build(hidden_size=64).save_pretrained(tmp_path / "wide")
    shutil.copy(tmp_path / "wide" / "model.safetensors", saved / "model.safetensors")
    with pytest.raises(TrimtabError, match="cannot load the model"):
        load_causal_lm(str(saved))


def test_a_classifier_with_several_labels_is_no_preference_model(build, tmp_path):
    model = ScalarModel.from_causal(CausalModel(build()))
    model.save_pretrained(tmp_path, pad_id=0)
    config = json.loads((tmp_path / "config.json").read_text())
    config["id2label"], config["label2id"] = {"0": "a", "1": "b"}, {"a": 0, "b": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(TrimtabError, match="has 2 labels"):
        load_scalar(tmp_path)


def test_devices():
    assert pick_device("cpu").type == "cpu"
    assert pick_device("auto").type in ("cpu", "cuda")
    if not torch.cuda.is_available():
        with pytest.raises(TrimtabError, match="no such device"):
            pick_device("cuda")


def test_loading_shows_no_progress_bars(saved, capfd):
    load_causal_lm(str(saved))
    assert capfd.readouterr().err == ""
