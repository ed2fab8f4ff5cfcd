"""Pairs as the checks look at them: numbers of their texts in one corpus, labels as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trimtab.data.check.corpus import Corpus
from trimtab.data.check.similar import Signatures, Similarity, signatures
from trimtab.data.records import Pair

__all__ = ["Material", "counted", "percent"]

Ints = NDArray[np.int64]


class Material:
    """Pairs with their texts tokenised once.

    Args:
        pairs: the pairs.
        corpus: where their texts go; share one between data sets that are compared.
    """

    def __init__(self, pairs: Sequence[Pair], corpus: Corpus | None = None) -> None:
        self.pairs = list(pairs)
        self.corpus = corpus or Corpus()
        self.prompts: Ints = np.array(self.corpus.extend(p.prompt.text for p in self.pairs), dtype=np.int64)
        self.chosen: Ints = np.array(self.corpus.extend(p.chosen.text for p in self.pairs), dtype=np.int64)
        self.rejected: Ints = np.array(self.corpus.extend(p.rejected.text for p in self.pairs), dtype=np.int64)
        # what the user says in each prompt, without the turns of others; the prompt itself where that is all
        asked = (" ".join(m.content for m in p.prompt.messages if m.role == "user") for p in self.pairs)
        self.questions: Ints = np.array(self.corpus.extend(asked), dtype=np.int64)
        self.p = np.array([1.0 if p.p_chosen is None else p.p_chosen for p in self.pairs])

    def __len__(self) -> int:
        return len(self.pairs)

    @cached_property
    def keys(self) -> list[int]:
        """[texts of the corpus] the first text that reads the same but for white space."""
        first: dict[str, int] = {}
        return [first.setdefault(" ".join(text.split()), i) for i, text in enumerate(self.corpus.texts)]

    @cached_property
    def signatures(self) -> Signatures:
        """[texts of the corpus, 64] MinHash signatures."""
        return signatures(self.corpus, range(len(self.corpus)))

    @cached_property
    def similarity(self) -> Similarity:
        """Exact similarity of two texts by number."""
        return Similarity(self.corpus)

    def ids(self, index: Sequence[int] | Ints) -> tuple[str, ...]:
        """Ids of pairs by their place."""
        return tuple(self.pairs[int(i)].id for i in index)


def counted(n: int, thing: str, things: str = "") -> str:
    """`1 pair`, `1,234 pairs`."""
    return f"{n:,} {thing if n == 1 else things or thing + 's'}"


def percent(part: float, whole: float) -> str:
    """A share in words for a sentence: `2.5 %`."""
    from trimtab.figures import share

    return share(part / whole) if whole else "0 %"
