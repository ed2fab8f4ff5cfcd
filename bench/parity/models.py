"""Small random models and their tokenizer, in the shapes that both sides take."""

from __future__ import annotations

from typing import Any

import torch

EOS, PAD = 1, 2


def tokenizer(vocabulary: int) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(vocabulary)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token=f"w{EOS}", pad_token=f"w{PAD}", padding_side="left"
    )


def sizes(vocabulary: int, layers: int = 2) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=vocabulary, hidden_size=32, intermediate_size=48, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=False, bos_token_id=EOS,
        eos_token_id=EOS, pad_token_id=PAD, initializer_range=0.2,
    )  # fmt: skip


def causal(vocabulary: int, seed: int, layers: int = 2) -> Any:
    """A language model; its weights are large enough that tokens differ in probability."""
    from transformers import LlamaForCausalLM

    torch.manual_seed(seed)
    return LlamaForCausalLM(sizes(vocabulary, layers)).eval()


def scalar(vocabulary: int, seed: int) -> Any:
    """A sequence classifier with one label."""
    from transformers import LlamaForSequenceClassification

    torch.manual_seed(seed)
    config = sizes(vocabulary)
    config.num_labels = 1
    return LlamaForSequenceClassification(config).eval()
