"""The trained preference model as a scorer and as a directory.

The directory is an ordinary `AutoModelForSequenceClassification` with one label plus its tokenizer; `trimtab.json`
beside it says what it was trained on and, with shared layers, the hash of the trunk that it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trimtab.data.records import Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.loading import load_codec, load_scalar
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.models.tokens import TextCodec, right_pad
from trimtab.preference.calibration import CALIBRATION_FILE, Calibration, sigmoid
from trimtab.runs.files import read_json, write_json
from trimtab.training.precision import Precision

__all__ = ["PreferenceModel"]

_CARD = "trimtab.json"


class PreferenceModel:
    """Scores responses; a `Scorer` named `preference`.

    Args:
        model: backbone with a scalar head.
        codec: its tokenizer; texts are tokenised here, so the policy may have another one.
        precision: what the forward pass computes in.
        batch_size: responses scored at a time.
        max_tokens: longest prompt with response; None = the model's context.
        calibration: what a margin of its scores means; None: the margin is a log-odds as it is.
        calibrated_score: divide every score by the calibration's temperature.

    Raises:
        TrimtabError: `calibrated_score` without a calibration.
    """

    name = "preference"

    @property
    def combination(self) -> str:
        """What the score is made of, where settings can change that without training; empty = one model's score."""
        return ""

    def __init__(
        self,
        model: ScalarModel,
        codec: TextCodec,
        precision: Precision | None = None,
        *,
        batch_size: int = 64,
        max_tokens: int | None = None,
        calibration: Calibration | None = None,
        calibrated_score: bool = False,
    ) -> None:
        self.model, self.codec = model, codec
        self.precision = precision or Precision("float32", model.device)
        self.batch_size, self.max_tokens = batch_size, max_tokens or model.context_length
        self.calibration = calibration
        if calibrated_score and calibration is None:
            raise TrimtabError(
                ErrorKind.MODEL,
                "preference.calibrated_score = true, but this preference model has no calibration",
                "make one with: trimtab pm calibrate PROJECT",
            )
        self.scale = calibration.temperature if calibrated_score and calibration is not None else 1.0

    def token_ids(self, prompt: Prompt, response: Response) -> list[int]:
        """Prompt and response as the model reads them, always with EOS at the end.

        The score is read at that token. A response that was cut off gets one too: read at whatever word it broke off
        at, scores of a small model are mostly about that word (whether a response ended by itself is what
        `ppo.missing_eos_penalty` is for).

        Raises:
            TrimtabError: longer than `max_tokens`.
        """
        ids = self.codec.prompt_ids(prompt) + self.codec.response_ids(replace(response, finished=True), prompt.id)
        if self.max_tokens is not None and len(ids) > self.max_tokens:
            raise TrimtabError(
                ErrorKind.DATA,
                f"prompt {prompt.id!r} with its response has {len(ids)} tokens; "
                f"the preference model reads {self.max_tokens}",
                "raise preference.max_tokens (at most the model's context) or shorten the response",
            )
        return ids

    @torch.no_grad()
    def score(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> np.ndarray:
        """Scores, float64 [B], in the order given; one that is not finite is returned as it is."""
        rows = [self.token_ids(prompt, response) for prompt, response in zip(prompts, responses, strict=True)]
        return self.score_ids(rows) / self.scale

    def probability(self, margins: np.ndarray) -> np.ndarray:
        """P(first wins) of differences of this model's `score`, float64 of the same shape; calibrated where it is."""
        if self.calibration is None:
            return sigmoid(margins)
        return self.calibration.probability(np.asarray(margins, dtype=np.float64) * self.scale)

    @torch.no_grad()
    def score_ids(self, rows: Sequence[list[int]]) -> np.ndarray:
        """Raw scores of tokenised rows, float64 [B]; batched by length, so that little padding is computed."""
        scores = np.empty(len(rows))
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        for start in range(0, len(rows), self.batch_size):
            part = order[start : start + self.batch_size]
            ids, mask = right_pad([rows[i] for i in part], self.codec.pad_id)
            with self.precision.autocast():
                out = self.model.score(ids.to(self.model.device), mask.to(self.model.device))
            scores[part] = out.double().cpu().numpy()
        return scores

    def save(self, directory: Path, **card: Any) -> None:
        """Write model, tokenizer and card; `card` holds facts worth keeping (hash of the pairs, accuracy)."""
        self.model.save_pretrained(directory, pad_id=self.codec.pad_id)
        self.codec.save(directory)
        (directory / CALIBRATION_FILE).unlink(missing_ok=True)  # of the weights that were here before
        if self.calibration is not None:
            self.calibration.save(directory)
        write_json(directory / _CARD, {"max_tokens": self.max_tokens, "chat": self.codec.chat} | card)

    @classmethod
    def load(
        cls, directory: Path, precision: Precision, base: CausalModel | None = None, *, calibrated_score: bool = False
    ) -> PreferenceModel:
        """Load a saved preference model, with its calibration where `trimtab pm calibrate` has left one.

        Args:
            directory: what `save` wrote.
            precision: what the forward pass computes in, and where.
            base: the model whose shared layers it stands on; those are then in memory once.
            calibrated_score: as for the class.

        Raises:
            TrimtabError: the directory is no preference model, or its shared layers are not `base`'s.
        """
        card = read_json(directory / _CARD, ErrorKind.MODEL)
        model = load_scalar(directory, precision.dtype, precision.device, trunk_from=base)
        codec = load_codec(str(directory), "auto" if card["chat"] else "off")
        return cls(
            model, codec, precision, max_tokens=card["max_tokens"], calibration=Calibration.load(directory),
            calibrated_score=calibrated_score,
        )  # fmt: skip
