"""What frozen layers put out is computed once for all who ask for it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from preference_training import CONFIG, base, polite_pairs
from trimtab import preference
from trimtab.models.kept import TrunkCache
from trimtab.models.roles import ScalarModel
from trimtab.models.tokens import TextCodec
from trimtab.preference.folds import fold_of_prompts, train_fold
from trimtab.worlds.model import build_tokenizer


@pytest.fixture
def rows_read(monkeypatch):
    """The numbers of tokens that went through a trunk, one entry a call."""
    seen: list[int] = []
    trunk = ScalarModel.trunk

    def counting(self, ids, mask, positions=None):
        seen.append(ids.numel())
        return trunk(self, ids, mask, positions)

    monkeypatch.setattr(ScalarModel, "trunk", counting)
    return seen


def test_a_row_is_found_by_its_tokens_while_there_is_room():
    cache = TrunkCache(room=2 * 3 * 4 * 4)
    cache.keep([5, 6, 7], torch.ones(3, 4))
    cache.keep([5, 6, 8], torch.zeros(3, 4))
    cache.keep([5, 6, 7], torch.zeros(3, 4))  # kept already
    cache.keep([9], torch.ones(1, 4))  # no room
    assert cache.find((5, 6, 7)).sum() == 12
    assert cache.find([5, 6, 8]).sum() == 0
    assert cache.find([9]) is None
    assert cache.find([5, 6]) is None


def test_a_second_training_on_the_same_cache_reads_nothing_again_and_ends_the_same(rows_read):
    pairs, codec, cache = polite_pairs(30), TextCodec(build_tokenizer()), TrunkCache()
    prompts, chosen = [p.prompt for p in pairs], [p.chosen for p in pairs]
    first = preference.train(CONFIG, base(1), codec, pairs, seed=1, cache=cache)
    alone = preference.train(CONFIG, base(1), codec, pairs, seed=1)
    rows_read.clear()
    again = preference.train(CONFIG, base(1), codec, pairs, seed=1, cache=cache)
    scores = again.score(prompts, chosen)
    assert rows_read == []
    np.testing.assert_array_equal(scores, first.score(prompts, chosen))
    np.testing.assert_allclose(scores, alone.score(prompts, chosen), rtol=0, atol=1e-6)


def test_a_model_does_not_keep_what_was_kept_for_its_training():
    pairs, codec = polite_pairs(30), TextCodec(build_tokenizer())
    assert preference.train(CONFIG, base(1), codec, pairs, seed=1).cache is None


def test_folds_with_one_cache_read_every_pair_once(rows_read):
    pairs, codec = polite_pairs(40), TextCodec(build_tokenizer())
    folds, cache = fold_of_prompts(pairs, 4, 1), TrunkCache()
    tokens = sum(len(codec.pair_ids(p.prompt, r)) for p in pairs for r in (p.chosen, p.rejected))
    shared = [train_fold(CONFIG, base(1), codec, pairs, folds, k, seed=1, cache=cache).margins for k in range(4)]
    assert sum(rows_read) <= 1.2 * tokens  # padding of what is only scored
    apart = [train_fold(CONFIG, base(1), codec, pairs, folds, k, seed=1).margins for k in range(4)]
    np.testing.assert_allclose(np.concatenate(shared), np.concatenate(apart), rtol=0, atol=1e-5)
