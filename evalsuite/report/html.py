"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from evalsuite import __version__
from evalsuite.localise import FAMILIES
from evalsuite.report.figures import draw_all
from evalsuite.report.headline import headline_of
from evalsuite.report.items import pack
from evalsuite.report.provenance import provenance_of
from evalsuite.report.sections import sections_of
from evalsuite.report.source import Source
from evalsuite.report.table import COLUMNS, arm_rows, pooled_lines
from evalsuite.report.text import FILTERS

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("data.js", "list.js", "answers.js", "page.js")
STATUS_SIGNS = {"pass": "✓", "warn": "!", "fail": "✗", "missing": "?", "skipped": "–"}


def render_html(source: Source) -> str:
    """Return the page of a judged run."""
    drawn, figure_styles = draw_all(source)
    return _render(
        "report.html",
        _text("report.css") + figure_styles,
        "".join(_text(name) for name in SCRIPTS),
        headline=headline_of(source),
        verdict=source.verdict,
        families=FAMILIES,
        run=source.view.run,
        columns=COLUMNS,
        rows=arm_rows(source),
        pooled=pooled_lines(source),
        figures=drawn,
        sections=sections_of(source),
        provenance=provenance_of(source),
        packed=pack(source),
    )


def render_broken_html(name: str, reason: str) -> str:
    """Return the page of a run that cannot be read at all: what is wrong, and nothing else."""
    return _render("broken.html", _text("report.css"), "", name=name, reason=reason)


def render_page(template: str, **values: object) -> str:
    """Return a page of another kind in the report's style; it has no script."""
    return _render(template, _text("report.css"), "", **values)


def _render(template: str, style: str, script: str, **values: object) -> str:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=select_autoescape(default=True),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    return environment.get_template(template).render(
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
        signs=STATUS_SIGNS,
        version=__version__,
        **values,
    )


def _policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy: this style, this script, no network, nothing else."""
    scripts = f"'sha256-{_digest(script)}'" if script else "'none'"
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'sha256-{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")
