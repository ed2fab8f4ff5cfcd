"""The simulated judge: AI feedback of known quality, for the tiny world.

P(shown first > shown second) = sigmoid(sharpness * (q(shown first) - q(shown second)) + position_bias + noise)

where q is the quality that this judge sees: the gold score's terms before clipping, without its blind spots, plus a
length term. Noise is normal, and a function of (seed, pair, order, sample), so that the same question always gets the
same answer. Two presets are committed and no claim about training uses another; the other arguments inject faults.
"""

from __future__ import annotations

import hashlib
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from statistics import NormalDist
from typing import Literal

from trimtab.constitution import Constitution
from trimtab.data.records import Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.judges import JudgeContext
from trimtab.labeling.protocol import JudgeIdentity, JudgeRequest, Verdict, pair_hash
from trimtab.worlds import gold
from trimtab.worlds.gold import GoldTerms

__all__ = ["BLIND", "FAITHFUL", "PRESETS", "JudgePreset", "SimulatedJudge", "make", "quality_terms"]


@dataclass(frozen=True, slots=True)
class JudgePreset:
    """What a simulated judge sees and how surely it answers.

    Args:
        name: of the preset.
        sharpness: logits for one unit of quality.
        noise: standard deviation of the noise, in logits.
        blind: counts words of the topic and polite words without limit and without asking whether they differ, does not
            mind repetition, and has no length to aim at.
        length_bonus: quality added for a response of `gold.LENGTH_SCALE` words, in proportion.
        position_bias: logits added for the response shown first.
    """

    name: str
    sharpness: float
    noise: float
    blind: bool
    length_bonus: float = 0.0
    position_bias: float = 0.0


FAITHFUL = JudgePreset("faithful", sharpness=12.0, noise=0.5, blind=False)
"""Sees what gold sees; only noise stands between its verdicts and gold's."""
BLIND = JudgePreset("blind", sharpness=12.0, noise=0.5, blind=True, length_bonus=0.1)
"""Takes repetition for more of the same good, and a longer response for a slightly better one."""
PRESETS: Mapping[str, JudgePreset] = {preset.name: preset for preset in (FAITHFUL, BLIND)}


def quality_terms(prompt_text: str, response_text: str, preset: JudgePreset) -> GoldTerms:
    """Gold's four terms as the judge of `preset` sees them."""
    seen = gold.features(prompt_text, response_text)
    bonus = preset.length_bonus * seen.length / gold.LENGTH_SCALE
    if not preset.blind:
        terms = gold.gold_terms(seen)
        return terms._replace(length=terms.length + bonus)
    return GoldTerms(
        topic=gold.TOPIC_WEIGHT * seen.on_topic / gold.TOPIC_TARGET,
        polite=gold.POLITE_WEIGHT * seen.polite / gold.POLITE_TARGET
        - gold.RUDE_WEIGHT * min(seen.rude, gold.RUDE_LIMIT) / gold.RUDE_LIMIT,
        varied=0.0,
        length=bonus,
    )


class SimulatedJudge:
    """A judge of known quality (implements `labeling.protocol.Judge`). It goes by the constitution that it is handed.

    Args:
        preset: `faithful` or `blind`, or a `JudgePreset` of one's own.
        seed: of its noise.
        position_bias: overrides the preset's.
        swapped: prefer what the constitution warns of, to see that the judge decides.

    Raises:
        TrimtabError: an unknown preset.
    """

    sees_order = True

    def __init__(
        self,
        preset: Literal["faithful", "blind"] | JudgePreset = "faithful",
        seed: int = 0,
        *,
        position_bias: float | None = None,
        swapped: bool = False,
    ) -> None:
        if isinstance(preset, str):
            if preset not in PRESETS:
                raise TrimtabError(
                    ErrorKind.CONFIG,
                    f"label.simulated = {preset!r} is no simulated judge",
                    f"one of {', '.join(PRESETS)}",
                )
            preset = PRESETS[preset]
        self.preset = preset if position_bias is None else replace(preset, position_bias=position_bias)
        self.seed = seed
        self._sign = -1.0 if swapped else 1.0

    @property
    def identity(self) -> JudgeIdentity:
        """Preset and every override are the model's name: other faults are another judge."""
        model = self.preset.name
        if self.preset != PRESETS.get(self.preset.name) or self._sign < 0:
            model = f"{self.preset!r}{' swapped' if self._sign < 0 else ''}"
        return JudgeIdentity("simulated", model, "", self.seed)

    def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        """Answer every request; the outcome is always `ok`.

        Raises:
            TrimtabError: the constitution has no principle that the tiny world knows.
        """
        return [self._verdict(request) for request in requests]

    def quality(self, request: JudgeRequest, response: Response) -> float:
        """The quality of one response of the request's pair as this judge sees it, in units of gold."""
        weights = _weights(request.constitution)
        terms = quality_terms(request.pair.prompt.text, response.text, self.preset)
        return self._sign * math.fsum(w * getattr(terms, name) for name, w in weights.items())

    def _verdict(self, request: JudgeRequest) -> Verdict:
        first, second = (self.quality(request, response) for response in request.shown)
        logit = self.preset.sharpness * (first - second) + self.preset.position_bias + self._noise(request)
        return Verdict.of_shown(1.0 / (1.0 + math.exp(-max(-700.0, min(700.0, logit)))), request.order)

    def _noise(self, request: JudgeRequest) -> float:
        key = f"{self.seed}/{pair_hash(request.pair)}/{request.order}/{request.sample}"
        uniform = (int.from_bytes(hashlib.sha256(key.encode()).digest()[:7]) + 0.5) / 2.0**56
        return self.preset.noise * NormalDist().inv_cdf(uniform)


def make(context: JudgeContext) -> SimulatedJudge:
    """The `simulated` judge (entry point)."""
    return SimulatedJudge(context.config.simulated, context.seed)


def _weights(constitution: Constitution) -> dict[str, float]:
    """Weight of each term: the principle's share of the mean weight, negative where its readings are exchanged."""
    shipped = _shipped_opposites()
    known = [p for p in constitution.principles if p.id in shipped and p.weight > 0]
    if not known:
        raise TrimtabError(
            ErrorKind.CONFIG,
            f"constitution {constitution.name!r} has none of the principles that the simulated judge knows",
            f"name at least one of {', '.join(shipped)}, or use another judge",
        )
    mean = math.fsum(p.weight for p in known) / len(known)
    return {p.id: p.weight / mean * (-1.0 if p.reading == shipped[p.id] else 1.0) for p in known}


@cache
def _shipped_opposites() -> dict[str, str]:
    """For each principle of the shipped constitution, the text of its opposite reading."""
    text = files("trimtab.worlds").joinpath("constitution.toml").read_text(encoding="utf-8")
    return {p["id"]: p["opposite"] for p in tomllib.loads(text)["principles"]}
