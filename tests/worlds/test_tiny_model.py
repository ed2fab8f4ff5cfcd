"""The tiny model is an ordinary model directory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from trimtab.worlds import tiny
from trimtab.worlds.model import build_model, build_tokenizer, write_model


def test_one_token_a_word_and_back() -> None:
    tokenizer = build_tokenizer()
    assert len(tokenizer) == 104
    text = " ".join(tiny.WORDS)
    ids = tokenizer(text).input_ids
    assert ids == list(range(4, 104))
    assert tokenizer.decode([*ids, tokenizer.eos_token_id], skip_special_tokens=True) == text
    assert all(len(tokenizer(p.text).input_ids) == 8 for p in tiny.prompts(50, seed=0))
    assert tokenizer("seed unheard").input_ids[1] == tokenizer.unk_token_id


def test_special_tokens_are_four_and_there_is_no_chat_template() -> None:
    tokenizer = build_tokenizer()
    ids = [tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id]
    assert ids == [0, 1, 2, 3]
    assert tokenizer.chat_template is None


def test_size_and_seed() -> None:
    state = torch.random.get_rng_state()
    model = build_model(0)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert 100_000 <= sum(p.numel() for p in model.parameters()) <= 300_000
    same, other = build_model(0).state_dict(), build_model(1).state_dict()
    assert all(torch.equal(w, same[k]) for k, w in model.state_dict().items())
    assert not torch.equal(model.state_dict()["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


@pytest.mark.filterwarnings("ignore")
def test_the_directory_loads_in_plain_transformers(tmp_path: Path) -> None:
    write_model(tmp_path, seed=3)
    tokenizer, model = AutoTokenizer.from_pretrained(tmp_path), AutoModelForCausalLM.from_pretrained(tmp_path)
    text = tiny.prompts(1, seed=0)[0].text
    ids = torch.tensor([tokenizer(text).input_ids])
    assert ids.shape == (1, 8)
    torch.testing.assert_close(model(ids).logits, build_model(3)(ids).logits, rtol=0, atol=0)
    assert model.config.eos_token_id == tokenizer.eos_token_id == 2
    assert model.config.pad_token_id == tokenizer.pad_token_id == 0
