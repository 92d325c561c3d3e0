"""The table of configurations and the choice of splits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparse_mla.configs import GLUON, NARROW, all_configs, choose_config, choose_split


@given(st.integers(1, 5000), st.sampled_from([8, 16, 64, 128]), st.integers(1, 4096))
def test_splits_are_whole_tiles_and_cover_the_list(rows: int, heads: int, topk: int) -> None:
    config = choose_config("sm_90", "bfloat16", heads)
    split = choose_split(rows, heads, topk, 132, config)
    assert split % config.block_n == 0
    assert 1 <= -(-topk // split) <= -(-topk // config.block_n)


def test_few_rows_are_split_and_many_are_not() -> None:
    assert choose_split(1, 64, 2048, 132, NARROW) <= 2048 // 8
    assert choose_split(64, 64, 2048, 132, GLUON) == 1024
    assert choose_split(4096, 64, 2048, 132, GLUON) == 2048


@pytest.mark.parametrize("architecture", ["sm_90", "gfx942", "gfx950", "interpreter"])
@pytest.mark.parametrize("heads", [1, 8, 16, 17, 32, 48, 64, 128])
def test_every_head_count_has_a_configuration(architecture: str, heads: int) -> None:
    for dtype in ("bfloat16", "fp8_e4m3", "fp8_e4m3_row"):
        config = choose_config(architecture, dtype, heads)
        assert config.kernel == "triton" or architecture == "sm_90"
        assert config.block_h < 64 or dtype == "bfloat16" or architecture != "sm_90"


@pytest.mark.parametrize("heads", [8, 64])
@pytest.mark.parametrize("dtype", ["bfloat16", "fp8_e4m3"])
def test_what_gluon_does_not_take_has_a_portable_kernel(heads: int, dtype: str) -> None:
    assert choose_config("sm_90", dtype, heads).kernel == "gluon"
    assert choose_config("sm_90", dtype, heads, gluon=False).kernel == "triton"


def test_the_gate_sees_what_a_launch_can_choose() -> None:
    cases = {(case.architecture, case.cache_dtype, case.config) for case in all_configs()}
    for architecture in ("sm_90", "gfx942", "gfx950"):
        for dtype in ("bfloat16", "fp8_e4m3", "fp8_e4m3_row"):
            for heads in (8, 16, 32, 64, 128):
                for rows in (None, 1, 64):
                    config = choose_config(architecture, dtype, heads, rows)
                    assert (architecture, dtype, config) in cases
