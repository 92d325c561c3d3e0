"""Markdown for a pull request's comment and a CI step summary: verdict first, flips folded."""

from __future__ import annotations

from collections.abc import Iterator

from evalsuite.localise import FAMILIES, Localisation
from evalsuite.report.cells import COLUMNS, Cell, Row
from evalsuite.report.headline import Headline, headline_of
from evalsuite.report.pool import Column
from evalsuite.report.provenance import provenance_of
from evalsuite.report.source import Source
from evalsuite.report.table import arm_rows, pooled_lines
from evalsuite.report.text import fenced, markdown, one_line
from evalsuite.runview import EAGER
from evalsuite.scoring import OUTCOMES

# A comment on GitHub holds 65,536 characters, a step summary a megabyte.
LIMIT = 60_000
SIGNS = {"pass": "✅", "warn": "⚠️", "fail": "❌", "missing": "❓", "skipped": "⏭️"}
WORDS = {"pass": "✅ Pass", "fail": "❌ Fail", "incomplete": "❓ Incomplete"}
SHOWN_CHARACTERS = 700
# Columns of the page's table that fit a comment.
IN_COMMENT = ("accuracy", "eager", "baseline", "flips", "outcomes", "wall", "accepted", "graphs")


def render_markdown(source: Source, limit: int = LIMIT) -> str:
    """Return the Markdown of a judged run, at most `limit` bytes of UTF-8.

    Flips are left out, and said to be, where they do not fit.
    """
    headline = headline_of(source)
    head = "\n".join(_top(source, headline))
    tail = "\n".join(_tail(source))
    room = limit - _size(head) - _size(tail) - 400
    return f"{head}\n\n{_flips(source, room)}{tail}\n"


def render_broken_markdown(name: str, reason: str) -> str:
    """Return the Markdown of a run that cannot be read at all."""
    return (
        f"## ❓ Incomplete: {markdown(name)}\n\n"
        f"The run cannot be read, so that no check could be applied to it.\n\n{fenced(reason)}\n"
    )


def _top(source: Source, headline: Headline) -> Iterator[str]:
    verdict = source.verdict
    yield f"## {WORDS[verdict.verdict]}: {markdown(verdict.suite)}"
    yield ""
    yield markdown(headline.sentence)
    yield ""
    for reason in headline.reasons:
        more = f" (and {reason.more} more)" if reason.more else ""
        yield f"- {SIGNS[reason.status]} **{reason.check}**: {_short(reason.message)}{more}"
    if verdict.localisation is not None:
        yield from _where(verdict.localisation)
    if headline.exhibit is not None:
        shown = headline.exhibit
        yield f"\nFirst degenerate answer: {shown.arm}, item `{one_line(shown.item, 40)}`\n"
        yield fenced(shown.excerpt)
    yield ""
    yield from _table(arm_rows(source))
    yield ""
    yield from (f"- {SIGNS[status]} {markdown(line)}" for status, line in pooled_lines(source))


def _where(place: Localisation) -> Iterator[str]:
    fits = "".join(f"; next {letter}, {FAMILIES[letter]}" for letter in place.otherwise)
    yield f"\nLikely **{place.name}** (family {place.family}{fits}): {_short(place.reason)}.\n"
    yield from (f"- {_short(str(one))}" for one in (*place.patterns, *place.places))


def _table(rows: list[Row]) -> Iterator[str]:
    titles = [COLUMNS[key] for key in IN_COMMENT]
    yield f"| Arm | {' | '.join(titles)} |"
    yield f"| --- |{' --- |' * len(titles)}"
    for row in rows:
        cells = " | ".join(_cell(row.cells[key]) for key in IN_COMMENT)
        yield f"| {row.arm} | {cells} |"


def _cell(cell: Cell) -> str:
    sign = "" if cell.status in (None, "pass") else f"{SIGNS[cell.status or 'pass']} "
    if cell.absent is not None:
        return f"{sign}*{cell.text}: {_short(cell.absent, 80)}*"
    detail = f"<br><sub>{_short(cell.detail, 120)}</sub>" if cell.detail else ""
    return f"{sign}{_short(cell.text, 120)}{detail}"


def _tail(source: Source) -> Iterator[str]:
    verdict = source.verdict
    yield "<details><summary>All checks</summary>\n"
    for check, status in verdict.checks.items():
        said = [one for one in source.findings if one.check == check]
        more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
        yield f"- {SIGNS[status]} **{check}**: {_short(said[0].message) if said else status}{more}"
    yield "\n</details>\n"
    if verdict.power is not None:
        yield f"What this run could have seen: {_short(verdict.power.statement, 600)}.\n"
    else:
        yield "What this run could have seen: *missing: there is nothing to compare with*.\n"
    told = provenance_of(source)
    facts = [*told.run, *told.environment, *told.baseline]
    facts += [(f"differs: {one.name}", f"{one.baseline} → {one.run}") for one in told.differences]
    if told.no_baseline is not None:
        facts.append(("baseline", f"missing: {told.no_baseline}"))
    yield "<details><summary>Provenance</summary>\n"
    yield from (f"- {markdown(name)}: {_short(value)}" for name, value in facts)
    yield f"\n{fenced(told.command)}\n\n</details>"


def _flips(source: Source, room: int) -> str:
    parts = ["<details><summary>Flips</summary>\n"]
    used = _size(parts[0])
    total = shown = 0
    for arm, item, kind in _flipped(source):
        total += 1
        if shown < total - 1:
            continue
        text = _flip(source, arm, item, kind)
        if used + _size(text) <= room:
            parts.append(text)
            used += _size(text)
            shown += 1
    if total == 0:
        return ""
    if shown < total:
        parts.append(f"{total - shown} more are in report.html.\n")
    parts.append("</details>\n\n")
    return "\n".join(parts)


def _flipped(source: Source) -> Iterator[tuple[str, int, str]]:
    index = {one: at for at, one in enumerate(source.view.ids)}
    if source.verdict.baseline is not None:
        for flips in source.verdict.flips:
            yield from ((flips.arm, index[one], "lost") for one in flips.lost)
        for flips in source.verdict.flips:
            yield from ((flips.arm, index[one], "gained") for one in flips.gained)
        return
    eager = source.view.arms.get(EAGER)
    for name, arm in source.view.arms.items():
        if eager is not None and name != EAGER:
            lost = (eager.correct == 1) & (arm.correct == 0) & (arm.outcome >= 0)
            yield from ((name, int(at), "lost against eager") for at in lost.any(0).nonzero()[0])


def _flip(source: Source, arm: str, at: int, kind: str) -> str:
    item = source.view.items[at]
    pool = source.pools[at]
    lines = [
        f"**{arm}**, item `{one_line(item.item_id, 40)}`, {kind}; gold {_short(str(item.gold))}"
    ]
    for name in dict.fromkeys((EAGER, arm)):
        cell = pool.cells.get(Column(name, 0))
        if cell is None:
            continue
        text = pool.variants[cell.variant].text
        shown = "no answer was obtained" if text is None else text[:SHOWN_CHARACTERS]
        if text is not None and len(text) > SHOWN_CHARACTERS:
            shown += " …"
        lines.append(f"\n{name}: {OUTCOMES[cell.outcome]}\n\n{fenced(shown)}")
    return "\n".join(lines) + "\n"


def _short(text: str, limit: int = 400) -> str:
    return markdown(one_line(text, limit))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
