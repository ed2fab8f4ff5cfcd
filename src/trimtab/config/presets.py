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
    "preference": {"epochs": 3, "batch_size": 64, "learning_rate": 1e-3, "max_tokens": 48},
    "ppo": {
        "iterations": 100,
        "batch_size": 64,
        "max_new_tokens": 16,
        "beta": 0.1,
        "learning_rate": 5e-4,
        "value_learning_rate": 1e-3,
        "checkpoint_every": 20,
    },
    "dpo": {
        "epochs": 3,
        "batch_size": 64,
        "learning_rate": 1e-3,
        "max_tokens": 48,
        "checkpoint_every": 20,
        "max_new_tokens": 16,
    },
    "eval": {"responses_per_prompt": 4, "max_new_tokens": 16, "measures": ["gold"]},
}

_DEMO: dict[str, dict[str, Any]] = {
    "model": {"name": "smollm2-135m-instruct", "dtype": "bfloat16", "trainable": "top:8"},
    "sample": {
        "source": "contrast",
        "pairs_per_prompt": 2,
        "temperature": 0.8,
        "max_new_tokens": 48,
        "batch_size": 64,
    },
    "label": {"judge": "construction", "audit_sample": 40},
    "preference": {
        "epochs": 2,
        "learning_rate": 3e-4,
        "warmup_fraction": 0.1,
        "checkpoint_every": 26,
        "probe_responses": 12,
    },
    "ppo": {
        "iterations": 16,
        "batch_size": 32,
        "responses_per_prompt": 4,
        "temperature": 0.8,
        "max_new_tokens": 48,
        "advantage": "rloo",
        "score_normalisation": "reference",
        "beta": 0.05,
        "learning_rate": 1.2e-4,
        "checkpoint_every": 4,
    },
    "dpo": {
        "epochs": 2,
        "learning_rate": 1e-4,
        "checkpoint_every": 13,
        "temperature": 0.8,
        "max_new_tokens": 48,
    },
    "eval": {
        "temperature": 0.8,
        "max_new_tokens": 48,
        "measures": ["trimtab.evaluation.relevance:relevance"],
    },
}

PRESETS: dict[str, dict[str, dict[str, Any]]] = {"tiny": _TINY, "demo": _DEMO}
"""`tiny`: the generated language, the whole loop in minutes; `demo`: a small real model on everyday prompts."""
