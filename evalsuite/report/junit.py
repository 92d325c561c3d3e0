"""JUnit XML: one test for each arm and check, and one for what a check says of the whole run.

Valid against the schema of Jenkins' xUnit plugin (junit-10.xsd), which GitLab, GitHub's reporters
and Azure read too.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from evalsuite.checks import Finding, worst
from evalsuite.report.source import Source
from evalsuite.report.text import visible

NAME = "evalsuite"
RUN = "run"
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(source: Source) -> bytes:
    """Return the XML of a judged run.

    `fail` and `missing` are failures, `skipped` is skipped, a warning passes with its words in
    system-out. An arm's wall time is that of its test `wall`.
    """
    verdict = source.verdict
    suite = ET.Element("testsuite", name=_clean(f"{NAME}.{verdict.suite}"))
    for check in verdict.checks:
        _case(suite, f"{verdict.suite}.{RUN}", check, source.of(check, None), 0.0)
    for arm in verdict.arms:
        for check in verdict.checks:
            found = source.of(check, arm.arm)
            if not found and source.status_of_run(check) == "skipped":
                found = source.of(check, None)
            seconds = arm.wall_s if check == "wall" else 0.0
            _case(suite, f"{verdict.suite}.{arm.arm}", check, found, seconds)
    suite.set("timestamp", verdict.created[:19])
    return _written(suite)


def render_broken_junit(name: str, reason: str) -> bytes:
    """Return the XML of a run that cannot be read at all: one error."""
    suite = ET.Element("testsuite", name=_clean(f"{NAME}.{name}"))
    case = ET.SubElement(suite, "testcase", classname=_clean(f"{name}.{RUN}"), name="read")
    case.set("time", "0.000")
    error = ET.SubElement(case, "error", message=_clean(reason), type="damaged")
    error.text = _clean(reason)
    return _written(suite)


def _case(
    suite: ET.Element, classname: str, name: str, found: list[Finding], seconds: float
) -> None:
    case = ET.SubElement(suite, "testcase", classname=_clean(classname), name=name)
    case.set("time", f"{max(seconds, 0.0):.3f}")
    status = worst(found)
    text = _clean("\n".join(f"{one.status}: {one.message}" for one in found))
    if status in ("fail", "missing"):
        grave = next(one for one in found if one.status == status)
        failure = ET.SubElement(case, "failure", message=_clean(grave.message), type=status)
        failure.text = text
    elif status == "skipped":
        ET.SubElement(case, "skipped", message=_clean(found[0].message))
    elif found:
        ET.SubElement(case, "system-out").text = text


def _written(suite: ET.Element) -> bytes:
    counts = {
        "tests": len(suite.findall("testcase")),
        "failures": len(suite.findall("testcase/failure")),
        "errors": len(suite.findall("testcase/error")),
    }
    skipped = len(suite.findall("testcase/skipped"))
    total = sum(float(case.get("time", "0")) for case in suite)
    root = ET.Element("testsuites", name=NAME)
    for element in (root, suite):
        for key, count in counts.items():
            element.set(key, str(count))
        element.set("time", f"{total:.3f}")
    suite.set("skipped", str(skipped))
    root.append(suite)
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _clean(text: str) -> str:
    """Return what XML 1.0 can hold of a text, with the rest made readable."""
    return _FORBIDDEN.sub("\ufffd", visible(text))
