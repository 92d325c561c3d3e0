"""A proof as JSON, Markdown, page and exit code."""

from __future__ import annotations

import html.parser
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from evalsuite.cli import main
from evalsuite.errors import UsageError
from evalsuite.faults.catalogue import FAULTS
from evalsuite.faults.confusion import confusion, placed
from evalsuite.faults.healthy import HealthyRun, variations
from evalsuite.faults.prove import Proof
from evalsuite.faults.tables import as_markdown, joined, summary, terminal, write
from evalsuite.faults.trial import Trial
from evalsuite.localise import Localisation

MACHINE = {
    "date": "2026-09-01",
    "hardware": {"device": "cpu", "name": "a <b> machine", "count": 1},
    "software": {"torch": "2.11.0"},
    "dtype": "float32",
    "model_hash": "c9f9676f",
    "items": 128,
    "batch": 16,
}


def _placed(family: str) -> Localisation:
    return Localisation(
        family=family,
        reason="only widths 2 are wrong",
        otherwise=["D"],
        places=[],
        patterns=[],
        untold=[],
    )


def trial(name: str, *checks: str, family: str = "A", problem: str | None = None) -> Trial:
    fault = FAULTS[name]
    return Trial(
        fault=fault,
        caught=bool(checks),
        expected=bool(set(checks) & set(fault.checks)),
        checks=checks,
        items=16,
        seconds=1.25,
        says="route: verify rows went to <rope_576> | other" if checks else "",
        figures={},
        healthy={},
        place=_placed(family) if checks else None,
        blind=fault.unseen("cpu", "float32"),
        problem=problem,
    )


@pytest.fixture
def proof(tmp_path: Path) -> Proof:
    trials = [trial("A-01", "route"), trial("C-13"), trial("D-07", "equality")]
    runs = [HealthyRun(v.name, 128, 9.0, (), "").as_json() for v in variations(10)]
    return Proof(MACHINE, tmp_path, [one.as_json() for one in trials], runs, 2, 77.0)


def test_json_has_what_is_promised(proof: Proof) -> None:
    told = json.loads(json.dumps(proof.as_json(), allow_nan=False))
    assert told["false_alarms"] == 0 and told["caught"] == 2 and told["total"] == 3
    for row in told["faults"]:
        assert {"id", "family", "caught", "checks", "items", "seconds"} <= set(row)
    assert [row["id"] for row in told["faults"]] == ["A-01", "C-13", "D-07"]


def test_the_page_says_how_processes_shared_a_gpu(proof: Proof) -> None:
    assert "in 2 processes." in as_markdown(proof.as_json())
    shared = replace(proof, machine={**MACHINE, "mps": True})
    assert "in 2 processes that share the GPU through MPS." in as_markdown(shared.as_json())


def test_a_fault_that_cannot_be_seen_stays_in_the_table_with_its_reason(proof: Proof) -> None:
    page = as_markdown(proof.as_json())
    assert "C-13" in page and "order of scores" in page
    assert "C-13 cannot be seen" in summary(proof.as_json())
    assert proof.exit_code == 0


@pytest.mark.parametrize(
    "bad",
    [
        trial("A-03"),
        trial("A-03", "wall"),
        trial("A-03", problem="LookupError: no seam"),
    ],
    ids=["missed", "by another check", "not tried"],
)
def test_a_fault_that_is_missed_fails_the_proof(proof: Proof, bad: Trial) -> None:
    assert replace(proof, faults=[*proof.faults, bad.as_json()]).exit_code == 1


def test_one_false_alarm_in_ten_is_borne_and_two_are_not(proof: Proof) -> None:
    alarm = {**proof.healthy[0], "alarms": ["equality"]}
    one = replace(proof, healthy=[alarm, *proof.healthy[1:]])
    two = replace(proof, healthy=[alarm, alarm, *proof.healthy[2:]])
    assert (one.exit_code, two.exit_code) == (0, 1)
    assert two.false_alarms == 2 and "ALARM" in as_markdown(two.as_json())


def test_how_often_the_family_was_right(proof: Proof) -> None:
    told = proof.as_json()
    assert placed(told) == (
        "From the failed run alone the right family was named for 1 of 2 caught faults, first or "
        "as the one that fits next for 2"
    )
    assert confusion(told)[0][1]["A"] == ["A-01"] and confusion(told)[1][1]["A"] == ["D-07"]
    page = as_markdown(told)
    assert "| A | 1 |" in page and "| D | 1 |" in page and "Named otherwise: D-07 as A." in page


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_escapes_what_it_shows(proof: Proof, tmp_path: Path) -> None:
    write(proof.as_json(), tmp_path / "prove")
    page = (tmp_path / "prove.html").read_text()
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert "a &lt;b&gt; machine" in page and "<b>" not in page
    assert page.count("data-fault=") == 3 and "http" not in page.replace("http-equiv", "")
    assert json.loads((tmp_path / "prove.json").read_text())["caught"] == 2
    assert terminal(proof.as_json())


def test_every_kind_of_variation_occurs_and_has_its_own_name() -> None:
    names = [varied.name for varied in variations(30)]
    assert len(set(names)) == 30
    for kind in ("order", "shuffled", "batch of 3/4", "small chunks", "no prefix cache"):
        assert any(kind in name for name in names)


def test_an_unknown_fault_is_one_line_and_exit_code_2() -> None:
    done = CliRunner().invoke(main, ["prove", "Z-99"])
    assert done.exit_code == 2 and "no fault 'Z-99'" in done.stderr


def test_proofs_over_different_faults_are_joined_in_the_catalogues_order(proof: Proof) -> None:
    whole = proof.as_json()
    first = {**whole, "faults": whole["faults"][2:], "healthy": []}
    second = {**whole, "faults": whole["faults"][:2]}
    both = joined([first, second], list(FAULTS), ["Made on two evenings."])
    assert [row["id"] for row in both["faults"]] == ["A-01", "C-13", "D-07"]
    assert both["caught"] == 2 and len(both["healthy"]) == 10
    assert "\nMade on two evenings.\n" in as_markdown(both)


def test_proofs_of_two_checkpoints_are_not_joined(proof: Proof) -> None:
    whole = proof.as_json()
    other = {**whole, "faults": [], "machine": {**whole["machine"], "dtype": "bfloat16"}}
    with pytest.raises(UsageError, match="differ in dtype"):
        joined([whole, other], list(FAULTS))
    with pytest.raises(UsageError, match="more than one trial of A-01"):
        joined([whole, whole], list(FAULTS))
