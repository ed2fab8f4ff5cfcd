"""The report's section on the preference model: how it was trained, how good it is, what it promises, what it pays for.

Read from `artifacts/pm`: the stage's result, `calibration.json`, `probe.json`, `shift.json`, and the stage's signals.
What is not there is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from markupsafe import Markup

from trimtab.chart import Forest, Line, forest_chart, line_chart
from trimtab.config.schema import PreferenceConfig
from trimtab.doctor.explained import explained
from trimtab.errors import TrimtabError
from trimtab.figures import figure, share, with_interval
from trimtab.report.facts import Facts, Figure, figure_of, number
from trimtab.report.reliability import bins_of, diagram
from trimtab.report.rows import Row, by_length, by_principle, difference_row, n_of, points, share_row, shown
from trimtab.runs.files import read_json

__all__ = ["preference_model"]

_MOST_SLICES, _MOST_PHRASES, _FEWEST = 10, 6, 10
_KINDS = {
    "length": "length alone", "style": "style", "damage": "made worse", "identity": "a group's name",
    "surface": "surface",
}  # fmt: skip


def preference_model(facts: Facts) -> dict[str, Any] | None:
    """Values for the template; None where the run has no preference model."""
    result = facts.result("pm")
    if not result:
        return None
    calibration, probe = _read(facts, "model/calibration.json"), _read(facts, "probe.json")
    report = calibration.get("report")
    figures = report if isinstance(report, Mapping) else _read(facts, "calibration.json")
    return {
        "accuracy": _accuracy(facts, result),
        "training": _training(facts, result),
        "curves": _curves(facts),
        "calibration": _calibration(facts, calibration, figures),
        "faults": _faults(probe),
        "probed": _probed(facts, probe),
        "edits": _edits(probe),
        "phrases": _phrases(probe),
        "figures": _figures(probe),
        "slices": _slices(probe),
        "shift": _shift(facts),
    }


def _accuracy(facts: Facts, result: Mapping[str, Any]) -> list[Row]:
    """How often it orders pairs as labeled, against what needs no model."""
    rows = []
    own, lead = figure_of(result.get("accuracy")), figure_of(result.get("over_length"))
    if own is not None:
        rows.append(share_row("as labeled, held-out pairs", own))
    people = figure_of(_table(result, "human_held_out").get("accuracy"))
    if people is not None:
        rows.append(share_row("as people labeled", people))
    longer = number(result.get("length_accuracy"))
    if longer is not None:
        rows.append(share_row("“the longer one wins”", Figure(longer)))
    if lead is not None:
        rows.append(difference_row("lead over it, points", lead, points(lead), 0.5))
    members = _table(result, "members")
    each = members.get("accuracy")
    if isinstance(each, list):
        known = [x for x in map(number, each) if x is not None]
        rows += [share_row(f"member {i}", Figure(x)) for i, x in enumerate(known)]
    return rows + by_length(_table(result, "length")) + by_principle(_table(result, "principles"))


def _training(facts: Facts, result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings that differ from their defaults, after the number of pairs and what the members share."""
    own = facts.run.config.get("preference")
    default = PreferenceConfig().model_dump(mode="json")
    members = _table(result, "members")
    rows: list[tuple[str, str | None]] = [
        ("pairs trained on", _count(result.get("training_pairs"))),
        ("pairs held out, of other prompts", _count(result.get("pairs"))),
        ("pairs that people labeled", _count(result.get("human_pairs"))),
        ("members", _count(members.get("count"))),
        ("members' mistakes in common (1 = the same)", _figure(members.get("shared_mistakes"))),
        ("disagreement of members on a mistake (½ = says nothing)", _figure(members.get("warns"))),
        ("best weights of update", _count(result.get("at_update"))),
    ]
    changed = own.items() if isinstance(own, Mapping) else ()
    rows += [(key, json.dumps(value)) for key, value in changed if key in default and value != default[key]]
    return [(name, value) for name, value in rows if value is not None]


def _curves(facts: Facts) -> list[dict[str, Any]]:
    """Loss and accuracy over the updates: a line for the training pairs, dots for the held-out ones."""
    lines = facts.run.metrics("pm")
    shown = []
    for name, title in (("loss", "Loss"), ("accuracy", "Accuracy")):
        train, held_out = (_series(lines, f"{name}/{side}") for side in ("train", "validation"))
        if not train:
            continue
        last = held_out[-1][1] if held_out else train[-1][1]
        said = f"{title} by update: {figure(train[0][1])} to {figure(train[-1][1])} on training pairs"
        if held_out:
            said += f", {figure(held_out[0][1])} to {figure(last)} on held-out ones"
        svg = line_chart(Line(train, said, dots=held_out))
        shown.append({"title": title, "last": figure(last), "svg": svg, "held_out": bool(held_out)})
    return shown


