"""What a vLLM server is asked and what it answers, taken as hostile: each answer is read whole, bounded and checked.

A redirect is never followed, since the key and the request are meant for the server that `ppo.engine` names. Whatever
an answer lacks, has too much of or of another kind is told with the URL, the key, the value and what would be right.
"""

from __future__ import annotations

import json
import os
import reprlib
import time
from collections.abc import Sequence
from http.client import HTTPException, HTTPResponse, IncompleteRead
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["Response", "Server", "first_line"]

Response = tuple[Sequence[int], Sequence[float]]
"""Tokens and their log-probabilities."""

_SOON = 60
"""Seconds for what needs no work of the server."""
_LATE = 1800
"""Seconds for loading weights, and for the responses to one prompt, waiting for the other prompts included."""
_LARGEST = 2**30
"""Bytes of an answer."""
_PIECE = 2**20
_TOLD = 4096
"""Bytes that are read of an answer that says what went wrong."""
_ROUNDING = 1e-3
"""How far above 0 a log-probability may be, in nats."""
_LOWEST = -3e38
"""Log-probabilities below are infinite in float32."""


class Server:
    """A vLLM server at http(s)://host:port, with or without a slash or `/v1` at the end."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")

    def model(self) -> str:
        """The name of the model that it serves.

        Raises:
            TrimtabError: as all methods: no server answers, it redirects, or it answers what is not expected.
        """
        where, answer = self._ask("/v1/models", _SOON)
        models = _list(where, "data", _table(where, "the answer", answer).get("data"))
        if not models:
            raise _wrong(where, "data", models, "a list with a model")
        name = _table(where, "data[0]", models[0]).get("id")
        if not isinstance(name, str) or not name:
            raise _wrong(where, "data[0].id", name, "the name of a model")
        return name

    def load(self, directory: Path) -> None:
        """Have every worker load the weights of a model directory."""
        call = {"method": "reload_weights", "kwargs": {"weights_path": str(directory)}}
        where, answer = self._ask("/collective_rpc", _LATE, call, empty={"results": [None]})
        results = _list(where, "results", _table(where, "the answer", answer).get("results"))
        if not results:
            raise _wrong(where, "results", results, "a list with null for every worker")
        for number, result in enumerate(results):
            if result is not None:
                raise _wrong(where, f"results[{number}]", result, "null, as of a worker that has loaded the weights")

    def forget(self) -> bool:
        """Drop cached prefixes; whether it did."""
        where, answer = self._ask("/reset_prefix_cache", _SOON, {}, empty={"success": True})
        success = _table(where, "the answer", answer).get("success", True)
        if not isinstance(success, bool):
            raise _wrong(where, "success", success, "true or false")
        return success

    def complete(self, body: dict[str, Any], vocabulary: int) -> list[Response]:
        """The `body["n"]` responses to a prompt, in the order of their numbers.

        Args:
            body: the request.
            vocabulary: tokens are below.
        """
        where, answer = self._ask("/v1/completions", _LATE, body)
        count = body["n"]
        choices = _list(where, "choices", _table(where, "the answer", answer).get("choices"))
        if len(choices) != count:
            raise _wrong(where, "choices", choices, f"n = {count} choices, not {len(choices)}")
        found: dict[int, Response] = {}
        for place, choice in enumerate(choices):
            key = f"choices[{place}]"
            index = _table(where, key, choice).get("index")
            if type(index) is not int or not 0 <= index < count or index in found:
                raise _wrong(where, f"{key}.index", index, f"a whole number from 0 to {count - 1} that no other has")
            found[index] = _response(where, key, choice, vocabulary, body["max_tokens"])
        return [found[index] for index in range(count)]

    def _ask(
        self, path: str, seconds: float, body: dict[str, Any] | None = None, *, empty: dict[str, Any] | None = None
    ) -> tuple[str, Any]:
        """The URL that was asked and its answer; with a body it is posted. `empty`: what an empty answer means."""
        where = self._url + path
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | _credentials()
        try:
            request = Request(where, data, headers)
            with build_opener(_NoRedirect).open(request, timeout=seconds) as answer:
                text = _read(where, answer, seconds)
        except HTTPError as error:
            raise self._refused(path, error) from error
        except (OSError, HTTPException, ValueError) as error:
            late = isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError)
            raise TrimtabError(
                ErrorKind.MISSING,
                f"ppo.engine: no vLLM server answers at {where}"
                + (f" within {seconds:g} s" if late else f": {first_line(error)}"),
                "start it, or correct the URL; see docs/engines.md",
            ) from error
        return where, empty if empty is not None and not text else _parsed(where, text)

    def _refused(self, path: str, error: HTTPError) -> TrimtabError:
        what = f"vLLM at {self._url} answers {error.code} to {path}"
        if 300 <= error.code < 400:
            target = str(error.headers.get("Location", "nowhere"))[:200]
            return TrimtabError(
                ErrorKind.FAILED,
                f"{what}: a redirect to {target!r}",
                "redirects are not followed: set ppo.engine to the URL of the vLLM server itself",
            )
        try:
            told = first_line(error.read(_TOLD).decode(errors="replace"))
        except (OSError, HTTPException, ValueError) as unread:
            told = first_line(unread)
        hint = "start it with VLLM_SERVER_DEV_MODE=1" if error.code == 404 else "see the server's log"
        return TrimtabError(ErrorKind.FAILED, f"{what}: {told}", hint)


class _NoRedirect(HTTPRedirectHandler):
    """Leaves every redirect to be raised as the `HTTPError` it is."""

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> None:
        return None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _credentials() -> dict[str, str]:
    key = os.environ.get("VLLM_API_KEY")
    if not key:
        return {}
    if not (key.isascii() and key.isprintable()):  # http.client would tell it whole
        raise TrimtabError(
            ErrorKind.MISSING, "VLLM_API_KEY holds a character that cannot be sent", "a line break, as of a file's end?"
        )
    return {"Authorization": f"Bearer {key}"}


def _read(where: str, answer: HTTPResponse, seconds: float) -> bytes:
    """All of an answer. A socket's timeout is for one piece; here the answer as a whole has that time."""
    end = time.monotonic() + seconds
    length = answer.length
    parts: list[bytes] = []
    size = 0
    while length is None or size < length:
        if max(size, length or 0) > _LARGEST:
            raise TrimtabError(
                ErrorKind.FAILED,
                f"{where} answered with more than {_LARGEST} bytes",
                "vLLM answers with less: is it a vLLM server, and is ppo.max_new_tokens right?",
            )
        if time.monotonic() > end:
            raise TimeoutError
        piece = answer.read1(_PIECE if length is None else min(_PIECE, length - size))
        if not piece:
            break
        parts.append(piece)
        size += len(piece)
    if length is not None and size < length:
        raise IncompleteRead(b"", length - size)
    return b"".join(parts)


