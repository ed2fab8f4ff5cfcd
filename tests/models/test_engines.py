"""transformers' generate as an engine: the native loop's distribution, whatever the model's own settings say."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import AutoModelForCausalLM, MambaConfig

from trimtab.config.layout import Layout
from trimtab.errors import TrimtabError
from trimtab.models.engines.hf import TransformersEngine
from trimtab.models.engines.protocol import NativeEngine, as_generated
from trimtab.models.logprobs import response_logprobs
from trimtab.models.roles import CausalModel

EOS, PAD = 2, 0
ENDS = (2, 5, 7)


def sample(engine, model, batch, *, seed=0, **changes):
    settings = {"max_new_tokens": 10, "temperature": 1.0, "eos_ids": ENDS, "pad_id": PAD} | changes
    return engine.generate(model, *batch, generator=torch.Generator().manual_seed(seed), **settings)


def same(a, b):
    assert torch.equal(a.tokens, b.tokens)
    assert torch.equal(a.mask, b.mask)
    assert torch.equal(a.finished, b.finished)
    torch.testing.assert_close(a.logprobs, b.logprobs, rtol=0, atol=1e-5)


def trainers(model, batch, out, temperature=1.0):
    ids, mask = batch
    with torch.no_grad():
        return response_logprobs(
            model, torch.cat([ids, out.tokens], 1), torch.cat([mask, out.mask], 1), ids.shape[1], temperature
        ).logprobs


@pytest.mark.parametrize(("kind", "k"), [("llama", 0), ("llama", 1), ("qwen2", 2), ("gpt2", 0), ("sliding", 0)])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_responses_are_those_of_the_native_loop(build, batch, kind, k, temperature):
    model = CausalModel(build(kind), k).fork(trainable=True)
    lengths = set()
    for seed in range(3):
        settings = {"temperature": temperature, "seed": seed, "eos_ids": tuple(range(2, 12))}
        found = sample(TransformersEngine(), model, batch, **settings)
        same(found, sample(NativeEngine(), model, batch, **settings))
        gap = (found.logprobs - trainers(model, batch, found, temperature))[found.mask].abs().max()
        assert gap < 1e-5
        assert not found.logprobs[~found.mask].any()
        lengths |= set(found.mask.sum(-1).tolist())
        assert found.finished.any()
    assert len(lengths) >= 3


def test_adapters_count(build, batch):
    model = CausalModel(build(), lora=Layout.parse("lora").lora).fork(trainable=True)
    with torch.no_grad():
        for name, weight in model.own_parameters():
            if ".lora_B." in name:
                weight.normal_(generator=torch.Generator().manual_seed(1))
    found = sample(TransformersEngine(), model, batch)
    same(found, sample(NativeEngine(), model, batch))
    base = CausalModel(build())
    assert not torch.equal(found.tokens, sample(NativeEngine(), base, batch).tokens)


def test_several_responses_stand_together_and_differ(build, batch):
    model = CausalModel(build())
    found = sample(TransformersEngine(), model, batch, responses_per_prompt=3)
    same(found, sample(NativeEngine(), model, batch, responses_per_prompt=3))
    assert len({tuple(row.tolist()) for row in found.tokens[:3]}) > 1


def test_a_part_of_a_batch_gets_what_it_would_have_got_in_it(build, batch):
    model = CausalModel(build())
    ids, mask = batch[0][:4], batch[1][:4]
    whole = sample(TransformersEngine(), model, (ids, mask), responses_per_prompt=2)
    for number in range(2):
        rows = slice(2 * number, 2 * number + 2)
        own = sample(TransformersEngine(), model, (ids[rows], mask[rows]), responses_per_prompt=2, part=(number, 2))
        width = own.tokens.shape[1]
        there = slice(4 * number, 4 * number + 4)
        assert torch.equal(own.tokens, whole.tokens[there, :width])
        assert torch.equal(own.mask, whole.mask[there, :width])
        assert not whole.mask[there, width:].any()


def test_frequencies_follow_the_softmax_at_the_temperature(build):
    model, count = CausalModel(build()), 4000
    ids = torch.tensor([[5, 9, 11]]).repeat(count, 1)
    mask = torch.ones_like(ids, dtype=torch.bool)
    with torch.no_grad():
        logits = model.lm_logits(model.hidden(ids[:1], mask[:1]))[0, -1].double()
    for temperature in (0.5, 1.0):
        found = sample(TransformersEngine(), model, (ids, mask), max_new_tokens=1, eos_ids=(), temperature=temperature)
        expected = count * torch.softmax(logits / temperature, -1)
        counts = torch.bincount(found.tokens[:, 0], minlength=40).double()
        big = expected >= 5
        rest = (expected[~big].sum(), counts[~big].sum())
        terms = [*zip(expected[big], counts[big], strict=True), *([rest] if rest[0] >= 5 else [])]
        statistic = float(sum((seen - wanted) ** 2 / wanted for wanted, seen in terms))
        freedom = len(terms) - 1
        # Wilson and Hilferty: the cube root of chi-square / freedom is nearly normal
        z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
        assert abs(z) < 3.5, (statistic, freedom)
        assert counts[expected < 1e-6].sum() == 0


def test_the_models_own_generation_settings_do_not_sneak_in_and_come_back(build, batch):
    hf = build()
    plain = sample(NativeEngine(), CausalModel(hf), batch)
    for name, value in {
        "do_sample": True, "temperature": 0.1, "top_k": 2, "top_p": 0.1, "min_p": 0.5, "repetition_penalty": 9.0,
        "no_repeat_ngram_size": 1, "suppress_tokens": list(range(3, 20)), "min_new_tokens": 9, "num_beams": 3,
        "begin_suppress_tokens": [5, 7], "forced_eos_token_id": 2, "eos_token_id": 11, "sequence_bias": None,
    }.items():  # fmt: skip
        setattr(hf.generation_config, name, value)
    own = hf.generation_config
    same(sample(TransformersEngine(), CausalModel(hf), batch), plain)
    assert hf.generation_config is own


def test_the_global_generator_is_neither_read_nor_moved(build, batch):
    model = CausalModel(build())
    torch.manual_seed(1)
    before = torch.get_rng_state()
    a = sample(TransformersEngine(), model, batch)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    same(sample(TransformersEngine(), model, batch), a)


def test_the_padding_token_is_sampled_and_counts_like_any_other(build, batch):
    hf = build(tie_word_embeddings=False)
    with torch.no_grad():
        hf.lm_head.weight.zero_()
        hf.model.norm.weight.zero_()
        hf.model.norm.register_forward_hook(lambda _m, _i, out: out + 1.0)
        hf.lm_head.weight[PAD] = 10.0
    found = sample(TransformersEngine(), CausalModel(hf, probe=False), batch, max_new_tokens=4)
    assert found.tokens.tolist() == [[PAD] * 4] * 5
    assert found.mask.all()
    assert not found.finished.any()


def test_a_model_whose_state_the_native_loop_cannot_carry(batch):
    torch.manual_seed(0)
    config = MambaConfig(vocab_size=40, hidden_size=32, num_hidden_layers=2, state_size=4, initializer_range=0.3)
    model = CausalModel(AutoModelForCausalLM.from_config(config).eval())
    found = sample(TransformersEngine(), model, batch)
    assert (found.logprobs - trainers(model, batch, found))[found.mask].abs().max() < 1e-5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": 0.0}, "temperature = 0"),
        ({"max_new_tokens": 0}, "max_new_tokens = 0"),
        ({"max_new_tokens": 60}, "context of 64"),
    ],
)
def test_bad_requests_are_refused(build, batch, changes, message):
    with pytest.raises(TrimtabError, match=message):
        sample(TransformersEngine(), CausalModel(build()), batch, **changes)


def test_responses_as_a_batch_by_hand():
    found = as_generated(
        [[4, 2, 9, 9], [0, 0, 3], [7, 8, 2]], [[-1.0, -2.0, -9.0, -9.0], [-3.0, -4.0, -5.0], [-6.0, -7.0, -8.0]],
        max_new_tokens=3, eos_ids=(2,), pad_id=0, device=torch.device("cpu"),
    )  # fmt: skip
    assert found.tokens.tolist() == [[4, 2, 0], [0, 0, 3], [7, 8, 2]]
    assert found.mask.tolist() == [[True, True, False], [True, True, True], [True, True, True]]
    assert found.logprobs.tolist() == [[-1.0, -2.0, 0.0], [-3.0, -4.0, -5.0], [-6.0, -7.0, -8.0]]
    assert found.finished.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("rows", "logprobs"), [([[4, 3]], [[-1.0, -1.0]]), ([[]], [[]]), ([[4, 3, 3]], [[-1.0, -1.0]])]
)
def test_a_response_that_stops_before_its_end_is_refused(rows, logprobs):
    with pytest.raises(TrimtabError, match=r"response 0 has \d tokens"):
        as_generated(rows, logprobs, max_new_tokens=3, eos_ids=(2,), pad_id=0, device=torch.device("cpu"))
