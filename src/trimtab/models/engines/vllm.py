"""vLLM as an engine: in this process, or a server of its own.

Both hold the policy's weights a second time. `sync` writes them as a model directory and has vLLM load that in place
(`reload_weights`), which works for any number of vLLM's workers; then cached prefixes, which the old weights computed,
are dropped. Sampling is told everything: the whole softmax, our EOS ids alone, and a seed for each prompt. vLLM batches
as it likes, so equal seeds give equal responses only up to rounding.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.adapters import adapted
from trimtab.models.engines.answers import Response, Server, first_line
from trimtab.models.engines.protocol import as_generated
from trimtab.models.generation import Generated, check_request
from trimtab.models.roles import CausalModel
from trimtab.models.saving import write_model

__all__ = ["VllmEngine", "VllmServerEngine", "require_vllm"]

_OURS = {"model", "dtype", "logprobs_mode", "generation_config", "skip_tokenizer_init", "use_tqdm_on_load"}
"""Arguments of vLLM that are not the user's to set."""
_AT_ONCE = 256
"""Prompts that are with the server at a time."""


def require_vllm() -> None:
    """Refuse an environment without vLLM.

    Raises:
        TrimtabError: kind missing.
    """
    if importlib.util.find_spec("vllm") is None:
        raise TrimtabError(
            ErrorKind.MISSING,
            'ppo.engine = "vllm": vllm is not installed',
            "pip install 'trimtab[vllm]', or name the URL of a vLLM server",
        )


class _Vllm(ABC):
    """What both engines do: weights through directories, prompts in, responses out.

    Args:
        directory: where weights are handed over.
        pad_id: fills the positions after a response's end.
    """

    own_weights = True

    def __init__(self, directory: Path, pad_id: int) -> None:
        self._directory, self._pad_id = directory, pad_id
        self._handed_over: Path | None = None

    @abstractmethod
    def _load(self, directory: Path, dtype: torch.dtype) -> None:
        """Take over the weights in a model directory."""

    @abstractmethod
    def _respond(
        self, prompts: list[list[int]], seeds: list[int], settings: dict[str, Any], vocabulary: int
    ) -> list[Response]:
        """`settings["n"]` responses to each prompt, in order, of tokens below `vocabulary`."""

    def sync(self, model: CausalModel) -> None:
        """Take over the weights of a model, in its dtype of computation; adapters are merged into them.

        Raises:
            TrimtabError: the weights cannot be written, or vLLM does not load them.
        """
        # a new directory: vLLM may still have the files of the last one mapped
        fresh = self._directory / uuid.uuid4().hex
        fresh.mkdir(parents=True)
        hf = model.merged_hf(torch.float32) if adapted(model.hf) else model.hf
        write_model(hf, fresh, {}, self._pad_id, model.compute_dtype)
        last, self._handed_over = self._handed_over, fresh
        self._load(fresh.absolute(), model.compute_dtype)
        if last is not None:
            shutil.rmtree(last, ignore_errors=True)

    def close(self) -> None:
        """Remove the weights that were handed over."""
        if self._handed_over is not None:
            shutil.rmtree(self._handed_over, ignore_errors=True)
        self._handed_over = None

    @torch.no_grad()
    def generate(
        self,
        model: CausalModel,
        ids: Tensor,
        mask: Tensor,
        *,
        max_new_tokens: int,
        temperature: float,
        eos_ids: Collection[int],
        pad_id: int,
        generator: torch.Generator,
        responses_per_prompt: int = 1,
        part: tuple[int, int] = (0, 1),
    ) -> Generated:
        """As `trimtab.models.generation.generate`, from the weights of the last `sync`."""
        check_request(model, mask, max_new_tokens, temperature)
        number, parts = part
        drawn = torch.randint(2**53, (len(ids) * parts,), generator=generator, device=generator.device)
        seeds = drawn[number * len(ids) : (number + 1) * len(ids)].tolist()
        ends = sorted(i for i in eos_ids if i < model.vocabulary_size)
        settings = {
            "n": responses_per_prompt, "max_tokens": max_new_tokens, "temperature": temperature, "top_p": 1.0,
            "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
            "stop_token_ids": ends, "ignore_eos": True, "logprobs": 0,
        }  # fmt: skip
        prompts = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
        found = self._respond(prompts, seeds, settings, model.vocabulary_size)
        return as_generated(
            [tokens for tokens, _ in found], [values for _, values in found], max_new_tokens=max_new_tokens,
            eos_ids=ends, pad_id=pad_id, device=ids.device,
        )  # fmt: skip


