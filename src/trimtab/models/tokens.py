"""Text to token ids and back, and padding."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from jinja2 import TemplateError
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from trimtab.data.records import Message, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.writing import writing_weights

__all__ = ["TextCodec", "check_text", "left_pad", "right_pad"]

_PAD_NAMES = ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>", "<|endoftext|>")


class TextCodec:
    """A tokenizer with the decisions that every stage must share: chat template, EOS and padding.

    Args:
        tokenizer: a transformers tokenizer; its padding token is set to the one chosen here.
        chat: "auto": prompts go through `apply_chat_template` where the tokenizer has a template; "off": plain text.
        eos_ids: every token that ends a response, e.g. from the generation configuration; the tokenizer's own is added.

    Raises:
        TrimtabError: no EOS token, or no token to pad with that is not an EOS token.
    """

    tokenizer: Any

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        chat: Literal["auto", "off"] = "auto",
        *,
        eos_ids: Collection[int] = (),
    ) -> None:
        self.tokenizer = tokenizer
        self.chat: bool = chat == "auto" and bool(self.tokenizer.chat_template)
        """Whether prompts go through the chat template."""
        own = self.tokenizer.eos_token_id
        self.eos_ids: frozenset[int] = frozenset(eos_ids) | (frozenset() if own is None else {own})
        """Tokens that end a response."""
        if not self.eos_ids:
            raise TrimtabError(
                ErrorKind.MODEL,
                f"the tokenizer {_name(tokenizer)} has no EOS token: no response could ever end",
                "set eos_token in its tokenizer_config.json, or eos_token_id in the model's generation_config.json",
            )
        self.eos_id: int = self._turn_end() if self.chat else (min(self.eos_ids) if own is None else own)
        """The token that is put after a finished response."""
        self.pad_id: int = self._padding()
        """Fills padded positions; never an EOS token."""
        self.tokenizer.pad_token = self.tokenizer.convert_ids_to_tokens(self.pad_id)

    def _turn_end(self) -> int:
        """The EOS token that the chat template itself writes after an answer; else the tokenizer's own."""
        probe = [Message("user", "a"), Message("assistant", "b")]
        try:
            ids = self._template(probe, generation_prompt=False)
        except TemplateError:
            ids = []
        own = self.tokenizer.eos_token_id
        return next((i for i in reversed(ids) if i in self.eos_ids), min(self.eos_ids) if own is None else own)

    def _padding(self) -> int:
        """The tokenizer's padding token, or where that is missing or an EOS token, a special token that is neither.

        Were padding an EOS token, transformers' sequence classifiers would read the score before the EOS.
        """
        tok = self.tokenizer
        vocabulary = tok.get_vocab()
        named = [vocabulary.get(n) for n in _PAD_NAMES]
        specials = sorted(i for i, t in tok.added_tokens_decoder.items() if t.special and i != tok.bos_token_id)
        for candidate in [tok.pad_token_id, *named, tok.unk_token_id, *specials]:
            if candidate is not None and candidate not in self.eos_ids:
                return int(candidate)
        raise TrimtabError(
            ErrorKind.MODEL,
            f"the tokenizer {_name(tok)} has no token to pad with: its padding token is missing or ends responses",
            "give it a pad_token of its own in tokenizer_config.json (and a row in the model's embedding)",
        )

    def _template(self, messages: Iterable[Message], *, generation_prompt: bool) -> list[int]:
        turns = [{"role": m.role, "content": m.content} for m in messages]
        ids = self.tokenizer.apply_chat_template(turns, add_generation_prompt=generation_prompt, return_dict=False)
        return [int(i) for i in ids]

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt, ready for a response to follow.

        Raises:
            TrimtabError: the prompt has no token or half a character, or the chat template refuses its roles.
        """
        return self.prompt_ids_with_system(prompt, None)

    def prompt_ids_with_system(self, prompt: Prompt, system: str | None) -> list[int]:
        """As `prompt_ids`, with an instruction before the prompt.

        With a chat template it is the system message, or stands before the prompt's own; else a paragraph in front.
        """
        for message in _with_system(prompt.messages, system):
            check_text(message.content, f'prompt "{prompt.id}"')
        if self.chat:
            try:
                ids = self._template(_with_system(prompt.messages, system), generation_prompt=True)
            except TemplateError as error:
                roles = ", ".join(m.role for m in prompt.messages)
                raise TrimtabError(
                    ErrorKind.DATA,
                    f'the chat template refuses prompt "{prompt.id}" (roles: {roles}): {error}',
                    'let the last message be the user\'s, or set model.chat_template = "off"',
                ) from error
        else:
            text = prompt.text if system is None else f"{system}\n\n{prompt.text}"
            ids = list(self.tokenizer(text).input_ids)
            # Some tokenizers close a text with EOS: the response is still to come.
            while ids and ids[-1] in self.eos_ids:
                ids.pop()
        if not ids:
            raise TrimtabError(ErrorKind.DATA, f'prompt "{prompt.id}" has no token', "remove empty prompts")
        return ids

    def response_ids(self, response: Response, prompt_id: str | None = None) -> list[int]:
        """Token ids of a response; the EOS token at the end if it is finished.

        Raises:
            TrimtabError: the text holds half a character; `prompt_id` says whose response it is.
        """
        check_text(response.text, "a response" if prompt_id is None else f'the response to prompt "{prompt_id}"')
        ids = list(self.tokenizer(response.text, add_special_tokens=False).input_ids)
        return [*ids, self.eos_id] if response.finished else ids

    def pair_ids(self, prompt: Prompt, response: Response) -> list[int]:
        """Prompt and response as a preference model reads them, always with EOS at the end.

        The score is read at that token. A response that was cut off gets one too: read at whatever word it broke off
        at, scores of a small model are mostly about that word (whether a response ended by itself is what
        `ppo.missing_eos_penalty` is for).

        Raises:
            TrimtabError: as `prompt_ids` and `response_ids`.
        """
        return self.prompt_ids(prompt) + self.response_ids(replace(response, finished=True), prompt.id)

    def pair_text(self, prompt: Prompt, response: Response) -> str:
        """A text whose tokens, with `add_special_tokens=False`, are `pair_ids`: for pipelines of plain transformers.

        Raises:
            TrimtabError: as `pair_ids`; or a token of the joined text reaches from the prompt into the response.
        """
        ids = self.pair_ids(prompt, response)
        tok = self.tokenizer
        if self.chat:
            turns = [{"role": m.role, "content": m.content} for m in prompt.messages]
            start = str(tok.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
        else:
            own = len(tok(prompt.text, add_special_tokens=False).input_ids)
            added = self.prompt_ids(prompt)
            start = "".join(tok.convert_ids_to_tokens(added[: len(added) - own])) + prompt.text
        text = f"{start}{response.text}{tok.convert_ids_to_tokens(self.eos_id)}"
        if list(tok(text, add_special_tokens=False).input_ids) != ids:
            raise TrimtabError(
                ErrorKind.DATA,
                f'prompt "{prompt.id}": prompt and response read as one text have other tokens than read apart',
                "let the prompt end with a line break or a chat template, and the response begin without white space",
            )
        return text

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def responses(self, tokens: Tensor, mask: Tensor, finished: Tensor) -> list[Response]:
        """Records of sampled tokens: int64 [B, T], bool [B, T], bool [B] -> B responses."""
        counts, ended = mask.sum(-1).tolist(), finished.tolist()
        rows = [row[:count] for row, count in zip(tokens.tolist(), counts, strict=True)]
        return [
            Response(self.decode(row), finished=end, tokens=count)
            for row, count, end in zip(rows, counts, ended, strict=True)
        ]

    def check_model(self, vocabulary_size: int, model: str) -> None:
        """Refuse a model whose embedding has no row for some token of this tokenizer.

        Raises:
            TrimtabError: the vocabulary is larger than the embedding.
        """
        largest = max(self.tokenizer.get_vocab().values())
        if largest >= vocabulary_size:
            raise TrimtabError(
                ErrorKind.MODEL,
                f"tokenizer and model do not fit: {_name(self.tokenizer)} has token ids up to {largest}, "
                f"{model} has {vocabulary_size} embedding rows",
                "take both from one directory, or resize the model's embedding",
            )

    def save(self, directory: Path | str) -> None:
        """Write the tokenizer beside a model."""
        with writing_weights(directory):
            self.tokenizer.save_pretrained(str(directory))


def check_text(text: str, whose: str) -> None:
    """Refuse a lone surrogate: JSON can spell one, no tokenizer can encode it.

    Raises:
        TrimtabError: there is one; `whose` says whose text it is.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TrimtabError(
            ErrorKind.DATA,
            f"{whose} holds half a character (\\u{ord(text[error.start]):04x}) at place {error.start} of a text",
            "a surrogate must come as a pair: correct the text in its file, or leave it out",
        ) from None


def _with_system(messages: Sequence[Message], system: str | None) -> list[Message]:
    if system is None:
        return list(messages)
    if messages and messages[0].role == "system":
        return [Message("system", f"{system}\n\n{messages[0].content}"), *messages[1:]]
    return [Message("system", system), *messages]


def _name(tokenizer: Any) -> str:
    return str(tokenizer.name_or_path or type(tokenizer).__name__)


def left_pad(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Pad on the left: B rows of ids -> ids int64 [B, S], mask bool [B, S]."""
    return _pad(rows, pad_id, left=True)


def right_pad(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Pad on the right: B rows of ids -> ids int64 [B, T], mask bool [B, T]."""
    return _pad(rows, pad_id, left=False)


def _pad(rows: Sequence[Sequence[int]], pad_id: int, *, left: bool) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(row) for row in rows])
    width = int(lengths.max()) if len(rows) else 0
    filled = [[pad_id] * (width - len(r)) + list(r) if left else list(r) + [pad_id] * (width - len(r)) for r in rows]
    ids = torch.tensor(filled, dtype=torch.int64).view(len(rows), width)
    places = torch.arange(width)
    mask = places >= (width - lengths)[:, None] if left else places < lengths[:, None]
    return ids, mask
