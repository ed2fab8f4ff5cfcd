"""Run the stages of a project that are out of date, in order; each can be killed and goes on where it stopped."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.figures import finite
from trimtab.pipeline.project import Project
from trimtab.pipeline.stages import STAGES, Plan, StageName, StageState, plan
from trimtab.runs.files import write_json
from trimtab.runs.manifest import MANIFEST_NAME, StageStatus, check_run_name
from trimtab.runs.run import Existing, Run

if TYPE_CHECKING:
    from trimtab.training.world import World

__all__ = ["DEFAULT_RUN", "open_run", "plan_run", "run_project", "run_stage"]

DEFAULT_RUN = "main"

Say = Callable[[str], None]


def preflight(project: Project, stages: Sequence[StageName], say: Say) -> None:
    """See `trimtab.pipeline.preflight.check`; the import waits until something is to be run."""
    from trimtab.pipeline.preflight import check

    check(project, stages, say)


def open_run(project: Project, name: str, existing: Existing = "resume") -> Run:
    """The run `name` of the project, made or taken up for writing."""
    return Run.create(
        project.runs,
        name,
        config=project.config.model_dump(mode="json"),
        seed=project.config.project.seed,
        existing=existing,
    )


def plan_run(
    project: Project, name: str = DEFAULT_RUN, *, until: StageName | None = None, start: StageName | None = None
) -> Plan:
    """What `run_project` would do, without doing it: the stages that it would run.

    Args:
        until: the last stage to run.
        start: run this stage and what follows it, even if up to date.

    Raises:
        TrimtabError: `start` comes after `until`, or a stage before `start` is out of date.
    """
    return _chosen(plan(project, _look(project, name)), until, start, _command(project, name))


def run_project(
    project: Project,
    name: str = DEFAULT_RUN,
    *,
    until: StageName | None = None,
    start: StageName | None = None,
    existing: Existing = "resume",
    say: Say = lambda text: None,
    world: World | None = None,
) -> Run:
    """Run every stage that is out of date (see `plan_run`); returns the run.

    Args:
        existing: what to do when there is a run of this name.
        say: told, in one line, what each stage does and why.
        world: the processes of which this is the first (see `trimtab.pipeline.processes`); None: it is alone.
    """
    found = None if existing in ("new", "overwrite") else _look(project, name)
    chosen = [state.name for state in _chosen(plan(project, found), until, start, _command(project, name))]
    preflight(project, chosen, say)
    run = open_run(project, name, existing)
    for stage in chosen:
        _prepare(project, run, stage, say)
        # planned anew: an attempt of a stage before it is part of a stage's fingerprint
        _execute(project, run, _by_name(plan(project, run))[stage], say, world)
    return run


def run_stage(
    project: Project,
    stage: StageName,
    name: str = DEFAULT_RUN,
    *,
    again: bool = False,
    say: Say = lambda text: None,
    world: World | None = None,
) -> Run:
    """Run one stage; the stages before it must be up to date.

    Args:
        again: run it even if it is up to date.
        world: as in `run_project`.

    Raises:
        TrimtabError: a stage before it is not up to date.
    """
    # what later stages read need not be there yet
    states = _by_name(plan(project, _look(project, name), stage))
    state = states[stage]
    if not state.needed:
        settings = "ppo.reward" if stage == "pm" else "project.algorithm, ppo.reward and preference.data"
        raise TrimtabError(ErrorKind.USAGE, f"stage {stage} is {state.why}", f"see {settings}")
    _require_before(states, stage, _command(project, name))
    if not state.up_to_date or again:
        preflight(project, [stage], say)
        run = open_run(project, name)
        _prepare(project, run, stage, say)
        _execute(project, run, _by_name(plan(project, run, stage))[stage], say, world)
        return run
    say(f"{stage}: up to date")
    return open_run(project, name)


def _look(project: Project, name: str) -> Run | None:
    """The run if there is one; nothing is made."""
    path = project.runs / check_run_name(name)
    return Run.open(path) if (path / MANIFEST_NAME).is_file() else None


def _by_name(states: Plan) -> dict[StageName, StageState]:
    return {state.name: state for state in states}


def _command(project: Project, name: str) -> Callable[[StageName], str]:
    """For hints: the command that runs this project and run up to a stage."""
    here = os.path.relpath(project.directory)
    where = "" if here == "." else f" {shlex.quote(str(project.directory) if here.startswith('..') else here)}"
    which = "" if name == DEFAULT_RUN else f" --run {shlex.quote(name)}"
    note = " (with the same --set)" if any(row.origin == "--set" for row in project.resolved.rows()) else ""
    return lambda stage: f"trimtab run{where}{which} --until {stage}{note}"


def _chosen(
    states: Sequence[StageState], until: StageName | None, start: StageName | None, command: Callable[[StageName], str]
) -> Plan:
    order = list(STAGES)
    last = order.index(until) if until else len(order) - 1
    if start and order.index(start) > last:
        raise TrimtabError(
            ErrorKind.USAGE, f"--from {start} comes after --until {until}", f"the order is {', '.join(order)}"
        )
    if start:
        _require_before({state.name: state for state in states}, start, command)
        first = order.index(start)
        return [s for i, s in enumerate(states) if first <= i <= last and s.needed]
    return [s for i, s in enumerate(states) if i <= last and s.needed and not s.up_to_date]


def _require_before(states: dict[StageName, StageState], stage: StageName, command: Callable[[StageName], str]) -> None:
    for before in states[stage].after:
        if states[before].needed and not states[before].up_to_date:
            raise TrimtabError(
                ErrorKind.RUN,
                f"stage {stage} needs {before}, which is not up to date ({states[before].why})",
                f"run it first: {command(before)}",
            )
        if states[before].needed:
            _require_before(states, before, command)


def _prepare(project: Project, run: Run, stage: StageName, say: Say) -> None:
    """What has to be put right before a stage is planned: the calibration is part of what the score depends on."""
    if stage == "ppo" or (stage == "eval" and project.config.project.algorithm == "dpo"):
        from trimtab.pipeline.calibrations import renew_calibration

        renew_calibration(project, run, say)


def _execute(project: Project, run: Run, state: StageState, say: Say, world: World | None = None) -> None:
    from trimtab.pipeline.build import Workshop
    from trimtab.pipeline.processes import call
    from trimtab.pipeline.work import WORK

    say(f"{state.name}: {state.purpose} ({state.why})")
    record = run.begin_stage(state.name, state.fingerprint)
    shop = Workshop(project, run) if world is None else Workshop(project, run, world)
    shop.use_threads()
    try:
        with _stop_signals():
            if world is not None and state.name == "ppo":
                call(world, run)
            result = WORK[state.name](shop)
    except KeyboardInterrupt:
        run.end_stage(state.name, StageStatus.INTERRUPTED)
        raise TrimtabError(
            ErrorKind.INTERRUPTED,
            f"stage {state.name} was interrupted",
            "the same command goes on from its last checkpoint",
        ) from None
    except BaseException as error:
        stopped = isinstance(error, TrimtabError) and error.kind == ErrorKind.INTERRUPTED
        run.end_stage(state.name, StageStatus.INTERRUPTED if stopped else StageStatus.FAILED)
        raise
    # of few pairs some figures are no numbers, and JSON has none that are not
    write_json(run.artifact(state.name) / "result.json", finite(result))
    run.end_stage(state.name, StageStatus.DONE, {"attempt": record.attempt})


@contextmanager
def _stop_signals() -> Iterator[None]:
    """SIGTERM stops a stage as Ctrl-C does (schedulers send it before they kill)."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread: its signals are not ours to take
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
