"""Distribution shift of a run's preference model, or of a model in a directory, on any responses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.data.lines import check_prompt, messages_of, read_lines, text_of
from trimtab.data.pairs import read_pairs
from trimtab.data.records import Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.figures import finite
from trimtab.models.loading import pick_device
from trimtab.pipeline.evaluate import preference_model_and_pairs
from trimtab.pipeline.project import CONFIG_NAME, Project
from trimtab.preference.ensemble import load_preference
from trimtab.preference.model import PreferenceModel
from trimtab.preference.shift import ShiftReport, shift
from trimtab.preference.shift_reference import Reference, reference_of
from trimtab.preference.training import split_by_prompt
from trimtab.runs.files import read_jsonl, write_json
from trimtab.runs.run import Run
from trimtab.training.precision import Precision

__all__ = ["SHIFT_FILE", "Responses", "Shifts", "Subject", "open_subject", "responses_of", "shift_of"]

SHIFT_FILE = "shift.json"
"""Among the run's artifacts of the pm stage: the last `pm shift` of its own responses."""
_RUN_AT_STEP = re.compile(r"(?P<run>[^@/]+)@(?P<step>\d+)")


@dataclass(frozen=True, slots=True)
class Subject:
    """A preference model with where it comes from; `project` and `run` None: a directory by itself."""

    model: PreferenceModel
    directory: Path
    project: Project | None = None
    run: Run | None = None

    @property
    def seed(self) -> int:
        return 0 if self.project is None else self.project.config.project.seed


@dataclass(frozen=True, slots=True)
class Responses:
    """A set of responses; `step`: of the training that they were sampled after, None: not known."""

    label: str
    prompts: tuple[Prompt, ...]
    responses: tuple[Response, ...]
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Shifts:
    """Reports by set, with what the reference is. `deciding`: the report that the verdict is."""

    reports: tuple[ShiftReport, ...]
    steps: tuple[int | None, ...]
    reference: str
    rows: int
    held_out: int

    @property
    def deciding(self) -> ShiftReport:
        """The last one: after the most training."""
        return self.reports[-1]

    def as_dict(self) -> dict[str, Any]:
        own = self.deciding
        sets = [r.as_dict() | {"step": s} for r, s in zip(self.reports, self.steps, strict=True)]
        known = {"from": self.reference, "responses": self.rows, "held_out": self.held_out}
        return {"status": own.status, "verdict": own.verdict, "deciding": own.label, "reference": known, "sets": sets}


def open_subject(target: Path, name: str, settings: Sequence[str] = ()) -> Subject:
    """The preference model of a project's run, or of a directory.

    Raises:
        TrimtabError: there is neither, or the run has no preference model.
    """
    if target.name == CONFIG_NAME or (target / CONFIG_NAME).is_file():
        project = Project.open(target, list(settings))
        _, _, model = preference_model_and_pairs(project, name)
        run = Run.open(project.runs / name)
        return Subject(model, run.artifact("pm") / "model", project, run)
    if not (target / "trimtab.json").is_file():
        raise TrimtabError(
            ErrorKind.USAGE, f"{target}: is neither a project ({CONFIG_NAME}) nor a preference model (trimtab.json)",
            "name a project, or artifacts/pm/model of a run",
        )  # fmt: skip
    model = load_preference(target, Precision("float32", pick_device("auto")))
    return Subject(model, target)


def shift_of(
    subject: Subject, sets: Sequence[Responses], reference: Path | None = None, *, keep: bool = False
) -> Shifts:
    """Compare each set with the reference of the subject's model.

    Args:
        subject: see `open_subject`.
        sets: at least one, in the order of training.
        reference: a pairs file that takes the place of what is stored; stored itself where nothing is.
        keep: write the figures into the run's artifacts, where the doctor and the report find them.

    Raises:
        TrimtabError: there is no reference and no way to make one, or the responses cannot be used.
    """
    known, source = _reference(subject, reference)
    reports = tuple(shift(subject.model, known, s.prompts, s.responses, label=s.label, seed=subject.seed) for s in sets)
    found = Shifts(reports, tuple(s.step for s in sets), source, len(known.scores), 2 * int(known.unseen.sum()))
    if keep and subject.run is not None:
        write_json(subject.run.artifact("pm") / SHIFT_FILE, finite(found.as_dict()))
    return found


def _reference(subject: Subject, named: Path | None) -> tuple[Reference, str]:
    """(the reference, where it comes from); made from the run's own pairs where it was trained without one."""
    stored = Reference.load(subject.directory)
    if named is not None:
        made = reference_of(subject.model, [], read_pairs(named), seed=subject.seed)
        if stored is None:
            made.save(subject.directory)
        return made, str(named)
    if stored is not None:
        return stored, "stored with the model"
    if subject.run is not None and subject.project is not None:
        labeled = subject.run.artifact("label") / "pairs.jsonl"
        if labeled.is_file():
            config = subject.project.config
            pairs = read_pairs(labeled)
            parts = split_by_prompt(pairs, config.preference.validation_fraction, config.project.seed)
            made = reference_of(subject.model, *parts, seed=config.project.seed)
            made.save(subject.directory)
            return made, str(labeled)
    raise TrimtabError(
        ErrorKind.DATA,
        f"{subject.directory}: has no reference.safetensors, the sample of pairs that responses are compared with",
        "make it from pairs like those that the model was trained on, best of held-out prompts: --reference PAIRS",
    )


