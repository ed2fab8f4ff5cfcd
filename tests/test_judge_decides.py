"""The judge truly decides: swap what it prefers, and labels, preference model and policy all go the other way.

(One widely used script reads its judge's verdict and then never uses it; nothing but a test of this kind notices.)
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest

from trimtab import ppo, preference, sampling
from trimtab.config.schema import PPOConfig, PreferenceConfig, SampleConfig
from trimtab.constitution import Constitution, Principle, load_constitution
from trimtab.data.records import CandidatePair, Message, Prompt, Response
from trimtab.labeling.construction import ConstructionJudge
from trimtab.labeling.labels import label_pairs, to_pairs
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec
from trimtab.worlds.judge import SimulatedJudge
from trimtab.worlds.model import build_model, build_tokenizer
from trimtab.worlds.tiny import POLITE, RUDE, prompts


def politeness(texts: list[str]) -> float:
    """Polite less rude words, a response."""
    return float(np.mean([sum((w in POLITE) - (w in RUDE) for w in text.split()) for text in texts]))


@pytest.mark.slow
def test_the_whole_chain_follows_the_constitution_of_the_judge():
    constitution = load_constitution(str(files("trimtab.worlds") / "constitution.toml"))
    only_polite = Constitution("polite", tuple(p for p in constitution.principles if p.id == "polite"))
    codec, asked = TextCodec(build_tokenizer()), prompts(60, 5)
    base = CausalModel(build_model(0))
    base.requires_grad_(False)
    sample = SampleConfig(pairs_per_prompt=8, max_new_tokens=10, batch_size=256)
    candidates = sampling.sample_pairs(base, codec, asked, None, sample, seed=1)

    def follow(judge: SimulatedJudge) -> tuple[float, float, float]:
        pairs = to_pairs(candidates, label_pairs(candidates, judge, only_polite, batch_size=512))
        of_labels = politeness([p.chosen.text for p in pairs]) - politeness([p.rejected.text for p in pairs])
        config = PreferenceConfig(epochs=3, batch_size=32, learning_rate=3e-3, max_tokens=48)
        pm = preference.train(config, base, codec, pairs, seed=1)
        of_pm = float(
            np.subtract(*(pm.score(asked, [Response(w)] * len(asked)) for w in ("dear friend", "lazy fool"))).mean()
        )
        policy = base.fork(trainable=True)
        settings = PPOConfig(
            iterations=15, batch_size=64, max_new_tokens=10, beta=0.0, learning_rate=2e-3, value_learning_rate=2e-3,
            checkpoint_every=99, probe_prompts=0,
        )  # fmt: skip
        ppo.train(settings, policy, codec, asked, pm, preference=pm.model, seed=1)
        after = sampling.sample_pairs(policy, codec, asked, None, sample, seed=2)
        return of_labels, of_pm, politeness([r.text for p in after for r in (p.first, p.second)])

    before = politeness([r.text for p in candidates for r in (p.first, p.second)])
    labels, pm, policy = follow(SimulatedJudge("faithful", seed=1))
    swapped_labels, swapped_pm, swapped_policy = follow(SimulatedJudge("faithful", seed=1, swapped=True))
    assert labels > 0.3
    assert swapped_labels < -0.3
    assert pm > 0.5
    assert swapped_pm < -0.5
    assert policy > before + 0.3
    assert swapped_policy < before - 0.3


def test_contrast_labels_follow_the_readings():
    warm = Principle("warm", "Be warm.", reading="You are warm.", opposite="You are cold.")
    constitution = Constitution("c", (warm,))
    origin = {"source": "contrast", "principle": "warm", "first": "opposite", "second": "reading",
              "reading": "You are warm.", "opposite": "You are cold."}  # fmt: skip
    prompt = Prompt("p", (Message("user", "hello"),))
    pair = CandidatePair("1", prompt, Response("What."), Response("Dear you!"), origin)

    def chosen(of: Constitution) -> str:
        return to_pairs([pair], label_pairs([pair], ConstructionJudge(), of))[0].chosen.text

    assert chosen(constitution) == "Dear you!"
    assert chosen(constitution.swapped()) == "What."
