"""A role as a directory that plain transformers loads, and hashes that say which weights it stands on."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers import PreTrainedModel

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.adapters import ADAPTER, SavedAdapters, adapted, adapter_parameters, plain_name, save_adapters
from trimtab.models.backbone import shared_parameters
from trimtab.models.narration import without_bars
from trimtab.models.writing import writing_weights

if TYPE_CHECKING:
    from trimtab.models.roles import Role

__all__ = ["adopt_trunk", "base_hash", "give_adapters", "save_role", "trunk_hash", "write_model"]


def trunk_hash(role: Role) -> str:
    """SHA-256 over names, shapes and float32 values of the trunk's weights; "" where there is no trunk.

    A trunk that is stored in bfloat16 and the same numbers in float32 have one hash.
    """
    if role.boundary == 0:
        return ""
    return _hash(f"boundary {role.boundary}", shared_parameters(role.backbone, role.boundary))


def base_hash(role: Role, *, head: bool) -> str:
    """SHA-256, as `trunk_hash`, over all weights of the body but adapters.

    Args:
        role: with adapters or without; what they add is not in the hash.
        head: count in a language-model head that is not tied to the embedding.
    """
    adapters = {id(p) for p in adapter_parameters(role.hf)}
    named = [(plain_name(n), p) for n, p in role.backbone.body.named_parameters() if id(p) not in adapters]
    if head and role.hf.get_output_embeddings() is not None:
        inside = {id(p) for _, p in named}
        of_head = role.hf.get_output_embeddings().named_parameters("head")
        named += [(name, p) for name, p in of_head if id(p) not in inside]
    return _hash("base", named)


def _hash(start: str, named: Iterable[tuple[str, Tensor]]) -> str:
    digest = hashlib.sha256(start.encode())
    for name, tensor in named:
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def save_role(role: Role, directory: Path, *, pad_id: int, dtype: torch.dtype | None) -> None:
    """What `Role.save_pretrained` does.

    Raises:
        TrimtabError: the disk is full, or the directory cannot be written to.
    """
    facts = {"trainable": str(role.layout), "trunk_sha256": trunk_hash(role)}
    hf = role.hf
    if adapted(hf):
        # In float32: what adapters add to a weight is mostly smaller than a step of bfloat16.
        hf = role.merged_hf(torch.float32)
        facts["base_sha256"] = base_hash(role, head=role.head is None)
    write_model(hf, directory, facts, pad_id, dtype)
    with writing_weights(directory):
        shutil.rmtree(directory / ADAPTER, ignore_errors=True)  # of the weights that were here before
    if role.lora is not None and adapted(role.hf):
        save_adapters(role.hf, role.lora, directory / ADAPTER, {} if role.head is None else role.head)


def write_model(
    hf: PreTrainedModel, directory: Path, facts: dict[str, str], pad_id: int, dtype: torch.dtype | None
) -> None:
    """Write a transformers model without adapters; `facts` go into its configuration, else as `Role.save_pretrained`.

    Raises:
        TrimtabError: the disk is full, or the directory cannot be written to.
    """
    parameters = list(hf.parameters())
    dtype = dtype or (torch.float32 if any(p.dtype == torch.float32 for p in parameters) else parameters[0].dtype)
    config = hf.config
    config.pad_token_id = pad_id
    config.trimtab = facts
    # One converted tensor for each storage, so that tied weights stay tied in the file.
    converted: dict[int, Tensor] = {}
    state = {}
    for name, tensor in hf.state_dict().items():
        key = tensor.data_ptr()
        if key not in converted:
            converted[key] = tensor.to(dtype) if tensor.is_floating_point() else tensor
        state[name] = converted[key]
    with writing_weights(directory):
        with without_bars():
            hf.save_pretrained(str(directory), state_dict=state)
        # transformers notes the dtype of the first weight, which may be a frozen one.
        config.dtype = dtype
        config.save_pretrained(str(directory))


def give_adapters(role: Role, saved: SavedAdapters) -> None:
    """Give a frozen role, which has none, saved adapters and the saved weights of its `head`.

    Raises:
        TrimtabError: they do not fit the model.
    """
    role.lora = saved.lora
    for parameter in (role.head or {}).values():
        parameter.data = parameter.data.float()
    saved.put_into(role.hf)
    head = (role.head or {}).values() if role.lora.head else ()  # a scalar head stays in float32
    for parameter in (*adapter_parameters(role.hf), *head):
        parameter.data = parameter.data.to(role.compute_dtype)
    role.hf.requires_grad_(False)


def adopt_trunk(role: Role, other: Role, *, recorded: str | None = None) -> None:
    """Replace a role's trunk by the storage of `other`'s, which must hold the same weights.

    Args:
        role: changed in place.
        other: the role to share with.
        recorded: hash of the trunk that `role` was trained on; default: that of the trunk it has.

    Raises:
        TrimtabError: the boundaries or the trunks' weights differ.
    """
    mine_hash, other_hash = trunk_hash(role) if recorded is None else recorded, trunk_hash(other)
    if role.boundary != other.boundary or mine_hash != other_hash:
        raise TrimtabError(
            ErrorKind.MODEL,
            f"{role.hf.config.name_or_path or type(role.hf).__name__} stands on another trunk than "
            f"the model at hand (shared layers {role.boundary} and {other.boundary}, "
            f"vocabularies of {role.vocabulary_size} and {other.vocabulary_size} tokens, "
            f"hashes {mine_hash[:12] or 'none'} and {other_hash[:12] or 'none'})",
            "train both from the same base model with the same model.trainable and model.dtype",
        )
    if role.boundary == 0:
        return
    mine, theirs = role.backbone.body, other.backbone.body
    tied = [m for m in role.hf.modules() if getattr(m, "weight", None) is mine.embed_tokens.weight]
    for module in tied:
        module.weight = theirs.embed_tokens.weight
    mine.embed_tokens, mine.rotary_emb = theirs.embed_tokens, theirs.rotary_emb
    for index in range(role.boundary):
        mine.layers[index] = theirs.layers[index]
