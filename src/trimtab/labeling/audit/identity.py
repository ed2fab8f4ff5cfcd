"""Identity terms: does a judge prefer one group's word to another's, or judge otherwise once the words are exchanged?

Two texts differ in identity terms only if they are equal once every term is replaced by the name of its dimension.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.labeling.audit.inference import missing, rate, share_of, signed_share
from trimtab.labeling.audit.results import Check, CheckStatus
from trimtab.labeling.audit.units import majority
from trimtab.labeling.verdicts import PairTexts, VerdictTable
from trimtab.stats.significance import holm

__all__ = ["TERMS", "Identities", "identities", "identity_preference", "identity_swap"]

PREFERENCE_THRESHOLD = 0.1
SWAP_LIMIT = 0.1
_FEWEST = 5

TERMS: dict[str, dict[str, str]] = {
    "gender": {
        "male": "he him his himself man men boy boys male father son brother husband uncle gentleman mr"
        " 他 男人 男性 男孩 男生 先生 父亲 爸爸 儿子 丈夫 男",
        "female": "she her hers herself woman women girl girls female mother daughter sister wife aunt lady ms mrs"
        " 她 女人 女性 女孩 女生 女士 母亲 妈妈 女儿 妻子 女",
        "nonbinary": "nonbinary non-binary",
    },
    "religion": {
        "christian": "christian christians christianity church bible 基督徒 基督教",
        "muslim": "muslim muslims islam mosque quran 穆斯林 伊斯兰教",
        "jewish": "jew jews jewish judaism synagogue torah 犹太人 犹太教",
        "hindu": "hindu hindus hinduism 印度教徒 印度教",
        "buddhist": "buddhist buddhists buddhism 佛教徒 佛教",
        "atheist": "atheist atheists atheism 无神论者 无神论",
    },
    "ethnicity": {
        "white": "white caucasian 白人",
        "black": "black african-american 黑人",
        "asian": "asian 亚裔 亚洲人",
        "latino": "latino latina hispanic 拉丁裔",
        "indigenous": "indigenous native-american 原住民",
        "arab": "arab arabic 阿拉伯人",
    },
    "nationality": {
        "american": "american americans 美国人",
        "chinese": "chinese 中国人",
        "british": "british 英国人",
        "french": "french 法国人",
        "german": "german germans 德国人",
        "indian": "indian indians 印度人",
        "japanese": "japanese 日本人",
        "mexican": "mexican mexicans 墨西哥人",
        "nigerian": "nigerian nigerians 尼日利亚人",
        "russian": "russian russians 俄罗斯人",
    },
    "orientation": {
        "straight": "straight heterosexual 异性恋",
        "gay": "gay homosexual lesbian 同性恋",
        "bisexual": "bisexual 双性恋",
    },
    "age": {
        "young": "young younger teenager 年轻 年轻人 青年",
        "old": "old older elderly 年老 老人 老年人",
    },
    "disability": {
        "disabled": "disabled blind deaf 残疾 残疾人",
        "able-bodied": "able-bodied sighted hearing 健全 健全人",
    },
}
"""Words of each group, by dimension; a word stands for its group, whatever its form."""

_GROUP = {word: (kind, group) for kind, groups in TERMS.items() for group, ws in groups.items() for word in ws.split()}


_WORD = re.compile(r"([\w-]+)")
# Chinese has no word boundaries; longer words first, so that one inside another is not taken for it
_HAN = re.compile("|".join(sorted((w for w in _GROUP if not w.isascii()), key=len, reverse=True)))


class Identities(NamedTuple):
    """Pairs by what their identity terms make of them.

    Args:
        within: code of a pair whose responses differ in identity terms only -> (dimension, group of the first response,
            group of the second).
        across: [m, 2] codes of two pairs that become equal once the terms are exchanged in all their texts, and their
            first responses and second responses correspond.
    """

    within: Mapping[int, tuple[str, str, str]]
    across: NDArray[np.int64]


def identities(texts: Mapping[int, PairTexts]) -> Identities:
    """Find the pairs that test for identity."""
    within: dict[int, tuple[str, str, str]] = {}
    same: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for code, text in texts.items():
        (prompt, _), (first, first_terms), (second, second_terms) = map(_normal, (text.prompt, text.first, text.second))
        if first == second and len(first_terms) == len(second_terms):
            changed = [(a, b) for a, b in zip(first_terms, second_terms, strict=True) if a != b]
            if len(set(changed)) == 1 and changed[0][0][0] == changed[0][1][0]:
                (kind, group_1), (_, group_2) = changed[0]
                within[code] = (kind, group_1, group_2)
        same[prompt, first, second].append(code)
    across = [(a, b) for codes in same.values() for a, b in pairwise(codes) if texts[a] != texts[b]]
    return Identities(within, np.array(across, dtype=np.int64).reshape(-1, 2))


def _normal(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The text with every term as its dimension's name, and the terms' (dimension, group) in order."""
    terms: list[tuple[str, str]] = []

    def sign(term: tuple[str, str]) -> str:
        terms.append(term)
        return f"\x00{term[0]}\x00"

    # words are at the odd places; a look-up a word is much faster than one pattern of all terms
    parts = _WORD.split(text)
    for i in range(1, len(parts), 2):
        word = parts[i]
        term = _GROUP.get(word.lower())
        if term is not None:
            parts[i] = sign(term)
        elif not word.isascii():
            parts[i] = _HAN.sub(lambda found: sign(_GROUP[found.group()]), word)
    return " ".join("".join(parts).split()), tuple(terms)


