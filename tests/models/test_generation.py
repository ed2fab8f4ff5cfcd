"""Sampling against the definitions: full softmax, lengths, log-probabilities, independence of rows."""

from __future__ import annotations

import pytest
import torch

from trimtab.errors import TrimtabError
from trimtab.models.backbone import Decoder
from trimtab.models.generation import generate
from trimtab.models.logprobs import response_logprobs
from trimtab.models.roles import CausalModel

EOS, PAD = 2, 0


def sample(model, batch, *, tokens=10, temperature=1.0, eos=(EOS,), seed=0):
    ids, mask = batch
    return generate(
        model, ids, mask, max_new_tokens=tokens, temperature=temperature, eos_ids=eos, pad_id=PAD,
        generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip


def whole(batch, out):
    ids, mask = batch
    return torch.cat([ids, out.tokens], 1), torch.cat([mask, out.mask], 1)


@pytest.mark.parametrize(("kind", "k"), [("llama", 0), ("llama", 1), ("qwen2", 2), ("gpt2", 0), ("sliding", 0)])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("padded", [True, False])
def test_rollout_logprobs_equal_a_forward_pass(build, batch, kind, k, temperature, padded):
    if not padded:
        batch = batch[0].clamp(min=3), torch.ones_like(batch[1])
    model = CausalModel(build(kind), k).fork(trainable=True)
    out = sample(model, batch, temperature=temperature, tokens=12)
    ids, mask = whole(batch, out)
    with torch.no_grad():
        forward = response_logprobs(model, ids, mask, batch[0].shape[1], temperature).logprobs
    assert (forward - out.logprobs)[out.mask].abs().max() < 1e-4
    assert not out.logprobs[~out.mask].any()


def test_eager_attention_decodes_like_sdpa(build, batch):
    outs = []
    for kind in ("eager", "sdpa"):
        hf = build()
        hf.set_attn_implementation(kind)
        outs.append(sample(CausalModel(hf), batch))
    assert torch.equal(outs[0].tokens, outs[1].tokens)
    torch.testing.assert_close(outs[0].logprobs, outs[1].logprobs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_lengths_and_ends(build, batch, kind):
    model = CausalModel(build(kind))
    eos = (2, 5, 7)
    for seed in range(5):
        out = sample(model, batch, eos=eos, seed=seed, tokens=9)
        lengths = out.mask.sum(-1)
        assert out.tokens.shape == out.mask.shape == out.logprobs.shape
        assert out.tokens.shape[1] == int(lengths.max())
        for row, length, finished in zip(out.tokens.tolist(), lengths.tolist(), out.finished.tolist(), strict=True):
            ends = [i for i, t in enumerate(row[:length]) if t in eos]
            assert ends == ([length - 1] if finished else [])
            assert finished or length == 9
            assert set(row[length:]) <= {PAD}
        places = torch.arange(out.tokens.shape[1])
        assert torch.equal(out.mask, places < lengths[:, None])


def forced(build, token):
    """A model that gives one token nearly all probability, whatever comes before."""
    hf = build(tie_word_embeddings=False)
    with torch.no_grad():
        hf.model.norm.weight.zero_()
        hf.model.norm.register_forward_hook(lambda _m, _i, out: out + 1.0)
        hf.lm_head.weight.zero_()
        hf.lm_head.weight[token] = 10.0
    return CausalModel(hf, probe=False)


def test_all_eos_batch_is_one_token_long(build, batch):
    out = sample(forced(build, EOS), batch)
    assert out.tokens.tolist() == [[EOS]] * 5
    assert out.mask.all()
    assert out.finished.all()


def test_the_padding_token_is_sampled_and_counts_like_any_other(build, batch):
    out = sample(forced(build, PAD), batch, tokens=4)
    assert out.tokens.tolist() == [[PAD] * 4] * 5
    assert out.mask.all()
    assert not out.finished.any()


def test_frequencies_follow_the_softmax_at_the_temperature(build):
    model = CausalModel(build())
    ids = torch.tensor([[5, 9, 11]]).repeat(4000, 1)
    mask = torch.ones_like(ids, dtype=torch.bool)
    with torch.no_grad():
        logits = model.lm_logits(model.hidden(ids[:1], mask[:1]))[0, -1].double()
    for temperature in (0.5, 1.0):
        out = sample(model, (ids, mask), tokens=1, temperature=temperature, eos=())
        expected = 4000 * torch.softmax(logits / temperature, -1)
        counts = torch.bincount(out.tokens[:, 0], minlength=40).double()
        deviation = (counts - expected) / (expected * (1 - expected / 4000)).sqrt()
        assert deviation[expected > 5].abs().max() < 4
        assert counts[expected < 1e-6].sum() == 0


def test_a_rows_response_does_not_depend_on_padding_or_on_the_other_rows_ends(build, batch):
    model = CausalModel(build())
    ids, mask = batch
    without = sample(model, batch, eos=(), tokens=12)
    # Many EOS ids: rows end at once and are dropped from the decoder; what the others sample must not change.
    out = sample(model, batch, eos=tuple(range(2, 12)), tokens=12)
    assert out.finished.sum() >= 3
    assert len(set(out.mask.sum(-1).tolist())) >= 3
    for row in range(5):
        length = int(out.mask[row].sum())
        assert torch.equal(out.tokens[row, :length], without.tokens[row, :length])
        torch.testing.assert_close(out.logprobs[row, :length], without.logprobs[row, :length], rtol=0, atol=1e-5)
    wider = torch.nn.functional.pad(ids, (3, 0)), torch.nn.functional.pad(mask, (3, 0))
    padded = sample(model, wider, eos=(), tokens=12)
    assert torch.equal(padded.tokens, without.tokens)
    torch.testing.assert_close(padded.logprobs, without.logprobs, rtol=0, atol=1e-5)


def test_same_stream_same_responses(build, batch):
    model = CausalModel(build())
    a, b, c = (sample(model, batch, seed=s) for s in (1, 1, 2))
    assert torch.equal(a.tokens, b.tokens)
    assert not torch.equal(a.tokens[:, :5], c.tokens[:, :5])


def test_training_after_sampling_in_one_autocast_context_still_gets_gradients(build, batch):
    model = CausalModel(build()).fork(trainable=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = sample(model, batch)
        response_logprobs(model, *whole(batch, out), 6, 1.0).logprobs.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.trainable_parameters())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.0}, "temperature = 0"),
        ({"temperature": float("nan")}, "temperature = nan"),
        ({"tokens": 0}, "max_new_tokens = 0"),
        ({"tokens": 60}, "context of 64"),
    ],
)
def test_bad_settings_are_refused(build, batch, change, message):
    with pytest.raises(TrimtabError, match=message):
        sample(CausalModel(build()), batch, **change)


