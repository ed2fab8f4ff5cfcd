"""One iteration of TRL's PPOTrainer, and ours on the tokens that it sampled.

TRL's trainer runs unchanged. What it computed is read where it logs, from the variables of its `train`; gradients by a
hook on its optimiser. From it we take the sampled tokens and nothing else: scores, values, log-probabilities, KL,
rewards, advantages, returns, losses, gradients and weights are computed by our code from the same start weights.

Two conventions of TRL are laid over ours, so that the rest can be compared: deviations are divided by n - 1 (`bessel`),
and a response that has ended gets one more position, which carries the score and a value, but no KL and no policy loss.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from bench.parity.functions import bessel
from bench.parity.models import EOS, PAD, causal, scalar, tokenizer
from bench.parity.table import Rows

RATE, EPSILON = 3e-3, 1e-3
"""AdamW's: steps far above the bound, and an epsilon under which rounding does not decide the sign of a step."""


@dataclass(frozen=True)
class Case:
    """Settings of an iteration."""

    name: str
    batch: int = 8
    prompt: int = 6
    response: int = 12
    epochs: int = 4
    minibatches: int = 2
    estimator: str = "k1"
    kl_coef: float = 0.1
    gamma: float = 1.0
    lam: float = 0.95
    clip: float = 0.2
    value_clip: float = 0.2
    vf_coef: float = 0.5
    temperature: float = 0.7
    whiten_rewards: bool = False
    vocabulary: int = 2048
    """Large where no response is to end; small where EOS is to be sampled."""
    stop: bool = False
    missing_eos_penalty: float | None = None


CASES = (
    Case("plain"),
    Case("k3", estimator="k3", kl_coef=0.3),
    Case("one update", epochs=1, minibatches=1),
    Case("discounted", gamma=0.9, lam=0.5, batch=4, response=20, minibatches=1),
    Case("Monte Carlo", lam=1.0, batch=12, response=5, minibatches=3),
    Case("one step", lam=0.0, value_clip=0.05, clip=0.05),
    Case("rewards whitened", whiten_rewards=True, batch=16),
    Case("temperature 1", temperature=1.0, batch=6, minibatches=1, kl_coef=0.0, vf_coef=0.1),
    Case("two responses", batch=2, response=30, minibatches=1, epochs=2),
    Case("ended", vocabulary=40, stop=True, batch=16, response=16),
    Case("ended, penalised", vocabulary=40, stop=True, batch=16, response=24, missing_eos_penalty=1.0, estimator="k3"),
    Case(
        "ended, rewards whitened", vocabulary=40, stop=True, batch=16, response=16, whiten_rewards=True, gamma=0.95,
        minibatches=1,
    ),
)  # fmt: skip


@dataclass
class Start:
    """The weights that both sides start from."""

    policy: Any
    reference: Any
    value: Any
    reward: Any

    @classmethod
    def drawn(cls, vocabulary: int, seed: int) -> Start:
        policy = causal(vocabulary, 4 * seed)
        reference = copy.deepcopy(policy)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():  # near the policy, so that the KL is neither 0 nor all there is
            for parameter in reference.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.02)
        return cls(policy, reference, scalar(vocabulary, 4 * seed + 1), scalar(vocabulary, 4 * seed + 2))

    def copied(self) -> Start:
        return copy.deepcopy(self)


@dataclass
class Seen:
    """What TRL's trainer computed: the variables of its `train`, its gradients by update, its weights at the end."""

    found: dict[str, Any]
    gradients: list[dict[str, Tensor]]
    weights: dict[str, Tensor]


def permutations(seed: int) -> Any:
    """numpy's permutation, drawn from torch as our updates draw it, so that both sides have the same minibatches."""
    generator = torch.Generator().manual_seed(seed)
    return lambda n: torch.randperm(n, generator=generator).numpy()


