"""The trained preference model as a scorer and as a directory.

The directory is an ordinary `AutoModelForSequenceClassification` with one label, or one a head, plus its tokenizer;
`trimtab.json` beside it says what it was trained on, and what length explains of its scores where that is taken out:
plain transformers gives the score with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from trimtab.data.records import Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.encoder import ScoreCodec, ScoreModel
from trimtab.models.heads import OVERALL, head_scores, names_of_heads
from trimtab.models.kept import KeptStates
from trimtab.models.roles import CausalModel, Role, ScalarModel
from trimtab.models.starts import load_scorer
from trimtab.models.tokens import TextCodec, right_pad
from trimtab.preference.calibration import CALIBRATION_FILE, Calibration, sigmoid
from trimtab.preference.card import CARD, Card
from trimtab.preference.heads import HeadWeights, described, mixed, named_weights
from trimtab.preference.length import LengthFit
from trimtab.preference.shift_reference import REFERENCE_FILE, Reference
from trimtab.runs.files import write_json
from trimtab.scoring import disagreement
from trimtab.training.precision import Precision

__all__ = ["Observed", "PreferenceModel", "Read"]


class Read(NamedTuple):
    """What a pass over B responses gives.

    `scores`: every member's raw scores, float64 [k, B]: its heads as they are weighed, less what length explains.
    `states`: what the first's head reads, float32 [B, D]. `heads`: scores of each head, less what length explains,
    [k, H, B]; `raw`: the same with the length left in, None where none is taken out.
    """

    scores: np.ndarray
    states: np.ndarray | None
    heads: np.ndarray
    raw: np.ndarray | None


class Observed(NamedTuple):
    """Of B responses: what the (first member's) head reads float64 [B, D]; scores [B] before any division by a
    temperature; their standard deviation over members [B], zeros without any.
    """

    states: np.ndarray
    scores: np.ndarray
    spread: np.ndarray


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
        return self._weighed

    def __init__(
        self,
        model: ScoreModel,
        codec: ScoreCodec,
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
        self.models: list[ScoreModel] = [model]
        self.names: tuple[str, ...] = (OVERALL,)
        """Of the heads."""
        self.head_weights = np.ones(1)
        self._weighed = ""
        self.principle_weights: dict[str, float] = {}
        self.length_fits: list[LengthFit | None] = [None]
        """Of each member: what `length_debias = "regress"` takes out of its heads."""
        self.length_heads: list[torch.Tensor | None] = [None]
        """Of each member: the weights of the head that `length_debias = "two-head"` takes off; they are not saved."""
        self.reference: Reference | None = None
        """Kept beside the model when it is saved; `watch` makes its figures signals."""
        self.cache: KeptStates | None = None
        """Where the shared layers' output is looked up, and left; None: nowhere."""
        self._watches = False
        self._last: tuple[tuple[Any, ...], Read] | None = None

    def weigh(self, names: Sequence[str], chosen: HeadWeights, constitution: Mapping[str, float]) -> None:
        """Say what the score is made of.

        Args:
            names: of the heads, the overall one first.
            chosen: see `preference.head_weights`.
            constitution: weight of each principle.

        Raises:
            TrimtabError: a head that there is none of, or no weight at all.
        """
        self.head_weights = named_weights(chosen, names, constitution)
        self.names, self.principle_weights, self._last = tuple(names), dict(constitution), None
        self._weighed = described(chosen)

    def response_tokens(self, prompt: Prompt, response: Response) -> int:
        """Tokens of a response without its EOS: its length in everything that has to do with length."""
        return len(self.token_ids(prompt, response)) - len(self.token_ids(prompt, Response("")))

    def token_ids(self, prompt: Prompt, response: Response) -> list[int]:
        """Prompt and response as the model reads them: see `pair_ids` of the codec.

        Raises:
            TrimtabError: longer than `max_tokens`.
        """
        ids = self.codec.pair_ids(prompt, response)
        if self.max_tokens is not None and len(ids) > self.max_tokens:
            raise TrimtabError(
                ErrorKind.DATA,
                f"prompt {prompt.id!r} with its response has {len(ids)} tokens; "
                f"the preference model reads {self.max_tokens}",
                "raise preference.max_tokens (at most the model's context) or shorten the response",
            )
        return ids

    def score(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> np.ndarray:
        """Scores, float64 [B], in the order given; one that is not finite is returned as it is."""
        return np.asarray(self.read(prompts, responses).scores[0] / self.scale)

    def read(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> Read:
        """What one pass over a batch gives; states only with `watches`.

        With `watches`, several members or several heads the last batch is kept: who asks about it again gets the same.
        """
        batch = (*prompts, *responses)
        if self._last is not None and self._last[0] == batch:
            return self._last[1]
        rows = [self.token_ids(prompt, response) for prompt, response in zip(prompts, responses, strict=True)]
        found = self.read_ids(rows, states=self._watches, tokens=self._lengths(prompts, rows))
        # a single model may be in training: what it said of a batch is then soon no longer true
        keep = self._watches or len(self.models) > 1 or len(self.names) > 1
        self._last = (batch, found) if keep else None
        return found

    def _lengths(self, prompts: Sequence[Prompt], rows: Sequence[list[int]]) -> list[int] | None:
        """Response tokens as of `response_tokens`, where the score depends on them."""
        if not any(self.length_fits):
            return None
        empty = {p.id: len(self.token_ids(p, Response(""))) for p in {p.id: p for p in prompts}.values()}
        return [len(row) - empty[p.id] for p, row in zip(prompts, rows, strict=True)]

    @property
    def watches(self) -> bool:
        """Whether the states of what it scores are kept, to be compared with its reference."""
        return self._watches

    @watches.setter
    def watches(self, on: bool) -> None:
        self._watches, self._last = on, None

    def watch(self, reference: Reference | None) -> None:
        """From now on `signals` tells how far scored responses are from these; None: it no longer does."""
        self.reference, self.watches = reference, reference is not None

    def borrow(self, role: Any, dtype: str, kept: KeptStates | None) -> None:
        """Look the shared layers' output up in `kept`, if they are the very layers of `role` and both compute in
        `dtype`; None: no longer."""
        first = self.model
        shares = (
            self.precision.dtype == dtype
            and isinstance(first, ScalarModel)
            and isinstance(role, Role)
            and first.shares_with(role)
        )
        self.cache = kept if shares else None

    def observe(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> Observed:
        """States, scores and their spread over members, from one pass."""
        before, self.watches = self._watches, True
        try:
            scores = np.asarray(self.score(prompts, responses) * self.scale)
            spread = disagreement(self, prompts, responses)
            states = self.read(prompts, responses).states
        finally:
            self.watches = before
        assert states is not None
        return Observed(states.astype(np.float64), scores, np.zeros(len(scores)) if spread is None else spread)

    def signals(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> dict[str, float]:
        """From the pass that scored it: each head's mean, and with a reference how far the batch is from it."""
        heads = {f"score/{name}": float(x.mean()) for name, x in self.head_scores(prompts, responses).items()}
        if self.reference is None:
            return heads
        states = self.read(prompts, responses).states
        assert states is not None
        same = self.combination == self.reference.combination
        scores = np.asarray(self.score(prompts, responses) * self.scale) if same else None
        return heads | self.reference.signals(states.astype(np.float64), scores)

    def probability(self, margins: np.ndarray) -> np.ndarray:
        """P(first wins) of differences of this model's `score`, float64 of the same shape; calibrated where it is."""
        if self.calibration is None:
            return sigmoid(margins)
        return self.calibration.probability(np.asarray(margins, dtype=np.float64) * self.scale)

    @property
    def has_length_head(self) -> bool:
        """Whether the length heads that were trained beside the score are at hand."""
        return any(head is not None for head in self.length_heads)

    def head_scores(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> dict[str, np.ndarray]:
        """Scores float64 [B] of each head by its name; empty where there is one alone."""
        if len(self.names) == 1:
            return {}
        return dict(zip(self.names, self.read(prompts, responses).heads[0], strict=True))

    def biased_score(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> np.ndarray | None:
        """Scores float64 [B] with the length left in, to be compared with each other; None where none is taken out.

        Of a model with a length head only before it is saved: that head is not kept.
        """
        raw = self.read(prompts, responses).raw
        return None if raw is None else self.score_of_heads(self.levelled(raw))

    def score_ids(self, rows: Sequence[list[int]]) -> np.ndarray:
        """Raw scores of tokenised rows, float64 [B]; what length explains is left in."""
        return np.asarray(self.read_ids(rows).scores[0])

    @torch.no_grad()
    def read_ids(self, rows: Sequence[list[int]], *, states: bool = False, tokens: Sequence[int] | None = None) -> Read:
        """Read tokenised rows; batched by length, so that little padding is computed.

        Args:
            rows: of prompt and response.
            states: whether to keep what the first's head reads.
            tokens: [B] lengths of the responses; without them, what length explains is left in.
        """
        models = self.models
        heads = np.empty((len(models), len(self.names), len(rows)))
        beside = np.zeros((len(models), len(rows)))
        kept: np.ndarray | None = None
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        for start in range(0, len(rows), self.batch_size):
            part = order[start : start + self.batch_size]
            ids, mask = right_pad([rows[i] for i in part], self.codec.pad_id)
            ids, mask = ids.to(self.model.device), mask.to(self.model.device)
            with self.precision.autocast():
                trunk = self._trunk([rows[i] for i in part], ids, mask)
                for k, model in enumerate(models):
                    features = model.features(ids, mask, trunk=trunk)
                    every = head_scores(model.linear, features)[:, : len(self.names)]
                    heads[k][:, part] = every.double().cpu().numpy().T
                    if (length := self.length_heads[k]) is not None:
                        beside[k, part] = (features.float() @ length.float()).double().cpu().numpy()
                    if states and k == 0:
                        kept = np.empty((len(rows), features.shape[-1]), np.float32) if kept is None else kept
                        kept[part] = features.float().cpu().numpy()
        return self._as_read(heads, beside, kept, tokens)

    def _trunk(self, rows: Sequence[list[int]], ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor | None:
        """The shared layers' output, where it is kept, or several members read it."""
        first, cache = self.model, self.cache
        if not isinstance(first, ScalarModel) or first.boundary == 0 or (cache is None and len(self.models) == 1):
            return None
        if cache is None:
            return first.trunk(ids, mask)
        found = {i: hidden for i, row in enumerate(rows) if (hidden := cache.find(row)) is not None}
        missing = [i for i in range(len(rows)) if i not in found]
        if missing:
            for i, hidden in zip(missing, first.trunk(ids[missing], mask[missing]), strict=True):
                found[i] = hidden[: len(rows[i])].clone()
                cache.keep(rows[i], found[i])
        return torch.nn.utils.rnn.pad_sequence([found[i] for i in range(len(rows))], batch_first=True)

    def _as_read(
        self, heads: np.ndarray, beside: np.ndarray, states: np.ndarray | None, tokens: Sequence[int] | None
    ) -> Read:
        raw = None
        if self.has_length_head:
            raw = heads + beside[:, None]
        if tokens is not None and any(self.length_fits):
            raw = heads
            fitted = zip(heads, self.length_fits, strict=True)
            heads = np.stack([own if fit is None else fit.apply(own, tokens) for own, fit in fitted])
        return Read(mixed(heads, self.head_weights), states, heads, raw)

    def levelled(self, raw: np.ndarray) -> np.ndarray:
        """Heads [k, H, B] with the length left in, such that those of several members can be combined."""
        return raw

    def score_of_heads(self, heads: np.ndarray) -> np.ndarray:
        """The score float64 [B] that heads [k, H, B] of every member make."""
        return np.asarray(mixed(heads, self.head_weights)[0] / self.scale)

    def save(self, directory: Path, **card: Any) -> None:
        """Write model, tokenizer and card; `card` holds facts worth keeping (hash of the pairs, accuracy)."""
        self.model.save_pretrained(directory, pad_id=self.codec.pad_id)
        self.codec.save(directory)
        (directory / CALIBRATION_FILE).unlink(missing_ok=True)  # of the weights that were here before
        if self.calibration is not None:
            self.calibration.save(directory)
        (directory / REFERENCE_FILE).unlink(missing_ok=True)
        if self.reference is not None:
            self.reference.save(directory)
        own: dict[str, Any] = {"max_tokens": self.max_tokens, "chat": self.codec.chat}
        own["eos_id"] = self.codec.eos_id if isinstance(self.codec, TextCodec) else None
        if self.length_fits[0] is not None:
            own["length_debias"] = self.length_fits[0].as_dict()
        if len(self.names) > 1:
            own["principle_weights"] = self.principle_weights
        write_json(directory / CARD, own | card)

    @classmethod
    def load(
        cls,
        directory: Path,
        precision: Precision,
        base: CausalModel | None = None,
        *,
        calibrated_score: bool = False,
        head_weights: HeadWeights = OVERALL,
    ) -> PreferenceModel:
        """Load a saved preference model, with its calibration where `trimtab pm calibrate` has left one.

        Args:
            directory: what `save` wrote.
            precision: what the forward pass computes in, and where.
            base: the model whose shared layers it stands on; those are then in memory once. A model on a backbone of
                its own shares nothing.
            calibrated_score: as for the class.
            head_weights: see `preference.head_weights`.

        Raises:
            TrimtabError: the directory is no preference model, or its shared layers are not `base`'s.
        """
        card = Card.read(directory)
        model, codec = load_scorer(
            directory, precision.dtype, precision.device, trunk_from=None if card.backbone else base,
            chat="auto" if card.chat else "off",
        )  # fmt: skip
        names = names_of_heads(model.hf.config, str(directory))
        loaded = cls(
            model, codec, precision, max_tokens=card.max_tokens, calibration=Calibration.load(directory),
            calibrated_score=calibrated_score,
        )  # fmt: skip
        loaded.length_fits = [_length_fit(directory / CARD, card.facts, names)]
        loaded.weigh(names, head_weights, _principle_weights(card.facts, names))
        return loaded


def _length_fit(path: Path, card: Any, names: Sequence[str]) -> LengthFit | None:
    if card.get("length_debias") is None:
        return None
    try:
        fit = LengthFit.from_dict(card["length_debias"])
    except ValueError as error:
        raise TrimtabError(ErrorKind.MODEL, f"{path}: {error}", "train the model again") from None
    if len(fit.slopes) != len(names):
        raise TrimtabError(
            ErrorKind.MODEL,
            f"{path}: {len(fit.slopes)} log_length_slopes for {len(names)} heads",
            "train the model again",
        )
    return fit


def _principle_weights(card: Any, names: Sequence[str]) -> dict[str, float]:
    """Weights of the principles in the constitution; 1 each where the card does not say."""
    known = card.get("principle_weights")
    known = known if isinstance(known, Mapping) else {}
    return {name: float(w) if isinstance(w := known.get(name, 1.0), int | float) else 1.0 for name in names[1:]}
