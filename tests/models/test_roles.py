"""Roles: the split at a layer boundary, what forks share, scalar heads."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors import SafetensorError
from transformers import AutoModelForSequenceClassification, BertConfig, BertLMHeadModel

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.loading import load_scalar
from trimtab.models.roles import CausalModel, ScalarModel, trunk_hash
from trimtab.models.saving import adopt_trunk

BOUNDARIES = [0, 1, 2, 3]
KINDS = ["llama", "qwen2"]


def storages(role, names=None):
    return {p.data_ptr() for p in role.hf.parameters()}


def plain_positions(mask):
    return (mask.long().cumsum(-1) - 1).clamp(min=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", BOUNDARIES)
def test_trunk_then_top_gives_the_plain_forwards_logits_bit_for_bit(build, batch, kind, k):
    ids, mask = batch
    hf = build(kind).eval()
    with torch.no_grad():
        plain = hf(ids, attention_mask=mask, position_ids=plain_positions(mask)).logits
        model = CausalModel(hf, k)
        split = model.lm_logits(model.top(model.trunk(ids, mask), mask))
        whole = model.lm_logits(model.hidden(ids, mask))
    assert torch.equal(split[mask], plain[mask])
    assert torch.equal(whole[mask], plain[mask])


@pytest.mark.parametrize("kind", ["gpt2", "sliding"])
def test_models_that_cannot_be_split_run_whole_and_refuse_a_shared_trunk(build, batch, kind):
    ids, mask = batch
    hf = build(kind).eval()
    with torch.no_grad():
        plain = hf(ids, attention_mask=mask, position_ids=plain_positions(mask)).logits
        model = CausalModel(hf)
        assert torch.equal(model.lm_logits(model.hidden(ids, mask))[mask], plain[mask])
        assert torch.equal(model.lm_logits(model.top(model.trunk(ids, mask), mask))[mask], plain[mask])
    with pytest.raises(TrimtabError, match=r'trainable = "top:\d": .* cannot be split') as error:
        CausalModel(hf, 1)
    assert error.value.kind is ErrorKind.MODEL
    assert '"full" or "lora"' in error.value.hint


def test_a_model_whose_layers_are_not_all_of_its_forward_is_found_out(build):
    hf = build()
    # Like architectures that scale their embeddings inside forward: the parts are there, but not the whole.
    hf.model.register_forward_hook(lambda _m, _i, out: setattr(out, "last_hidden_state", out.last_hidden_state * 2))
    assert "other hidden states" in str(CausalModel(hf).backbone.splittable)
    with pytest.raises(TrimtabError, match="cannot be split"):
        CausalModel(hf, 1)


def test_an_encoder_is_refused_because_it_sees_what_comes_later():
    config = BertConfig(vocab_size=40, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=32)
    with pytest.raises(TrimtabError, match="no causal language model"):
        CausalModel(BertLMHeadModel(config))


@pytest.mark.parametrize("k", [-1, 4])
def test_a_boundary_outside_the_layers_is_refused(build, k):
    with pytest.raises(TrimtabError, match=f"trunk of {k} layers: the model has 3"):
        CausalModel(build(), k)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", BOUNDARIES)
def test_a_fork_shares_exactly_the_trunks_storage(build, kind, k):
    base = CausalModel(build(kind), k)
    fork = base.fork(trainable=True)
    shared = storages(base) & storages(fork)
    body = base.backbone.body
    trunk = [body.embed_tokens, *body.layers[:k]] if k else []
    assert shared == {p.data_ptr() for module in trunk for p in module.parameters()}
    own = {p.data_ptr() for p in fork.trainable_parameters()}
    assert own == storages(fork) - shared
    assert not any(p.requires_grad for p in fork.fork(trainable=False).parameters())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", BOUNDARIES)
def test_training_a_fork_moves_its_own_weights_and_no_others(build, batch, kind, k):
    ids, mask = batch
    base = CausalModel(build(kind), k)
    before = {n: p.clone() for n, p in base.hf.named_parameters()}
    fork = base.fork(trainable=True)
    optimiser = torch.optim.SGD(fork.trainable_parameters(), lr=0.1)
    fork.lm_logits(fork.hidden(ids, mask))[mask].square().mean().backward()
    optimiser.step()
    assert all(torch.equal(before[n], p) for n, p in base.hf.named_parameters())
    own = dict(fork.own_parameters())
    moved = {n for n, p in fork.hf.named_parameters() if not torch.equal(before[n], p)}
    assert moved == set(own)
    assert bool(moved) == (k < 3 or kind == "qwen2" or bool(own))


def test_dropout_stays_off_whatever_is_called(build, batch):
    ids, mask = batch
    for kind in ("llama", "gpt2"):
        model = CausalModel(build(kind)).train()
        assert not model.hf.training
        model.hf.train()  # behind the role's back
        assert torch.equal(model.hidden(ids, mask)[mask], model.hidden(ids, mask)[mask])
    assert build().config.attention_dropout == 0.3  # what is exported keeps its configuration


def test_own_state_round_trip_and_refusal_of_other_shapes(build, batch):
    ids, mask = batch
    base = CausalModel(build(), 1)
    fork = base.fork(trainable=True)
    for p in fork.trainable_parameters():
        p.data.add_(0.1)
    again = base.fork(trainable=True)
    again.load_own_state({n: t.clone() for n, t in fork.own_state().items()})
    assert torch.equal(again.hidden(ids, mask), fork.hidden(ids, mask))
    assert not any(n.startswith("model.layers.0.") or "embed" in n for n in fork.own_state())
    with pytest.raises(TrimtabError, match="do not fit"):
        CausalModel(build(), 2).load_own_state(fork.own_state())


def test_bfloat16_policy_and_reference_agree_exactly_and_masters_are_float32(build, batch):
    ids, mask = batch
    for k in (0, 1):
        reference = CausalModel(build().to(torch.bfloat16), k)
        policy = reference.fork(trainable=True)
        assert {p.dtype for p in policy.trainable_parameters()} == {torch.float32}
        assert {p.dtype for p in policy.fork(trainable=False).parameters()} == {torch.bfloat16}
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            a, b = (m.lm_logits(m.hidden(ids, mask)) for m in (reference, policy))
        assert torch.equal(a[mask], b[mask])
        # Outside autocast the float32 top still runs, on the bfloat16 trunk.
        assert policy.lm_logits(policy.hidden(ids, mask)).isfinite().all()


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), SafetensorError("I/O error: No space left on device")]
)
def test_a_model_that_cannot_be_written_is_told_in_plain_words(build, tmp_path, monkeypatch, error):
    model = CausalModel(build("llama"))

    def full(*_, **__):
        raise error

    monkeypatch.setattr(model.hf, "save_pretrained", full)
    with pytest.raises(TrimtabError, match=r"m: cannot be written: .*No space left.*\n.*is lost") as caught:
        model.save_pretrained(tmp_path / "m", pad_id=0)
    assert caught.value.kind is ErrorKind.FAILED


@pytest.mark.parametrize(("kind", "k"), [("llama", 0), ("llama", 2), ("qwen2", 1), ("gpt2", 0)])
def test_saved_scalar_model_scores_identically_in_plain_transformers(build, batch, tmp_path, kind, k):
    ids, mask = batch
    causal = CausalModel(build(kind), k)
    causal.hf.config.pad_token_id = 2  # the EOS token, as many models have it: not what our batches are padded with
    model = ScalarModel.from_causal(causal, generator=torch.Generator().manual_seed(1))
    model.save_pretrained(tmp_path, pad_id=0)
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert plain.config.num_labels == 1
    assert plain.config.pad_token_id == 0
    right_ids, right_mask = ids.flip(1), mask.flip(1)  # padded on the right
    with torch.no_grad():
        ours = model.score(right_ids, right_mask)
        theirs = plain(right_ids, attention_mask=right_mask).logits.squeeze(-1)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
        # On the left our scores take the padding out of the positions; so they equal those of the bare rows.
        left = model.score(ids, mask)
        bare = torch.cat([model.score(row[m][None], m[m][None]) for row, m in zip(ids, mask, strict=True)])
        torch.testing.assert_close(left, bare, rtol=0, atol=1e-5)
    loaded = load_scalar(tmp_path)
    with torch.no_grad():
        assert torch.equal(loaded.score(right_ids, right_mask), ours)


def test_score_is_the_value_at_the_last_real_token(build, batch):
    ids, mask = batch
    model = ScalarModel.from_causal(CausalModel(build()))
    for i, m in ((ids, mask), (ids.flip(1), mask.flip(1))):
        values, scores = model.values(i, m), model.score(i, m)
        expected = [row[flags.nonzero().max()] for row, flags in zip(values, m, strict=True)]
        torch.testing.assert_close(scores, torch.stack(expected), rtol=0, atol=1e-6)


def test_head_of_a_scalar_model(build):
    causal = CausalModel(build(hidden_size=400, num_attention_heads=4), 1)
    assert not ScalarModel.from_causal(causal, "zero").hf.score.weight.any()
    drawn = [ScalarModel.from_causal(causal, generator=torch.Generator().manual_seed(5)) for _ in range(2)]
    a, b = (m.hf.score.weight for m in drawn)
    assert torch.equal(a, b)
    assert abs(float(a.detach().std()) * math.sqrt(401) - 1) < 0.15
    shared = storages(drawn[0]) & storages(causal)
    assert shared == {p.data_ptr() for m in causal.backbone.shared_modules(1) for p in m.parameters()}


def test_the_head_is_given_contiguous_rows(build, batch):
    model = CausalModel(build(tie_word_embeddings=False))
    seen = []
    model.hf.lm_head.register_forward_pre_hook(lambda _m, inputs: seen.append(inputs[0]))
    logits = model.lm_logits(model.hidden(*batch)[:, 2:-1])
    assert logits.shape == (5, 3, 40)
    assert [(t.shape, t.is_contiguous()) for t in seen] == [((15, 32), True)]


def test_trunk_hash_tells_trunks_apart_and_not_dtypes(build):
    base = CausalModel(build().to(torch.bfloat16), 1)
    assert trunk_hash(base) == trunk_hash(CausalModel(build().to(torch.bfloat16).float(), 1))
    assert trunk_hash(base) == trunk_hash(base.fork(trainable=True))
    assert trunk_hash(base) != trunk_hash(CausalModel(build().to(torch.bfloat16), 2))
    other = build().to(torch.bfloat16)
    other.model.layers[0].mlp.up_proj.weight.data[0, 0] += 1
    assert trunk_hash(base) != trunk_hash(CausalModel(other, 1))
    assert trunk_hash(CausalModel(build())) == ""


def test_a_saved_scalar_model_shares_the_trunk_again_or_is_refused(build, batch, tmp_path):
    ids, mask = batch
    base = CausalModel(build(), 2)
    scalar = ScalarModel.from_causal(base)
    scalar.save_pretrained(tmp_path, pad_id=0)
    loaded = load_scalar(tmp_path, trunk_from=base)
    assert storages(loaded) & storages(base) == storages(scalar) & storages(base)
    assert torch.equal(loaded.score(ids, mask), scalar.score(ids, mask))
    with pytest.raises(TrimtabError, match="another trunk"):
        load_scalar(tmp_path, trunk_from=CausalModel(build(), 1))
    other = build()
    other.model.embed_tokens.weight.data[5] += 1
    with pytest.raises(TrimtabError, match="another trunk"):
        load_scalar(tmp_path, trunk_from=CausalModel(other, 2))


def test_adopting_a_trunk_keeps_a_tied_head_tied(build, batch):
    ids, mask = batch
    base, twin = CausalModel(build(), 1), CausalModel(build(), 1)
    adopt_trunk(twin, base)
    assert twin.hf.lm_head.weight is base.hf.model.embed_tokens.weight
    assert torch.equal(twin.lm_logits(twin.hidden(ids, mask)), base.lm_logits(base.hidden(ids, mask)))


def test_an_exported_policy_loads_in_plain_transformers_with_tied_weights(build, tmp_path):
    from transformers import AutoModelForCausalLM

    policy = CausalModel(build().to(torch.bfloat16), 1).fork(trainable=True)
    policy.save_pretrained(tmp_path, pad_id=0)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert plain.lm_head.weight.data_ptr() == plain.model.embed_tokens.weight.data_ptr()
    assert {p.dtype for p in plain.parameters()} == {torch.float32}
    saved = dict(plain.named_parameters())
    assert all(torch.equal(saved[n], p.float()) for n, p in policy.hf.named_parameters())
