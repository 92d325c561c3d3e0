"""Detectors of corrupted output.

`find` looks at one answer. High-confidence rules are near-certain on their own: one such finding
makes the outcome `degenerate`. Low-confidence rules are counted, and matter only as an excess over
the eager twin and the baseline. `distribution` and `compare` look at all answers of an arm at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from evalsuite.degenerate.characters import characters, special_tokens
from evalsuite.degenerate.distribution import Distribution, Shift, compare, distribution
from evalsuite.degenerate.emptiness import emptiness, rambling
from evalsuite.degenerate.ids import token_ids
from evalsuite.degenerate.language import language
from evalsuite.degenerate.loops import loops
from evalsuite.degenerate.prompting import prompting
from evalsuite.degenerate.speculation import cumulative, doubled, seams
from evalsuite.degenerate.twin import twin
from evalsuite.degenerate.view import AnswerView, Finding, Reading

__all__ = [
    "RULES_VERSION",
    "AnswerView",
    "Distribution",
    "Finding",
    "Shift",
    "compare",
    "distribution",
    "find",
    "strongest",
]

# Change it whenever an answer could be judged otherwise.
RULES_VERSION = "1"

_BY_TEXT = (
    emptiness,
    characters,
    special_tokens,
    loops,
    cumulative,
    doubled,
    seams,
    language,
    prompting,
    rambling,
)
# Arms mostly give the same text to an item; long texts are not worth their memory.
_REMEMBERED = 1 << 17
_LONGEST_REMEMBERED = 4000


def find(answer: AnswerView) -> list[Finding]:
    """Return what the rules see in `answer`, in no particular order; empty for a healthy one."""
    if len(answer.text) <= _LONGEST_REMEMBERED:
        findings = list(_remembered(answer.text, answer.finish_reason, answer.prompt))
    else:
        findings = _by_text(answer.text, answer.finish_reason, answer.prompt)
    if answer.token_ids is not None or answer.reference is not None:
        reading = Reading(answer)
        findings = [*findings, *token_ids(reading), *twin(reading)]
        if not answer.text and answer.token_ids is not None:
            findings = [*emptiness(reading), *(f for f in findings if f.rule != "empty")]
    return findings


def _by_text(text: str, finish_reason: str | None, prompt: str | None) -> list[Finding]:
    reading = Reading(AnswerView(text, finish_reason=finish_reason, prompt=prompt))
    return [finding for rule in _BY_TEXT for finding in rule(reading)]


@lru_cache(maxsize=_REMEMBERED)
def _remembered(text: str, finish_reason: str | None, prompt: str | None) -> tuple[Finding, ...]:
    return tuple(_by_text(text, finish_reason, prompt))


def strongest(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding to show: high before low, then the one that starts first."""
    return min(findings, key=lambda f: (f.confidence != "high", f.start), default=None)