def _series(lines: Iterable[Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    points = ((int(line["step"]), number(line.get(key), finite=False)) for line in lines)
    return [(step, value) for step, value in points if value is not None]


def _calibration(facts: Facts, kept: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Any] | None:
    sides = {side: _table(figures, side) for side in ("before", "after")}
    rows = []
    for key, title in (("ece", "calibration error (ECE)"), ("brier", "Brier score"), ("log_loss", "log loss")):
        before, after = (figure_of(sides[side].get(key)) for side in ("before", "after"))
        change = figure_of(_table(figures, "change").get(key))
        if before is not None and after is not None:
            rows.append((title, shown(before), shown(after), "" if change is None else shown(change, sign=True)))
    if not rows:
        return None
    reliability = _table(figures, "reliability")
    bins = [bins_of(reliability.get(side)) for side in ("before", "after")]
    return {
        "rows": rows,
        "used": _used(facts, kept, figures),
        "method": str(figures.get("method", "")),
        "before": diagram(bins[0], "before calibration", bins[1]),
        "after": diagram(bins[1], "after calibration", bins[0]),
        "before_table": bins[0],
        "after_table": bins[1],
    }


def _used(facts: Facts, kept: Mapping[str, Any], figures: Mapping[str, Any]) -> str:
    """What the calibration is used for in this run."""
    temperature = number(figures.get("temperature"))
    told = f"temperature {figure(temperature)}" if temperature is not None else "a temperature"
    if not kept:
        return f"This is what calibrating ({told}) would bring; it is not in use. trimtab pm calibrate keeps it."
    own, of_ppo = (facts.run.config.get(section) for section in ("preference", "ppo"))
    if isinstance(own, Mapping) and own.get("calibrated_score") is True:
        return f"In use: PPO and the evaluation see the score divided by the {told}."
    if isinstance(of_ppo, Mapping) and of_ppo.get("score_transform") == "win_probability":
        return f"In use ({told}): PPO's win probabilities go by it."
    return f"Kept with the model ({told}); PPO saw the score as it is."


def _faults(probe: Mapping[str, Any]) -> list[dict[str, str]] | None:
    """What is wrong, by the doctor's names, with the first thing to do; None where nobody probed."""
    listed = probe.get("faults")
    if not isinstance(listed, list):
        return None
    known = explained()
    found = []
    for fault in listed:
        if not isinstance(fault, Mapping):
            continue
        id, severity = str(fault.get("id")), str(fault.get("severity"))
        about = known.get(id)
        found.append({
            "id": id, "severity": severity if severity in ("info", "warning", "critical") else "info",
            "title": id if about is None else about.title, "evidence": str(fault.get("evidence", "")),
            "fix": about.fixes[0] if about is not None and about.fixes else "",
            "more": f"trimtab explain {id}" if about is not None else "",
        })  # fmt: skip
    return found


def _probed(facts: Facts, probe: Mapping[str, Any]) -> str:
    """What the probe rests on."""
    count = number(probe.get("responses"))
    if count is None:
        return ""
    data = str(probe.get("data", ""))
    of = "held-out pairs" if data == "held_out.jsonl" else data
    text = f"{count:,.0f} responses of {of}, {_count(probe.get('edited')) or 'some'} of them edited"
    scores, now = str(probe.get("scores", "")), _combination(facts)
    stale = f"; it was made of {scores or 'another score'}, the score is now {now}" if scores != now else ""
    return f"{text}{stale}."


def _combination(facts: Facts) -> str:
    """What the score is made of by the run's settings, in the words of `trimtab.preference.ensemble.combination`."""
    own = facts.run.config.get("preference")
    config = own if isinstance(own, Mapping) else {}
    members, heads = number(config.get("members")) or 1, config.get("head_weights", "overall")
    if members <= 1 and isinstance(heads, Mapping):
        return "heads " + " ".join(f"{name}={number(weight) or 0:g}" for name, weight in heads.items())
    if members <= 1:
        return "" if heads == "overall" else "heads by the constitution's weights"
    combine = str(config.get("combine", "mean"))
    bound = f", pessimism {number(config.get('pessimism')) or 0:g}" if combine == "lower_bound" else ""
    return f"{combine} of {members:.0f} members{bound}"


def _edits(probe: Mapping[str, Any]) -> list[Row]:
    """Edits of responses by what they change, the largest first within a kind."""
    found: list[tuple[str, float, Row]] = []
    listed = [(e, f) for e in _list(probe, "edits") if (f := figure_of(e.get("change"))) is not None]
    changes = [(e, f) for e, f in listed if (f.n or 0) >= _FEWEST]
    reach = max([1.0, *(abs(x) for _, f in changes for x in (f.value, f.low, f.high) if x is not None)])
    for edit, change in changes:
        beyond = figure_of(edit.get("beyond"))
        name, kind = str(edit.get("name")), str(edit.get("kind"))
        text = shown(change, sign=True)
        strong = change.above(0) or change.below(0)
        label = f"{name}: {text} standard deviations; 0 is no change"
        svg = forest_chart(
            Forest(change.value, change.low, change.high, strong), axis=(-reach, reach), mark=0.0, label=label
        )
        apart = "" if beyond is None else shown(beyond, sign=True)
        row = Row(name, _KINDS.get(kind, kind), text, svg, apart, n_of(change), _p(edit.get("p")))
        found.append((kind, (change if beyond is None else beyond).value, row))
    order = {kind: i for i, kind in enumerate(_KINDS)}
    return [row for _, _, row in sorted(found, key=lambda f: (order.get(f[0], 9), -abs(f[1])))]


def _phrases(probe: Mapping[str, Any]) -> list[Row]:
    rows = []
    for each in _list(probe, "phrases")[:_MOST_PHRASES]:
        lift, appended = figure_of(each.get("lift")), each.get("appended")
        beyond = figure_of(appended.get("beyond")) if isinstance(appended, Mapping) else None
        if lift is not None:
            apart = "" if beyond is None else shown(beyond, sign=True)
            rows.append(Row(str(each.get("text")), "", shown(lift, sign=True), Markup(""), apart, "", ""))
    return rows


def _figures(probe: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(name, value, meaning) of what is not an edit."""
    length, spread, agreement = (_table(probe, name) for name in ("length", "spread", "agreement"))
    gap = figure_of(length.get("gap"))
    flips = {str(f.get("edit")): figure_of(f.get("share")) for f in _list(probe, "flips")}
    rows: list[tuple[str, str | None, str]] = [
        ("score and length", _of(length.get("within")), "correlation with log length within prompts; 0 is none"),
        ("accuracy by length", None if gap is None else f"{points(gap)} points",
         "where the longer is better, less where the shorter is; honest: 0"),
        ("the user's side", _of(agreement.get("change"), sign=True),
         "SDs for taking it, in questions of taste; honest: 0"),
        ("turned round", _share_of(flips.get("all")), "pairs, by spelling, case, spaces or punctuation"),
        ("near-duplicates", _share_of(flips.get("near-duplicates in the data")),
         "of pairs that say nearly the same, ordered the other way"),
        ("within prompts", _share(spread.get("within")), "of the variance of the scores"),
        ("variety at the top", _figure(spread.get("top_variety")), "of the best tenth's wording; 1 is as elsewhere"),
    ]  # fmt: skip
    return [(name, value, meaning) for name, value, meaning in rows if value is not None]


def _slices(probe: Mapping[str, Any]) -> list[Row]:
    """The parts that stand out, weakest first."""
    rows = []
    parts = [(s, f) for s in _list(probe, "slices") if (f := figure_of(s.get("accuracy"))) is not None]
    for part, accuracy in sorted(parts, key=lambda each: (number(each[0].get("p")) or 0, each[1].value))[:_MOST_SLICES]:
        row = share_row(str(part.get("name")), accuracy)
        rows.append(Row(row.name, str(part.get("kind")), row.text, row.svg, "", row.n, _p(part.get("p"))))
    return rows


def _shift(facts: Facts) -> dict[str, Any] | None:
    """How far responses are from what the model was trained on, as the last `trimtab pm shift` found."""
    found = _read(facts, "shift.json")
    own = next((s for s in reversed(_list(found, "sets")) if s.get("label") == found.get("deciding")), None)
    if own is None:
        return None
    expected, floor = _table(own, "expected"), number(own.get("domain_floor"))
    chance = "" if floor is None else f"; up to {figure(floor)} is chance"
    rows = [
        (
            "told apart",
            _of(own.get("domain")),
            f"by a classifier, from its training responses (AUC, .5 = alike{chance})",
        ),
        ("distance", _of(own.get("distance")), "mean percentile among unseen responses of that kind; .5 is theirs"),
        ("outside", _share_of(figure_of(own.get("outside"))), "of the responses lie beyond 99 % of these"),
        ("accuracy to expect", _share_of(figure_of(expected.get("accuracy"))), "of pairs of such responses"),
        ("on held-out pairs", _share_of(figure_of(expected.get("reference"))), "the accuracy that this is read from"),
    ]
    return {
        "verdict": str(own.get("verdict", "")),
        "label": str(own.get("label", "")),
        "rows": [(name, value, meaning) for name, value, meaning in rows if value is not None],
    }


def _read(facts: Facts, name: str) -> Mapping[str, Any]:
    path = facts.run.artifact("pm") / name
    try:
        return read_json(path) if path.is_file() else {}
    except TrimtabError:
        return {}


def _table(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def _list(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = value.get(key)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _of(value: object, *, sign: bool = False) -> str | None:
    found = figure_of(value)
    return None if found is None else shown(found, sign=sign)


def _share_of(found: Figure | None) -> str | None:
    return None if found is None else with_interval(found.value, found.low, found.high, percent=True)


def _p(value: object) -> str:
    p = number(value)
    return "" if p is None else "< .001" if p < 0.001 else f"{p:.3f}".lstrip("0") if p < 1 else "1"


def _count(value: object) -> str | None:
    x = number(value)
    return None if x is None else f"{x:,.0f}"


def _figure(value: object) -> str | None:
    x = number(value)
    return None if x is None else figure(x)


def _share(value: object) -> str | None:
    x = number(value)
    return None if x is None else share(x)
