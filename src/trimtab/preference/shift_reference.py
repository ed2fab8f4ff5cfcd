"""What a preference model was like on the pairs that it comes from, kept beside it to tell when responses leave them.

`reference.safetensors` holds a bounded sample: the hidden states that the head reads (float16), scores, lengths, and
which pair each row belongs to; `reference.json` says what the scores are made of. Distances are Mahalanobis distances
with shrunk covariance from the pairs trained on. They are judged against the distances of pairs that were held out,
or where there are few of these against distances from a fit on other prompts: a row that the fit has seen lies too
near.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.runs.files import read_json, write_json
from trimtab.stats.shift import Gaussian, cross_distances, expected_psi, fit_gaussian, percentiles, psi
from trimtab.stats.text import length

if TYPE_CHECKING:
    from trimtab.preference.model import PreferenceModel

__all__ = ["MOST_ROWS", "REFERENCE_FILE", "Reference", "bins_for", "reference_of"]

Floats = NDArray[np.float64]

REFERENCE_FILE: Final = "reference.safetensors"
MOST_ROWS: Final = 1024
"""Responses kept, two a pair; at most half of them held out."""
LEAST_UNSEEN: Final = 60
"""Held-out responses from which on they alone say what is usual."""
_FACTS: Final = "reference.json"
_FORMAT: Final = 1
_HALF_MAX: Final = 6e4
"""Below the largest float16."""
_OUTSIDE: Final = 0.99


@dataclass(frozen=True, eq=False)
class Reference:
    """A sample of the pairs that a preference model comes from; rows 2i and 2i + 1 are those of pair i, chosen first.

    Args:
        states: [2P, D] what the head reads.
        scores: [2P] before any division by a temperature.
        words: [2P] lengths of the responses.
        spread: [2P] standard deviation over members; zeros for a single model.
        prompts: [P] number of each pair's prompt.
        unseen: [P] whether the pair was held out of the training.
        labels: [P] P(chosen is better).
        combination: what the scores are made of, see `PreferenceModel.combination`.
    """

    states: Floats
    scores: Floats
    words: Floats
    spread: Floats
    prompts: NDArray[np.int64]
    unseen: NDArray[np.bool_]
    labels: Floats
    combination: str = ""

    @property
    def groups(self) -> NDArray[np.int64]:
        """[2P] prompt of every row."""
        return np.repeat(self.prompts, 2)

    @cached_property
    def usual(self) -> NDArray[np.bool_]:
        """[2P] rows that say what is usual: the held-out ones where there are enough, else all."""
        unseen = np.repeat(self.unseen, 2)
        enough = unseen.sum() >= LEAST_UNSEEN and len(np.unique(self.prompts[self.unseen])) >= 10
        return unseen if enough and not unseen.all() else np.ones_like(unseen)

    @cached_property
    def place(self) -> Gaussian:
        """Where the pairs lie: of those trained on, or of all where these are few."""
        rows = ~self.usual
        return fit_gaussian(self.states[rows] if rows.any() else self.states)

    @cached_property
    def distances(self) -> Floats:
        """[usual rows] distances of rows that the fit has not seen."""
        if (~self.usual).any():
            return self.place.distances(self.states[self.usual])
        return cross_distances(self.states, self.groups)

    def percentiles(self, states: Floats) -> Floats:
        """[n] share of the usual rows that lie nearer than each of states [n, D]."""
        return percentiles(self.place.distances(states), self.distances)

    def signals(self, states: Floats, scores: Floats | None) -> dict[str, float]:
        """Figures of a batch for the log; `scores` None: they are made of something else than the reference's."""
        ranks = self.percentiles(states)
        found = {"shift/distance": float(ranks.mean()), "shift/outside_fraction": float((ranks > _OUTSIDE).mean())}
        if scores is not None:
            usual = self.scores[self.usual]
            bins = bins_for(len(scores))
            found["shift/score_psi"] = psi(usual, scores, bins) - expected_psi(len(usual), len(scores), bins)
        return found

    def save(self, directory: Path) -> None:
        """Write `reference.safetensors` and `reference.json` into the directory of the model."""
        from safetensors.numpy import save_file

        scale = max(1.0, float(np.abs(self.states).max()) / _HALF_MAX)
        tensors: dict[str, NDArray[Any]] = {
            "states": (self.states / scale).astype(np.float16),
            "prompts": self.prompts.astype(np.int32),
            "unseen": self.unseen.astype(np.uint8),
        }
        for name in ("scores", "words", "spread", "labels"):
            tensors[name] = getattr(self, name).astype(np.float32)
        save_file(tensors, str(directory / REFERENCE_FILE))
        facts = {"pairs": len(self.labels), "held_out": int(self.unseen.sum()), "columns": self.states.shape[1]}
        write_json(directory / _FACTS, {"format": _FORMAT, "scale": scale, "combination": self.combination, **facts})

    @classmethod
    def load(cls, directory: Path) -> Reference | None:
        """What `save` wrote; None where there is none.

        Raises:
            TrimtabError: the files are broken.
        """
        path = directory / REFERENCE_FILE
        if not path.is_file():
            return None
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        facts = read_json(directory / _FACTS, ErrorKind.MODEL)
        try:
            tensors = load_file(str(path))
            return cls._parsed(tensors, facts)
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise TrimtabError(
                ErrorKind.MODEL, f"{path}: is no reference of format {_FORMAT}: {error}",
                "make it again with: trimtab pm shift MODEL --reference PAIRS, or train the model again",
            ) from None  # fmt: skip

    @classmethod
    def _parsed(cls, tensors: Mapping[str, NDArray[Any]], facts: Any) -> Reference:
        if not isinstance(facts, Mapping) or facts.get("format") != _FORMAT:
            raise ValueError(f"its {_FACTS} is of another format")
        scale = float(facts["scale"])
        states = tensors["states"].astype(np.float64) * scale
        each = {name: tensors[name].astype(np.float64) for name in ("scores", "words", "spread", "labels")}
        prompts, unseen = tensors["prompts"].astype(np.int64), tensors["unseen"].astype(bool)
        shapes = {len(states), 2 * len(prompts), 2 * len(unseen), 2 * len(each["labels"])}
        shapes |= {len(each[name]) for name in ("scores", "words", "spread")}
        flat = all(x.ndim == 1 for x in (*each.values(), prompts, unseen))
        if states.ndim != 2 or not flat or len(shapes) != 1 or not len(states):
            raise ValueError("its tensors do not fit each other")
        if not (np.isfinite(states).all() and all(np.isfinite(x).all() for x in each.values())):
            raise ValueError("it holds numbers that are not finite")
        return cls(
            states, each["scores"], each["words"], each["spread"], prompts, unseen, each["labels"],
            str(facts.get("combination", "")),
        )  # fmt: skip