# responses


def responses_of(subject: Subject, where: str | None) -> list[Responses]:
    """The sets of responses that a user names.

    Args:
        subject: whose prompts are known by their ids.
        where: a JSON-lines file with prompt and response (with `step` or `side`, a set of each), RUN@STEP of the
            project, or None: what PPO sampled at its checkpoints and what the evaluation did.

    Raises:
        TrimtabError: there are none.
    """
    prompts = _known_prompts(subject)
    if where is None:
        if subject.run is None:
            raise TrimtabError(
                ErrorKind.USAGE, "a model by itself has no responses", "name a JSON-lines file with prompt and response"
            )
        return _of_run(subject.run, prompts)
    path, match = Path(where), _RUN_AT_STEP.fullmatch(where)
    if path.is_dir():
        path = path / "samples.jsonl"
    if path.is_file() or match is None:
        return _sets(_read_file(path, prompts), path.name)
    if subject.project is None:
        raise TrimtabError(ErrorKind.USAGE, f"{where}: a model by itself has no runs", "name a project, or a file")
    run, step = Run.open(subject.project.runs / match["run"]), int(match["step"])
    rows = [_row(record, prompts) for record in run.samples(step, "ppo")]
    if not rows:
        steps = sorted({int(record["step"]) for record in run.samples(stage="ppo")})
        there = ", ".join(map(str, steps)) if steps else "none: ppo.probe_prompts was 0, or PPO did not run"
        raise TrimtabError(ErrorKind.USAGE, f"{where}: no responses were kept there", f"kept steps: {there}")
    return _sets(rows, where)


@dataclass(frozen=True, slots=True)
class _Row:
    prompt: Prompt
    response: Response
    step: int | None
    side: str


def _known_prompts(subject: Subject) -> dict[str, Prompt]:
    project = subject.project
    if project is None:
        return {}
    files: list[Callable[[], list[Prompt]]] = [lambda: project.prompts, lambda: project.held_out_prompts]
    found: dict[str, Prompt] = {}
    for read in files:
        try:
            found |= {prompt.id: prompt for prompt in read()}
        except TrimtabError:
            continue  # the records have their own texts
    return found


def _of_run(run: Run, prompts: Mapping[str, Prompt]) -> list[Responses]:
    sets = _sets([_row(record, prompts) for record in run.samples(stage="ppo")], "ppo")
    path = run.artifact("eval") / "samples.jsonl"
    if path.is_file():
        rows = [_row(r, prompts) for r in read_jsonl(path).records if r.get("prompt") or r.get("prompt_id") in prompts]
        last = max((s.step for s in sets if s.step is not None), default=None)
        # the policy's decide: they are many, and from the end of the training
        of_eval = {s.label: s for s in _sets(rows, "eval")}
        order = [("reference", 0), *((k, last) for k in of_eval if k != "reference")]
        sets += [
            Responses(f"eval {k}", of_eval[k].prompts, of_eval[k].responses, step) for k, step in order if k in of_eval
        ]
    if not sets:
        raise TrimtabError(
            ErrorKind.RUN, f"{run.path}: has kept no responses",
            "run ppo or eval first (ppo.probe_prompts above 0), or name a JSON-lines file with prompt and response",
        )  # fmt: skip
    return sets


def _read_file(path: Path, prompts: Mapping[str, Prompt]) -> list[_Row]:
    def parse(record: dict[str, Any], number: int) -> _Row:
        text_of(record, "response")
        if "prompt" in record:
            check_prompt(messages_of(record["prompt"], "prompt"))
        return _row(record, prompts)

    return read_lines(path, "responses", parse)


def _row(record: Mapping[str, Any], prompts: Mapping[str, Prompt]) -> _Row:
    step, side = record.get("step"), record.get("side")
    finished = record.get("finished", record.get("stop_reason", "eos") != "length")
    return _Row(
        _prompt(record, prompts), Response(str(record["response"]), bool(finished)),
        step if isinstance(step, int) and not isinstance(step, bool) else None, side if isinstance(side, str) else "",
    )  # fmt: skip


def _prompt(record: Mapping[str, Any], prompts: Mapping[str, Prompt]) -> Prompt:
    """The prompt of a record: by its id where the project has it with this text, for a text has lost its turns."""
    name = record.get("prompt_id")
    known = prompts.get(name) if isinstance(name, str) else None
    if known is not None and record.get("prompt", known.text) == known.text:
        return known
    messages = messages_of(record.get("prompt"), "prompt")
    return Prompt(name if isinstance(name, str) else "\n".join(m.content for m in messages), messages)


def _sets(rows: Iterable[_Row], name: str) -> list[Responses]:
    """One set of each step and side, by step."""
    found: dict[tuple[int, str], list[_Row]] = {}
    for row in rows:
        found.setdefault((-1 if row.step is None else row.step, row.side), []).append(row)
    sets = []
    for (step, side), of in sorted(found.items(), key=lambda item: item[0]):
        label = " ".join(part for part in (side, f"step {step}" if step >= 0 else "") if part) or name
        sets.append(Responses(label, tuple(r.prompt for r in of), tuple(r.response for r in of), of[0].step))
    return sets
