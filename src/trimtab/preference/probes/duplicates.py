"""Near-duplicates that the data themselves hold: pairs that a sound scorer orders alike.

Found as `trimtab data check` finds them: prompt and both responses share 80 % of their three-word runs (MinHash for
candidates, exact similarity to decide). Pairs that the labels order differently are left out: there the small
difference may be what matters. So are pairs that read the same but for white space.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trimtab.data.check.material import Material
from trimtab.data.check.repeats import orientation
from trimtab.data.check.similar import candidates
from trimtab.data.records import Pair

__all__ = ["NEAR_DUPLICATES", "near_duplicates"]

NEAR_DUPLICATES: Final = "near-duplicates in the data"
"""What reports call them among the changes that should turn no pair round."""


def near_duplicates(pairs: Sequence[Pair]) -> NDArray[np.int64]:
    """[k, 2] numbers of pairs that say nearly the same, each pair once at most as the second of two."""
    material = Material(pairs)
    keys = [
        tuple(material.keys[int(text[i])] for text in (material.prompts, material.chosen, material.rejected))
        for i in range(len(material))
    ]
    rows = np.minimum(material.signatures[material.chosen], material.signatures[material.rejected])
    found: dict[int, int] = {}
    for i, j in candidates(rows):
        if (
            j not in found
            and keys[i] != keys[j]
            and orientation(material, i, j) > 0
            and _same_label(pairs[i], pairs[j])
        ):
            found[j] = i
    return np.array([(i, j) for j, i in found.items()], dtype=np.int64).reshape(-1, 2)


def _same_label(one: Pair, other: Pair) -> bool:
    """Whether both labels name a winner, and the same side."""
    first, second = (0.5 if p.p_chosen is None else p.p_chosen - 0.5 for p in (one, other))
    return first * second > 0
