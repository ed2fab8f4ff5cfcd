"""The page of `--html`: self-contained, safe, complete."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from made_up_diagnoses import healthy, inconclusive, sick
from trimtab.doctor.finding import Message, Prescription
from trimtab.doctor.log import Skipped
from trimtab.doctor.page import page, write
from trimtab.errors import TrimtabError

VOID = {"meta", "br"}


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    assert reader.open == []
    return reader


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("make", [sick, healthy, inconclusive])
def test_nothing_is_loaded_and_nothing_runs(make, lang: str):
    html = page(make(), lang)
    found = read(html)
    assert not {"script", "link", "img", "iframe", "object", "form"} & {tag for tag, _ in found.tags}
    assert not re.search(r"url\(|@import|https?://|javascript:", html)
    assert not any(name.startswith("on") for _, attrs in found.tags for name in attrs)
    policy = {a["content"] for _, a in found.tags if a.get("http-equiv") == "Content-Security-Policy"}
    assert policy == {"default-src 'none'; style-src 'unsafe-inline'"}


def test_every_finding_is_told_with_its_numbers_and_fixes():
    found = read(page(sick("trimtab")))
    for piece in (
        "Sick: length-exploitation since step 64; 3 consequences.",
        "root cause",
        "Responses grew from 212 to 903 tokens.",
        "Length explains 87% of the gain in reward.",
        "What else could look like this",
        "A change of the prompts",
        "--set beta=0.08",
        "learning_rate x0.5",
        "trimtab explain kl-explosion",
        "needs val/explained_variance",
        "not JSON (first: line 20)",
        "my_metric",
        "nan-inf",
    ):
        assert piece in found.text, piece


def test_a_series_is_drawn_with_its_onset_and_can_be_read_out():
    found = read(page(sick()))
    charts = [attrs["aria-label"] for tag, attrs in found.tags if tag == "svg"]
    assert len(charts) == 3
    assert re.fullmatch(
        r"completions/mean_length by step, from \d+ to \d+; last value \d+; onset at step 64", charts[0] or ""
    )
    assert sum(attrs.get("class") == "onset" for _, attrs in found.tags) == 3


def test_evidence_without_a_known_series_keeps_its_sparkline():
    assert "█" in read(page(replace(sick(), logs=()))).text


def test_a_second_sentence_about_one_series_draws_it_once():
    root = sick().findings[0]
    twice = replace(root, evidence=(root.evidence[0], replace(root.evidence[0], text=Message("Again."))))
    found = read(page(replace(sick(), findings=(twice,))))
    assert sum(tag == "svg" for tag, _ in found.tags) == 1
    assert "Again." in found.text


def test_text_of_a_log_is_text():
    evil = '"><script>alert(1)</script><b onmouseover=x>\u202e\x00'
    root = replace(
        sick().findings[0], id=evil, cause=Message("{k}", {"k": evil}), ruled_out=(Message(evil),), where=evil,
        source=evil, prescriptions=(Prescription({evil: evil}, Message(evil)), Prescription({}, Message(evil), evil)),
    )  # fmt: skip
    log = replace(sick().logs[0], unmapped=(evil,), path=evil, format=evil, algorithm=evil, framework=evil)
    whole = replace(
        sick(), findings=(root,), root_cause=evil, logs=(log,), formats={evil: evil, "b": evil}, checked=(evil,),
        skipped=(Skipped(evil, 1, 1, evil),),
    )  # fmt: skip
    html = page(whole)
    found = read(html)
    assert not {"script", "b"} & {tag for tag, _ in found.tags}
    assert not {"\u202e", "\x00"} & set(html)
    assert "<script>alert(1)</script>" in found.text


def test_ids_are_unique_even_where_findings_repeat():
    twice = replace(sick(), findings=(*sick().findings, sick().findings[0]))
    ids = [attrs["id"] for _, attrs in read(page(twice)).tags if "id" in attrs]
    assert len(ids) == len(set(ids)) > 4


def test_it_is_written_or_says_why_not(tmp_path):
    write(sick(), tmp_path / "new" / "page.html", "zh")
    assert '<html lang="zh-Hans">' in (tmp_path / "new" / "page.html").read_text(encoding="utf-8")
    with pytest.raises(TrimtabError, match="cannot be written"):
        write(sick(), tmp_path)


@pytest.mark.parametrize(
    ("paths", "name"),
    [
        (["a/x.json"], "a/x.json"),
        (["runs/main [pm]", "runs/main [ppo]"], "runs/main"),
        (["p/a/x.json", "p/b/y.json"], "p"),
    ],
)
def test_the_page_is_named_after_what_was_looked_at(paths: list[str], name: str):
    assert f'<p class="name">{name}</p>' in page(replace(sick(), formats=dict.fromkeys(paths, "trimtab")))