class VllmEngine(_Vllm):
    """vLLM started by this process, on the same devices.

    Args:
        directory: see `_Vllm`.
        pad_id: see `_Vllm`.
        options: arguments of `vllm.LLM`, as gpu_memory_utilization (0.4 unless said otherwise: the trainer needs the
            rest) or tensor_parallel_size.

    Raises:
        TrimtabError: vllm is not installed, or an option is not to be set.
    """

    def __init__(self, directory: Path, pad_id: int, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(directory, pad_id)
        require_vllm()
        self._options = dict(options or {})
        if refused := sorted(_OURS & self._options.keys()):
            raise TrimtabError(
                ErrorKind.CONFIG,
                f"ppo.engine_options.{refused[0]} is not to be set",
                "weights, dtype and sampling are those of the trainer",
            )
        self._llm: Any = None

    def _load(self, directory: Path, dtype: torch.dtype) -> None:
        if self._llm is None:
            self._llm = self._start(directory, dtype)
            return
        self._llm.collective_rpc("reload_weights", kwargs={"weights_path": str(directory)})
        if not self._llm.reset_prefix_cache():
            raise _stale()

    def _start(self, directory: Path, dtype: torch.dtype) -> Any:
        # vLLM talks on stdout, which is for data
        os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        from vllm import LLM

        options = {"gpu_memory_utilization": 0.4} | self._options
        try:
            return LLM(
                model=str(directory), dtype=str(dtype).removeprefix("torch."), logprobs_mode="processed_logprobs",
                generation_config="vllm", skip_tokenizer_init=True, use_tqdm_on_load=False, **options,
            )  # fmt: skip
        except (TypeError, ValueError, RuntimeError) as error:
            raise TrimtabError(
                ErrorKind.FAILED,
                f"vLLM does not start: {first_line(error)}",
                "see its log above, and ppo.engine_options",
            ) from error

    def _respond(
        self, prompts: list[list[int]], seeds: list[int], settings: dict[str, Any], vocabulary: int
    ) -> list[Response]:
        from vllm import SamplingParams

        answers = self._llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts],
            [SamplingParams(**settings, detokenize=False, seed=seed) for seed in seeds],
            use_tqdm=False,
        )
        return [
            (one.token_ids, [at[token].logprob for token, at in zip(one.token_ids, one.logprobs, strict=True)])
            for answer in answers
            for one in answer.outputs
        ]

    def close(self) -> None:
        """End vLLM, and remove the weights that were handed over."""
        self._llm = None
        super().close()


class VllmServerEngine(_Vllm):
    """A vLLM server, on this machine or one that sees the same directory under the same name.

    It has to be started with VLLM_SERVER_DEV_MODE=1 and `--logprobs-mode processed_logprobs`, from any model directory
    of the policy's architecture. VLLM_API_KEY is sent where it is set.

    Args:
        url: http(s)://host:port.
        directory: see `_Vllm`.
        pad_id: see `_Vllm`.
    """

    def __init__(self, url: str, directory: Path, pad_id: int) -> None:
        super().__init__(directory, pad_id)
        self._server = Server(url)
        self._name: str | None = None

    def _load(self, directory: Path, dtype: torch.dtype) -> None:
        if self._name is None:  # what is no vLLM server is told before it is waited for
            self._name = self._server.model()
        self._server.load(directory)
        if not self._server.forget():
            raise _stale()

    def _respond(
        self, prompts: list[list[int]], seeds: list[int], settings: dict[str, Any], vocabulary: int
    ) -> list[Response]:
        if self._name is None:  # another process handed the weights over
            self._name = self._server.model()
        same = settings | {"model": self._name, "return_token_ids": True}
        # a request has one seed, which all of its prompts would share
        bodies = [same | {"prompt": prompt, "seed": seed} for prompt, seed in zip(prompts, seeds, strict=True)]
        with ThreadPoolExecutor(min(len(bodies), _AT_ONCE)) as pool:
            answers = list(pool.map(lambda body: self._server.complete(body, vocabulary), bodies))
        return [response for answer in answers for response in answer]


def _stale() -> TrimtabError:
    return TrimtabError(
        ErrorKind.FAILED,
        "vLLM kept prefixes that the weights of the last iteration computed",
        "no one else may use it while a policy is trained",
    )
