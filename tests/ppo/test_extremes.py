"""Sizes at their ends: vocabularies, prompts, batches, responses."""

from __future__ import annotations

import math
import resource
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from transformers import LlamaConfig, LlamaForCausalLM

from ppo_settings import small
from trimtab import ppo
from trimtab.config.ppo import PPOConfig
from trimtab.data.records import Message, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.models.tokens import TextCodec
from trimtab.preference.model import PreferenceModel
from trimtab.training.precision import Precision
from trimtab.worlds.model import build_tokenizer
from trimtab.worlds.tiny import WORDS

ONE = {"batch_size": 1, "minibatches": 1}


class Spread:
    """A score that differs between responses and prompts, whatever the responses' texts are."""

    name = "spread"

    def score(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> np.ndarray:
        of_prompts = [sum(map(ord, p.text)) % 7 for p in prompts]
        return np.array([i % 3 + 0.1 * r.tokens + 0.3 * of_prompts[i] for i, r in enumerate(responses)])


def tiny(vocabulary: int | None = None, context: int = 64) -> CausalModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary or len(build_tokenizer()), hidden_size=8, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=1, num_key_value_heads=1, max_position_embeddings=context, tie_word_embeddings=False,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, initializer_range=0.3,
    )  # fmt: skip
    model = CausalModel(LlamaForCausalLM(config))
    model.requires_grad_(False)
    return model


def prompt(words: int, name: str = "p") -> Prompt:
    return Prompt(name, (Message("user", " ".join(WORDS[i % 60] for i in range(words))),))


def critic_free(advantage: str, **changes: object) -> PPOConfig:
    base = small().model_dump(exclude_defaults=True)
    del base["value_learning_rate"]
    return PPOConfig.model_validate(base | {"advantage": advantage, "responses_per_prompt": 2} | changes)


def trained(config: PPOConfig, base: CausalModel, codec: TextCodec, prompts: Sequence[Prompt], **more: Any) -> Any:
    """The run, after a look at it: weights and signals are numbers."""
    result = ppo.train(config, base.fork(True), codec, prompts, more.pop("scorer", Spread()), **more)
    for parameter in result.policy.parameters():
        assert bool(parameter.isfinite().all())
    for row in result.history:
        # undefined where returns do not vary: documented
        wrong = [key for key, x in row.items() if not math.isfinite(x) and key != "value/explained_variance"]
        assert wrong == []
    return result


def moved(result: Any, base: CausalModel) -> bool:
    return any(not torch.equal(a, b) for a, b in zip(result.policy.parameters(), base.parameters(), strict=True))


@pytest.mark.parametrize("layout", [{"max_new_tokens": 6}, {"max_new_tokens": 1, "advantage_whitening": False}])
def test_a_batch_of_one_response_learns(codec, few_prompts, layout):
    base = tiny()
    changes = {"value_normalisation": True, "score_normalisation": "running", "reward_whitening": True}
    for more in ({}, changes):
        result = trained(small(**ONE, **layout, **more), base, codec, few_prompts)
        assert moved(result, base)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_new_tokens": 1}, "advantage of the only token"),
        ({"value": "prompt"}, "the only advantage"),
        ({"score_normalisation": "batch"}, "score of a batch of one 0"),
    ],
)
def test_a_batch_of_one_that_could_learn_nothing_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        small(**ONE, **changes)
    small(**{**ONE, "batch_size": 2}, **changes)


@pytest.mark.parametrize("placement", ["token", "sequence_mean", "loss"])
def test_responses_of_one_token_with_a_value_model(codec, few_prompts, placement):
    estimator = "full" if placement == "loss" else "k1"
    config = small(
        max_new_tokens=1, kl_placement=placement, kl_estimator=estimator, reward_whitening=True, value_clip_range=0.2
    )
    base = tiny()
    result = trained(config, base, codec, few_prompts)
    assert result.history[0]["response/length_mean"] == 1
    assert moved(result, base)


