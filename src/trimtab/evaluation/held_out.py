"""The trained policy and the reference respond to held-out prompts; every response is scored; the two are compared.

Left out on purpose: judges and people as measures, stopping early, comparisons of more than two models.
Runs as `trimtab eval`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from trimtab.config.schema import EvalConfig
from trimtab.data.records import Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.evaluation.compare import POLICY, REFERENCE, WinRate, compare_samples
from trimtab.models.generation import generate
from trimtab.models.roles import CausalModel
from trimtab.models.seeds import torch_stream
from trimtab.models.tokens import TextCodec, left_pad
from trimtab.scoring import Scorer, checked_scores

__all__ = ["Autocast", "win_rate"]

BATCH_ROWS = 64
"""Responses sampled at a time. Part of what a seed means: another size draws other responses."""

Row = dict[str, Any]
Key = tuple[str, str, int]
"""Prompt id, side, index: what names a response."""


class Autocast(Protocol):
    """The part of `training.precision.Precision` that sampling needs."""

    def autocast(self) -> AbstractContextManager[Any]:
        """The context in which a model computes."""
        ...


def win_rate(
    policy: CausalModel,
    reference: CausalModel,
    codec: TextCodec,
    prompts: Sequence[Prompt],
    measures: Sequence[Scorer],
    config: EvalConfig,
    *,
    seed: int,
    precision: Autocast | None = None,
    progress: Callable[[int, int], None] | None = None,
    resume: Iterable[Mapping[str, Any]] = (),
    save: Callable[[list[Row]], None] | None = None,
) -> WinRate:
    """Sample both models on held-out prompts, score every response with every measure, compare.

    Each batch has a random stream of its own, named by seed, side and number: an evaluation that is taken up again
    gives the responses that an undisturbed one would have given.

    Args:
        policy: the trained model.
        reference: what it is compared with.
        codec: prompts to tokens and back.
        prompts: held-out prompts; ids are unique.
        measures: scorers that nothing was trained on, the deciding one first. The trained score may follow, for
            comparison. Scores of a scorer must be comparable between calls.
        config: responses a prompt, temperature, length, bootstrap resamples (`config.measures` is not read here).
        seed: of sampling and bootstrap.
        precision: what the models compute in; None: as they are.
        progress: called after each batch with (responses there are, responses in all).
        resume: rows that an earlier call handed out with the same arguments; they are not sampled again. Measures that
            they lack are scored and the rows handed out again.
        save: takes new rows, batch by batch: `prompt_id`, `prompt`, `side`, `index`, `response`, `tokens`, `finished`,
            `scores`. Of rows with the same prompt_id, side and index the last one counts.

    Raises:
        TrimtabError: no prompt, no measure or two of one name, a prompt too long for a model's context, rows of other
            prompts in `resume`, or a scorer that returns what is no score.
    """
    _check_measures(measures)
    plan = _plan(prompts, codec, config, (policy, reference))
    rows = _taken_up(resume, prompts, config)
    by_id = {prompt.id: prompt for prompt in prompts}
    total = 2 * len(prompts) * config.responses_per_prompt

    def hand_out(new: list[Row]) -> None:
        rows.update({_key(row): row for row in new})
        if save is not None and new:
            save(new)
        if progress is not None:
            progress(len(rows), total)

    for unscored in _portions([row for row in rows.values() if _lacks(row, measures)]):
        hand_out(_scored(unscored, by_id, measures))
    for side, model in ((POLICY, policy), (REFERENCE, reference)):
        for number, batch in enumerate(plan):
            wanted = {(task.prompt.id, side, task.index) for task in batch} - rows.keys()
            if wanted:
                sampled = _sample(model, codec, batch, side, config, precision, seed, number)
                new = [row for row in sampled if _key(row) in wanted]
                hand_out(_scored(new, by_id, measures))
    # in file order, not in the order sampled: the bootstrap then sees the prompts the same way after a resume
    order = [(p.id, s, k) for p in prompts for s in (POLICY, REFERENCE) for k in range(config.responses_per_prompt)]
    names = [scorer.name for scorer in measures]
    return compare_samples((rows[key] for key in order), names, resamples=config.bootstrap, seed=seed)


@dataclass(frozen=True)
class _Task:
    """One response to sample."""

    prompt: Prompt
    index: int
    ids: list[int]


def _key(row: Mapping[str, Any]) -> Key:
    return str(row["prompt_id"]), str(row["side"]), int(row["index"])


def _check_measures(measures: Sequence[Scorer]) -> None:
    names = [scorer.name for scorer in measures]
    if not names:
        raise TrimtabError(
            ErrorKind.CONFIG,
            "there is no measure to compare the policy with its reference by",
            "name at least one in eval.measures: module:function or rule:name",
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TrimtabError(ErrorKind.CONFIG, f"eval.measures names {', '.join(twice)} twice", "name each once")


def _plan(
    prompts: Sequence[Prompt], codec: TextCodec, config: EvalConfig, models: Sequence[CausalModel]
) -> list[list[_Task]]:
    """Batches of prompts of about equal length, the same for both sides and for every call."""
    if not prompts:
        raise TrimtabError(ErrorKind.DATA, "there are no held-out prompts", "check prompts.held_out")
    contexts = [model.context_length for model in models if model.context_length is not None]
    tasks = []
    for prompt in prompts:
        ids = codec.prompt_ids(prompt)
        if contexts and len(ids) + config.max_new_tokens > min(contexts):
            raise TrimtabError(
                ErrorKind.DATA,
                f"held-out prompt {prompt.id!r} has {len(ids)} tokens; with {config.max_new_tokens} new ones it "
                f"exceeds the model's context of {min(contexts)}",
                "shorten the prompt or lower eval.max_new_tokens",
            )
        tasks += [_Task(prompt, index, ids) for index in range(config.responses_per_prompt)]
    return list(_portions(sorted(tasks, key=lambda task: len(task.ids))))


def _portions(items: Sequence[Any]) -> list[list[Any]]:
    return [list(items[start : start + BATCH_ROWS]) for start in range(0, len(items), BATCH_ROWS)]


def _taken_up(resume: Iterable[Mapping[str, Any]], prompts: Sequence[Prompt], config: EvalConfig) -> dict[Key, Row]:
    texts = {prompt.id: prompt.text for prompt in prompts}
    if len(texts) != len(prompts):
        raise TrimtabError(ErrorKind.DATA, "two held-out prompts have the same id", "make the ids unique")
    rows: dict[Key, Row] = {}
    for row in resume:
        key = _key(row)
        if texts.get(key[0]) != row.get("prompt") or key[2] >= config.responses_per_prompt:
            raise TrimtabError(
                ErrorKind.RUN,
                f"the saved evaluation holds response {key[2]} to prompt {key[0]!r}, which nobody asked for",
                "the prompts or eval.responses_per_prompt have changed: evaluate again from the start",
            )
        rows[key] = dict(row)
    return rows


def _lacks(row: Row, measures: Sequence[Scorer]) -> bool:
    return any(scorer.name not in row["scores"] for scorer in measures)


def _sample(
    model: CausalModel,
    codec: TextCodec,
    batch: Sequence[_Task],
    side: str,
    config: EvalConfig,
    precision: Autocast | None,
    seed: int,
    number: int,
) -> list[Row]:
    """The whole batch, whatever of it is wanted: what a row draws depends on its place."""
    ids, mask = left_pad([task.ids for task in batch], codec.pad_id)
    with precision.autocast() if precision is not None else nullcontext():
        out = generate(
            model,
            ids.to(model.device),
            mask.to(model.device),
            max_new_tokens=config.max_new_tokens,
            temperature=config.temperature,
            eos_ids=codec.eos_ids,
            pad_id=codec.pad_id,
            generator=torch_stream(seed, "eval", side, number),
        )
    return [
        {
            "prompt_id": task.prompt.id,
            "prompt": task.prompt.text,
            "side": side,
            "index": task.index,
            "response": response.text,
            "tokens": response.tokens,
            "finished": response.finished,
            "scores": {},
        }
        for task, response in zip(batch, codec.responses(out.tokens, out.mask, out.finished), strict=True)
    ]


def _scored(rows: Sequence[Row], prompts: Mapping[str, Prompt], measures: Sequence[Scorer]) -> list[Row]:
    """The rows with the scores that they lack."""
    scored = [{**row, "scores": dict(row["scores"])} for row in rows]
    for scorer in measures:
        missing = [row for row in scored if scorer.name not in row["scores"]]
        if not missing:
            continue
        values = checked_scores(
            scorer,
            [prompts[row["prompt_id"]] for row in missing],
            [Response(row["response"], row["finished"], row["tokens"]) for row in missing],
        )
        for row, value in zip(missing, values.tolist(), strict=True):
            row["scores"][scorer.name] = value
    return scored
