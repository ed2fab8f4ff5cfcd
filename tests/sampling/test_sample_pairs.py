"""Sampling pairs: reproducible, resumable, never two equal texts, and an origin that tells the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import trimtab.sampling
from trimtab.config.schema import SampleConfig
from trimtab.constitution import Constitution, load_constitution
from trimtab.data.records import CandidatePair, Prompt, Response
from trimtab.errors import TrimtabError
from trimtab.models.roles import CausalModel
from trimtab.models.seeds import torch_stream
from trimtab.models.tokens import TextCodec
from trimtab.sampling import pairs as module
from trimtab.sampling.pairs import MAX_REDRAWS, sample_pairs, summarise
from trimtab.sampling.responses import sample_responses
from trimtab.worlds import tiny
from trimtab.worlds.model import build_model, build_tokenizer

CONSTITUTION = """
name = "two"
[[principles]]
id = "warm"
text = "Be warm."
weight = 3.0
reading = "please"
opposite = "fool"
[[principles]]
id = "short"
text = "Be short."
reading = "small"
opposite = "large"
[[principles]]
id = "unused"
text = "Never drawn, so it needs no reading."
weight = 0.0
"""


@pytest.fixture(scope="module")
def model() -> CausalModel:
    torch.set_num_threads(1)
    return CausalModel(build_model(0))


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    return TextCodec(build_tokenizer())


@pytest.fixture(scope="module")
def chat_codec() -> TextCodec:
    tokenizer = build_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}"
    return TextCodec(tokenizer)


@pytest.fixture
def constitution(tmp_path: Path) -> Constitution:
    path = tmp_path / "constitution.toml"
    path.write_text(CONSTITUTION)
    return load_constitution(path)


PROMPTS = tiny.prompts(7, seed=0)
CONFIG = SampleConfig(pairs_per_prompt=2, max_new_tokens=6, batch_size=8)
CONTRAST = CONFIG.model_copy(update={"source": "contrast"})


def test_pairs_are_in_order_different_and_a_function_of_the_seed(model: CausalModel, codec: TextCodec) -> None:
    drawn = sample_pairs(model, codec, PROMPTS, None, CONFIG, seed=1)
    assert [p.id for p in drawn] == [f"{x.id}#{k}" for x in PROMPTS for k in range(2)]
    assert [p.prompt for p in drawn] == [x for x in PROMPTS for _ in range(2)]
    assert all(p.first.text != p.second.text for p in drawn)
    assert len({p.first.text for p in drawn}) == len(drawn)
    assert all(p.origin == {"source": "samples", "redraws": 0} for p in drawn)
    for response in (r for p in drawn for r in (p.first, p.second)):
        assert response.tokens is not None
        assert 1 <= response.tokens <= 6
        assert response.finished or response.tokens == 6
    assert sample_pairs(model, codec, PROMPTS, None, CONFIG, seed=1) == drawn
    assert sample_pairs(model, codec, PROMPTS, None, CONFIG, seed=2) != drawn


@pytest.mark.parametrize("kept", [0, 3, 4, 9, 14])
def test_an_interrupted_run_that_goes_on_is_the_uninterrupted_one(
    model: CausalModel, codec: TextCodec, kept: int
) -> None:
    whole = sample_pairs(model, codec, PROMPTS, None, CONFIG, seed=1)
    written: list[CandidatePair] = []
    resumed = sample_pairs(model, codec, PROMPTS, None, CONFIG, seed=1, done=whole[:kept], on_chunk=written.extend)
    assert resumed == whole
    assert written == whole[kept:]


def test_chunks_that_are_done_are_not_sampled(
    model: CausalModel, codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sample_pairs(model, codec, PROMPTS, None, CONFIG, seed=1)
    monkeypatch.setattr(module, "sample_responses", lambda *a, **k: pytest.fail("sampled again"))
    steps: list[tuple[int, int]] = []
    again = sample_pairs(
        model,
        codec,
        PROMPTS,
        None,
        CONFIG,
        seed=1,
        done=whole,
        progress=lambda done, total: steps.append((done, total)),
    )
    assert again == whole
    assert steps == [(0, 14), (4, 14), (8, 14), (12, 14), (14, 14)]


def test_pairs_of_other_prompts_cannot_be_gone_on_from(model: CausalModel, codec: TextCodec) -> None:
    whole = sample_pairs(model, codec, PROMPTS[:2], None, CONFIG, seed=1)
    with pytest.raises(TrimtabError, match="2 of the pairs to go on from do not belong"):
        sample_pairs(model, codec, PROMPTS[1:3], None, CONFIG, seed=1, done=whole)


def scripted(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[int]:
    """Let `answer(call number, prompt, system)` respond in the model's place; the sizes of the calls are returned."""
    calls: list[int] = []

    def respond(*_: Any, systems: Sequence[str | None], **__: Any) -> list[Response]:
        prompts: Sequence[Prompt] = _[2]
        calls.append(len(prompts))
        return [Response(answer(len(calls), p, s), tokens=1) for p, s in zip(prompts, systems, strict=True)]

    monkeypatch.setattr(module, "sample_responses", respond)
    return calls


