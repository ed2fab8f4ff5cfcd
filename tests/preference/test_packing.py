"""Rows packed by what they begin with: scores and gradients of rows that stand alone, from fewer tokens."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from preference_training import CONFIG, base, die_at, noise, polite_pairs, ranked, same_weights, started
from trimtab import preference
from trimtab.config.schema import PreferenceConfig
from trimtab.models.kept import TrunkCache
from trimtab.models.packing import common_start, cut, plan
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.models.tokens import TextCodec, right_pad
from trimtab.preference.dropout import Dropout
from trimtab.preference.pairs import PairScores
from trimtab.preference.training import PairScores as UsedScores
from trimtab.training.precision import Precision
from trimtab.training.supervised import fit
from trimtab.worlds.model import build_tokenizer

CPU = torch.device("cpu")
PAD = 0


def llama(boundary: int = 0, attention: str = "sdpa", seed: int = 0) -> ScalarModel:
    """Three layers, two heads to one of keys, so that attention has groups."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=96, pad_token_id=PAD, initializer_range=0.3,
        attn_implementation=attention,
    )  # fmt: skip
    causal = CausalModel(LlamaForCausalLM(config), boundary)
    return ScalarModel.from_causal(causal, generator=torch.Generator().manual_seed(seed))


MODELS = {boundary: llama(boundary) for boundary in (0, 1, 3)}


def alone(model: ScalarModel, rows) -> torch.Tensor:
    """The score of each row by itself, without padding, by the model's own forward."""
    return torch.cat([model.score(torch.tensor([row]), torch.ones(1, len(row), dtype=torch.bool)) for row in rows])


def derivatives(model: ScalarModel, scores: torch.Tensor) -> list[torch.Tensor]:
    """Gradients of a fixed mixture of the scores."""
    model.zero_grad()
    (scores * torch.linspace(-1, 2, len(scores))).sum().backward()
    return [torch.zeros(()) if p.grad is None else p.grad.clone() for p in model.trainable_parameters()]


tokens = st.integers(1, 39)
pair = st.tuples(*(st.lists(tokens, max_size=size) for size in (14, 9, 9))).filter(lambda p: p[0] or (p[1] and p[2]))


@settings(max_examples=40)
@given(st.lists(pair, min_size=1, max_size=6), st.sampled_from([0, 1, 3]), st.booleans())
def test_packed_scores_and_gradients_are_those_of_rows_that_stand_alone(parts, boundary, grouped):
    """Of any lengths: no common start, a response that begins the other, two that are the same, none at all."""
    pairs = [(prompt + a, prompt + b) for prompt, a, b in parts]
    model = MODELS[boundary]
    prompts = [i // 2 for i in range(len(pairs))] if grouped else None
    chosen, rejected = PairScores(model, pairs, PAD, prompts=prompts)(range(len(pairs)))
    got = torch.cat([chosen, rejected])
    expected = alone(model, [row for row, _ in pairs] + [row for _, row in pairs])
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(derivatives(model, got), derivatives(model, expected), strict=True):
        scale = float(theirs.abs().max()) if theirs.numel() else 0.0
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5 * max(1.0, scale))