def test_an_empty_prompt_is_refused(build, batch):
    ids, mask = batch
    mask = mask.clone()
    mask[3] = False
    with pytest.raises(TrimtabError, match="prompt 3 of the batch has no token"):
        sample(CausalModel(build()), (ids, mask))


@pytest.mark.parametrize(("kind", "k"), [("llama", 0), ("qwen2", 1), ("gpt2", 0), ("sliding", 0)])
@pytest.mark.parametrize("padded", [True, False])
def test_several_responses_read_their_prompt_once_and_are_those_of_repeated_prompts(
    build, batch, monkeypatch, kind, k, padded
):
    ids, mask = batch
    if not padded:
        ids, mask = ids.clamp(min=3), torch.ones_like(mask)
    model, read = CausalModel(build(kind), k), []
    prefill = Decoder.prefill
    monkeypatch.setattr(Decoder, "prefill", lambda self, ids: read.append(len(ids)) or prefill(self, ids))
    settings = {"max_new_tokens": 10, "temperature": 1.0, "eos_ids": (EOS, 5, 7), "pad_id": PAD}
    shared = generate(
        model, ids, mask, generator=torch.Generator().manual_seed(3), responses_per_prompt=3, **settings
    )  # fmt: skip
    repeated = generate(
        model, ids.repeat_interleave(3, 0), mask.repeat_interleave(3, 0), generator=torch.Generator().manual_seed(3),
        **settings,
    )  # fmt: skip
    assert read == [5, 15]
    assert torch.equal(shared.tokens, repeated.tokens)
    assert torch.equal(shared.finished, repeated.finished)
    torch.testing.assert_close(shared.logprobs, repeated.logprobs, rtol=0, atol=1e-5)
    assert len({tuple(row.tolist()) for row in shared.tokens[:3]}) > 1
