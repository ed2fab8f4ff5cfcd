"""Which framework a log speaks, and what its names mean."""

from __future__ import annotations

from trimtab.doctor.importers.dialects import classic, generic, large, own, trl
from trimtab.doctor.importers.dialects.base import Dialect, Meaning, ignore, to

__all__ = ["BY_NAME", "Dialect", "Meaning", "meaning_of", "recognise"]

_ALL: tuple[Dialect, ...] = (*trl.DIALECTS, *large.DIALECTS, *classic.DIALECTS)
BY_NAME = {
    d.name: d for d in (*_ALL, *own.DIALECTS, generic.PLAIN, generic.PAIRS, generic.PLAIN_DIRECT, generic.SUPERVISED)
}
_HELD_OUT_KEYS = {
    "loss/train": "loss/validation", "accuracy/train": "accuracy/validation", "dpo/accuracy": "accuracy/validation",
    "score/mean": "eval/score", "reward/mean": "eval/score", "loss/validation": "loss/validation",
    "accuracy/validation": "accuracy/validation", "margin/mean": "margin/mean", "pm/chosen_score": "pm/chosen_score",
    "pm/rejected_score": "pm/rejected_score", "margin/std": "margin/std", "pm/score_mean": "pm/score_mean",
    "pm/score_std": "pm/score_std", "calibration/ece": "calibration/ece", "calibration/brier": "calibration/brier",
}  # fmt: skip


def bare(name: str) -> str:
    """`name` as a dialect's tables have it: without the tracker's `train/`, with the plain form of spaced names."""
    name = name.removeprefix("train/")
    return name if "/" in name or " " not in name else generic.normal(name)


def recognise(names: frozenset[str], hint: str = "") -> Dialect:
    """The dialect that knows most of `names`; among equals the one that asks for the most specific names."""
    if hint:
        return BY_NAME[hint]
    stripped = frozenset(bare(n) for n in names)
    both = names | stripped | frozenset(generic.normal(n) for n in names)
    both |= {family for n in stripped if (family := _family(n))}
    best: tuple[int, int, Dialect] | None = None
    for dialect in _ALL:
        if not dialect.speaks(both):
            continue
        score = sum(dialect.meaning(n) is not None or dialect.meaning(bare(n)) is not None for n in names)
        depth = max(len(mark) for mark in dialect.marks if mark <= both)
        if best is None or (score, depth) > best[:2]:
            best = (score, depth, dialect)
    if best is not None:
        return best[2]
    return max(
        (generic.PLAIN, generic.SUPERVISED, generic.PAIRS, generic.PLAIN_DIRECT),
        key=lambda d: (
            sum(_weight(d, n) for n in both) + 0.5 * sum(_regrouped(generic.normal(n), d) is not None for n in names)
        ),
    )


def _family(name: str) -> str:
    """A stand-in for the members of a family that give a framework away, for the marks of dialects."""
    if name.startswith("rewards/") and name not in _DIRECT_REWARDS:
        return "rewards/*"
    return "actor/*" if name.startswith("actor/") else ""


_DIRECT_REWARDS = frozenset(f"rewards/{n}" for n in ("chosen", "rejected", "margins", "accuracies"))


def _weight(dialect: Dialect, name: str) -> float:
    """How much a name speaks for a stage; `loss`, a rate and an accuracy are found in all of them."""
    meaning = dialect.meaning(name)
    if meaning is None or not meaning.key:
        return 0
    if meaning.key.endswith(("gradient_norm", "learning_rate")):
        return 0.25
    if meaning.key == "policy/loss" and name == "loss":
        return 0.5
    return {"accuracy/train": 0.75, "dpo/accuracy": 0.5, "score/mean": 1.5}.get(meaning.key, 1)


def meaning_of(name: str, dialect: Dialect) -> Meaning | None:
    """What `name` stands for in a log of this dialect; None: nobody knows."""
    if dialect.framework == "unknown" and (found := generic.independent(generic.normal(name))) is not None:
        return found
    for form in dict.fromkeys((name, bare(name), generic.normal(name))):
        found = dialect.meaning(form)
        if found is not None:
            return found
    return _elsewhere(generic.normal(name), dialect)


def _elsewhere(name: str, dialect: Dialect) -> Meaning | None:
    """The meaning of a name that the dialect itself lacks."""
    if (held := generic.held_out_name(name)) is not None:
        return _held_out(held, dialect)
    if (found := generic.independent(name)) is not None:
        return found
    if generic.is_bookkeeping(name):
        return ignore()
    if dialect.framework == "unknown":
        return _regrouped(name, dialect)
    general = {"direct": generic.PLAIN_DIRECT, "pm": generic.PAIRS, "policy": generic.PLAIN}.get(dialect.stage.value)
    found = (general or generic.SUPERVISED).meaning(name)
    return found if found is None or not found.key.startswith(("score/", "kl/")) or "/" not in name else None


def _regrouped(name: str, dialect: Dialect) -> Meaning | None:
    """The meaning of a name that groups by slashes what others write in one word; parts of a score are not guessed."""
    if dialect.meaning(name) is not None:
        return None
    for form in generic.regrouped(name):
        found = dialect.meaning(form)
        if found is not None and found.key and (not found.key.startswith("score/") or found.key in _WHOLE_SCORES):
            return found
    return None


_WHOLE_SCORES = frozenset(f"score/{n}" for n in ("mean", "std", "min", "max", "group_std"))


def _held_out(name: str, dialect: Dialect) -> Meaning:
    """The meaning of a measure on held-out data.

    What is trained on is not independent there either: its key begins with `held_out/`, or is that of the validation.
    """
    if generic.is_bookkeeping(name):
        return ignore()
    found = dialect.meaning(name) or dialect.meaning(name.replace("_", "/", 1))
    if found is None and dialect.framework == "unknown" and dialect.stage.value == "policy":
        found = generic.PAIRS.meaning(name) if name in ("loss",) else None
    if found is None:
        return to(f"eval/{name}")
    if not found.key:
        return found
    key = _HELD_OUT_KEYS.get(found.key)
    if key is None and dialect.stage.value == "policy" and found.key == "policy/loss":
        key = "loss/validation"
    return Meaning(
        key or f"held_out/{found.key}", found.unit, found.estimator, found.aggregation, found.masked, found.convert,
        found.derived, found.unknown_unit,
    )  # fmt: skip
