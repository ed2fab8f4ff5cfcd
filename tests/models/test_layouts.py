"""The four layouts: what is trained, what is one storage, and what is written and read back."""

from __future__ import annotations

import json
import math

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from trimtab.config.layout import Layout, Lora
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.adapters import ADAPTER, adapted, read_adapters
from trimtab.models.backbone import Decoder
from trimtab.models.heads import narrow, widen
from trimtab.models.loading import load_causal_lm, load_scalar
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.models.saving import base_hash

LAYERS = 3
LAYOUTS = {
    "full": (0, None),
    "top:2": (1, None),
    "lora": (0, Lora(4, 8.0)),
    "lora-top:2": (1, Lora(4, 8.0)),
}
WITH_ADAPTERS = ["lora", "lora-top:2"]
# hidden 32, MLP 48, two key-value heads of 8: q, k, v, o, gate, up, down
LINEAR = [(32, 32), (32, 16), (32, 16), (32, 32), (32, 48), (32, 48), (48, 32)]


def made(build, layout: str, kind: str = "llama", dtype: torch.dtype = torch.float32) -> CausalModel:
    """A frozen base model in a layout."""
    boundary, lora = LAYOUTS[layout]
    model = CausalModel(build(kind).to(dtype), boundary, lora=lora)
    model.requires_grad_(False)
    return model


def storages(role) -> set[int]:
    return {p.data_ptr() for p in role.hf.parameters()}


def logits(model, batch):
    ids, mask = batch
    with torch.no_grad():
        return model.lm_logits(model.hidden(ids, mask))[mask]


