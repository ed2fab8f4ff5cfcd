"""Tiny models of several architectures, and a tokenizer of whole words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

VOCABULARY = 40
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.3,
}
CHAT = (
    "{% for m in messages %}{% if m['role'] == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "<{{ m['role'] }}> {{ m['content'] }} <eos> {% endfor %}{% if add_generation_prompt %}<assistant> {% endif %}"
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def build() -> Callable[..., PreTrainedModel]:
    """build(kind, **config) -> an untrained transformers model; the same weights for the same arguments."""

    def make(kind: str = "llama", **changes: Any) -> PreTrainedModel:
        torch.manual_seed(0)
        if kind == "gpt2":
            config = GPT2Config(
                vocab_size=VOCABULARY, n_embd=32, n_layer=3, n_head=4, n_positions=64, resid_pdrop=0.3, attn_pdrop=0.3,
                pad_token_id=0, bos_token_id=1, eos_token_id=2, initializer_range=0.3, **changes,
            )  # fmt: skip
            return GPT2LMHeadModel(config)
        kinds: dict[str, Any] = {
            "llama": (LlamaConfig, LlamaForCausalLM, {"tie_word_embeddings": True, "attention_dropout": 0.3}),
            "qwen2": (Qwen2Config, Qwen2ForCausalLM, {"tie_word_embeddings": False}),
            "sliding": (MistralConfig, MistralForCausalLM, {"sliding_window": 4}),
        }
        config_class, model_class, own = kinds[kind]
        return model_class(config_class(**{**SIZES, **own, **changes}))

    return make


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    return word_tokenizer()


@pytest.fixture
def make_tokenizer() -> Callable[..., PreTrainedTokenizerFast]:
    return word_tokenizer


def word_tokenizer(*, chat: bool = False, **specials: str | None) -> PreTrainedTokenizerFast:
    names = ["<pad>", "<bos>", "<eos>", "<unk>", "<user>", "<assistant>", "<system>"]
    words = [*names, *(f"w{i}" for i in range(VOCABULARY - len(names)))]
    core = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = WhitespaceSplit()
    given = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"} | specials
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **{k: v for k, v in given.items() if v is not None})
    if chat:
        tokenizer.chat_template = CHAT
    return tokenizer


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts of 3 to 6 tokens, padded on the left: ids int64 [5, 6], mask bool [5, 6]."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(3, VOCABULARY, (5, 6), generator=generator)
    mask = torch.arange(6) >= torch.tensor([0, 3, 1, 2, 0])[:, None]
    return ids.masked_fill(~mask, 0), mask


@pytest.fixture
def saved(tmp_path: Path, build: Callable[..., PreTrainedModel], tokenizer: PreTrainedTokenizerFast) -> Path:
    """A Llama with its tokenizer in a directory."""
    build().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"
