"""The kernel of a case and what it is launched with."""

from __future__ import annotations

from sparse_mla.attention_kernels import partial_attention
from sparse_mla.configs import all_configs
from sparse_mla.specialised import specialised

RUN_TIME = [name for name in partial_attention.arg_names if name.islower()]


def test_every_kernel_takes_what_the_launch_passes() -> None:
    """They are launched alike: run-time arguments by their place, compile-time ones by name."""
    kernels = set()
    for case in all_configs():
        for has_scale in {False, case.cache_dtype.startswith("fp8")}:
            kernel, constants = specialised(case, True, has_scale)
            kernels.add(kernel)
            names = list(kernel.arg_names)
            assert names[: len(RUN_TIME)] == RUN_TIME
            assert set(names[len(RUN_TIME) :]) == set(constants)
    assert len(kernels) == 3
