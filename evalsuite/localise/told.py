"""What the judge tells of where a failed run goes wrong, as verdict.json holds it."""

from __future__ import annotations

from collections.abc import Iterable

from evalsuite.records import DiskStruct

# The families of the fault catalogue, in the words of somebody who has to look there.
FAMILIES = {
    "A": "dispatch or metadata of verification rows",
    "B": "alignment of rows, positions or padding",
    "C": "the indexer, its pools or cache addressing",
    "D": "recurrent state, prefix cache or rollback",
    "E": "the drafter alone",
    "F": "graph replay",
    "G": "numerics or uninitialised memory",
    "H": "text that a server hands out",
    "S": "the server's configuration or the harness",
}


def listed(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


class Place(DiskStruct, frozen=True):
    """Where an arm first leaves eager's on one item: at a token that differs, or before it at one
    whose margin moved by more than rounding (`moved`).

    `rows` are those that computed it, `prefill`, `decode` or `verify:W`, and `row` is its row's
    place among the W. `position` is that row's in its request, `in_pool` and `in_block` its place
    in there, and `behind_topk` whether it sees more keys than are selected. `neighbours` are items
    in progress at the same time, `agree` the other arms that still give eager's tokens here. What
    the records cannot tell is null.
    """

    arm: str
    item: str
    repeat: int
    token: int
    moved: bool
    margin: float | None
    rows: str
    row: int | None
    position: int | None
    in_pool: int | None
    in_block: int | None
    behind_topk: bool | None
    neighbours: list[str]
    agree: list[str]

    def boundaries(self) -> list[str]:
        """Its place in pool, block and top-k, as far as they are known, in words."""
        told = []
        if self.in_pool is not None:
            told.append(f"{self.in_pool} of its pool")
        if self.in_block is not None:
            told.append(f"{self.in_block} of its block")
        if self.behind_topk is not None:
            told.append(f"{'behind' if self.behind_topk else 'within'} the top-k")
        return told

    def __str__(self) -> str:
        how = "moves away from" if self.moved else "parts from"
        row = "" if self.row is None else f"row {self.row} of "
        parts = [
            f"{self.arm} {how} eager's on item {self.item} at token {self.token}",
            f"{row}{self.rows} rows",
        ]
        if self.position is not None:
            told = ", ".join(self.boundaries())
            parts.append(f"position {self.position}" + (f" ({told})" if told else ""))
        others = len(self.neighbours)
        parts.append(f"beside {others} other request{'s' * (others != 1)}")
        if self.agree:
            parts.append(f"{listed(self.agree)} agree{'s' * (len(self.agree) == 1)} there")
        return ", ".join(parts)


class Pattern(DiskStruct, frozen=True):
    """Something that `count` of `of` items share although by chance a share of `expected` would:
    `p` is the chance of so many, times the number of patterns looked for."""

    what: str
    count: int
    of: int
    expected: float
    p: float

    def __str__(self) -> str:
        return f"{self.count} of {self.of} {self.what} ({self.expected:.0%} by chance)"


class Localisation(DiskStruct, frozen=True):
    """Where a failed run is likely to go wrong, from its records alone.

    `family` is a letter of `FAMILIES`, `reason` why it is named, `otherwise` the families that the
    same signs fit next. `places` has the first place of every arm that is wrong, `patterns` what
    first places share beyond chance, `untold` what the records do not tell.
    """

    family: str
    reason: str
    otherwise: list[str]
    places: list[Place]
    patterns: list[Pattern]
    untold: list[str]

    @property
    def name(self) -> str:
        """The family in words."""
        return FAMILIES[self.family]

    @property
    def sentence(self) -> str:
        """Everything in one sentence but what is not told."""
        parts = [
            f"{self.reason}: {self.name}",
            *map(str, self.patterns),
            *map(str, self.places[:1]),
        ]
        return "; ".join(parts)
