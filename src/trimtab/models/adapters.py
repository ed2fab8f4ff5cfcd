"""Low-rank adapters in a model: the layers are the peft library's, put in place of the linear layers they adapt.

A model with adapters still runs layer by layer and with a cache. The linear layers inside keep their parameters, the
very objects, so that many models with adapters can stand on one storage. An adapter starts at B = 0, where it adds
nothing, with A uniform in +- 1 / sqrt(in), drawn on the CPU: one seed gives one adapter on every device.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from trimtab.config.layout import Lora
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.seeds import torch_stream
from trimtab.models.writing import writing_weights

__all__ = [
    "ADAPTER",
    "ADAPTER_CONFIG",
    "SavedAdapters",
    "adapted",
    "adapter_parameters",
    "add_adapters",
    "at_zero",
    "config_for",
    "fold",
    "layer_list",
    "plain_name",
    "read_adapters",
    "save_adapters",
]

ADAPTER = "adapter"
"""Directory of the adapter beside a model's merged weights."""
_NAME = "default"
ADAPTER_CONFIG = "adapter_config.json"
"""Its presence tells a directory of adapters."""
_WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."


def adapted(hf: nn.Module) -> list[tuple[str, Any]]:
    """The layers with an adapter, by name, in the model's order."""
    return [(name, m) for name, m in hf.named_modules() if hasattr(m, "lora_A") and hasattr(m, "base_layer")]


def adapter_parameters(hf: nn.Module) -> Iterator[nn.Parameter]:
    """A and B of every adapter."""
    for _, layer in adapted(hf):
        yield layer.lora_A[_NAME].weight
        yield layer.lora_B[_NAME].weight


def plain_name(name: str) -> str:
    """A parameter's name as it is without adapters."""
    return name.replace(".base_layer.", ".")


def layer_list(hf: nn.Module, count: int) -> tuple[str, nn.ModuleList]:
    """The list of a model's `count` layers, with its name.

    Raises:
        TrimtabError: there is none.
    """
    for name, module in hf.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return name, module
    raise TrimtabError(
        ErrorKind.MODEL,
        f"{type(hf).__name__} has no list of its {count} layers",
        "name a decoder whose layers stand in a list, as in Llama or GPT-2",
    )


def add_adapters(hf: PreTrainedModel, lora: Lora, boundary: int, generator: torch.Generator | None = None) -> None:
    """Put adapters at zero into the layers from `boundary` on; nothing but they takes gradients afterwards.

    Args:
        hf: the model, changed in place.
        lora: what the adapters are like.
        boundary: number of the first layer that gets some.
        generator: draws A; None: always the same A.

    Raises:
        TrimtabError: as `config_for`.
    """
    from peft import inject_adapter_in_model

    # Without memory at first: peft would draw from the global random state, which is not ours to move.
    inject_adapter_in_model(config_for(hf, lora, boundary), hf, adapter_name=_NAME, low_cpu_mem_usage=True)
    generator = generator or torch_stream(0, "adapters")
    for _, layer in adapted(hf):
        a, b = layer.lora_A[_NAME], layer.lora_B[_NAME]
        device = layer.base_layer.weight.device
        drawn = torch.rand(a.weight.shape, generator=generator) * 2 - 1
        a.weight = nn.Parameter((drawn / math.sqrt(a.in_features)).to(device))
        b.weight = nn.Parameter(torch.zeros(b.weight.shape, device=device))


def config_for(hf: PreTrainedModel, lora: Lora, boundary: int) -> Any:
    """peft's description of the adapters that a model is to get.

    Raises:
        TrimtabError: a target is no linear layer of the model, or the rank is above that of all layers.
    """
    count = int(hf.config.get_text_config().num_hidden_layers)
    name, layers = layer_list(hf, count)
    linear = [(n, m) for layer in layers[boundary:] for n, m in layer.named_modules() if isinstance(m, _LINEAR)]
    there = list(dict.fromkeys(_last(name) for name, _ in linear))
    missing = [target for target in lora.targets if target not in there]
    if missing or not there:
        raise TrimtabError(
            ErrorKind.CONFIG,
            f"model.lora_targets: {type(hf).__name__} has no linear layer {', '.join(missing) or 'at all'}",
            f"its layers have {', '.join(there) or 'none'}",
        )
    widest = max(min(m.weight.shape) for n, m in linear if not lora.targets or _last(n) in lora.targets)
    if lora.rank > widest:
        raise TrimtabError(
            ErrorKind.CONFIG,
            f"model.lora_rank = {lora.rank}: no adapted layer of {type(hf).__name__} has a rank above {widest}",
            f"name 1 to {widest}, usually 8 to 64",
        )
    numbers = range(boundary, count)
    return _config(lora, lora.targets or there, numbers, _last(name), any(isinstance(m, Conv1D) for _, m in linear))


