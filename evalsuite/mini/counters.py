"""What a session did: the raw material of its evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from evalsuite.mini.batch import RowSpec, kinds_of_rows
from evalsuite.mini.metadata import row_kind
from sparse_mla.launches import Launch

__all__ = ["Counters", "Routes", "row_kind"]


class Routes:
    """The attention kernels that a step's rows ran on, from what was launched in it.

    Rows narrower than the padded block that they were launched in ran on that block's kernel.
    """

    def __init__(self, launched: Iterable[Launch], default: str) -> None:
        self._by_kind: dict[str, set[str]] = {}
        for launch in launched:
            self._by_kind.setdefault(launch.row_kind, set()).add(launch.kernel)
        self._all = set().union(*self._by_kind.values()) or {default}

    def of(self, kind: str) -> set[str]:
        """Kernels of rows of this kind."""
        return self._by_kind.get(kind, self._all)


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
        self, decode: list[RowSpec], prefill: list[RowSpec], eager: bool, route: Routes
    ) -> None:
        """Count one step by the kinds of its rows; `route` has the kernels that they ran on."""
        for kind in kinds_of_rows(decode, prefill):
            self.steps_by_kind[kind] += 1
            self.routes.setdefault(kind, set()).update(route.of(kind))
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
