"""The constitutional supervised phase: draft a response, criticise it under a principle, revise it, several times over.

The model is asked in chat turns. A draft answers the prompt alone. A round shows the constitution's example chats, the
prompt with the response so far, and the principle's critique request; the critique is then followed by the principle's
revision request. The next round starts from the revision as if it were the draft, under a principle drawn anew, so that
conversations stay short. Source: Bai et al., Constitutional AI, arXiv 2212.08073, section 3.

As in `pairs`, work is cut into chunks of fixed content, each with a random stream of its own: a run that was killed and
goes on gives the transcripts of one that was not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from trimtab.config.schema import SFTConfig
from trimtab.constitution import Constitution, Principle, Turn
from trimtab.data.records import Message, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import CausalModel
from trimtab.models.seeds import numpy_stream, torch_stream
from trimtab.models.tokens import TextCodec
from trimtab.sampling.responses import sample_responses
from trimtab.sampling.transcripts import Round, Transcript

__all__ = ["check_revisable", "sample_revisions"]


def check_revisable(codec: TextCodec, constitution: Constitution) -> None:
    """Refuse a model that takes no instructions, and principles that do not say what to ask.

    Raises:
        TrimtabError: no chat template, or a principle that counts has no critique or no revision request.
    """
    if not codec.chat:
        raise TrimtabError(
            ErrorKind.CONFIG,
            'sft.source = "constitution" asks for critiques in chat turns, and this model has no chat template',
            'use demonstrations, or a chat model with model.chat_template = "auto"',
        )
    if lacking := constitution.lacking(("critique", "revision")):
        raise TrimtabError(
            ErrorKind.CONFIG,
            f'sft.source = "constitution" needs critique and revision of every principle; not so {", ".join(lacking)}',
            "add `critique` and `revision` to them in the constitution file, or set their weight to 0",
        )


def sample_revisions(
    model: CausalModel,
    codec: TextCodec,
    prompts: Sequence[Prompt],
    constitution: Constitution,
    config: SFTConfig,
    *,
    batch_size: int,
    seed: int,
    done: Sequence[Transcript] = (),
    on_chunk: Callable[[list[Transcript]], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Transcript]:
    """Draft, criticise and revise a response to each prompt, `config.rounds` times.

    Args:
        model: who drafts, criticises and revises: the model before any fine-tuning.
        codec: its text codec, with a chat template.
        prompts: what to respond to, each with an id of its own.
        constitution: whose principles have critique and revision requests.
        config: rounds, temperature, max_new_tokens.
        batch_size: responses sampled at a time; part of what decides the random numbers.
        seed: of everything that is drawn; the principle of a round depends on the seed, the prompt's id and the round.
        done: transcripts of an earlier, interrupted call with the same arguments; they are not sampled again.
        on_chunk: gets the new transcripts of each chunk as soon as they are there, to write them down.
        progress: called with (prompts done, prompts in all) at the start and after every chunk.

    Returns:
        One transcript a prompt, in order. Example chats that do not fit the context beside a conversation are left out
        of it, the last ones first; a conversation that does not fit even so ends there and is marked `too_long`.

    Raises:
        TrimtabError: see `check_revisable`; `done` is not of these prompts; a prompt with its draft does not fit.
    """
    check_revisable(codec, constitution)
    have = {t.prompt.id: t for t in done}
    if strangers := sorted(have.keys() - {prompt.id for prompt in prompts}):
        raise TrimtabError(
            ErrorKind.DATA,
            f"{len(strangers)} of the transcripts to go on from do not belong to these prompts, first {strangers[0]!r}",
            "sample into an empty file",
        )
    for number, start in enumerate(range(0, len(prompts), batch_size)):
        chunk = prompts[start : start + batch_size]
        if progress is not None:
            progress(start, len(prompts))
        if all(prompt.id in have for prompt in chunk):
            continue
        # the whole chunk is drawn again, so that what is missing comes out as it would have the first time
        drawn = _Chunk(model, codec, constitution, config, seed, torch_stream(seed, "revise", number)).transcripts(
            chunk
        )
        new = [t for t in drawn if t.prompt.id not in have]
        have.update((t.prompt.id, t) for t in new)
        if on_chunk is not None and new:
            on_chunk(new)
    if progress is not None:
        progress(len(prompts), len(prompts))
    return [have[prompt.id] for prompt in prompts]


class _Chunk:
    """The conversations about a batch of prompts, one step at a time for all of them."""

    def __init__(
        self,
        model: CausalModel,
        codec: TextCodec,
        constitution: Constitution,
        config: SFTConfig,
        seed: int,
        generator: torch.Generator,
    ) -> None:
        self.model, self.codec, self.constitution = model, codec, constitution
        self.config, self.seed, self.generator = config, seed, generator

    def transcripts(self, prompts: Sequence[Prompt]) -> list[Transcript]:
        drafts = self._say(prompts)
        rounds: list[list[Round]] = [[] for _ in prompts]
        said = list(drafts)
        going = list(range(len(prompts)))
        for number in range(self.config.rounds):
            going = self._round(prompts, said, rounds, going, number)
        return [
            Transcript(prompt, draft, tuple(mine), too_long=i not in going)
            for i, (prompt, draft, mine) in enumerate(zip(prompts, drafts, rounds, strict=True))
        ]

    def _round(
        self, prompts: Sequence[Prompt], said: list[Response], rounds: list[list[Round]], going: list[int], number: int
    ) -> list[int]:
        """One critique and revision of what was said so far; returns the conversations that still fit."""
        principles = {i: self._principle(prompts[i], number) for i in going}
        asked = {i: self._fitting(prompts[i], [said[i].text, principles[i].critique or ""]) for i in going}
        critiques = self._say_all(asked)
        asked = {
            i: self._fitting(
                prompts[i],
                [said[i].text, principles[i].critique or "", critiques[i].text, principles[i].revision or ""],
            )
            for i in critiques
        }
        revisions = self._say_all(asked)
        for i, revision in revisions.items():
            p = principles[i]
            rounds[i].append(Round(p.id, p.critique or "", critiques[i], p.revision or "", revision))
            said[i] = revision
        return list(revisions)

    def _principle(self, prompt: Prompt, number: int) -> Principle:
        return self.constitution.sample(numpy_stream(self.seed, "principle", prompt.id, number))

    def _fitting(self, prompt: Prompt, turns: Sequence[str]) -> Prompt | None:
        """The conversation with as many example chats as fit the context beside it, None if it does not fit alone."""
        context = self.model.context_length
        for count in range(len(self.constitution.chats), -1, -1):
            talk = _conversation(prompt, turns, self.constitution.chats[:count])
            if context is None or len(self.codec.prompt_ids(talk)) + self.config.max_new_tokens <= context:
                return talk
        return None

    def _say_all(self, asked: dict[int, Prompt | None]) -> dict[int, Response]:
        fitting = {i: talk for i, talk in asked.items() if talk is not None}
        return dict(zip(fitting, self._say(list(fitting.values())), strict=True)) if fitting else {}

    def _say(self, prompts: Sequence[Prompt]) -> list[Response]:
        return sample_responses(
            self.model, self.codec, prompts, max_new_tokens=self.config.max_new_tokens,
            temperature=self.config.temperature, batch_size=len(prompts), generator=self.generator,
        )  # fmt: skip


def _conversation(prompt: Prompt, turns: Sequence[str], chats: Sequence[Sequence[Turn]]) -> Prompt:
    """The prompt with what was said since (assistant and user in turn), after the chats; system messages stay first."""
    instructions = [m for m in prompt.messages if m.role == "system"]
    shown = [Message(t.role, t.content) for chat in chats for t in chat]
    own = [m for m in prompt.messages if m.role != "system"]
    since = [Message("user" if i % 2 else "assistant", text) for i, text in enumerate(turns)]
    return Prompt(prompt.id, (*instructions, *shown, *own, *since))
