"""The PPO stage: rollout, scores, experience, updates, again and again.

One loop serves PPO with a value model and the critic-free RLOO and GRPO. It knows neither the preference model nor the
doctor: it is handed a `Scorer` and callbacks. Every random stream of an iteration is derived from (seed, purpose,
iteration), so a run resumed from a checkpoint draws what the undisturbed run would have drawn.

    result = trimtab.ppo.train(PPOConfig(...), policy, codec, prompts, scorer, seed=0)

With several processes (`world`) each of them calls `train`; they share the work out and end with the same weights.
Left out on purpose: responses sampled from older weights while the policy is updated (asynchronous rollouts).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trimtab.config.project import Parallel
from trimtab.config.schema import PPOConfig
from trimtab.data.demonstrations import Demonstration
from trimtab.data.records import Prompt
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.prompts import encode_prompts
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.models.seeds import torch_stream
from trimtab.models.tokens import TextCodec
from trimtab.ppo.building import language, make_controller, make_learner, warn_of_biased_penalty
from trimtab.ppo.checks import Checks, logprob_gap, padding_gap
from trimtab.ppo.engines import correct, make_engine, samples_as_trainer, stateless, sync
from trimtab.ppo.experience import Experience, LogProbs, build_experience
from trimtab.ppo.measure import iteration_signals, peak_gib
from trimtab.ppo.memory import make_memory, recompute
from trimtab.ppo.retention import best_by
from trimtab.ppo.rollout import PromptOrder, Rollout, sample_rollout
from trimtab.ppo.shaping import CALIBRATION_RESPONSES, ScoreShaper
from trimtab.ppo.shared import check_shares, evaluate, fingerprint, lent, score, shared_layers, told
from trimtab.ppo.stability import keep_batch
from trimtab.ppo.state import RUNTIME_KNOBS, Checkpoints, stateful
from trimtab.ppo.update import update
from trimtab.runs.callbacks import Action, Callback, IterationView
from trimtab.runs.progress import progress
from trimtab.runs.run import Run
from trimtab.scoring import Scorer
from trimtab.training.precision import Precision
from trimtab.training.probe import HeldOut, Probe
from trimtab.training.sharding import gathered
from trimtab.training.world import World

__all__ = ["RUNTIME_KNOBS", "HeldOut", "PPOResult", "train"]


@dataclass
class PPOResult:
    """The trained policy, the value model (None for critic-free advantages) and the signals of every iteration.

    `stopped`: why before the last one; `best`: whose weights these are, where they are not the last.
    """

    policy: CausalModel
    value: ScalarModel | None
    history: list[dict[str, float]] = field(default_factory=list)
    stopped: str | None = None
    best: int | None = None


def train(
    config: PPOConfig,
    policy: CausalModel,
    codec: TextCodec,
    prompts: Sequence[Prompt],
    scorer: Scorer,
    *,
    preference: ScalarModel | None = None,
    run: Run | None = None,
    seed: int = 0,
    precision: Precision | None = None,
    callbacks: Sequence[Callback] = (),
    held_out: HeldOut | None = None,
    demonstrations: Sequence[Demonstration] = (),
    world: World | None = None,
    parallel: Parallel = "ddp",
) -> PPOResult:
    """Train `policy` in place against `scorer`; its state at the call is the reference.

    Args:
        config: the `[ppo]` section.
        policy: a trainable fork of the SFT model.
        codec: tokenizer of the policy. Scorers get text, so they may use another one.
        prompts: what rollouts are sampled for.
        scorer: maps prompts and responses to scores, higher is better.
        preference: weights that the value model may start from (`value_init = "preference"`).
        run: where metrics, samples and checkpoints go; with checkpoints in it, training goes on from the last.
        seed: all random streams derive from it.
        callbacks: see every iteration's signals and may return an `Action`.
        held_out: prompts and scorers measured beside the training, every so many iterations.
        demonstrations: whose language-model loss is mixed in; those that `config.language_data` names.
        world: the processes that train together, all with the same arguments (`World.join`); None: this one alone. Only
            process 0 writes into `run` and has its callbacks called.
        parallel: how what is trained is split over them, see `ModelConfig.parallel`.

    Raises:
        TrimtabError: kind config, data, reward, check or failed, each naming the culprit.
    """
    warn_of_biased_penalty(config)
    trainer = _Trainer(
        config, policy, codec, prompts, scorer, preference, run, seed, precision, held_out, demonstrations,
        world or World.single(), parallel,
    )  # fmt: skip
    with trainer.world.guard("training"), closing(trainer.engine):
        return trainer.fit(callbacks)


class _Trainer:
    def __init__(
        self,
        config: PPOConfig,
        policy: CausalModel,
        codec: TextCodec,
        prompts: Sequence[Prompt],
        scorer: Scorer,
        preference: ScalarModel | None,
        run: Run | None,
        seed: int,
        precision: Precision | None,
        held_out: HeldOut | None,
        demonstrations: Sequence[Demonstration],
        world: World,
        parallel: Parallel,
    ) -> None:
        self.config, self.codec, self.scorer, self.seed, self.world = config, codec, scorer, seed, world
        self.run = run if world.first else None
        self.precision = precision or Precision("float32", policy.device)
        check_shares(config, world, parallel, self.precision.dtype)
        codec.check_model(policy.vocabulary_size, "the policy")
        of_prompts = [prompt.id for prompt in prompts]
        world.same("what they train", config.model_dump(mode="json") | {"seed": seed, "prompts": of_prompts})
        world.same("the policy they start from", {"weights": fingerprint(policy)})
        self.device = policy.device
        self.engine = make_engine(config, self.precision.dtype, world, codec.pad_id, run)
        self.prompts = encode_prompts(prompts, codec, policy.context_length, config.max_new_tokens)
        self.order = PromptOrder(len(prompts), seed)
        self.reference = policy.fork(trainable=False)
        drawn = torch_stream(seed, "value", "adapters")
        widest = max(len(ids) for ids in self.prompts.ids.values())
        split = parallel != "ddp" and world.size > 1
        memory = make_memory(config, policy, self.precision, widest, world, sharded=split)
        self.learner = make_learner(
            config, policy, self.reference, preference, self.precision, drawn, world, parallel=parallel
        )
        self.learner.keep, self.learner.memory = self._keep_batch, memory
        recompute(config, self.learner.policy, self.learner.value)
        if demonstrations:
            self.learner.language, self.learner.pad_id = (
                language(config, policy, codec, demonstrations, seed),
                codec.pad_id,
            )
        self.controller = make_controller(config)
        # a preference model that is calibrated knows what its margins mean
        self.shaper = ScoreShaper(config, self._reference_scores, getattr(scorer, "probability", None))
        self.checks = Checks(config.checks, self.precision.dtype)
        self.probe = None if held_out is None else Probe(
            "ppo", held_out, policy, codec, scorer, seed, temperature=config.temperature,
            max_new_tokens=config.max_new_tokens, samples=config.probe_prompts, engine=stateless(self.engine),
        )  # fmt: skip
        best = best_by(config, held_out)
        self.checkpoints = Checkpoints(run, world, self.learner, self.controller, self.shaper, best)
        self.iteration = 0
        self.actions: list[dict[str, Any]] = []
        self.result = PPOResult(policy, self.learner.value)

    # ---- the loop

    def fit(self, callbacks: Sequence[Callback]) -> PPOResult:
        self._resume(callbacks)
        self.shaper.calibrate(self._prompts_at(0, min(CALIBRATION_RESPONSES, len(self.prompts.prompts))))
        quiet, every = None if self.world.first else True, self.config.checkpoint_every
        with progress(self.config.iterations, "ppo", done=self.iteration, quiet=quiet) as bar:
            if self.iteration == 0:
                self._measure(0, {})
            while self.iteration < self.config.iterations and self.result.stopped is None:
                signals = self._iterate()
                self.iteration += 1
                self._measure(self.iteration, signals)
                self._log(signals)
                self._ask(callbacks, signals)
                last = self.iteration == self.config.iterations or self.result.stopped is not None
                best = self.checkpoints.told_best(self.result.history, self.actions, self.iteration)
                if last or self.iteration in (best, self.iteration // every * every):
                    self._checkpoint(callbacks)
                bar.advance(1, score=signals["score/mean"], kl=signals["kl/reference"])
        if self.config.end_with == "best":
            self.result.best = self.checkpoints.told_best(self.result.history, self.actions)
            self.checkpoints.roll_back(self.result.best)
        for sharded, plain in zip(self.learner.sharded, ("policy", "value"), strict=False):
            setattr(self.result, plain, sharded.restore())
        if self.config.reference_share:
            self.result.policy.mix_with(self.reference, self.config.reference_share)
        return self.result

    def _iterate(self) -> dict[str, float]:
        start, waited = time.perf_counter(), self.world.waited
        with gathered(self.learner.sharded):
            rollout = self._rollout()
            sampled = time.perf_counter()
            with self.precision.autocast():
                trunk = shared_layers(self.world, self.learner, rollout, self.config)
            with lent(self.scorer, self.learner, rollout, self.world, trunk):
                scores = score(self.world, self.scorer, rollout)
                beside = told(self.world, self.scorer, rollout)
            shaped = self.shaper.shape(scores, rollout.prompts, rollout.lengths, rollout.finished)
            with self.precision.autocast():
                logprobs, values, trunk = evaluate(self.world, self.learner, rollout, self.config, trunk)
            checks = self._check_before(rollout, logprobs)
        beta = self.controller.beta
        experience = build_experience(rollout, logprobs, shaped, values, self.config, beta, self.learner.moments, trunk)
        experience, corrected = correct(experience, rollout, self.config)
        if self.learner.moments is not None and experience.returns is not None:
            counted = experience.returns if self.config.value == "prompt" else experience.returns[rollout.response_mask]
            self.learner.moments.update(counted)
        scored = time.perf_counter()
        warming_up = self.iteration < self.config.value_warmup_iterations
        stats = update(
            self.learner, experience, self.config, beta, torch_stream(self.seed, "minibatch", self.iteration),
            train_policy=not warming_up,
        )  # fmt: skip
        done = time.perf_counter()
        if stats.first_ratio_deviation is not None:
            self.checks.first_ratio(stats.first_ratio_deviation)
            checks["check/first_ratio_deviation"] = stats.first_ratio_deviation
        signals = iteration_signals(rollout, experience, logprobs, scores, shaped) | beside
        signals |= stats.signals() | checks | self.precision.signals() | self.learner.noise.signals()
        signals |= self.learner.memory.signals(self.config) | corrected
        if self.shaper.outliers is not None:
            signals["score/outlier_fraction"] = self.shaper.outliers
        signals |= {f"{name}/learning_rate": o.last_learning_rate for name, o in self.learner.optimisers.items()}
        signals["kl/beta"] = beta
        times = {
            "rollout": sampled - start,
            "score": scored - sampled,
            "update": done - scored,
            "iteration": done - start,
        }
        signals |= {f"time/{name}_s": seconds for name, seconds in times.items()}
        signals["rate/response_tokens_per_s"] = float(rollout.lengths.sum()) / times["iteration"]
        if self.world.size > 1:
            rows = self.world.hear([peak_gib(), self.world.waited - waited])
            signals["memory/peak_gib"] = max(peak for peak, _ in rows)
            signals["time/synchronisation_s"] = sum(seconds for _, seconds in rows) / len(rows)
        signals = dict(self.world.tell(signals))
        if not warming_up:  # a policy that stands still says nothing about beta
            self.controller.update(signals["kl/reference"], len(rollout.prompts))
        return signals

    def _keep_batch(self, batch: Experience, gradients: Mapping[str, Tensor]) -> None:
        if self.run is not None:
            name = f"iteration-{self.iteration:06d}-skip-{self.precision.skipped}"
            keep_batch(self.run.path / "nonfinite", name, batch, gradients)

    def _prompts_at(self, position: int, count: int) -> list[Prompt]:
        return [self.prompts.prompts[i] for i in self.order.take(position, count)]

    def _rollout(self) -> Rollout:
        n = self.config.batch_size // self.config.responses_per_prompt
        chosen = self._prompts_at(self.iteration * n, n)
        sync(self.engine, self.learner)
        generator = torch_stream(self.seed, "rollout", self.iteration)
        return self._sample(self.learner.policy, chosen, self.config.responses_per_prompt, generator)

    def _sample(self, model: CausalModel, prompts: Sequence[Prompt], k: int, generator: torch.Generator) -> Rollout:
        engine = self.engine if model is self.learner.policy else stateless(self.engine)
        with self.precision.autocast():
            return sample_rollout(
                model, self.codec, self.prompts, prompts, responses_per_prompt=k, generator=generator,
                max_new_tokens=self.config.max_new_tokens, temperature=self.config.temperature, device=self.device,
                world=self.world, engine=engine, limit=self.learner.memory.rollout,
            )  # fmt: skip

    def _reference_scores(self, prompts: Sequence[Prompt], n: int) -> np.ndarray:
        """Scores of n fresh responses of the reference to each prompt, [len(prompts), n]."""
        generator = torch_stream(self.seed, "reference", self.iteration)
        rollout = self._sample(self.reference, prompts, n, generator)
        return score(self.world, self.scorer, rollout).cpu().numpy().reshape(len(prompts), n)

    def _check_before(self, rollout: Rollout, logprobs: LogProbs) -> dict[str, float]:
        signals: dict[str, float] = {}
        if not samples_as_trainer(self.config, self.precision.dtype):
            mean, maximum = logprob_gap(rollout.logprobs, logprobs.old, rollout.response_mask)
            self.checks.gap(mean, maximum)
            signals |= {"rollout/logprob_gap_mean": mean, "rollout/logprob_gap_max": maximum}
        if self.iteration == 0:
            with self.precision.autocast():
                gap = padding_gap(self.learner.policy, rollout, self.config.temperature)
            self.checks.padding(gap)
            kl = float((logprobs.old - logprobs.reference)[rollout.response_mask].mean())
            self.checks.kl_at_start(kl)
            signals |= {"check/padding_gap": gap, "check/kl_at_start": kl}
        return signals

    # ---- records

    def _measure(self, step: int, signals: dict[str, float]) -> None:
        if self.probe is None or not self.probe.due(step, self.config.iterations):
            return
        samples: list[dict[str, Any]] = []
        figures: dict[str, float] = {}
        with gathered(self.learner.sharded), self.precision.autocast():
            if self.world.first:
                figures, samples = self.probe.measure(self.learner.policy, self.reference, step)
        figures = self.world.tell(figures)
        signals |= figures
        if self.run is not None:
            if step == 0:
                self.run.log("ppo", 0, figures)
            if samples:
                self.run.write_samples(samples)

    def _log(self, signals: dict[str, float]) -> None:
        self.result.history.append({"step": self.iteration, **signals})
        if self.run is not None:
            self.run.log("ppo", self.iteration, signals)

    def _ask(self, callbacks: Sequence[Callback], signals: Mapping[str, float]) -> None:
        for place in range(self.world.largest(len(callbacks)) if self.world.size > 1 else len(callbacks)):
            action = None
            if self.world.first and place < len(callbacks):
                action = callbacks[place].on_iteration(IterationView(self.iteration, signals, self.run))
            if self.world.size > 1:
                told_action = self.world.tell(None if action is None else action.to_dict())
                action = None if told_action is None else Action.from_dict(told_action)
            if action is not None:
                self._act(action)

    def _act(self, action: Action) -> None:
        self.actions.append({**action.to_dict(), "after": self.iteration})
        if action.kind == "stop":
            self.result.stopped = action.reason or "stopped by a callback"
        elif action.kind == "rollback":
            self.checkpoints.roll_back(action.step)
        else:
            self._set(action)
        if self.run is not None:
            self.run.record_action("ppo", self.iteration, action)

    def _set(self, action: Action) -> None:
        key = (action.key or "").removeprefix("ppo.")
        if key not in RUNTIME_KNOBS:
            raise TrimtabError(
                ErrorKind.USAGE,
                f"an action may not set {action.key!r} during a run",
                f"one of {', '.join(RUNTIME_KNOBS)}",
            )
        self.config = PPOConfig.model_validate(self.config.model_dump() | {key: action.value})
        if key == "beta":
            self.controller.load_state_dict(self.controller.state_dict() | {"beta": self.config.beta})
        rates = {"policy": self.config.learning_rate, "value": self.config.value_learning_rate}
        for name, optimiser in self.learner.optimisers.items():
            optimiser.base_learning_rate = rates[name]

    # ---- checkpoints

    def _checkpoint(self, callbacks: Sequence[Callback]) -> None:
        weights = fingerprint(self.learner.policy, self.learner.value)
        self.world.same("their weights", {f"sha256 after {self.iteration} iterations": weights})
        rest = {
            "iteration": self.iteration,
            "actions": self.actions,
            "knobs": {key: getattr(self.config, key) for key in RUNTIME_KNOBS},
            "stopped": self.result.stopped,
            "callbacks": {key: callback.state_dict() for key, callback in stateful(callbacks)},
        }
        self.checkpoints.save(self.iteration, rest, self.config.keep_checkpoints, self.result.history)

    def _resume(self, callbacks: Sequence[Callback]) -> None:
        state = self.checkpoints.latest()
        if state is None:
            if self.run is not None:  # an attempt that stopped before its first checkpoint begins again
                self.run.rewind("ppo", -1)
            return
        self.config = PPOConfig.model_validate(self.config.model_dump() | state["knobs"])
        self.checkpoints.take_up(state)
        self.iteration, self.actions = state["iteration"], state["actions"]
        self.result.stopped = state["stopped"]
        for key, callback in stateful(callbacks):
            if key in state["callbacks"]:  # one that is new since the checkpoint starts afresh
                callback.load_state_dict(state["callbacks"][key])
        history: list[dict[str, float]] = []
        if self.run is not None:
            self.run.rewind("ppo", self.iteration)
            history = [row for row in self.run.metrics("ppo") if 0 < row["step"] <= self.iteration]
        self.result.history = self.world.tell(history)
