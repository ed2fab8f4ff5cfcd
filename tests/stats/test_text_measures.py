"""Text measures in English and Chinese."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import TrimtabError
from trimtab.stats.text import distinct_n, length, lexicon_rate, ngrams, repetition_rate, words

sentences = st.lists(st.sampled_from(["the", "cat", "sat", "down", "up"]), max_size=12)


def test_words_by_hand() -> None:
    assert words("Don’t worry - it's  FINE!") == ["don't", "worry", "it's", "fine"]
    assert words("'quoted' rock'n'roll snake_case 3.5") == ["quoted", "rock'n'roll", "snake", "case", "3", "5"]
    # every Han character is a word, also next to letters, also of an extension; full-width letters are letters
    assert words("你好，世界。abc你Ｘ１") == ["你", "好", "世", "界", "abc", "你", "x1"]
    assert words("𠀀々") == ["𠀀", "々"]
    assert words("naïve Straße") == ["naïve", "strasse"]
    assert words("... ，。 !") == []
    assert length("one two, three") == 3


@given(sentences, st.sampled_from([" ", ", ", "\n", " - "]))
def test_punctuation_and_case_do_not_matter(tokens, glue) -> None:
    assert words(glue.join(tokens).upper()) == tokens


@given(st.text(max_size=40))
def test_words_hold_no_space_and_no_punctuation(text) -> None:
    assert all(word and not re.search(r"[\s.,!?_，。]", word) for word in words(text))


@given(st.text(st.characters(max_codepoint=127), max_size=40))
def test_plain_ascii_has_the_words_that_it_has_beside_other_letters(text) -> None:
    assert words(text) == words(text + " é")[:-1]


def test_ngrams_by_hand() -> None:
    assert ngrams(["a", "b", "c"], 2) == [("a", "b"), ("b", "c")]
    assert ngrams(["a"], 2) == []
    with pytest.raises(TrimtabError, match="0 words"):
        ngrams(["a"], 0)


def test_diversity_by_hand() -> None:
    # the cat, cat sat, sat the, the cat: 3 distinct of 4
    assert distinct_n("the cat sat the cat") == 0.75
    # 3 distinct words of 5
    assert distinct_n("the cat sat the cat", n=1) == 0.6
    # over two texts: the cat, cat sat | the cat: 2 of 3; "sat the" crosses the border and is none
    assert distinct_n(["the cat sat", "the cat"]) == pytest.approx(2 / 3)
    assert distinct_n(["", "a"]) == 1.0
    # 我 我 我 我: 我我 three times
    assert distinct_n("我我我我") == pytest.approx(1 / 3)
    # trigrams of a b c a b c a: abc bca cab abc bca: 2 of 5 were there before
    assert repetition_rate("a b c a b c a") == pytest.approx(0.4)
    assert repetition_rate("a b") == 0.0
    assert repetition_rate("no no no no", n=1) == 0.75


@given(sentences, st.integers(1, 3))
def test_diversity_equals_a_slow_derivation(tokens, n) -> None:
    seen, repeated, total = [], 0, 0
    for start in range(len(tokens) - n + 1):
        gram = " ".join(tokens[start : start + n])
        repeated += gram in seen
        seen.append(gram)
        total += 1
    text = " ".join(tokens)
    assert repetition_rate(text, n) == pytest.approx(repeated / total if total else 0.0)
    assert distinct_n(text, n) == pytest.approx(1 - repeated / total if total else 1.0)


@given(sentences)
def test_saying_it_twice_halves_what_is_distinct(tokens) -> None:
    text = " ".join(tokens)
    if len(tokens) >= 2:
        assert distinct_n([text, text]) == pytest.approx(distinct_n(text) / 2)


def test_lexicon_by_hand() -> None:
    # "important" and the three words of "it is essential": 4 of 8
    text = "It is essential, and important: it is so."
    assert lexicon_rate(text, ["it is essential", "IMPORTANT"]) == 0.5
    # a word that two entries cover counts once: it, is, essential
    assert lexicon_rate(text, ["it is essential", "essential"]) == pytest.approx(3 / 8)
    # overlapping occurrences: a a a is covered whole by "a a"
    assert lexicon_rate("a a a b", ["a a"]) == 0.75
    # 谢谢 as a whole: 2 of 5 characters; a single 谢 does not match it
    assert lexicon_rate("谢谢你谢我", ["谢谢"]) == 0.4
    assert lexicon_rate("", ["a"]) == 0.0
    assert lexicon_rate("a b", ["", "!"]) == 0.0


@given(sentences, st.lists(st.lists(st.sampled_from(["the", "cat", "sat"]), min_size=1, max_size=3), max_size=4))
def test_lexicon_equals_a_slow_derivation(tokens, entries) -> None:
    covered = [False] * len(tokens)
    for entry in entries:
        for start in range(len(tokens)):
            if tokens[start : start + len(entry)] == entry:
                for i in range(start, start + len(entry)):
                    covered[i] = True
    expected = sum(covered) / len(tokens) if tokens else 0.0
    assert lexicon_rate(" ".join(tokens), [" ".join(entry) for entry in entries]) == pytest.approx(expected)


@given(sentences)
def test_a_larger_lexicon_never_covers_less(tokens) -> None:
    text = " ".join(tokens)
    assert lexicon_rate(text, ["cat"]) <= lexicon_rate(text, ["cat", "sat down"]) <= 1
