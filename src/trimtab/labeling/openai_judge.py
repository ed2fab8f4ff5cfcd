"""The judge behind any OpenAI-compatible server: vLLM, llama.cpp, Ollama, a hosted one.

A verdict is read from the log-probabilities of the two letters where the server gives them, else from structured
output where it takes that, else from the text. Which of them works shows in the first answers, which are asked for one
at a time; parameters that the server does not take are left out from then on.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from trimtab.config.schema import LabelConfig
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.budget import Budget, Expected, Prices
from trimtab.labeling.extraction import Letters, letters_at, refuses, said, without_material
from trimtab.labeling.judges import JudgeContext
from trimtab.labeling.openai_wire import JSON_ONLY, content_of, schema, tokens_of
from trimtab.labeling.protocol import JudgeIdentity, JudgeRequest, Order, Outcome, Verdict
from trimtab.labeling.server import Calls, NoAnswer, OutOfBudget, Refusal, Server, shown_url
from trimtab.labeling.templates import PLAIN, Template, fence_of
from trimtab.runs.files import stable_hash

__all__ = ["MIN_MASS", "OpenAIJudge", "make"]

MIN_MASS = 0.01
"""Below this probability of the letters an answer is unparsed."""

OPENAI = "https://api.openai.com/v1"
_LETTER_TOKENS, _REASON_TOKENS = 16, 512
_TOP = (20, 5)
"""Likeliest tokens asked for; some servers list no more than five."""
_GRACE_S = 10.0
"""How long calls under way may go on after a Ctrl-C."""
_TICK_S = 0.2
_TOO_LONG = re.compile("context|too long|too large|exceed", re.IGNORECASE)
_HOPELESS = 20
"""Questions in a row without an answer after which the server is given up."""
_BYTES_PER_TOKEN = 3.5
"""Until the server's own counts are there."""


