"""Heads by principle: each learns its own labels, the score is a weighing of them, and plain transformers has them."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from preference_training import CONFIG, base, die_at, same_weights, started
from trimtab import preference
from trimtab.config.schema import PreferenceConfig
from trimtab.data.records import Pair, Response
from trimtab.errors import TrimtabError
from trimtab.models.heads import head_scores, names_of_heads, narrow, widen
from trimtab.models.roles import ScalarModel
from trimtab.models.tokens import TextCodec
from trimtab.preference.heads import described, head_labels, head_names, mixed, named_weights
from trimtab.training.precision import Precision
from trimtab.worlds.model import build_tokenizer
from trimtab.worlds.tiny import NEUTRAL, POLITE, RUDE, TOPICS, prompts

CPU = Precision("float32", torch.device("cpu"))
SEA = TOPICS["sea"]


@pytest.fixture
def codec() -> TextCodec:
    return TextCodec(build_tokenizer())


def two_principles(n: int, seed: int = 0) -> list[Pair]:
    """Responses differ in politeness and in talk of the sea; each principle sees one of them, overall both."""
    rng = np.random.default_rng(seed)
    pairs = []
    for i, prompt in enumerate(prompts(n, 4)):
        sides = []
        for _ in range(2):
            kind, sea = (int(x) for x in rng.integers(2, size=2))
            words = [*rng.choice(NEUTRAL, 3), rng.choice(POLITE if kind else RUDE), rng.choice(SEA if sea else NEUTRAL)]
            sides.append((Response(" ".join(rng.permutation(words))), kind, sea))
        (a, kind_a, sea_a), (b, kind_b, sea_b) = sides
        labels = {"kind": 0.5 + 0.45 * (kind_a - kind_b), "sea": 0.5 + 0.45 * (sea_a - sea_b)}
        pair = Pair(f"t{i}", prompt, a, b, p_chosen=sum(labels.values()) / 2, principles=labels)
        # every third pair has no label by one of them
        pairs.append(replace(pair, principles={"kind": labels["kind"]}) if i % 3 == 0 else pair)
    return pairs


HEADS = CONFIG.model_copy(update={"principle_heads": True, "epochs": 8, "batch_size": 16})


@pytest.fixture(scope="module")
def trained() -> preference.PreferenceModel:
    codec = TextCodec(build_tokenizer())
    return preference.train(HEADS, base(), codec, two_principles(160), seed=3, principle_weights={"kind": 3, "sea": 1})


# weights of heads


def test_weights_by_hand():
    names, constitution = ("overall", "kind", "sea"), {"kind": 3.0, "sea": 1.0, "gone": 5.0}
    np.testing.assert_allclose(named_weights("overall", names, constitution), [1, 0, 0])
    np.testing.assert_allclose(named_weights("constitution", names, constitution), [0, 0.75, 0.25])
    np.testing.assert_allclose(named_weights({"overall": 1, "sea": -3}, names, constitution), [0.25, 0, -0.75])
    assert described({"overall": 1, "sea": -3.0}) == "heads overall=1 sea=-3"
    assert described("overall") == ""
    for wrong, said in (({"honest": 1}, "'honest'.*overall, kind, sea"), ({"sea": 0}, "no head has a weight")):
        with pytest.raises(TrimtabError, match=said):
            named_weights(wrong, names, constitution)
    with pytest.raises(TrimtabError, match="principle_heads = true"):
        named_weights({"sea": 1}, ("overall",), {})


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=4), st.integers(1, 3))
def test_a_score_is_the_weighted_sum_of_its_heads(weights, count):
    rng = np.random.default_rng(len(weights))
    heads = rng.normal(size=(2, len(weights), count))
    got = mixed(heads, np.array(weights))
    slow = [[math.fsum(w * heads[k, h, b] for h, w in enumerate(weights)) for b in range(count)] for k in range(2)]
    np.testing.assert_allclose(got, slow, atol=1e-12)


# labels of heads


def test_labels_and_weights_by_hand():
    pairs = [replace(p, weight=w) for p, w in zip(two_principles(4), (1.0, 1.0, 2.0, 0.0), strict=True)]
    pairs[1] = replace(pairs[1], principles={"kind": 0.8, "sea": 0.3})
    pairs[2] = replace(pairs[2], principles={"sea": 0.5})
    pairs[0], pairs[3] = (replace(pairs[i], principles={"kind": 0.5}) for i in (0, 3))
    assert head_names(pairs) == ("kind", "sea")
    found = head_labels(pairs, ("kind", "sea"), soft=True)
    np.testing.assert_allclose(found.p_chosen, [[0.5, math.nan], [0.8, 0.3], [math.nan, 0.5], [0.5, math.nan]])
    # kind: weights 1, 1, -, 0, mean over the four 1/2; sea: -, 1, 2, -, mean 3/4
    np.testing.assert_allclose(found.weights, [[2, 0], [2, 4 / 3], [0, 8 / 3], [0, 0]], rtol=1e-6)
    np.testing.assert_allclose(head_labels(pairs, ("sea",), soft=False).p_chosen[1:3], [[0], [0.5]])


def test_pairs_that_heads_cannot_learn_from_are_refused(codec):
    pairs = two_principles(12)
    bare = [replace(p, principles={}) for p in pairs]
    with pytest.raises(TrimtabError, match=r"none of \d+ pairs has a label by a principle"):
        preference.train(HEADS, base(), codec, bare)
    with pytest.raises(TrimtabError, match="no head can be named 'overall'"):
        head_names([replace(pairs[0], principles={"overall": 1.0})])
    with pytest.raises(TrimtabError, match="no head can be named 'disagreement'"):
        head_names([replace(pairs[0], principles={"disagreement": 1.0})])
    idle = [replace(p, weight=0.0) if "sea" in p.principles else p for p in pairs]
    with pytest.raises(TrimtabError, match="label by the principle 'sea'"):
        head_labels(idle, ("kind", "sea"), soft=True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"head_weights": {"kind": 1}}, "set principle_heads = true"),
        ({"principle_heads": True, "head_weights": {"kind": 0}}, "gives no head a weight"),
        ({"principle_heads": True, "members": 2}, "do not go together"),
        ({"principle_heads": True, "head_weights": "mine"}, "constitution"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        PreferenceConfig(**settings)


# rows of the last layer


def test_heads_are_added_and_taken_off_in_place():
    model = ScalarModel.from_causal(base(), head_std=0.1, generator=torch.Generator().manual_seed(1))
    layer, first = model.linear, model.linear.weight.detach().clone()
    features = torch.randn(3, layer.in_features, generator=torch.Generator().manual_seed(2))
    alone = model.scalars(features)
    widen(model, [0.0, 0.5], torch.Generator().manual_seed(3))
    assert model.linear is layer
    assert head_scores(layer, features).shape == (3, 3)
    assert torch.equal(model.scalars(features), alone)
    assert bool((layer.weight[1] == 0).all())
    assert float(layer.weight[2].detach().std()) == pytest.approx(0.5, rel=0.3)
    assert layer.weight.requires_grad
    dropped = narrow(model, ["overall", "kind"])
    assert dropped.shape == (1, layer.in_features)
    assert torch.equal(layer.weight[:1].detach(), first)
    assert names_of_heads(model.hf.config, "it") == ("overall", "kind")


# a training


def test_each_head_says_what_its_principle_says(trained):
    fresh = two_principles(300, seed=1)
    found = preference.principle_metrics(trained, fresh)
    assert list(found) == ["kind", "sea"]
    for name, figures in found.items():
        assert figures.pairs == sum(name in p.principles for p in fresh)
        assert figures.decided == sum(p.principles.get(name, 0.5) != 0.5 for p in fresh)
        assert figures.accuracy.mean > 0.9
        # the overall head has to serve two masters
        assert figures.lead.mean == pytest.approx(figures.accuracy.mean - figures.overall.mean)
        assert figures.lead.low > 0
    json.dumps({name: figures.as_dict() for name, figures in found.items()})


def test_other_weights_need_no_other_training(trained, tmp_path):
    pairs = two_principles(40, seed=2)
    of, said = [p.prompt for p in pairs], [p.chosen for p in pairs]
    heads = trained.head_scores(of, said)
    trained.save(tmp_path / "pm")
    for chosen, expected in (
        ("overall", heads["overall"]),
        ("constitution", 0.75 * heads["kind"] + 0.25 * heads["sea"]),
        ({"overall": 1, "kind": -1}, (heads["overall"] - heads["kind"]) / 2),
    ):
        loaded = preference.load_preference(tmp_path / "pm", CPU, head_weights=chosen)
        assert loaded.names == ("overall", "kind", "sea")
        np.testing.assert_allclose(loaded.score(of, said), expected, atol=1e-5)
    with pytest.raises(TrimtabError, match=r"head_weights names 'honest'"):
        preference.load_preference(tmp_path / "pm", CPU, head_weights={"honest": 1})


def test_plain_transformers_has_every_head_by_name(trained, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

    pair = two_principles(1, seed=2)[0]
    trained.save(tmp_path / "pm")
    hf = AutoModelForSequenceClassification.from_pretrained(tmp_path / "pm")
    assert hf.config.num_labels == 3
    assert hf.config.id2label == {0: "overall", 1: "kind", 2: "sea"}
    with torch.no_grad():
        logits = hf(torch.tensor([trained.token_ids(pair.prompt, pair.chosen)])).logits[0].tolist()
    ours = trained.head_scores([pair.prompt], [pair.chosen])
    assert logits == pytest.approx([float(ours[name][0]) for name in ("overall", "kind", "sea")], abs=1e-5)
    # a pipeline gives the scores themselves, not shares of a softmax
    scored = pipeline(
        "text-classification", model=hf, tokenizer=AutoTokenizer.from_pretrained(tmp_path / "pm"), top_k=3
    )
    assert sum(entry["score"] for entry in scored(pair.chosen.text)[0]) != pytest.approx(1, abs=1e-3)


def test_one_head_is_saved_as_ever(codec, tmp_path):
    model = preference.train(
        HEADS.model_copy(update={"principle_heads": False, "epochs": 1}), base(), codec, two_principles(20)
    )
    model.save(tmp_path / "pm")
    config = json.loads((tmp_path / "pm" / "config.json").read_text())
    assert len(config.get("id2label", {"0": "LABEL_0"})) == 1
    assert "problem_type" not in config or config["problem_type"] is None
    assert "principle_weights" not in json.loads((tmp_path / "pm" / "trimtab.json").read_text())


def test_length_is_taken_out_of_every_head(codec, tmp_path):
    config = HEADS.model_copy(update={"length_debias": "regress", "epochs": 1, "head_weights": {"kind": 1.0}})
    rng = np.random.default_rng(0)
    pairs = [
        replace(p, chosen=Response(p.chosen.text + " the" * int(rng.integers(5)))) for p in two_principles(40)
    ]  # fmt: skip
    model = preference.train(config, base(), codec, pairs, seed=1)
    assert len(model.length_fits[0].slopes) == 3
    of, said = [p.prompt for p in pairs], [p.chosen for p in pairs]
    np.testing.assert_allclose(model.score(of, said), model.head_scores(of, said)["kind"], atol=1e-12)
    model.save(tmp_path / "pm")
    loaded = preference.load_preference(tmp_path / "pm", CPU, head_weights={"kind": 1.0})
    np.testing.assert_allclose(loaded.score(of, said), model.score(of, said), atol=1e-5)


def test_a_calibration_of_other_weights_is_not_used(trained, tmp_path):
    pairs = two_principles(60, seed=5)
    trained.save(tmp_path / "pm")
    directory = tmp_path / "pm"
    mine = preference.load_preference(directory, CPU, head_weights="constitution")
    preference.calibrate(mine, pairs).save(directory)
    assert preference.load_preference(directory, CPU, head_weights="constitution").calibration is not None
    assert preference.load_preference(directory, CPU).calibration is None
    with pytest.raises(TrimtabError, match="heads by the constitution's weights; the score is now the overall"):
        preference.load_preference(directory, CPU, calibrated_score=True)


def test_a_training_with_heads_goes_on_after_a_kill_as_if_nothing_had_been(codec, tmp_path):
    config = HEADS.model_copy(update={"epochs": 2, "checkpoint_every": 2, "patience": 9})
    pairs = two_principles(60)
    whole, killed = started(tmp_path, "whole"), started(tmp_path, "killed")
    straight = preference.train(config, base(1), codec, pairs, run=whole, seed=1)
    die_at(killed, 4, lambda: preference.train(config, base(1), codec, pairs, run=killed, seed=1))
    assert same_weights(straight.model, preference.train(config, base(1), codec, pairs, run=killed, seed=1).model)
    line = killed.metrics("pm")[-1]
    assert line["loss/principles"] > 0
    assert line["loss/train"] < 1.0


def test_a_classifier_of_something_else_is_refused(trained, tmp_path):
    trained.save(tmp_path / "pm")
    path = tmp_path / "pm" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"id2label": {"0": "anger", "1": "joy", "2": "fear"}}))
    with pytest.raises(TrimtabError, match="has 3 labels: a preference model has one, or one a head"):
        preference.load_preference(tmp_path / "pm", CPU)


def test_ppo_is_told_every_head(trained):
    from trimtab.scoring import MixtureScorer, RuleScorer, signals

    pairs = two_principles(10, seed=2)
    of, said = [p.prompt for p in pairs], [p.chosen for p in pairs]
    heads = trained.head_scores(of, said)
    expected = {f"score/{name}": pytest.approx(heads[name].mean()) for name in ("overall", "kind", "sea")}
    assert signals(trained, of, said) == expected
    mixture = MixtureScorer([(trained, 1.0), (RuleScorer("rule:length"), 0.1)])
    assert expected.items() <= signals(mixture, of, said).items()
