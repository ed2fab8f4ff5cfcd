"""Judges that run a model of one's own: A/B letters, and likelihood under a reading against its opposite."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from trimtab.constitution import Principle
from trimtab.data.records import CandidatePair, Message, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.judges import JudgeContext
from trimtab.labeling.protocol import JudgeIdentity, JudgeRequest, Outcome, Verdict
from trimtab.models.logprobs import response_logprobs
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec, left_pad, right_pad
from trimtab.runs.files import stable_hash

__all__ = ["LikelihoodJudge", "LocalJudge", "make_likelihood", "make_local"]

SYSTEM = "You compare two responses to the same prompt by these principles:\n\n{principles}"
QUESTION = (
    "Prompt:\n{prompt}\n\nResponse A:\n{first}\n\nResponse B:\n{second}\n\n"
    "Which response follows the principles better? Answer with one letter, A or B."
)
ANSWER = "\n\nAnswer:"
"""Ends the text of a judge without a chat template."""


class LocalJudge:
    """Asks a causal model which response is better and reads the next token's probabilities of the letters A and B.

    P(A) / (P(A) + P(B)) is the verdict; the sum, the mass, says whether the model was answering the question at all.

    Args:
        model: the judge's model.
        codec: its text codec; without a chat template the question is plain text.
        model_id: what stands for the model's weights in the label store.
        min_mass: below this mass the verdict is `unparsed`.

    Raises:
        TrimtabError: the tokenizer has no single token for A or for B.
    """

    sees_order = True

    def __init__(self, model: CausalModel, codec: TextCodec, model_id: str, *, min_mass: float = 0.01) -> None:
        self.model, self.codec, self.min_mass = model, codec, min_mass
        template = stable_hash([SYSTEM, QUESTION, ANSWER, codec.chat, min_mass])
        self.identity = JudgeIdentity("local", model_id, template)
        self._letters = [_letter_ids(codec, letter) for letter in ("A", "B")]

    def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        """Answer every request; one that does not fit the model's context is an `error`, with the lengths."""
        ids = [self._question(request) for request in requests]
        context = self.model.context_length
        fitting = [i for i, row in enumerate(ids) if context is None or len(row) < context]
        verdicts = {i: _too_long(len(row), context) for i, row in enumerate(ids) if i not in set(fitting)}
        if fitting:
            masses = self._letter_masses([ids[i] for i in fitting])
            for i, (a, b) in zip(fitting, masses, strict=True):
                verdicts[i] = self._verdict(requests[i], a, b)
        return [verdicts[i] for i in range(len(requests))]

    def _question(self, request: JudgeRequest) -> list[int]:
        first, second = request.shown
        system = SYSTEM.format(principles=request.constitution.render())
        text = QUESTION.format(prompt=request.pair.prompt.text, first=first.text, second=second.text)
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
        return Verdict.of_shown(a / mass, request.order, mass=min(mass, 1.0))


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
    return LocalJudge(model, codec, context.model_id)


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
    """The principle that a contrast pair was sampled under, else all that count; each needs reading and opposite."""
    principles = [p for p in request.constitution.principles if p.weight > 0]
    sampled_under = request.pair.origin.get("principle")
    if sampled_under is not None:
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
