"""The tokenizer and the untrained model of the tiny world, as an ordinary local model directory."""

from __future__ import annotations

import os

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from trimtab.worlds.tiny import BOS, EOS, MAX_RESPONSE_TOKENS, PAD, PROMPT_TOKENS, SPECIALS, UNK, WORDS

__all__ = ["CONTEXT_TOKENS", "build_model", "build_tokenizer", "write_model"]

HIDDEN, LAYERS, HEADS, INTERMEDIATE = 64, 2, 2, 160
CONTEXT_TOKENS = 2 * (PROMPT_TOKENS + MAX_RESPONSE_TOKENS)
"""Longest prompt with response that the model accepts; twice what the tiny world needs."""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word, four different special tokens (pad, bos, eos, unk), nothing added, no chat template."""
    vocabulary = {word: i for i, word in enumerate((*SPECIALS, *WORDS))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=UNK))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNK,
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )


def build_model(seed: int, layers: int = LAYERS) -> LlamaForCausalLM:
    """An untrained Llama of 0.10 M parameters with random weights.

    Args:
        seed: of the weights; the global random state is left as it is.
        layers: more than the usual ones add 0.05 M parameters each.
    """
    tokenizer = build_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        intermediate_size=INTERMEDIATE,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


def write_model(directory: str | os.PathLike[str], seed: int) -> None:
    """Write the untrained model and its tokenizer to `directory` (safetensors and JSON), to be trained by `sft`."""
    build_model(seed).save_pretrained(directory)
    build_tokenizer().save_pretrained(directory)
