"""PPO against TRL's PPOTrainer: response tokens a second and peak memory for the same work.

    python -m bench.ppo.vs_trl --trl DIR [--case random,smollm2] [--layouts top:8,lora-top:8] [--runs 3] [--json FILE]

Needs TRL 1.12, the last release with PPO (pip download --no-deps trl==1.12.0, unzipped to DIR), datasets, accelerate.

The same on both sides: model, weights, computation in float32 or in bfloat16 under autocast with float32 weights and
optimiser state, batch, prompt and response length (no EOS: all responses are full), 4 epochs of 1 minibatch, separate
value and reward models of the policy's size, all weights trained by AdamW. Each run is a process of its own, the sides
in turn; the first iteration is left out; figures are medians. Memory: largest resident set less that after the imports.
With --pure the peer holds weights and optimiser state in bfloat16, which is half of the memory and other arithmetic.
`--layouts` adds our runs with shared layers: the same algorithm, less of the model trained.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.preference.vs_trl import Clock

EPOCHS, RATE, TEMPERATURE, SEED = 4, 1e-5, 0.7, 0


@dataclass(frozen=True)
class Case:
    """The work of an iteration."""

    model: str
    precision: str
    batch: int
    prompt: int
    response: int


CASES = {
    "random": Case("random", "float32", 32, 16, 48),
    "smollm2": Case("smollm2-135m-instruct", "bfloat16", 8, 16, 32),
    "smollm2-float32": Case("smollm2-135m-instruct", "float32", 8, 16, 32),
}
VOCABULARY, WIDTH, LAYERS, HEADS = 4096, 256, 4, 4
"""Of the random Llama: 4.2 million parameters."""


def tokenizer(case: Case) -> Any:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    from trimtab.models.loading import resolve

    if case.model != "random":
        return AutoTokenizer.from_pretrained(resolve(case.model), padding_side="left")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w1", pad_token="w2", padding_side="left")


def causal(case: Case) -> Any:
    """The policy's start as a transformers model, in float32."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    from trimtab.models.loading import resolve

    if case.model != "random":
        return AutoModelForCausalLM.from_pretrained(resolve(case.model), dtype=torch.float32)
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=WIDTH * 8 // 3 // 16 * 16,
        num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=512,
        tie_word_embeddings=True, bos_token_id=1, eos_token_id=1, pad_token_id=2,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def prompt_ids(case: Case, count: int, vocabulary: int) -> list[list[int]]:
    import torch

    drawn = torch.randint(10, min(vocabulary, 40_000), (count, case.prompt), generator=torch.Generator().manual_seed(1))
    rows: list[list[int]] = drawn.tolist()
    return rows


