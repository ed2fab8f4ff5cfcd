"""The DPO stage: labeled pairs in, a policy out.

Reads: pairs, hard or soft. Writes: the policy, trained in place. What it was at the call is the reference; its
log-probabilities of the pairs are computed once. The implicit reward of a response is beta times what the policy's
log-probability of it is above the reference's (Rafailov et al., arXiv 2305.18290). Left out on purpose: several
processes, and margins in the data.

    result = trimtab.dpo.train(DPOConfig(...), policy, codec, pairs, seed=0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trimtab.config.schema import DPOConfig
from trimtab.data.records import Pair
from trimtab.dpo.lesson import Lesson
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec
from trimtab.runs.run import Run
from trimtab.scoring import Scorer
from trimtab.training.precision import Precision
from trimtab.training.probe import HeldOut, Probe, text_signals
from trimtab.training.supervised import fit

__all__ = ["DPOResult", "train"]


@dataclass
class DPOResult:
    """The trained policy, how many pairs it learned from and was measured on, and the signals of every update."""

    policy: CausalModel
    training_pairs: int
    held_out_pairs: int
    history: list[dict[str, float]] = field(default_factory=list)


def train(
    config: DPOConfig,
    policy: CausalModel,
    codec: TextCodec,
    pairs: Sequence[Pair],
    *,
    run: Run | None = None,
    seed: int = 0,
    precision: Precision | None = None,
    held_out: HeldOut | None = None,
    scorer: Scorer | None = None,
) -> DPOResult:
    """Train `policy` in place on labeled pairs; its state at the call is the reference.

    A training that was stopped, killed or not, goes on from the last checkpoint in `run` to the same weights, bit for
    bit.

    Args:
        config: the `[dpo]` section.
        policy: a trainable fork of the SFT model; with shared layers or adapters the rest is in memory once.
        codec: its tokenizer.
        pairs: labeled; weights are honoured in training, and what is measured on held-out pairs counts each once.
        run: where metrics, samples, checkpoints and the reference's log-probabilities go.
        seed: of the order of the pairs, the split and the probes.
        precision: what is computed in; None: float32.
        held_out: prompts sampled at every checkpoint (its `every` is not read), which tell the KL to the reference, and
            measures that score the responses.
        scorer: a score that is looked at beside, such as a preference model's on the same pairs: `eval/score`.

    Raises:
        TrimtabError: too few prompts, a pair that is too long, no pair with a weight, or none that prefers one response
            to the other.
    """
    precision = precision or Precision("float32", policy.device)
    lesson = Lesson(config, policy, codec, pairs, seed, precision)
    lesson.read_reference(run)
    looks = None
    if held_out is not None and held_out.prompts:
        looks = _Looks(config, policy, codec, held_out, scorer, seed, run, precision)
    history = fit(
        "dpo", policy, lesson.loss, len(lesson.training), config, precision=precision, seed=seed, run=run,
        validate=lesson.validate if lesson.held_out else None, patience=config.patience, parts_of=lesson.parts,
        schedule=config.learning_rate_schedule, probe=looks, keep=config.keep_checkpoints,
    )  # fmt: skip
    return DPOResult(policy, len(lesson.training), len(lesson.held_out), history)


class _Looks:
    """What the policy says to held-out prompts: the KL to the reference, measures, samples."""

    def __init__(
        self,
        config: DPOConfig,
        policy: CausalModel,
        codec: TextCodec,
        held_out: HeldOut,
        scorer: Scorer | None,
        seed: int,
        run: Run | None,
        precision: Precision,
    ) -> None:
        self._policy, self._reference = policy, policy.fork(trainable=False)
        self._run, self._precision = run, precision
        self._probe = Probe(
            "dpo", held_out, policy, codec, scorer, seed, temperature=config.temperature,
            max_new_tokens=config.max_new_tokens, samples=len(held_out.prompts),
        )  # fmt: skip

    def __call__(self, step: int) -> dict[str, float]:
        with self._precision.autocast():
            figures, samples = self._probe.measure(self._policy, self._reference, step)
        if self._run is not None:
            self._run.write_samples(samples)
        kl, tokens = (sum(sample[key] for sample in samples) for key in ("kl", "length"))
        finished = sum(sample["stop_reason"] == "eos" for sample in samples)
        return {
            "kl/reference": kl / len(samples),
            "kl/reference_per_token": kl / tokens,
            "response/length_mean": tokens / len(samples),
            "response/finished_fraction": finished / len(samples),
            **text_signals([sample["response"] for sample in samples]),
            **figures,
        }
