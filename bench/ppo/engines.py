"""Generation engines in a real PPO run: how far their log-probabilities are from the trainer's, and what they cost.

    python -m bench.ppo.engines native transformers vllm http://localhost:8000
    python -m bench.ppo.engines vllm --dtype bfloat16 --options '{"enforce_eager": true}'
    python -m bench.ppo.engines --write DIRECTORY          # the model to start a server from

Trains the tiny world's policy, or `--model` (a directory, a hub id or smollm2-135m-instruct), for a few iterations with
each engine and prints a line an iteration. Fails where log-probabilities differ by more than the checks allow, which
they do as soon as an engine samples from weights of an earlier iteration.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from trimtab import ppo
from trimtab.config.schema import PPOConfig
from trimtab.data.records import Prompt
from trimtab.models.loading import load_causal_lm, load_codec
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec
from trimtab.scoring import FunctionScorer
from trimtab.training.precision import Precision
from trimtab.worlds.model import build_model, build_tokenizer
from trimtab.worlds.tiny import prompts

SHOWN = (
    "score/mean", "response/length_mean", "response/finished_fraction", "rollout/logprob_gap_mean",
    "rollout/logprob_gap_max", "rollout/is_weight_mean", "rollout/is_truncated_fraction", "time/rollout_s",
)  # fmt: skip


def tiny(dtype: str) -> tuple[CausalModel, TextCodec]:
    """The tiny world's untrained model with a head of its own: vLLM's build for CPUs reloads no tied one."""
    tied = build_model(0)
    config = copy.deepcopy(tied.config)
    config.tie_word_embeddings = False
    hf = LlamaForCausalLM(config)
    hf.load_state_dict(tied.state_dict() | {"lm_head.weight": tied.get_input_embeddings().weight.detach().clone()})
    return CausalModel(hf.to(getattr(torch, dtype))), TextCodec(build_tokenizer())


def loaded(name: str | None, dtype: str) -> tuple[CausalModel, TextCodec]:
    if name is None:
        return tiny(dtype)
    codec = load_codec(name)
    return load_causal_lm(name, dtype, codec=codec), codec


def short(prompts: Sequence[Prompt], responses: Sequence[str]) -> list[float]:
    return [-0.1 * len(response.split()) for response in responses]


def train(engine: str, args: argparse.Namespace) -> list[dict[str, float]]:
    base, codec = loaded(args.model, args.dtype)
    base.requires_grad_(False)
    foreign = engine != "native" or args.dtype != "float32"
    config = PPOConfig(
        engine=engine, engine_options=args.options if engine == "vllm" else {}, iterations=args.iterations,
        batch_size=32, responses_per_prompt=4, max_new_tokens=args.tokens, temperature=0.8, beta=0.0,
        learning_rate=args.rate, value_learning_rate=args.rate, checkpoint_every=10**6, probe_prompts=0,
        importance_cap=2.0 if foreign else None,
    )  # fmt: skip
    scorer = FunctionScorer("short", short)
    return ppo.train(
        config, base.fork(trainable=True), codec, prompts(12, 3), scorer, seed=1, precision=Precision(args.dtype)
    ).history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*")
    parser.add_argument("--model")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--options", type=json.loads, default={}, help="ppo.engine_options of vllm, as JSON")
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.write is not None:
        model, codec = loaded(args.model, args.dtype)
        model.save_pretrained(args.write, pad_id=codec.pad_id)
        codec.save(args.write)
    for engine in args.engines:
        for step, row in enumerate(train(engine, args), 1):
            print(json.dumps({"engine": engine, "step": step} | {k: float(f"{row[k]:.4g}") for k in SHOWN if k in row}))


if __name__ == "__main__":
    main()
