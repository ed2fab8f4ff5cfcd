"""What transformers reads from a model's directory, taken as hostile: every failure and every leftover is told.

A directory runs no code and asks nothing on the terminal: `NO_CODE` goes into every call that reads one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import PreTrainedConfig, PreTrainedModel

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models import embedded

__all__ = ["NO_CODE", "check_numbers", "check_tensors", "reading"]

NO_CODE: dict[str, Any] = {"trust_remote_code": False}
"""Options of every `from_pretrained`: None, the default, asks on the terminal whether to run the directory's code."""

_MISSING = (OSError, ValueError, KeyError)
"""What transformers raises where a hub id is not to be had; the others below come of what was read."""
_UNREADABLE = (
    *_MISSING, RuntimeError, TypeError, AttributeError, ArithmeticError, IndexError, AssertionError, ImportError,
    StrictDataclassError, SafetensorError,
)  # fmt: skip
_LONGEST = 300


@contextmanager
def reading(what: str, name: str) -> Iterator[None]:
    """Tell what goes wrong while transformers reads a part of a model.

    Args:
        what: the part, for the message.
        name: the model's name, as `loading.resolve` takes it.

    Raises:
        TrimtabError: it cannot be read; directory or hub id and cause are named.
    """
    try:
        yield
    except _UNREADABLE as error:
        raise _cannot_load(what, name, error) from error


def _cannot_load(what: str, name: str, error: Exception) -> TrimtabError:
    text = str(error).strip()
    # The dataclasses of a configuration tell the field in the first line and what is wrong with it in the next.
    cause = " ".join(text.split()) if isinstance(error, StrictDataclassError) else text.partition("\n")[0]
    if not cause or not isinstance(error, (OSError, ValueError, StrictDataclassError)):
        cause = f"{type(error).__name__}: {cause}".removesuffix(": ")
    local = Path(name).expanduser().is_dir()
    if "trust_remote_code" in text:
        kind, hint = ErrorKind.MODEL, "name a model of a kind that transformers knows: no code of a model's own is run"
    elif local:
        kind, hint = ErrorKind.MODEL, "the directory is incomplete or broken: save it again with save_pretrained"
    elif isinstance(error, _MISSING):
        kind = ErrorKind.MISSING
        hint = (
            f'"{name}" is no local directory, so it was taken for a hub id: check the spelling and the network '
            f'(HF_HUB_OFFLINE), or set model.name to a local directory or "{embedded.SMOLLM2}"'
        )
    else:
        kind, hint = ErrorKind.MODEL, "the model is broken, or of another kind than its configuration says"
    return TrimtabError(kind, f"cannot load the {what} of {name}: {cause[:_LONGEST]}", hint)


def check_numbers(config: PreTrainedConfig, name: str) -> None:
    """Refuse what transformers takes from a `config.json` and stumbles over later.

    Raises:
        TrimtabError: a value is NaN or infinite (a bound in a list may be infinite), or `architectures` is no list of
            names; the key is named.
    """
    kinds = config.architectures
    if kinds is not None and not (isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds)):
        raise _wrong_value(name, "architectures", kinds, "a list of names")
    for key, value in _leaves(config.to_dict()):
        if isinstance(value, float) and (math.isnan(value) or (math.isinf(value) and not key.endswith("]"))):
            raise _wrong_value(name, key, value, "a finite number")


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{place}[{number}]")
    else:
        yield place, value


def _wrong_value(name: str, key: str, value: object, wanted: str) -> TrimtabError:
    return TrimtabError(
        ErrorKind.MODEL,
        f"cannot load the configuration of {name}: {key} in config.json is {str(value)[:60]!r}, not {wanted}",
        "the directory is incomplete or broken: save it again with save_pretrained",
    )


_BUFFERS = (
    "inv_freq", "original_inv_freq", "position_ids", "masked_bias", "attn.bias", "attention.bias",
)  # fmt: skip
"""Ends of names of what older versions of transformers wrote beside the weights and now compute."""


def check_tensors(
    hf: PreTrainedModel,
    info: Mapping[str, Collection[Any]],
    name: str,
    may_lack: Callable[[PreTrainedModel, str], bool],
    layers: int | None = None,
) -> None:
    """Refuse weights that are not those of the model: transformers draws what is missing and drops what is left over.

    The head of another task is dropped on purpose: a tensor in a module beside the body that the model does not have.

    Args:
        hf: the model that was made of the file.
        info: transformers' loading info: `missing_keys`, `unexpected_keys` and `mismatched_keys`.
        name: for messages.
        may_lack: whether the file may lack a tensor, have more like it, or have it in another shape.
        layers: how many layers were taken on purpose; None: all.

    Raises:
        TrimtabError: the file has a tensor in another shape, lacks some, or has some that the model has no place for.
    """
    shapes = sorted((key, saved, own) for key, saved, own in info.get("mismatched_keys", ()) if not may_lack(hf, key))
    if shapes:
        key, saved, own = shapes[0]
        raise TrimtabError(
            ErrorKind.MODEL,
            f"cannot load the model of {name}: {key} is {list(saved)} in the file and {list(own)} by config.json"
            + (f", and {len(shapes) - 1} more differ" if len(shapes) > 1 else ""),
            "configuration and weights belong to different models: save both again with save_pretrained",
        )
    missing = sorted(key for key in info["missing_keys"] if not may_lack(hf, key))
    if missing:
        raise TrimtabError(
            ErrorKind.MODEL,
            f"the weights of {name} lack {len(missing)} of {type(hf).__name__}'s tensors, first {missing[0]}",
            "the directory holds another kind of model, or was not written to its end",
        )
    surplus = sorted(key for key in info["unexpected_keys"] if not (may_lack(hf, key) or _harmless(hf, key, layers)))
    if surplus:
        more = f" and {len(surplus) - _TOLD} more" if len(surplus) > _TOLD else ""
        raise TrimtabError(
            ErrorKind.MODEL,
            f"the weights of {name} hold {len(surplus)} tensors that {type(hf).__name__} by its config.json does not "
            f"have: {', '.join(surplus[:_TOLD])}{more}",
            "configuration and weights belong to different models: save both again with save_pretrained",
        )


_TOLD = 3


def _harmless(hf: PreTrainedModel, key: str, layers: int | None) -> bool:
    """Whether a tensor left over in the file says nothing of the model that was loaded."""
    if any(key == end or key.endswith(f".{end}") for end in _BUFFERS):
        return True
    parts = key.split(".")
    if layers is not None:
        number = next((int(part) for part in parts if part.isdecimal()), -1)
        if number >= layers:
            return True
    tops = {top for top, _ in hf.named_children()} | {hf.base_model_prefix}
    tops |= {top for top, _ in hf.named_parameters(recurse=False)}
    return parts[0] not in tops
