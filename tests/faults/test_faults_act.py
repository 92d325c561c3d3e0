"""Every fault of the engine changes what it should, and nothing else, on a small random model."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

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
    "A-04": "no arm here verifies six rows",
    "G-01": "a row in a hundred, by chance",
    "G-04": "its scale is a power of two",
    "G-07": "its lists of keys are one tile wide",
}
ONLY = {
    **dict.fromkeys((n for n in FAULTS if n[0] in "AD" and n != "A-02"), DRAFTING),
    "A-06": {MTP},
    **dict.fromkeys(("B-01", "B-05", "B-07", "B-08", "C-05", "C-15"), DRAFTING),
    "B-02": REPLAYING,
    "B-03": REPLAYING,
    "B-04": {EAGER_MTP},
    "D-05": REPLAYING,
    **dict.fromkeys((n for n in FAULTS if n[0] == "F"), REPLAYING),
    "F-08": {MTP},
}


def cases(faults: list[Fault]) -> list[Any]:
    """Faults of replays trace every step of a small model, which takes a while."""
    slow = pytest.mark.slow
    return [
        pytest.param(fault, id=fault.id, marks=[slow] if tried(fault) == ARMS else [])
        for fault in faults
    ]


def tried(fault: Fault) -> tuple[str, ...]:
    """The arms to try: those that replay only where the fault itself asks for them."""
    return ARMS if MTP in fault.arms else (EAGER, EAGER_MTP)


OUTPUT = [
    fault
    for fault in FAULTS.values()
    if fault.family in "ABCDFG" and fault.effect == "output" and fault.id not in OUT_OF_REACH
]
DRAFTS = [fault for fault in FAULTS.values() if fault.effect == "drafts" and fault.id != "F-05"]


class Given(NamedTuple):
    """What a session answered: tokens and margins by request."""

    tokens: dict[str, list[int]]
    margins: dict[str, list[float]]

    def differs(self, other: Given) -> bool:
        """Whether any token differs, or any margin by more than rounding."""
        return self.tokens != other.tokens or any(
            abs(a - b) > 1e-3
            for name, ours in self.margins.items()
            for a, b in zip(ours, other.margins[name], strict=True)
        )


def answers(arm: Arm, stress: Stress) -> Given:
    """What an arm answers to nine requests."""
    session = tiny_session(
        k=arm.mtp, graph=arm.graph, **{"graph_batches": (4,), **dict(stress.options)}
    )
    # Requests come at different lengths, and some find their prefix in the cache.
    requests = [
        request(str(n), [*SHARED, *prompt(3 + 5 * n, seed=n)], 20 + 3 * (n % 3)) for n in range(9)
    ]
    done = list(session.generate(requests))
    return Given(
        {s.request.request_id: s.tokens for s in done},
        {s.request.request_id: s.margins for s in done},
    )


@functools.cache
def healthy(name: str, stress: str) -> Given:
    """The same without a fault."""
    known = {str(fault.stress): fault.stress for fault in FAULTS.values()}
    with known[stress].active():
        return answers(parse_arm(name), known[stress])


def ill(fault: Fault, name: str) -> Given:
    torch.manual_seed(0)
    with fault.stress.active(), fault.active():
        return answers(parse_arm(name), fault.stress)


@pytest.mark.parametrize(
    "name", [EAGER_MTP, *(pytest.param(n, marks=pytest.mark.slow) for n in (GRAPH, MTP))]
)
def test_healthy_arms_agree(name: str) -> None:
    stress = str(Stress())
    assert healthy(name, stress).tokens == healthy(EAGER, stress).tokens


@pytest.mark.parametrize("fault", cases(OUTPUT))
def test_answers_change_in_the_arms_that_should_and_in_no_other(fault: Fault) -> None:
    known = str(fault.stress)
    changed = {n for n in tried(fault) if ill(fault, n).differs(healthy(n, known))}
    assert changed
    assert changed <= set(ONLY.get(fault.id, ARMS))


@pytest.mark.parametrize("fault", cases(DRAFTS))
def test_a_fault_of_the_drafter_changes_no_answer(fault: Fault) -> None:
    known = str(fault.stress)
    assert not any(ill(fault, n).differs(healthy(n, known)) for n in tried(fault))


@pytest.mark.parametrize("name", ["C-13", "G-06"])
def test_a_fault_that_the_gate_cannot_see_changes_nothing(name: str) -> None:
    fault = FAULTS[name]
    assert not any(ill(fault, n).differs(healthy(n, str(fault.stress))) for n in tried(fault))
