"""What the places have in common at which answers leave eager's, and whether by chance.

By chance every token of an answer is as likely a place as any other; or, for positions, the places
fall on other answers' prompts: where all answers go wrong at once, prompts of like lengths are no
pattern. Of the two the likelier counts. A share that differs from item to item is taken at its
mean: the binomial tail is then an upper bound (Hoeffding 1956, On the distribution of the number of
successes in independent trials).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats as scipy_stats

from evalsuite.localise.geometry import Geometry
from evalsuite.localise.onsets import Onset
from evalsuite.localise.told import Pattern
from evalsuite.runview import Bools, Ints

LEVEL = 0.01
# Fewer items show no pattern.
LEAST = 4

# Given token numbers of an answer, and its onset: at which of them something holds.
Holds = Callable[[Ints, Onset], Bools]


def _any(tokens: Ints, one: Onset) -> Bools:
    return np.ones(len(tokens), bool)


class _Sought(NamedTuple):
    """A pattern looked for, `among` some tokens. `positional`: it lies in a place of the request,
    and not in one of the answer."""

    what: str
    holds: Holds
    among: Holds = _any
    positional: bool = False


def patterns_of(onsets: Sequence[Onset], geometry: Geometry) -> list[Pattern]:
    """The patterns of `onsets`, one for each item, that are more than chance."""
    if len(onsets) < LEAST:
        return []
    groups = list(_sought(onsets, geometry))
    tests = sum(len(group) for group in groups)
    found = []
    for group in groups:
        best = min((_tested(one, onsets, tests) for one in group), key=lambda one: one.p)
        if best.p <= LEVEL:
            found.append(best)
    return found


def _tested(sought: _Sought, onsets: Sequence[Onset], tests: int) -> Pattern:
    counted = [one for one in onsets if _at(sought.among, one)]
    count = sum(_at(sought.holds, one) for one in counted)
    chances = [_chance(sought, one, np.arange(one.tokens, dtype=np.int32)) for one in counted]
    expected = float(np.mean(chances)) if chances else 1.0
    if sought.positional and counted:
        fallen = np.array([one.token for one in counted], np.int32)
        expected = max(expected, float(np.mean([_chance(sought, o, fallen) for o in counted])))
    # Where every token has it, having it says nothing.
    p = float(scipy_stats.binom.sf(count - 1, len(counted), expected)) if expected < 1.0 else 1.0
    return Pattern(
        what=sought.what, count=count, of=len(counted), expected=expected, p=min(1.0, p * tests)
    )


def _at(holds: Holds, one: Onset) -> bool:
    return bool(holds(np.array([one.token], np.int32), one)[0])


def _chance(sought: _Sought, one: Onset, tokens: Ints) -> float:
    """The share of these tokens of an answer that have it, of those it is looked for among."""
    among = sought.among(tokens, one)
    return float(sought.holds(tokens, one)[among].mean()) if among.any() else 1.0


def _sought(onsets: Sequence[Onset], geometry: Geometry) -> Iterator[list[_Sought]]:
    yield [_Sought("at the first token, which a prefill gives", lambda tokens, one: tokens == 0)]
    yield [_later_row(), *(_row(at) for at in range(max(one.width for one in onsets)))]
    if any(one.prompt_tokens is None for one in onsets):
        return
    pool, block, topk = geometry
    if pool is not None:
        yield [*(_in_pool(pool, at) for at in range(pool)), _no_last(pool)]
    if block is not None:
        yield [_in_block(block, at, pool or 1) for at in (0, block - 1)]
    if topk is not None:
        yield [_behind(topk)]


def _later_row() -> _Sought:
    """All rows may be wrong where the first is; where it never is, the later ones are."""
    return _Sought(
        "at no first row of a verification step",
        lambda tokens, one: (tokens - 1) % one.width > 0,
        lambda tokens, one: (tokens > 0) & (one.row is not None),
    )


def _row(at: int) -> _Sought:
    """Of the first step the first wrong row is the onset, whichever is wrong: it does not count."""
    return _Sought(
        f"at row {at} of a later verification step",
        lambda tokens, one: (tokens - 1) % one.width == at,
        lambda tokens, one: (tokens > one.width) & (one.row is not None),
    )


def _in_pool(size: int, at: int) -> _Sought:
    what = f"{_told(size, at)} of their pool of {size}"
    return _Sought(what, lambda tokens, one: _positions(tokens, one) % size == at, positional=True)


def _no_last(size: int) -> _Sought:
    """The last token completes a pool: its row alone has none that is incomplete."""
    return _Sought(
        f"at no last token of their pool of {size}",
        lambda tokens, one: _positions(tokens, one) % size != size - 1,
        positional=True,
    )


def _in_block(size: int, at: int, pool: int) -> _Sought:
    """Where a block ends a pool ends too: only such tokens are compared."""
    return _Sought(
        f"{_told(size, at)} of their cache block of {size}",
        lambda tokens, one: _positions(tokens, one) % size == at,
        lambda tokens, one: _positions(tokens, one) % pool == at % pool,
        positional=True,
    )


def _behind(topk: int) -> _Sought:
    return _Sought(
        f"behind the top-k of {topk}",
        lambda tokens, one: _positions(tokens, one) >= topk,
        positional=True,
    )


def _told(size: int, at: int) -> str:
    ends = {0: "at the first token", size - 1: "at the last token"}
    return ends.get(at, f"at token {at}")


def _positions(tokens: Ints, one: Onset) -> Ints:
    """Positions of the rows that compute these tokens."""
    return tokens + (one.prompt_tokens or 0) - 1
