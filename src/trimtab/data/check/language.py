"""Which language a text is in, as far as its script and its commonest words tell."""

from __future__ import annotations

import re
from functools import lru_cache

from trimtab.stats.text import words

__all__ = ["language_of", "other_language"]

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
_ENOUGH_LETTERS, _ENOUGH_WORDS = 20, 20


def other_language(prompt: str, response: str) -> bool:
    """Whether a response is in another language than the prompt, both known, and the prompt asks for no other."""
    if prompt.isascii() and response.isascii() and len(response) < 60:
        return False
    answered = language_of(response[:2000])
    if not answered:
        return False
    asked = language_of(prompt[:2000])
    return bool(asked) and asked != answered and _ASKED.search(prompt) is None


@lru_cache(maxsize=65536)
def language_of(text: str) -> str:
    """A script (`han`, `cyrillic`, ...) or a language in Latin letters; empty where there is too little to tell."""
    letters = sum(1 for c in text if c.isalpha())
    if not text.isascii() and letters:
        found = {name: len(script.findall(text)) for name, script in _SCRIPTS.items()}
        if found["kana"] > 0.05 * letters:
            return "kana" if letters >= _ENOUGH_LETTERS // 2 else ""
        name, most = max(found.items(), key=lambda item: item[1])
        if most > 0.5 * letters:
            return name if letters >= _ENOUGH_LETTERS // 2 else ""
        if sum(found.values()) > 0.2 * letters:
            return ""  # a mixture
    if letters < _ENOUGH_LETTERS:
        return ""
    spoken = words(text)
    if len(spoken) < _ENOUGH_WORDS:
        return ""
    hits = sorted(((sum(w in common for w in spoken), name) for name, common in _WORDS.items()), reverse=True)
    (most, name), (next_, _) = hits[0], hits[1]
    return name if most >= 0.12 * len(spoken) and most >= 1.5 * next_ + 2 else ""
