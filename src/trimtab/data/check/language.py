"""Which language a text is in, as far as its script and its commonest words tell."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from trimtab.data.check.corpus import Corpus

__all__ = ["asks_for_another", "differ", "languages", "script_of"]

_SCRIPTS = {
    "kana": re.compile("[\u3040-\u30ff]"),
    "hangul": re.compile("[\uac00-\ud7af]"),
    "han": re.compile("[\u3400-\u9fff]"),
    "cyrillic": re.compile("[\u0400-\u04ff]"),
    "arabic": re.compile("[\u0600-\u06ff]"),
    "hebrew": re.compile("[\u0590-\u05ff]"),
    "devanagari": re.compile("[\u0900-\u097f]"),
    "thai": re.compile("[\u0e00-\u0e7f]"),
    "greek": re.compile("[\u0370-\u03ff]"),
}
_COMMON = {
    "english": "the of and to in is that it for you with on are be this as have not was but from they or an at by",
    "french": "le la les des et est une un que pour dans qui pas vous sur avec sont au ce il elle je nous par plus",
    "german": "der die das und ist nicht ein eine zu den mit von sie ich auf für es im dem sich auch werden bei oder",
    "spanish": "el la los las que y en un una es por con para del se no su como más pero sus lo al este muy",
    "italian": "il di che e la per un una non sono con del della le si nel più come anche questo gli alla ma è",
    "portuguese": "o a os que e de do da em um uma não para com por mais como se na no ao ou são você seu",
    "dutch": "de het een en van is dat niet te op voor zijn met die aan er om ook als maar bij wordt naar",
}
_WORDS = {name: frozenset(text.split()) for name, text in _COMMON.items()}
_ASKED = re.compile(
    r"translat|翻译|译成|用英[文语]|用中文|in (?:english|chinese|mandarin|japanese|korean|thai)"
    r"|in (?:french|german|spanish|italian|portuguese|dutch|russian|arabic|hindi|greek|hebrew)"
    r"|traduc|übersetz|перевед|英語|中国語|language|語言|语言|word for|say .* in ",
    re.IGNORECASE,
)
_ENOUGH_LETTERS, _FEW_WORDS, _ENOUGH_WORDS = 10, 5, 20
_MIXED = "mixed"


def languages(corpus: Corpus) -> NDArray[np.int64]:
    """[texts] the language of each text as a number: 0 unknown, 1 some language in Latin letters, then one each.

    A script decides where most letters are in one; texts in Latin letters of 20 words or more go by their share of each
    language's commonest words, and those of 5 words or more are Latin at least.
    """
    lengths, starts, tokens = corpus.lengths, corpus.offsets[:-1], corpus.tokens
    hits = np.zeros((len(_WORDS), len(corpus)), dtype=np.int64)
    filled = np.flatnonzero(lengths)
    for row, common in enumerate(_WORDS.values()):
        member = np.array([word in common for word in corpus.vocabulary], dtype=np.int64)
        if len(filled):
            hits[row, filled] = np.add.reduceat(member[tokens], starts[filled])
    ranked = np.sort(hits, axis=0)
    clear = (ranked[-1] >= 0.12 * lengths) & (ranked[-1] >= 1.5 * ranked[-2] + 2) & (lengths >= _ENOUGH_WORDS)
    result = np.where(clear, 2 + np.argmax(hits, axis=0), lengths >= _FEW_WORDS)
    for i, text in enumerate(corpus.texts):
        if not text.isascii():
            script = script_of(text[:2000])
            if script:
                result[i] = 0 if script == _MIXED else 2 + len(_WORDS) + list(_SCRIPTS).index(script)
    return result.astype(np.int64)


def differ(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where two numbers of `languages` are certainly not the same language."""
    both_latin = (a <= 1 + len(_WORDS)) & (b <= 1 + len(_WORDS))
    unsure = (a == 0) | (b == 0) | (both_latin & ((a == 1) | (b == 1)))
    result: NDArray[np.bool_] = (a != b) & ~unsure
    return result


def script_of(text: str) -> str:
    """The script of most letters, where it is not the Latin one; `mixed`; empty for Latin letters."""
    letters = sum(map(str.isalpha, text))
    found = {name: len(script.findall(text)) for name, script in _SCRIPTS.items()}
    total = sum(found.values())
    if total <= 0.2 * letters:
        return ""
    if letters < _ENOUGH_LETTERS:
        return _MIXED
    if found["kana"] > 0.05 * letters:
        return "kana"
    name, most = max(found.items(), key=lambda item: item[1])
    return name if most > 0.5 * letters else _MIXED


def asks_for_another(prompt: str) -> bool:
    """Whether a prompt speaks of languages, so that an answer in another one may be what it wants."""
    return _ASKED.search(prompt) is not None
