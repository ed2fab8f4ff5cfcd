"""What the run shows, in plain words, and what it does not show.

The sentence goes by the first independent measure on held-out prompts. The score that the policy was trained on is
never called an improvement: training raises it whether or not responses become better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from trimtab.figures import figure, signed, with_interval
from trimtab.report.facts import Facts, Figure, Measure, algorithm, number, trained
from trimtab.runs.signals import lookup

__all__ = ["Kind", "Verdict", "verdict"]


class Kind(StrEnum):
    """What can be said."""

    BETTER = "better"
    """An independent measure rose, and none fell."""
    MIXED = "mixed"
    """The deciding measure rose, another independent one fell."""
    WORSE = "worse"
    """The deciding measure fell."""
    PROXY_ONLY = "proxy only"
    """Only the score that was trained on rose."""
    UNDECIDED = "undecided"
    """The interval holds 0."""
    CIRCULAR = "no independent measure"
    """Only the score that was trained on was measured."""
    UNMEASURED = "not evaluated"
    """A policy was trained, but not compared with its reference."""
    UNTRAINED = "not trained"
    """No policy was trained."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The headline, and the sentences that qualify it."""

    kind: Kind
    sentence: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Proxy:
    """How the trained-on score moved. `rose` is None where that cannot be told from noise."""

    text: str
    rose: bool | None


def verdict(facts: Facts) -> Verdict:
    """The verdict on a run."""
    proxy = _proxy(facts)
    if not facts.measures:
        return _without_evaluation(facts, proxy)
    first = facts.measures[0]
    if first.trained_on:
        return _circular(facts, first)
    kind, sentence = _decide(facts, first, proxy)
    others = [m for m in facts.measures[1:] if not m.trained_on]
    fallen = [m for m in others if m.difference.below(0)]
    if kind is Kind.BETTER and fallen:
        kind = Kind.MIXED
    details = [*_length(facts, first), *(_other(m) for m in others), *([proxy.text] if proxy else []), *_kl(facts)]
    return Verdict(kind, sentence, tuple(details))


def _decide(facts: Facts, first: Measure, proxy: _Proxy | None) -> tuple[Kind, str]:
    where, size = _on_prompts(facts, first), _size(first)
    proxy_rose = proxy is not None and proxy.rose is True
    if first.difference.above(0):
        return Kind.BETTER, f"{where} the trained policy scores higher than the reference on {first.name}: {size}."
    if first.difference.below(0):
        sentence = f"{where} the trained policy scores lower than the reference on {first.name}: {size}"
        if proxy_rose:
            sentence += f", while the score {_which(facts)} rose"
        return Kind.WORSE, f"{sentence}."
    if not first.difference.known:
        return Kind.UNDECIDED, f"{where} there is no telling: {size} on {first.name}, without an interval."
    if proxy_rose:
        return Kind.PROXY_ONLY, (
            f"Only the score {_which(facts, 'that was trained on')} rose. {where} no difference between the trained "
            f"policy and the reference shows on {first.name}: {size}."
        )
    return Kind.UNDECIDED, (
        f"{where} no difference between the trained policy and the reference shows on {first.name}: {size}."
    )


def _circular(facts: Facts, first: Measure) -> Verdict:
    sentence = (
        f"{_on_prompts(facts, first)} the trained policy's {first.name} score, "
        f"{_which(facts, 'which it was trained on')}, differs from the reference's by {_size(first)}. No independent "
        "measure was taken, so this does not say whether responses became better."
    )
    advice = "Name one in eval.measures (module:function or rule:name), then run: trimtab eval."
    return Verdict(Kind.CIRCULAR, sentence, (advice, *_length(facts, first), *_kl(facts)))


def _without_evaluation(facts: Facts, proxy: _Proxy | None) -> Verdict:
    how_long = trained(facts)
    if not how_long:
        begun = [name for name in facts.stages if name != "report"]
        so_far = f" Stages begun so far: {', '.join(begun)}." if begun else ""
        return Verdict(Kind.UNTRAINED, f"No policy has been trained in this run yet.{so_far}")
    steps = how_long.partition(": ")[2].rstrip(".")
    sentence = f"The policy was trained for {steps}, but not compared with its reference on held-out prompts."
    details = [f"{proxy.text} That does not say whether responses became better."] if proxy else []
    return Verdict(Kind.UNMEASURED, sentence, (*details, *_kl(facts)))


