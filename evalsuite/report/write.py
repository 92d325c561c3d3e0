"""Writing the reports of a run folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.markup import escape

from evalsuite.errors import EXIT_INCOMPLETE, EXIT_PASS, DamagedRun
from evalsuite.report.html import render_broken_html, render_html
from evalsuite.report.junit import render_broken_junit, render_junit
from evalsuite.report.markdown import render_broken_markdown, render_markdown
from evalsuite.report.source import Source, load_source
from evalsuite.storage import write_atomic


class Format(NamedTuple):
    """A report: its file, and how it is made of a run that can be read and of one that cannot."""

    file: str
    whole: Callable[[Source], str | bytes]
    broken: Callable[[str, str], str | bytes]


FORMATS: dict[str, Format] = {
    "html": Format("report.html", render_html, render_broken_html),
    "markdown": Format("report.md", render_markdown, render_broken_markdown),
    "junit": Format("junit.xml", render_junit, render_broken_junit),
}


@dataclass(frozen=True)
class Written:
    """The files written, and why the run could not be read (None where it could)."""

    files: dict[str, Path]
    broken: str | None

    @property
    def exit_code(self) -> int:
        """0 where the run could be read, whatever its verdict; 3 where it could not."""
        return EXIT_PASS if self.broken is None else EXIT_INCOMPLETE

    def as_json(self) -> dict[str, Any]:
        """Return the one object of `--json`."""
        return {
            "files": {name: str(path) for name, path in self.files.items()},
            "broken": self.broken,
        }

    def renderables(self) -> list[RenderableType]:
        """Return what a person reads."""
        lines = [f"{path}" for path in self.files.values()]
        told = [] if self.broken is None else [f"the run cannot be read: {self.broken}"]
        return [escape(line) for line in (*told, *lines)]


def write_reports(
    folder: Path, *, formats: Sequence[str] = (), baseline: str | None = None
) -> Written:
    """Write the reports of the run at `folder` into it: those named in `formats`, or all.

    A run without a verdict is judged first. One that cannot be read at all gets reports that say
    so. Raises UsageError where `folder` holds no run, or for a bad `baseline` (see the judge).
    """
    wanted = [name for name in FORMATS if not formats or name in formats]
    broken: str | None = None
    made: dict[str, str | bytes] = {}
    try:
        source = load_source(folder, baseline)
    except DamagedRun as problem:
        if not (folder / "run.json").exists():
            raise
        broken = str(problem)
        made = {name: FORMATS[name].broken(folder.resolve().name, broken) for name in wanted}
    else:
        made = {name: FORMATS[name].whole(source) for name in wanted}
    files = {}
    for name, content in made.items():
        files[name] = folder / FORMATS[name].file
        data = content if isinstance(content, bytes) else content.encode("utf-8", "replace")
        write_atomic(files[name], data)
    return Written(files, broken)
