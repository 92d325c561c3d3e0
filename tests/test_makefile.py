"""The Makefile's targets are the usage: each runs the command it promises."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def commands(*words: str) -> list[str]:
    """Return the commands that `make` would run."""
    clean = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    shown = subprocess.run(
        ["make", "--no-print-directory", "-n", *words],
        cwd=ROOT, capture_output=True, text=True, env=clean, check=False,
    )  # fmt: skip
    if shown.returncode:
        raise ValueError(shown.stderr)
    return [" ".join(line.split()) for line in shown.stdout.splitlines()]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("eval", "run --limit 200"),
        ("eval-full", "run --limit all"),
        ("eval-eager", "run --limit 200 --arm eager"),
        ("eval-graph", "run --limit 200 --arm graph"),
        ("eval-mtp1", "run --limit 200 --arm mtp1"),
        ("eval-mtp5", "run --limit 200 --arm mtp5"),
        ("prove", "prove"),
        ("test", "-m pytest -n auto --dist loadfile"),
    ],
)
def test_a_target_sets_up_and_runs_its_command(target: str, expected: str) -> None:
    setup, command = commands(target)
    assert setup.endswith("scripts/setup.sh")
    assert command.endswith(expected)


def test_variables_reach_the_command() -> None:
    words = ["SUITE=s", "ENGINE=e", "MODEL=m m", "TASK=gsm8k", "LIMIT=all", "OUT=o", "BASELINE=b"]
    command = commands("eval-eager", *words, "ARGS=--repeats 2")[1]
    assert command.endswith(
        'run "s" --engine "e" --model "m m" --task "gsm8k" --out "o" --baseline "b" '
        "--limit all --arm eager --repeats 2"
    )
    served = commands("eval-mtp5", "URL=http://a:1 mtp5=http://b:2", "LOG=s.log", "REFERENCES=1")[1]
    assert served.endswith(
        '--url "http://a:1" --url "mtp5=http://b:2" --log "s.log" --references '
        "--limit 200 --arm mtp5"
    )
    accept = commands("baseline", "RUN=runs/x", "WHY=three clean runs")[1]
    assert accept.endswith('baseline accept "runs/x" --why "three clean runs"')
    assert commands("report", "RUN=runs/x")[1].endswith('report "runs/x"')


def test_real_vllm_is_installed_and_its_tests_run() -> None:
    _, install, command = commands("test-vllm", "ARGS=-k arms")
    assert install == "scripts/setup_vllm.sh"
    asked = '-m pytest -m "vllm and not slow" tests/serving --durations=25 -k arms'
    assert command.endswith(asked)


def test_there_are_five_mtp_targets() -> None:
    with pytest.raises(ValueError, match="eval-mtp6"):
        commands("eval-mtp6")


def test_help_names_every_target_of_the_design() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("setup", "test", "test-vllm", "check", "eval", "eval-full", "eval-eager",
                   "eval-mtp1", "prove", "bench", "report", "baseline"):  # fmt: skip
        assert f"{target} " in shown.stdout
