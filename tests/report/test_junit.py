"""JUnit XML: valid, one test for each arm and check, failures where the verdict has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from lxml import etree
from report_runs import Judged

from evalsuite.checks import worst
from evalsuite.judge import read_verdict
from evalsuite.report.junit import render_broken_junit

SCHEMA = Path(__file__).parent.parent / "data" / "junit-10.xsd"


def parsed(data: bytes) -> etree._Element:
    root = etree.fromstring(data)
    etree.XMLSchema(etree.parse(str(SCHEMA))).assertValid(root)
    return root


@pytest.mark.parametrize("name", ["broken", "healthy", "hostile"])
def test_it_is_valid_and_has_a_test_for_each_arm_and_check(
    request: pytest.FixtureRequest, name: str
) -> None:
    run: Judged = request.getfixturevalue(name)
    root = parsed((run.folder / "junit.xml").read_bytes())
    verdict = read_verdict(run.folder)
    cases = {(case.get("classname"), case.get("name")): case for case in root.iter("testcase")}
    arms = ["run", *(arm.arm for arm in verdict.arms)]
    wanted = {(f"{verdict.suite}.{arm}", check) for arm in arms for check in verdict.checks}
    assert set(cases) == wanted
    for arm in arms:
        for check in verdict.checks:
            about = None if arm == "run" else arm
            found = [f for f in verdict.findings if f.check == check and f.arm == about]
            failed = cases[f"{verdict.suite}.{arm}", check].find("failure") is not None
            assert failed == (worst(found) in ("fail", "missing"))
    assert int(root.get("failures")) == len(root.findall(".//failure"))
    assert (int(root.get("failures")) == 0) == (verdict.verdict == "pass")


def test_a_run_that_cannot_be_read_is_one_error() -> None:
    root = parsed(render_broken_junit("run \x00 <&>", "items.jsonl: \x1b[31m is missing"))
    assert root.get("errors") == "1"
    assert root.find(".//error").get("message") == "items.jsonl: ␛[31m is missing"


def test_the_schema_refuses_what_servers_refuse(healthy: Judged) -> None:
    good = (healthy.folder / "junit.xml").read_bytes()
    for bad in (
        good.replace(b' tests="', b' test="', 2),
        good.replace(b"testcase classname", b"case classname", 1).replace(
            b"</testcase>", b"</case>", 1
        ),
        good.replace(b'time="0.000"', b'time="soon"', 1),
    ):
        with pytest.raises((etree.DocumentInvalid, etree.XMLSyntaxError)):
            parsed(bad)
