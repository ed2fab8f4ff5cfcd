"""The work that the PPO benchmarks do: models, prompts of one length, responses that never end early, and figures.

All weights of the small Llamas are random: what an iteration costs does not depend on them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.preference.vs_trl import Clock

EPOCHS, RATE, TEMPERATURE, SEED = 4, 1e-5, 0.7, 0


@dataclass(frozen=True)
class Llama:
    """A Llama with random weights and a head tied to its embedding."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    key_heads: int | None = None
    """None: as many as heads."""
    inner: int | None = None
    """None: 8/3 of the width, in steps of 16."""

    def config(self) -> Any:
        from transformers import LlamaConfig

        return LlamaConfig(
            vocab_size=self.vocabulary, hidden_size=self.width,
            intermediate_size=self.inner or self.width * 8 // 3 // 16 * 16, num_hidden_layers=self.layers,
            num_attention_heads=self.heads, num_key_value_heads=self.key_heads or self.heads,
            max_position_embeddings=512, tie_word_embeddings=True, bos_token_id=1, eos_token_id=1, pad_token_id=2,
        )  # fmt: skip


@dataclass(frozen=True)
class Case:
    """The work of an iteration: `batch` responses of `response` tokens to prompts of `prompt`."""

    model: str | Llama
    precision: str
    batch: int
    prompt: int
    response: int


RANDOM = Llama(vocabulary=4096, width=256, layers=4, heads=4)
"""4.2 million parameters."""
CASES = {
    "random": Case(RANDOM, "float32", 32, 16, 48),
    "smollm2": Case("smollm2-135m-instruct", "bfloat16", 8, 16, 32),
    "smollm2-float32": Case("smollm2-135m-instruct", "float32", 8, 16, 32),
}


def tokenizer(case: Case) -> Any:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    from trimtab.models.loading import resolve

    if isinstance(case.model, str):
        return AutoTokenizer.from_pretrained(resolve(case.model), padding_side="left")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(case.model.vocabulary)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w1", pad_token="w2", padding_side="left")


def causal(case: Case) -> Any:
    """The policy's start as a transformers model, in float32."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaForCausalLM

    from trimtab.models.loading import resolve

    if isinstance(case.model, str):
        return AutoModelForCausalLM.from_pretrained(resolve(case.model), dtype=torch.float32)
    torch.manual_seed(SEED)
    return LlamaForCausalLM(case.model.config())


def prompt_ids(case: Case, count: int, vocabulary: int) -> list[list[int]]:
    import torch

    drawn = torch.randint(10, min(vocabulary, 40_000), (count, case.prompt), generator=torch.Generator().manual_seed(1))
    rows: list[list[int]] = drawn.tolist()
    return rows


def train(case: Case, layout: str, iterations: int, after: Callable[[], None]) -> list[dict[str, float]]:
    """Run PPO with separate value and reward models of the policy's size; the signals of every iteration.

    `after` is called when one has ended.
    """
    import torch

    from trimtab import ppo
    from trimtab.config.layout import Layout
    from trimtab.config.ppo import PPOConfig
    from trimtab.data.records import Message, Prompt
    from trimtab.models.roles import CausalModel, ScalarModel
    from trimtab.models.tokens import TextCodec
    from trimtab.preference.model import PreferenceModel
    from trimtab.training.precision import Precision

    words = tokenizer(case)
    codec = TextCodec(words, "off")
    rows = prompt_ids(case, case.batch * iterations, len(words))
    by_text = {f"prompt {i}": row for i, row in enumerate(rows)}

    sampled: dict[str, list[int]] = {}

    class Codec:
        """The tokenizer with prompts of a fixed length and responses that never end early.

        The preference model reads the very tokens that were sampled: text of random tokens would be read as others.
        """

        eos_ids: frozenset[int] = frozenset()

        def __getattr__(self, name: str) -> Any:
            return getattr(codec, name)

        def prompt_ids(self, prompt: Any) -> list[int]:
            return by_text[prompt.id]

        def responses(self, tokens: Any, mask: Any, finished: Any) -> Any:
            found = codec.responses(tokens, mask, finished)
            sampled.update({answer.text: row for answer, row in zip(found, tokens.tolist(), strict=True)})
            return found

        def pair_ids(self, prompt: Any, response: Any) -> list[int]:
            return by_text[prompt.id] + sampled[response.text]

    parsed = Layout.parse(layout)
    hf = causal(case)
    boundary = parsed.boundary(int(hf.config.num_hidden_layers))
    dtype = getattr(torch, case.precision)
    if dtype != torch.float32:
        hf = hf.to(dtype)
    base = CausalModel(hf, boundary, lora=parsed.lora, compute_dtype=dtype)
    base.requires_grad_(False)
    precision = Precision(case.precision)
    generator = torch.Generator().manual_seed(SEED)
    reward = ScalarModel.from_causal(base, trainable=False, generator=generator)
    scorer = PreferenceModel(reward, Codec(), precision, batch_size=case.batch)  # type: ignore[arg-type]
    config = PPOConfig(
        iterations=iterations, batch_size=case.batch, max_new_tokens=case.response, temperature=TEMPERATURE,
        epochs=EPOCHS, minibatches=1, learning_rate=RATE, value_learning_rate=RATE, value_clip_range=0.2,
        probe_prompts=0,
    )  # fmt: skip

    class Ticks:
        def on_iteration(self, view: Any) -> None:
            after()

    result = ppo.train(
        config, base.fork(trainable=True), Codec(), [Prompt(name, (Message("user", name),)) for name in by_text],  # type: ignore[arg-type]
        scorer, preference=reward, seed=SEED, precision=precision, callbacks=[Ticks()],
    )  # fmt: skip
    return result.history


def figures(case: Case, clock: Clock) -> dict[str, Any]:
    """Medians over all iterations but the first."""
    seconds = statistics.median(b - a for a, b in zip(clock.times, clock.times[1:], strict=False))
    return {
        "iteration_s": seconds,
        "tokens_per_s": case.batch * case.response / seconds,
        "gib": clock.peak - clock.base,
        "iterations": len(clock.times) - 1,
    }


def spawn(
    module: str, arguments: Sequence[str], threads: int, told: str, more: Mapping[str, str] | None = None
) -> dict[str, Any] | None:
    """`python -m module` in a process of its own: the JSON of its last line; None: it failed, as stderr is told.

    Args:
        threads: that torch may use.
        told: what the process is called on stderr.
        more: further environment variables.
    """
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", **(more or {}),
    }  # fmt: skip
    command = [sys.executable, "-m", module, f"--threads={threads}", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{told} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
