"""Print pip constraints that keep the torch of the interpreter that runs this."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

KEPT = ("torch", "triton", "pytorch-triton", "pytorch-triton-rocm", "numpy", "transformers")


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def main() -> int:
    """Print one `name==version` line for each kept package that is installed."""
    found = {name: installed for name in KEPT if (installed := _installed(name)) is not None}
    if "torch" not in found:
        print("# no torch here: the project's own pin", "torch==2.13.0", sep="\n")
    triton = found.get("triton", "")
    # triton 3.6's interpreter and launcher break on numpy 2.4.
    if triton and tuple(int(part) for part in triton.split(".")[:2]) < (3, 7):
        found.setdefault("numpy", "")
    for name, installed in found.items():
        print(f"{name}=={installed}" if installed else f"{name}<2.4")
    return 0


if __name__ == "__main__":
    sys.exit(main())
