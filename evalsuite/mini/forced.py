"""Forced acceptance: patterns for `Session.acceptance` that drive every path of rollback.

A pattern decides, per request and step, how many drafts count as accepted. What is accepted by
force is emitted as if the model had chosen it, so the text means nothing; states, caches and
later tokens must still be those of the emitted history. A step that verifies fewer drafts than
the pattern names accepts all that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from evalsuite.errors import UsageError
from evalsuite.mini import sequence
from evalsuite.mini.runner import Bounds

Acceptance = Callable[[sequence.Sequence], Bounds]


def natural(k: int) -> Acceptance:
    """No force: the longest prefix of k drafts that agrees with greedy decoding."""
    return lambda request: Bounds(0, k)


def accept_all(k: int) -> Acceptance:
    """All k drafts, every step."""
    return accept_counts([k])


def accept_none() -> Acceptance:
    """No draft, ever: every step rejects at the first position."""
    return accept_counts([0])


def alternate(k: int) -> Acceptance:
    """All k drafts and none by turns, counted per request."""
    return accept_counts([k, 0])


def accept_counts(counts: Sequence[int]) -> Acceptance:
    """Exactly counts[i] drafts in a request's i-th decode step, from the start again at the end.

    Raises UsageError for an empty list and for a negative count.
    """
    if not counts or min(counts) < 0:
        raise UsageError(f"{list(counts)}: expected counts of 0 or more", field="counts")
    fixed = tuple(counts)

    def bounds(request: sequence.Sequence) -> Bounds:
        count = fixed[request.steps % len(fixed)]
        return Bounds(count, count)

    return bounds


def accept_positions(held: Sequence[bool]) -> Acceptance:
    """The drafts before the first position that is not held; held[i] speaks of draft i."""
    rejected = [position for position, accepted in enumerate(held) if not accepted]
    return accept_counts([rejected[0] if rejected else len(held)])


def per_request(patterns: Mapping[str, Acceptance], otherwise: Acceptance) -> Acceptance:
    """A pattern of its own for some requests, by their ids."""
    return lambda request: patterns.get(request.request.request_id, otherwise)(request)
