"""Judges that run a model of one's own: A/B letters, and likelihood under a reading against its opposite."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from trimtab.constitution import Principle
from trimtab.data.records import CandidatePair, Message, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.judges import JudgeContext
from trimtab.labeling.protocol import JudgeIdentity, JudgeRequest, Order, Outcome, Verdict, pair_hash
from trimtab.labeling.templates import PLAIN, Template
from trimtab.models.generation import generate
from trimtab.models.logprobs import response_logprobs
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec, left_pad, right_pad
from trimtab.runs.files import stable_hash

__all__ = ["LikelihoodJudge", "LocalJudge", "make_likelihood", "make_local"]

ANSWER, VERDICT = "\n\nAnswer:", "\nVerdict:"
"""End the text of a judge without a chat template, and the reasons of one that gave them."""
_VERDICT = re.compile(r"\W*verdict\b", re.IGNORECASE)
_REASON_TOKENS = 128
_COLDEST = 1e-3
"""Stands for temperature 0: there is no greedy decoding here."""


class LocalJudge:
    """Asks a causal model which response is better and reads the next token's probabilities of the letters A and B.

    P(A) / (P(A) + P(B)) is the verdict; the sum, the mass, says whether the model was answering the question at all.
    With a rationale the model first writes what it thinks, up to where it names a verdict or stops; the letters are
    read after "Verdict:".

    Args:
        model: the judge's model.
        codec: its text codec; without a chat template the question is plain text.
        model_id: what stands for the model's weights in the label store.
        template: the wording.
        rationale: let the model reason before its verdict.
        temperature: at which reasons are sampled, above 0.
        max_new_tokens: longest reasons.
        min_mass: below this mass the verdict is `unparsed`.
        seed: of the sampling of reasons.

    Raises:
        TrimtabError: the tokenizer has no single token for A or for B.
    """

    sees_order = True

    def __init__(
        self,
        model: CausalModel,
        codec: TextCodec,
        model_id: str,
        template: Template = PLAIN,
        *,
        rationale: bool = False,
        temperature: float = 1.0,
        max_new_tokens: int = _REASON_TOKENS,
        min_mass: float = 0.01,
        seed: int = 0,
    ) -> None:
        self.model, self.codec, self.min_mass = model, codec, min_mass
        self.template, self.rationale = template, rationale
        self.temperature, self.max_new_tokens = temperature, max_new_tokens
        reasons = [temperature, max_new_tokens, VERDICT] if rationale else []
        asked = stable_hash([template.hash, ANSWER, codec.chat, min_mass, *reasons])
        self.identity = JudgeIdentity("local", model_id, asked, seed if rationale else 0, template.name)
        self._letters = [_letter_ids(codec, letter) for letter in ("A", "B")]

    def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        """Answer every request; one that does not fit the model's context is an `error`, with the lengths."""
        ids = [self._question(request) for request in requests]
        context = self.model.context_length
        needed = self.max_new_tokens + len(self._verdict_ids) if self.rationale else 0
        fitting = [i for i, row in enumerate(ids) if context is None or len(row) + needed < context]
        verdicts = {i: _too_long(len(row) + needed, context) for i, row in enumerate(ids) if i not in set(fitting)}
        if fitting:
            rows, said = [ids[i] for i in fitting], [""] * len(fitting)
            if self.rationale:
                rows, said = self._reasoned([requests[i] for i in fitting], rows)
            masses = self._letter_masses(rows)
            for i, row, reasons, (a, b) in zip(fitting, rows, said, masses, strict=True):
                verdicts[i] = replace(
                    self._verdict(requests[i], a, b),
                    rationale=reasons,
                    prompt_tokens=len(ids[i]),
                    completion_tokens=len(row) - len(ids[i]) + 1,
                )
        return [verdicts[i] for i in range(len(requests))]

    @cached_property
    def _verdict_ids(self) -> list[int]:
        return list(self.codec.tokenizer(VERDICT, add_special_tokens=False).input_ids)

    def _reasoned(self, requests: Sequence[JudgeRequest], rows: list[list[int]]) -> tuple[list[list[int]], list[str]]:
        """Each question with the reasons that the model gives and the beginning of a verdict; and the reasons."""
        found, said = [], []
        for request, row in zip(requests, rows, strict=True):
            # one by one: what one question samples depends on no other, so that a resumed run goes on as it would have
            text = self._sample(row, [self.identity.seed, pair_hash(request.pair), request.order, request.sample])
            ending = _VERDICT.search(text)
            text = (text[: ending.start()] if ending else text).strip()
            reasons = list(self.codec.tokenizer(text, add_special_tokens=False).input_ids)
            found.append(row + reasons[: self.max_new_tokens] + self._verdict_ids)
            said.append(text)
        return found, said

    def _sample(self, row: list[int], stream: list[object]) -> str:
        ids, mask = (t.to(self.model.device) for t in left_pad([row], self.codec.pad_id))
        generator = torch.Generator().manual_seed(int(stable_hash(stream)[:15], 16))
        with _autocast(self.model):
            made = generate(
                self.model, ids, mask, max_new_tokens=self.max_new_tokens, temperature=self.temperature,
                eos_ids=self.codec.eos_ids, pad_id=self.codec.pad_id, generator=generator,
            )  # fmt: skip
        return self.codec.responses(made.tokens, made.mask, made.finished)[0].text

    def _question(self, request: JudgeRequest) -> list[int]:
        system, text = self.template.messages(request, reasons=self.rationale)
        if not self.codec.chat:
            text += ANSWER
        prompt = Prompt(request.pair.id, (Message("user", text),))
        return self.codec.prompt_ids_with_system(prompt, system)

    @torch.no_grad()
    def _letter_masses(self, rows: list[list[int]]) -> list[tuple[float, float]]:
        ids, mask = (t.to(self.model.device) for t in left_pad(rows, self.codec.pad_id))
        with _autocast(self.model):
            logits = self.model.lm_logits(self.model.hidden(ids, mask)[:, -1])
        probabilities = F.softmax(logits.float(), dim=-1)
        a, b = (probabilities[:, letters].sum(-1).double().tolist() for letters in self._letters)
        return list(zip(a, b, strict=True))

    def _verdict(self, request: JudgeRequest, a: float, b: float) -> Verdict:
        mass = a + b
        if not math.isfinite(mass):
            return Verdict(Outcome.ERROR, detail="the judge's model returned probabilities that are not finite")
        if mass < self.min_mass:
            return Verdict(Outcome.UNPARSED, mass=mass, detail=f"the letters A and B have probability {mass:.2g}")
        logs = [math.log(p) if p > 0 else None for p in (a, b)]
        of_pair = (logs[0], logs[1]) if request.order is Order.FORWARD else (logs[1], logs[0])
        shown = Verdict.of_shown(a / mass, request.order, mass=min(mass, 1.0))
        return replace(shown, logprobs=of_pair, how="logprobs")


