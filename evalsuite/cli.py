"""The command line: click commands and nothing else."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import click
from rich.console import Console

from evalsuite import __version__
from evalsuite.errors import EXIT_INCOMPLETE, EvalsuiteError
from evalsuite.features import feature
from evalsuite.runfolder import Mode
from evalsuite.suite import DEFAULT_SUITE, ENGINE_KINDS, Overrides, resolve_suite

PATH = click.Path(path_type=Path)
BASELINE_OPTION = click.option(
    "--baseline", metavar="auto|none|FILE", help="What to judge against."
)
POLICY_OPTION = click.option("--policy", type=PATH, metavar="FILE", help="Instead of the suite's.")
JSON_OPTION = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object on standard output."
)
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
@click.option("--arm", help="That arm and those it is compared with; of served models it alone.")
@click.option("--references", is_flag=True, help="With --arm: start servers to compare with too.")
@click.option("--url", "urls", multiple=True, metavar="[ARM=]URL", help="A server that runs.")
@click.option("--log", "logs", multiple=True, metavar="[ARM=]FILE", help="That server's log.")
@click.option(
    "--limit", metavar="N|all", callback=_limit, help="Items, drawn by hash; `all` for every one."
)
@click.option("--items", metavar="FILE|flips:RUN", help="Item ids, or where a run's arms disagree.")
@click.option("--shard", metavar="I/N", help="Part I of N of the items; `merge` joins the parts.")
@click.option("--repeats", type=click.IntRange(min=1), help="How often each item is asked.")
@click.option(
    "--executor",
    type=click.Choice(["local", "ray"]),
    default="local",
    help="Run the arms here, or as tasks of the Ray cluster at RAY_ADDRESS.",
)
@click.option("--out", type=PATH, help="The run folder; runs/<time>-<suite> by default.")
@click.option("--resume", "mode", flag_value="resume", help="Go on with the run in --out.")
@click.option("--fresh", "mode", flag_value="fresh", help="Replace the run in --out.")
@BASELINE_OPTION
@click.option("--no-judge", is_flag=True, help="Only record; neither judge nor report.")
@JSON_OPTION
def run(
    suite: str,
    engine: str | None,
    model: str | None,
    task: str | None,
    arms: str | None,
    arm: str | None,
    references: bool,
    urls: tuple[str, ...],
    logs: tuple[str, ...],
    limit: Limit | None,
    items: str | None,
    shard: str | None,
    repeats: int | None,
    executor: Literal["local", "ray"],
    out: Path | None,
    mode: Mode | None,
    baseline: str | None,
    no_judge: bool,
    as_json: bool,
) -> None:
    """Run a suite's arms, judge them and write the reports."""
    from evalsuite.launch import Launch
    from evalsuite.pipeline import run_and_judge
    from evalsuite.shards import parse_part

    overrides = Overrides(
        engine=engine,
        model=model,
        task=task,
        arms=None if arms is None else tuple(name.strip() for name in arms.split(",")),
        arm=arm,
        references=references,
        urls=urls,
        logs=logs,
        limit=limit,
        repeats=repeats,
    )
    part = None if shard is None else parse_part(shard)
    asked = Launch(suite, overrides, items, out, mode or "new", part, executor)
    _end(run_and_judge(asked, baseline=baseline, judged=not no_judge), as_json)


@main.command()
@click.argument("shards", metavar="SHARD…", type=PATH, nargs=-1, required=True)
@click.option("--out", type=PATH, required=True, help="The run to write.")
@click.option("--as-repeats", is_flag=True, help="Runs of the same arms and items are repeats.")
@click.option("--mixed-hardware", is_flag=True, help="Join runs of different machines.")
@click.option("--partial", is_flag=True, help="Join arms too that stopped early or failed.")
@JSON_OPTION
def merge(
    shards: tuple[Path, ...],
    out: Path,
    as_repeats: bool,
    mixed_hardware: bool,
    partial: bool,
    as_json: bool,
) -> None:
    """Join runs that hold different arms, items or repeats; `judge` and `report` come after."""
    joining = feature("merge", "merge_runs", "merge")
    result = joining(
        shards, out, as_repeats=as_repeats, mixed_hardware=mixed_hardware, partial=partial
    )
    _end(result, as_json)


