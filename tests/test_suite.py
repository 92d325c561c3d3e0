"""Suites: what is wrong is named by file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalsuite.engines.serving.options import read_options
from evalsuite.errors import UsageError
from evalsuite.paths import SUITES
from evalsuite.policy import policy_from
from evalsuite.protocol import Chat
from evalsuite.suite import SERVED as SERVED_KINDS
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


SERVED = GOOD.replace("kind: mini", "kind: vllm")


def test_one_arm_brings_its_references_unless_arms_are_servers(tmp_path: Path) -> None:
    one = Overrides(arm="mtp5")
    assert resolve_suite("glm53-mini", one).arms == ("eager", "graph", "mtp5")
    assert resolve_suite(write(tmp_path, SERVED), one).arms == ("mtp5",)
    wished = Overrides(arm="mtp5", references=True)
    assert resolve_suite(write(tmp_path, SERVED), wished).arms == ("eager", "graph", "mtp5")
    with pytest.raises(UsageError, match="either --arm or --arms"):
        resolve_suite("glm53-mini", Overrides(arm="mtp5", arms=("eager",)))


def test_urls_become_options_of_a_served_engine(tmp_path: Path) -> None:
    path = write(tmp_path, SERVED)
    urls = ("http://a:1/v1?x=y", "mtp5=http://b:2")
    options = resolve_suite(path, Overrides(urls=urls)).engine.options
    assert options["url"] == "http://a:1/v1?x=y"
    assert options["urls"] == {"mtp5": "http://b:2"}
    with pytest.raises(UsageError, match="two for the same arms; write ARM=URL"):
        resolve_suite(path, Overrides(urls=("http://a", "http://b")))
    logs = resolve_suite(path, Overrides(logs=("a.log", "mtp1=b.log"))).engine.options
    assert (logs["log"], logs["logs"]) == ("a.log", {"mtp1": "b.log"})
    with pytest.raises(UsageError, match="'mtp9' drafts 9"):
        resolve_suite(path, Overrides(urls=("mtp9=http://a",)))
    with pytest.raises(UsageError, match="engine mini is no server"):
        resolve_suite("glm53-mini", Overrides(urls=("http://a",)))


def test_chat_thinking_and_stops(tmp_path: Path) -> None:
    more = "chat: {turns: false}\nthinking: {budget: 100}\nstops: ['Q:']\n"
    suite = load_suite(write(tmp_path, SERVED + more))
    assert suite.chat == Chat(turns=False)
    assert suite.stops == ("Q:",)
    assert suite.engine_config().options["thinking"] == {
        "budget": 100, "open": "<think>", "close": "</think>", "implied": False,
    }  # fmt: skip
    with pytest.raises(UsageError, match="need an engine of vllm"):
        load_suite(write(tmp_path, GOOD + more))
    with pytest.raises(UsageError, match="budget must be at least 0"):
        load_suite(write(tmp_path, SERVED + more.replace("100", "-1")))


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_ready_suite_is_good_and_named_as_its_file(path: Path) -> None:
    suite = load_suite(str(path))
    assert suite.name == path.stem
    if suite.engine.kind in SERVED_KINDS:
        read_options(dict(suite.engine_config().options))
    policy_from(suite.policy)
