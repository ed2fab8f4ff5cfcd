"""What a margin of scores means: a fitted, increasing map from margins to P(first wins), kept as JSON beside the model.

Without torch. A margin has no order: P(-m) = 1 - P(m), so every map here is odd around one half and none has an
intercept. None changes which of two responses wins; isotonic may call unequal margins equally sure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeGuard, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.runs.files import read_json, write_json
from trimtab.stats.calibration import fit_isotonic, fit_platt, fit_temperature

__all__ = ["CALIBRATION_FILE", "METHODS", "Calibration", "Method", "fit", "sigmoid"]

Floats = NDArray[np.float64]
Method = Literal["temperature", "platt", "isotonic"]

CALIBRATION_FILE: Final = "calibration.json"
"""In the directory of the model; plain transformers does not look at it."""
METHODS: Final[tuple[Method, ...]] = ("temperature", "platt", "isotonic")
_FORMAT: Final = 1
_LEAST_SLOPE: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted map.

    Args:
        method: which of the maps `probability` is.
        temperature: T of sigmoid(margin / T), fitted whatever the method: the scale of the scores in nats of log-odds.
        slope: of Platt's sigmoid(slope margin), above 0.
        points: isotonic: increasing margins above 0.
        heights: isotonic: the probability at each of them.
        pairs: how many pairs it was fitted on.
        prompts: of how many prompts.
        data: sha256 of the file that held them; empty = not a file.
        scores: how the scores came about where settings can change that without training, as `combination` of the
            model had it; empty = a single model.
    """

    method: Method
    temperature: float
    slope: float
    points: tuple[float, ...] = ()
    heights: tuple[float, ...] = ()
    pairs: int = 0
    prompts: int = 0
    data: str = ""
    scores: str = ""

    def probability(self, margins: ArrayLike) -> Floats:
        """P(first wins) in (0, 1), of the shape of the margins (score of the first minus score of the second)."""
        x = np.asarray(margins, dtype=np.float64)
        if self.method == "temperature":
            return sigmoid(x / self.temperature)
        if self.method == "platt":
            return sigmoid(self.slope * x)
        above = np.interp(np.abs(x), (0.0, *self.points), (0.5, *self.heights))
        return np.asarray(np.where(x >= 0, above, 1 - above), dtype=np.float64)

    def save(self, directory: Path, report: Mapping[str, Any] | None = None) -> Path:
        """Write `calibration.json` into the model's directory; `report` rides along for whoever reads the file."""
        path = directory / CALIBRATION_FILE
        write_json(path, {"format": _FORMAT, **asdict(self), **({"report": dict(report)} if report else {})})
        return path

    @classmethod
    def load(cls, directory: Path) -> Calibration | None:
        """What `save` wrote; None where the model has no calibration.

        Raises:
            TrimtabError: the file is broken, or holds no increasing map.
        """
        path = directory / CALIBRATION_FILE
        return _parsed(path, read_json(path, ErrorKind.MODEL)) if path.exists() else None


def sigmoid(x: ArrayLike) -> Floats:
    """1 / (1 + exp(-x)), float64, without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(np.asarray(x, dtype=np.float64) / 2)), dtype=np.float64)


def fit(method: Method, margins: ArrayLike, labels: ArrayLike) -> Calibration:
    """Fit one map on pairs, each taken in both orders.

    Where the margins say nothing, or point the wrong way, the slope stops at 0.001: the order of scores is kept, and
    every probability is near one half. Source: the fits of `trimtab.stats.calibration`.

    Args:
        method: the map.
        margins: [n] score of the chosen minus score of the rejected response.
        labels: [n] P(chosen wins), 1 for a hard label.

    Raises:
        TrimtabError: no pairs, unequal lengths, margins that are not finite, labels outside [0, 1].
    """
    x, y = np.asarray(margins, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    both_x, both_y = np.concatenate([x, -x]), np.concatenate([y, 1 - y])
    temperature = fit_temperature(both_x, both_y)
    # the two orders make the intercept 0 by symmetry, and Platt's drawing-in of labels a regularisation
    slope = fit_platt(both_x, both_y).slope if method == "platt" else 1 / temperature
    found = Calibration(method, temperature, max(slope, _LEAST_SLOPE), pairs=len(x))
    if method != "isotonic":
        return found
    fitted = fit_isotonic(both_x, both_y)
    above = fitted.x > 0
    points, heights = fitted.x[above], fitted.y[above]
    # never certain: a share of 1 among n pairs is worth (n + 1) / (n + 2) (Laplace)
    heights = np.clip(heights, 0.5, 1 - 1 / (len(x) + 2))
    if len(points) > 2:  # inside a level stretch only its ends matter
        ends = np.r_[True, (heights[1:-1] != heights[:-2]) | (heights[1:-1] != heights[2:]), True]
        points, heights = points[ends], heights[ends]
    return replace(found, points=tuple(points.tolist()), heights=tuple(heights.tolist()))


def _parsed(path: Path, record: Any) -> Calibration:
    def refuse(problem: str) -> TrimtabError:
        return TrimtabError(ErrorKind.MODEL, f"{path}: {problem}", "make it again with: trimtab pm calibrate")

    if not isinstance(record, Mapping) or record.get("format") != _FORMAT or record.get("method") not in METHODS:
        raise refuse(f"is no calibration of format {_FORMAT} with a method among {', '.join(METHODS)}")
    for name in ("temperature", "slope"):
        value = record.get(name)
        if not _finite(value) or value <= 0:
            raise refuse(f"{name} is {value!r}, not a number above 0")
    points, heights = record.get("points", []), record.get("heights", [])
    curve_is_good = (
        isinstance(points, list)
        and isinstance(heights, list)
        and len(points) == len(heights)
        and all(map(_finite, [*points, *heights]))
        and _rises([0.0, *points], strictly=True)
        and _rises([0.5, *heights, 1.0], strictly=False)
    )
    if not curve_is_good:
        raise refuse("points and heights are no increasing curve from 0.5 to 1")
    pairs, prompts = (c if isinstance(c := record.get(name), int) else 0 for name in ("pairs", "prompts"))
    return Calibration(
        cast(Method, record["method"]), float(record["temperature"]), float(record["slope"]),
        tuple(map(float, points)), tuple(map(float, heights)), pairs, prompts, str(record.get("data", "")),
        str(record.get("scores", "")),
    )  # fmt: skip


def _finite(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _rises(values: Sequence[float], *, strictly: bool) -> bool:
    gaps = np.diff(np.asarray(values, dtype=np.float64))
    return bool((gaps > 0).all() if strictly else (gaps >= 0).all())
