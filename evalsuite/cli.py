"""The command line: click commands and nothing else."""

from __future__ import annotations

import click

from evalsuite import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="evalsuite")
def main() -> None:
    """Accuracy-regression gate for LLM inference engines."""
