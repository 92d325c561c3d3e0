"""Every fault of the engine changes what it should, and nothing else, on a small random model."""

from __future__ import annotations

import functools

import pytest
import torch
from tiny import prompt, request, tiny_session

from evalsuite.arms import Arm, parse_arm
from evalsuite.faults.catalogue import FAULTS
from evalsuite.faults.fault import Fault
from evalsuite.faults.stress import Stress

ARMS = ("eager", "graph", "eager-mtp3", "mtp3")
EAGER, GRAPH, EAGER_MTP, MTP = ARMS
DRAFTING, REPLAYING = {EAGER_MTP, MTP}, {GRAPH, MTP}
SHARED = prompt(48)
# What a small model or its short texts cannot show; the trained one shows it.
OUT_OF_REACH = {
    "C-08": "the cache has fewer slots than the wrap",
    "F-03": "no text is as long as the frozen length",
    "F-05": "drafts only",
    "G-01": "a row in a hundred, by chance",
}
ONLY = {
    **{name: DRAFTING for name in FAULTS if name[0] in "AD" and name != "A-02"},
    "A-06": {MTP},
    **{name: DRAFTING for name in ("B-01", "B-05", "B-07", "B-08", "C-05", "C-15")},
    "B-02": REPLAYING,
    "B-03": REPLAYING,
    "B-04": {EAGER_MTP},
    "D-05": REPLAYING,
    **{name: REPLAYING for name in FAULTS if name[0] == "F"},
    "F-08": {MTP},
}
OUTPUT = [
    fault
    for fault in FAULTS.values()
    if fault.family in "ABCDFG" and fault.effect == "output" and fault.id not in OUT_OF_REACH
]
DRAFTS = [fault for fault in FAULTS.values() if fault.effect == "drafts" and fault.id != "F-05"]


def answers(arm: Arm, stress: Stress) -> tuple[dict[str, list[int]], list[int]]:
    """Tokens by request, and the accepted count per draft position."""
    session = tiny_session(
        k=arm.mtp, graph=arm.graph, **{"graph_batches": (4,), **dict(stress.options)}
    )
    # Requests come at different lengths, and some find their prefix in the cache.
    requests = [
        request(str(n), [*SHARED, *prompt(3 + 5 * n, seed=n)], 20 + 3 * (n % 3)) for n in range(9)
    ]
    found = {s.request.request_id: s.tokens for s in session.generate(requests)}
    return found, session.counters.accepted_per_position


@functools.cache
def healthy(name: str, stress: str) -> tuple[dict[str, list[int]], list[int]]:
    """The same without a fault."""
    known = {str(fault.stress): fault.stress for fault in FAULTS.values()}
    with known[stress].active():
        return answers(parse_arm(name), known[stress])


def ill(fault: Fault, name: str) -> tuple[dict[str, list[int]], list[int]]:
    torch.manual_seed(0)
    with fault.stress.active(), fault.active():
        return answers(parse_arm(name), fault.stress)


def test_healthy_arms_agree() -> None:
    stress = str(Stress())
    assert all(healthy(name, stress)[0] == healthy(EAGER, stress)[0] for name in ARMS)


@pytest.mark.parametrize("fault", OUTPUT, ids=[fault.id for fault in OUTPUT])
def test_answers_change_in_the_arms_that_should_and_in_no_other(fault: Fault) -> None:
    known = str(fault.stress)
    changed = {name for name in ARMS if ill(fault, name)[0] != healthy(name, known)[0]}
    assert changed
    assert changed <= set(ONLY.get(fault.id, ARMS))


@pytest.mark.parametrize("fault", DRAFTS, ids=[fault.id for fault in DRAFTS])
def test_a_fault_of_the_drafter_changes_no_answer(fault: Fault) -> None:
    known = str(fault.stress)
    assert all(ill(fault, name)[0] == healthy(name, known)[0] for name in ARMS)


@pytest.mark.parametrize("name", ["C-13", "G-06"])
def test_a_fault_that_the_gate_cannot_see_changes_nothing(name: str) -> None:
    fault = FAULTS[name]
    assert all(ill(fault, arm)[0] == healthy(arm, str(fault.stress))[0] for arm in ARMS)
