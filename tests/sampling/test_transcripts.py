"""What is kept of a transcript, what is taken off it, and its file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.data.demonstrations import read_demonstrations, write_demonstrations
from trimtab.data.records import Message, Prompt, Response
from trimtab.errors import TrimtabError
from trimtab.sampling.transcripts import (
    Fate,
    Round,
    Transcript,
    read_transcripts,
    sift,
    summarise_transcripts,
    to_demonstrations,
    transcript_record,
    unannounced,
    write_transcripts,
)

PROMPT = Prompt("a", (Message("user", "How do I boil an egg?"),), ("food",), {"n": 1})


def transcript(revision: str, draft: str = "Boil it.", prompt: Prompt = PROMPT, **more: object) -> Transcript:
    last = Round("plain", "What is hard?", Response("It is fine."), "Make it plain.", Response(revision, True, 7))
    return replace(Transcript(prompt, Response(draft, True, 3), (last,)), **more)


def fate(*revisions: str, **more: object) -> list[Fate]:
    return [s.fate for s in sift(transcript(r, **more) for r in revisions)]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Here is a revised response:\n\nBoil it for six minutes.", "Boil it for six minutes."),
        ("Here's the revised response: Boil it.", "Boil it."),
        ("Sure! Here is a rewritten version of the answer in plain words:\nBoil it.", "Boil it."),
        ("Certainly, here’s an improved version of my response:\n\n\"Boil it.\"", "Boil it."),
        ("Revised response: Boil it.", "Boil it."),
        ("**Revised Response:**\n\nBoil it.", "Boil it."),
        ("Response: Boil it.", "Boil it."),
        ("I've rewritten the response to be clearer:\nBoil it.", "Boil it."),
        ("“Boil it.”", "Boil it."),
        ("好的，以下是修改后的回答：\n煮六分钟。", "煮六分钟。"),
    ],
)  # fmt: skip
def test_announcements_and_quotation_marks_around_all_are_taken_off(said, kept):
    assert unannounced(said) == kept


@pytest.mark.parametrize(
    "said",
    [
        "Here is what you need: an egg, a pot, water.",
        "Here are three steps to a better answer in an exam:\n1. Read.",
        "Note: eggs are hot.",
        '"Soft" takes six minutes, "hard" takes ten.',
        '"Soft" takes six minutes and is not "hard"',
        "Your updated plan: boil it.",
        "This is how the new version of the pot works. Steps: boil.",
    ],
)
def test_what_only_looks_like_an_announcement_stays(said):
    assert unannounced(said) == said


@given(st.text(alphabet='abc \n":“”Revised response', max_size=40))
def test_cleaning_twice_is_cleaning_no_more_than_the_text(said):
    assert len(unannounced(said)) <= len(said)
    assert unannounced(said) in said


def test_fates():
    assert fate("Boil it for six minutes.") == [Fate.KEPT]
    assert fate("", " \n", "Here is the revised response:") == [Fate.EMPTY] * 3
    assert fate("boil  it.", "Here is the revised response: Boil it.") == [Fate.UNCHANGED] * 2
    assert (
        fate("It is fine.", "What is hard?", "Make it plain. Boil it for six.", "How do I boil an egg?")
        == [Fate.COPIED] * 4
    )
    assert (
        fate("Boil it. The revised response is plainer.", "I have rewritten it. Boil.", "原回答太长。")
        == [Fate.ABOUT] * 3
    )
    assert (
        fate("The response is too hard to read.", "This response meets all.", "So the new answer is:")
        == [Fate.ABOUT] * 3
    )
    assert fate("Boil six minutes.", too_long=True) == [Fate.TOO_LONG]
    assert fate("Boil six minutes.", rounds=()) == [Fate.TOO_LONG]
    assert [s.fate for s in sift([transcript("a b"), transcript("a  B"), transcript("a b", prompt=other())])] == [
        Fate.KEPT, Fate.REPEATED, Fate.KEPT,
    ]  # fmt: skip
    cut = transcript("Boil it for").rounds[0]
    cut = replace(cut, revision=Response("Boil it for", finished=False))
    assert [s.fate for s in sift([transcript("", rounds=(cut,))])] == [Fate.CUT_OFF]


def test_a_revision_made_of_the_critique_is_a_copy_and_one_made_of_the_draft_is_none():
    draft, critique = "put the egg in cold water and wait", "you never say how long the egg has to stay in there"
    last = Round("p", "c", Response(critique), "r", Response(""))

    def of(revision: str) -> Fate:
        return sift([transcript("", draft, rounds=(replace(last, revision=Response(revision)),))])[0].fate

    assert of("You never say how long the egg has to stay in there, sorry.") is Fate.COPIED
    assert of("Put the egg in cold water and wait for six minutes.") is Fate.KEPT
    assert of("The egg has to stay in there for six minutes, then rinse it in cold water and peel it.") is Fate.KEPT
    # five of nine runs of four words are the critique's; with one word more of one's own it is half of them
    assert of("how long the egg has to stay in warm clear water for") is Fate.COPIED
    assert of("how long the egg has to stay in warm clear water for six") is Fate.KEPT
    # in a second round, what stands in the critique may be quoted from the first revision
    first = replace(last, revision=Response("put the egg in warm clear water for six minutes"))
    second = replace(last, critique=Response("You say put the egg in warm clear water for six minutes."))
    for said in ("put the egg in warm clear water for six minutes", "put the egg in warm clear water for six"):
        later = (first, replace(second, revision=Response(said)))
        assert sift([transcript("", draft, rounds=later)])[0].fate is Fate.KEPT
        assert sift([transcript("", draft, rounds=later[1:])])[0].fate is Fate.COPIED
    # what a critique brought up stays a copy however often it is revised
    copied = replace(last, revision=Response(critique))
    assert (
        sift([transcript("", draft, rounds=(copied, replace(copied, critique=Response("Fine."))))])[0].fate
        is Fate.COPIED
    )
    quoting = Transcript(PROMPT, Response(critique), (replace(last, revision=Response(f"{critique} then")),))
    assert sift([quoting])[0].fate is Fate.KEPT


def other() -> Prompt:
    return Prompt("b", (Message("system", "Be brief."), Message("user", "Why?")))


def test_the_last_of_several_revisions_counts():
    first, last = transcript("first").rounds[0], transcript("last").rounds[0]
    assert sift([transcript("", rounds=(first, last))])[0].text == "last"


def test_demonstrations_are_prompt_and_cleaned_revision_and_survive_their_file(tmp_path):
    sifted = sift([transcript("Revised response: Boil six."), transcript("", prompt=other())])
    shown = to_demonstrations(sifted)
    assert [(d.prompt, d.response) for d in shown] == [(PROMPT, "Boil six.")]
    write_demonstrations(tmp_path / "d.jsonl", shown)
    assert read_demonstrations(tmp_path / "d.jsonl") == shown


def test_the_summary_counts_every_transcript_once():
    sifted = sift(
        [transcript("Revised response: Boil six minutes."), transcript("No.", prompt=other()), transcript("Boil it.")]
    )
    summary = summarise_transcripts(sifted)
    assert summary["prompts"] == 3 == summary["kept"] + sum(summary["dropped"].values())
    assert summary["dropped"]["unchanged"] == 1
    assert set(summary["dropped"]) == {str(f) for f in Fate} - {"kept"}
    assert summary["stripped"] == 1
    assert (summary["draft_tokens"], summary["revision_tokens"], summary["longer"]) == (3.0, 7.0, 0.5)
    assert summary["principles"] == {"plain": {"drawn": 3, "kept": 2}}
    assert summarise_transcripts([])["kept"] == 0


def test_transcripts_survive_their_file_and_its_killed_writer(tmp_path: Path):
    written = [
        transcript("Boil\u2028six.\x00", draft="\ud800"),
        transcript("x", prompt=other(), rounds=(), too_long=True),
    ]
    path = tmp_path / "t.jsonl"
    write_transcripts(path, sift(written))
    assert read_transcripts(path) == written
    assert [json.loads(line)["fate"] for line in path.read_text().splitlines()] == ["kept", "too-long"]
    path.write_text(json.dumps(transcript_record(written[0])) + '\n{"prompt": "c')
    assert read_transcripts(path, partial=True) == written[:1]
    path.write_text('{"prompt": "c", "draft": "x", "rounds": [{"principle": 3}]}\n')
    with pytest.raises(TrimtabError, match="line 1: principle is a number"):
        read_transcripts(path, partial=True)
    path.write_text('{"prompt": "c", "draft": "x"}\n')
    with pytest.raises(TrimtabError, match="line 1: rounds is no list"):
        read_transcripts(path)
