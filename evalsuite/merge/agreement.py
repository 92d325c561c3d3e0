"""What runs must have in common to be joined, and what the joined run says of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from evalsuite.errors import UsageError
from evalsuite.merge.parts import Part
from evalsuite.records import Plan, Run, Scalar, Settings

JOINT = " + "


def common_description(parts: Sequence[Part], mixed_hardware: bool, as_repeats: bool) -> Run:
    """Return the description that all parts share, with the first part's plan.

    Raises UsageError naming each field in which a part differs from the first.
    """
    first = _comparable(parts[0].run, parts[0].run.plan)
    for part in parts[1:]:
        other = _comparable(part.run, parts[0].run.plan)
        if mixed_hardware:
            other = msgspec.structs.replace(other, hardware=first.hardware)
        differences = list(other.differences(first))
        if not as_repeats and part.run.plan.repeats != parts[0].run.plan.repeats:
            theirs = parts[0].run.plan.repeats
            differences.append(f"plan.repeats: {part.run.plan.repeats} != {theirs}")
        if differences:
            listed = "\n  ".join(differences)
            message = f"cannot be joined with {parts[0].folder}:\n  {listed}"
            raise UsageError(message, file=part.folder)
    return msgspec.structs.replace(
        first,
        created=min(part.run.created for part in parts),
        hardware=_hardware([part.run.hardware for part in parts]),
    )


def _comparable(run: Run, plan: Plan) -> Run:
    return msgspec.structs.replace(run, plan=plan, shard=None)


def _hardware(machines: Sequence[Settings]) -> Settings:
    keys = dict.fromkeys(key for machine in machines for key in machine)
    return {key: _joined([machine.get(key) for machine in machines]) for key in keys}


def _joined(values: Sequence[Scalar]) -> Scalar:
    different = list(dict.fromkeys(values))
    return different[0] if len(different) == 1 else JOINT.join(str(value) for value in different)
