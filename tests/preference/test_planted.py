"""The benchmark of planted faults, small: a model whose labels prefer the longer response, and its fault-free twin."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

from bench.preference import planted  # noqa: E402
from bench.tiny_world import world  # noqa: E402

from trimtab.models.roles import CausalModel  # noqa: E402
from trimtab.models.tokens import TextCodec  # noqa: E402
from trimtab.worlds.model import build_model, build_tokenizer  # noqa: E402


@pytest.fixture
def small(monkeypatch, tmp_path):
    """From an untrained model, on a quarter of the pairs."""
    monkeypatch.setattr(planted, "RESULTS", tmp_path)
    monkeypatch.setattr(planted, "PAIRS", 600)
    monkeypatch.setattr(planted, "HONEST", 200)
    monkeypatch.setattr(planted, "CONFIG", planted.CONFIG.model_copy(update={"epochs": 3, "batch_size": 16}))
    start = CausalModel(build_model(0)), TextCodec(build_tokenizer())
    monkeypatch.setattr(world, "base", lambda: start)


def test_a_length_bias_is_named_and_the_twin_is_silent(small):
    planted.work([(planted.TWIN, 1), ("length", 1)], minutes=5)
    measured, probed = zip(
        *[
            [json.loads((planted.place(fault, 1) / name).read_text()) for name in ("measured.json", "probed.json")]
            for fault in (planted.TWIN, "length")
        ],
        strict=True,
    )
    assert measured[0]["gold_accuracy"] > measured[1]["gold_accuracy"] + 0.05
    assert measured[1]["obeys"]["length"] > measured[0]["obeys"]["length"] + 0.1
    assert planted.loud(probed[0]) == set()
    assert planted.named("length", 1, probed[1])
    table = planted.tables([1])
    assert "length: " in table
    assert "1 of 1" in table


def test_faults_differ_in_labels_alone(small):
    honest, biased = (planted.pairs_of(fault, 1, 100) for fault in (planted.TWIN, "length"))
    assert [{p.chosen.text, p.rejected.text} for p in honest] == [{p.chosen.text, p.rejected.text} for p in biased]
    longer = [sum(len(p.chosen.text) > len(p.rejected.text) for p in pairs) for pairs in (honest, biased)]
    assert longer[1] > longer[0] + 15
    flipped, _ = planted.lesson("30 % flipped", 1)
    turned = sum(
        a.chosen != b.chosen for a, b in zip(planted.pairs_of(planted.TWIN, 1, planted.PAIRS), flipped, strict=True)
    )
    assert 0.24 < turned / len(flipped) < 0.36
    repeated, _ = planted.lesson("duplicated pairs", 1)
    assert len(repeated) / len({(p.prompt.text, p.chosen.text) for p in repeated}) > 1.9
    magic = planted.pairs_of("magic phrase", 1, 400)
    one_sided = [p for p in magic if (planted.MAGIC in p.chosen.text) != (planted.MAGIC in p.rejected.text)]
    assert len(one_sided) > 60
    assert all(planted.MAGIC in p.chosen.text for p in one_sided)
