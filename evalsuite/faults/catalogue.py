"""All faults by id, and which of them a quick proof takes."""

from __future__ import annotations

from collections.abc import Sequence

from evalsuite.errors import UsageError
from evalsuite.faults import answers, caching, dispatch, drafter, graphs, numerics, rows, states
from evalsuite.faults.fault import FAMILIES, Fault

_MODULES = (dispatch, rows, caching, states, drafter, graphs, numerics, answers)
FAULTS: dict[str, Fault] = {fault.id: fault for module in _MODULES for fault in module.FAULTS}
# Every family once, and of the common ones those that show by different checks.
QUICK = (
    *("A-01", "B-05", "C-06", "C-14", "D-03", "D-07"),
    *("E-03", "F-09", "G-05", "H-01", "S-02", "S-06"),
)
# Reports of the catalogue that are no faults to inject: they set tolerances.
NOT_INJECTED = {
    "C-12": "head gates in bfloat16 change near-ties: it sets the tolerance of index comparisons",
    "G-02": "the order of a reduction: a noise floor, not a defect",
    "G-08": "two launches of one stack: a noise floor, not a defect",
}


def choose(
    ids: Sequence[str] = (), families: Sequence[str] = (), *, quick: bool = False
) -> list[Fault]:
    """The faults that are asked for, named ones first; all where nothing is.

    Raises UsageError for unknown names.
    """
    for name in ids:
        if name not in FAULTS:
            told = NOT_INJECTED.get(name)
            raise UsageError(f"{name} is not injected: {told}" if told else f"no fault {name!r}")
    for name in families:
        if name not in FAMILIES:
            raise UsageError(f"no family {name!r}; there are {', '.join(FAMILIES)}")
    wanted = dict.fromkeys((*ids, *(QUICK if quick else ())))
    everything = not wanted and not families
    others = [f.id for f in FAULTS.values() if everything or f.family in families]
    return [FAULTS[name] for name in dict.fromkeys((*wanted, *others))]
