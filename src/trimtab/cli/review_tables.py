"""What a review says, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trimtab.cli import output
from trimtab.evaluation.review.tally import FEW_PROMPTS
from trimtab.figures import figure, share, with_interval
from trimtab.hostile import cut, visible

if TYPE_CHECKING:
    from trimtab.evaluation.compare import Estimate
    from trimtab.evaluation.review.agreement import Agreement
    from trimtab.evaluation.review.tally import Disagreement, Preference, Results

__all__ = ["disagreement_record", "print_disagreements", "print_results"]

_MOST_ROWS = 20
_MOST_CHARACTERS = 400
_SLICES = {"group": "group of annotators", "tag": "tag of the prompt", "guidelines": "version of the guidelines"}


def print_results(found: Results) -> None:
    """The whole of it, from the verdict to the slices."""
    review = found.review
    first, second = review.systems
    output.emit_text(
        f"{review.name}: {first} against {second}; {found.started} of {review.items} items voted on, "
        f"{found.complete} with all {review.plan.votes_per_item} votes"
    )
    if not found.annotators:
        output.say("there are no votes yet: trimtab review vote PROJECT --annotator NAME")
        return
    _preferences(
        "asked", f"win rate of {first}", [found.overall, *(a for a in found.aspects if a.votes)], second, first
    )
    if found.overall.few and found.overall.votes:
        output.say(f"note: votes on fewer than {FEW_PROMPTS} prompts: too few to tell more than a landslide")
    if review.identical:
        output.say(f"note: {review.identical} pairs were not asked, as both responses are the same; they would be ties")
    _agreement(found.agreement)
    _reliability(found)
    _annotators(found)
    for kind, title in _SLICES.items():
        parts = found.slices[kind]
        if len(parts) > 1:
            output.emit_text("")
            _preferences(title, f"win rate of {first}", parts[:_MOST_ROWS], second, first)
            if len(parts) > _MOST_ROWS:
                output.emit_text(f"and {len(parts) - _MOST_ROWS} more: --json has them all")
    if any(len(parts) > 1 for parts in found.slices.values()):
        output.say("note: of many slices one in twenty lies outside its interval by chance")


def print_disagreements(found: Sequence[Disagreement], total: int) -> None:
    """Item by item: prompt, responses, who said what and why."""
    if not found:
        output.say("no item has unequal votes")
    for one in found:
        item = one.item
        output.emit_text(f"{item.id}: {share(one.disagreement)} of the pairs of votes are unequal")
        output.emit_text(f"prompt: {_short(item.prompt.text)}")
        for system, response in zip(item.systems, (item.first, item.second), strict=True):
            output.emit_text(f"{visible(system)}: {_short(response.text)}")
        for vote in one.votes:
            said = {1: item.systems[0], 2: item.systems[1]}.get(vote.winner, vote.choice.replace("_", " "))
            because = f", because: {_short(vote.reason)}" if vote.reason else ""
            output.emit_text(f"  {vote.annotator}: {visible(said)}{because}")
        output.emit_text("")
    if len(found) < total:
        output.say(f"and {total - len(found)} more: --limit")


def disagreement_record(one: Disagreement) -> dict[str, Any]:
    """As JSON."""
    item = one.item
    return {
        "id": item.id,
        "prompt_id": item.prompt.id,
        "tags": list(item.prompt.tags),
        "prompt": item.prompt.text,
        "systems": list(item.systems),
        "responses": [item.first.text, item.second.text],
        "disagreement": one.disagreement,
        "votes": [
            {
                "annotator": vote.annotator,
                "groups": list(vote.groups),
                "choice": vote.choice,
                "winners": dict(vote.winners),
                "first_shown": item.systems[1 if vote.swapped else 0],
                "reason": vote.reason,
                "guidelines": vote.guidelines,
                "seconds": vote.seconds,
            }
            for vote in one.votes
        ],
    }


def _preferences(what: str, rate: str, rows: Sequence[Preference], second: str, first: str) -> None:
    output.emit_table(
        (what, rate, "among decided", "votes", "prompts", first, "tie", "both bad", second, ""),
        [
            (
                p.name, _percent(p.win_rate), _percent(p.decided), p.votes,
                0 if p.win_rate is None else p.win_rate.prompts,
                p.first, p.ties, p.both_bad, p.second, "few" if p.few else "",
            )
            for p in rows
        ],
        right=(3, 4, 5, 6, 7, 8),
    )  # fmt: skip


def _agreement(found: Agreement) -> None:
    if not found.items:
        output.say("note: no item has votes of two annotators: agreement cannot be measured")
        return
    output.emit_text(f"\nAgreement between annotators, on {found.items} items")
    measures = (
        ("equal votes", _percent(found.raw)),
        ("Fleiss' kappa", _plain(found.fleiss)),
        ("Krippendorff's alpha", _plain(found.alpha)),
        ("alpha, ties in the middle", _plain(found.alpha_ordinal)),
        ("Gwet's AC1", _plain(found.ac1)),
    )
    output.emit_table(("measure", "value"), measures)
    if len(found.pairwise) > 1:
        output.emit_text("")
        rows = [(p.first, p.second, p.items, _percent(p.raw), _plain(p.kappa)) for p in found.pairwise[:_MOST_ROWS]]
        output.emit_table(("annotator", "and", "items", "equal", "Cohen's kappa"), rows, right=(2,))
        if len(found.pairwise) > _MOST_ROWS:
            output.emit_text(f"the {_MOST_ROWS} least agreeing of {len(found.pairwise)}: --json has them all")


def _reliability(found: Results) -> None:
    rows = [
        ("same vote on a repeat", found.consistency),
        ("first shown wins", found.first_shown),
        ("gold questions right", found.gold),
    ]
    known = [(what, _percent(e), e.n) for what, e in rows if e is not None]
    if known:
        output.emit_text("")
        output.emit_table(("all annotators", "share", "of"), known, right=(2,))


def _annotators(found: Results) -> None:
    if not found.annotators:
        return
    output.emit_text("")
    first = found.review.systems[0]
    output.emit_table(
        ("annotator", "groups", "votes", "skips", f"for {first}", "as others", "as on repeat", "first shown", "gold",
         "median s", ""),
        [
            (
                a.name, " ".join(a.groups) or None, a.votes, a.skips, _percent(a.preference.win_rate),
                _percent(a.with_others), _percent(a.consistency), _percent(a.first_shown), _percent(a.gold),
                None if a.seconds is None else figure(a.seconds), "; ".join(a.notes),
            )
            for a in found.annotators[:_MOST_ROWS]
        ],
        right=(2, 3, 9),
    )  # fmt: skip
    if len(found.annotators) > _MOST_ROWS:
        output.emit_text(f"and {len(found.annotators) - _MOST_ROWS} more: --json has them all")


def _short(text: str) -> str:
    begun = cut(text, _MOST_CHARACTERS)
    plain = visible(begun).replace("\n", " ")
    return f"{plain} [{begun.total - len(begun)} more characters]" if begun.is_cut else plain


def _percent(e: Estimate | None) -> str | None:
    return None if e is None else with_interval(e.value, e.low, e.high, percent=True)


def _plain(e: Estimate | None) -> str | None:
    return None if e is None else with_interval(e.value, e.low, e.high)
