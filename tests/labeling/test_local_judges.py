"""The judges that run a model, against slow re-derivations: one sequence at a time through plain transformers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from labeling_fakes import candidate, two_principles
from trimtab.constitution import Constitution
from trimtab.data.records import CandidatePair, Message, Prompt, Response
from trimtab.errors import TrimtabError
from trimtab.labeling.labels import label_pairs
from trimtab.labeling.local import LikelihoodJudge, LocalJudge
from trimtab.labeling.protocol import JudgeRequest, Order, Outcome
from trimtab.labeling.templates import Template, fence_of
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec
from trimtab.worlds.model import build_tokenizer

TEMPLATE = (
    "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}{% if add_generation_prompt %}assistant{% endif %}"
)
WORDING = Template("short", "{principles}", "{prompt} A {first} B {second} {code}", "letter", "reasons")


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """The tiny language with two letters and a chat template."""
    tokenizer = build_tokenizer()
    tokenizer.add_tokens(["A", "B", "assistant", "system", "user"])
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@pytest.fixture(scope="module")
def codec(tokenizer: PreTrainedTokenizerFast) -> TextCodec:
    return TextCodec(tokenizer)


@pytest.fixture(scope="module")
def model(tokenizer: PreTrainedTokenizerFast) -> CausalModel:
    torch.set_num_threads(1)
    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=120,
        initializer_range=0.4,
    )
    return CausalModel(LlamaForCausalLM(config))


@pytest.fixture
def constitution(tmp_path: Path) -> Constitution:
    return two_principles(tmp_path)


def pairs() -> list[CandidatePair]:
    texts = [("seed soil", "wave"), ("please the boat", "fool"), ("new", "old star moon")]
    prompt = Prompt("x", (Message("user", "the seed and soil"),))
    return [CandidatePair(f"p{i}", prompt, Response(a), Response(b, finished=i != 1)) for i, (a, b) in enumerate(texts)]


def next_token(model: CausalModel, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model.hf(torch.tensor([ids])).logits[0, -1].double().softmax(-1)


def mean_logprob(model: CausalModel, prompt: list[int], response: list[int]) -> float:
    total = sum(math.log(next_token(model, prompt + response[:t])[token]) for t, token in enumerate(response))
    return total / len(response)


@pytest.mark.parametrize("chat", ["auto", "off"])
def test_local_reads_the_letters_of_the_question_in_the_order_shown(
    model: CausalModel, tokenizer: PreTrainedTokenizerFast, constitution: Constitution, chat: str
) -> None:
    codec = TextCodec(tokenizer, chat)  # type: ignore[arg-type]
    judge = LocalJudge(model, codec, "m", WORDING, min_mass=0.0)
    letters = tokenizer.convert_tokens_to_ids(["A", "B"])
    asked = [JudgeRequest(p, constitution, order) for p in pairs() for order in Order]
    for request, verdict in zip(asked, judge.judge(asked), strict=True):
        a, b = (request.pair.first, request.pair.second)
        if request.order is Order.REVERSED:
            a, b = b, a
        system, question = WORDING.messages(request)
        assert question == f"the seed and soil A {a.text} B {b.text} {fence_of(request)}\n\nletter"
        assert system == constitution.render()
        turns = [{"role": "system", "content": system}, {"role": "user", "content": question}]
        if chat == "auto":
            ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        else:
            ids = tokenizer(f"{system}\n\n{question}\n\nAnswer:").input_ids
        p_a, p_b = next_token(model, ids)[letters].tolist()
        expected = p_a / (p_a + p_b) if request.order is Order.FORWARD else p_b / (p_a + p_b)
        assert verdict.p_first == pytest.approx(expected, abs=1e-5)
        assert verdict.mass == pytest.approx(p_a + p_b, rel=1e-4)


def test_local_without_mass_on_the_letters_is_unparsed_and_the_mass_is_kept(
    model: CausalModel, codec: TextCodec, constitution: Constitution
) -> None:
    (verdict,) = LocalJudge(model, codec, "m", WORDING, min_mass=0.999).judge([JudgeRequest(pairs()[0], constitution)])
    assert verdict.outcome is Outcome.UNPARSED
    assert verdict.p_first is None
    assert verdict.mass is not None
    assert 0 < verdict.mass < 0.999


def test_local_reasons_first_and_reads_the_letters_after_its_verdict(
    model: CausalModel, codec: TextCodec, constitution: Constitution
) -> None:
    judge = LocalJudge(model, codec, "m", WORDING, rationale=True, max_new_tokens=6, min_mass=0.0, seed=4)
    letters = codec.tokenizer.convert_tokens_to_ids(["A", "B"])
    asked = [JudgeRequest(p, constitution, order) for p in pairs() for order in Order]
    verdicts = judge.judge(asked)
    assert len({v.rationale for v in verdicts}) > 1
    for request, verdict in zip(asked, verdicts, strict=True):
        system, question = WORDING.messages(request, reasons=True)
        assert question.endswith("reasons")
        turns = [{"role": "system", "content": system}, {"role": "user", "content": question}]
        ids = codec.tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        said = codec.tokenizer(verdict.rationale, add_special_tokens=False).input_ids
        ids = ids + said + codec.tokenizer("\nVerdict:", add_special_tokens=False).input_ids
        p_a, p_b = next_token(model, ids)[letters].tolist()
        expected = p_a / (p_a + p_b) if request.order is Order.FORWARD else p_b / (p_a + p_b)
        assert verdict.p_first == pytest.approx(expected, abs=1e-5)
    # neither its neighbours in a batch nor another run change what it says
    assert judge.judge(asked[2:3])[0].rationale == verdicts[2].rationale
    other = LocalJudge(model, codec, "m", WORDING, rationale=True, max_new_tokens=6, min_mass=0.0, seed=5)
    assert [v.rationale for v in other.judge(asked)] != [v.rationale for v in verdicts]


def test_likelihood_asked_about_one_principle_leaves_the_others_out(
    model: CausalModel, codec: TextCodec, constitution: Constitution
) -> None:
    judge = LikelihoodJudge(model, codec, "m")
    under_warm = replace(pairs()[0], origin={"source": "contrast", "principle": "warm"})
    found, expected = judge.judge(
        [
            JudgeRequest(under_warm, constitution.only("short"), principle="short"),
            JudgeRequest(pairs()[0], constitution.only("short")),
        ]
    )
    assert found.p_first == pytest.approx(expected.p_first, abs=1e-6)


def test_what_does_not_fit_the_context_is_an_error_and_the_rest_is_answered(
    model: CausalModel, codec: TextCodec, constitution: Constitution
) -> None:
    long = replace(pairs()[0], first=Response("seed " * 120))
    asked = [JudgeRequest(p, constitution) for p in (pairs()[1], long, pairs()[2])]
    for judge in (LocalJudge(model, codec, "m", WORDING, min_mass=0.0), LikelihoodJudge(model, codec, "m")):
        verdicts = judge.judge(asked)
        assert [v.outcome for v in verdicts] == [Outcome.OK, Outcome.ERROR, Outcome.OK]
        assert "context of 120" in verdicts[1].detail
        alone = judge.judge([asked[2]])[0]
        assert verdicts[2].p_first == pytest.approx(alone.p_first, abs=1e-5)


def test_local_needs_a_token_for_each_letter(model: CausalModel) -> None:
    with pytest.raises(TrimtabError, match="letter A"):
        LocalJudge(model, TextCodec(build_tokenizer()), "m")


def test_likelihood_agrees_with_a_slow_derivation(
    model: CausalModel, codec: TextCodec, constitution: Constitution
) -> None:
    judge = LikelihoodJudge(model, codec, "m", sharpness=3.0)
    asked = [JudgeRequest(p, constitution) for p in pairs()]
    readings = [(3.0, "please kindly", "stupid fool"), (1.0, "small new", "large old")]
    for request, verdict in zip(asked, judge.judge(asked), strict=True):
        difference = 0.0
        for weight, reading, opposite in readings:
            for sign, y in ((1, request.pair.first), (-1, request.pair.second)):
                ids = codec.response_ids(y)
                good, bad = (codec.prompt_ids_with_system(request.pair.prompt, s) for s in (reading, opposite))
                difference += sign * weight / 4 * (mean_logprob(model, good, ids) - mean_logprob(model, bad, ids))
        assert verdict.outcome is Outcome.OK
        assert verdict.p_first == pytest.approx(1 / (1 + math.exp(-3 * difference)), abs=1e-5)
        assert abs(verdict.p_first - 0.5) > 1e-3  # the readings do something


def test_likelihood_of_a_contrast_pair_asks_its_own_principle_only(
    model: CausalModel, codec: TextCodec, constitution: Constitution
) -> None:
    judge = LikelihoodJudge(model, codec, "m")
    under_short = replace(pairs()[0], origin={"source": "contrast", "principle": "short"})
    (found,) = judge.judge([JudgeRequest(under_short, constitution)])
    alone = replace(constitution, principles=constitution.principles[1:])
    (expected,) = judge.judge([JudgeRequest(pairs()[0], alone)])
    assert found.p_first == pytest.approx(expected.p_first, abs=1e-6)
    with pytest.raises(TrimtabError, match="'warm', which constitution"):
        judge.judge([JudgeRequest(replace(under_short, origin={"principle": "warm"}), alone)])


def test_likelihood_with_the_readings_swapped_moves_the_other_way(
    model: CausalModel, codec: TextCodec, constitution: Constitution
) -> None:
    judge = LikelihoodJudge(model, codec, "m")
    before = label_pairs(pairs(), judge, constitution)
    after = label_pairs(pairs(), judge, constitution.swapped())
    for a, b in zip(before, after, strict=True):
        assert a.p_first is not None
        assert b.p_first == pytest.approx(1 - a.p_first, abs=1e-5)


def test_likelihood_of_an_empty_response(model: CausalModel, codec: TextCodec, constitution: Constitution) -> None:
    empty = replace(pairs()[0], first=Response("", finished=False))
    ended = replace(pairs()[0], first=Response("", finished=True))
    unparsed, ok = LikelihoodJudge(model, codec, "m").judge([JudgeRequest(p, constitution) for p in (empty, ended)])
    assert unparsed.outcome is Outcome.UNPARSED
    assert ok.outcome is Outcome.OK


def test_likelihood_is_refused_without_system_messages_or_readings(
    model: CausalModel, codec: TextCodec, constitution: Constitution
) -> None:
    with pytest.raises(TrimtabError, match="no chat template"):
        LikelihoodJudge(model, TextCodec(build_tokenizer()), "m")
    bare = replace(constitution, principles=tuple(replace(p, reading=None) for p in constitution.principles))
    with pytest.raises(TrimtabError, match="warm, short"):
        LikelihoodJudge(model, codec, "m").judge([JudgeRequest(candidate(0), bare)])


def test_other_weights_or_instructions_are_another_judge(
    model: CausalModel, tokenizer: PreTrainedTokenizerFast
) -> None:
    chat, plain = TextCodec(tokenizer), TextCodec(tokenizer, "off")
    judges = [
        LocalJudge(model, chat, "m"),
        LocalJudge(model, chat, "other"),
        LocalJudge(model, chat, "m", WORDING),
        LocalJudge(model, chat, "m", rationale=True),
        LocalJudge(model, chat, "m", rationale=True, seed=1),
        LocalJudge(model, chat, "m", rationale=True, temperature=0.5),
        LocalJudge(model, plain, "m"),
        LikelihoodJudge(model, chat, "m"),
        LikelihoodJudge(model, chat, "m", sharpness=2.0),
    ]
    assert len({judge.identity for judge in judges}) == len(judges)
