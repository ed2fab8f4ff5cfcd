"""`trimtab constitution`: check a file, show what judges are told, and see what a change does to labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli import output
from trimtab.cli.options import JsonOutput, Panel, Quiet, RunName, Settings

if TYPE_CHECKING:
    from trimtab.constitution import Constitution
    from trimtab.pipeline.constitution_diff import ConstitutionDiff

__all__ = ["register"]

_SICK = 3
_SHOWN = 100
_SHOWN_FLIPS = 10
_WIDTH = 300

File = Annotated[Path, typer.Argument(metavar="FILE", help="A constitution: .toml, .yaml or .json.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Constitutions: check one, show what judges are told, compare two.", no_args_is_help=False)
    group.command("check")(check)
    group.command("show")(show)
    group.command("diff")(diff)
    app.add_typer(group, name="constitution", rich_help_panel=Panel.DATA)


def check(file: File, as_json: JsonOutput = False, quiet: Quiet = False) -> None:
    """Look for duplicates, contradictions, odd weights and lengths, and what is missing; no model is asked.

    Exit code 3 where there is a warning or an error; notes do not count.
    """
    from trimtab.constitution.check import Kind, Level, Remark
    from trimtab.constitution.check import check as remarks_on
    from trimtab.constitution.reading import read_constitution

    constitution, problems = read_constitution(file)
    remarks = [Remark(Level.ERROR, Kind.BROKEN, (), problem) for problem in problems]
    if constitution is not None:
        remarks += remarks_on(constitution)
    if as_json:
        facts: dict[str, Any] = {"name": None, "hash": None, "revision_hash": None, "principles": None}
        if constitution is not None:
            facts = {
                "name": constitution.name,
                "hash": constitution.hash,
                "revision_hash": constitution.revision_hash,
                "principles": len(constitution.principles),
            }
        output.emit_json({"file": str(file), **facts, **output.listing("remarks", [r.as_dict() for r in remarks])})
    else:
        for r in remarks[:_SHOWN]:
            output.emit_text(f"{r.level}: {r.message}" + (f"\n  {r.hint}" if r.hint else ""))
        if len(remarks) > _SHOWN:
            output.emit_text(f"... and {len(remarks) - _SHOWN:,} more: --json lists them all")
        if constitution is not None:
            n = len(constitution.principles)
            output.say(f"{file}: {n} principle{'s' * (n != 1)}, {_counts([str(r.level) for r in remarks])}")
    if any(r.level is not Level.NOTE for r in remarks):
        raise typer.Exit(_SICK)


def _counts(levels: list[str]) -> str:
    found = [f"{levels.count(level)} {level}{'s' * (levels.count(level) != 1)}" for level in dict.fromkeys(levels)]
    return ", ".join(found) or "nothing to remark"


def show(file: File, as_json: JsonOutput = False, quiet: Quiet = False) -> None:
    """Show what is told: to a judge in each mode, to the sampler, and in the supervised phase."""
    from trimtab.constitution import load_constitution

    told = _told(load_constitution(file))
    if as_json:
        output.emit_json({"file": str(file), **told})
        return
    lines = [f"{told['name']}  {told['hash'][:12]}", "", "All principles at once:", told["all"], "", "One by one:"]
    for p in told["principles"]:
        lines += [f"{p['id']} (drawn {p['share']:.0%}):", f"  {p['told']}"]
        lines += [f"  {key}: {p[key]}" for key in ("reading", "opposite", "critique", "revision") if p[key]]
    if told["unused"]:
        lines += ["", f"Never told (weight 0): {', '.join(told['unused'])}"]
    if told["chats"]:
        lines += ["", f"Before each critique: {told['chats']} example chats, {told['turns']} turns"]
    output.emit_text("\n".join(lines))


def _told(constitution: Constitution) -> dict[str, Any]:
    total = sum(p.weight for p in constitution.counted)
    return {
        "name": constitution.name,
        "hash": constitution.hash,
        "revision_hash": constitution.revision_hash,
        "all": constitution.render(),
        "principles": [
            {
                "id": p.id,
                "told": constitution.only(p.id).render(),
                "hash": constitution.only(p.id).hash,
                "weight": p.weight,
                "share": p.weight / total,
                "reading": p.reading,
                "opposite": p.opposite,
                "critique": p.critique,
                "revision": p.revision,
            }
            for p in constitution.counted
        ],
        "unused": [p.id for p in constitution.principles if p.weight == 0],
        "chats": len(constitution.chats),
        "turns": sum(len(chat) for chat in constitution.chats),
    }


def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The constitution so far.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The one that is to replace it.")],
    source: Annotated[
        Path, typer.Argument(metavar="PROJECT|PAIRS", help="A project (its run's pairs), or a file of pairs.")
    ] = Path("."),
    project: Annotated[
        Path | None,
        typer.Option("--project", metavar="DIR", help="Whose judges label a file of pairs; default: here."),
    ] = None,
    name: RunName = "main",
    sample: Annotated[int, typer.Option(min=1, metavar="N", help="Pairs to label, at most.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of the sample.")] = 0,
    by_principle: Annotated[
        bool, typer.Option("--by-principle", help="Ask about every principle by itself; what both have is asked once.")
    ] = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="Only the two constitutions, not each change alone: fewer calls.")
    ] = False,
    settings: Settings = None,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Relabel a sample of pairs under both constitutions and list the flips, by the change that makes them.

    Verdicts go through the project's labels.sqlite: what is recorded is not asked again.
    """
    from trimtab.constitution import load_constitution
    from trimtab.constitution.changes import changes

    constitutions = load_constitution(old), load_constitution(new)
    if not changes(*constitutions):
        output.say("A judge is told the same by both: no label can change.")
    from trimtab.pipeline.project import Project
    from trimtab.pipeline.relabel import diff_in_project

    data = source if source.is_file() and source.suffix != ".toml" else None
    opened = Project.open((project or Path(".")) if data is not None else source, settings or [])
    found = diff_in_project(
        opened, *constitutions, run=name, data=data, sample=sample, seed=seed, by_principle=by_principle,
        attribute=not whole,
    )  # fmt: skip
    if as_json:
        document = found.as_dict()
        flips = document.pop("flips")
        output.emit_json({"old": str(old), "new": str(new), **document, **output.listing("flips", flips)})
    else:
        _print(found)