class LikelihoodJudge:
    """Prefers the response that a principle's reading makes likelier, against the principle's opposite.

    With l(y, s) the mean log-probability per token of response y to the prompt under system message s,

        logit P(first > second) = sharpness * mean over principles of [d(first) - d(second)],
        d(y) = l(y, reading) - l(y, opposite),

    weighted by the principles' weights; the mean per token keeps a response's length out of it. A contrast pair is
    judged by the principle that it was sampled under alone. No order of presentation is involved.

    Args:
        model: the judge's model.
        codec: its text codec, with a chat template.
        model_id: what stands for the model's weights in the label store.
        sharpness: logits for a difference of one nat per token.

    Raises:
        TrimtabError: the model has no chat template, so no system message.
    """

    sees_order = False

    def __init__(self, model: CausalModel, codec: TextCodec, model_id: str, *, sharpness: float = 10.0) -> None:
        if not codec.chat:
            raise TrimtabError(
                ErrorKind.CONFIG,
                'label.judge = "likelihood" puts readings into the system message, and this model has no chat template',
                "name a chat model in label.model, or choose another judge",
            )
        self.model, self.codec, self.sharpness = model, codec, sharpness
        self.identity = JudgeIdentity("likelihood", model_id, stable_hash(["likelihood", sharpness]))

    def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        """Answer every request.

        An empty response is `unparsed` (it has no likelihood per token), one that does not fit the context an `error`.

        Raises:
            TrimtabError: a principle that is needed has no reading or no opposite.
        """
        rows: list[tuple[list[int], list[int]]] = []
        verdicts: list[Verdict | None] = []
        spans: list[tuple[int, list[Principle]]] = []
        for request in requests:
            principles = _principles(request)
            mine = [self._row(request.pair.prompt, y, s) for p in principles for y, s in _cells(request.pair, p)]
            refused = self._unfit(mine)
            verdicts.append(refused)
            spans.append((len(rows), principles))
            if refused is None:
                rows += mine
        means = self._mean_logprobs(rows) if rows else []
        return [
            refused if refused is not None else self._verdict(means[start : start + 4 * len(principles)], principles)
            for refused, (start, principles) in zip(verdicts, spans, strict=True)
        ]

    def _row(self, prompt: Prompt, response: Response, system: str) -> tuple[list[int], list[int]]:
        return self.codec.prompt_ids_with_system(prompt, system), self.codec.response_ids(response, prompt.id)

    def _unfit(self, rows: list[tuple[list[int], list[int]]]) -> Verdict | None:
        if any(not response for _, response in rows):
            return Verdict(Outcome.UNPARSED, detail="a response has no token")
        longest, context = max(len(prompt) + len(response) for prompt, response in rows), self.model.context_length
        return _too_long(longest, context) if context is not None and longest > context else None

    @torch.no_grad()
    def _mean_logprobs(self, rows: list[tuple[list[int], list[int]]]) -> list[float]:
        """Mean log-probability per response token of each (prompt ids, response ids), in nats."""
        prompts, prompt_mask = left_pad([p for p, _ in rows], self.codec.pad_id)
        responses, mask = right_pad([r for _, r in rows], self.codec.pad_id)
        ids = torch.cat([prompts, responses], 1).to(self.model.device)
        everything = torch.cat([prompt_mask, mask], 1).to(self.model.device)
        with _autocast(self.model):
            found: Tensor = response_logprobs(self.model, ids, everything, prompts.shape[1], 1.0).logprobs
        counted = mask.to(found.device)
        sums = torch.where(counted, found.double(), 0.0).sum(-1)
        return list((sums / counted.sum(-1)).tolist())

    def _verdict(self, means: list[float], principles: list[Principle]) -> Verdict:
        total = math.fsum(p.weight for p in principles)
        difference = 0.0
        for n, principle in enumerate(principles):
            first_good, first_bad, second_good, second_bad = means[4 * n : 4 * n + 4]
            difference += principle.weight / total * ((first_good - first_bad) - (second_good - second_bad))
        if not math.isfinite(difference):
            return Verdict(Outcome.ERROR, detail="the judge's model returned log-probabilities that are not finite")
        logit = max(-700.0, min(700.0, self.sharpness * difference))
        return Verdict(Outcome.OK, 1.0 / (1.0 + math.exp(-logit)))