def _config(lora: Lora, targets: Sequence[str], layers: Sequence[int], pattern: str, transposed: bool) -> Any:
    from peft import LoraConfig

    return LoraConfig(
        r=lora.rank,
        lora_alpha=cast(int, lora.alpha),  # peft divides and multiplies by it: any number does
        target_modules=list(targets),
        layers_to_transform=list(layers),
        layers_pattern=pattern,
        fan_in_fan_out=transposed,
    )


_LINEAR = (nn.Linear, Conv1D)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def at_zero(hf: nn.Module) -> bool:
    """Whether the adapters, if any, add nothing."""
    return not any(bool(layer.lora_B[_NAME].weight.any()) for _, layer in adapted(hf))


@torch.no_grad()
def fold(hf: PreTrainedModel, dtype: torch.dtype) -> None:
    """Take the adapters out, in place; what they add becomes part of the weights.

    A weight to which something is added is a new one in `dtype`, W + alpha / rank * B A computed in float32; one to
    which nothing is added stays the same storage.
    """
    for name, layer in adapted(hf):
        base, b = layer.base_layer, layer.lora_B[_NAME].weight
        if bool(b.any()):
            added = (b.float() @ layer.lora_A[_NAME].weight.float()) * layer.scaling[_NAME]
            added = added.T if isinstance(base, Conv1D) else added
            base.weight = nn.Parameter((base.weight.float() + added).to(dtype), requires_grad=False)
        parent, _, last = name.rpartition(".")
        setattr(hf.get_submodule(parent), last, base)
    if hasattr(hf, "peft_config"):
        del hf.peft_config


# a directory that peft reads


def save_adapters(hf: PreTrainedModel, lora: Lora, directory: Path, head: Mapping[str, Tensor]) -> None:
    """Write the adapters, and the weights of a head, as `peft.PeftModel.from_pretrained` reads them.

    Args:
        hf: a model with adapters.
        lora: what they are like.
        directory: made if need be.
        head: by name, each weight of a module that is trained whole.
    """
    there = adapted(hf)
    places = [name for name, _ in there]
    pattern, layers = layer_list(hf, int(hf.config.get_text_config().num_hidden_layers))[0], set()
    for name in places:
        layers.add(int(name.removeprefix(f"{pattern}.").partition(".")[0]))
    transposed = any(isinstance(layer.base_layer, Conv1D) for _, layer in there)
    config = _config(lora, [_last(name) for name in places], sorted(layers), _last(pattern), transposed)
    config.base_model_name_or_path = hf.config.name_or_path or None
    config.task_type = "CAUSAL_LM" if hf.get_output_embeddings() is not None else "SEQ_CLS"
    config.modules_to_save = sorted({name.rpartition(".")[0] for name in head}) or None
    config.inference_mode = True
    state = dict(head)
    for name, layer in there:
        state[f"{name}.lora_A.weight"] = layer.lora_A[_NAME].weight
        state[f"{name}.lora_B.weight"] = layer.lora_B[_NAME].weight
    tensors = {_PREFIX + name: tensor.detach().float().cpu().contiguous() for name, tensor in state.items()}
    document = {key: sorted(v) if isinstance(v, set) else v for key, v in config.to_dict().items()}
    with writing_weights(directory):
        directory.mkdir(parents=True, exist_ok=True)
        save_file(tensors, directory / _WEIGHTS, metadata={"format": "pt"})
        (directory / ADAPTER_CONFIG).write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", "utf-8")


_OTHERS = "other layers have one"