def _on_prompts(facts: Facts, measure: Measure) -> str:
    prompts = number(facts.result("eval").get("prompts"))
    if prompts is None:
        return "On held-out prompts"
    return f"On {prompts:.0f} held-out prompt{'s' * (prompts != 1)}"


def _size(measure: Measure) -> str:
    d, w = measure.difference, measure.win_rate
    return (
        f"{with_interval(d.value, d.low, d.high, sign=True)}, winning "
        f"{with_interval(w.value, w.low, w.high, percent=True)} of the pairs"
    )


def _length(facts: Facts, first: Measure) -> list[str]:
    if facts.length is None:
        return []
    before, after, change = facts.length[1], facts.length[0], facts.length[2]
    interval = with_interval(change.value, change.low, change.high, sign=True)
    if not (change.above(0) or change.below(0)):
        return [f"Response length shows no change: {interval} tokens (from {figure(before)} to {figure(after)})."]
    word = "longer" if change.value > 0 else "shorter"
    width = None if change.low is None or change.high is None else change.high - change.low
    bounds = sorted((abs(change.low or 0), abs(change.high or 0)))
    size = f"{figure(abs(change.value), width)} [{figure(bounds[0], width)}, {figure(bounds[1], width)}] tokens {word}"
    return [f"Responses became {size} (from {figure(before)} to {figure(after)}).{_at_equal_length(first)}"]


def _at_equal_length(first: Measure) -> str:
    matched = first.length_matched
    if matched is None:
        return " No pair is of about equal length, so length cannot be ruled out as the cause."
    rate = with_interval(matched.value, matched.low, matched.high, percent=True)
    some = f" Among the {matched.n} pairs of about equal length the win rate is {rate}"
    if not first.difference.above(0):
        return f"{some}."
    return f"{some}: {'the gain is not length alone' if matched.above(0.5) else 'length may account for the gain'}."


def _other(measure: Measure) -> str:
    d = measure.difference
    direction = "higher" if d.above(0) else "lower" if d.below(0) else "no different, as far as can be told,"
    return f"On {measure.name} it scores {direction}: {with_interval(d.value, d.low, d.high, sign=True)}."


def _kl(facts: Facts) -> list[str]:
    points = [value for _, value in facts.series("kl/reference")]
    if not points:
        return []
    signal = lookup("kl/reference")
    band = signal.healthy if signal is not None else None
    inside = band is None or band.holds(points[-1])
    unit = "update" if algorithm(facts.run) == "dpo" else "iteration"
    warning = "" if inside or band is None else f", outside the healthy band ({band.low:g} to {band.high:g})"
    return [f"At the last {unit} the policy is {figure(points[-1])} nats a sequence (KL) from its reference{warning}."]


def _proxy(facts: Facts) -> _Proxy | None:
    """The trained-on score: on the evaluation's responses, else at the probes, else over the rollouts."""
    measured = next((m for m in facts.measures if m.trained_on), None)
    if measured is not None:
        d = measured.difference
        rose = True if d.above(0) else False if d.below(0) or d.known else None
        text = f"The score {_which(facts)} ({measured.name}) changed by {_interval(d)} on the same responses."
        return _Proxy(text, rose)
    points = [(s, v) for s, v in facts.series("score/mean") if math.isfinite(v)]
    if len(points) < 2:
        return None
    before, after, rose = _ends([value for _, value in points])
    text = (
        f"The score {_which(facts)} went from {figure(before)} to {figure(after)} over the rollouts "
        f"({signed(after - before)})."
    )
    return _Proxy(text, rose)


def _which(facts: Facts, trained_on: str = "that it was trained on") -> str:
    """What the proxy is to the policy: PPO was `trained_on` it, DPO never saw it."""
    return trained_on if algorithm(facts.run) == "ppo" else "learned from the same labels"


def _interval(f: Figure) -> str:
    return with_interval(f.value, f.low, f.high, sign=True)


def _ends(values: Sequence[float]) -> tuple[float, float, bool | None]:
    """Means of the first and the last fifth, and whether they differ by more than two standard errors."""
    k = max(len(values) // 5, 1)
    first, last = values[:k], values[-k:]
    before, after = sum(first) / k, sum(last) / k
    if k < 2:
        return before, after, None
    spread = sum((x - before) ** 2 for x in first) + sum((x - after) ** 2 for x in last)
    error = math.sqrt(spread / (k - 1) / k)
    return before, after, after - before > 2 * error