LONG = list(range(1, 31))
CASES = {
    "nothing in common": ([5, 6, 7], [8, 9]),
    "the same twice": (LONG, LONG),
    "one begins the other": (LONG, [*LONG, 3, 4]),
    "the other begins the one": ([*LONG, 3, 4], LONG),
    "one token of their own": ([*LONG, 3], [*LONG, 4]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_edge_cases_of_a_common_start(case, attention):
    model, rows = llama(attention=attention), CASES[case]
    scores = PairScores(model, [rows], PAD)
    got = torch.cat(scores([0]))
    torch.testing.assert_close(got, alone(model, rows), rtol=1e-5, atol=1e-5)
    if case != "nothing in common":
        assert scores.computed == 30 + (0 if case == "the same twice" else sum(len(r) - 30 for r in rows))


def test_a_common_prompt_is_computed_once_for_all_pairs_of_it_that_fit():
    rows = [([*LONG, 31, i], [*LONG, 32, i]) for i in range(1, 4)]
    apart, together = PairScores(llama(), rows, PAD), PairScores(llama(), rows, PAD, prompts=[0, 0, 0])
    assert torch.allclose(torch.cat(apart([0, 1, 2])), torch.cat(together([0, 1, 2])), atol=1e-5)
    assert apart.computed == 3 * (30 + 2 + 2)
    # two rows are always put together; a third one only where that is no wider than the model, 32
    assert together.computed == 3 * (30 + 2 + 2)
    short = [([1, 2, 3, 31, i], [1, 2, 3, 32, i]) for i in range(1, 4)]
    together = PairScores(llama(), short, PAD, prompts=[0, 0, 0])
    together([0, 1, 2])
    assert together.computed == 3 + 6 * 2
    assert together.needed([0, 1, 2]) == 6 * 5


def test_rows_share_no_more_than_all_of_them_begin_with():
    """The third row begins as the first does, for longer than the second."""
    rows = [([1, 2, 3, 4, 5, 6], [1, 2, 3, 9]), ([1, 2, 3, 4, 5, 7], [1, 2, 3, 4, 8])]
    scores = PairScores(llama(), rows, PAD, prompts=[0, 0])
    got = torch.cat(scores([0, 1]))
    torch.testing.assert_close(got, alone(llama(), [rows[0][0], rows[1][0], rows[0][1], rows[1][1]]))
    assert scores.computed == 3 + 3 + 1 + 3 + 2


def test_where_nothing_is_saved_rows_are_not_packed():
    rows = [[1, 2, 3], [4, 5]]
    (batch,) = plan(rows, ["a", "a"], 32, PAD, CPU)
    assert batch.mask.ndim == 2
    assert batch.ids.tolist() == [[4, 5, PAD], [1, 2, 3]]
    # one common token is not worth a row of twice the width
    wide = [[1, *range(2, 200)], [1, *range(200, 398)]]
    assert plan(wide, ["a", "a"], 8, PAD, CPU)[0].mask.ndim == 2
    # nor does a model that is fed whole
    assert plan([LONG, LONG], None, 32, PAD, CPU)[0].ids.shape == (2, 30)


def test_the_tensors_of_a_packed_row_by_hand():
    (batch,) = plan([[7, 8, 1], [7, 8, 2, 3], [5]], ["a", "a", "b"], 64, PAD, CPU)
    assert batch.ids.tolist() == [[5, PAD, PAD, PAD, PAD], [7, 8, 1, 2, 3]]
    assert batch.positions[1].tolist() == [0, 1, 2, 2, 3]
    seen = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 1, 1]]
    assert batch.mask[1].int().tolist() == seen
    assert batch.mask[0].diagonal().all()  # padding sees something: itself
    assert not batch.mask[0, 0, 1:].any()
    assert {span.row: (span.place, span.last) for span in batch.spans} == {0: (1, 2), 1: (1, 4), 2: (0, 0)}


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40), st.sampled_from([None, 1, 3, 50]))
def test_batches_by_length_hold_every_row_once_and_little_padding(lengths, size):
    batches = plan([[1] * n for n in lengths], None, 64, PAD, CPU)
    assert sorted(span.row for b in batches for span in b.spans) == list(range(len(lengths)))
    for batch in batches:
        assert int((~batch.mask).sum()) <= 128
    parts = cut(lengths, None, size)
    assert sorted(itertools.chain(*parts)) == list(range(len(lengths)))
    if size is not None and len(lengths) > size:
        assert max(len(part) for part in parts) <= size
        assert all(lengths[a] <= lengths[b] for p, q in itertools.pairwise(parts) for a in p for b in q)


def test_parts_keep_a_prompt_together_where_it_fits():
    widths, keys = [9, 1, 5, 9, 1, 5, 5], list("abcabcc")
    parts = cut(widths, keys, 3)
    assert [sorted(keys[i] for i in part) for part in parts] == [["b", "b"], ["c", "c", "c"], ["a", "a"]]
    assert [len(part) for part in cut(widths, ["x"] * 7, 3)] == [3, 3, 1]


