"""Where a failed run is likely to go wrong, from its records alone.

    localisation = localise(run, reference, findings, policy)

First the places at which answers leave eager's, then what those have in common beyond chance, then
the family of faults that fits the signs best. Reads run.json, records and evidence, nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from evalsuite.checks import Finding
from evalsuite.localise.families import guess
from evalsuite.localise.places import places_of
from evalsuite.localise.signs import Signs
from evalsuite.localise.told import FAMILIES, Localisation, Pattern, Place
from evalsuite.policy import Policy
from evalsuite.reference import Reference
from evalsuite.runview import EAGER, RunView

__all__ = ["FAMILIES", "Localisation", "Pattern", "Place", "localise"]

# Checks that tell nothing of where in the engine: time, and the baseline's own.
ELSEWHERE = frozenset({"wall", "baseline"})


def localise(
    run: RunView, reference: Reference | None, findings: Sequence[Finding], policy: Policy
) -> Localisation | None:
    """Say where the fault behind failing `findings` is likely to sit; None where nothing fails.

    What is missing because an arm did not come to its end says nothing of where a fault sits.
    """
    failing = [
        one
        for one in findings
        if (one.status == "fail" or (one.status == "missing" and not one.incomplete))
        and one.check not in ELSEWHERE
    ]
    if not failing:
        return None
    signs = Signs(run, reference, failing, policy)
    found = guess(signs)
    seen = signs.symptoms()
    return Localisation(
        family=found.family,
        reason=f"{', '.join(seen)}: {found.reason}" if seen else found.reason,
        otherwise=list(found.otherwise),
        places=places_of(run, signs.onsets, signs.geometry),
        patterns=signs.patterns,
        untold=_untold(run, signs),
    )


def _untold(run: RunView, signs: Signs) -> list[str]:
    """What the records do not tell and a place would need."""
    told = []
    if EAGER not in run.arms:
        told.append("no eager arm to compare tokens with")
    for name, arm in run.arms.items():
        answers = int((arm.outcome >= 0).sum())
        if answers and arm.without_ids == answers:
            told.append(f"{name}: no token ids, so that no place can be named")
        elif answers and arm.without_margins == answers and not signs.onsets.get(name):
            told.append(f"{name}: no margins, so that only tokens that differ are seen")
    if signs.wrong & signs.drafts:
        told.append(
            "drafts are counted by answer, not by step: the row of a verification step is known "
            "only where none was turned down"
        )
    absent = [name for name, size in signs.geometry._asdict().items() if size is None]
    if absent:
        told.append(f"the model's {', '.join(absent)}: no boundary of these can be named")
    return told
