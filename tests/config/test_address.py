"""The URL of an engine is refused with the settings, not at the first request, and without its password."""

from __future__ import annotations

import pytest

from trimtab.config.load import load_config
from trimtab.errors import ErrorKind, TrimtabError


@pytest.mark.parametrize("url", [
    "http://localhost:8000", "https://gpu-3.example.org", "http://[::1]:8000", "http://10.0.0.1:65535/v1/",
    "http://host:1/behind/a/proxy", "native", "transformers", "vllm",
])  # fmt: skip
def test_an_engine_that_can_be_asked_is_taken(url):
    assert load_config(None, [f"ppo.engine={url}"]).config.ppo.engine == url


@pytest.mark.parametrize(("url", "why"), [
    ("http://[::1", "no IPv6 address"), ("http://:80", "no host"), ("http:///v1", "no host"),
    ("http://host:abc", "from 1 to 65535"), ("http://host:99999999", "from 1 to 65535"),
    ("http://host:0", "from 1 to 65535"), ("http://host:", "from 1 to 65535"), ("http://host:-1", "from 1 to 65535"),
    ("https://h:1?x=1", "query or a fragment"), ("https://h:1#f", "query or a fragment"),
    ("https://h:1/?", "query or a fragment"), ("http://höst:1", "a character"), ("http://h:1/\x07", "a character"),
    ("ftp://host:1", "URL of a vLLM server"), ("host:8000", "URL of a vLLM server"),
])  # fmt: skip
def test_one_that_cannot_is_refused_with_the_reason(url, why):
    with pytest.raises(TrimtabError, match=why) as caught:
        load_config(None, [f"ppo.engine={url}"])
    assert caught.value.kind == ErrorKind.CONFIG
    assert "ppo.engine = " in caught.value.message


@pytest.mark.parametrize("url", [
    "http://user:hunter2@h:1", "http://:hunter2@h:1", "http://hunter2@h:1", "http://user:hun/ter2@h:1",
    "http://user:a@hunter2@h:1", "http://user:hunter2@h:abc", "http://user:hunter2 x@h:1", "ftp://user:hunter2@h",
    "http://user:hunter2#@h:1",
])  # fmt: skip
@pytest.mark.parametrize("others", [[], ["ppo.engine_options={a = 1}"]])
def test_a_password_in_the_url_is_refused_and_not_told(url, others):
    with pytest.raises(TrimtabError) as caught:
        load_config(None, [f"ppo.engine={url}", *others])
    assert "ter2" not in str(caught.value)
    assert "***@h" in caught.value.message