@pytest.mark.parametrize("advantage", ["rloo", "grpo"])
@pytest.mark.parametrize("batch", [2, 8])
def test_responses_of_one_token_without_one(codec, few_prompts, advantage, batch):
    base = tiny()
    result = trained(critic_free(advantage, max_new_tokens=1, batch_size=batch), base, codec, few_prompts)
    assert moved(result, base)


@pytest.mark.parametrize("advantage", ["gae", "rloo", "grpo"])
def test_responses_that_are_empty_but_for_their_eos(codec, few_prompts, advantage):
    base = tiny()
    with torch.no_grad():  # every hidden state is the same, and points at EOS
        base.hf.model.embed_tokens.weight.fill_(1.0)
        for layer in base.hf.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        base.hf.lm_head.weight.zero_()
        base.hf.lm_head.weight[next(iter(codec.eos_ids))] = 20.0
    config = small(missing_eos_penalty=1.0) if advantage == "gae" else critic_free(advantage)
    row = trained(config, base, codec, few_prompts).history[-1]
    assert row["response/length_mean"] == 1
    assert row["response/finished_fraction"] == 1


def test_a_prompt_as_long_as_the_context_leaves_room_for(codec):
    base, words = tiny(context=40), 1
    while len(codec.prompt_ids(prompt(words))) < 39:
        words += 1
    just = prompt(words)
    assert len(codec.prompt_ids(just)) == 39
    trained(small(max_new_tokens=1, responses_per_prompt=2), base, codec, [just])
    with pytest.raises(TrimtabError, match="prompt 'p' has 39 tokens; with 2 new ones it exceeds the model's context"):
        ppo.train(small(max_new_tokens=2), base.fork(True), codec, [just], Spread())


def test_tokens_that_the_tokenizer_does_not_have_are_sampled_and_trained_on(codec, few_prompts):
    size = len(codec.tokenizer)
    base = tiny(size + 2000)
    texts: list[Response] = []

    class Listening(Spread):
        def score(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> np.ndarray:
            texts.extend(responses)
            return super().score(prompts, responses)

    result = trained(small(), base, codec, few_prompts, scorer=Listening())
    assert moved(result, base)
    # most tokens are beyond: they count, and have no text
    assert all(r.tokens > len(r.text.split()) for r in texts if r.tokens == 6)


def test_a_policy_with_fewer_rows_than_the_tokenizer_has_tokens_is_refused(codec, few_prompts):
    with pytest.raises(TrimtabError, match=r"token ids up to 103, the policy has 60 embedding rows") as caught:
        ppo.train(small(), tiny(60).fork(True), codec, few_prompts, Spread())
    assert caught.value.kind == ErrorKind.MODEL


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_vocabulary_of_256_thousand(codec, few_prompts, dtype):
    base = tiny(256_000)
    preference = ScalarModel.from_causal(base, trainable=False, generator=torch.Generator().manual_seed(0))
    scorer = PreferenceModel(preference, codec, Precision(dtype, torch.device("cpu")))
    config = small(batch_size=4, probe_prompts=0, iterations=1, minibatches=1, max_new_tokens=3, value_init="reference")
    precision = Precision(dtype, torch.device("cpu"))
    result = trained(config, base, codec, few_prompts, scorer=scorer, preference=preference, precision=precision)
    assert moved(result, base)


@pytest.mark.slow
def test_prompts_of_32_thousand_tokens():
    """Two of different lengths: rollout, preference model's scores, values, update; no mask of all pairs."""
    plain = TextCodec(build_tokenizer(), "off")
    base = tiny(context=32_100)
    preference = ScalarModel.from_causal(base, trainable=False, generator=torch.Generator().manual_seed(0))
    scorer = PreferenceModel(preference, plain, Precision("float32", torch.device("cpu")))
    config = small(iterations=1, batch_size=2, minibatches=1, epochs=1, max_new_tokens=4, probe_prompts=0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pair = [prompt(32_000, "long"), prompt(20_000, "shorter")]
    result = trained(config, base, plain, pair, scorer=scorer, preference=preference)
    assert moved(result, base)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    assert grown < 1.0, f"{grown:.2f} GiB: one mask [2, L, L] alone has 1.9"
