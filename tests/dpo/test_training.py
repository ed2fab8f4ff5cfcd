"""`trimtab.dpo.train`: log-probabilities, loss and gradient of a batch, what is learned, kept and refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from dpo_training import CODEC, fork, started
from preference_training import die_at, polite_pairs, same_weights
from trimtab import dpo, preference
from trimtab.config.schema import DPOConfig
from trimtab.data.records import Pair, Response
from trimtab.dpo.lesson import Lesson
from trimtab.dpo.logprobs import PairLogprobs
from trimtab.errors import TrimtabError
from trimtab.models.roles import CausalModel
from trimtab.training.precision import Precision
from trimtab.worlds.gold import GoldScorer
from trimtab.worlds.model import build_model
from trimtab.worlds.tiny import prompts

CONFIG = DPOConfig(
    epochs=2, batch_size=8, learning_rate=1e-3, validation_fraction=0.25, max_tokens=40, checkpoint_every=3,
    max_new_tokens=8,
)  # fmt: skip
LAYOUTS = ("full", "top:1", "lora", "lora-top:1")
FLOAT32 = Precision("float32", torch.device("cpu"))


def lesson(policy: CausalModel, pairs, **settings) -> Lesson:
    found = Lesson(CONFIG.model_copy(update={"validation_fraction": 0.0, **settings}), policy, CODEC, pairs, 0, FLOAT32)
    found.read_reference(None)
    return found


def slow_logprob(model, pair: Pair, response: Response) -> torch.Tensor:
    """By the plain transformers model, one row at a time, in float64."""
    prompt, said = CODEC.prompt_ids(pair.prompt), CODEC.response_ids(response)
    logits = model(torch.tensor([prompt + said])).logits[0].double()
    logp = F.log_softmax(logits, -1)[len(prompt) - 1 : -1]
    return logp.gather(-1, torch.tensor(said)[:, None]).sum()


def mixed_labels(n: int = 6) -> list[Pair]:
    """Hard, soft, level and doubtful labels, weights, unfinished responses, and responses that begin alike."""
    pairs = polite_pairs(n)
    pairs[0] = replace(pairs[0], p_chosen=None, weight=2.0)
    pairs[1] = replace(pairs[1], p_chosen=0.5)
    pairs[2] = replace(pairs[2], p_chosen=0.3, rejected=Response(pairs[2].rejected.text, finished=False))
    pairs[3] = replace(pairs[3], rejected=Response(pairs[3].chosen.text + " " + pairs[3].rejected.text))
    return pairs


@pytest.mark.parametrize("layout", LAYOUTS)
def test_log_probabilities_are_those_of_the_plain_model(layout):
    pairs = mixed_labels()
    model = fork(layout)
    _, rows = dpo.readable(CONFIG, model, CODEC, pairs)
    found = PairLogprobs(model, rows, CODEC.pad_id)(range(len(pairs)))
    wanted = [[float(slow_logprob(model.hf, p, r)) for r in (p.chosen, p.rejected)] for p in pairs]
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("settings", [{}, {"label_smoothing": 0.1}, {"soft_labels": False}, {"language_coef": 0.5}])
def test_loss_and_gradient_are_those_of_a_slow_float64_sum(settings):
    pairs = mixed_labels()
    policy, at = fork(), list(range(6))
    task = lesson(policy, pairs, **settings)
    with torch.no_grad():  # away from the reference
        for p in policy.trainable_parameters():
            p.add_(0.02 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())))
    loss, signals = task.loss(at)
    loss.backward()

    slow, ref = build_model(0).double().eval(), build_model(0).double().eval()
    slow.load_state_dict(policy.hf.state_dict())
    total, smoothing = torch.zeros((), dtype=torch.float64), settings.get("label_smoothing", 0.0)
    for pair in pairs:
        p = 1.0 if pair.p_chosen is None else pair.p_chosen
        if settings.get("soft_labels") is False:
            p = {True: 1.0, False: 0.0}[p > 0.5] if p != 0.5 else 0.5
        p = p * (1 - smoothing) + (1 - p) * smoothing
        mine = slow_logprob(slow, pair, pair.chosen)
        lead = mine - slow_logprob(slow, pair, pair.rejected)
        with torch.no_grad():
            before = slow_logprob(ref, pair, pair.chosen) - slow_logprob(ref, pair, pair.rejected)
        lead = lead - before
        one = -(p * F.logsigmoid(CONFIG.beta * lead) + (1 - p) * F.logsigmoid(-CONFIG.beta * lead))
        one = one - settings.get("language_coef", 0.0) * mine / len(CODEC.response_ids(pair.chosen))
        total = total + pair.weight / 7 * one  # the weights' sum is 7; their mean is made 1, and the sum divided by 6
    total.backward()
    assert float(loss) == pytest.approx(float(total), rel=1e-5)
    theirs = dict(slow.named_parameters())
    for name, p in policy.hf.named_parameters():
        torch.testing.assert_close(p.grad.double(), theirs[name].grad, rtol=1e-4, atol=2e-6)
    if "language_coef" in settings:
        assert signals["loss/train"] + 0.5 * signals["dpo/language_loss"] == pytest.approx(float(loss), rel=1e-6)


def test_at_the_start_the_loss_is_log_2_rewards_are_0_and_accuracy_a_half():
    loss, signals = lesson(fork(), polite_pairs(6)).loss(list(range(6)))
    assert float(loss) == pytest.approx(math.log(2), abs=1e-6)
    assert signals["dpo/margin"] == pytest.approx(0, abs=1e-5)
    assert signals["dpo/chosen_change"] == pytest.approx(0, abs=1e-4)
    level = lesson(fork(), [replace(p, p_chosen=0.5) if i else p for i, p in enumerate(polite_pairs(6))])
    assert level.loss([1, 2])[1]["dpo/accuracy"] == 0.5


def test_an_update_in_micro_batches_has_the_gradient_of_the_whole():
    pairs, gradients = mixed_labels(), []
    for size in (None, 2):
        policy = fork()
        task = lesson(policy, pairs, micro_batch_size=size)
        parts = task.parts(list(range(6)))
        assert sorted(i for part in parts for i in part) == list(range(6))
        assert len(parts) == (1 if size is None else 3)
        for part in parts:
            (task.loss(part)[0] * len(part) / 6).backward()
        gradients.append([p.grad for p in policy.trainable_parameters()])
    for whole, summed in zip(*gradients, strict=True):
        torch.testing.assert_close(summed, whole, rtol=1e-4, atol=1e-6)


def test_a_prompt_is_computed_once_for_both_responses():
    pairs = polite_pairs(6)
    signals = lesson(fork(), pairs).loss(list(range(6)))[1]
    assert signals["tokens/computed"] < signals["tokens/needed"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_learns_which_response_is_better_and_leaves_what_is_frozen_alone(layout):
    policy = fork(layout)
    before = {name: p.clone() for name, p in policy.hf.named_parameters() if not p.requires_grad}
    config = CONFIG.model_copy(update={"epochs": 12, "learning_rate": 1e-3 if layout == "full" else 5e-3})
    result = dpo.train(config, policy, CODEC, polite_pairs(40))
    first, last = result.history[0], result.history[-1]
    assert (result.training_pairs, result.held_out_pairs) == (30, 10)
    assert last["accuracy/validation"] >= 0.9
    assert last["loss/validation"] < first["loss/train"] - 0.05
    assert last["held_out/dpo/margin"] > 0.1
    assert all(torch.equal(p, dict(policy.hf.named_parameters())[name]) for name, p in before.items())


def test_labels_of_one_half_leave_the_policy_where_it_was():
    pairs = [replace(p, p_chosen=0.5) for p in polite_pairs(20)]
    pairs[0] = replace(pairs[0], p_chosen=0.51)  # else there would be nothing to learn
    last = dpo.train(CONFIG.model_copy(update={"epochs": 4, "validation_fraction": 0.0}), fork(), CODEC, pairs).history
    assert max(abs(row["dpo/margin"]) for row in last) < 0.15
    assert last[-1]["loss/train"] == pytest.approx(math.log(2), abs=0.01)


def test_ipo_pulls_the_lead_to_its_aim_and_no_further():
    config = CONFIG.model_copy(update={"loss": "ipo", "beta": 0.5, "epochs": 60, "validation_fraction": 0.0})
    last = dpo.train(config, fork(), CODEC, [replace(p, p_chosen=None) for p in polite_pairs(8)]).history[-1]
    assert last["dpo/margin"] / 0.5 == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("layout", ["full", "top:1", "lora"])
def test_a_killed_training_goes_on_to_the_same_bits(layout, tmp_path):
    pairs, kept = polite_pairs(24), {}
    for name in ("whole", "killed"):
        run, policy = started(tmp_path, name), fork(layout)
        probes = dpo.HeldOut(prompts(4, 9), {"gold": GoldScorer()})

        def work(run=run, policy=policy, probes=probes):
            return dpo.train(CONFIG, policy, CODEC, pairs, run=run, held_out=probes)

        if name == "killed":
            die_at(run, 4, work)
            policy = fork(layout)
        work(policy=policy)
        metrics = [{k: v for k, v in row.items() if k != "time"} for row in run.metrics("dpo")]
        samples = [{k: v for k, v in sample.items() if k != "time"} for sample in run.samples()]
        kept[name] = policy, metrics, samples
    assert same_weights(kept["whole"][0], kept["killed"][0])
    assert kept["whole"][1:] == kept["killed"][1:]
    steps = [row["step"] for row in kept["whole"][1]]
    assert steps == list(range(len(steps)))
    assert {s["step"] for s in kept["whole"][2]} == {0, 3, len(steps) - 1}


def test_reference_log_probabilities_are_computed_once_and_found_again(tmp_path, monkeypatch):
    asked: list[int] = []
    call = PairLogprobs.__call__
    monkeypatch.setattr(PairLogprobs, "__call__", lambda self, at: (asked.append(len(at)), call(self, at))[1])
    run, pairs = started(tmp_path), polite_pairs(40)
    lessons = [Lesson(CONFIG, fork(), CODEC, pairs, 0, FLOAT32) for _ in range(3)]
    lessons[0].read_reference(run)
    assert sum(asked) == 40
    (path,) = (run.path / "artifacts" / "reference_logprobs").iterdir()
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == 40
    path.write_text("".join(lines[:35]) + lines[35][:9])  # a writer that was killed
    asked.clear()
    lessons[1].read_reference(run)
    assert sum(asked) == 8  # the second chunk of 32
    assert torch.equal(lessons[1]._reference, lessons[0]._reference)
    asked.clear()
    lessons[2].read_reference(run)
    assert asked == []
    run.begin_stage("dpo", "another beta")
    lessons[2].read_reference(run)
    assert asked == []
    other = fork()
    next(iter(other.trainable_parameters())).data[0, 0] += 0.5
    moved = Lesson(CONFIG, other, CODEC, pairs, 0, FLOAT32)
    moved.read_reference(run)  # of other weights nothing is taken
    assert sum(asked) == 40
    assert not torch.equal(moved._reference, lessons[0]._reference)


def test_the_same_prompts_are_held_out_as_by_the_preference_model():
    pairs = polite_pairs(30)
    assert dpo.split_by_prompt(pairs, 0.2, 5) == preference.split_by_prompt(pairs, 0.2, 5)
    assert dpo.split_by_prompt(pairs, 0.0, 5) == (pairs, [])


def test_probes_tell_the_kl_the_measures_and_the_samples(tmp_path):
    run = started(tmp_path)
    dpo.train(
        CONFIG.model_copy(update={"epochs": 8}), fork(), CODEC, polite_pairs(24), run=run,
        held_out=dpo.HeldOut(prompts(6, 9), {"gold": GoldScorer()}), scorer=GoldScorer(),
    )  # fmt: skip
    probed = [row for row in run.metrics("dpo") if "kl/reference" in row]
    assert probed[0]["step"] == 0
    assert probed[0]["kl/reference"] == pytest.approx(0, abs=1e-3)
    assert probed[-1]["kl/reference"] > 0.1
    assert probed[-1]["gold/mean"] == probed[-1]["eval/score"]
    samples = run.samples(probed[-1]["step"], "dpo")
    assert len(samples) == 6
    assert np.mean([s["kl"] for s in samples]) == pytest.approx(probed[-1]["kl/reference"])


def test_patience_takes_the_weights_with_the_lowest_held_out_loss():
    rng = np.random.default_rng(0)
    pairs = [replace(p, p_chosen=1.0) if rng.random() < 0.5 else replace(p, chosen=p.rejected, rejected=p.chosen)
             for p in polite_pairs(24)]  # fmt: skip
    settings = {"epochs": 40, "learning_rate": 3e-3, "patience": 2}
    policy = fork()
    result = dpo.train(CONFIG.model_copy(update=settings), policy, CODEC, pairs)
    losses = [row["loss/validation"] for row in result.history if "loss/validation" in row]
    assert len(result.history) < 90
    assert min(losses) < losses[-1]


def test_what_cannot_be_trained_on_is_refused_by_name():
    pairs = polite_pairs(6)
    for bad, settings, told in (
        ([], {}, "cannot be split"),
        ([], {"validation_fraction": 0.0}, "none of 0 training pairs"),
        ([replace(p, p_chosen=0.5) for p in pairs], {}, "ties"),
        ([replace(p, rejected=p.chosen) for p in pairs], {}, "same tokens"),
        ([replace(p, weight=0.0) for p in pairs], {}, "weight 0"),
        (pairs, {"max_tokens": 3}, "dpo.max_tokens"),
        ([replace(pairs[0], rejected=Response("", finished=False)), *pairs[1:]], {}, "rejected response has no token"),
    ):
        with pytest.raises(TrimtabError, match=told):
            dpo.train(CONFIG.model_copy(update=settings), fork(), CODEC, bad)
    long = replace(pairs[0], chosen=Response(" ".join(["tree"] * 60)))
    dropped = CONFIG.model_copy(update={"too_long": "drop", "epochs": 1})
    assert dpo.train(dropped, fork(), CODEC, [long, *pairs[1:]]).training_pairs == 4
    with pytest.raises(ValueError, match="validation_fraction above 0"):
        DPOConfig(patience=1, validation_fraction=0.0)
