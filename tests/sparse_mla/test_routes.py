"""Each route of vLLM #55239 runs the kernel it selects, and its numbers are right.

A route test that looks at a boolean proves nothing about numbers. In the interpreter the model's
own type is float32 and the index lists are short; the rows are as wide as the model's.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from routes import ROUTES, Route
from torch import Tensor

pytest.importorskip("triton")

from sparse_mla import launches, reference
from sparse_mla.architecture import architecture_of
from sparse_mla.compare import LSE, RESULT, difference
from sparse_mla.dispatch import select
from sparse_mla.forcing import forced
from sparse_mla.geometry import Geometry, row_width
from sparse_mla.launches import Launch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"
HEADS, TOPK, SLOTS = (64, 2048, 9000) if ON_GPU else (8, 40, 300)
QUERY = torch.bfloat16 if ON_GPU else torch.float32


def geometry_here(route: Route) -> Geometry:
    """The route's geometry on this machine."""
    geometry = route.geometry(architecture_of(DEVICE), HEADS, TOPK)
    if geometry.cache_dtype == "bfloat16" and not ON_GPU:
        return replace(geometry, cache_dtype="float32")
    return geometry


def rows_of(route: Route) -> int:
    """Query rows; a prefill's are fewer in the interpreter."""
    return route.rows() if ON_GPU else min(route.rows(), 12)


def call(geometry: Geometry, rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Query, cache, indices with holes, and the scale of an FP8 cache."""
    dice = torch.Generator().manual_seed(rows)
    query = torch.randn(rows, HEADS, geometry.width, generator=dice).to(DEVICE, QUERY)
    cache = torch.randn(SLOTS, geometry.width, generator=dice).to(DEVICE)
    indices = torch.randint(-9, SLOTS + 9, (rows, TOPK), generator=dice).to(DEVICE)
    indices[rows // 2] = -1
    if geometry.cache_dtype == "fp8_e4m3":
        scale = cache.abs().amax() / 448
        return query, (cache / scale).to(torch.float8_e4m3fn), indices, scale
    return query, cache.to(QUERY), indices, None


@pytest.mark.parametrize("name", ROUTES)
def test_the_selected_kernel_computes_the_route(name: str) -> None:
    route = ROUTES[name]
    geometry = geometry_here(route)
    kernel = select(geometry)
    if route.rows() == 0:
        assert kernel is None
        return
    assert kernel is not None
    query, cache, indices, scale = call(geometry, rows_of(route))
    with launches.counting() as counts:
        out, lse = kernel.run(query, cache, indices, 0.06, cache_scale=scale)
    expected, expected_lse = reference.attention(
        query, cache, indices, 0.06, kv_lora_rank=512, cache_scale=scale
    )
    tolerance = RESULT[torch.float16 if scale is not None and not ON_GPU else QUERY]
    assert difference(out, expected, tolerance) is None
    assert difference(lse, expected_lse, LSE) is None
    ours = "triton_rope" if geometry.rope_dim else "triton_latent"
    assert counts == {
        Launch(ours, kind.partition(":")[0], row_width(kind)): 1 for kind in geometry.row_kinds
    }


def test_the_fault_that_started_this_can_be_injected() -> None:
    geometry = geometry_here(ROUTES["2 requests, 4 verification rows"])
    query, cache, indices, _ = call(geometry, 4)
    expected, _ = reference.attention(query, cache, indices, 0.06, kv_lora_rank=512)
    with forced("triton_rope", {"verify:2"}, rope_dim=64), launches.counting() as counts:
        kernel = select(geometry)
        assert kernel is not None
        out, lse = kernel.run(query, cache, indices, 0.06)
    assert counts == {Launch("triton_rope", "verify", 2): 1}
    assert out.shape == expected.shape and lse.shape == expected.shape[:2]
    assert difference(out, expected, RESULT[QUERY]) is not None
    kernel = select(geometry)
    assert kernel is not None and kernel.name == "triton_latent"
    assert difference(kernel.run(query, cache, indices, 0.06)[0], expected, RESULT[QUERY]) is None
