"""Talking to an OpenAI-compatible server: one call at a time is described here, many run at once.

The SDK's own retries are off: a retry has to pass the rate limits and the budget as any call does, and waits as long as
the server says (Retry-After). What the server can do is learned from its answers and remembered.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import threading
import time
import weakref
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import openai
import stamina
from aiolimiter import AsyncLimiter

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.budget import Budget, Prices

__all__ = ["Calls", "LoopThread", "NoAnswer", "OutOfBudget", "Refusal", "Server", "shown_url"]

T = TypeVar("T")

ATTEMPTS = 8
"""Most calls for one question; `total_s` usually ends it earlier."""
TOTAL = 4
"""Longest time for one question, in time-outs of a single call."""
FIRST_WAIT_S, JITTER_S = 0.5, 1.0
"""Pause before the second try, which doubles from try to try; and the most that is added to one at random."""
_BURST_S = 5.0
"""A rate limit is kept over this many seconds, not only over the minute: servers count that way too."""
_RETRIED = frozenset({408, 409, 425, 429})
_BAD_PARAMETER = frozenset({400, 404, 405, 422, 501})
_UNSUPPORTED = re.compile("logprobs|response_format|json_schema")
"""Some servers fail with a 500 over a parameter that they do not know."""

# its warnings about every retry are for programs that set up logging
logging.getLogger("stamina").addHandler(logging.NullHandler())


class OutOfBudget(Exception):  # noqa: N818 - not an error: the question stays open
    """The budget allows no further call."""


class Refusal(Exception):  # noqa: N818 - of the request, not of the judge
    """The server does not take the request as it is; asking again would not help.

    Args:
        message: what the server says, without secrets.
        status: its HTTP status.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.message, self.status = message, status


class NoAnswer(Exception):  # noqa: N818 - most are tried again
    """Worth another try, after `wait` seconds where the server says so."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


@dataclass
class Calls:
    """What one question has taken so far.

    Args:
        prices: of its judge.
        tokens: that a call will probably take.
        expected: probable cost of a call.
        made: calls.
        prompt_tokens: as far as the server counts them.
        completion_tokens: as well.
        cost: None without prices; a call that was cut off counts as expected: it may be billed all the same.
    """

    prices: Prices
    tokens: int = 0
    expected: float = 0.0
    made: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None

    def answered(self, usage: object) -> tuple[float | None, int]:
        """Add what an answer says it took; returns its cost (None: not known) and tokens."""
        counts = usage if isinstance(usage, dict) else {}
        prompt, completion = (
            n if isinstance(n := counts.get(name), int) and n >= 0 else None
            for name in ("prompt_tokens", "completion_tokens")
        )
        if prompt is not None:
            self.prompt_tokens = (self.prompt_tokens or 0) + prompt
        if completion is not None:
            self.completion_tokens = (self.completion_tokens or 0) + completion
        return self.prices.cost(prompt, completion), (prompt or 0) + (completion or 0)

    def charge(self, cost: float | None) -> None:
        if self.prices.known:
            self.cost = (self.cost or 0.0) + (self.expected if cost is None else cost)


class LoopThread:
    """An event loop in a thread of its own: synchronous code hands it coroutines, Jupyter's loop is left alone."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self.loop.run_forever, name="trimtab-judge", daemon=True)
        thread.start()
        self._end = weakref.finalize(self, self.loop.call_soon_threadsafe, self.loop.stop)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)


