"""The catalogue: enough faults of every family, all told, and chosen by name."""

from __future__ import annotations

import pytest

from evalsuite.arms import parse_arms
from evalsuite.checks import CHECKS
from evalsuite.errors import UsageError
from evalsuite.faults.catalogue import FAULTS, NOT_INJECTED, QUICK, choose
from evalsuite.faults.fault import FAMILIES, Fault
from evalsuite.faults.stress import Stress


def test_there_are_enough_of_every_family() -> None:
    assert len(FAULTS) >= 40
    assert {fault.family for fault in FAULTS.values()} == set(FAMILIES)


def test_ids_are_unique_and_in_their_module() -> None:
    from evalsuite.faults.catalogue import _MODULES

    assert sum(len(module.FAULTS) for module in _MODULES) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_every_fault_is_told(fault: Fault) -> None:
    assert fault.title and fault.source and fault.changes
    assert parse_arms(fault.arms)[0].name == "eager"
    assert fault.checks and set(fault.checks) <= set(CHECKS)


def test_a_fault_of_the_drafter_is_seen_by_acceptance_alone() -> None:
    drafts = [fault for fault in FAULTS.values() if fault.effect == "drafts"]
    assert len(drafts) >= 11
    assert all(fault.checks == ("acceptance",) for fault in drafts)


def test_a_quick_proof_has_twelve_faults_of_every_family() -> None:
    chosen = choose(quick=True)
    assert len(chosen) == len(QUICK) == 12
    assert {fault.family for fault in chosen} == set(FAMILIES)


def test_faults_are_chosen_by_id_and_family() -> None:
    assert len(choose()) == len(FAULTS)
    assert [fault.id for fault in choose(["A-01"])] == ["A-01"]
    named = choose(["A-01"], ["E"])
    assert {fault.family for fault in named} == {"A", "E"} and len(named) == 12


@pytest.mark.parametrize(
    ("ids", "families", "told"),
    [
        (["Z-01"], [], "no fault 'Z-01'"),
        (["G-02"], [], "noise floor"),
        ([], ["Q"], "no family 'Q'"),
    ],
)
def test_what_there_is_not_is_an_error(ids: list[str], families: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        choose(ids, families)


def test_what_is_not_injected_says_why() -> None:
    assert not set(NOT_INJECTED) & set(FAULTS)
    assert all(NOT_INJECTED.values())


def test_conditions_are_told() -> None:
    assert str(Stress()) == "as in a normal run"
    told = str(Stress(rejections=True, options=(("share_slots", False),)))
    assert told == "drafts turned down in a pattern, share_slots False"


def test_what_is_blind_on_one_device_or_type_is_not_excused_on_another() -> None:
    assert FAULTS["C-13"].unseen("cuda", "bfloat16")
    assert FAULTS["S-12"].unseen("cpu", "float32") and not FAULTS["S-12"].unseen("cuda", "bfloat16")
    assert FAULTS["E-01"].unseen("cuda", "bfloat16") and not FAULTS["E-01"].unseen("cpu", "float32")
    assert FAULTS["G-07"].unseen("cpu", "bfloat16") and not FAULTS["G-07"].unseen("cpu", "float32")
