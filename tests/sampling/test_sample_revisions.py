"""Draft, critique, revise: who is asked what in which turn, and that a killed run goes on as if nothing had been."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from trimtab.config.schema import SFTConfig
from trimtab.constitution import Constitution, Principle, Turn
from trimtab.data.records import Message, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec
from trimtab.sampling import critique as module
from trimtab.sampling.critique import sample_revisions
from trimtab.sampling.transcripts import Transcript
from trimtab.worlds import tiny
from trimtab.worlds.model import build_model, build_tokenizer

TWO = Constitution(
    "two",
    (
        Principle("polite", "x", 3.0, critique="rude", revision="please"),
        Principle("short", "x", 1.0, critique="large", revision="small"),
        Principle("off", "never drawn", 0.0),
    ),
)
PROMPTS = tiny.prompts(7, seed=0)
CONFIG = SFTConfig(source="constitution", rounds=2, max_new_tokens=4)


@pytest.fixture(scope="module")
def model() -> CausalModel:
    torch.set_num_threads(1)
    return CausalModel(build_model(0))


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    tokenizer = build_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}"
    return TextCodec(tokenizer)


@pytest.fixture
def sample(model: CausalModel, codec: TextCodec) -> Callable[..., list[Transcript]]:
    def call(prompts: Sequence[Prompt] = PROMPTS, constitution: Constitution = TWO, **more: Any) -> list[Transcript]:
        config = more.pop("config", CONFIG)
        return sample_revisions(model, codec, prompts, constitution, config, **{"batch_size": 3, "seed": 1} | more)

    return call


def test_transcripts_are_in_order_whole_and_a_function_of_the_seed(sample):
    drawn = sample()
    assert [t.prompt for t in drawn] == PROMPTS
    by_id = {p.id: p for p in TWO.principles}
    for t in drawn:
        assert len(t.rounds) == 2
        assert not t.too_long
        for r in t.rounds:
            p = by_id[r.principle]
            assert (r.critique_request, r.revision_request) == (p.critique, p.revision)
        for response in (t.draft, *(x for r in t.rounds for x in (r.critique, r.revision))):
            assert 1 <= (response.tokens or 0) <= 4
    assert sample() == drawn
    assert sample(seed=2) != drawn


@pytest.mark.parametrize("kept", [0, 1, 3, 5, 7])
def test_an_interrupted_run_that_goes_on_is_the_uninterrupted_one(sample, kept):
    whole, written = sample(), []
    assert sample(done=whole[:kept], on_chunk=written.extend) == whole
    assert written == whole[kept:]


def test_chunks_that_are_done_are_not_sampled(sample, monkeypatch):
    whole, steps = sample(), []
    monkeypatch.setattr(module, "sample_responses", lambda *a, **k: pytest.fail("sampled again"))
    assert sample(done=whole, progress=lambda *step: steps.append(step)) == whole
    assert steps == [(0, 7), (3, 7), (6, 7), (7, 7)]


def test_transcripts_of_other_prompts_cannot_be_gone_on_from(sample):
    with pytest.raises(TrimtabError, match="2 of the transcripts to go on from do not belong to these prompts"):
        sample(PROMPTS[:1], done=sample(PROMPTS[1:3]))


def scripted(monkeypatch: pytest.MonkeyPatch) -> list[list[list[tuple[str, str]]]]:
    """Numbers speak in the model's place; what was asked is returned call by call."""
    asked: list[list[list[tuple[str, str]]]] = []
    counter = iter(range(10_000))

    def respond(_model: Any, _codec: Any, prompts: Sequence[Prompt], **_: Any) -> list[Response]:
        asked.append([[(m.role, m.content) for m in p.messages] for p in prompts])
        return [Response(f"said {next(counter)}", tokens=1) for _ in prompts]

    monkeypatch.setattr(module, "sample_responses", respond)
    return asked


