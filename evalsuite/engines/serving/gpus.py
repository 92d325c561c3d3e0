"""What a started server runs on, and whether the memory of the one before is free again."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from pathlib import Path

from evalsuite.records import Settings

TOLERANCE_MIB = 1024
_NVIDIA = ("nvidia-smi", "--format=csv,noheader,nounits")
_ROCM = ("rocm-smi", "--showmeminfo", "vram", "--csv")


def used_memory() -> dict[str, int] | None:
    """Return MiB in use by GPU, None where no tool tells."""
    text = _output((*_NVIDIA, "--query-gpu=index,memory.used"))
    if text is not None:
        rows = [line.split(",") for line in text.splitlines() if line.strip()]
        return {index.strip(): int(used) for index, used in rows}
    text = _output(_ROCM)
    if text is None:
        return None
    found = re.findall(r"^(card\d+),\d+,(\d+)", text, re.MULTILINE)
    return {card: int(used) // 2**20 for card, used in found}


def wait_until_free(before: dict[str, int] | None, limit_s: float) -> None:
    """Wait until no GPU holds more than before. Raises RuntimeError where one does in the end."""
    if before is None:
        return
    until = time.monotonic() + limit_s
    while True:
        now = used_memory() or {}
        held = {gpu: used for gpu, used in now.items() if used > before.get(gpu, 0) + TOLERANCE_MIB}
        if not held:
            return
        if time.monotonic() > until:
            listed = ", ".join(f"GPU {gpu} {used} MiB" for gpu, used in held.items())
            raise RuntimeError(f"GPU memory of the arm before is still in use: {listed}")
        time.sleep(0.5)


def local_hardware(count: int) -> Settings:
    """Return device, name and count of what a server on this machine runs on."""
    name = _output((*_NVIDIA, "--query-gpu=name"))
    if name:
        return {"device": "cuda", "name": name.splitlines()[0].strip(), "count": count}
    text = _output(("rocm-smi", "--showproductname", "--csv"))
    if text:
        found = re.search(r"^card\d+,([^,\n]+)", text, re.MULTILINE)
        return {"device": "rocm", "name": found[1] if found else "AMD GPU", "count": count}
    return {"device": "cpu", "name": _processor(), "count": os.cpu_count()}


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _output(command: tuple[str, ...]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (FileNotFoundError, PermissionError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 and done.stdout.strip() else None