def moved(role, seed: int = 1):
    """The role, every own weight pushed a little: what training does to it."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in role.trainable_parameters():
        parameter.data.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return role


# what is trained


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_a_fork_trains_is_what_arithmetic_says(build, layout):
    base = made(build, layout)
    own = sum(p.numel() for p in base.fork(True).trainable_parameters())
    layer = sum(i * o for i, o in LINEAR) + 2 * 32
    adapters = sum(4 * (i + o) for i, o in LINEAR)
    everything = 40 * 32 + 3 * layer + 32  # the head is tied to the embedding
    expected = {"full": everything, "top:2": 2 * layer + 32, "lora": 3 * adapters, "lora-top:2": 2 * adapters}
    assert own == expected[layout]
    head = 32
    tied = everything if layout == "full" else expected[layout]
    assert sum(p.numel() for p in ScalarModel.from_causal(base).trainable_parameters()) == tied + head
    assert str(base.layout) == layout


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("layout", WITH_ADAPTERS)
def test_all_roles_stand_on_one_storage_of_every_base_weight(build, layout, kind):
    base = made(build, layout, kind)
    policy = moved(base.fork(True))
    pm = ScalarModel.from_causal(base)
    roles = [policy, policy.fork(False), policy.fork(True), base.fork(False), pm, pm.fork(True), pm.fork(False)]
    body = {p.data_ptr() for p in base.backbone.body.parameters()}
    for role in roles:
        assert body <= storages(role), role.layout
        own = {p.data_ptr() for _, p in role.own_parameters()}
        assert storages(role) - own <= storages(base)
    # and no two of them have an adapter or a head in common
    owned = [{p.data_ptr() for _, p in role.own_parameters()} for role in roles]
    assert sum(map(len, owned)) == len(set().union(*owned))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_at_step_0_the_policy_is_the_reference_bit_for_bit(build, batch, layout):
    for dtype in (torch.float32, torch.bfloat16):
        base = made(build, layout, dtype=dtype)
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            expected = logits(base, batch)
            policy = base.fork(True)
            assert torch.equal(logits(policy, batch), expected)
            assert torch.equal(logits(policy.fork(False), batch), expected)


def test_float16_too(build, batch):
    base = made(build, "lora", dtype=torch.float16)
    policy = base.fork(True)
    assert {p.dtype for p in policy.trainable_parameters()} == {torch.float32}
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.equal(logits(policy, batch), logits(base, batch))
    moved(policy)  # outside: autocast casts a weight once in each context
    with torch.autocast("cpu", dtype=torch.float16):
        assert not torch.equal(logits(policy, batch), logits(base, batch))


@pytest.mark.parametrize("layout", WITH_ADAPTERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_reach_the_adapters_and_the_head_and_nothing_else(build, batch, layout, dtype):
    ids, mask = batch
    base = made(build, layout, dtype=dtype)
    model = moved(ScalarModel.from_causal(base))
    before = {n: p.clone() for n, p in base.hf.named_parameters()}
    with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
        model.score(ids, mask).square().sum().backward()
    with_gradient = {n for n, p in model.hf.named_parameters() if p.grad is not None and bool(p.grad.any())}
    assert with_gradient == {n for n, _ in model.own_parameters()}
    assert all(".lora_" in n or n == "score.weight" for n in with_gradient)
    torch.optim.SGD(model.trainable_parameters(), lr=1.0).step()
    assert all(torch.equal(before[n], p) for n, p in base.hf.named_parameters())


def test_a_frozen_fork_of_adapters_at_zero_has_none_and_one_of_others_keeps_them(build, batch):
    policy = made(build, "lora").fork(True)
    assert adapted(policy.hf)
    assert not adapted(policy.fork(False).hf)
    reference = moved(policy).fork(False)
    assert adapted(reference.hf)
    assert not reference.trainable_parameters()
    assert torch.equal(logits(reference, batch), logits(policy, batch))


def test_adapters_are_drawn_from_a_generator_and_nothing_else(build):
    base = made(build, "lora")
    before = torch.get_rng_state()

    def drawn(seed: int | None) -> dict[str, torch.Tensor]:
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        return base.fork(True, generator).own_state()

    first, again, other, default = drawn(1), drawn(1), drawn(2), drawn(None)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[n], again[n]) for n in first)
    assert all(not torch.equal(first[n], other[n]) for n in first if ".lora_A." in n)
    assert all(torch.equal(default[n], t) for n, t in drawn(None).items())
    assert not any(t.any() for n, t in first.items() if ".lora_B." in n)
    a = first["model.layers.0.self_attn.q_proj.lora_A.default.weight"]
    assert a.shape == (4, 32)
    bound = 1 / math.sqrt(32)
    assert 0.9 * bound < float(a.abs().max()) <= bound


def test_targets_can_be_named(build):
    model = CausalModel(build(), 1, lora=Lora(2, 2.0, ("q_proj", "down_proj")))
    names = {name for name, _ in adapted(model.fork(True).hf)}
    assert names == {f"model.layers.{i}.{part}" for i in (1, 2) for part in ("self_attn.q_proj", "mlp.down_proj")}
    with pytest.raises(TrimtabError, match=r"lora_targets: .* no linear layer q_projj, embed_tokens") as caught:
        CausalModel(build(), lora=Lora(targets=("q_proj", "q_projj", "embed_tokens"))).fork(True)
    assert caught.value.kind is ErrorKind.CONFIG
    assert "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj" in caught.value.hint


def test_a_rank_above_that_of_every_layer_is_refused(build):
    assert adapted(CausalModel(build(), lora=Lora(32)).fork(True).hf)  # 32 x 48 is the largest
    with pytest.raises(TrimtabError, match=r"lora_rank = 33: no adapted layer of .* has a rank above 32"):
        CausalModel(build(), lora=Lora(33)).fork(True)
    with pytest.raises(TrimtabError, match=r"lora_rank = 17: .* above 16"):
        CausalModel(build(), lora=Lora(17, targets=("k_proj",))).fork(True)


@pytest.mark.parametrize("kind", ["gpt2", "sliding"])
def test_models_that_cannot_be_split_can_have_adapters_in_all_layers(build, batch, kind, tmp_path):
    base = CausalModel(build(kind), lora=Lora(2, 4.0))
    base.requires_grad_(False)
    policy = base.fork(True)
    assert torch.equal(logits(policy, batch), logits(base, batch))
    ids, mask = batch
    loss = policy.lm_logits(policy.hidden(ids, mask))[mask].square().mean()
    loss.backward()
    moved(policy)
    merged = policy.merged()
    torch.testing.assert_close(logits(merged, batch), logits(policy, batch), rtol=1e-5, atol=1e-5)
    policy.save_pretrained(tmp_path, pad_id=0)
    again = peft.PeftModel.from_pretrained(build(kind), tmp_path / ADAPTER).eval()
    positions = (mask.long().cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        found = again(ids, attention_mask=mask, position_ids=positions).logits[mask]
    torch.testing.assert_close(found, logits(policy, batch), rtol=1e-5, atol=1e-5)
    with pytest.raises(TrimtabError, match="cannot be split"):
        CausalModel(build(kind), 1, lora=Lora())


@pytest.mark.parametrize("layout", WITH_ADAPTERS)
def test_decoding_with_a_cache_gives_what_the_whole_sequence_gives(build, batch, layout):
    ids, mask = batch
    policy = moved(made(build, layout).fork(True))
    with torch.no_grad():
        whole = policy.hidden(ids, mask)
        decoder = Decoder(policy.backbone, mask[:, :-2], ids.shape[1])
        steps = [decoder.prefill(ids[:, :-2]), decoder.step(ids[:, -2]), decoder.step(ids[:, -1])]
    torch.testing.assert_close(torch.stack(steps, 1), whole[:, -3:], rtol=1e-5, atol=1e-5)


def test_the_trunk_lies_under_the_adapters_and_serves_all_roles(build, batch):
    ids, mask = batch
    base = made(build, "lora-top:2")
    policy = moved(base.fork(True))
    with torch.no_grad():
        trunk = base.trunk(ids, mask)
        assert torch.equal(policy.hidden(ids, mask, trunk=trunk), policy.hidden(ids, mask))


def test_own_state_is_adapters_and_head_and_goes_back(build, batch):
    ids, mask = batch
    base = made(build, "lora-top:2")
    model = moved(ScalarModel.from_causal(base))
    state = {n: t.clone() for n, t in model.own_state().items()}
    assert len(state) == 2 * 7 * 2 + 1
    again = ScalarModel.from_causal(base, generator=torch.Generator().manual_seed(9))
    assert not torch.equal(again.score(ids, mask), model.score(ids, mask))
    again.load_own_state(state)
    assert torch.equal(again.score(ids, mask), model.score(ids, mask))


def test_mixing_with_the_reference_takes_that_share_off_what_is_added(build):
    base = made(build, "lora")
    policy = moved(base.fork(True))
    reference = base.fork(False)
    delta = {n: layer.get_delta_weight("default") for n, layer in adapted(policy.hf)}
    policy.mix_with(reference, 0.25)
    for name, layer in adapted(policy.hf):
        torch.testing.assert_close(layer.get_delta_weight("default"), 0.75 * delta[name])
    whole = moved(made(build, "full").fork(True))
    start = made(build, "full").fork(False)
    expected = {n: 0.75 * p.detach() + 0.25 * start.own_state()[n] for n, p in whole.own_parameters()}
    whole.mix_with(start, 0.25)
    for name, weight in whole.own_state().items():
        torch.testing.assert_close(weight, expected[name])


# merged, written, read


def test_a_merged_model_is_w_plus_scaled_b_a(build, batch):
    base = made(build, "lora-top:2")
    policy = moved(base.fork(True))
    merged = policy.merged()
    assert not adapted(merged.hf)
    assert not merged.trainable_parameters()
    layer = dict(adapted(policy.hf))["model.layers.1.mlp.up_proj"]
    a, b = (part["default"].weight.detach().double() for part in (layer.lora_A, layer.lora_B))
    expected = layer.base_layer.weight.double() + (8.0 / 4) * b @ a
    found = merged.hf.model.layers[1].mlp.up_proj.weight
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(logits(merged, batch), logits(policy, batch), rtol=1e-5, atol=1e-5)
    # what has no adapter is still the base model's storage, and the base is as it was
    trunk = {p.data_ptr() for p in base.hf.model.layers[0].parameters()}
    assert trunk <= storages(merged)
    assert torch.equal(logits(base, batch), logits(base.fork(False), batch))
    # a policy and a preference model start from it with adapters of their own
    assert torch.equal(logits(merged.fork(True), batch), logits(merged, batch))


@pytest.mark.parametrize("layout", WITH_ADAPTERS)
@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_policy_is_read_by_transformers_by_peft_and_by_us(build, batch, tmp_path, layout, tied):
    ids, mask = batch
    base = CausalModel(build(tie_word_embeddings=tied), LAYOUTS[layout][0], lora=LAYOUTS[layout][1])
    base.requires_grad_(False)
    policy = moved(base.fork(True))
    expected = logits(policy, batch)
    policy.save_pretrained(tmp_path, pad_id=0)
    positions = (mask.long().cumsum(-1) - 1).clamp(min=0)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    of_peft = peft.PeftModel.from_pretrained(build(tie_word_embeddings=tied), tmp_path / ADAPTER).eval()
    assert {p.dtype for p in plain.parameters()} == {torch.float32}
    for model in (plain, of_peft):
        with torch.no_grad():
            found = model(ids, attention_mask=mask, position_ids=positions).logits[mask]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    # on its base: the adapter alone, bit for bit, on the base's storage
    loaded = load_causal_lm(str(tmp_path), layout=base.layout, onto=base)
    assert torch.equal(logits(loaded, batch), expected)
    assert storages(base) <= storages(loaded)
    assert {n for n, _ in loaded.own_parameters()} == {n for n, _ in policy.own_parameters()}
    # elsewhere, the whole merged model
    whole = load_causal_lm(str(tmp_path), layout=base.layout)
    assert not adapted(whole.hf)
    torch.testing.assert_close(logits(whole, batch), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", WITH_ADAPTERS)
def test_a_saved_scalar_model_is_read_by_transformers_by_peft_and_by_us(build, batch, tmp_path, layout):
    ids, mask = batch[0].flip(1), batch[1].flip(1)  # padded on the right, as a plain classifier wants it
    base = made(build, layout)
    model = moved(ScalarModel.from_causal(base))
    with torch.no_grad():
        expected = model.score(ids, mask)
    model.save_pretrained(tmp_path, pad_id=0)
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    base.hf.config.pad_token_id = 0
    base.hf.save_pretrained(tmp_path / "base")
    fresh = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=1)
    of_peft = peft.PeftModel.from_pretrained(fresh, tmp_path / ADAPTER).eval()
    for other in (plain, of_peft):
        with torch.no_grad():
            found = other(ids, attention_mask=mask).logits.squeeze(-1)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    loaded = load_scalar(tmp_path, trunk_from=base)
    with torch.no_grad():
        assert torch.equal(loaded.score(ids, mask), expected)
    assert {p.data_ptr() for p in base.backbone.body.parameters()} <= storages(loaded)
    assert loaded.linear.weight.dtype == torch.float32
    # what a value model that starts from it trains
    value = loaded.fork(True)
    with torch.no_grad():
        assert torch.equal(value.score(ids, mask), expected)
    assert {n for n, _ in value.own_parameters()} == {n for n, _ in model.own_parameters()}


def test_several_heads_come_back_with_the_adapter(build, batch, tmp_path):
    base = made(build, "lora")
    model = ScalarModel.from_causal(base)
    widen(model, [0.5], torch.Generator().manual_seed(3))
    narrow(model, ["overall", "kind"])
    moved(model).save_pretrained(tmp_path, pad_id=0)
    loaded = load_scalar(tmp_path, trunk_from=base)
    assert torch.equal(loaded.linear.weight, model.linear.weight)
    assert loaded.hf.config.id2label == {0: "overall", 1: "kind"}
    assert torch.equal(loaded.score(*batch), model.score(*batch))


@pytest.mark.parametrize("layout", WITH_ADAPTERS)
def test_on_a_base_with_other_weights_the_merged_model_is_taken_or_refused(build, batch, tmp_path, layout):
    model = moved(ScalarModel.from_causal(made(build, layout)))
    model.save_pretrained(tmp_path, pad_id=0)
    ids, mask = batch
    other = made(build, layout)
    other.hf.model.layers[2].mlp.up_proj.weight.data[0, 0] += 1  # above the trunk
    loaded = load_scalar(tmp_path, trunk_from=other)
    assert not adapted(loaded.hf)
    torch.testing.assert_close(loaded.score(ids, mask), model.score(ids, mask), rtol=1e-5, atol=1e-5)
    embedding = other.hf.model.embed_tokens.weight.data_ptr()
    assert (embedding in storages(loaded)) == (layout == "lora-top:2")
    below = made(build, layout)
    below.hf.model.embed_tokens.weight.data[5] += 1
    if layout == "lora":
        assert torch.equal(load_scalar(tmp_path, trunk_from=below).score(ids, mask), loaded.score(ids, mask))
    else:
        with pytest.raises(TrimtabError, match="another trunk"):
            load_scalar(tmp_path, trunk_from=below)


def test_a_bfloat16_policy_is_written_with_its_exact_delta(build, batch, tmp_path):
    base = made(build, "lora", dtype=torch.bfloat16)
    policy = base.fork(True)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in policy.own_parameters():
        if ".lora_B." in name:  # far less than a step of bfloat16
            parameter.data.copy_(1e-5 * torch.randn(parameter.shape, generator=generator))
    policy.save_pretrained(tmp_path, pad_id=0)
    written = load_file(tmp_path / "model.safetensors")
    layer = dict(adapted(policy.hf))["model.layers.0.mlp.up_proj"]
    weight = written["model.layers.0.mlp.up_proj.weight"]
    assert weight.dtype == torch.float32
    delta = weight - layer.base_layer.weight.float()
    assert float(delta.abs().max()) > 0
    torch.testing.assert_close(delta, layer.get_delta_weight("default"), rtol=0, atol=1e-7)
    loaded = load_causal_lm(str(tmp_path), "bfloat16", layout=base.layout, onto=base)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(logits(loaded, batch), logits(policy, batch))


def test_a_directory_without_adapters_keeps_none_of_an_earlier_model(build, tmp_path):
    base = made(build, "lora")
    moved(base.fork(True)).save_pretrained(tmp_path, pad_id=0)
    assert (tmp_path / ADAPTER).is_dir()
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["trimtab"] == {
        "trainable": "lora", "trunk_sha256": "", "base_sha256": base_hash(base, head=True)
    }  # fmt: skip
    base.save_pretrained(tmp_path, pad_id=0)
    assert not (tmp_path / ADAPTER).exists()
    assert "base_sha256" not in json.loads((tmp_path / "config.json").read_text())["trimtab"]


def test_a_broken_adapter_is_told(build, tmp_path):
    base = made(build, "lora")
    moved(base.fork(True)).save_pretrained(tmp_path, pad_id=0)
    weights = tmp_path / ADAPTER / "adapter_model.safetensors"
    tensors = load_file(weights)
    name = next(iter(tensors))
    save_file({n: t for n, t in tensors.items() if n != name}, weights)
    with pytest.raises(TrimtabError, match="does not fit"):
        load_causal_lm(str(tmp_path), layout=base.layout, onto=base)
    save_file(tensors | {name: tensors[name][:1]}, weights)
    with pytest.raises(TrimtabError, match="does not fit"):
        load_causal_lm(str(tmp_path), layout=base.layout, onto=base)
    save_file(tensors | {"base_model.model.model.layers.9.x.lora_A.weight": torch.zeros(1)}, weights)
    with pytest.raises(TrimtabError, match="other layers"):
        load_causal_lm(str(tmp_path), layout=base.layout, onto=base)
    weights.write_bytes(b"not this")
    with pytest.raises(TrimtabError, match="adapter is broken") as caught:
        load_causal_lm(str(tmp_path), layout=base.layout, onto=base)
    assert "merged weights beside it are whole" in caught.value.hint


def test_the_base_hash_knows_a_head_of_its_own_and_no_adapters(build):
    base = made(build, "lora")
    assert base_hash(base, head=True) == base_hash(moved(base.fork(True)), head=True)
    assert base_hash(base, head=False) == base_hash(moved(ScalarModel.from_causal(base)), head=False)
    assert base_hash(base, head=True) == base_hash(base, head=False)  # tied
    untied = CausalModel(build(tie_word_embeddings=False), lora=Lora())
    before = base_hash(untied, head=True), base_hash(untied, head=False)
    untied.hf.lm_head.weight.data[0, 0] += 1
    assert base_hash(untied, head=False) == before[1]
    assert base_hash(untied, head=True) != before[0]


# the words


def test_layouts_are_read_and_written():
    for text in ("full", "top:3", "lora", "lora-top:12"):
        assert str(Layout.parse(text)) == text
    assert Layout.parse("lora", Lora(4)).lora == Lora(4)
    assert Layout.parse("top:3", Lora(4)).lora is None
    assert [Layout.parse(t).boundary(12) for t in ("full", "top:3", "lora", "lora-top:12")] == [0, 9, 0, 0]
    assert [Layout.parse(t).shares for t in ("full", "top:3", "lora", "lora-top:12")] == [False, True, True, True]
    for text in ("", "top", "top:0", "top:-1", "lora:3", "top:3 ", "full\n", "lora-top:", "top:٣"):
        with pytest.raises(TrimtabError, match="trainable"):
            Layout.parse(text)
    with pytest.raises(TrimtabError, match=r'"top:13": the model has 12 layers'):
        Layout.parse("top:13").boundary(12)


def test_dropout_stays_off_in_adapted_layers(build, batch):
    policy = moved(made(build, "lora").fork(True))
    assert not any(isinstance(m, nn.Dropout) and m.p for m in policy.hf.modules())
    policy.hf.train()
    assert torch.equal(policy.hidden(*batch)[batch[1]], policy.hidden(*batch)[batch[1]])


def test_an_adapter_of_a_model_of_another_size_is_refused_with_the_sizes(build, batch, tmp_path):
    moved(made(build, "lora").fork(trainable=True)).save_pretrained(tmp_path, pad_id=0)
    saved = read_adapters(tmp_path / "adapter")
    with pytest.raises(TrimtabError, match=r"\.lora_A\S* is \[\d+, 32\] in it and \[\d+, 16\] in the model"):
        saved.put_into(build(hidden_size=16))


def test_an_adapter_alone_is_no_model(build, tmp_path):
    moved(made(build, "lora").fork(trainable=True)).save_pretrained(tmp_path, pad_id=0)
    with pytest.raises(
        TrimtabError, match=r"adapter is an adapter, no whole model: it has adapter_config.json"
    ) as error:
        load_causal_lm(str(tmp_path / "adapter"))
    assert "merge_and_unload" in error.value.hint


def test_a_resized_base_is_another_trunk_and_a_whole_model_of_its_own_with_adapters(build, batch, tmp_path):
    """Trained with two more tokens: on the base without them nothing is shared, and the sizes are told."""
    wide = build(vocab_size=42)
    for layout in ("top:1", "lora"):
        laid = Layout.parse(layout)
        base = CausalModel(wide, laid.boundary(wide.config.num_hidden_layers), lora=laid.lora)
        moved(ScalarModel.from_causal(base)).save_pretrained(tmp_path / layout, pad_id=0)
    with pytest.raises(TrimtabError, match="vocabularies of 42 and 40 tokens"):
        load_scalar(tmp_path / "top:1", trunk_from=CausalModel(build(), 2))
    other = load_scalar(tmp_path / "lora", trunk_from=made(build, "lora"))
    assert other.vocabulary_size == 42
