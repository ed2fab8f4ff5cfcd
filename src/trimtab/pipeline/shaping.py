"""What each way of shaping does to a preference model's scores, by the functions that PPO shapes with."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from trimtab.config.schema import PPOConfig
from trimtab.data.pairs import read_pairs
from trimtab.data.records import Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.pipeline.shift import Responses, Subject, responses_of
from trimtab.ppo.shaping import ScoreShaper
from trimtab.preference.probes.edits import EDITS
from trimtab.preference.shaping_preview import Shaped, Shaping, advise, figures_of
from trimtab.preference.shift_reference import Reference
from trimtab.scoring import checked_scores

__all__ = ["Preview", "preview"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FEWEST: Final = 20
_CLIP: Final = 3.0
_OUTLIERS: Final = 5.0
_STEP: Final = 1e-2
"""Of score deviations, over which the slope of a shape is taken."""


@dataclass(frozen=True, slots=True)
class Preview:
    """Figures of every way, the advised one, and ways that could not be shown with the reason."""

    label: str
    responses: int
    prompts: int
    noise: str
    ways: tuple[Shaping, ...]
    advised: str
    reason: str
    missing: tuple[tuple[str, str], ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "label": self.label, "responses": self.responses, "prompts": self.prompts, "noise": self.noise,
            "advised": {"name": self.advised, "reason": self.reason, "settings": self._settings()},
            "ways": [way.as_dict() for way in self.ways], "missing": dict(self.missing),
        }  # fmt: skip

    def _settings(self) -> dict[str, Any] | None:
        return next(way.settings for way in self.ways if way.name == self.advised)


def preview(subject: Subject, where: str | None = None) -> Preview:
    """Shape the scores of responses in every way.

    Args:
        subject: see `open_subject`.
        where: as of `responses_of`, the last of its sets; None: both responses of the run's held-out pairs, which the
            reference has sampled.

    Raises:
        TrimtabError: fewer than `FEWEST` responses, or scores that all are one.
    """
    chosen = _held_out(subject) if where is None else responses_of(subject, where)[-1]
    kept = [(p, r) for p, r in zip(chosen.prompts, chosen.responses, strict=True) if _readable(subject, p, r)]
    if len(kept) < FEWEST:
        raise TrimtabError(
            ErrorKind.DATA, f"{chosen.label}: {len(kept)} responses that the model can read are too few",
            f"name at least {FEWEST}, best several to each prompt",
        )  # fmt: skip
    prompts, responses = [p for p, _ in kept], [r for _, r in kept]
    raw = checked_scores(subject.model, prompts, responses)
    if float(raw.max() - raw.min()) == 0:
        raise TrimtabError(ErrorKind.REWARD, f"all {len(raw)} scores are {raw[0]:g}: there is nothing to shape")
    return _Bench(subject, prompts, responses, raw).preview(chosen.label)


def _held_out(subject: Subject) -> Responses:
    if subject.run is None:
        raise TrimtabError(
            ErrorKind.USAGE, "a model by itself has no responses", "name a JSON-lines file with prompt and response"
        )
    pairs = read_pairs(subject.run.artifact("pm") / "held_out.jsonl")
    rows = [(pair.prompt, response) for pair in pairs for response in (pair.chosen, pair.rejected)]
    rows = list({(p.messages, r.text): (p, r) for p, r in rows}.values())
    return Responses("held-out pairs", tuple(p for p, _ in rows), tuple(r for _, r in rows))


def _readable(subject: Subject, prompt: Prompt, response: Response) -> bool:
    try:
        subject.model.token_ids(prompt, response)
    except TrimtabError:
        return False
    return True


class _Bench:
    """The responses with their scores; makes a `Shaped` of every way."""

    def __init__(self, subject: Subject, prompts: list[Prompt], responses: list[Response], raw: Floats) -> None:
        self.model, self.subject = subject.model, subject
        self.prompts, self.responses, self.raw = prompts, responses, raw
        number = {messages: i for i, messages in enumerate(dict.fromkeys(p.messages for p in prompts))}
        self.groups = np.array([number[p.messages] for p in prompts])
        self.settings = PPOConfig() if subject.project is None else subject.project.config.ppo
        self.repeats, self.noise = self._repeats()
        self.missing: list[tuple[str, str]] = []
        reference = Reference.load(subject.directory)
        same = reference is not None and reference.combination == self.model.combination
        self.usual = reference.scores / self.model.scale if reference is not None and same else raw

    def preview(self, label: str) -> Preview:
        ways = [way for make in (self._plain, self._bounded, self._wins, self._calibrated) for way in make()]
        own = (
            self._way("as configured", None, self._shaping_settings(), 9) if self.subject.project is not None else None
        )
        figures = [(figures_of(self.raw, way, self.groups), way.rank) for way in ways]
        best, why = advise(figures)
        shown = [f for f, _ in figures] + ([] if own is None else [figures_of(self.raw, own, self.groups)])
        return Preview(
            label, len(self.raw), int(self.groups.max()) + 1, self.noise, tuple(shown), best.name, why,
            tuple(self.missing),
        )  # fmt: skip

    # ---- the ways

    def _plain(self) -> list[Shaped]:
        normal = {"score_normalisation": "reference"}
        table: list[tuple[str, dict[str, Any], int]] = [
            ("raw", {}, 0),
            ("reference", normal, 1),
            ("running", {"score_normalisation": "running"}, 2),
            ("batch (whitened)", {"score_normalisation": "batch"}, 3),
            (f"outliers at {_OUTLIERS:g}", {"score_outlier_sds": _OUTLIERS}, 1),
            (f"reference, clip {_CLIP:g}", normal | {"score_clip": _CLIP}, 2),
        ]
        return self._all(table)

    def _bounded(self) -> list[Shaped]:
        normal = {"score_normalisation": "reference"}
        table: list[tuple[str, dict[str, Any], int]] = [("log", {"score_transform": "log"}, 2)]
        table += [(f"reference, {t}", normal | {"score_transform": t}, 3) for t in ("tanh", "sigmoid")]
        return self._all(table)

    def _all(self, table: Sequence[tuple[str, dict[str, Any], int]]) -> list[Shaped]:
        return [made for name, given, rank in table if (made := self._way(name, given, given, rank)) is not None]

    def _wins(self) -> list[Shaped]:
        given = {"score_transform": "win_probability"}
        made = self._way("win probability", given, given, 4)
        return [] if made is None else [made]

    def _calibrated(self) -> list[Shaped]:
        """As `preference.calibrated_score` would have it."""
        calibration, scale = self.model.calibration, self.model.scale
        if calibration is None:
            self.missing.append(("calibrated", "no calibration: trimtab pm calibrate"))
            return []
        factor = scale / calibration.temperature
        again = None if self.repeats is None else self.repeats * factor
        level = np.zeros(len(self.raw), dtype=bool)
        return [
            Shaped("calibrated", {"calibrated_score": True}, self.raw * factor, again, np.ones(len(self.raw)), level, 1)
        ]

    def _shaping_settings(self) -> dict[str, Any]:
        names = ("score_normalisation", "score_transform", "score_clip", "score_outlier_sds")
        return {name: getattr(self.settings, name) for name in names}

    def _way(self, name: str, settings: dict[str, Any] | None, given: dict[str, Any], rank: int) -> Shaped | None:
        wins = given.get("score_transform") == "win_probability"
        if wins and (np.bincount(self.groups) < 2).any():
            self.missing.append((name, "needs two responses to every prompt, one to compare with"))
            return None
        shape = self._compared(given) if wins else self._alone(given)
        shaped = shape(self.raw)
        step = _STEP * float(self.raw.std())
        # as far as one response alone moves: batch statistics are those of the responses as they are
        slope = np.abs(shape(self.raw + step) - shape(self.raw - step)) / (2 * step)
        if given.get("score_normalisation") in ("batch", "running"):
            slope = np.ones(len(self.raw))
        top = float(slope.max())
        bound = given.get("score_clip")
        clipped = np.zeros(len(shaped), bool) if bound is None else np.abs(shaped) >= bound * (1 - 1e-6)
        if (sds := given.get("score_outlier_sds")) is not None and bound is None:
            clipped = self._cut(sds)
        slope[clipped] = 0.0
        repeats = None if self.repeats is None else shape(self.repeats)
        return Shaped(name, settings, shaped, repeats, slope / top if top > 0 else slope, clipped, rank)

    def _cut(self, sds: float) -> NDArray[np.bool_]:
        plain = self._alone({})(self.raw)
        return np.asarray(self._alone({"score_outlier_sds": sds})(self.raw) != plain)

    # ---- the shaper, as PPO calls it

    def _alone(self, given: dict[str, Any]) -> Callable[[Floats], Floats]:
        """Shaping in batches of PPO's size; penalties for length and missing EOS are left out."""

        def shape(scores: Floats) -> Floats:
            shaper = ScoreShaper(self._config(given), lambda p, n: self.usual[:, None])
            shaper.calibrate(self.prompts)
            found = np.empty(len(scores))
            for part in self._batches():
                found[part] = self._shape(shaper, scores[part], part)
            return found

        return shape

    def _compared(self, given: dict[str, Any]) -> Callable[[Floats], Floats]:
        """Every response against the others to its prompt, the reference's as far as the reference has sampled them."""

        probability = getattr(self.model, "probability", None)

        def against(others: Floats) -> ScoreShaper:
            return ScoreShaper(self._config(given), lambda prompts, n: others[None], probability)

        def shape(scores: Floats) -> Floats:
            found = np.empty(len(scores))
            for i in range(len(scores)):
                others = self.raw[(self.groups == self.groups[i]) & (np.arange(len(scores)) != i)]
                found[i : i + 1] = self._shape(against(others), scores[i : i + 1], np.array([i]))
            return found

        return shape

    def _config(self, given: dict[str, Any]) -> PPOConfig:
        return PPOConfig(batch_size=self.settings.batch_size, minibatches=1, **given)

    def _shape(self, shaper: ScoreShaper, scores: Floats, part: Ints) -> Floats:
        n = len(part)
        lengths, finished = torch.ones(n, dtype=torch.int64), torch.ones(n, dtype=torch.bool)
        shaped = shaper.shape(torch.from_numpy(scores), [self.prompts[i] for i in part], lengths, finished)
        return np.asarray(shaped.double().numpy())

    def _batches(self) -> list[Ints]:
        """Prompts in random order, in parts of about PPO's batch; responses to one prompt together, as PPO has them."""
        counts = np.bincount(self.groups)
        order = np.random.default_rng([self.subject.seed, 13]).permutation(len(counts))
        parts = max(1, len(self.groups) // self.settings.batch_size)
        before = np.empty(len(counts), dtype=np.int64)
        before[order] = np.cumsum(counts[order]) - counts[order]
        part = before * parts // len(self.groups)
        return [np.flatnonzero(part[self.groups] == number) for number in np.unique(part)]

    def _repeats(self) -> tuple[Floats | None, str]:
        """Scores of the same responses a second time, and what differs; None: nothing does."""
        draw = random.Random(self.subject.seed)
        edits = [edit for edit in EDITS if edit.kind == "surface"]
        edited: list[Response] = []
        for i, response in enumerate(self.responses):
            made = edits[i % len(edits)].apply(response.text, draw)
            fine = made is not None and _readable(self.subject, self.prompts[i], Response(made))
            edited.append(Response(made) if fine and made is not None else response)
        changed = np.array([new.text != old.text for new, old in zip(edited, self.responses, strict=True)])
        if changed.sum() < FEWEST:
            return None, "not known: no response could be worded otherwise"
        again = checked_scores(self.model, self.prompts, edited)
        if not (again != self.raw).any():
            return None, "none: spacing, case and punctuation change no score"
        return again, f"{int(changed.sum())} responses with other spacing, case, punctuation or contractions"
