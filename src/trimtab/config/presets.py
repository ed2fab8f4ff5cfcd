"""Presets: one word sets a coherent whole. `trimtab init --preset NAME` writes one out as a commented trimtab.toml."""

from __future__ import annotations

from typing import Any

__all__ = ["PRESETS"]

_TINY: dict[str, dict[str, Any]] = {
    "model": {"name": "tiny-world", "chat_template": "off"},
    "prompts": {"max_tokens": 16},
    "sft": {"data": "demonstrations.jsonl", "epochs": 12, "batch_size": 64, "learning_rate": 3e-3},
    "sample": {"pairs_per_prompt": 2, "max_new_tokens": 16, "batch_size": 256},
    "label": {"judge": "simulated", "batch_size": 256},
    "preference": {"epochs": 4, "batch_size": 64, "learning_rate": 1e-3, "max_tokens": 32},
    "ppo": {
        "iterations": 100,
        "batch_size": 64,
        "max_new_tokens": 16,
        "beta": 0.05,
        "learning_rate": 5e-4,
        "value_learning_rate": 1e-3,
        "checkpoint_every": 25,
    },
    "eval": {"responses_per_prompt": 4, "max_new_tokens": 16, "measures": ["gold"]},
}

_DEMO: dict[str, dict[str, Any]] = {
    "model": {"name": "smollm2-135m-instruct", "dtype": "bfloat16", "shared_layers": 22},
    "sample": {"source": "contrast", "pairs_per_prompt": 2, "max_new_tokens": 40},
    "label": {"judge": "construction"},
    "preference": {"batch_size": 16, "learning_rate": 1e-4},
    "ppo": {
        "iterations": 20,
        "batch_size": 32,
        "responses_per_prompt": 4,
        "max_new_tokens": 40,
        "advantage": "rloo",
        "beta": 0.05,
        "learning_rate": 5e-5,
    },
    "eval": {"max_new_tokens": 40},
}

PRESETS: dict[str, dict[str, dict[str, Any]]] = {"tiny": _TINY, "demo": _DEMO}
"""`tiny`: the generated language, the whole loop in minutes; `demo`: a small real model on everyday prompts."""
