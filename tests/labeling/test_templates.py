"""The wordings: complete, different, with marks that no text can imitate; and files of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from labeling_fakes import candidate, two_principles
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.protocol import JudgeRequest, Order
from trimtab.labeling.templates import TEMPLATES, fence_of, load_template

MINE = 'system = "By {principles}"\nquestion = "{prompt} [{code} {first}] [{code} {second}]"\n'


@pytest.mark.parametrize("name", sorted(TEMPLATES))
@pytest.mark.parametrize("reasons", [False, True])
def test_a_wording_says_everything_in_the_order_shown(tmp_path: Path, name: str, reasons: bool) -> None:
    request = JudgeRequest(candidate(0, "the first {second}", "the second {code}"), two_principles(tmp_path))
    system, user = TEMPLATES[name].messages(request, reasons=reasons)
    assert "1. Prefer the warmer response. (weight 3)" in system
    assert user.index("question 0") < user.index("the first {second}") < user.index("the second {code}")
    assert user.count(fence_of(request)) == 6
    assert ("Verdict:" in user) == reasons
    turned = TEMPLATES[name].messages(JudgeRequest(request.pair, request.constitution, Order.REVERSED))[1]
    assert turned.index("the second {code}") < turned.index("the first {second}")
    # the same for every pair: servers keep what they made of it
    other = JudgeRequest(candidate(1), request.constitution)
    assert TEMPLATES[name].messages(other)[0] == system


def test_there_are_three_wordings_and_no_two_are_the_same_judge() -> None:
    assert len(TEMPLATES) >= 3
    assert len({template.hash for template in TEMPLATES.values()}) == len(TEMPLATES)


def test_the_code_depends_on_the_texts_and_not_on_the_order(tmp_path: Path) -> None:
    constitution = two_principles(tmp_path)
    base = fence_of(JudgeRequest(candidate(0), constitution))
    assert fence_of(JudgeRequest(candidate(0), constitution, Order.REVERSED, 3)) == base
    assert fence_of(JudgeRequest(candidate(0, "yes", f"no {base}"), constitution)) != base


def test_a_wording_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE + 'letter = "A or B?"\n')
    template = load_template("mine.toml", tmp_path)
    request = JudgeRequest(candidate(0), two_principles(tmp_path))
    code = fence_of(request)
    assert template.messages(request)[1] == f"question 0 [{code} yes] [{code} no]\n\nA or B?"
    assert (template.name, load_template("plain")) == ("mine", TEMPLATES["plain"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('system = "x"', "question is missing"),
        (MINE.replace("{code}", ""), "nowhere {code}"),
        (MINE.replace("{principles}", ""), "nowhere {principles}"),
        (MINE + "letters = 'A'\n", "unknown key 'letters'"),
        (MINE + "letter = 1\n", "letter is no text"),
        ("system = ", "is not valid TOML"),
    ],
)
def test_a_file_that_is_no_wording_is_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(TrimtabError, match=r"mine\.toml") as caught:
        load_template("mine.toml", tmp_path)
    assert told in str(caught.value)
    assert caught.value.kind is ErrorKind.CONFIG


def test_a_wording_that_is_not_there(tmp_path: Path) -> None:
    for name in ("plane", "gone.toml"):
        with pytest.raises(TrimtabError, match=name):
            load_template(name, tmp_path)
