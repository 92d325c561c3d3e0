"""What a person reads of verdicts and baselines in a terminal."""

from __future__ import annotations

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from evalsuite.verdict import Verdict

COLOUR = {"pass": "green", "warn": "yellow", "fail": "red", "missing": "red", "skipped": "dim"}
WORDS = {"pass": "green", "fail": "red", "incomplete": "yellow"}


def verdict_renderables(verdict: Verdict) -> list[RenderableType]:
    """Return the lines and the table that tell a verdict, gravest findings first."""
    shown: list[RenderableType] = []
    grave = [f for f in verdict.findings if f.status in ("fail", "missing")]
    warned = [f for f in verdict.findings if f.status == "warn"]
    rest = [f for f in verdict.findings if f.status in ("pass", "skipped")]
    table = Table(box=None, pad_edge=False)
    for column in ("check", "status", "what"):
        table.add_column(column, overflow="fold")
    for finding in [*grave, *warned, *rest]:
        status = f"[{COLOUR[finding.status]}]{finding.status}[/]"
        table.add_row(finding.check, status, escape(finding.message))
    shown.append(table)
    if verdict.localisation is not None:
        place = verdict.localisation
        shown.append(escape(f"likely {place.name} (family {place.family}): {place.reason}"))
        shown.extend(escape(f"first, {one}") for one in place.places[:1])
    if verdict.power is not None:
        shown.append(verdict.power.statement)
    shown.append(f"verdict: [bold {WORDS[verdict.verdict]}]{verdict.verdict}[/]{_note(verdict)}")
    return shown


def _note(verdict: Verdict) -> str:
    if verdict.report_only:
        return " (report only)"
    held = f" against {verdict.baseline_runs} accepted answers an item" if verdict.baseline else ""
    return escape(held)


def table_of(head: list[str], rows: list[list[str]]) -> Table:
    """Return a plain table."""
    table = Table(box=None, pad_edge=False)
    for column in head:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    return table
