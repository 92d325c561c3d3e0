"""Print the package folders of the virtual environment that runs this, if it is one."""

from __future__ import annotations

import sys
import sysconfig


def main() -> None:
    """Print one folder a line, as a .pth file holds them; nothing outside an environment."""
    if sys.prefix != sys.base_prefix:
        print(*dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")), sep="\n")


if __name__ == "__main__":
    main()