def ours(case: Case, options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    import torch

    from trimtab import ppo
    from trimtab.config.layout import Layout
    from trimtab.config.ppo import PPOConfig
    from trimtab.data.records import Message, Prompt
    from trimtab.models.roles import CausalModel, ScalarModel
    from trimtab.models.tokens import TextCodec
    from trimtab.preference.model import PreferenceModel
    from trimtab.training.precision import Precision

    clock.start()
    torch.set_num_threads(options.threads)
    words = tokenizer(case)
    codec = TextCodec(words, "off")
    rows = prompt_ids(case, case.batch * options.iterations, len(words))
    by_text = {f"prompt {i}": row for i, row in enumerate(rows)}

    class Codec:
        """The tokenizer with prompts of a fixed length and responses that never end early."""

        eos_ids: frozenset[int] = frozenset()

        def __getattr__(self, name: str) -> Any:
            return getattr(codec, name)

        def prompt_ids(self, prompt: Any) -> list[int]:
            return by_text[prompt.id]

    layout = Layout.parse(options.layout)
    hf = causal(case)
    boundary = layout.boundary(int(hf.config.num_hidden_layers))
    dtype = getattr(torch, case.precision)
    if dtype != torch.float32:
        hf = hf.to(dtype)
    base = CausalModel(hf, boundary, lora=layout.lora, compute_dtype=dtype)
    base.requires_grad_(False)
    precision = Precision(case.precision)
    generator = torch.Generator().manual_seed(SEED)
    reward = ScalarModel.from_causal(base, trainable=False, generator=generator)
    scorer = PreferenceModel(reward, Codec(), precision, batch_size=case.batch)  # type: ignore[arg-type]
    config = PPOConfig(
        iterations=options.iterations, batch_size=case.batch, max_new_tokens=case.response, temperature=TEMPERATURE,
        epochs=EPOCHS, minibatches=1, learning_rate=RATE, value_learning_rate=RATE, value_clip_range=0.2,
        probe_prompts=0,
    )  # fmt: skip

    class Ticks:
        def on_iteration(self, view: Any) -> None:
            clock.tick()

    prompts = [Prompt(name, (Message("user", name),)) for name in by_text]
    result = ppo.train(
        config, base.fork(trainable=True), Codec(), prompts, scorer, preference=reward, seed=SEED,  # type: ignore[arg-type]
        precision=precision, callbacks=[Ticks()],
    )  # fmt: skip
    parts = {
        part: statistics.median(row[f"time/{part}_s"] for row in result.history[1:])
        for part in ("rollout", "score", "update")
    }
    return figures(case, clock) | parts


def theirs(case: Case, options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    clock.start()
    torch.set_num_threads(options.threads)
    words = tokenizer(case)
    if words.pad_token_id is None:
        words.pad_token = words.eos_token
    policy = causal(case)

    def scalar() -> Any:
        config = policy.config.__class__.from_dict(policy.config.to_dict() | {"num_labels": 1})
        config.pad_token_id = words.pad_token_id
        model = AutoModelForSequenceClassification.from_config(config)
        getattr(model, model.base_model_prefix).load_state_dict(policy.base_model.state_dict())
        return model

    reference = causal(case)
    models = [policy, reference, scalar(), scalar()]
    for model in models:
        # responses are to be full: no token ends one
        if getattr(model, "generation_config", None) is not None:
            model.generation_config.eos_token_id = None
        model.config.eos_token_id = words.eos_token_id
    low = case.precision == "bfloat16"
    if low and options.pure:
        models = [model.to(torch.bfloat16) for model in models]
    data = Dataset.from_dict({"input_ids": prompt_ids(case, case.batch * options.iterations, len(words))})
    with tempfile.TemporaryDirectory() as directory:
        arguments = PPOConfig(
            output_dir=directory, per_device_train_batch_size=case.batch, gradient_accumulation_steps=1,
            num_mini_batches=1, num_ppo_epochs=EPOCHS, total_episodes=case.batch * options.iterations,
            response_length=case.response, local_rollout_forward_batch_size=case.batch, num_sample_generations=0,
            report_to=[], save_strategy="no", bf16=low and not options.pure, use_cpu=True, temperature=TEMPERATURE,
            learning_rate=RATE, logging_steps=1, disable_tqdm=True, gradient_checkpointing=False,
            optim="adamw_torch_fused",
        )  # fmt: skip

        class Trainer(PPOTrainer):  # type: ignore[misc]
            def log(self, *_: Any, **__: Any) -> None:
                clock.tick()

        trainer = Trainer(
            args=arguments, processing_class=words, model=models[0], ref_model=models[1], reward_model=models[2],
            value_model=models[3], train_dataset=data, eval_dataset=data,
        )  # fmt: skip
        trainer.train()
    return figures(case, clock)


def figures(case: Case, clock: Clock) -> dict[str, Any]:
    """Medians over all iterations but the first."""
    seconds = statistics.median(b - a for a, b in zip(clock.times, clock.times[1:], strict=False))
    return {
        "iteration_s": seconds,
        "tokens_per_s": case.batch * case.response / seconds,
        "gib": clock.peak - clock.base,
        "iterations": len(clock.times) - 1,
    }


def spawn(side: str, name: str, layout: str, options: argparse.Namespace) -> dict[str, Any] | None:
    """One side in a process of its own; None: it failed, which is told on stderr."""
    command = [
        sys.executable, "-m", "bench.ppo.vs_trl", f"--worker={side}", f"--case={name}", f"--layout={layout}",
        f"--threads={options.threads}", f"--iterations={options.iterations}", *(["--pure"] if options.pure else []),
    ]  # fmt: skip
    environment = os.environ | {
        "OMP_NUM_THREADS": str(options.threads), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "PYTHONPATH": os.pathsep.join(p for p in (options.trl, os.environ.get("PYTHONPATH")) if p),
    }  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{side} ({name}) failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """All sides of a case in turn, `options.runs` times, and their medians."""
    layouts = [] if name == "random" else [x for x in options.layouts.split(",") if x]
    sides = [("ours", "full"), ("trl", "full"), *(("ours", layout) for layout in layouts)]
    runs: dict[str, list[dict[str, Any]]] = {}
    for number in range(options.runs):
        for side, layout in sides if number % 2 == 0 else sides[::-1]:
            if side == "trl" and not options.trl:
                continue
            label = "trl" if side == "trl" else layout
            if found := spawn(side, name, layout, options):
                runs.setdefault(label, []).append(found)
                parts = " ".join(
                    f"{part} {found[part]:.2f}" for part in ("rollout", "score", "update") if part in found
                )
                print(
                    f"  {name} {label:10} {found['tokens_per_s']:7.1f} tokens/s {found['gib']:5.2f} GiB  {parts}",
                    flush=True,
                )
    medians = {
        label: {key: statistics.median(run[key] for run in found) for key in ("tokens_per_s", "gib")}
        for label, found in runs.items()
    }
    if "trl" in medians:
        for label, found in medians.items():
            if label != "trl":
                speed, memory = (found[key] / medians["trl"][key] for key in ("tokens_per_s", "gib"))
                print(f"{name}, {label}: {speed:.2f} times TRL's tokens a second with {memory:.2f} of its memory")
    return {"medians": medians, "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl", default="", help="directory that trl was unzipped to")
    parser.add_argument("--case", default="random,smollm2", help=f"of {', '.join(CASES)}")
    parser.add_argument("--layouts", default="top:8,lora-top:8")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pure", action="store_true", help="the peer holds everything in bfloat16")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", choices=("ours", "trl"), help=argparse.SUPPRESS)
    parser.add_argument("--layout", default="full", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        with contextlib.redirect_stdout(sys.stderr):
            work = ours if options.worker == "ours" else theirs
            found = work(CASES[options.case], options, Clock())
        print(json.dumps(found))
        return
    results = {name: compare(name, options) for name in options.case.split(",")}
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