@given(st.lists(tokens, max_size=8), st.lists(tokens, max_size=8))
def test_the_common_start_is_the_longest(a, b):
    n = common_start(a, b)
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]


def test_a_model_that_is_fed_whole_is_not_packed():
    config = GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=2, n_positions=64, pad_token_id=PAD)
    torch.manual_seed(0)
    model = ScalarModel.from_causal(CausalModel(GPT2LMHeadModel(config)))
    rows = [([*LONG, 3], [*LONG, 4, 5])]
    scores = PairScores(model, rows, PAD)
    torch.testing.assert_close(torch.cat(scores([0])), alone(model, rows[0]), rtol=1e-5, atol=1e-5)
    assert scores.computed == 2 * 32


# parts of an update


def gradients_in_parts(config: PreferenceConfig, boundary: int = 0) -> list[torch.Tensor]:
    """The gradient that a training's first update is made with."""
    found = []

    class StopHereError(Exception):
        pass

    def note(self, optimisers):
        found.extend(p.grad.clone() for p in optimisers[0].parameters)
        raise StopHereError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Precision, "step", note)
        patch.setattr("trimtab.training.optim.Optimiser.scale_gradients", lambda *_: None)
        with pytest.raises(StopHereError):
            preference.train(config, base(boundary), TextCodec(build_tokenizer()), ranked(20), seed=2)
    return found


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("boundary", [0, 1])
def test_the_gradient_of_the_parts_is_that_of_the_whole_update(grouped, boundary):
    config = CONFIG.model_copy(update={"batch_size": 11, "center_coef": 0.1, "group_by_prompt": grouped})
    whole = gradients_in_parts(config, boundary)
    for size in (1, 4, 11):
        parts = gradients_in_parts(config.model_copy(update={"micro_batch_size": size}), boundary)
        for mine, theirs in zip(parts, whole, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5 * float(theirs.abs().max().clamp(min=1e-3)))


def test_no_more_pairs_than_allowed_are_in_memory(monkeypatch):
    sizes, heads = [], UsedScores.heads
    monkeypatch.setattr(UsedScores, "heads", lambda self, at: (sizes.append(len(at)), heads(self, at))[1])
    config = CONFIG.model_copy(update={"micro_batch_size": 3, "epochs": 1})
    preference.train(config, base(), TextCodec(build_tokenizer()), polite_pairs(20), seed=0)
    assert sizes == [3, 3, 2, 3, 3, 1]  # 15 pairs, 8 an update


def test_signals_of_parts_are_those_of_the_update(tmp_path):
    logs = []
    for size in (None, 3):
        run = started(tmp_path, f"r{size}")
        config = CONFIG.model_copy(update={"micro_batch_size": size, "epochs": 1, "center_coef": 0.01})
        preference.train(config, base(), TextCodec(build_tokenizer()), noise(20), run=run, seed=0)
        logs.append([row for row in run.metrics("pm") if row["step"] > 0])
    for whole, parts in zip(*logs, strict=True):
        for key in ("loss/train", "accuracy/train", "gradient_norm", "tokens/needed"):
            assert parts[key] == pytest.approx(whole[key], abs=1e-5), key
        assert parts["tokens/computed"] <= parts["tokens/needed"]


@pytest.mark.parametrize("boundary", [0, 1])
def test_a_killed_training_in_parts_with_dropout_goes_on_to_the_same_weights(boundary, tmp_path):
    config = CONFIG.model_copy(
        update={"micro_batch_size": 3, "dropout": 0.2, "head_dropout": 0.1, "checkpoint_every": 2}
    )
    codec, pairs = TextCodec(build_tokenizer()), noise(20) + ranked(4)
    straight = preference.train(config, base(boundary), codec, pairs, seed=1)
    run = started(tmp_path)
    die_at(run, 5, lambda: preference.train(config, base(boundary), codec, pairs, run=run, seed=1))
    assert same_weights(straight.model, preference.train(config, base(boundary), codec, pairs, run=run, seed=1).model)


