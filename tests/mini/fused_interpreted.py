"""Run under TRITON_INTERPRET=1: the fused kernels against the formulas they stand for.

A program of its own, because Triton decides while it is imported whether it interprets.
"""

from __future__ import annotations

import torch
from small_models import random_tensors, raw_config

from evalsuite.mini.config import parse_config
from evalsuite.mini.model import fused, mhc, norms
from evalsuite.mini.weights import fuse


def check_mixing(rows: int, sinkhorn: int) -> None:
    """`fused` in place of the formulas gives the same collapse, at row counts off the block."""
    config = parse_config(raw_config("hybrid", hc_sinkhorn_iters=sinkhorn), "test")
    site = fuse(random_tensors(config, 5), config).layers[0].sites[0]
    generator = torch.Generator().manual_seed(rows)
    streams = torch.randn(rows, config.hc_mult, config.hidden_size, generator=generator) * 3
    plain = mhc.collapse(streams, site, config)
    mhc.can_fuse = lambda x: True
    found = mhc.collapse(streams, site, config)
    mhc.can_fuse = norms.can_fuse
    assert torch.allclose(found[0], plain[0], rtol=1e-5, atol=1e-6)
    assert torch.allclose(found[1].post, plain[1].post, rtol=1e-5, atol=1e-6)
    assert torch.allclose(found[1].comb, plain[1].comb, rtol=1e-5, atol=1e-6)


def check_norm(width: int, whole: int) -> None:
    """A norm over the middle columns of a wider tensor, as the fused projections leave them."""
    x = torch.randn(5, whole, generator=torch.Generator().manual_seed(width))[:, 3 : 3 + width]
    weight = torch.randn(width, generator=torch.Generator().manual_seed(1))
    found = fused.rms_norm(x, weight, 1e-5, torch.float32)
    assert torch.allclose(found, norms.rms_norm(x, weight, 1e-5), rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    for rows, sinkhorn in ((1, 1), (16, 8), (37, 20)):
        check_mixing(rows, sinkhorn)
    for width, whole in ((64, 80), (96, 100), (512, 900)):
        check_norm(width, whole)
    assert fused.rms_norm(torch.zeros(0, 8), None, 1e-5, torch.float32).shape == (0, 8)
    print("fused kernels agree")
