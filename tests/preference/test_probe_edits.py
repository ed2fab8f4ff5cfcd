"""Edits of the user's own: a file is read as it says, or refused with all that is wrong in it; they are probed with."""

from __future__ import annotations

import random

import numpy as np
import pytest

from trimtab import preference
from trimtab.data.records import Message, Pair, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.preference.probes import EditSet, read_edits
from trimtab.preference.probes.edits import EDITS

OWN = """
neutral = "lo mi re do so la"
sentences = false

[[edits]]
name = "shouting"
kind = "style"
append = "WOW WOW"

[[edits]]
name = "opening"
kind = "style"
prepend = "Verily"

[[edits]]
name = "spelling"
kind = "surface"
replace = { colour = "color", "color" = "colour" }

[[edits]]
name = "truncate"
kind = "damage"
instead = "no"
"""


def written(tmp_path, text: str) -> EditSet:
    path = tmp_path / "edits.toml"
    path.write_text(text, encoding="utf-8")
    return read_edits(path)


def test_own_edits_stand_beside_the_built_in_ones_or_take_their_place(tmp_path):
    own = written(tmp_path, OWN)
    by_name = {edit.name: edit for edit in own.edits}
    assert own.edits[0].name == "neutral sentence"
    assert {"repeat the answer", "bulletise", "whitespace", "shouting", "opening", "spelling"} <= set(by_name)
    assert not {"praise", "filler", "refusal instead", "agree with the user"} & set(by_name)
    rng = random.Random(0)
    assert by_name["neutral sentence"].apply("a b", rng) == "a b lo mi re do so la"
    assert by_name["shouting"].apply("a b", rng) == "a b WOW WOW"
    assert by_name["opening"].apply(" a b", rng) == "Verily a b"
    assert by_name["spelling"].apply("colour, color", rng) == "color, colour"
    assert by_name["spelling"].apply("grey", rng) is None
    assert by_name["truncate"].apply("a b", rng) == "no"
    assert by_name["truncate"].apply("no", rng) is None


def test_a_file_that_only_adds_keeps_the_built_in_edits(tmp_path):
    own = written(tmp_path, '[[edits]]\nname = "x"\nkind = "style"\nappend = "y"\n')
    assert [edit.name for edit in own.edits] == [*(edit.name for edit in EDITS), "x"]
    assert own.neutral_of("Guten Tag") == EditSet().neutral_of("Guten Tag")
    assert own.sentences


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("neutral = ", "is not valid TOML"),
        ("colour = 1", "unknown key 'colour'"),
        ("neutral = 3", "neutral is no text"),
        ('sentences = "no"', "sentences is true or false"),
        ("sentences = false", "neutral is needed"),
        ("edits = 3", "edits are tables"),
        ("edits = [3]", "edits are tables"),
        ('[[edits]]\nkind = "style"\nappend = "x"', "edit 1: name is no text"),
        ('[[edits]]\nname = "a"\nkind = "loud"\nappend = "x"', "kind is one of style, length"),
        ('[[edits]]\nname = "a"\nkind = "style"', "one of append, prepend, instead, replace is needed"),
        ('[[edits]]\nname = "a"\nkind = "style"\nappend = "x"\ninstead = "y"', "not 2 of them"),
        ('[[edits]]\nname = "a"\nkind = "style"\nappend = " "', "append is no text"),
        ('[[edits]]\nname = "a"\nkind = "style"\nreplace = { "" = "x" }', "replace is a table of texts"),
        ('[[edits]]\nname = "a"\nkind = "style"\nreplace = []', "replace is a table of texts"),
        ('[[edits]]\nname = "a"\nkind = "style"\nappend = "x"\nafter = 1', "unknown key 'after'"),
        ('[[edits]]\nname = "neutral sentence"\nkind = "length"\nappend = "x"', "is set by neutral"),
        (
            '[[edits]]\nname = "a"\nkind = "style"\nappend = "x"\n[[edits]]\nname = "a"\nkind = "style"\nappend = "y"',
            "edit 2: there is another one named 'a'",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_told(tmp_path, text, told):
    with pytest.raises(TrimtabError) as caught:
        written(tmp_path, text)
    assert caught.value.kind is ErrorKind.DATA
    assert told in str(caught.value)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(TrimtabError, match="cannot be read"):
        read_edits(tmp_path / "none.toml")


class Bought:
    """Half a point for every shout, and half a point for every word."""

    name = "bought"

    def __init__(self, shout: float) -> None:
        self.shout = shout

    def score(self, prompts, responses):
        words = [r.text.split() for r in responses]
        noise = [random.Random(f"{p.id} {w[0]}").gauss(0, 2) for p, w in zip(prompts, words, strict=True)]
        return np.array([0.5 * len(w) + self.shout * w.count("WOW") + x for w, x in zip(words, noise, strict=True)])


def pairs(n: int = 60) -> list[Pair]:
    rng = random.Random(1)
    texts = [" ".join(rng.choice("abcdefgh") + str(rng.randrange(99)) for _ in range(8)) for _ in range(2 * n)]
    return [
        Pair(
            f"{i}", Prompt(f"q{i}", (Message("user", f"Say {i}"),)), Response(texts[2 * i]), Response(texts[2 * i + 1])
        )
        for i in range(n)
    ]


def test_an_own_style_is_held_against_as_many_words_of_the_own_neutral_sentence(tmp_path):
    own = written(tmp_path, OWN)
    found = {e.name: e for e in preference.probe(Bought(0.0), pairs(), edits=own, most=40, resamples=100).edits}
    assert found["shouting"].change.mean > 0.3  # two words
    assert found["shouting"].beyond.mean == pytest.approx(0, abs=1e-9)
    assert found["opening"].kind == "style"
    report = preference.probe(Bought(2.0), pairs(), edits=own, most=40, resamples=100)
    shouting = next(e for e in report.edits if e.name == "shouting")
    sd = report.spread.sd
    assert shouting.beyond.mean == pytest.approx(4.0 / sd)
    assert any(f.id == "style-exploitation" and "shouting" in f.evidence for f in report.faults)
    assert report.agreement is None  # no English questions of taste