def test_each_turn_is_asked_with_what_was_said_before(sample, monkeypatch):
    asked = scripted(monkeypatch)
    prompt = Prompt("p", (Message("system", "be small"), Message("user", "the"), Message("assistant", "a"),
                          Message("user", "of")))  # fmt: skip
    chats = ((Turn("user", "in"), Turn("assistant", "on")),)
    one = Constitution("one", (Principle("p", "x", critique="well", revision="good"),), chats)
    sample([prompt], one)
    said, before = [m.content for m in prompt.messages], [("user", "in"), ("assistant", "on")]
    own = [(m.role, m.content) for m in prompt.messages[1:]]
    system = [("system", said[0])]

    def round_(first: str) -> list[tuple[str, str]]:
        return [*system, *before, *own, ("assistant", first), ("user", "well")]

    # the draft is the model's own answer: no example stands before it; the second round starts from the revision
    assert asked == [
        [[*system, *own]],
        [round_("said 0")],
        [[*round_("said 0"), ("assistant", "said 1"), ("user", "good")]],
        [round_("said 2")],
        [[*round_("said 2"), ("assistant", "said 3"), ("user", "good")]],
    ]


def test_principles_are_drawn_by_weight_and_anew_in_every_round(sample, monkeypatch):
    scripted(monkeypatch)
    drawn = sample(tiny.prompts(400, seed=3), batch_size=400)
    first, second = (Counter(t.rounds[i].principle for t in drawn) for i in (0, 1))
    for counts in (first, second):
        assert set(counts) == {"polite", "short"}
        # four standard deviations of a share
        assert counts["polite"] / 400 == pytest.approx(0.75, abs=4 * (0.75 * 0.25 / 400) ** 0.5)
    same = sum(t.rounds[0].principle == t.rounds[1].principle for t in drawn) / 400
    assert same == pytest.approx(0.75**2 + 0.25**2, abs=4 * 0.5 / 400**0.5)
    # of the prompt alone: a file with other prompts beside it changes nothing
    alone = sample([drawn[7].prompt])
    assert [r.principle for r in alone[0].rounds] == [r.principle for r in drawn[7].rounds]


def test_chats_that_do_not_fit_are_left_out_and_a_conversation_that_does_not_fit_ends(sample, model, monkeypatch):
    asked = scripted(monkeypatch)
    assert model.context_length == 48
    long = tuple((Turn("user", "the " * n), Turn("assistant", "of")) for n in (12, 20))
    sample(PROMPTS[:1], replace(TWO, chats=long), config=CONFIG.model_copy(update={"rounds": 1}))
    # 8 words of the prompt, 4 to be said: the first chat fits beside them, the second does not
    assert [sum(text == long[0][0].content for _, text in call[0]) for call in asked] == [0, 1, 1]
    assert not any(text == long[1][0].content for call in asked for _, text in call[0])
    wordy = Prompt("wordy", (Message("user", "the " * 41),))
    short, cut = sample([PROMPTS[0], wordy])
    assert (len(short.rounds), short.too_long) == (2, False)
    assert (cut.rounds, cut.too_long) == ((), True)


@pytest.mark.parametrize(("length", "fits"), [(38, True), (39, False)])
def test_a_conversation_fits_up_to_the_last_token_of_the_context(sample, monkeypatch, length, fits):
    scripted(monkeypatch)
    # two words said, one asked, two said, one asked, four to be said: ten beside the prompt, of 48
    prompt = Prompt("p", (Message("user", " ".join(["the"] * length)),))
    (found,) = sample([prompt], config=CONFIG.model_copy(update={"rounds": 1}))
    assert (len(found.rounds), found.too_long) == ((1, False) if fits else (0, True))


def test_models_without_chat_and_principles_without_requests_are_refused(sample, model):
    with pytest.raises(TrimtabError, match="no chat template") as caught:
        sample_revisions(model, TextCodec(build_tokenizer()), PROMPTS, TWO, CONFIG, batch_size=2, seed=0)
    assert caught.value.kind is ErrorKind.CONFIG
    bare = Constitution("bare", (*TWO.principles, Principle("b", "x", critique="y"), Principle("c", "x")))
    with pytest.raises(TrimtabError, match=r"needs critique and revision of every principle; not so b, c"):
        sample(PROMPTS, bare)
