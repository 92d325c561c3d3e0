"""What the compile gate compiles: every kernel in every configuration that a launch can ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sparse_mla import attention_kernels, configs, fit, indexer, kpool, packing_kernels, topk
from sparse_mla.specialised import specialised

ARCHITECTURES = ("sm_90", "gfx942", "gfx950")
# GLM-5.3-Flash's indexer, and the miniature's top-k beside the published one.
INDEX_HEADS, INDEX_DIM, KPOOL, BLOCK_SIZE = 32, 128, 4, 64
TOP_KS = (2048, 128)
MOST_SPLITS = 32


@dataclass(frozen=True)
class Unit:
    """One compilation. `types` are Triton's of the run-time arguments, in order of the kernel's.

    `aligned` names the integers that every launch passes as multiples of 16, as pointers are.
    """

    kernel: str
    label: str
    architecture: str
    function: Any = field(compare=False)
    types: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, int | bool], ...]
    num_warps: int
    num_stages: int
    aligned: frozenset[str] = frozenset()
    representative: bool = False


def _unit(
    label: str,
    architecture: str,
    function: Any,
    types: dict[str, str],
    constants: dict[str, int | bool],
    num_warps: int,
    *,
    num_stages: int = 2,
    aligned: frozenset[str] = frozenset(),
    representative: bool = False,
) -> Unit:
    return Unit(
        function.__name__,
        label,
        architecture,
        function,
        tuple(types.items()),
        tuple(constants.items()),
        num_warps,
        num_stages,
        aligned,
        representative,
    )


def attention_unit(case: configs.Case, *, representative: bool = False) -> Unit:
    """The attention kernel of one case of the table, with lengths and any scale it can have."""
    fp8 = case.cache_dtype.startswith("fp8")
    types = {
        **dict.fromkeys(("query", "cache"), "*bf16"),
        **dict.fromkeys(("indices", "lengths", "members"), "*i32"),
        "cache_scale": "*fp32",
        "out": "*fp32" if case.split else "*bf16",
        "lse": "*fp32",
        "scale2": "fp32",
        **dict.fromkeys(("topk", "slots", "empty", "columns_per_split", "splits"), "i32"),
        **dict.fromkeys(("query_row", "query_head", "cache_row"), "i32"),
    }
    if fp8:
        types["cache"] = "*fp8e4nv"
    function, constants = specialised(case, True, fp8)
    heads = f"{case.heads // case.packed_rows} heads"
    rows = f" x {case.packed_rows} rows" if case.packed_rows > 1 else ""
    cache = f"{case.cache_dtype} {case.kv_lora_rank}+{case.rope_dim}"
    split = "split" if case.split else "whole"
    return _unit(
        f"{cache}, {heads}{rows}, {split}, {case.config.label}",
        case.architecture,
        function,
        types,
        constants,
        case.config.num_warps,
        num_stages=case.config.num_stages,
        aligned=frozenset({"topk", "columns_per_split", "query_row", "query_head", "cache_row"}),
        representative=representative,
    )


def _is_representative(case: configs.Case) -> bool:
    """One head count of the miniature and of the model, and one FP8 cache, where they differ."""
    if case.packed_rows > 1 or case.rope_dim:
        return False
    if case.cache_dtype == "fp8_e4m3":
        return case.architecture != "gfx942" and case.heads == 16 and case.split
    return case.cache_dtype == "bfloat16" and (
        (case.heads, case.split) == (16, True)
        or (case.architecture, case.heads, case.split) == ("sm_90", 64, False)
    )


def _merge_units(architecture: str) -> Iterator[Unit]:
    types = {**dict.fromkeys(("parts", "part_lse"), "*fp32"), "out": "*bf16", "lse": "*fp32"}
    for heads in (8, 16, 32, 64, 128):
        splits = 1
        while splits < MOST_SPLITS:
            splits *= 2
            yield _unit(
                f"{heads} heads, up to {splits} splits",
                architecture,
                attention_kernels.merge_splits,
                {**types, "splits": "i32"},
                attention_kernels.merge_constants(heads, 512, splits, architecture == "sm_90"),
                attention_kernels.merge_warps(splits),
                representative=(heads, splits) == (64, 32) and architecture != "gfx942",
            )


def _packing_units(architecture: str) -> Iterator[Unit]:
    for rows in (2, 3, 4):
        for columns in TOP_KS:
            pointers = ("indices", "lengths", "tables", "union", "members", "counts")
            yield _unit(
                f"{rows} rows of top-{columns}",
                architecture,
                packing_kernels.build_union,
                {
                    **dict.fromkeys(pointers, "*i32"),
                    **dict.fromkeys(("topk", "slots", "empty"), "i32"),
                },
                packing_kernels.union_constants(rows, columns, True),
                packing_kernels.union_warps(rows, columns),
                aligned=frozenset({"topk"}),
                representative=(rows, columns) == (2, 2048),
            )


def _indexer_units(architecture: str) -> Iterator[Unit]:
    for rows in (1, 2, 4, 8):
        yield _unit(
            f"{INDEX_HEADS} heads of {INDEX_DIM}, {rows} rows",
            architecture,
            indexer.pool_scores_kernel,
            {
                **dict.fromkeys(("query", "pool"), "*bf16"),
                **dict.fromkeys(("weights", "scores"), "*fp32"),
                **dict.fromkeys(("tables", "positions", "query_start_loc"), "*i64"),
                "scale": "fp32",
                **dict.fromkeys(("num_pools", "table_stride", "score_stride"), "i32"),
            },
            {
                **{"HEADS": INDEX_HEADS, "BLOCK_H": INDEX_HEADS},
                **{"DIM": INDEX_DIM, "BLOCK_D": INDEX_DIM, "KPOOL": KPOOL},
                **{"POOLS_PER_BLOCK": BLOCK_SIZE // KPOOL, "ROWS": rows},
                **{"BLOCK_P": indexer.BLOCK_POOLS, "UPCAST": False},
            },
            indexer.WARPS,
            aligned=frozenset({"num_pools", "score_stride"}),
            representative=rows == 1,
        )


def _selection_units(architecture: str) -> Iterator[Unit]:
    for wanted in TOP_KS:
        pools = wanted // KPOOL
        is_model = wanted == 2048
        yield _unit(
            f"top-{wanted}",
            architecture,
            topk.select_kernel,
            {
                **{"scores": "*fp32", "positions": "*i64", "packed": "*i64"},
                **dict.fromkeys(("num_pools", "score_stride"), "i32"),
            },
            {"K": pools, "KPOOL": KPOOL, "BLOCK": topk.BLOCK},
            topk.WARPS,
            aligned=frozenset({"num_pools", "score_stride"}),
            representative=is_model,
        )
        for slots in (False, True):
            yield _unit(
                f"top-{wanted} to {'slots' if slots else 'tokens'}",
                architecture,
                topk.expand_kernel,
                {
                    **dict.fromkeys(("packed", "positions", "row_request", "tables"), "*i64"),
                    "out": "*i32",
                    **dict.fromkeys(("out_stride", "table_stride", "table_width", "empty"), "i32"),
                },
                {
                    **{"K": pools, "BLOCK_K": pools, "KPOOL": KPOOL, "BLOCK_T": KPOOL},
                    **{"TOPK": wanted, "BLOCK_SIZE": BLOCK_SIZE, "TO_SLOTS": slots},
                },
                topk.WARPS,
                representative=is_model and slots and architecture != "gfx950",
            )


def _pool_units(architecture: str) -> Iterator[Unit]:
    indices = ("positions", "row_request", "query_start_loc", "state_slots")
    sizes = dict.fromkeys(("ring_stride", "ring_size"), "i32")
    yield _unit(
        f"{INDEX_DIM} wide",
        architecture,
        kpool.compress_kernel,
        {
            **dict.fromkeys(("entries", "ring", "pool", "ape"), "*bf16"),
            **dict.fromkeys((*indices, "pool_mapping"), "*i64"),
            **sizes,
            "first_slot": "i32",
        },
        {"DIM": INDEX_DIM, "BLOCK_D": INDEX_DIM, "KPOOL": KPOOL, "BLOCK_T": KPOOL},
        kpool.WARPS,
        aligned=frozenset({"ring_stride"}),
        representative=architecture == "sm_90",
    )
    yield _unit(
        f"{INDEX_DIM} wide",
        architecture,
        kpool.store_kernel,
        {
            **dict.fromkeys(("entries", "ring"), "*bf16"),
            **dict.fromkeys(indices, "*i64"),
            "row_valid": "*i1",
            **sizes,
        },
        {"WIDTH": 2 * INDEX_DIM, "BLOCK_W": 2 * INDEX_DIM},
        kpool.WARPS,
        aligned=frozenset({"ring_stride"}),
    )
    columns = 2048 + KPOOL - 1
    yield _unit(
        f"{columns} columns into 2048",
        architecture,
        fit.fit_kernel,
        {
            **dict.fromkeys(("indices", "out"), "*i32"),
            **dict.fromkeys(("in_stride", "out_stride", "empty"), "i32"),
        },
        {"HISTORY": 2048, "TAIL": KPOOL - 1, "WIDTH": 2048, "BLOCK": 4096},
        fit.WARPS,
        representative=architecture == "gfx950",
    )


def units() -> list[Unit]:
    """Every unit, each once."""
    found = [
        attention_unit(case, representative=_is_representative(case))
        for case in configs.all_configs()
    ]
    for architecture in ARCHITECTURES:
        for make in (
            _merge_units,
            _packing_units,
            _indexer_units,
            _selection_units,
            _pool_units,
        ):
            found += make(architecture)
    return list(dict.fromkeys(found))