def _parsed(where: str, text: bytes) -> Any:
    try:
        answer = json.loads(text)
    except RecursionError:
        raise _wrong(where, "the answer", _start(text), "JSON that is not nested as deeply") from None
    except ValueError as error:  # no JSON, no UTF-8, or a number of thousands of digits
        raise TrimtabError(
            ErrorKind.FAILED,
            f"{where} answered with something that is no JSON: {_start(text)!r} ({first_line(error)})",
            "is it the URL of a vLLM server? See ppo.engine and docs/engines.md",
        ) from error
    if isinstance(answer, dict) and answer.get("error") is not None:
        raise TrimtabError(
            ErrorKind.FAILED, f"{where} answered with an error: {_show(answer['error'])}", "see the server's log"
        )
    return answer


def _response(where: str, key: str, choice: dict[str, Any], vocabulary: int, longest: int) -> Response:
    tokens, logprobs = choice.get("token_ids"), choice.get("logprobs")
    if tokens is None or logprobs is None:
        raise TrimtabError(
            ErrorKind.FAILED,
            f"{where} gives no token ids or log-probabilities: {key}.{'token_ids' if tokens is None else 'logprobs'} "
            "is null or missing",
            "it must be vLLM 0.15 or later",
        )
    tokens = _list(where, f"{key}.token_ids", tokens)
    name = f"{key}.logprobs.token_logprobs"
    values = _list(where, name, _table(where, f"{key}.logprobs", logprobs).get("token_logprobs"))
    if len(tokens) > longest:
        raise _wrong(where, f"{key}.token_ids", tokens, f"at most max_tokens = {longest} tokens, not {len(tokens)}")
    if len(values) != len(tokens):
        raise _wrong(where, name, values, f"one for each of the {len(tokens)} token_ids, not {len(values)}")
    for place, token in enumerate(tokens):
        if type(token) is not int or not 0 <= token < vocabulary:
            wanted = f"a whole number from 0 to {vocabulary - 1}, the policy's last token"
            raise _wrong(where, f"{key}.token_ids[{place}]", token, wanted)
    for place, value in enumerate(values):
        if type(value) not in (int, float) or not _LOWEST <= value <= _ROUNDING:
            raise _wrong(where, f"{name}[{place}]", value, "a log-probability: a finite number of at most 0")
    return tokens, [float(value) for value in values]


def _table(where: str, key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(where, key, value, "an object")
    return value


def _list(where: str, key: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(where, key, value, "a list")
    return value


def _wrong(where: str, key: str, value: Any, wanted: str) -> TrimtabError:
    return TrimtabError(
        ErrorKind.FAILED,
        f"{where}: {key} is {_show(value)}: it must be {wanted}",
        "vLLM answers otherwise: is it a vLLM server, of the policy's model and a version in docs/engines.md?",
    )


def _show(value: Any) -> str:
    return "null" if value is None else reprlib.repr(value)[:200]


def _start(text: bytes) -> str:
    return text[:80].decode(errors="replace")


def first_line(what: object) -> str:
    """The first line of a message, shortened; of an error without one its kind."""
    lines = str(what).strip().splitlines()
    return lines[0][:300] if lines else type(what).__name__
