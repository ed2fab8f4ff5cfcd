"""Log-probabilities of the pairs under the reference: computed once, kept in the run, found again by what they are of.

The reference is the policy before its first update, so no second model is needed for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from trimtab.dpo.logprobs import PairLogprobs
from trimtab.dpo.rows import TokenPair
from trimtab.models.roles import CausalModel
from trimtab.runs.files import append_jsonl, read_jsonl, stable_hash
from trimtab.runs.progress import progress
from trimtab.runs.run import Run
from trimtab.training.precision import Precision

__all__ = ["reference_key", "reference_logprobs"]

_CHUNK = 32
"""Pairs computed, and written down, together."""
_ARTIFACT = "reference_logprobs"


def reference_key(reference: CausalModel, pairs: Sequence[TokenPair], precision: Precision) -> str:
    """Tells apart what the log-probabilities depend on: all weights, the tokens, what is computed in."""
    weights = hashlib.sha256()
    for name, parameter in reference.hf.named_parameters():
        weights.update(f"{name} {list(parameter.shape)}".encode())
        weights.update(parameter.detach().float().cpu().contiguous().numpy().tobytes())
    return stable_hash([weights.hexdigest(), [list(pair) for pair in pairs], precision.dtype, _CHUNK])


def reference_logprobs(
    policy: CausalModel, compute: PairLogprobs, pairs: Sequence[TokenPair], precision: Precision, run: Run | None
) -> Tensor:
    """[P, 2] of the chosen and the rejected responses, float32, in nats, on the model's device.

    Args:
        policy: as it is at the start.
        compute: of its log-probabilities of `pairs`.
        run: they are read from its artifact `reference_logprobs/<key>.jsonl` as far as they stand there, and written
            there, a line a pair, as they are computed; None: kept nowhere.
    """
    path: Path | None = None
    known: dict[int, list[float]] = {}
    if run is not None:
        path = run.artifact(f"{_ARTIFACT}/{reference_key(policy, pairs, precision)[:16]}.jsonl")
        for line in read_jsonl(path).records:
            known[int(line["pair"])] = [float(line["chosen"]), float(line["rejected"])]
    chunks = [range(at, min(at + _CHUNK, len(pairs))) for at in range(0, len(pairs), _CHUNK)]
    missing = [chunk for chunk in chunks if any(i not in known for i in chunk)]
    if missing:
        with progress(len(pairs), "reference log-probabilities", done=len(pairs) - sum(map(len, missing))) as bar:
            for chunk in missing:
                with torch.no_grad(), precision.autocast():
                    found = compute(chunk).tolist()
                known |= dict(zip(chunk, found, strict=True))
                if path is not None:
                    new = zip(chunk, found, strict=True)
                    append_jsonl(path, [{"pair": i, "chosen": c, "rejected": r} for i, (c, r) in new])
                bar.advance(len(chunk))
    return torch.tensor([known[i] for i in range(len(pairs))], device=policy.device)
