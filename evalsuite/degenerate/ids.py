"""Token ids: floods of one id, loops that decoding hides, ids that no vocabulary has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import eq

from evalsuite.degenerate.loops import longest_run
from evalsuite.degenerate.view import Finding, Reading

# What a sampler returns for a row of NaN logits, in most engines.
NAN_ID = 0
FLOOD = 6
MAX_PERIOD = 32


def token_ids(reading: Reading) -> Iterator[Finding]:
    """Find what the ids show; silent where none are known."""
    ids = reading.token_ids
    if not ids:
        return
    if min(ids) < 0 or max(ids) >= 1 << 31:
        yield reading.found("invalid_id", "high", 0)
        return
    zeros = ids.count(NAN_ID) if isinstance(ids, (list, tuple)) else list(ids).count(NAN_ID)
    if zeros:
        yield from _zeros(reading, ids, zeros)
    if len(ids) >= 8 and len(set(ids)) * 2 < len(ids):
        yield from _cycle(reading, ids)
    if not reading.text and len(ids) > 2:
        yield reading.found("ids_without_text", "high", 0)


def _zeros(reading: Reading, ids: Sequence[int], zeros: int) -> Iterator[Finding]:
    _, run = longest_run(bytes(1 if token == NAN_ID else 0 for token in ids))
    at = list(ids).index(NAN_ID)
    start = len(reading.text) * at // len(ids)
    if run >= FLOOD or (run >= 3 and run * 2 > len(ids)):
        yield reading.found("nan_token", "high", start)
    elif run >= 2 or (zeros == 1 and at >= len(ids) - 2 and at > 0):
        yield reading.found("nan_token", "low", start)


def _cycle(reading: Reading, ids: Sequence[int]) -> Iterator[Finding]:
    """Find a cycle of ids that runs to the end of an answer the budget cut."""
    tail = list(ids[-600:])
    for period in range(1, min(MAX_PERIOD, len(tail) // 4) + 1):
        flags = bytes(map(eq, tail, tail[period:]))
        run = len(flags) - len(flags.rstrip(b"\1"))
        count = run / period + 1
        if run < 12 or count < 6:
            continue
        sure = reading.finish == "length" and (count >= 12 or period >= 4) and count >= 8
        if reading.finish != "stop" or count >= 24:
            start = len(reading.text) * (len(ids) - run - period) // len(ids)
            yield reading.found("id_loop", "high" if sure and count >= 24 else "low", max(0, start))
        return
