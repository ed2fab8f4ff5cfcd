"""What tests of backbones share: tiny untrained encoders and decoders in directories, with tokenizers of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel, WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from trimtab.worlds.tiny import WORDS

ENCODERS = ("bert", "roberta")
CAUSAL = ("gpt2", "llama")
VOCABULARY = 400
_SPECIALS = ["<pad>", "<s>", "</s>", "<unk>"]
_CHAT = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }}\n{{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant\n{% endif %}"
)


def tokenizer(kind: str, *, chat: bool = False) -> PreTrainedTokenizerFast:
    """Of an encoder: words, as `<s> A </s> B </s>` (bert, with token types; roberta has two separators); of gpt2: bytes
    and pairs of them, nothing added; of llama: the same behind `<s>`."""
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if kind == "bert" else ["input_ids", "attention_mask"]
    shapes = {
        "bert": ("<s> $A </s>", "<s> $A </s> $B:1 </s>:1"),
        "roberta": ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
        "llama": ("<s> $A", "<s> $A $B"),
    }
    if kind in ENCODERS:
        core = Tokenizer(WordLevel({w: i for i, w in enumerate((*_SPECIALS, *WORDS))}, unk_token="<unk>"))
        core.pre_tokenizer = WhitespaceSplit()
    else:
        core = Tokenizer(BPE())
        core.pre_tokenizer = ByteLevel(add_prefix_space=False)
        core.decoder = ByteLevelDecoder()
        trainer = BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=_SPECIALS, initial_alphabet=ByteLevel.alphabet(), show_progress=False
        )
        core.train_from_iterator([" ".join(WORDS), "user assistant"], trainer)
    if kind in shapes:
        single, pair = shapes[kind]
        core.post_processor = TemplateProcessing(single=single, pair=pair, special_tokens=[("<s>", 1), ("</s>", 2)])
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>",
        model_input_names=inputs,
    )  # fmt: skip
    if chat:
        made.chat_template = _CHAT
    return made


def build(kind: str, **changes: Any) -> Any:
    """An untrained model; the same weights for the same arguments."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2, "initializer_range": 0.2,
    } | changes  # fmt: skip
    if kind == "gpt2":
        config = GPT2Config(
            vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64, pad_token_id=0, bos_token_id=1,
            eos_token_id=2, initializer_range=0.2,
        )  # fmt: skip
        return GPT2LMHeadModel(config)
    kinds: dict[str, Any] = {
        "bert": (BertConfig, BertModel), "bert-mlm": (BertConfig, BertForMaskedLM),
        "roberta": (RobertaConfig, RobertaModel), "llama": (LlamaConfig, LlamaForCausalLM),
    }  # fmt: skip
    config_class, model_class = kinds[kind]
    return model_class(config_class(**sizes))


def saved(directory: Path, kind: str, *, chat: bool = False, **changes: Any) -> Path:
    """Model and tokenizer in `directory / kind`."""
    target = directory / kind
    build(kind, **changes).save_pretrained(target)
    tokenizer(kind.partition("-")[0], chat=chat).save_pretrained(target)
    return target