def test_equal_texts_are_drawn_again_and_counted(
    model: CausalModel, codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = iter(range(1000))
    # in the first two calls, the first prompt only ever gets one text; only its pairs are drawn again
    calls = scripted(monkeypatch, lambda n, p, s: "same " if n < 3 and p is PROMPTS[0] else f"new {next(counter)}")
    drawn = sample_pairs(model, codec, PROMPTS[:2], None, CONFIG, seed=1)
    assert calls == [8, 4, 4]
    assert [p.origin["redraws"] for p in drawn] == [2, 2, 0, 0]
    assert summarise(drawn, wanted=4)[:4] == (4, 4, 0, 2)


def test_a_pair_that_stays_equal_is_left_out_and_counted(
    model: CausalModel, codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = iter(range(1000))
    calls = scripted(monkeypatch, lambda n, p, s: "same" if p is PROMPTS[0] else f"new {next(counter)}")
    drawn = sample_pairs(model, codec, PROMPTS[:2], None, CONFIG, seed=1)
    assert calls == [8] + [4] * MAX_REDRAWS
    assert [p.prompt.id for p in drawn] == [PROMPTS[1].id] * 2
    assert summarise(drawn, wanted=4)[:4] == (4, 2, 2, 0)


def test_the_origin_of_a_contrast_pair_tells_which_response_had_which_reading(
    model: CausalModel, chat_codec: TextCodec, constitution: Constitution, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, lambda n, p, s: s)
    many = tiny.prompts(600, seed=0)
    drawn = sample_pairs(model, chat_codec, many, constitution, CONTRAST, seed=3)
    assert len(drawn) == 1200
    by_id = {p.id: p for p in constitution.principles}
    for pair in drawn:
        origin, principle = pair.origin, by_id[pair.origin["principle"]]
        assert (origin["reading"], origin["opposite"]) == (principle.reading, principle.opposite)
        assert {origin["first"], origin["second"]} == {"reading", "opposite"}
        assert pair.first.text == origin[origin["first"]]
        assert pair.second.text == origin[origin["second"]]
    # four standard deviations of a share
    first = Counter(p.origin["first"] for p in drawn)["reading"] / 1200
    assert first == pytest.approx(0.5, abs=4 * 0.5 / 1200**0.5)
    warm = Counter(p.origin["principle"] for p in drawn)["warm"] / 1200
    assert warm == pytest.approx(0.75, abs=4 * (0.75 * 0.25 / 1200) ** 0.5)


def test_contrast_samples_under_the_system_messages(
    model: CausalModel, chat_codec: TextCodec, constitution: Constitution
) -> None:
    drawn = sample_pairs(model, chat_codec, PROMPTS, constitution, CONTRAST, seed=3)
    swapped = Constitution("s", tuple(p for p in constitution.principles if p.id != "unused")).swapped()
    other = sample_pairs(model, chat_codec, PROMPTS, swapped, CONTRAST, seed=3)
    # same draws of principle and position; only the system messages differ, and with them the responses
    assert [p.origin["first"] for p in drawn] == [p.origin["first"] for p in other]
    assert [p.first.text for p in drawn] != [p.first.text for p in other]


def test_contrast_is_refused_without_what_it_needs(
    model: CausalModel, codec: TextCodec, chat_codec: TextCodec, constitution: Constitution
) -> None:
    with pytest.raises(TrimtabError, match="no chat template"):
        sample_pairs(model, codec, PROMPTS, constitution, CONTRAST, seed=0)
    with pytest.raises(TrimtabError, match="needs a constitution"):
        sample_pairs(model, chat_codec, PROMPTS, None, CONTRAST, seed=0)
    bare = Constitution("bare", tuple(type(p)(p.id, p.text, p.weight) for p in constitution.principles))
    with pytest.raises(TrimtabError, match="warm, short"):
        sample_pairs(model, chat_codec, PROMPTS, bare, CONTRAST, seed=0)


def test_responses_come_from_the_models_distribution(model: CausalModel, codec: TextCodec) -> None:
    prompt = PROMPTS[0]
    n = 4000
    drawn = sample_responses(
        model, codec, [prompt] * n, max_new_tokens=1, temperature=0.7, batch_size=500, generator=torch_stream(0, "t")
    )
    with torch.no_grad():
        logits = model.hf(torch.tensor([codec.prompt_ids(prompt)])).logits[0, -1].double()
    expected = (logits / 0.7).softmax(-1)
    counts = Counter("" if r.finished else r.text for r in drawn)
    for word, token in [
        ("seed", codec.tokenizer.convert_tokens_to_ids("seed")),
        ("the", codec.tokenizer.convert_tokens_to_ids("the")),
    ]:
        p = float(expected[token])
        assert counts[word] / n == pytest.approx(p, abs=4.5 * (p * (1 - p) / n) ** 0.5)
    p = float(expected[codec.eos_id])
    assert sum(r.finished for r in drawn) / n == pytest.approx(p, abs=4.5 * (p * (1 - p) / n) ** 0.5)


def test_a_prompt_that_does_not_fit_is_named(model: CausalModel, codec: TextCodec) -> None:
    with pytest.raises(TrimtabError, match=r"prompt 'tiny-00000': 8 tokens and a response of up to 41 exceed .* 48"):
        sample_responses(
            model, codec, PROMPTS, max_new_tokens=41, temperature=1.0, batch_size=4, generator=torch.Generator()
        )


def test_package_exports() -> None:
    assert trimtab.sampling.sample_pairs is sample_pairs
    assert trimtab.sampling.sample_responses is sample_responses
    assert trimtab.sampling.summarise is summarise
