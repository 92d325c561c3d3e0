"""How often the family that a failed run is said to be of is that of the fault in it."""

from __future__ import annotations

from typing import Any

from evalsuite.faults.fault import FAMILIES

Proof = dict[str, Any]
Row = dict[str, Any]


def placed(proof: Proof) -> str:
    """How often the likely family was right, in a sentence."""
    rows = _placed(proof)
    right = sum(row["likely_family"] == row["family"] for row in rows)
    told = (
        f"From the failed run alone the right family was named for {right} of {len(rows)} caught "
        "faults"
    )
    near = sum(row["family"] in (row["likely_family"], *row.get("otherwise", ())) for row in rows)
    return f"{told}, first or as the one that fits next for {near}"


def confusion(proof: Proof) -> list[tuple[str, dict[str, list[str]]]]:
    """For each family of caught faults: which of them each family was named for."""
    rows = _placed(proof)
    letters = [one for one in FAMILIES if any(one == row["family"] for row in rows)]
    return [
        (
            letter,
            {
                named: [
                    row["id"]
                    for row in rows
                    if row["family"] == letter and row["likely_family"] == named
                ]
                for named in FAMILIES
            },
        )
        for letter in letters
    ]


def _placed(proof: Proof) -> list[Row]:
    return [row for row in proof["faults"] if row["caught"] and row["likely_family"]]


def as_lines(proof: Proof) -> list[str]:
    """The confusion of families as lines of Markdown; none where nothing was caught."""
    rows = confusion(proof)
    if not rows:
        return []
    lines = [
        "## Where the report says that a fault is likely to sit",
        "",
        f"{placed(proof)}. Rows are the families of the faults, columns those that were named.",
        "",
        f"| | {' | '.join(FAMILIES)} |",
        f"| --- |{' --- |' * len(FAMILIES)}",
    ]
    for letter, named in rows:
        cells = [str(len(ids)) if ids else "" for ids in named.values()]
        lines.append(f"| {letter} | {' | '.join(cells)} |")
    other = [
        f"{one} as {name}" for letter, named in rows for name, ids in named.items()
        for one in ids if name != letter
    ]  # fmt: skip
    return [*lines, "", f"Named otherwise: {', '.join(other) or 'none'}.", ""]