@main.command()
@click.argument("folder", metavar="RUN", type=PATH)
@BASELINE_OPTION
@POLICY_OPTION
@JSON_OPTION
def judge(folder: Path, baseline: str | None, policy: Path | None, as_json: bool) -> None:
    """Judge a run folder again; needs neither engine nor GPU."""
    _end(feature("judge", "judge_run", "judge")(folder, baseline=baseline, policy=policy), as_json)


@main.command()
@click.argument("run_a", type=PATH)
@click.argument("run_b", type=PATH)
@POLICY_OPTION
@JSON_OPTION
def compare(run_a: Path, run_b: Path, policy: Path | None, as_json: bool) -> None:
    """Compare RUN_B with RUN_A, item by item; no baseline needed."""
    _end(feature("compare", "compare_runs", "compare")(run_a, run_b, policy=policy), as_json)


@main.command()
@click.argument("suite", default=DEFAULT_SUITE)
@click.option("--a", "command_a", metavar="CMD", required=True, help="Runs the build to hold to.")
@click.option("--b", "command_b", metavar="CMD", required=True, help="Runs the build in question.")
@click.option("--limit", metavar="N|all", callback=_limit, help="Items, drawn by hash.")
@click.option("--items", metavar="FILE|flips:RUN", help="Item ids, or where a run's arms disagree.")
@click.option("--slices", type=click.IntRange(min=1), default=4, show_default=True, help="Turns.")
@click.option("--out", type=PATH, help="Folder for both runs; runs/<time>-<suite>-ab by default.")
@click.option("--bisect", is_flag=True, help="Exit with 125 where nothing was shown.")
@JSON_OPTION
def ab(
    suite: str,
    command_a: str,
    command_b: str,
    limit: Limit | None,
    items: str | None,
    slices: int,
    out: Path | None,
    bisect: bool,
    as_json: bool,
) -> None:
    """Run two builds in turns over the same items, and compare B with A.

    CMD is that build's `evalsuite run` with its options, for instance
    "/build/b/.venv/bin/evalsuite run glm53-mini --arms eager,mtp5".
    """
    code_of = feature("ab", "bisect_code", "ab")
    commands = {"a": command_a, "b": command_b}
    try:
        plan = resolve_suite(suite, Overrides(limit=limit))
        result = feature("ab", "run_ab", "ab")(commands, plan, items, out, slices)
    except EvalsuiteError as problem:
        if not bisect:
            raise
        click.echo(f"evalsuite: {problem}", err=True)
        sys.exit(code_of(problem.exit_code))
    _print(result, as_json)
    sys.exit(code_of(result.exit_code) if bisect else result.exit_code)


@main.group("import")
def import_group() -> None:
    """Make runs of results that another program wrote."""


@import_group.command("lm-eval")
@click.argument("place", metavar="DIR", type=PATH)
@click.option("--arm", required=True, help="The arm that these results are of.")
@click.option("--task", help="Which task, where several were run.")
@click.option("--out", type=PATH, help="A new run, or an imported one that the arm joins.")
@JSON_OPTION
def import_results(
    place: Path, arm: str, task: str | None, out: Path | None, as_json: bool
) -> None:
    """Import lm-eval's results_*.json and samples_*.jsonl (--log_samples)."""
    importing = feature("importer", "import_lm_eval", "import lm-eval")
    _end(importing(place, arm, task=task, out=out), as_json)


@main.command()
@click.argument("folder", metavar="RUN", type=PATH)
@click.option("--html", "formats", flag_value="html", multiple=True, help="Write report.html.")
@click.option("--markdown", "formats", flag_value="markdown", multiple=True, help="report.md.")
@click.option("--junit", "formats", flag_value="junit", multiple=True, help="junit.xml.")
@BASELINE_OPTION
@JSON_OPTION
def report(folder: Path, formats: tuple[str, ...], baseline: str | None, as_json: bool) -> None:
    """Write the reports of a run, partial and failed ones too; all where none is named."""
    writing = feature("report", "write_reports", "report")
    _end(writing(folder, formats=formats, baseline=baseline), as_json)


@main.group("baseline")
def baseline_group() -> None:
    """Accept runs as baseline, show one, tell what a run flips against it."""


