"""The three stages of a kernel check."""

from __future__ import annotations

import torch

from evalsuite.kernel_check.loading import default_device, load_kernel, parse_geometry
from evalsuite.kernel_check.miniature import mini_cases
from evalsuite.kernel_check.numbers import numeric_cases
from evalsuite.kernel_check.outcome import KernelReport
from sparse_mla.table import registered


def check_kernel(kernel: str, geometry: str | None) -> KernelReport:
    """Put `module:function` into the dispatch table and try it: numbers, route, miniature.

    `geometry` is as loading.parse_geometry reads it. Raises UsageError for a kernel that cannot be
    loaded or a geometry that it does not declare.
    """
    device = default_device()
    wanted = parse_geometry(geometry, device)
    found = load_kernel(kernel, wanted)
    with registered(found.entry), torch.no_grad():
        cases = [*numeric_cases(found, wanted, device), *mini_cases(found, device)]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return KernelReport(kernel, str(wanted), name, tuple(cases))