def make_local(context: JudgeContext) -> LocalJudge:
    """The `local` judge (entry point)."""
    model, codec = context.load()
    config = context.config
    return LocalJudge(
        model,
        codec,
        context.model_id,
        context.template,
        rationale=config.rationale,
        temperature=max(config.temperature, _COLDEST),
        max_new_tokens=config.max_new_tokens or _REASON_TOKENS,
        seed=context.seed,
    )


def make_likelihood(context: JudgeContext) -> LikelihoodJudge:
    """The `likelihood` judge (entry point)."""
    model, codec = context.load()
    return LikelihoodJudge(model, codec, context.model_id)


def _letter_ids(codec: TextCodec, letter: str) -> list[int]:
    """Single tokens that a model may answer with: the letter alone, or after a blank."""
    spelled = [codec.tokenizer(text, add_special_tokens=False).input_ids for text in (letter, f" {letter}")]
    unknown = codec.tokenizer.unk_token_id
    ids = sorted({ids[0] for ids in spelled if len(ids) == 1 and ids[0] != unknown})
    if not ids:
        raise TrimtabError(
            ErrorKind.MODEL,
            f'label.judge = "local" reads the probability of the letter {letter}; the tokenizer has no token for it',
            "choose another model in label.model, or another judge",
        )
    return ids


def _principles(request: JudgeRequest) -> list[Principle]:
    """The principle asked about, or that a contrast pair was sampled under, else all; with reading and opposite."""
    principles = [p for p in request.constitution.principles if p.weight > 0]
    sampled_under = request.pair.origin.get("principle")
    if sampled_under is not None and request.principle is None:
        principles = [p for p in principles if p.id == sampled_under]
        if not principles:
            raise TrimtabError(
                ErrorKind.DATA,
                f"pair {request.pair.id!r} was sampled under principle {sampled_under!r}, which constitution "
                f"{request.constitution.name!r} does not have",
                "sample the pairs again, or put the principle back",
            )
    lacking = [p.id for p in principles if not p.reading or not p.opposite]
    if lacking:
        raise TrimtabError(
            ErrorKind.CONFIG,
            f'label.judge = "likelihood" needs reading and opposite of every principle; not so {", ".join(lacking)}',
            "add `reading` and `opposite` to them in the constitution file",
        )
    return principles


def _cells(pair: CandidatePair, principle: Principle) -> list[tuple[Response, str]]:
    reading, opposite = principle.reading or "", principle.opposite or ""
    return [(response, system) for response in (pair.first, pair.second) for system in (reading, opposite)]


def _too_long(tokens: int, context: int | None) -> Verdict:
    return Verdict(Outcome.ERROR, detail=f"{tokens} tokens exceed the judge's context of {context}")


def _autocast(model: CausalModel) -> torch.autocast:
    half = model.compute_dtype is not torch.float32
    return torch.autocast(model.device.type, dtype=model.compute_dtype if half else None, enabled=half)
