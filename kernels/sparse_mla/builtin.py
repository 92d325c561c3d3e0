"""The table's own kernels, and other projects' where they are installed, with declared limits."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial
from typing import cast

from sparse_mla import external
from sparse_mla.capability import Capability
from sparse_mla.entry import Entry, SparseMla
from sparse_mla.geometry import CPU, INTERPRETER, PREFILL, Geometry
from sparse_mla.portable import gather_mla

NVIDIA = frozenset({"sm_90"})
AMD = frozenset({"gfx942", "gfx950"})
POWERS = frozenset({16, 32, 64, 128, 256, 512})
ANY_HEADS = range(1, 129)
FP8 = frozenset({"fp8_e4m3", "fp8_e4m3_row"})


def _load_ours(geometry: Geometry) -> SparseMla:
    function = importlib.import_module("sparse_mla.attention").sparse_mla
    return partial(function, kv_lora_rank=geometry.kv_lora_rank)


def _without_triton() -> str | None:
    return None if importlib.util.find_spec("triton") else "triton is not installed"


def _load_gather(geometry: Geometry) -> SparseMla:
    return partial(gather_mla, kv_lora_rank=geometry.kv_lora_rank)


def _ours(name: str, rope_dims: frozenset[int]) -> Entry:
    return Entry(
        name,
        (
            Capability(
                NVIDIA | AMD, frozenset({"bfloat16"}) | FP8, frozenset({512}), rope_dims, ANY_HEADS
            ),
            # The interpreter computes bfloat16 products wrongly and rounds to it by truncation.
            Capability(
                frozenset({INTERPRETER}),
                frozenset({"float32", "float16"}) | FP8,
                POWERS,
                rope_dims,
                ANY_HEADS,
            ),
        ),
        _load_ours,
        _without_triton,
    )


def _load_external(name: str) -> Callable[[Geometry], SparseMla]:
    def load(geometry: Geometry) -> SparseMla:
        function = getattr(external, name)
        if name == "flash_mla":
            return cast(SparseMla, function)
        return partial(function, kv_lora_rank=geometry.kv_lora_rank)

    return load


def _flash_mla_cost(geometry: Geometry) -> float:
    """Beside ours, measured on an H200 (benchmarks/results/kernels-h200.md).

    A prefill of 4096 rows takes 0.74 of our time. A single row takes four times ours, as its keys
    are never split, and 64 rows 1.14 times; only from some hundred verification rows on is it
    faster, and a geometry does not tell how many rows there are.
    """
    return 0.74 if PREFILL in geometry.row_kinds else 1.5


EXTERNAL = (
    Entry(
        "flash_mla",
        (
            Capability(
                NVIDIA,
                frozenset({"bfloat16"}),
                frozenset({512}),
                frozenset({0, 64}),
                frozenset({64, 128}),
                topk_multiple=128,
            ),
        ),
        _load_external("flash_mla"),
        external.missing(external.FLASH_MLA),
        _flash_mla_cost,
    ),
    Entry(
        "aiter_sparse_mla",
        (
            Capability(
                AMD, frozenset({"bfloat16"}), frozenset({512}), frozenset({0, 64}), ANY_HEADS
            ),
            # On gfx942 it reads FP8 as e4m3fnuz, which is not how our caches are written.
            Capability(
                frozenset({"gfx950"}),
                frozenset({"fp8_e4m3"}),
                frozenset({512}),
                frozenset({0, 64}),
                ANY_HEADS,
            ),
        ),
        _load_external("aiter"),
        external.missing(external.AITER),
        lambda geometry: 0.9,
    ),
    Entry(
        "flashinfer_page1",
        (
            Capability(
                NVIDIA,
                frozenset({"bfloat16", "float16", "fp8_e4m3"}),
                frozenset({512}),
                frozenset({0, 64}),
                ANY_HEADS,
                graph_capture=False,
            ),
        ),
        _load_external("flashinfer"),
        external.missing(external.FLASHINFER),
        # It plans on the host in every call.
        lambda geometry: 4.0,
    ),
)

BUILTIN = (
    _ours("triton_latent", frozenset({0})),
    _ours("triton_rope", frozenset({64})),
    Entry(
        "torch_gather",
        (
            Capability(
                frozenset({CPU}),
                frozenset({"bfloat16", "float16", "float32"}) | FP8,
                range(1, 1025),
                range(0, 1025),
                range(1, 1025),
            ),
        ),
        _load_gather,
    ),
)
