"""Model directories that were edited, cut or meant ill: what is wrong is told, and no code of theirs is run."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.adapters import ADAPTER_CONFIG, read_adapters
from trimtab.models.loading import from_pretrained, load_causal_lm, load_codec, load_config, load_scalar, load_tokenizer
from trimtab.models.roles import CausalModel, ScalarModel

GONE = "gone"


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def edit(directory, name="config.json", **changes):
    facts = json.loads((directory / name).read_text()) | changes
    (directory / name).write_text(json.dumps({key: value for key, value in facts.items() if value != GONE}))


def add(directory, **tensors):
    file = directory / "model.safetensors"
    save_file(load_file(file) | tensors, file, metadata={"format": "pt"})


@pytest.mark.parametrize("layers", [0, 1])
def test_layers_in_the_file_that_the_configuration_does_not_have(saved, layers):
    edit(saved, num_hidden_layers=layers)
    first = rf"model\.layers\.{layers}\.input_layernorm\.weight"
    with pytest.raises(TrimtabError, match=rf"hold {9 * (3 - layers)} tensors that .*: {first}") as error:
        load_causal_lm(str(saved))
    assert error.value.kind is ErrorKind.MODEL


def test_layers_left_out_on_purpose_are_no_surplus(saved):
    assert load_causal_lm(str(saved), layers=1).hf.config.num_hidden_layers == 1
    add(saved, **{"model.layers.0.self_attn.q_proj.scale": torch.ones(1)})
    with pytest.raises(TrimtabError, match=r"hold 1 tensors .*: model\.layers\.0\.self_attn\.q_proj\.scale"):
        load_causal_lm(str(saved), layers=1)


def test_another_tensor_of_a_module_that_the_model_has_is_surplus(saved):
    add(saved, **{"lm_head.bias": torch.ones(40)})
    with pytest.raises(TrimtabError, match=r"lm_head\.bias"):
        load_causal_lm(str(saved))


def test_heads_of_other_tasks_and_old_buffers_are_left_out(saved, batch, build, tmp_path):
    plain = load_causal_lm(str(saved))
    buffer = "model.layers.0.self_attn.rotary_emb.inv_freq"
    add(saved, **{"v_head.summary.weight": torch.ones(1, 32), buffer: torch.ones(4)})
    with torch.no_grad():
        assert torch.equal(load_causal_lm(str(saved)).hidden(*batch), plain.hidden(*batch))
    from_pretrained(AutoModel, "x", str(saved), "float32", "cpu")
    ScalarModel.from_causal(CausalModel(build())).save_pretrained(tmp_path / "pm", pad_id=0)
    add(tmp_path / "pm", **{"lm_head.weight": torch.ones(40, 32)})
    load_scalar(tmp_path / "pm")


def test_a_body_alone_that_lacks_layers_by_its_configuration(saved):
    edit(saved, num_hidden_layers=2)
    with pytest.raises(TrimtabError, match=r"LlamaModel by its config\.json does not have: .*layers\.2\."):
        from_pretrained(AutoModel, "x", str(saved), "float32", "cpu")


@pytest.mark.parametrize("size", [39, 41])
def test_another_shape_is_told_with_the_tensor_and_both_shapes(saved, size):
    edit(saved, vocab_size=size)
    told = rf"embed_tokens\.weight is \[40, 32\] in the file and \[{size}, 32\] by config\.json|lm_head"
    with pytest.raises(TrimtabError, match=told):
        load_causal_lm(str(saved))


CODE = "import pathlib\npathlib.Path({!r}).touch()\n"


@pytest.mark.parametrize("load", [load_causal_lm, load_config, load_scalar, load_tokenizer])
def test_code_in_a_directory_is_neither_run_nor_asked_about(saved, monkeypatch, tmp_path, load):
    def asked(*_):
        raise AssertionError("asked on the terminal")

    monkeypatch.setattr("builtins.input", asked)
    trace = tmp_path / "ran"
    (saved / "evil.py").write_text(CODE.format(str(trace)))
    names = {"AutoConfig": "evil.C", "AutoTokenizer": ["evil.C", None], "AutoModelForCausalLM": "evil.C"}
    edit(saved, model_type="evil", auto_map=names)
    if load is load_tokenizer:
        edit(saved, "tokenizer_config.json", auto_map=names, tokenizer_class="Evil")
    with pytest.raises(TrimtabError, match="custom code") as error:
        load(str(saved))
    assert "no code of a model's own is run" in error.value.hint
    assert not trace.exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"vocab_size": "40"}, "'vocab_size'"),
        ({"vocab_size": None}, "'vocab_size'"),
        ({"tie_word_embeddings": "no"}, "'tie_word_embeddings'"),
        ({"num_hidden_layers": "2"}, "'num_hidden_layers'"),
        ({"num_attention_heads": 3}, "attention heads"),
        ({"num_attention_heads": 0, "head_dim": GONE}, "ZeroDivisionError"),
        ({"rope_parameters": [1]}, "rope_parameters"),
        ({"eos_token_id": "x"}, "'eos_token_id'"),
        ({"architectures": [1]}, r"architectures in config\.json is '\[1\]', not a list of names"),
        ({"architectures": "LlamaForCausalLM"}, "architectures in"),
        ({"dtype": "zzz"}, "AttributeError"),
        ({"rms_norm_eps": math.nan}, r"rms_norm_eps in config\.json is 'nan', not a finite number"),
        ({"rms_norm_eps": math.inf}, "rms_norm_eps in"),
    ],
)
def test_a_configuration_that_cannot_be_names_directory_and_cause(saved, changes, told):
    edit(saved, **changes)
    with pytest.raises(TrimtabError, match=told) as error:
        load_causal_lm(str(saved))
    assert error.value.kind is ErrorKind.MODEL
    assert str(saved) in error.value.message


@pytest.mark.parametrize("text", ["[1]", '"x"', "[" * 200_000, '{"model_type": 5}', ""])
def test_a_configuration_that_is_none(saved, text):
    (saved / "config.json").write_text(text)
    with pytest.raises(TrimtabError, match=f"configuration of {saved}") as error:
        load_causal_lm(str(saved))
    assert error.value.kind is ErrorKind.MODEL


@pytest.mark.parametrize("text", ["[1]", "[" * 200_000, '{"eos_token_id": "x"}', '{"eos_token_id": [1.5]}'])
def test_a_generation_configuration_that_cannot_be(saved, text):
    (saved / "generation_config.json").write_text(text)
    with pytest.raises(TrimtabError, match=str(saved)):
        load_codec(str(saved))


@pytest.mark.parametrize("text", ["[1]", '{"peft_type": "LORA", "base_model_name_or_path": "owner/other"}'])
def test_an_adapter_beside_a_whole_model_is_not_put_on_it(saved, text):
    (saved / ADAPTER_CONFIG).write_text(text)
    with pytest.raises(
        TrimtabError, match=r"holds a whole model and an adapter: config\.json and adapter_config\.json"
    ):
        load_causal_lm(str(saved))


GOOD = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "layers_to_transform": [2, 1], "task_type": "CAUSAL_LM"}


def write_adapter(directory, text):
    save_file({"base_model.model.x": torch.ones(2)}, directory / "adapter_model.safetensors")
    (directory / ADAPTER_CONFIG).write_text(text)


def test_a_good_adapter_is_read(tmp_path):
    write_adapter(tmp_path, json.dumps(GOOD))
    saved = read_adapters(tmp_path)
    assert (saved.lora.rank, saved.lora.alpha, saved.lora.targets, saved.first) == (4, 8.0, ("q_proj",), 1)


@pytest.mark.parametrize(
    ("key", "value"),
    [("r", x) for x in (0, -1, 2.7, True, "4", None, 10**12, math.inf, GONE)]
    + [("lora_alpha", x) for x in (0, -1, math.nan, math.inf, 10**400, True, "8", None, GONE)]
    + [("target_modules", x) for x in ("all-linear", [1], [], ["../../etc"], ["a b"], None, GONE)]
    + [("layers_to_transform", x) for x in (3, [], ["a"], [-5], [1.0], [True], [10**9], None, GONE)],
)
def test_a_value_of_an_adapter_that_cannot_be_is_named(tmp_path, key, value):
    write_adapter(tmp_path, json.dumps({k: v for k, v in (GOOD | {key: value}).items() if v != GONE}))
    told = "is missing" if value == GONE else "is [\"']"
    with pytest.raises(TrimtabError, match=rf"{tmp_path}: .*{key} in adapter_config\.json {told}") as error:
        read_adapters(tmp_path)
    assert error.value.kind is ErrorKind.MODEL


@pytest.mark.parametrize("text", ["[1]", '"x"', "null", "[" * 200_000, "", '{"r": ' + "9" * 6000 + "}"])
def test_an_adapter_configuration_that_is_none(tmp_path, text):
    write_adapter(tmp_path, text)
    with pytest.raises(TrimtabError, match=f"{tmp_path}: the adapter is broken"):
        read_adapters(tmp_path)


@pytest.mark.parametrize("change", [{"r": 60000}, {"layers_to_transform": [500]}, {"target_modules": ["nope"]}])
def test_an_adapter_of_another_model_is_told_as_such(tmp_path, build, change):
    write_adapter(tmp_path, json.dumps(GOOD | change))
    with pytest.raises(TrimtabError, match="the saved adapter does not fit the model") as error:
        read_adapters(tmp_path).put_into(build())
    assert error.value.kind is ErrorKind.MODEL
