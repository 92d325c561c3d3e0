"""From the command line's words to a kernel of the dispatch table and a geometry."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from evalsuite.errors import UsageError
from sparse_mla.architecture import architecture_of
from sparse_mla.capability import ALL_ROW_KINDS, Capability
from sparse_mla.geometry import Geometry
from sparse_mla.table import Entry, SparseMla

# The miniature; GLM-5.3-Flash on one device; its siblings with rope.
PRESETS = {
    "mini": {"rank": 512, "rope": 0, "heads": 16, "topk": 131},
    "glm53": {"rank": 512, "rope": 0, "heads": 64, "topk": 2048},
    "glm51": {"rank": 512, "rope": 64, "heads": 64, "topk": 2048},
}
KEYS = ("rank", "rope", "heads", "topk")
FIRST = -1.0


@dataclass(frozen=True)
class ForeignKernel:
    """A kernel's entry in the table, and whether it takes per-row lengths."""

    entry: Entry
    takes_lengths: bool


def default_device() -> torch.device:
    """A GPU where torch can use one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def parse_geometry(text: str | None, device: torch.device) -> Geometry:
    """The geometry of `mini`, `glm53` or `glm51`, with changes such as `glm53,heads=16,dtype=…`.

    All kinds of rows; the type of the device's arms unless `dtype=` says otherwise. Raises
    UsageError.
    """
    name, *changes = (text or "mini").split(",")
    if "=" in name:
        name, changes = "mini", [name, *changes]
    if name not in PRESETS:
        raise UsageError(f"{name!r} is none of {', '.join(PRESETS)}", field="--geometry")
    sizes, dtype = dict(PRESETS[name]), "float32" if device.type == "cpu" else "bfloat16"
    for change in changes:
        key, _, value = change.partition("=")
        if key == "dtype":
            dtype = value
        elif key in KEYS and value.isdecimal():
            sizes[key] = int(value)
        else:
            allowed = ", ".join(f"{key}=NUMBER" for key in KEYS)
            raise UsageError(f"{change!r} is none of {allowed}, dtype=NAME", field="--geometry")
    try:
        return Geometry(
            architecture_of(device),
            dtype,
            sizes["rank"],
            sizes["rope"],
            sizes["heads"],
            ALL_ROW_KINDS,
            sizes["topk"],
        )
    except ValueError as problem:
        raise UsageError(str(problem), field="--geometry") from None


def load_kernel(name: str, geometry: Geometry) -> ForeignKernel:
    """The kernel `module:function`, or the Entry that stands there, put first in the table.

    A bare function is taken to compute this geometry with any number of heads and any kind of
    rows. Raises UsageError where there is none, or where an Entry does not declare the geometry.
    """
    found = _attribute(name)
    if isinstance(found, Entry):
        entry = replace(found, cost=lambda geometry: FIRST)
    elif callable(found):
        entry = _bare(name, found, geometry)
    else:
        raise UsageError(f"{name} is neither a function nor an Entry of sparse_mla", field="kernel")
    kinds = [kind for kind in ALL_ROW_KINDS if entry.refusal(only(geometry, kind), False) is None]
    if not kinds:
        reason = entry.refusal(geometry, False)
        raise UsageError(f"{name} does not declare {geometry}: {reason}", field="--geometry")
    return ForeignKernel(entry, "lengths" in _accepted(entry.load(geometry)))


def only(geometry: Geometry, *kinds: str) -> Geometry:
    """The geometry with these kinds of rows."""
    return replace(geometry, row_kinds=frozenset(kinds))


def _attribute(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise UsageError(f"{name!r} is not MODULE:FUNCTION", field="kernel")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as problem:
        raise UsageError(f"{name}: no module {problem.name}", field="kernel") from None
    if found is None:
        raise UsageError(f"{module} has no {attribute}", field="kernel")
    return found


def _bare(name: str, function: Callable[..., Any], geometry: Geometry) -> Entry:
    able = Capability(
        frozenset({geometry.architecture}),
        frozenset({geometry.cache_dtype}),
        frozenset({geometry.kv_lora_rank}),
        frozenset({geometry.rope_dim}),
        range(1, 1025),
    )

    def load(chosen: Geometry) -> SparseMla:
        return adapted(function, chosen.kv_lora_rank)

    return Entry(name, (able,), load, cost=lambda geometry: FIRST)


def _accepted(function: Callable[..., Any]) -> set[str]:
    """Keywords that a kernel takes."""
    told = getattr(function, "accepted", None)
    if told is not None:
        return set(told)
    return set(inspect.signature(function).parameters)


@dataclass(frozen=True)
class adapted:
    """A user's function behind the whole signature.

    Without `empty_index` it gets -1 in such columns. It gets `kv_lora_rank`, `lengths` and
    `cache_scale` where it names them; an argument that it cannot honour is an error.
    """

    function: Callable[..., Any]
    kv_lora_rank: int

    @property
    def accepted(self) -> set[str]:
        """Keywords that the function takes."""
        return set(inspect.signature(self.function).parameters)

    def __call__(
        self,
        query: Tensor,
        cache: Tensor,
        indices: Tensor,
        scale: float,
        *,
        empty_index: int = -1,
        **options: Any,
    ) -> tuple[Tensor, Tensor]:
        """out and lse of the user's function."""
        accepted = self.accepted
        given = {name: value for name, value in options.items() if value is not None}
        if "empty_index" in accepted:
            given["empty_index"] = empty_index
        elif empty_index != -1:
            indices = torch.where(indices == empty_index, -1, indices)
        if "kv_lora_rank" in accepted:
            given["kv_lora_rank"] = self.kv_lora_rank
        out, lse = self.function(query, cache, indices, scale, **given)
        return out, lse
