"""The report's figures, each drawn from the run, its verdict and its baseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evalsuite.report import plots
from evalsuite.report.plots import NotDrawn
from evalsuite.report.source import Source
from evalsuite.report.svg import (
    SIZE,
    Styles,
    drawing,
    to_svg,
)


@dataclass(frozen=True)
class Drawn:
    """A figure: its SVG, or `absent`: why it could not be drawn."""

    name: str
    title: str
    caption: str
    svg: Markup | None = None
    absent: str | None = None


Draw = Callable[[Source, Axes], str]


def draw_all(source: Source) -> tuple[list[Drawn], str]:
    """Return the figures in the order of the page, and the style sheet that they share."""
    styles = Styles()
    with drawing():
        drawn = [
            _drawn(source, name, title, draw, styles) for name, (title, draw) in FIGURES.items()
        ]
    return drawn, styles.sheet()


def _drawn(source: Source, name: str, title: str, draw: Draw, styles: Styles) -> Drawn:
    figure = Figure(figsize=SIZE, layout="constrained")
    try:
        caption = draw(source, figure.add_subplot())
    except NotDrawn as reason:
        return Drawn(name, title, "", absent=str(reason))
    return Drawn(name, title, caption, svg=to_svg(figure, name, f"{title}. {caption}", styles))


FIGURES: dict[str, tuple[str, Draw]] = {
    "fig-accuracy": ("Accuracy by arm", plots.accuracy),
    "fig-wall": ("Wall time by arm", plots.wall_time),
    "fig-acceptance": ("Acceptance per draft position", plots.acceptance),
    "fig-lengths": ("Output lengths", plots.output_lengths),
    "fig-divergence": ("First divergence from eager", plots.divergence),
    "fig-history": ("Accepted runs", plots.history),
}
