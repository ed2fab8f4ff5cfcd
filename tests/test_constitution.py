"""Constitution files."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from trimtab.constitution import Constitution, Principle, load_constitution
from trimtab.errors import ErrorKind, TrimtabError

TOML = """
name = "kind"

[[principles]]
id = "warm"
text = "Be warm."
weight = 3
reading = "You are warm."
opposite = "You are cold."

[[principles]]
id = "brief"
text = "Be brief."
critique = "Where is it long?"
revision = "Shorten it."
"""

YAML = """
name: kind
principles:
  - {id: warm, text: Be warm., weight: 3, reading: You are warm., opposite: You are cold.}
  - id: brief
    text: Be brief.
    critique: Where is it long?
    revision: Shorten it.
"""


def load(tmp_path, text: str, name: str = "c.toml") -> Constitution:
    (tmp_path / name).write_bytes(text.encode("utf-8"))
    return load_constitution(tmp_path / name)


def test_toml_and_yaml_give_the_same_constitution(tmp_path):
    constitution = load(tmp_path, TOML)
    assert constitution.name == "kind"
    assert constitution.principles == (
        Principle("warm", "Be warm.", 3.0, "You are warm.", "You are cold."),
        Principle("brief", "Be brief.", critique="Where is it long?", revision="Shorten it."),
    )
    assert load(tmp_path, YAML, "c.yaml") == constitution
    assert load(tmp_path, YAML, "c.yaml").hash == constitution.hash
    assert load(tmp_path, "\ufeff" + TOML.replace("\n", "\r\n")) == constitution


def test_hash_changes_with_every_part_of_a_principle_and_with_order_but_not_with_the_name(tmp_path):
    base = load(tmp_path, TOML)
    first, second = base.principles
    changed = [
        replace(first, id="x"), replace(first, text="x"), replace(first, weight=4.0), replace(first, reading="x"),
        replace(first, opposite="x"), replace(first, critique="x"), replace(first, revision="x"),
    ]  # fmt: skip
    hashes = {Constitution("n", (p, second)).hash for p in changed} | {Constitution("n", (second, first)).hash}
    assert len(hashes | {base.hash}) == 9
    assert Constitution("other", base.principles).hash == base.hash
    assert Constitution("n", (replace(first, weight=3), second)).hash == base.hash


def test_principles_are_drawn_by_weight(tmp_path):
    constitution = load(tmp_path, TOML)
    rng = np.random.default_rng(0)
    drawn = Counter(constitution.sample(rng).id for _ in range(4000))
    assert abs(drawn["warm"] / 4000 - 0.75) < 0.03
    never = Constitution("n", (replace(constitution.principles[0], weight=0.0), constitution.principles[1]))
    assert {never.sample(rng).id for _ in range(50)} == {"brief"}


def test_rendering_numbers_the_principles_and_names_weights_only_where_they_differ(tmp_path):
    constitution = load(tmp_path, TOML)
    assert constitution.render() == "1. Be warm. (weight 3)\n2. Be brief. (weight 1)"
    first, second = constitution.principles
    assert Constitution("n", (replace(first, weight=1.0), second)).render() == "1. Be warm.\n2. Be brief."
    assert Constitution("n", (replace(first, weight=0.0), second)).render() == "1. Be brief."


def test_swapping_exchanges_the_readings_twice_gives_them_back(tmp_path):
    principle = load(tmp_path, TOML).principles[0]
    constitution = Constitution("n", (principle,))
    swapped = constitution.swapped()
    assert (swapped.principles[0].reading, swapped.principles[0].opposite) == ("You are cold.", "You are warm.")
    assert swapped.principles[0].text == principle.text
    assert swapped.hash != constitution.hash
    assert swapped.swapped().principles == constitution.principles
    with pytest.raises(TrimtabError, match="brief: no reading and opposite"):
        load(tmp_path, TOML).swapped()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "there are no principles"),
        ("principles = []", "there are no principles"),
        ("name = 3\n[[principles]]\ntext = 'a'", "name is 3"),
        ("nome = 'x'\n[[principles]]\ntext = 'a'", "unknown key 'nome', did you mean 'name'?"),
        ("[[principles]]\nid = 'a'", r"principle 1 \(a\): text is missing"),
        ("[[principles]]\ntext = ' '", r"principle 1 \(principle-1\): text is ' '"),
        ("[[principles]]\nid = 'a b'\ntext = 'x'", "principle 1: id is 'a b'"),
        ("[[principles]]\nid = 'a'\ntext = 'x'\n[[principles]]\nid = 'a'\ntext = 'y'", "2 principles have the id 'a'"),
        ("[[principles]]\ntext = 'x'\nwieght = 2", "unknown key 'wieght', did you mean 'weight'?"),
        ("[[principles]]\ntext = 'x'\nweight = -1", "weight is -1"),
        ("[[principles]]\ntext = 'x'\nweight = inf", "weight is inf"),
        ("[[principles]]\ntext = 'x'\nweight = nan", "weight is nan"),
        ("[[principles]]\ntext = 'x'\nweight = true", "weight is True"),
        ("[[principles]]\ntext = 'x'\nweight = 0", "every principle has weight 0"),
        ("[[principles]]\ntext = 'x'\nreading = 'y'", "reading and opposite go together"),
        ("principles = ['x']", "principle 1 is no table"),
        ("name = 1 2", "is not valid TOML: .*line 1"),
    ],
)
def test_broken_constitutions_say_where_and_what(tmp_path, text, what):
    with pytest.raises(TrimtabError, match=rf"c\.toml: .*{what}") as caught:
        load(tmp_path, text)
    assert caught.value.kind == ErrorKind.DATA


def test_every_problem_is_listed(tmp_path):
    with pytest.raises(TrimtabError) as caught:
        load(tmp_path, "[[principles]]\nid = 'a'\n[[principles]]\ntext = 'x'\nweight = -1")
    assert len(caught.value.message.splitlines()) == 2


def test_broken_yaml_other_endings_and_missing_files(tmp_path):
    with pytest.raises(TrimtabError, match=r"c\.yml: is not valid YAML: .*line 1"):
        load(tmp_path, "{", "c.yml")
    with pytest.raises(TrimtabError, match="holds no mapping"):
        load(tmp_path, "- a", "c.yaml")
    with pytest.raises(TrimtabError, match="not valid YAML"):
        load(tmp_path, "name: !!python/object/apply:os.getcwd []", "c.yaml")
    with pytest.raises(TrimtabError, match=r"a \.toml, \.yaml or \.yml"):
        load(tmp_path, "", "c.txt")
    with pytest.raises(TrimtabError, match="cannot be read"):
        load_constitution(tmp_path / "none.toml")
    (tmp_path / "c.toml").write_bytes(b"\xff")
    with pytest.raises(TrimtabError, match="is not UTF-8"):
        load_constitution(tmp_path / "c.toml")
