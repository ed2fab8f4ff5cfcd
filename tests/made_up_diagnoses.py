"""Made-up diagnoses for tests of what shows them; `sick()` is also good to look at."""

from __future__ import annotations

import numpy as np

from trimtab.doctor.diagnosis import Diagnosis, Status
from trimtab.doctor.finding import Evidence, Finding, Message, NotDiagnosable, Prescription, Severity
from trimtab.doctor.log import Log, Series, Skipped, Stage, Unit

STEPS = np.arange(1, 201)
ONSETS = {"length": 64, "kl": 88, "entropy": 120}


def ramp(low: float, high: float, onset: int, seed: int = 0) -> np.ndarray:
    """Flat at `low` until `onset`, then straight to `high`, with some noise."""
    share = np.clip((STEPS - onset) / (STEPS[-1] - onset), 0, 1)
    noise = np.random.default_rng(seed).normal(0, 0.02 * abs(high - low), len(STEPS))
    return low + (high - low) * share + noise


def series(key: str, name: str, values: np.ndarray, unit: Unit) -> Series:
    return Series(key, name, STEPS.astype(np.int64), values.astype(np.float64), unit)


def log(framework: str = "trl", path: str = "runs/grpo/trainer_state.json") -> Log:
    rows = [
        series("response/length_mean", "completions/mean_length", ramp(212, 903, 64, 1), Unit.TOKENS),
        series("kl/reference_per_token", "kl", ramp(0.02, 2.4, 88, 2), Unit.NATS_PER_TOKEN),
        series("policy/entropy", "entropy", ramp(1.1, 0.07, 120, 3), Unit.NATS_PER_TOKEN),
        series("score/mean", "reward", ramp(0.3, 1.7, 64, 4), Unit.SCORE),
    ]
    return Log(
        path=path,
        format="hf-log-history",
        framework=framework,
        stage=Stage.POLICY,
        algorithm="grpo",
        rows=200,
        steps=(1, 200),
        planned_steps=400,
        series={s.key: s for s in rows},
        skipped=(Skipped("not JSON", 3, 20, "{'loss': nan"),),
        unmapped=("my_metric", "lr_group_2"),
    )


def evidence(text: str, signal: str, of: Log, key: str, **values: object) -> Evidence:
    found = of.series[key]
    return Evidence(Message(text, values), signal, 200, float(found.values[-1]), tuple(found.values[::4].tolist()))


def length(of: Log) -> Finding:
    return Finding(
        "length-exploitation",
        Severity.CRITICAL,
        64,
        (
            evidence(
                "Responses grew from {a} to {b} tokens.",
                "completions/mean_length",
                of,
                "response/length_mean",
                a=212,
                b=903,
            ),
            Evidence(Message("Length explains {share:.0%} of the gain in reward.", {"share": 0.87}), value=0.87),
        ),
        Message("The score pays for length: responses grow and the reward with them, since step {step}.", {"step": 64}),
        (Message("A change of the prompts: their length is the same before and after."),),
        (
            Prescription({"beta": 0.08}, Message("A stronger tie to the reference makes padding cost.")),
            Prescription({"learning_rate": "x0.5"}, Message("Smaller steps leave time for the KL to bite.")),
        ),
        source="AlpacaEval's annotator table",
    )


def consequences(of: Log) -> tuple[Finding, ...]:
    kl = Finding(
        "kl-explosion", Severity.CRITICAL, 88,
        (evidence("The KL per token rose to {x} nats.", "kl", of, "kl/reference_per_token", x=2.4),),
        Message("The policy leaves its reference."), (Message("A single spike of k3: the median rose too."),),
        (Prescription({"beta": "x2"}, Message("Pulls it back.")),), because_of="length-exploitation",
    )  # fmt: skip
    entropy = Finding(
        "entropy-collapse", Severity.WARNING, 120,
        (evidence("Entropy fell to {x} nats a token.", "entropy", of, "policy/entropy", x=0.07),),
        Message("Responses become all alike."), (), (), because_of="kl-explosion",
    )  # fmt: skip
    truncated = Finding(
        "truncated-responses", Severity.WARNING, 130,
        (Evidence(Message("{x:.0%} of the responses are cut off.", {"x": 0.87}), value=0.87),),
        Message("Responses run into the limit."), because_of="length-exploitation",
    )  # fmt: skip
    return kl, entropy, truncated


def sick(framework: str = "trl") -> Diagnosis:
    of = log(framework)
    hint = Finding("reward-hacking", Severity.INFO, 70, (), Message("Measure something independent to know."))
    return Diagnosis(
        Status.SICK,
        "length-exploitation",
        (length(of), *consequences(of), hint),
        (
            NotDiagnosable("value-not-learning", ("val/explained_variance",)),
            NotDiagnosable("diverging-loss", ("val/explained_variance",)),
            NotDiagnosable("negative-kl", ("objective/kl",), "unit-unknown"),
            NotDiagnosable("oscillating", (), "too-short"),
        ),
        ("kl-explosion", "entropy-collapse", "nan-inf", "no-gradient", "length-exploitation"),
        (of,),
        {of.path: of.format},
        of.skipped,
    )


def healthy() -> Diagnosis:
    of = log()
    return Diagnosis(Status.HEALTHY, None, (), (), ("kl-explosion", "nan-inf"), (of,), {of.path: of.format})


def inconclusive() -> Diagnosis:
    unmade = (NotDiagnosable("kl-explosion", ("kl",)),)
    return Diagnosis(Status.INCONCLUSIVE, None, (), unmade, ("nan-inf",), (), {"x.jsonl": "jsonl"})
