"""Suites: what is wrong is named by file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalsuite.errors import UsageError
from evalsuite.paths import SUITES
from evalsuite.suite import EngineConfig, Overrides, load_suite, resolve_suite

GOOD = """\
name: mine
engine:
  kind: mini
  concurrency: 4
task: gsm_mini
limit: 50
arms: [eager, graph]
"""


def write(folder: Path, text: str) -> str:
    """Write a suite file and return its path as the command line would give it."""
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


def test_a_suite_is_read_as_written(tmp_path: Path) -> None:
    suite = load_suite(write(tmp_path, GOOD))
    assert suite.engine == EngineConfig(kind="mini", concurrency=4)
    assert [arm.name for arm in suite.parsed_arms()] == ["eager", "graph"]
    assert suite.limit == 50
    assert not suite.report_only


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_ready_suite_is_valid_and_named_as_its_file(path: Path) -> None:
    assert load_suite(path.stem).name == path.stem


@pytest.mark.parametrize(
    ("old", "new", "line", "key"),
    [
        ("limit: 50", "limt: 50", 6, "limt"),
        ("  concurrency: 4", "  concurency: 4", 4, "engine.concurency"),
        ("limit: 50", "limit: many", 6, "limit"),
        ("limit: 50", "limit: 0", 6, "limit"),
        ("limit: 50", "limit: true", 6, "limit"),
        ("concurrency: 4", "concurrency: 0", 4, "engine.concurrency"),
        ("kind: mini", "kind: maxi", 3, "engine.kind"),
        ("[eager, graph]", "[eager, mtp6]", 7, "arms"),
        ("[eager, graph]", "[eager, eager]", 7, "arms"),
        ("[eager, graph]", "[]", 7, "arms"),
        ("[eager, graph]", "[eager, 1]", 7, r"arms\[1\]"),
        ("task: gsm_mini", "task: ''", 5, "task"),
        ("task: gsm_mini\n", "", 1, "task"),
        ("limit: 50", "limit: 50\nlimit: 60", 7, "limit"),
        ("name: mine", "name: ../mine", 1, "name"),
        ("limit: 50", "limit: [", 8, "not YAML"),
    ],
)
def test_a_fault_is_named_by_line_and_key(
    tmp_path: Path, old: str, new: str, line: int, key: str
) -> None:
    with pytest.raises(UsageError, match=rf"mine\.yaml:{line}: {key}: "):
        load_suite(write(tmp_path, GOOD.replace(old, new)))


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n", "name", "a: b: c", "\tname: x"])
def test_what_is_no_suite_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"mine\.yaml"):
        load_suite(write(tmp_path, text))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"name: \xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_suite(str(path))


def test_an_unknown_suite_is_told_beside_the_known_ones() -> None:
    with pytest.raises(UsageError, match="glm53-mini"):
        load_suite("nosuch")
    with pytest.raises(UsageError, match="no such file"):
        load_suite("./nosuch.yaml")


def test_the_command_line_overrides_the_suite(tmp_path: Path) -> None:
    wishes = Overrides(model="m", arms=("mtp1",), limit="all", repeats=3)
    suite = resolve_suite(write(tmp_path, GOOD), wishes)
    assert (suite.engine.model, suite.arms, suite.limit, suite.repeats) == ("m", ("mtp1",), None, 3)
    assert suite.engine.concurrency == 4


def test_another_engine_does_not_inherit_the_first_ones_options(tmp_path: Path) -> None:
    suite = resolve_suite(write(tmp_path, GOOD), Overrides(engine="vllm"))
    assert suite.engine == EngineConfig(kind="vllm")
    with pytest.raises(UsageError, match="kind must be"):
        resolve_suite(write(tmp_path, GOOD), Overrides(engine="hf"))


def test_another_task_takes_the_ready_suite_or_is_report_only(tmp_path: Path) -> None:
    assert resolve_suite("glm53-mini", Overrides(task="gsm8k")) == load_suite("glm53-mini-gsm8k")
    other = resolve_suite(write(tmp_path, GOOD), Overrides(task="asdiv"))
    assert (other.name, other.task, other.report_only) == ("mine-asdiv", "asdiv", True)
    same = resolve_suite(write(tmp_path, GOOD), Overrides(task="gsm_mini"))
    assert not same.report_only