def test_every_part_of_an_update_drops_something_else(monkeypatch):
    seen, on = [], Dropout.on
    monkeypatch.setattr(Dropout, "on", lambda self: (seen.append((self.step, self.part)), on(self))[1])
    config = CONFIG.model_copy(update={"micro_batch_size": 4, "dropout": 0.1, "epochs": 1})
    preference.train(config, base(), TextCodec(build_tokenizer()), polite_pairs(20), seed=0)
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1)]
    dropout = Dropout(llama(), 0.0, 0.5, 0, 0)
    masks = []
    for dropout.part in (0, 1, 0):
        with dropout.on():
            masks.append(dropout.head(torch.ones(64)))
    assert torch.equal(masks[0], masks[2])
    assert not torch.equal(masks[0], masks[1])


def test_a_length_head_needs_the_update_whole():
    with pytest.raises(ValueError, match="must be in memory whole: leave micro_batch_size out"):
        PreferenceConfig(length_debias="two-head", batch_size=16, micro_batch_size=4)


def test_kept_output_of_the_shared_layers_serves_packed_and_other_rows():
    """What a packed batch has left is right for the row by itself, and the other way round."""
    rows = [([*LONG, 3], [*LONG, 4, 5]), ([*LONG, 8], [*LONG, 9])]
    model = llama(1)
    scores = PairScores(model, rows, PAD)
    first = torch.cat(scores([0, 1]))
    assert scores.computed < scores.needed([0, 1])
    kept = scores._shared._cache.find(rows[0][1])
    ids, mask = right_pad([rows[0][1]], PAD)
    torch.testing.assert_close(kept, model.trunk(ids, mask)[0], rtol=1e-5, atol=1e-5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScalarModel, "trunk", None)  # nothing is computed again
        torch.testing.assert_close(torch.cat(scores([0, 1])), first, rtol=0, atol=0)
        of_the_first = first[[0, 2]]  # of chosen 0, chosen 1, rejected 0, rejected 1
        torch.testing.assert_close(torch.cat(scores([0])), of_the_first, rtol=1e-5, atol=1e-5)


def test_what_is_kept_of_a_row_does_not_depend_on_who_asked_first():
    """Also of a row that stands in several pairs, and where there is no room to keep anything."""
    rows = [([*LONG, 3], [*LONG, 4, 5]), ([7, 8], [*LONG, 3]), ([7, 8], [*LONG, 4, 5]), ([9], [6, 7, 8])]
    model, kept = llama(1), []
    for order in ([0, 1, 2, 3], [2, 3], [3, 1, 2]):
        scores = PairScores(model, rows, PAD)
        for i in order:
            scores([i])
        scores([3, 2, 1, 0])
        kept.append([scores._shared._cache.find(row) for pair in rows for row in pair])
    for others in kept[1:]:
        assert all(torch.equal(a, b) for a, b in zip(kept[0], others, strict=True))
    roomless = PairScores(model, rows, PAD, cache=TrunkCache(room=0))
    got = torch.cat(roomless([0, 1, 2, 3]))
    assert roomless._shared._cache.find(rows[0][0]) is None
    assert torch.equal(got, torch.cat(scores([0, 1, 2, 3])))


def test_an_update_in_parts_of_unequal_size_is_weighed_by_their_examples():
    seen = []
    model = llama()

    def loss_of(index):
        value = torch.tensor([float(i) for i in index]).mean()
        return value + 0 * model.linear.weight.sum(), {"mean/index": float(value)}

    recipe = CONFIG.model_copy(update={"epochs": 1, "batch_size": 5})
    history = fit(
        "pm", model, loss_of, 5, recipe, precision=Precision("float32"), seed=0,
        parts_of=lambda index: (seen.append(index), [sorted(index)[:1], sorted(index)[1:]])[1],
    )  # fmt: skip
    assert len(seen) == 1
    assert history[0]["mean/index"] == pytest.approx(2.0)
    assert history[0]["loss/train"] == pytest.approx(2.0)
