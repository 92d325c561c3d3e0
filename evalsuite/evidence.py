"""Evidence put together from the parts of an interrupted arm."""

from __future__ import annotations

from evalsuite.errors import DamagedRun
from evalsuite.records import Evidence

ROUTE_JOINT = "+"


def merge_evidence(first: Evidence | None, second: Evidence) -> Evidence:
    """Return the evidence of both parts of one arm: counts add up, routes unite.

    A count that either part could not tell stays null. Raises DamagedRun where the parts were
    configured differently: they are not one arm then.
    """
    if first is None:
        return second
    for name in ("engine_version", "backend", "draft_length", "asked", "read_back"):
        mine, other = getattr(first, name), getattr(second, name)
        if mine != other:
            raise DamagedRun(f"before the interruption {mine!r}, after it {other!r}", field=name)
    return Evidence(
        engine_version=second.engine_version,
        backend=second.backend,
        graph_replays=_sum(first.graph_replays, second.graph_replays),
        eager_decode_steps=_sum(first.eager_decode_steps, second.eager_decode_steps),
        steps_by_kind=_sum_by_key(first.steps_by_kind, second.steps_by_kind),
        routes=_unite(first.routes, second.routes),
        drafts=_sum(first.drafts, second.drafts),
        drafted_tokens=_sum(first.drafted_tokens, second.drafted_tokens),
        accepted_per_position=_sum_by_position(
            first.accepted_per_position, second.accepted_per_position
        ),
        draft_length=second.draft_length,
        prefix_hits=_sum(first.prefix_hits, second.prefix_hits),
        preemptions=_sum(first.preemptions, second.preemptions),
        asked=second.asked,
        read_back=second.read_back,
    )


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def _sum_by_key(
    first: dict[str, int] | None, second: dict[str, int] | None
) -> dict[str, int] | None:
    if first is None or second is None:
        return None
    return {key: first.get(key, 0) + second.get(key, 0) for key in sorted({*first, *second})}


def _sum_by_position(first: list[int] | None, second: list[int] | None) -> list[int] | None:
    if first is None or second is None:
        return None
    length = max(len(first), len(second))
    padded = [part + [0] * (length - len(part)) for part in (first, second)]
    return [before + after for before, after in zip(*padded, strict=True)]


def _unite(first: dict[str, str] | None, second: dict[str, str] | None) -> dict[str, str] | None:
    if first is None or second is None:
        return None
    united: dict[str, str] = {}
    for kind in sorted({*first, *second}):
        names = {
            name
            for part in (first, second)
            if kind in part
            for name in part[kind].split(ROUTE_JOINT)
        }
        united[kind] = ROUTE_JOINT.join(sorted(names))
    return united
