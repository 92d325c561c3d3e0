"""What a session did: the raw material of its evidence."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from evalsuite.mini.batch import RowSpec


def row_kind(width: int) -> str:
    """Name of a decode row group by its width: `decode`, or `verify:W`."""
    return "decode" if width == 1 else f"verify:{width}"


@dataclass
class Counters:
    """Steps and launches by row kind, drafts by position, graph use."""

    steps_by_kind: Counter[str] = field(default_factory=Counter)
    routes: dict[str, set[str]] = field(default_factory=dict)
    eager_decode_steps: int = 0
    drafts: int = 0
    drafted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    draft_length: int = 0
    draft_steps: int = 0

    def reset(self) -> None:
        """Start counting anew; the draft length stays."""
        self.__init__(draft_length=self.draft_length)  # type: ignore[misc]

    def count_rows(
        self, decode: list[RowSpec], prefill: list[RowSpec], eager: bool, route: str
    ) -> None:
        """Count one step by the kinds of its rows; `route` is the attention kernel they ran on."""
        kinds = {row_kind(len(spec.tokens)) for spec in decode}
        if prefill:
            kinds.add("prefill")
        for kind in kinds:
            self.steps_by_kind[kind] += 1
            self.routes.setdefault(kind, set()).add(route)
        if decode and eager:
            self.eager_decode_steps += 1

    def count_verified(self, proposed: int, accepted: int) -> None:
        """Count one verified draft of `proposed` tokens, the first `accepted` of which held."""
        if proposed == 0:
            return
        self.drafts += 1
        self.drafted_tokens += proposed
        while len(self.accepted_per_position) < proposed:
            self.accepted_per_position.append(0)
        for position in range(accepted):
            self.accepted_per_position[position] += 1
