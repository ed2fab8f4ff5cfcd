"""What the tests of DPO share: small policies in every layout, their codec, a run that has begun."""

from __future__ import annotations

import torch

from trimtab.config.layout import Layout
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec
from trimtab.runs.run import Run
from trimtab.worlds.model import LAYERS, build_model, build_tokenizer

CODEC = TextCodec(build_tokenizer())


def reference(layout: str = "full") -> CausalModel:
    parsed = Layout.parse(layout)
    model = CausalModel(build_model(0), parsed.boundary(LAYERS), lora=parsed.lora)
    model.requires_grad_(False)
    return model


def fork(layout: str = "full") -> CausalModel:
    return reference(layout).fork(trainable=True, generator=torch.Generator().manual_seed(1))


def started(directory, name: str = "r") -> Run:
    run = Run.create(directory, name, config={}, seed=1)
    run.begin_stage("dpo", "f")
    return run
