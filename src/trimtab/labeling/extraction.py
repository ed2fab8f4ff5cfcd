"""What a judge's answer says: a verdict in its words, in the probabilities of its tokens, a refusal.

Only what the judge itself wrote is read, and of several verdicts the last. Nothing here knows a server.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["Letters", "Said", "Token", "letters_at", "refuses", "said", "without_material"]

_WORD = r"(?P<word>[AB]|[Tt]ie|TIE)"
_LEAD = r"[\s*_\"'`\[({<>:=\-\u201c\u2018]*"
_NAMED = (
    # "Verdict: A", "**Final answer:** Response B", "the winner is A"
    rf"\b(?:verdict|answer|choice|winner|preference|decision|judge?ment|conclusion){_LEAD}(?:is|goes\s+to)?{_LEAD}"
    rf"(?:a\s+)?(?:response|option|assistant|candidate)?{_LEAD}{_WORD}(?![\w'\u2019])",
    # "[[A]]"
    r"\[\[\s*(?P<word>[ABC])\s*\]\]",
    # "Response A is better", "B follows the principles better", "I prefer response B"
    rf"\b(?:response|option|assistant|candidate)\s+{_WORD}\s+(?:wins\b|(?:is|does|follows\s+the\s+\w+)"
    rf"(?:\s+(?:clearly|much|far|slightly|somewhat|significantly|definitely|overall|a\s+bit|a\s+little|the))*"
    rf"\s+(?:better|preferable|preferred|superior|best|winner)\b)",
    rf"\bprefer\s+(?:response|option|assistant|candidate)?\s*{_WORD}(?![\w'\u2019])",
)
_VERDICTS = [re.compile(pattern, re.IGNORECASE) for pattern in _NAMED]
_ALONE = re.compile(rf"[\W_]*(?:response|option|assistant|candidate)?[\W_]*{_WORD}[\W_]*", re.IGNORECASE)
_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)

_AROUND = " \t\n\r\u2581\u0120\u010a*_\"'`([{<>}]).:"
"""What may stand around a letter in its token; tokenizers show a blank in several ways."""

_LONGEST_REFUSAL = 400
_REFUSALS = re.compile(
    r"\W*(?:"
    r"(?:(?:i(?:'|\u2019)?m|i\s+am)\s+(?:very\s+|so\s+|really\s+)?sorry|sorry|i\s+apologi[sz]e|my\s+apologies|unfortunately)"
    r"\W+(?:but\s+|that\s+)?(?:as\s+an?\s+[\w ]{1,40}?,?\s+)?"
    r"(?:i(?:'|\u2019)?m|i\s+am|i)\s+(?:not\s+able|unable|can(?:no|'|\u2019)?t|won(?:'|\u2019)?t|will\s+not|must\s+decline|do\s+not)"
    r"|i\s+(?:can(?:no|'|\u2019)?t|won(?:'|\u2019)?t|will\s+not|must\s+decline\s+to|am\s+(?:not\s+able|unable)\s+to|(?:'|\u2019)m\s+unable\s+to)\s+"
    r"(?:\w+\s+){0,2}?(?:help(?!\s+but)|assist|compare|judge|choose|evaluate|answer|comply|engage|participate|provide|fulfil+|do|discuss|rate)"
    r"|i(?:'|\u2019)m\s+(?:not\s+able|unable)\s+to\s+(?:help(?!\s+but)|assist|compare|judge|choose|evaluate|answer|comply|provide)"
    r"|as\s+an?\s+(?:ai|language\s+model)[\w ,]{0,40}?\bi\s+(?:can(?:no|'|\u2019)?t|am\s+(?:not\s+able|unable))"
    r"|(?:\u5bf9\u4e0d\u8d77|\u62b1\u6b49|\u5f88\u62b1\u6b49|\u6211\u5f88\u62b1\u6b49)[\uff0c,\s]*\u6211?(?:\u4e0d\u80fd|\u65e0\u6cd5)"
    r")",
    re.IGNORECASE,
)


class Said(NamedTuple):
    """A verdict found in words: `A`, `B` or `tie`, and where its word begins in the text."""

    verdict: str
    at: int


class Token(NamedTuple):
    """A token that was sampled, and the log-probabilities of the likeliest ones in its place, by their text."""

    text: str
    top: Mapping[str, float]


class Letters(NamedTuple):
    """Log-probabilities of the letters at one place.

    Args:
        a: of A in all its spellings; None where it is not among the listed tokens.
        b: of B.
        p_a: P(A) / (P(A) + P(B)). A letter that is not listed counts with the most that it can have: as much as the
            least likely listed token, or what is left.
        mass: P(A) + P(B), as far as listed.
    """

    a: float | None
    b: float | None
    p_a: float
    mass: float


def said(text: str) -> Said | None:
    """The last verdict in an answer; None where there is none. A JSON object with `verdict` is one too."""
    visible = _THOUGHT.sub(lambda thought: " " * len(thought[0]), text)
    if (found := _from_json(visible)) is not None:
        return found
    if (alone := _ALONE.fullmatch(visible)) is not None:
        return Said(_name(alone["word"]), alone.start("word"))
    named = [m for pattern in _VERDICTS for m in pattern.finditer(visible) if _capital(m["word"])]
    if not named:
        return None
    last = max(named, key=lambda m: m.start("word"))
    return Said(_name(last["word"]), last.start("word"))


def refuses(text: str) -> bool:
    """Whether an answer without a verdict declines to compare: short, and begins as refusals do."""
    text = _THOUGHT.sub("", text).strip()
    return len(text) <= _LONGEST_REFUSAL and _REFUSALS.match(text) is not None


def without_material(text: str, code: str) -> str:
    """An answer with what it quotes of the material blanked: the marked texts (see `templates`) are not its own."""
    mark = re.escape(code)
    pattern = rf"<(?P<what>prompt|response A|response B) {mark}>.*?(?:</(?P=what) {mark}>|\Z)"
    return re.sub(pattern, lambda quoted: " " * len(quoted[0]), text, flags=re.DOTALL)


def letters_at(tokens: Sequence[Token], at: int | None) -> Letters | None:
    """Probabilities of the letters where the verdict stands.

    Args:
        tokens: the answer's, in order.
        at: where the verdict's word begins in their joined text; None: the answer's first token that is not blank.

    Returns:
        None where there is no token, or neither letter is listed.
    """
    place = _place(tokens, at)
    if place is None:
        return None
    top = dict(place.top) or {}
    a, b = (_total([p for text, p in top.items() if _letter(text) == letter]) for letter in "AB")
    if a is None and b is None:
        return None
    listed = math.fsum(math.exp(min(p, 0.0)) for p in top.values())
    most = min(math.exp(min([*top.values(), 0.0])), max(1.0 - listed, 0.0))
    p_a, p_b = (most if p is None else math.exp(min(p, 0.0)) for p in (a, b))
    mass = math.fsum(math.exp(min(p, 0.0)) for p in (a, b) if p is not None)
    total = p_a + p_b
    # both so unlikely that they vanish: the difference of the logarithms still tells them apart
    share = p_a / total if total > 0 else _sigmoid((-745.0 if a is None else a) - (-745.0 if b is None else b))
    return Letters(a, b, share, min(mass, 1.0))


def _place(tokens: Sequence[Token], at: int | None) -> Token | None:
    if not tokens:
        return None
    if at is None:
        return next((token for token in tokens if token.text.strip(_AROUND)), tokens[0])
    end = 0
    for token in tokens:
        end += len(token.text)
        if end > at:
            return token
    return None


def _letter(token: str) -> str | None:
    """The letter that a token spells: alone, or with blanks, quotes, brackets or asterisks around it."""
    bare = token.strip(_AROUND)
    return bare if bare in ("A", "B") else None


def _total(logprobs: Sequence[float]) -> float | None:
    if not logprobs:
        return None
    top = max(logprobs)
    if top == -math.inf:
        return None
    return min(top + math.log(math.fsum(math.exp(p - top) for p in logprobs)), 0.0)


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-700.0, min(700.0, x))))


def _from_json(text: str) -> Said | None:
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        value = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return None
    verdict = value.get("verdict") if isinstance(value, dict) else None
    if not isinstance(verdict, str) or verdict.strip().lower() not in ("a", "b", "tie"):
        return None
    # the key's last appearance is its own: the schema puts the verdict after the reasons
    return Said(_name(verdict.strip()), text.rfind('"verdict"') + text[text.rfind('"verdict"') :].find(verdict, 9))


def _capital(word: str) -> bool:
    """A small a is an article, and a small b a slip."""
    return word in ("A", "B", "C") or word.lower() == "tie"


def _name(word: str) -> str:
    upper = word.upper()
    return upper if upper in ("A", "B") else "tie"
