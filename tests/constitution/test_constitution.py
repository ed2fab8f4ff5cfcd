"""Constitution files."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trimtab.constitution import Constitution, Principle, Turn, load_constitution
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


def test_the_hash_covers_what_a_judge_is_told_and_nothing_else(tmp_path):
    base = load(tmp_path, TOML)
    first, second = base.principles
    told = [
        replace(first, id="x"), replace(first, text="x"), replace(first, weight=4.0), replace(first, reading="x"),
        replace(first, opposite="x"), replace(first, weight=0.0), replace(first, text="Be  warm."),
    ]  # fmt: skip
    hashes = {Constitution("n", (p, second)).hash for p in told} | {Constitution("n", (second, first)).hash}
    assert len(hashes | {base.hash}) == 9
    untold = [
        Constitution("other", base.principles),
        Constitution("n", (replace(first, weight=3), second)),
        Constitution("n", (replace(first, text=" Be warm.\n"), second)),
        Constitution("n", (first, replace(second, critique="x", revision=None))),
        Constitution("n", base.principles, ((Turn("user", "a"), Turn("assistant", "b")),)),
        Constitution("n", (first, Principle("off", "Never told.", 0.0), second)),
        load(tmp_path, f"# a comment\n{TOML}"),
    ]
    assert {c.hash for c in untold} == {base.hash}


def test_equal_weights_are_not_told_so_their_size_does_not_count():
    def of(*weights: float) -> Constitution:
        return Constitution("n", tuple(Principle(f"p{i}", "x", w) for i, w in enumerate(weights)))

    assert of(1, 1).hash == of(2, 2).hash
    assert of(1, 2).hash != of(2, 4).hash != of(1, 1).hash
    assert of(1, 2).render() != of(2, 4).render()


def test_the_judge_is_told_the_same_wherever_the_hash_is_the_same(tmp_path):
    base = load(tmp_path, TOML)
    first, second = base.principles
    for other in (replace(first, text="Be cold."), replace(first, weight=1.0), replace(first, weight=0.0)):
        changed = Constitution("n", (other, second))
        assert (changed.hash == base.hash) == (changed.render() == base.render())


def test_the_revision_hash_covers_the_supervised_phase(tmp_path):
    base = load(tmp_path, TOML)
    first, second = base.principles
    chat = ((Turn("user", "a"), Turn("assistant", "b")),)
    told = [
        Constitution("n", (first, replace(second, critique="x"))),
        Constitution("n", (first, replace(second, revision="x"))),
        Constitution("n", (replace(first, weight=9.0), second)),
        Constitution("n", (first, replace(second, id="x"))),
        Constitution("n", base.principles, chat),
        Constitution("n", base.principles, (chat[0], chat[0])),
    ]
    assert len({c.revision_hash for c in told} | {base.revision_hash}) == 7
    untold = [
        Constitution("other", (replace(first, reading="x"), second)),
        Constitution("n", (first, replace(second, text="x"))),
    ]
    assert {c.revision_hash for c in untold} == {base.revision_hash}


def test_one_principle_alone_keeps_its_hash_whatever_else_there_is(tmp_path):
    base = load(tmp_path, TOML)
    alone = base.only("warm")
    assert alone.render() == "1. Be warm."
    assert (
        alone.hash == Constitution("n", (base.principles[1], replace(base.principles[0], weight=7.0))).only("warm").hash
    )
    assert alone.hash != base.only("brief").hash
    off = Constitution("n", (Principle("off", "Be loud.", 0.0), base.principles[0]))
    assert off.only("off").render() == "1. Be loud."
    with pytest.raises(TrimtabError, match=r"no principle 'cold'.*\n.*warm, brief"):
        base.only("cold")


def test_lacking_names_the_principles_that_count_and_leave_a_field_out(tmp_path):
    base = load(tmp_path, TOML)
    assert base.lacking(("reading", "opposite")) == ["brief"]
    assert base.lacking(("critique", "revision")) == ["warm"]
    off = Constitution("n", (replace(base.principles[0], weight=0.0), base.principles[1]))
    assert off.lacking(("critique", "revision")) == []


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
    with pytest.raises(TrimtabError, match=r"a \.toml, \.yaml, \.yml or \.json"):
        load(tmp_path, "", "c.txt")
    with pytest.raises(TrimtabError, match="cannot be read"):
        load_constitution(tmp_path / "none.toml")
    (tmp_path / "c.toml").write_bytes(b"\xff")
    with pytest.raises(TrimtabError, match="is not UTF-8"):
        load_constitution(tmp_path / "c.toml")


def test_a_file_that_is_nested_too_deeply_or_holds_a_giant_number_is_refused(tmp_path):
    for name, text in (("c.json", "[" * 100_000), ("c.toml", "a = " + "[" * 100_000), ("c.yaml", "[" * 3000)):
        with pytest.raises(TrimtabError, match=r"c\.\w+: is n"):
            load(tmp_path, text, name)
    with pytest.raises(TrimtabError, match="is not valid TOML"):
        load(tmp_path, f"a = {'9' * 5000}")


CHATS = """
name = "kind"
[[principles]]
text = "Be kind."
[[chats]]
messages = [{ role = "user", content = "hi" }, { role = "assistant", content = "go away" }]
"""


def test_chats_are_kept(tmp_path):
    assert load(tmp_path, CHATS).chats == ((Turn("user", "hi"), Turn("assistant", "go away")),)


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        ("3", "chat 1: user and assistant do not take turns"),
        ("[]", "chat 1: user and assistant do not take turns"),
        ('[{ role = "user", content = "hi" }]', "chat 1: user and assistant do not take turns"),
        ('[{ role = "cook", content = "hi" }]', "chat 1, turn 1 has no role out of"),
        ('[{ role = "user", contents = "hi" }]', "chat 1, turn 1 has no role out of"),
        (
            '[{ role = "user", content = "hi", contend = 1 }, { role = "assistant", content = "a" }]',
            "unknown key 'cont",
        ),
    ],
)
def test_broken_chats_are_named(tmp_path, messages, what):
    text = CHATS[: CHATS.index("messages")] + f"messages = {messages}"
    with pytest.raises(TrimtabError, match=what):
        load(tmp_path, text)


# the public form

PUBLIC = {
    "constitutions": [
        {"critic": "Is it unkind?", "revision": "Please rewrite the response to be kinder to animals."},
        {"critic": "Is it long?", "revision": "Rewrite it shorter."},
    ],
    "system_chat": [[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]],
}


def test_the_public_form_is_read_whole(tmp_path):
    constitution = load(tmp_path, json.dumps(PUBLIC), "public.json")
    assert constitution.name == "public"
    requests = [{"critic": p.critique, "revision": p.revision} for p in constitution.principles]
    assert requests == PUBLIC["constitutions"]
    assert [[turn._asdict() for turn in chat] for chat in constitution.chats] == PUBLIC["system_chat"]
    assert all(p.revision in p.text and p.weight == 1.0 for p in constitution.principles)
    assert constitution.lacking(("critique", "revision")) == []


def test_ids_of_the_public_form_depend_on_the_entry_alone(tmp_path):
    ids = [p.id for p in load(tmp_path, json.dumps(PUBLIC), "p.json").principles]
    other = {"critic": "Is it rude?", "revision": "Rewrite it shorter."}
    turned = {"constitutions": [other, *PUBLIC["constitutions"][::-1]]}
    found = [p.id for p in load(tmp_path, json.dumps(turned), "p.json").principles]
    assert found[1:] == ids[::-1]
    assert found[0] != ids[1]
    assert ids[0].startswith("kinder-animals-")
    twice = {"constitutions": [other, other]}
    assert [p.id for p in load(tmp_path, json.dumps(twice), "p.json").principles] == [found[0], f"{found[0]}-2"]


@pytest.mark.parametrize(
    ("document", "what"),
    [
        ({"constitutions": []}, "there are no principles"),
        ({"constitutions": 3}, "there are no principles"),
        ({"constitutions": [{"critic": "a"}]}, "constitution 1: critic and revision are texts"),
        (
            {"constitutions": [{"critic": "a", "revision": "b", "revison": "c"}]},
            "unknown key 'revison', did you mean 're",
        ),
        ({**PUBLIC, "system_chats": []}, "unknown key 'system_chats', did you mean 'system_chat'"),
        ({**PUBLIC, "system_chat": {"a": 1}}, "chats is no list"),
        ([1], "holds no mapping"),
    ],
)
def test_what_the_public_form_cannot_hold_is_named(tmp_path, document, what):
    with pytest.raises(TrimtabError, match=what):
        load(tmp_path, json.dumps(document), "p.json")


def test_json_in_the_words_of_toml(tmp_path):
    document = {"name": "kind", "principles": [{"id": "warm", "text": "Be warm.", "weight": 3}]}
    assert load(tmp_path, json.dumps(document), "c.json").principles == (Principle("warm", "Be warm.", 3.0),)


def test_the_published_sixteen_principles_are_read(tmp_path):
    shared = Path(__file__).parents[2].parent / "shared" / "data" / "constitutions" / "hf_constitution_anthropic.json"
    if not shared.is_file():
        pytest.skip("../shared/data is not there")
    raw = json.loads(shared.read_bytes())
    constitution = load_constitution(shared)
    assert [{"critic": p.critique, "revision": p.revision} for p in constitution.principles] == raw["constitutions"]
    assert [[turn._asdict() for turn in chat] for chat in constitution.chats] == raw["system_chat"]
    assert len({p.id for p in constitution.principles}) == 16