class OpenAIJudge:
    """Asks a model behind a server (implements `StreamingJudge`).

    Args:
        server: where it is; judges may share one.
        model: the server's name of the model.
        template: the wording.
        rationale: let the model reason before its verdict.
        temperature: of the model; above 0 votes differ, and `seed` enters.
        max_new_tokens: longest answer; None: 16, with a rationale 512.
        prices: of a million tokens.
        seed: of the sampling, sent to servers that take one.
    """

    sees_order = True

    def __init__(
        self,
        server: Server,
        model: str,
        template: Template = PLAIN,
        *,
        rationale: bool = False,
        temperature: float = 0.0,
        max_new_tokens: int | None = None,
        prices: Prices | None = None,
        seed: int = 0,
    ) -> None:
        self.server, self.model, self.template, self.rationale = server, model, template, rationale
        self.temperature, self.prices = temperature, prices or Prices()
        self.max_new_tokens = max_new_tokens or (_REASON_TOKENS if rationale else _LETTER_TOKENS)
        asked = stable_hash([template.hash, rationale, temperature, self.max_new_tokens])
        at = 0 if temperature == 0 else seed
        self.identity = JudgeIdentity("openai", f"{model} at {server.shown}", asked, at, template.name)
        self.how = "logprobs"
        self.settled = False
        self._dropped: set[str] = set()
        self._top = 0
        self._in_a_row = 0
        self._bytes, self._tokens = _BYTES_PER_TOKEN * 100, 100.0

    # the protocol

    def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        """Answer every request, in order; one that the budget left open is an error."""
        verdicts = [Verdict(Outcome.ERROR, detail="the budget is used up")] * len(requests)
        for group in self.stream(requests, concurrency=16, stopping=lambda: False):
            for number, verdict in group:
                verdicts[number] = verdict
        return verdicts

    def stream(
        self, requests: Iterable[JudgeRequest], *, concurrency: int, stopping: Callable[[], bool]
    ) -> Iterator[list[tuple[int, Verdict]]]:
        """See `StreamingJudge`.

        Raises:
            TrimtabError: no call to this server can succeed, or none of the last twenty did; what was answered before
                is handed out first.
        """
        waiting, number, fatal, deadline = iter(requests), 0, None, math.inf
        running: dict[Future[Verdict | None], int] = {}
        more = True
        try:
            while more or running:
                while more and len(running) < (concurrency if self.settled else 1):
                    request = None if stopping() or fatal else next(waiting, None)
                    if request is None:
                        more = False
                        break
                    running[self.server.thread.submit(self._answer(request))] = number
                    number += 1
                finished = wait(running, timeout=_TICK_S, return_when=FIRST_COMPLETED).done
                if stopping() or fatal is not None:
                    more, deadline = False, min(deadline, time.monotonic() + _GRACE_S)
                group, failed = _collect(finished, running)
                fatal = fatal or failed or self._hopeless()
                if group:
                    yield group
                if time.monotonic() > deadline:
                    break
        finally:
            for future in running:
                future.cancel()
        if fatal is not None:
            raise fatal

    def expect(self, request: JudgeRequest) -> Expected:
        """What asking would take: the prompt by its length, the answer at its longest."""
        system, user = self.template.messages(request, reasons=self.rationale)
        prompt = math.ceil(len((system + user).encode("utf-8", "replace")) * self._tokens / self._bytes) + 8
        return Expected(prompt, self.max_new_tokens, self.prices.cost(prompt, self.max_new_tokens))

    def seconds(self, calls: int, tokens: int, concurrency: int) -> float | None:
        """The time that the rate limits allow so many calls in."""
        limits = ((calls, self.server.requests_per_minute), (tokens, self.server.tokens_per_minute))
        found = [60.0 * amount / limit for amount, limit in limits if limit]
        return max(found) if found else None

    # one question

    async def _answer(self, request: JudgeRequest) -> Verdict | None:
        """The verdict; None where the budget leaves the question open."""
        began, expected = time.monotonic(), self.expect(request)
        calls = Calls(self.prices, expected.prompt_tokens + expected.completion_tokens, expected.cost or 0.0)
        try:
            async with asyncio.timeout(self.server.total_s):
                fields = self._read(request, *await self._asked(request, calls))
            self.server.answered, self._in_a_row = True, 0
            self._learn(request, calls)
        except OutOfBudget:
            return None
        except (NoAnswer, Refusal, TimeoutError) as error:
            self._in_a_row += isinstance(error, NoAnswer | TimeoutError)
            status = f"status {error.status}: " if isinstance(error, Refusal) else ""
            told = f"no answer within {self.server.total_s:g} s" if isinstance(error, TimeoutError) else str(error)
            tries = f" ({calls.made} calls)" if calls.made > 1 else ""
            fields = {"outcome": Outcome.ERROR, "detail": f"{status}{told}{tries}"}
        return Verdict(
            **fields,
            prompt_tokens=calls.prompt_tokens,
            completion_tokens=calls.completion_tokens,
            cost=calls.cost,
            seconds=round(time.monotonic() - began, 6),
        )

    async def _asked(self, request: JudgeRequest, calls: Calls) -> tuple[dict[str, Any], str]:
        """The answer, and how it was asked for; parameters that the server refuses are dropped on the way."""
        while True:
            how = self.how
            body = self._body(request, how)
            try:
                value = await self.server.ask(body, calls)
            except Refusal as refusal:
                if not self._adapt(body, refusal.message):
                    raise
                continue
            self._settle(value, how)
            return value, how

    def _body(self, request: JudgeRequest, how: str) -> dict[str, Any]:
        closing = JSON_ONLY[self.rationale] if how == "schema" else ""
        system, user = self.template.messages(request, reasons=self.rationale, closing=closing)
        seed = hashlib.sha256(f"{self.identity.seed}/{request.sample}".encode()).digest()[:4]
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "system", "content": _clean(system)}, {"role": "user", "content": _clean(user)}],
            "temperature": self.temperature,
            "max_tokens": self.max_new_tokens,
        }
        if self.temperature > 0:
            body["seed"] = int.from_bytes(seed) >> 1
        if how == "logprobs":
            body |= {"logprobs": True, "top_logprobs": _TOP[self._top]}
        if how == "schema":
            body["response_format"] = schema(self.rationale)
        if "max_tokens" in self._dropped:
            body["max_completion_tokens"] = self.max_new_tokens
        return {name: value for name, value in body.items() if name not in self._dropped}

    def _adapt(self, body: Mapping[str, Any], message: str) -> bool:
        """Ask for less after a refusal; False where there is nothing that could be left out."""
        named = [
            p for p in ("max_tokens", "temperature", "seed", "max_completion_tokens") if p in message and p in body
        ]
        if (self.server.answered and self.settled) or _TOO_LONG.search(message):
            return False
        if "top_logprobs" in body and self._top + 1 < len(_TOP) and "top_logprobs" in message:
            self._top += 1
        elif named:
            self._dropped.add(named[0])
        elif "logprobs" in body:
            self.how = "schema"
        elif "response_format" in body:
            self.how = "text"
        else:
            return False
        return True

    def _settle(self, value: Mapping[str, Any], how: str) -> None:
        """Learn from an answer whether the server does what was asked for."""
        if self.settled or how != self.how:
            return
        if how == "logprobs" and not tokens_of(value):
            self.how = "schema"
        elif how == "schema" and not (content_of(value) or "").strip().startswith("{"):
            self.how = "text"
            self.settled = True
        else:
            self.settled = True

    # what an answer says

    def _read(self, request: JudgeRequest, value: Mapping[str, Any], how: str) -> dict[str, Any]:
        """The fields of the verdict that an answer gives."""
        choice = value["choices"][0]
        message = choice["message"]
        content = self.server.scrub(content_of(value) or "")
        thought = message.get("reasoning_content") or message.get("reasoning")
        fields: dict[str, Any] = {"text": content, "how": "text" if how == "logprobs" and not tokens_of(value) else how}
        if choice.get("finish_reason") == "content_filter" or message.get("refusal"):
            told = message.get("refusal") or "the server's content filter"
            return fields | {"outcome": Outcome.REFUSED, "detail": self.scrub_detail(told)}
        own = without_material(content, fence_of(request))
        verdict = said(own)
        reasons = own[: verdict.at] if verdict is not None and self.rationale else ""
        fields["rationale"] = self.server.scrub(thought if isinstance(thought, str) and thought else reasons).strip()
        letters = (
            letters_at(tokens_of(value), verdict.at if verdict is not None else None) if how == "logprobs" else None
        )
        if letters is not None:
            fields |= {"mass": letters.mass, "logprobs": _of_pair(letters, request.order)}
        if verdict is not None and verdict.verdict == "tie":
            return fields | {"outcome": Outcome.TIE, "p_first": 0.5}
        # after reasons the letter's probability counts only where a verdict was said
        if letters is not None and letters.mass >= MIN_MASS and (verdict is not None or not self.rationale):
            return fields | {"outcome": Outcome.OK, "p_first": _of_shown(letters.p_a, request.order)}
        if verdict is not None:
            return fields | {"outcome": Outcome.OK, "p_first": _of_shown(float(verdict.verdict == "A"), request.order)}
        if refuses(own):
            return fields | {"outcome": Outcome.REFUSED, "detail": self.scrub_detail(content)}
        cut = choice.get("finish_reason") == "length"
        why = (
            "cut off before a verdict (label.max_new_tokens)" if cut and self.rationale else "no verdict in the answer"
        )
        low = "" if letters is None else f"; the letters have probability {letters.mass:.2g}"
        return fields | {"outcome": Outcome.UNPARSED, "detail": why + low}

    def scrub_detail(self, text: object) -> str:
        return self.server.scrub(text)[:500]

    def _learn(self, request: JudgeRequest, calls: Calls) -> None:
        """Correct the guess of tokens by the server's count."""
        if calls.prompt_tokens and calls.made == 1:
            system, user = self.template.messages(request, reasons=self.rationale)
            self._bytes += len((system + user).encode("utf-8", "replace"))
            self._tokens += calls.prompt_tokens

    def _hopeless(self) -> TrimtabError | None:
        if self._in_a_row < _HOPELESS:
            return None
        return TrimtabError(
            ErrorKind.FAILED,
            f"{self.server.shown}: {self._in_a_row} questions in a row got no answer",
            "what was answered before is recorded; see that the server is up and give the same command again",
        )


