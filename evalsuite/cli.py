"""The command line: click commands and nothing else."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click
from rich.console import Console

from evalsuite import __version__
from evalsuite.errors import EXIT_INCOMPLETE, EvalsuiteError
from evalsuite.features import feature
from evalsuite.runfolder import Mode
from evalsuite.suite import DEFAULT_SUITE, ENGINE_KINDS, Overrides

RUN = click.Path(path_type=Path)
Limit = int | Literal["all"]


class Program(click.Group):
    """The command group: every error becomes one line and the exit code it stands for."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run, and exit with 0, 1, 2 or 3; a fault of the program itself is 3."""
        try:
            super().main(*args, **extra)
        except EvalsuiteError as problem:
            click.echo(f"evalsuite: {problem}", err=True)
            sys.exit(problem.exit_code)
        except Exception:
            traceback.print_exc()
            sys.exit(EXIT_INCOMPLETE)


def _limit(ctx: click.Context, param: click.Parameter, value: str | None) -> Limit | None:
    """Return `--limit` as a number or `all`."""
    if value is None or value == "all":
        return "all" if value else None
    if value.isdecimal() and int(value) > 0:
        return int(value)
    raise click.BadParameter(f"{value!r} is neither a positive number nor 'all'", ctx, param)


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="evalsuite")
def main() -> None:
    """Accuracy-regression gate for LLM inference engines.

    Exit codes: 0 pass, 1 fail, 2 usage or configuration, 3 incomplete.
    """


@main.command()
@click.argument("suite", default=DEFAULT_SUITE)
@click.option("--engine", metavar="|".join(ENGINE_KINDS), help="Another engine than the suite's.")
@click.option("--model", help="Another checkpoint than the suite's.")
@click.option("--task", help="Another task than the suite's.")
@click.option("--arms", help="Arms by name, with commas: eager,graph,mtp1 … mtp5, eager-mtp1 …")
@click.option(
    "--limit", metavar="N|all", callback=_limit, help="Items, drawn by hash; `all` for every one."
)
@click.option("--items", metavar="FILE|flips:RUN", help="Item ids, or where a run's arms disagree.")
@click.option("--repeats", type=click.IntRange(min=1), help="How often each item is asked.")
@click.option("--out", type=RUN, help="The run folder; runs/<time>-<suite> by default.")
@click.option("--resume", "mode", flag_value="resume", help="Go on with the run in --out.")
@click.option("--fresh", "mode", flag_value="fresh", help="Replace the run in --out.")
@click.option("--baseline", default=None, metavar="auto|none|FILE", help="What to judge against.")
@click.option("--no-judge", is_flag=True, help="Only record; neither judge nor report.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def run(
    suite: str,
    engine: str | None,
    model: str | None,
    task: str | None,
    arms: str | None,
    limit: Limit | None,
    items: str | None,
    repeats: int | None,
    out: Path | None,
    mode: Mode | None,
    baseline: str | None,
    no_judge: bool,
    as_json: bool,
) -> None:
    """Run a suite's arms, judge them and write the reports."""
    from evalsuite.launch import Launch
    from evalsuite.pipeline import run_and_judge

    overrides = Overrides(
        engine=engine,
        model=model,
        task=task,
        arms=None if arms is None else tuple(name.strip() for name in arms.split(",")),
        limit=limit,
        repeats=repeats,
    )
    asked = Launch(suite, overrides, items, out, mode or "new")
    result = run_and_judge(asked, baseline=baseline, judged=not no_judge)
    _show(result.as_json() if as_json else result.renderables())
    sys.exit(result.exit_code)


@main.command()
@click.argument("folder", metavar="RUN", type=RUN)
@click.option("--baseline", default=None, metavar="auto|none|FILE", help="What to judge against.")
@click.option("--policy", type=RUN, metavar="FILE", help="Another policy than the suite's.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def judge(folder: Path, baseline: str | None, policy: Path | None, as_json: bool) -> None:
    """Judge a run folder again; needs neither engine nor GPU."""
    judging = feature("judge", "judge_run", "judge")
    result = judging(folder, baseline=baseline, policy=policy)
    _show(result.as_json() if as_json else result.renderables())
    sys.exit(result.exit_code)


@main.command()
@click.argument("file", type=RUN)
def classify(file: Path) -> None:
    """Outcome, answer, rule and confidence of each row of a JSONL file."""
    feature("classify", "classify_file", "classify")(file, sys.stdout)


@main.command(
    "lm-eval",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def lm_eval(arguments: Sequence[str]) -> None:
    """lm-eval's own command line; knows `--model evalsuite` and our tasks.

    For instance: evalsuite lm-eval run --model evalsuite --model_args engine=mini,arm=mtp1
    --tasks gsm_mini
    """
    feature("harness.cli", "run_lm_eval", "lm-eval")(arguments)


@main.command()
@click.argument("suite", default=DEFAULT_SUITE)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def doctor(suite: str, as_json: bool) -> None:
    """Device, versions, kernel routes and what each arm would get."""
    report = feature("doctor", "examine", "doctor")(suite)
    _show(report.as_json() if as_json else report.renderables())
    sys.exit(report.exit_code)


def _show(shown: Any) -> None:
    """Print a JSON object as one line, or what a person reads."""
    if isinstance(shown, dict):
        click.echo(json.dumps(shown, ensure_ascii=False, allow_nan=False))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    for part in shown:
        console.print(part, highlight=False)