class Server:
    """A server and how it may be used: key, limits, time-outs, budget.

    Args:
        base_url: its address, with the /v1.
        key: sent as bearer token; None: none is sent.
        timeout_s: for one call; a question is given up after `TOTAL` times that.
        requests_per_minute: calls started, retries included.
        tokens_per_minute: tokens asked for.
        budget: asked before every call.
    """

    def __init__(
        self,
        base_url: str,
        key: str | None,
        *,
        timeout_s: float,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.shown = shown_url(base_url)
        self.timeout_s, self.total_s = timeout_s, TOTAL * timeout_s
        self.requests_per_minute, self.tokens_per_minute = requests_per_minute, tokens_per_minute
        self.budget = budget or Budget()
        self.thread = LoopThread()
        self._key = key
        self._requests, self._tokens = _limiter(requests_per_minute), _limiter(tokens_per_minute)
        self._not_before = 0.0
        self._headers: dict[str, Any] = {} if key else {"Authorization": openai.Omit()}
        self._client = openai.AsyncOpenAI(base_url=base_url, api_key=key or "none", max_retries=0, timeout=timeout_s)

    def scrub(self, text: object) -> str:
        """A text from elsewhere without the key, should it stand in it."""
        return str(text).replace(self._key, "***") if self._key else str(text)

    async def ask(self, body: Mapping[str, Any], calls: Calls) -> dict[str, Any]:
        """The server's answer to a chat completion, as JSON; tried again where that may help.

        Args:
            body: the parameters of the call.
            calls: what is expected of it; counts what it takes.

        Raises:
            OutOfBudget: the budget ended.
            Refusal: the server takes no such request.
            TrimtabError: no call to this server can succeed (kind missing or config).
            NoAnswer: every try failed; its text says how the last one did.
        """
        tries = stamina.retry_context(
            on=self._wait,
            attempts=ATTEMPTS,
            timeout=self.total_s,
            wait_initial=FIRST_WAIT_S,
            wait_max=30.0,
            wait_jitter=JITTER_S,
        )
        async for attempt in tries:
            with attempt:
                return await self._once(body, calls)
        raise AssertionError  # retry_context returns or raises

    def _wait(self, error: Exception) -> bool | float:
        if not isinstance(error, NoAnswer):
            return False
        if error.wait is None:
            return True
        return error.wait if error.wait < self.total_s else False

    async def _once(self, body: Mapping[str, Any], calls: Calls) -> dict[str, Any]:
        await self._admitted(calls.tokens)
        if not self.budget.begin(calls.expected):
            raise OutOfBudget
        calls.made += 1
        charged: float | None = None
        tokens = 0
        try:
            reply = await self._client.chat.completions.with_raw_response.create(**body, extra_headers=self._headers)
            value = _as_object(reply.http_response.content)
            charged, tokens = calls.answered(value.get("usage"))
            if not _message(value):
                told = self.scrub(value.get("error") or "")
                raise NoAnswer(f"the answer has no message{f': {told}' if told else ''}"[:500])
            return value
        except openai.APITimeoutError:
            raise NoAnswer(f"no answer within {self.timeout_s:g} s") from None
        except openai.APIStatusError as error:
            charged = 0.0
            raise self._told(error) from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            raise NoAnswer(self.scrub(f"connection failed: {cause or type(cause).__name__}")) from None
        except openai.OpenAIError as error:
            raise NoAnswer(self.scrub(f"{type(error).__name__}: {error}")) from None
        finally:
            calls.charge(charged)
            self.budget.end(calls.expected, charged, tokens)

    async def _admitted(self, tokens: int) -> None:
        """Wait until the limits, and a server that asked for a pause, allow a call."""
        if self._requests is not None:
            await self._requests.acquire()
        if self._tokens is not None:
            await self._tokens.acquire(min(tokens, self._tokens.max_rate))
        while (left := self._not_before - time.monotonic()) > 0:
            await asyncio.sleep(left)

    def _told(self, error: openai.APIStatusError) -> Exception:
        """What a status means."""
        status, message = error.status_code, self.scrub(error.message)[:500]
        code = str(error.code or "")
        if status in (401, 403):
            return TrimtabError(
                ErrorKind.MISSING,
                f"{self.shown} refuses the key ({status}): {message}",
                "label.api_key_env names the environment variable that holds the key",
            )
        if status == 402 or code == "insufficient_quota":
            return TrimtabError(ErrorKind.FAILED, f"{self.shown}: the account is used up ({status}): {message}")
        if status == 404 and not self.answered:
            return TrimtabError(
                ErrorKind.CONFIG,
                f"{self.shown} does not know the model or the path (404): {message}",
                "check label.model and label.base_url (it ends in /v1 with most servers)",
            )
        if status in _BAD_PARAMETER or _UNSUPPORTED.search(message):
            return Refusal(message, status)
        if status in _RETRIED or status >= 500:
            wait = _retry_after(error.response.headers)
            if wait is not None and status == 429:
                self._not_before = max(self._not_before, time.monotonic() + min(wait, self.total_s))
            return NoAnswer(f"status {status}: {message}", wait)
        return Refusal(message, status)

    answered = False
    """Whether it ever gave an answer; set by who reads it."""


def shown_url(url: str) -> str:
    """An address without what may be secret in it: user, password, query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


def _limiter(per_minute: int | None) -> AsyncLimiter | None:
    if per_minute is None:
        return None
    burst = max(per_minute * _BURST_S / 60.0, 1.0)
    return AsyncLimiter(burst, burst * 60.0 / per_minute)


def _as_object(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise NoAnswer(f"the answer is no JSON ({len(content)} bytes)") from None
    if not isinstance(value, dict):
        raise NoAnswer(f"the answer is a JSON {type(value).__name__}, not an object")
    return value


def _message(value: Mapping[str, Any]) -> bool:
    """Whether there is a choice that says something, or that says why it does not."""
    choices = value.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return False
    if choice.get("finish_reason") in ("content_filter", "length") or message.get("refusal"):
        return True
    return isinstance(message.get("content"), str) and bool(message["content"].strip())


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / unit
        except ValueError:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - time.time()
            except (TypeError, ValueError, OverflowError):
                continue
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    return None
