"""Matplotlib's SVG made fit for a page: themed, without style attributes, without shared ids."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# Colours drawn with, and the page's variable that each becomes: the theme decides what it is.
THEME = {
    "#000001": "var(--text)",
    "#000002": "var(--muted)",
    "#000003": "var(--line)",
    "#000004": "var(--arm)",
    "#000005": "var(--base)",
    "#000006": "var(--fail)",
    "#000007": "var(--page)",
    **{f"#00001{k}": f"var(--series-{k})" for k in range(7)},
}
TEXT, MUTED, LINE, ARM, BASE, FAIL, PAGE = list(THEME)[:7]
SERIES = list(THEME)[7:]
# Inches; a point of the figure is about a pixel where a phone is 390 pixels wide.
SIZE = (4.9, 3.0)
_STYLE = re.compile(r' style="([^"]*)"')


class Styles:
    """Style attributes of all figures turned into classes, for one style sheet."""

    def __init__(self) -> None:
        self._classes: dict[str, str] = {}

    def class_of(self, style: str) -> str:
        """Return the class that stands for `style`."""
        return self._classes.setdefault(style, f"f{len(self._classes)}")

    def sheet(self) -> str:
        """Return the rules of all classes given out."""
        return "\n".join(f".figure .{name}{{{style}}}" for style, name in self._classes.items())


@contextmanager
def drawing() -> Iterator[None]:
    """Draw under the settings of the report's figures."""
    with mpl.rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "evalsuite",
            "font.family": "sans-serif",
            "font.size": 9.0,
            "text.color": TEXT,
            "axes.labelcolor": TEXT,
            "axes.edgecolor": LINE,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": LINE,
            "grid.linewidth": 0.5,
            "xtick.color": MUTED,
            "ytick.color": MUTED,
            "xtick.labelcolor": TEXT,
            "ytick.labelcolor": TEXT,
            "legend.frameon": False,
            "legend.fontsize": 8.0,
            "lines.linewidth": 1.4,
        }
    ):
        yield


def to_svg(figure: Figure, name: str, description: str, styles: Styles) -> Markup:
    """Return `figure` as an inline SVG element; `name` makes its ids its own on the page."""
    FigureCanvasSVG(figure)
    buffer = io.StringIO()
    none = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=none)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    for colour, variable in THEME.items():
        text = text.replace(colour, variable)
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    text = _STYLE.sub(lambda found: f' class="{styles.class_of(found[1])}"', text)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(xlink:href="|url\()#', rf"\1#{name}-", text)
    box = re.search(r'viewBox="[^"]+"', text)
    head = f'<svg role="img" aria-label="{escape(description)}" {box[0] if box else ""}'
    namespaces = 'xmlns:xlink="http://www.w3.org/1999/xlink" xmlns="http://www.w3.org/2000/svg"'
    text = re.sub(r"<svg[^>]*>", lambda _: f"{head} {namespaces}>", text, count=1)
    return Markup(text)
