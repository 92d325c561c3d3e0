"""What a kernel check found, for a person and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rich.console import RenderableType

from evalsuite.errors import EXIT_FAIL, EXIT_PASS
from evalsuite.show import table_of

Stage = Literal["numbers", "miniature", "route"]


@dataclass(frozen=True)
class Case:
    """One thing that was tried. `detail` says what is wrong, or why it was skipped."""

    stage: Stage
    name: str
    status: Literal["pass", "fail", "skipped"]
    detail: str = ""


def tried(stage: Stage, name: str, attempt: Callable[[], str | None]) -> Case:
    """The case of an attempt that returns what is wrong, or None; a crash is a failure."""
    try:
        problem = attempt()
    # Whatever a foreign kernel raises is the finding.
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    return Case(stage, name, "fail" if problem else "pass", problem or "")


@dataclass(frozen=True)
class KernelReport:
    """All cases of one kernel at one geometry on one device."""

    kernel: str
    geometry: str
    device: str
    cases: tuple[Case, ...]

    @property
    def exit_code(self) -> int:
        """0 where no case failed, otherwise 1."""
        return EXIT_FAIL if any(case.status == "fail" for case in self.cases) else EXIT_PASS

    def as_json(self) -> dict[str, Any]:
        """Return the one object of `--json`."""
        return {
            "kernel": self.kernel,
            "geometry": self.geometry,
            "device": self.device,
            "verdict": "fail" if self.exit_code else "pass",
            "cases": [asdict(case) for case in self.cases],
        }

    def renderables(self) -> list[RenderableType]:
        """Return the table and the verdict."""
        rows = [[case.stage, case.name, case.status, case.detail] for case in self.cases]
        failed = sum(case.status == "fail" for case in self.cases)
        verdict = f"{failed} of {len(self.cases)} failed" if failed else "verdict: pass"
        return [
            f"{self.kernel} on {self.device}",
            self.geometry,
            table_of(["stage", "case", "status", "what"], rows),
            verdict,
        ]