@dataclass(frozen=True)
class SavedAdapters:
    """What `save_adapters` wrote: `first` is the lowest layer that has some, `weights` are by the names in a file."""

    lora: Lora
    first: int
    weights: dict[str, Tensor]

    def put_into(self, hf: PreTrainedModel) -> None:
        """Give a model without adapters these; those of a head are copied into it.

        Raises:
            TrimtabError: they do not fit the model.
        """
        try:
            add_adapters(hf, self.lora, self.first)
        except TrimtabError as error:
            # It would name the settings; these come from a file.
            raise TrimtabError(
                ErrorKind.MODEL,
                f"the saved adapter does not fit the model: {error.message}",
                "it belongs to another model; save both again",
            ) from error
        own = {name: parameter for name, parameter in hf.named_parameters() if f".{_NAME}." in name}
        own |= {name: parameter for name, parameter in hf.named_parameters() if _PREFIX + name in self.weights}
        found = {name: self.weights.get(_PREFIX + name.replace(f".{_NAME}.", ".")) for name in own}
        wrong = [n for n, tensor in found.items() if tensor is None or tensor.shape != own[n].shape]
        if wrong or len(own) != len(self.weights):
            raise TrimtabError(
                ErrorKind.MODEL,
                f"the saved adapter does not fit the model: {self._misfit(wrong[0], own, found) if wrong else _OTHERS}",
                "it belongs to another model; save both again",
            )
        with torch.no_grad():
            for name, tensor in found.items():
                own[name].copy_(cast(Tensor, tensor))

    @staticmethod
    def _misfit(name: str, own: Mapping[str, Tensor], found: Mapping[str, Tensor | None]) -> str:
        saved = found[name]
        if saved is None:
            return f"it has no {name}"
        return f"{name} is {list(saved.shape)} in it and {list(own[name].shape)} in the model"


def read_adapters(directory: Path) -> SavedAdapters | None:
    """The adapters that lie in a directory; None where there are none.

    Raises:
        TrimtabError: they are broken.
    """
    if not (directory / ADAPTER_CONFIG).is_file():
        return None
    try:
        config = json.loads((directory / ADAPTER_CONFIG).read_text("utf-8"))
        weights = load_file(directory / _WEIGHTS)
    except (OSError, ValueError, RecursionError, SafetensorError) as error:
        raise _broken(directory, f"{type(error).__name__}: {error}") from error
    if not isinstance(config, dict):
        raise _broken(directory, f"{ADAPTER_CONFIG} holds a {type(config).__name__} where an object is expected")
    for key, (fits, wanted) in _FIELDS.items():
        value = config.get(key)
        if not fits(value):
            told = f"is {str(value)[:60]!r}" if key in config else "is missing"
            raise _broken(directory, f"{key} in {ADAPTER_CONFIG} {told}; it must be {wanted}")
    head = config.get("task_type") == "CAUSAL_LM" and bool(config.get("modules_to_save"))
    lora = Lora(config["r"], float(config["lora_alpha"]), tuple(config["target_modules"]), head)
    return SavedAdapters(lora, min(config["layers_to_transform"]), weights)


def _broken(directory: Path, why: str) -> TrimtabError:
    return TrimtabError(
        ErrorKind.MODEL,
        f"{directory}: the adapter is broken: {why}",
        "remove that directory: the merged weights beside it are whole",
    )


def _whole(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


_RANKS = 65536
_LAYERS = 10**6
_PLAIN = re.compile(r"\w+(\.\w+)*", re.ASCII)
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "r": (lambda v: _whole(v, 1, _RANKS), f"a whole number from 1 to {_RANKS}"),
    "lora_alpha": (
        lambda v: type(v) in (int, float) and 0 < v <= sys.float_info.max,
        "a finite number above 0",
    ),
    "target_modules": (
        lambda v: isinstance(v, list) and v != [] and all(isinstance(n, str) and _PLAIN.fullmatch(n) for n in v),
        "a list of names of layers",
    ),
    "layers_to_transform": (
        lambda v: isinstance(v, list) and v != [] and all(_whole(n, 0, _LAYERS) for n in v),
        "a list of whole numbers from 0 on",
    ),
}
"""What is read of an adapter's configuration: whether a value will do, and what it must be."""
