"""YAML constitutions: plain values, and nothing that runs, explodes or gets lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.constitution import load_constitution
from trimtab.constitution.check import check
from trimtab.constitution.principles import Constitution, Principle
from trimtab.constitution.yaml_text import plain_yaml
from trimtab.errors import TrimtabError


def test_plain_values_aliases_and_merges_are_read() -> None:
    text = "a: &x {k: 1, l: no}\nb: *x\nc: {<<: *x, k: 2}\nd: [1.5, null, 'yes']\ne: 2024-01-01\n"
    assert plain_yaml(text) == {
        "a": {"k": 1, "l": False},
        "b": {"k": 1, "l": False},
        "c": {"k": 2, "l": False},
        "d": [1.5, None, "yes"],
        "e": "2024-01-01",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: !!python/object/apply:os.system ['true']", "line 1, column 4: the tag .* is not known"),
        ("a: 1\na: 2", "line 2, column 1: the key 'a' is given twice"),
        ("a: &x [*x]", "an alias stands for what it is part of"),
        ("a: &x {<<: *x}", "an alias stands for what it is part of"),
        ("? [a]\n: 1", "a key is a text"),
        ("a: !!bool maybe", "'maybe' is no bool"),
        ("a: !!int x", "'x' is no int"),
        ("a: {<<: 5}", "<< takes in mappings only"),
        ("a: 1\n---\nb: 2", "expected a single document"),
    ],
)
def test_what_is_no_plain_value_is_an_error(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        plain_yaml(text)


def test_a_few_lines_that_stand_for_millions_of_values_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join([*lines, "name: *a11"]))
    with pytest.raises(TrimtabError, match="aliases stand for more than"):
        load_constitution(path)


def test_json_keys_given_twice_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "twice.json"
    path.write_text('{"principles": [{"id": "a", "text": "x", "text": "y"}]}')
    with pytest.raises(TrimtabError, match="'text' is given twice"):
        load_constitution(path)


@pytest.mark.parametrize("weight", ["1" + "0" * 400, "1e308", "-1", "inf", "nan"])
def test_weights_that_no_sum_can_hold_are_refused(tmp_path: Path, weight: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f'[[principles]]\nid = "a"\ntext = "x"\nweight = {weight}\n')
    with pytest.raises(TrimtabError, match="a number from 0 to 1e"):
        load_constitution(path)


def test_thousands_of_principles_are_checked_in_bounded_time() -> None:
    many = tuple(Principle(f"p{i}", "Prefer the longer response.") for i in range(5000))
    remarks = check(Constitution("many", many))
    assert len(remarks) < 300
    assert any("only the first" in r.message for r in remarks)