@baseline_group.command("accept")
@click.argument("folder", metavar="RUN", type=PATH)
@click.option("--why", required=True, help="Why this run is right; kept in the history.")
@click.option("--who", help="Who accepts it; the user's name by default.")
@click.option("--force", is_flag=True, help="Accept a failing or partial run; the history says so.")
@click.option("--replace", is_flag=True, help="Drop the runs accepted before.")
@JSON_OPTION
def accept(
    folder: Path, why: str, who: str | None, force: bool, replace: bool, as_json: bool
) -> None:
    """Make a run part of the baseline of its suite and dtype."""
    accepting = feature("baseline", "accept_baseline", "baseline accept")
    _end(accepting(folder, why, who=who, force=force, replace=replace), as_json)


@baseline_group.command("show")
@click.argument("name")
@JSON_OPTION
def show(name: str, as_json: bool) -> None:
    """Show a baseline: a file, SUITE/DTYPE, or a suite with one dtype."""
    _end(feature("baseline", "show_baseline", "baseline show")(name), as_json)


@baseline_group.command("diff")
@click.argument("folder", metavar="RUN", type=PATH)
@BASELINE_OPTION
@JSON_OPTION
def diff(folder: Path, baseline: str | None, as_json: bool) -> None:
    """Show which items a run answers otherwise than its baseline."""
    _end(feature("baseline", "diff_baseline", "baseline diff")(folder, baseline=baseline), as_json)


@main.command()
@click.option("-n", "items", type=int, default=1319, show_default=True, help="Items.")
@click.option("--flips", type=float, default=0.027, show_default=True, help="Flip rate, a share.")
@click.option("--runs", type=int, default=1, show_default=True, help="Accepted runs.")
@JSON_OPTION
def power(items: int, flips: float, runs: int, as_json: bool) -> None:
    """The drop that a gate over so many items can see."""
    _end(feature("power", "power_statement", "power")(items, flips, runs=runs), as_json)


@main.command("kernel-check")
@click.argument("kernel", metavar="MODULE:FUNCTION")
@click.option("--geometry", help="The row geometry to check.")
@JSON_OPTION
def kernel_check(kernel: str, geometry: str | None, as_json: bool) -> None:
    """Check your kernel by numbers, in the miniature, and by its route."""
    _end(feature("kernel_check", "check_kernel", "kernel-check")(kernel, geometry), as_json)


@main.command()
@click.argument("faults", metavar="[FAULT …]", nargs=-1)
@click.option("--fault", "more", multiple=True, metavar="ID", help="A fault, as an argument.")
@click.option("--family", "families", multiple=True, metavar="A…H|S", help="A whole family.")
@click.option("--quick", is_flag=True, help="Twelve faults, every family, fewer items.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="A GPU where there is one.")
@click.option("--items", type=click.IntRange(min=1), help="The most items of a trial.")
@click.option("--healthy", type=click.IntRange(min=0), help="How many healthy runs.")
@click.option("--model", help="Another checkpoint than the embedded one.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes; the cores, up to 4.")
@click.option("--minutes", type=float, help="What is not done by then is told as not tried.")
@click.option("--out", type=PATH, help="Folder for the table; runs/<time>-prove by default.")
@JSON_OPTION
def prove(
    faults: tuple[str, ...],
    more: tuple[str, ...],
    families: tuple[str, ...],
    quick: bool,
    device: str | None,
    items: int | None,
    healthy: int | None,
    model: str | None,
    jobs: int | None,
    minutes: float | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Inject faults; show which check caught each, and after how many items."""
    proving = feature("faults.prove", "prove_faults", "prove")
    proof = proving(
        (*faults, *more),
        families=families,
        quick=quick,
        device=device,
        items=items,
        healthy=healthy,
        model=model,
        jobs=jobs,
        minutes=minutes,
        out=out,
    )
    _end(proof, as_json)


@main.command()
@click.argument("file", type=PATH)
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
@JSON_OPTION
def doctor(suite: str, as_json: bool) -> None:
    """Device, versions, kernel routes and what each arm would get."""
    _end(feature("doctor", "examine", "doctor")(suite), as_json)


def _end(result: Any, as_json: bool) -> NoReturn:
    """Print a result and exit with its code."""
    _print(result, as_json)
    sys.exit(result.exit_code)


def _print(result: Any, as_json: bool) -> None:
    """Print a result, as one JSON object or for a person."""
    if as_json:
        click.echo(json.dumps(result.as_json(), ensure_ascii=False, allow_nan=False))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    for part in result.renderables():
        console.print(part, highlight=False)
