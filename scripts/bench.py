"""Run the programs in benchmarks/, all of them or those named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


def main(names: list[str]) -> int:
    """Run each benchmark in its own process; return the first exit code that is not 0."""
    known = {path.stem: path for path in sorted(BENCHMARKS.glob("*.py")) if path.stem[0] != "_"}
    unknown = [name for name in names if name not in known]
    if unknown or not known:
        print(
            f"bench: no benchmark {', '.join(unknown) or 'at all'}; there are: "
            f"{', '.join(known) or 'none'}",
            file=sys.stderr,
        )
        return 2
    for name in names or known:
        print(f"bench: {name}", file=sys.stderr, flush=True)
        code = subprocess.run([sys.executable, str(known[name])], check=False).returncode
        if code != 0:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