def make(context: JudgeContext) -> OpenAIJudge:
    """The `openai` judge (entry point).

    Raises:
        TrimtabError: the variable that should hold the key is not set.
    """
    config = context.config
    url, key = config.base_url or OPENAI, _key(config)
    shared = ("openai", url, config.api_key_env)
    server = context.shared.get(shared)
    if not isinstance(server, Server):
        server = context.shared[shared] = Server(
            url,
            key,
            timeout_s=config.timeout_s,
            requests_per_minute=config.requests_per_minute,
            tokens_per_minute=config.tokens_per_minute,
            budget=context.budget or Budget(),
        )
    return OpenAIJudge(
        server,
        config.model or "",
        context.template,
        rationale=config.rationale,
        temperature=config.temperature,
        max_new_tokens=config.max_new_tokens,
        prices=Prices(config.input_price, config.output_price),
        seed=context.seed,
    )


def _key(config: LabelConfig) -> str | None:
    if config.api_key_env is None:
        if config.base_url is None:
            raise TrimtabError(
                ErrorKind.MISSING,
                f"{shown_url(OPENAI)} needs a key, and label.api_key_env is not set",
                "put the key into an environment variable and its name into label.api_key_env",
            )
        return None
    key = os.environ.get(config.api_key_env, "").strip()
    if not key:
        raise TrimtabError(
            ErrorKind.MISSING,
            f"label.api_key_env = {config.api_key_env!r}: there is no such environment variable, or it is empty",
            "set it to the key; the key itself belongs in no file",
        )
    return key


def _collect(
    finished: Iterable[Future[Verdict | None]], running: dict[Future[Verdict | None], int]
) -> tuple[list[tuple[int, Verdict]], TrimtabError | None]:
    """The verdicts that have come, and an error that no further call can be spared."""
    group: list[tuple[int, Verdict]] = []
    fatal = None
    for future in finished:
        number = running.pop(future)
        try:
            verdict = future.result()
        except TrimtabError as error:
            fatal = error
            continue
        if verdict is not None:
            group.append((number, verdict))
    return group, fatal


def _of_pair(letters: Letters, order: Order) -> tuple[float | None, float | None]:
    return (letters.a, letters.b) if order is Order.FORWARD else (letters.b, letters.a)


def _of_shown(p_shown_first: float, order: Order) -> float:
    return p_shown_first if order is Order.FORWARD else 1.0 - p_shown_first


def _clean(text: str) -> str:
    """What UTF-8 can carry: half characters become the replacement character."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
