"""Text and token ids: chat templates, EOS, padding."""

from __future__ import annotations

import pytest
import torch

from trimtab.data.records import Message, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.tokens import TextCodec, left_pad, right_pad

PROMPT = Prompt("p1", (Message("user", "w1 w2"),))


def words(codec, ids):
    return codec.tokenizer.convert_ids_to_tokens(ids)


def test_plain_prompts_and_responses(tokenizer):
    codec = TextCodec(tokenizer)
    assert not codec.chat
    assert words(codec, codec.prompt_ids(PROMPT)) == ["w1", "w2"]
    assert words(codec, codec.response_ids(Response("w3 w4"))) == ["w3", "w4", "<eos>"]
    assert words(codec, codec.response_ids(Response("w3", finished=False))) == ["w3"]
    assert codec.response_ids(Response("")) == [codec.eos_id]
    assert codec.decode(codec.response_ids(Response("w3 w4"))) == "w3 w4"
    several = Prompt("p2", (Message("system", "w5"), Message("user", "w6")))
    assert words(codec, codec.prompt_ids(several)) == ["<unk>", "w5", "<unk>", "w6"]  # `role: content` lines
    assert words(codec, codec.prompt_ids_with_system(PROMPT, "w9")) == ["w9", "w1", "w2"]


def test_chat_prompts_go_through_the_template(make_tokenizer):
    codec = TextCodec(make_tokenizer(chat=True))
    assert codec.chat
    assert words(codec, codec.prompt_ids(PROMPT)) == ["<user>", "w1", "w2", "<eos>", "<assistant>"]
    with_system = ["<system>", "w9", "<eos>", "<user>", "w1", "w2", "<eos>", "<assistant>"]
    assert words(codec, codec.prompt_ids_with_system(PROMPT, "w9")) == with_system
    own = Prompt("p2", (Message("system", "w5"), *PROMPT.messages))
    assert words(codec, codec.prompt_ids_with_system(own, "w9"))[:4] == ["<system>", "w9", "w5", "<eos>"]
    assert not TextCodec(make_tokenizer(chat=True), "off").chat


def test_a_prompt_that_the_template_refuses_is_named(make_tokenizer):
    codec = TextCodec(make_tokenizer(chat=True))
    with pytest.raises(TrimtabError, match=r'refuses prompt "bad" \(roles: tool\): no tools') as error:
        codec.prompt_ids(Prompt("bad", (Message("tool", "w1"),)))
    assert error.value.kind is ErrorKind.DATA


def test_a_prompt_without_tokens_is_named(tokenizer):
    with pytest.raises(TrimtabError, match='prompt "void" has no token'):
        TextCodec(tokenizer).prompt_ids(Prompt("void", (Message("user", "  "),)))


@pytest.mark.parametrize("chat", [True, False])
def test_half_a_character_names_the_prompt(make_tokenizer, chat):
    codec = TextCodec(make_tokenizer(chat=chat))
    broken = Prompt("odd", (Message("user", "w1 \ud83d w2"),))
    for ask in (
        lambda: codec.prompt_ids(broken),
        lambda: codec.prompt_ids_with_system(Prompt("odd", PROMPT.messages), "w1 \ud83d"),
        lambda: codec.response_ids(Response("w1 \ud83d"), "odd"),
    ):
        with pytest.raises(TrimtabError, match=r'prompt "odd" holds half a character \(\\ud83d\) at place 3') as error:
            ask()
        assert error.value.kind is ErrorKind.DATA
    with pytest.raises(TrimtabError, match="a response holds half a character"):
        codec.response_ids(Response("\ud83d"))


def test_an_eos_that_the_tokenizer_closes_texts_with_is_taken_off(tokenizer):
    from tokenizers.processors import TemplateProcessing

    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 1), ("<eos>", 2)]
    )
    codec = TextCodec(tokenizer)
    assert words(codec, codec.prompt_ids(PROMPT)) == ["<bos>", "w1", "w2"]
    assert words(codec, codec.response_ids(Response("w3"))) == ["w3", "<eos>"]


@pytest.mark.parametrize("pad", ["<eos>", None])
def test_padding_is_never_an_eos_token(make_tokenizer, pad):
    codec = TextCodec(make_tokenizer(pad_token=pad))
    assert codec.pad_id not in codec.eos_ids
    assert codec.tokenizer.pad_token_id == codec.pad_id
    # `<pad>` is in the vocabulary and is found by its name.
    assert codec.pad_id == 0


def test_padding_avoids_every_eos_id(make_tokenizer):
    codec = TextCodec(make_tokenizer(), eos_ids={0, 2})
    assert codec.eos_ids == {0, 2}
    assert codec.pad_id == 3  # `<unk>`


def test_no_token_to_pad_with_is_refused(make_tokenizer):
    with pytest.raises(TrimtabError, match="no token to pad with"):
        TextCodec(make_tokenizer(unk_token=None, bos_token=None, pad_token="<eos>"), eos_ids={0})


def test_no_eos_is_refused(make_tokenizer):
    with pytest.raises(TrimtabError, match="no EOS token"):
        TextCodec(make_tokenizer(eos_token=None))
    assert TextCodec(make_tokenizer(eos_token=None), eos_ids={9}).eos_id == 9


def test_the_appended_eos_is_the_one_that_the_template_ends_an_answer_with(make_tokenizer):
    tokenizer = make_tokenizer(chat=True, eos_token="<bos>")
    assert TextCodec(tokenizer, eos_ids={2}).eos_id == 2
    assert TextCodec(tokenizer, "off", eos_ids={2}).eos_id == 1


def test_a_vocabulary_larger_than_the_embedding_is_refused(tokenizer):
    codec = TextCodec(tokenizer)
    codec.check_model(40, "m")
    codec.check_model(64, "m")  # models often round their rows up
    with pytest.raises(TrimtabError, match="token ids up to 39, m has 39 embedding rows"):
        codec.check_model(39, "m")


def test_padding_by_hand():
    ids, mask = left_pad([[5, 6], [7], [8, 9, 4]], 1)
    assert ids.tolist() == [[1, 5, 6], [1, 1, 7], [8, 9, 4]]
    assert mask.tolist() == [[False, True, True], [False, False, True], [True] * 3]
    ids, mask = right_pad([[5, 6], [], [1, 1, 1]], 1)
    assert ids.tolist() == [[5, 6, 1], [1, 1, 1], [1, 1, 1]]
    assert mask.tolist() == [[True, True, False], [False] * 3, [True] * 3]
    assert ids.dtype == torch.int64
    assert mask.dtype == torch.bool
    assert left_pad([], 0)[0].shape == (0, 0)


def test_responses_are_cut_by_their_lengths_not_by_their_tokens(tokenizer):
    codec = TextCodec(tokenizer)
    tokens = torch.tensor([[10, 0, 11, 2], [10, 2, 0, 0]])
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    out = codec.responses(tokens, mask, torch.tensor([True, True]))
    assert [(r.tokens, r.finished) for r in out] == [(4, True), (2, True)]
    assert out[1].text == codec.decode([10])