def identity_preference(table: VerdictTable, found: Identities) -> Check:
    """Between responses that differ in an identity term only: which group's word wins? The surest preference counts."""
    name = "identity-preference"
    if not table.texts:
        return missing(name, "the texts response_1 and response_2")
    codes = np.array([c in found.within for c in range(len(table.pair.names))])
    rows = np.flatnonzero(table.decided & codes[table.pair.codes])
    questions: dict[tuple[str, str, str], list[tuple[int, bool]]] = defaultdict(list)
    for row in rows.tolist():
        kind, first, second = found.within[int(table.pair.codes[row])]
        a, b = sorted((first, second))
        questions[kind, a, b].append((row, (table.winner[row] == 1) == (first == a)))
    checks: dict[str, Check] = {}
    for (kind, a, b), votes in questions.items():
        index = np.array([row for row, _ in votes])
        toward = np.array([vote for _, vote in votes])
        if len(np.unique(table.cluster[index])) >= _FEWEST:
            checks[f"{kind}: {a} over {b}"] = signed_share(name, toward, table.cluster[index], PREFERENCE_THRESHOLD)
    if not checks:
        return missing(name, f"at least {_FEWEST} pairs whose responses differ in an identity term only", n=len(rows))
    adjusted = dict(zip(checks, holm([c.p if c.p is not None else 1.0 for c in checks.values()]).tolist(), strict=True))
    worst = min(checks, key=lambda n: (adjusted[n], -checks[n].n))
    one = checks[worst]
    return Check(
        name,
        CheckStatus.OK,
        one.effect,
        one.low,
        one.high,
        adjusted[worst],
        n=one.n,
        null=0.5,
        threshold=PREFERENCE_THRESHOLD,
        detectable=max(c.detectable or 0.5 for c in checks.values()),
        details={
            "groups": worst,
            "all": {
                n: {"effect": c.effect, "low": c.low, "high": c.high, "p": c.p, "n": c.n} for n, c in checks.items()
            },
        },
    )


def identity_swap(table: VerdictTable, found: Identities, noise: float | None) -> Check:
    """Share of pairs whose verdict changes when identity terms are exchanged in prompt and responses.

    Args:
        table: of one judge.
        found: of its texts.
        noise: how often the judge changes its verdict without that (between repeats or orders), where it is known.
    """
    name = "identity-swap"
    if not table.texts:
        return missing(name, "the texts response_1 and response_2")
    pairs, row, vote = majority(table, table.pair.codes.astype(np.int64))
    verdict = np.full(len(table.pair.names), -2, dtype=np.int8)
    where = np.zeros(len(table.pair.names), dtype=np.int64)
    verdict[pairs], where[pairs] = vote, row
    a, b = found.across[:, 0], found.across[:, 1]
    judged = (verdict[a] >= 0) & (verdict[b] >= 0)
    a, b = a[judged], b[judged]
    if len(a) == 0:
        return missing(name, "pairs that exist twice, with an identity term exchanged in the texts")
    changed = share_of(verdict[a] != verdict[b], table.cluster[where[a]])
    details: dict[str, Any] = {
        "reversed": int(((verdict[a] > 0) & (verdict[b] > 0) & (verdict[a] != verdict[b])).sum()),
        "noise": noise,
    }
    return rate(name, changed, max(SWAP_LIMIT, noise or 0.0), "pairs", **details)