def theirs(case: Case, start: Start, seed: int, max_grad_norm: float = 1.0) -> Seen:
    """One iteration of TRL's trainer."""
    from datasets import Dataset
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    words = tokenizer(case.vocabulary)
    generator = torch.Generator().manual_seed(seed)
    prompts = []
    for row in range(case.batch):
        width = case.prompt - (row % 3 if case.prompt > 3 else 0)
        prompts.append(torch.randint(3, case.vocabulary, (width,), generator=generator).tolist())
    data = Dataset.from_dict({"input_ids": prompts})
    found: dict[str, Any] = {}
    gradients: list[dict[str, Tensor]] = []

    class Trainer(PPOTrainer):  # type: ignore[misc]
        def log(self, *_: Any, **__: Any) -> None:
            found.update({k: v.clone() for k, v in sys._getframe(1).f_locals.items() if isinstance(v, Tensor)})

    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(sys.stderr):
        arguments = PPOConfig(
            output_dir=directory, per_device_train_batch_size=case.batch, gradient_accumulation_steps=1,
            num_mini_batches=case.minibatches, num_ppo_epochs=case.epochs, total_episodes=case.batch,
            response_length=case.response, num_sample_generations=0, report_to=[], save_strategy="no", use_cpu=True,
            bf16=False, temperature=case.temperature, learning_rate=RATE, adam_epsilon=EPSILON, logging_steps=1,
            disable_tqdm=True, gradient_checkpointing=False, lr_scheduler_type="constant", weight_decay=0.0,
            kl_estimator=case.estimator, kl_coef=case.kl_coef, gamma=case.gamma, lam=case.lam, cliprange=case.clip,
            cliprange_value=case.value_clip, vf_coef=case.vf_coef, whiten_rewards=case.whiten_rewards,
            stop_token="eos" if case.stop else None, missing_eos_penalty=case.missing_eos_penalty, seed=seed,
            max_grad_norm=max_grad_norm,
        )  # fmt: skip
        trainer = Trainer(
            args=arguments, processing_class=words, model=start.policy, ref_model=start.reference,
            reward_model=start.reward, value_model=start.value, train_dataset=data, eval_dataset=data,
        )  # fmt: skip

        def keep(*_: Any) -> None:
            named = trainer.model.named_parameters()
            gradients.append({name: p.grad.clone() for name, p in named if p.grad is not None})

        trainer.optimizer.optimizer.register_step_pre_hook(keep)
        with mock.patch.object(np.random, "permutation", permutations(seed)):
            trainer.train()
    weights = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    return Seen(found, gradients, weights)


@dataclass
class Masks:
    """Which positions count: those of the response; and with the one after its end, where there is room."""

    response: Tensor
    longer: Tensor

    @classmethod
    def of(cls, seen: Seen) -> Masks:
        response = ~seen.found["padding_mask"]
        return cls(response, ~seen.found["padding_mask_p1"])


def usable(case: Case, seen: Seen) -> bool:
    """Whether TRL takes the rollout for what it is.

    A pad token that is sampled ends the response before it for TRL. Then our masks follow TRL's, but it must not have
    emptied the response, nor stand before an EOS, which TRL still counts as seen.
    """
    responses, lengths = seen.found["responses"], seen.found["sequence_lengths"]
    if not case.stop:
        return not bool((responses == PAD).any())
    counted = ~seen.found["padding_mask"]
    ended = ((responses == EOS) & counted).any(1)
    return bool((lengths >= 0).all()) and bool((ended == seen.found["contain_eos_token"]).all()) and bool(ended.any())


@contextlib.contextmanager
def their_whitening(masks: Masks) -> Iterator[None]:
    """Our whitening with TRL's divisor n - 1 and its masks."""
    from trimtab.core.masked import masked_mean, whiten

    def changed(x: Tensor, mask: Tensor, shift_mean: bool = True) -> Tensor:
        mask = masks.response if shift_mean else masks.longer
        mean = 0.0 if shift_mean else masked_mean(x, mask)
        found = (whiten(x, mask, shift_mean) - mean) * bessel(mask.sum()) + mean
        return torch.where(mask, found, 0.0)

    with mock.patch("trimtab.ppo.experience.whiten", changed):
        yield


def settings(case: Case) -> Any:
    from trimtab.config.ppo import PPOConfig

    return PPOConfig.model_validate({
        "iterations": 1, "batch_size": case.batch, "max_new_tokens": case.response, "temperature": case.temperature,
        "epochs": case.epochs, "minibatches": case.minibatches, "learning_rate": RATE, "value_learning_rate": RATE,
        "adam_epsilon": EPSILON, "kl_estimator": case.estimator, "beta": case.kl_coef, "gamma": case.gamma,
        "gae_lambda": case.lam, "clip_range": case.clip, "value_clip_range": case.value_clip,
        "reward_whitening": case.whiten_rewards, "gradient_clip": "joint", "max_grad_norm": 1e9,
        "value_coef": case.vf_coef / 2,
    })  # fmt: skip


