"""The check of preference data: what is planted is found, exactly; clean data stay silent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.made_up import SUBJECTS, clean_pairs, sentence
from trimtab.data.check import Level, check, check_file
from trimtab.data.check.corpus import Corpus
from trimtab.data.check.similar import Similarity, candidates, signatures
from trimtab.data.records import Message, Prompt, Response


def found(pairs, **options):
    return {f.id: f for f in check(pairs, **options).findings}


def respond(pair, chosen=None, rejected=None, **changes):
    return replace(
        pair,
        chosen=pair.chosen if chosen is None else Response(chosen),
        rejected=pair.rejected if rejected is None else Response(rejected),
        **changes,
    )


def changed(text: str, at: int) -> str:
    """A text with one of its words replaced."""
    words = text.split()
    words[at] = "quite"
    return " ".join(words)


@pytest.mark.parametrize("seed", range(3))
def test_clean_data_are_silent(seed) -> None:
    result = check(clean_pairs(300, seed), test=clean_pairs(100, seed + 100))
    assert result.findings == ()
    assert result.worst is None
    assert "no problem found" in result.text().splitlines()[0]
    assert result.as_dict()["status"] == "ok"


def test_planted_duplicates_are_found_and_the_first_stays() -> None:
    pairs = clean_pairs(200)
    again = [replace(pairs[3], id="again"), respond(pairs[7], f"  {pairs[7].chosen.text}\n", id="spaced")]
    duplicates = found([*pairs, *again])["duplicates"]
    assert duplicates.ids == ("again", "spaced")
    assert duplicates.notes == {"again": "repeats p3", "spaced": "repeats p7"}
    assert duplicates.level is Level.WARNING


def test_votes_of_several_raters_are_no_duplicates() -> None:
    pairs = clean_pairs(100)
    votes = [replace(p, id=f"{p.id}-{who}", extra={"annotator": who}) for p in pairs[:10] for who in ("ann", "bob")]
    assert "duplicates" not in found([*pairs[10:], *votes])
    same = [*votes, replace(votes[0], id="twice")]
    assert found([*pairs[10:], *same])["duplicates"].ids == ("twice",)


def test_planted_contradictions_are_found_and_close_calls_are_none() -> None:
    pairs = clean_pairs(200)
    turned = [
        replace(pairs[5], id="hard", chosen=pairs[5].rejected, rejected=pairs[5].chosen),
        replace(pairs[9], id="soft", p_chosen=0.2),
        replace(pairs[11], id="close", p_chosen=0.45),
    ]
    pairs[11] = replace(pairs[11], p_chosen=0.55)
    contradictions = found([*pairs, *turned])["contradictions"]
    assert contradictions.ids == ("p5", "p9", "hard", "soft")
    assert contradictions.notes["hard"] == "against p5"
    assert contradictions.figures == {"comparisons": 2, "repeated_comparisons": 3, "close_calls": 1}


def test_planted_near_duplicates_and_near_contradictions_are_found() -> None:
    pairs = clean_pairs(200)
    long = [p for p in pairs if len(p.chosen.text.split()) > 40 and len(p.rejected.text.split()) > 40]
    one, two = long[0], long[1]
    near = respond(one, changed(one.chosen.text, 4), changed(one.rejected.text, 6), id="near")
    crossed = respond(two, changed(two.rejected.text, 5), changed(two.chosen.text, 5), id="crossed")
    other = respond(long[2], "Something else entirely, in eight short words here.", id="other answer")
    findings = found([*pairs, near, crossed, other])
    assert findings["near-duplicates"].ids == ("near",)
    assert findings["near-contradictions"].ids == (two.id, "crossed")
    assert "duplicates" not in findings


def test_preferences_in_a_circle_are_found() -> None:
    pairs = clean_pairs(60)
    a, b, c = (p.chosen.text for p in pairs[:3])
    trio = [(a, b), (b, c), (c, a)]
    circle = [respond(pairs[0], x, y, id=f"c{i}") for i, (x, y) in enumerate(trio)]
    cycles = found([*pairs[3:], *circle])["cycles"]
    assert (cycles.count, cycles.share, cycles.ids) == (1, 1.0, ("c0", "c1", "c2"))
    straight = [respond(pairs[0], x, y, id=f"c{i}") for i, (x, y) in enumerate([(a, b), (b, c), (a, c)])]
    assert "cycles" not in found([*pairs[3:], *straight])


@pytest.mark.parametrize("longer", [True, False])
def test_length_imbalance(longer) -> None:
    pairs = []
    for i, p in enumerate(clean_pairs(300)):
        first, second = sorted((p.chosen.text, p.rejected.text), key=lambda t: len(t.split()), reverse=longer)
        pairs.append(respond(p, *((first, second) if i % 10 else (second, first))))
    result = check(pairs)
    (finding,) = result.findings
    assert finding.id == "length-imbalance"
    assert finding.share == pytest.approx(0.9, abs=0.03)
    assert ("longer" if longer else "shorter") in finding.text
    assert result.lengths["low"] < result.lengths["longer_wins"] < result.lengths["high"]


def flawed(pair):
    asked = pair.prompt.text
    return {
        "empty": respond(pair, " \n"),
        "truncated": respond(pair, pair.chosen.text.removesuffix(".") + " and then the"),
        "refusals": respond(pair, "I'm sorry, but I can't help with that request."),
        "loops": respond(pair, "water the roses now " * 12 + "."),
        "wrong-language": respond(pair, "先把土壤翻松，然后浇水，每天早上检查叶子，两周以后再施肥就可以了。"),
        "prompt-echo": respond(pair, f"{asked} Try it with water."),
        "remnants": respond(pair, "Use some water.<|im_end|> Then wait."),
        "identical-responses": respond(pair, pair.rejected.text + " "),
    }


@pytest.mark.parametrize("kind", list(flawed(clean_pairs(1)[0])))
def test_a_flawed_response_is_found_under_its_name_and_no_other(kind) -> None:
    pairs = clean_pairs(60)
    pairs[20] = flawed(pairs[20])[kind]
    findings = found(pairs)
    assert list(findings) == [kind]
    assert findings[kind].ids == ("p20",)


CHINESE = "怎样照顾花园里的玫瑰，让它们在夏天开得更好看？请一步一步告诉我应该做什么。"


@pytest.mark.parametrize(
    ("prompt", "response", "kinds"),
    [
        (CHINESE, "先给土壤浇水，再剪去枯枝。每周施一次肥，太阳太大的时候要遮阴，这样玫瑰就会开得很好。", []),
        (CHINESE, "很抱歉，我无法回答这个问题。", ["refusals"]),
        (CHINESE, "给花浇水。" * 20, ["loops"]),
        (CHINESE, "Water the roses in the morning, and cut the dry leaves from the stem with a knife that you have "
         "cleaned, so that they will bloom in the summer.", ["wrong-language"]),
        (CHINESE + "请翻译成英文。", "How do I look after the roses in the garden, so that they will bloom in the "
         "summer? Please tell me in steps what to do.", []),
        ("Write a list of things to buy for the picnic that we have in the park on Sunday afternoon.",
         "Here you are, a list of what you can buy for the picnic in the park on Sunday:\n- bread\n- cheese\n- fruit",
         []),
        ("Write a short function that adds two numbers, in any language that you like best of all.",
         "```python\ndef add(a, b):\n    return a + b\n```\nCall it with the two numbers that you want to add up "
         "and it gives the sum back to you", []),
        ("What is the answer to the riddle that I told you about in the morning when we met?", "A shadow.", []),
    ],
)  # fmt: skip
def test_what_is_right_is_left_alone_in_english_and_chinese(prompt, response, kinds) -> None:
    pairs = clean_pairs(60)
    pairs[20] = respond(pairs[20], response, "好的，我不知道。" if "花" in prompt else None)
    pairs[20] = replace(pairs[20], prompt=Prompt("q", (Message("user", prompt),)))
    assert sorted(found(pairs)) == kinds


def test_planted_leaks_are_found_by_their_strongest_reason() -> None:
    train, test = clean_pairs(200), clean_pairs(80, seed=50)
    passage = "a passage of thirteen words that nobody else would ever write down like so"
    train[4] = replace(train[4], prompt=test[1].prompt)
    near = " ".join([*test[2].prompt.text.split(), "please"])
    train[5] = replace(train[5], prompt=Prompt("x", (Message("user", near),)))
    train[6] = respond(train[6], f"Well, {passage}. Indeed.")
    test[3] = respond(test[3], rejected=f"They say {passage} and no more.")
    train[7] = respond(train[7], "Twelve words: a passage of thirteen words that nobody else would ever write down.")
    findings = found(train, test=test)
    leaks = {name: f.ids for name, f in findings.items() if name.startswith("leaked")}
    assert leaks == {"leaked-prompts": ("p4",), "leaked-near-prompts": ("p5",), "leaked-passages": ("p6",)}
    assert findings["leaked-passages"].figures["test_ids"] == ["p3"]
    assert findings["leaked-passages"].notes == {"p6": "a passage of test pair p3"}


def test_a_phrase_that_everybody_uses_is_no_leak() -> None:
    train, test = clean_pairs(200), clean_pairs(80, seed=50)
    phrase = "I hope that this answer helps you and please ask me again if it does not."
    train = [respond(p, f"{p.chosen.text} {phrase}") for p in train]
    test[3] = respond(test[3], f"{test[3].chosen.text} {phrase}")
    assert "leaked-passages" not in found(train, test=test)


def test_thirteen_chinese_characters_are_no_passage_but_twenty_six_are() -> None:
    train, test = clean_pairs(100), clean_pairs(40, seed=50)
    long = "清晨先把花园里的土翻松一遍然后慢慢浇水直到叶子都湿润为止再等它干"
    assert len(long) > 26
    train[0] = respond(train[0], f"好的。{long[:18]}。")
    train[1] = respond(train[1], f"好的。{long}。")
    test[0] = respond(test[0], f"可以，{long}，行吗？")
    assert found(train, test=test)["leaked-passages"].ids == ("p1",)


def test_who_made_the_pairs() -> None:
    pairs = [
        replace(p, extra={"source": "web" if i % 4 else "book", "chosen_model": "big", "rejected_model": "small"})
        for i, p in enumerate(clean_pairs(200))
    ]
    result = check(pairs)
    assert result.composition["source"]["counts"] == {"web": 150, "book": 50}
    assert result.composition["source"]["effective"] == pytest.approx(1.7548, abs=1e-4)  # exp(H(.75))
    assert result.composition["generator"]["wins"] == {"big": 1.0, "small": 0.0}
    assert [f.id for f in result.findings] == ["generator-decides"]
    one = found([replace(p, extra={"model": "big"}) for p in clean_pairs(100)])
    assert list(one) == ["one-generator"]


def test_topics_are_counted_and_few_are_a_finding() -> None:
    six = check(clean_pairs(600)).topics
    assert six.effective == pytest.approx(6, abs=1.0)
    largest = set(six.largest[0][1])
    assert any(largest <= set(words.split()) for words in SUBJECTS.values())
    rng = np.random.default_rng(0)
    garden = [
        replace(p, prompt=Prompt(p.prompt.id, (Message("user", sentence(rng, "garden", 15)),)))
        for p in clean_pairs(300)
    ]
    result = check(garden)
    assert result.topics.effective < 2
    assert [f.id for f in result.findings] == ["few-topics"]


def test_labels_are_counted_by_strength() -> None:
    pairs = clean_pairs(100)
    labels = [None] * 40 + [0.95] * 20 + [0.65] * 10 + [0.5] * 28 + [0.3] * 2
    result = check([replace(p, p_chosen=x) for p, x in zip(pairs, labels, strict=True)])
    assert (result.labels["hard"], result.labels["soft"], result.labels["ties"]) == (40, 60, 28)
    assert result.labels["strength"] == {"0.5-0.6": 28, "0.6-0.7": 10, "0.7-0.8": 2, "0.8-0.9": 0, "0.9-1": 20}
    findings = {f.id: f for f in result.findings}
    assert findings["reversed-labels"].ids == ("p98", "p99")
    assert findings["ties"].count == 28


def test_a_word_that_gives_the_label_away_is_a_finding() -> None:
    pairs = [respond(p, f"Certainly! {p.chosen.text}") for p in clean_pairs(400)]
    result = check(pairs)
    assert result.words["accuracy"] > 0.95
    assert [f.id for f in result.findings] == ["words-decide"]
    fair = check(clean_pairs(400)).words
    assert fair["low"] < 0.5 < fair["high"]


def test_wrong_labels_by_scores_that_are_handed_in() -> None:
    rng = np.random.default_rng(0)
    pairs = clean_pairs(1500)
    margin = rng.normal(scale=3, size=len(pairs))
    honest = rng.random(len(pairs)) < 1 / (1 + np.exp(-margin))
    turned = rng.random(len(pairs)) < 0.1
    of_chosen = np.where(honest ^ turned, margin, -margin)
    scores = {p.id: float(m) for p, m in zip(pairs, of_chosen, strict=True)}
    finding = found(pairs, scores=scores)["noisy-labels"]
    wrong = {p.id for p, t in zip(pairs, turned, strict=True) if t}
    assert len(wrong & set(finding.ids)) / len(finding.ids) > 0.6
    assert len(wrong & set(finding.ids)) > 0.2 * len(wrong)
    clean = {p.id: float(m) for p, m in zip(pairs, np.where(honest, margin, -margin), strict=True)}
    assert "noisy-labels" not in found(pairs, scores=clean)


def test_the_order_of_the_file_changes_nothing_that_is_counted() -> None:
    pairs = clean_pairs(250)
    pairs += [replace(pairs[i], id=f"again{i}") for i in range(5)]
    forward, backward = check(pairs), check(pairs[::-1])
    assert {f.id: f.count for f in forward.findings} == {f.id: f.count for f in backward.findings}
    assert forward.lengths == backward.lengths


def test_public_dialogues_give_the_known_figures() -> None:
    path = Path(__file__).parents[3] / "shared" / "data" / "hh-rlhf" / "harmless-base-test.jsonl.gz"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    result = check_file(path)
    assert (result.pairs, result.records) == (2307, 2312)
    assert result.lengths["longer_wins"] == pytest.approx(1 - 0.555, abs=0.01)
    assert 0.595 < result.words["accuracy"] < 0.64
    assert result.words["ece"] < 0.06
    loud = {f.id: f.count for f in result.at_least(Level.WARNING)}
    assert loud == {"broken-records": 5, "empty": 4}


# the parts


@settings(max_examples=40)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=6))
def test_runs_of_words_of_a_corpus_are_those_of_each_text_alone(texts) -> None:
    together = Corpus()
    numbers = together.extend(texts)
    for text, number in zip(texts, numbers, strict=True):
        alone = Corpus()
        alone.add(text)
        assert together.gram_set(number, 3).tolist() == alone.gram_set(0, 3).tolist()


def test_similarity_by_hand_and_candidates_find_what_is_similar() -> None:
    corpus = Corpus()
    # runs of three: abc bcd cde def / abc bcd cde dex: 3 shared of 5
    a, b = corpus.extend(["a b c d e f", "A, b c d: e x!"])
    assert Similarity(corpus)(a, b) == pytest.approx(3 / 5)
    rng = np.random.default_rng(0)
    base = [sentence(rng, "sky", 40) for _ in range(300)]
    twins = [changed(changed(text, 1), 38) for text in base]  # shares at least 34 of 42 runs
    numbers = corpus.extend([*base, *twins])
    rows = signatures(corpus, np.array(numbers))
    close = set(candidates(rows))
    like = Similarity(corpus)
    assert all(like(numbers[i], numbers[300 + i]) >= 0.8 for i in range(300))
    assert sum((i, 300 + i) in close for i in range(300)) >= 295
    assert sum(like(numbers[i], numbers[j]) < 0.5 for i, j in close) <= 3