def _print(found: ConstitutionDiff) -> None:
    from trimtab.figures import share, with_interval

    def rate(interval: Any) -> str:
        return with_interval(interval.mean, interval.low, interval.high, percent=True)

    def known(value: float | None) -> str | None:
        return None if value is None else share(value)

    output.emit_table(
        ("figure", "value", "meaning"),
        [
            ("changes", len(found.changes), ", ".join(c.name for c in found.changes) or "none"),
            ("pairs", found.compared, f"with a label under both, of {found.asked} asked about"),
            ("flips", rate(found.flip_rate), f"{len(found.flips)} pairs whose winner is the other one; 95 % interval"),
            ("move", rate(found.mean_move), "mean change of P(first)"),
            ("order", known(found.order_disagreement), "pairs whose two orders disagree under the old one"),
            ("longer wins", f"{known(found.longer_old)} to {known(found.longer_new)}", "under the old, under the new"),
        ],
    )
    if found.shares:
        output.emit_text("")
        output.emit_table(
            ("change, alone", "fields", "flips", "share", "move"),
            [
                (s.change.name, ", ".join(s.change.fields), len(s.flips), rate(s.flip_rate), rate(s.mean_move))
                for s in found.shares
            ],
            right=[2],
        )
    for flip in found.flips[:_SHOWN_FLIPS]:
        by = ", ".join(flip.alone) or "several changes together"
        output.emit_text(
            f"\n{flip.pair.id}: P(first) {flip.p_old:.2f} to {flip.p_new:.2f}, by {by}\n"
            f"  prompt: {_short(flip.pair.prompt.text)}\n  first:  {_short(flip.pair.first.text)}\n"
            f"  second: {_short(flip.pair.second.text)}"
        )
    if len(found.flips) > _SHOWN_FLIPS:
        output.say(f"{len(found.flips) - _SHOWN_FLIPS} more flips: --json lists them all")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..."