class Ours:
    """Our side of a case, from the tokens that TRL sampled."""

    def __init__(self, case: Case, start: Start, seen: Seen, seed: int) -> None:
        from trimtab.models.roles import CausalModel, ScalarModel
        from trimtab.ppo.building import make_learner
        from trimtab.training.precision import Precision

        self.case, self.seen, self.seed, self.config = case, seen, seed, settings(case)
        self.masks = Masks.of(seen)
        base = CausalModel(start.policy)
        reference = CausalModel(start.reference)
        reference.requires_grad_(False)
        self.reward = ScalarModel(start.reward)
        self.learner = make_learner(
            self.config, base.fork(trainable=True), reference, ScalarModel(start.value),
            Precision("float32", torch.device("cpu")),
        )  # fmt: skip

    def rollout(self) -> Any:
        from trimtab.models.logprobs import response_logprobs
        from trimtab.ppo.rollout import Rollout

        ids, prompts = self.seen.found["query_responses"], self.seen.found["queries"]
        width = prompts.shape[1]
        mask = torch.cat([prompts != PAD, self.masks.response], 1)
        with torch.no_grad():
            logprobs = response_logprobs(self.learner.policy, ids, mask, width, self.config.temperature).logprobs
        finished = ((ids[:, width:] == EOS) & self.masks.response).any(1)
        rows = [None] * len(ids)
        return Rollout(
            rows, rows, ids, mask, width, self.masks.response, logprobs, finished, torch.arange(len(ids))  # type: ignore[arg-type]
        )  # fmt: skip

    def compare(self, rows: Rows) -> None:
        """One row for each quantity, in the order of the iteration."""
        from trimtab.core.kl import kl_estimate
        from trimtab.core.rewards import penalise
        from trimtab.ppo.experience import LogProbs, build_experience
        from trimtab.ppo.shared import evaluate
        from trimtab.training.world import World

        found, masks, case = self.seen.found, self.masks, self.case
        rollout = self.rollout()
        logprobs, values, _ = evaluate(World.single(), self.learner, rollout, self.config, None)
        assert values is not None
        with torch.no_grad():
            scores = self.reward.score(rollout.ids, rollout.mask)
        scores = penalise(scores, rollout.lengths, rollout.finished, 0.0, case.missing_eos_penalty or 0.0)
        of = "PPOTrainer.train"
        r, longer = masks.response, masks.longer
        rows.of("log-probabilities of a rollout", of).add(logprobs.old[r], found["logprobs"][r])
        rows.of("the reference's", of).add(logprobs.reference[r], found["ref_logprobs"][r])
        rows.of("values of a rollout", of).add(values[longer], found["values"][longer])
        rows.of("scores of a rollout", of).add(scores, found["scores"])
        kl = kl_estimate(logprobs.old, logprobs.reference, case.estimator)
        rows.of(f"KL, {case.estimator}", of).add(kl[r], found["kl"][r])

        # the position after the end: no KL
        level = LogProbs(*(torch.where(r, x, 0.0) for x in (logprobs.old, logprobs.reference)))
        with their_whitening(masks):
            theirs_way = build_experience(
                replace(rollout, response_mask=longer), level, scores, values, self.config, case.kl_coef
            )
        rows.of("rewards" + (", whitened" if case.whiten_rewards else ""), of).add(
            theirs_way.rewards[longer], found["rewards"][longer]
        )
        rows.of("advantages, whitened", of).add(theirs_way.advantages[r], found["advantages"][r])
        rows.of("returns", of).add(theirs_way.returns[longer], found["returns"][longer])  # type: ignore[index]
        own_way = build_experience(rollout, logprobs, scores, values, self.config, case.kl_coef)
        name = "advantages as we make them, " + ("responses that ended" if case.stop else "full responses")
        rows.of(name, of, None).add(own_way.advantages[r], found["advantages"][r])
        self._update(rows, theirs_way)

    def _update(self, rows: Rows, experience: Any) -> None:
        from trimtab.ppo.update import update

        gradients: list[dict[str, Tensor]] = []
        roles = {"policy": self.learner.policy, "value": self.learner.value}

        def keep(role: str) -> Any:
            named = [(n, p) for n, p in roles[role].named_parameters() if p.requires_grad]  # type: ignore[union-attr]
            return lambda *_: gradients.append({n: p.grad.clone() for n, p in named if p.grad is not None})

        for role, optimiser in self.learner.optimisers.items():
            optimiser.torch.register_step_pre_hook(keep(role))
        parts = []
        for role, mask in (("policy", self.masks.response), ("value", self.masks.longer)):
            learner = replace(
                self.learner, value=self.learner.value if role == "value" else None,
                optimisers={role: self.learner.optimisers[role]},
            )  # fmt: skip
            stats = update(
                learner, replace(experience, response_mask=mask), self.config, self.case.kl_coef,
                torch.Generator().manual_seed(self.seed), train_policy=role == "policy",
            )  # fmt: skip
            parts.append(stats.signals())
        self._losses(rows, parts[0] | parts[1])
        updates = self.case.epochs * self.case.minibatches
        self._weights(rows, gradients[:updates], gradients[updates:])

    def _losses(self, rows: Rows, ours: dict[str, float]) -> None:
        found, of = self.seen.found, "PPOTrainer.train, mean of the updates"
        rows.of("policy loss", of).add(ours["policy/loss"], float(found["pg_loss_stats"].mean()))
        rows.of("value loss / 2", of).add(ours["value/loss"] / 2, float(found["vf_loss_stats"].mean()))
        rows.of("policy clip fraction", of).add(ours["policy/clip_fraction"], float(found["pg_clipfrac_stats"].mean()))
        rows.of("value clip fraction", of).add(ours["value/clip_fraction"], float(found["vf_clipfrac_stats"].mean()))
        if not self.case.stop:  # TRL's mean is over padding, too
            rows.of("entropy in the first epoch", of).add(
                ours["policy/entropy"], float(found["entropy_stats"][0].mean())
            )

    def _weights(self, rows: Rows, policy: list[dict[str, Tensor]], value: list[dict[str, Tensor]]) -> None:
        kinds = (("policy", "policy.", policy), ("value", "value_model.", value))
        for role, prefix, gradients in kinds:
            for number, (ours, peer) in enumerate(zip(gradients, self.seen.gradients, strict=True)):
                when = "first update" if number == 0 else "later updates"
                row = rows.of(f"gradient of the {role}, {when}", "PPOTrainer.train, hook")
                names = sorted(ours)
                theirs = [peer[prefix + name.removeprefix("hf.")].flatten() for name in names]
                row.add(torch.cat([ours[name].flatten() for name in names]), torch.cat(theirs))
            model = self.learner.policy if role == "policy" else self.learner.value
            assert model is not None
            row = rows.of(f"weights of the {role} after all updates", "PPOTrainer.train")
            for name, parameter in model.hf.named_parameters():
                row.add(parameter, self.seen.weights[prefix + name])


def compare(rows: Rows, seeds: int) -> list[str]:
    """All cases, each with so many seeds; what was tried, a line each."""
    told = []
    for case in CASES:
        made = 0
        for seed in range(100 * seeds):
            start = Start.drawn(case.vocabulary, seed)
            seen = theirs(case, start.copied(), seed)
            if not usable(case, seen):
                continue
            ours = Ours(case, start.copied(), seen, seed)
            ours.compare(rows)
            made += 1
            if made == seeds:
                break
        if made < seeds:
            raise RuntimeError(f"case {case.name!r}: only {made} rollouts of {seeds} without a sampled pad token")
        told.append(f"{case.name}: {case.batch} x {case.response} tokens, {case.epochs} x {case.minibatches} updates")
    return told


def their_clip(seed: int = 0) -> float:
    """How far TRL's weights move apart under two gradient clips: 0, as its loop never clips."""
    case = CASES[2]
    start = Start.drawn(case.vocabulary, seed)
    loose, tight = (theirs(case, start.copied(), seed, norm).weights for norm in (1e9, 1e-6))
    return max(float((loose[name] - tight[name]).abs().max()) for name in loose)
