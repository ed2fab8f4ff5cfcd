"""The address of a server, as a setting names it."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["check_address"]


def check_address(text: str) -> str:
    """Hand back a URL that a request can be sent to; a text that is no URL as well.

    Args:
        text: http(s)://host, http(s)://host:port, with a path or without; or a word without "://".

    Raises:
        ValueError: it has no host, a port that is none, a user or password, a query or fragment, or a character that a
            URL cannot hold. The message says which, and does not repeat the text.
    """
    if "://" not in text:
        return text
    if fault := _fault(text):
        raise ValueError(f"{fault}: http(s)://host:port is right")
    return text


def _fault(text: str) -> str:
    if not (text.isascii() and text.isprintable()) or any(c in ' "<>\\^`{|}' for c in text):
        return "the URL holds a character that none can hold"
    try:
        parts = urlsplit(text)
        host, user = parts.hostname, parts.username
    except ValueError:
        return "the URL has brackets that enclose no IPv6 address"
    if user is not None or "@" in parts.netloc:
        return "the URL holds a user name or password, which is not sent (VLLM_API_KEY is)"
    if not host:
        return "the URL has no host"
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0 or parts.netloc.endswith(":"):
        return "the port of the URL is no whole number from 1 to 65535"
    if any(c in text for c in "?#"):
        return "the URL has a query or a fragment"
    return ""