def bins_for(n: int) -> int:
    """Bins of a stability index of n values: ten, fewer where these would hold less than five each."""
    return max(2, min(10, n // 5))


def reference_of(
    model: PreferenceModel, training: Sequence[Pair], held_out: Sequence[Pair] = (), *, seed: int = 0
) -> Reference:
    """Score a sample of the pairs that a model was trained on and of those that were held out.

    Args:
        model: the preference model; what it watches is as before afterwards.
        training: pairs that it was trained on.
        held_out: pairs of other prompts.
        seed: of the draw, where there are more than `MOST_ROWS` responses.

    Raises:
        TrimtabError: fewer than two prompts, or states that are not finite.
    """
    rng = np.random.default_rng([seed, 11])
    training, held_out = ([pair for pair in part if _fits(model, pair)] for part in (training, held_out))
    most = MOST_ROWS // 2
    beside = _drawn(held_out, most if not training else most // 2, rng)
    pairs = [*_drawn(training, most - len(beside), rng), *beside]
    number = {messages: i for i, messages in enumerate(dict.fromkeys(p.prompt.messages for p in pairs))}
    if len(number) < 2:
        raise TrimtabError(
            ErrorKind.DATA, f"{len(pairs)} pairs of {len(number)} prompts are no reference", "give pairs of two or more"
        )
    prompts = [pair.prompt for pair in pairs for _ in range(2)]
    responses = [response for pair in pairs for response in (pair.chosen, pair.rejected)]
    states, scores, spread = model.observe(prompts, responses)
    if not (np.isfinite(states).all() and np.isfinite(scores).all()):
        raise TrimtabError(
            ErrorKind.MODEL, "the preference model gives scores or states that are not finite", "train it again"
        )
    return Reference(
        states, scores, np.array([float(length(r.text)) for r in responses]), spread,
        np.array([number[p.prompt.messages] for p in pairs]), np.arange(len(pairs)) >= len(pairs) - len(beside),
        np.array([1.0 if p.p_chosen is None else p.p_chosen for p in pairs]), model.combination,
    )  # fmt: skip


def _fits(model: PreferenceModel, pair: Pair) -> bool:
    """Whether the model reads both responses; a training may leave out pairs that are too long."""
    try:
        return all(model.token_ids(pair.prompt, response) for response in (pair.chosen, pair.rejected))
    except TrimtabError:
        return False


def _drawn(pairs: Sequence[Pair], most: int, rng: np.random.Generator) -> list[Pair]:
    if len(pairs) <= most:
        return list(pairs)
    return [pairs[i] for i in sorted(rng.permutation(len(pairs))[: max(most, 0)])]
