"""The indexer's scores against DeepGEMM's paged kernel: `python benchmarks/indexer_kernels.py`.

64 requests of 6 verification rows (and of 1 decode row), 32 heads of 128, a context of 32,768
tokens in pools of 4. Ours reads BF16 keys, DeepGEMM FP8 ones; both are given the same FP8 values.
The keys of all requests are more than an L2 cache holds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

import kernel_paths  # noqa: F401
import torch
from kernel_timing import Launch, median_us
from torch import Tensor

from sparse_mla.architecture import architecture_of
from sparse_mla.compare import cosine_difference

REQUESTS, HEADS, DIM, PAGE, KPOOL, CONTEXT = 64, 32, 128, 64, 4, 32768
POOLS = CONTEXT // KPOOL
FP8 = torch.float8_e4m3fn


def tensors(width: int) -> dict[str, Tensor]:
    """Query [T, heads, D], weights [T, heads], keys [slots, D] and block tables [requests, n]."""
    torch.manual_seed(0)
    rows, slots = REQUESTS * width, REQUESTS * POOLS
    draw = {"device": "cuda"}
    return {
        "query": torch.randn(rows, HEADS, DIM, **draw).to(FP8),
        "weights": torch.randn(rows, HEADS, **draw),
        "keys": torch.randn(slots, DIM, **draw).to(FP8),
        "tables": torch.randperm(slots // PAGE, **draw).int().view(REQUESTS, POOLS // PAGE),
    }


def ours(given: dict[str, Tensor], width: int) -> Launch:
    """Our kernel over BF16 copies."""
    pool_scores = importlib.import_module("sparse_mla.indexer").pool_scores
    rows = REQUESTS * width
    query, keys = given["query"].bfloat16(), given["keys"].bfloat16()
    positions = torch.full((rows,), CONTEXT - 1, dtype=torch.int32, device="cuda")
    starts = torch.arange(0, rows + 1, width, dtype=torch.int32, device="cuda")
    return lambda: pool_scores(
        query, given["weights"], keys, given["tables"], positions, starts,
        scale=1.0, kpool=KPOOL, pools_per_block=PAGE, max_query_len=width,
    )  # fmt: skip


def deep_gemm(given: dict[str, Tensor], width: int) -> Launch:
    """DeepGEMM's paged scores, one row at a time as it takes them on Hopper."""
    module = importlib.import_module("deep_gemm")
    rows = REQUESTS * width
    pages = torch.empty(len(given["keys"]) // PAGE, PAGE * (DIM + 4), dtype=torch.uint8).cuda()
    pages[:, : PAGE * DIM] = given["keys"].view(torch.uint8).view(len(pages), -1)
    pages[:, PAGE * DIM :] = torch.ones(len(pages), PAGE, device="cuda").view(torch.uint8)
    cache = pages.view(len(pages), PAGE, 1, DIM + 4)
    lengths = torch.full((rows, 1), POOLS, dtype=torch.int32, device="cuda")
    tables = given["tables"].repeat_interleave(width, 0).contiguous()
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    plan = module.get_paged_mqa_logits_metadata(lengths, PAGE, processors)
    query = given["query"].unsqueeze(1)
    return lambda: module.fp8_paged_mqa_logits(
        query, cache, given["weights"], lengths, tables, plan, POOLS, clean_logits=False
    )


def main() -> int:
    """Measure both and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    out = parser.parse_args().out
    figures: list[dict[str, object]] = []
    for width in (1, 6):
        given = tensors(width)
        wanted = ours(given, width)()
        for name, prepare in (("sparse_mla", ours), ("deep_gemm", deep_gemm)):
            figure: dict[str, object] = {"rows": REQUESTS * width, "kernel": name}
            try:
                launch = prepare(given, width)
                figure["cosine"] = cosine_difference(launch()[:, :POOLS], wanted)
                figure["us"] = median_us([launch] * 4)
            except Exception as failure:  # a peer that cannot run leaves ours alone
                figure["absent"] = f"{type(failure).__name__}: {failure}".partition("\n")[0][:200]
            figures.append(figure)
            print(figure, flush=True)
    machine = architecture_of(torch.device("cuda", 0))
    (out / "indexer-h200.json").write_text(json.dumps({machine: figures}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
