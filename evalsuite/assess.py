"""What an answer is worth, in one place for the runner and the judge."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, cast

from evalsuite.degenerate import RULES_VERSION, AnswerView, Finding, find, strongest
from evalsuite.records import Confidence, Outcome
from evalsuite.scoring import EXTRACTOR_VERSION, read_gold, score

# Part of every protocol: it changes whenever one text could get another outcome.
ASSESSMENT_VERSION = f"{EXTRACTOR_VERSION}.{RULES_VERSION}"


class Assessment(NamedTuple):
    """The outcome of one answer, the value read, and the strongest rule that saw something."""

    outcome: Outcome
    answer: str | None
    rule: str | None
    confidence: Confidence | None


def assess(
    text: str | None,
    *,
    gold: str | None,
    token_ids: Sequence[int] | None,
    finish_reason: str | None,
    question: str,
    error: str | None,
) -> Assessment:
    """Assess one answer by itself: the same result whatever other arms said and in which order."""
    finding = _finding(text, gold, token_ids, finish_reason, question)
    high = finding is not None and finding.confidence == "high"
    scored = score(
        text,
        gold=None if gold is None else _gold(gold),
        finish_reason=finish_reason,
        degenerate=high,
        error=error,
    )
    return Assessment(
        outcome=cast(Outcome, scored.outcome),
        answer=scored.answer,
        rule=None if finding is None else finding.rule,
        confidence=None if finding is None else finding.confidence,
    )


def _finding(
    text: str | None,
    gold: str | None,
    token_ids: Sequence[int] | None,
    finish_reason: str | None,
    question: str,
) -> Finding | None:
    if text is None:
        return None
    ids = None if token_ids is None else tuple(token_ids)
    view = AnswerView(
        text=text,
        token_ids=ids,
        finish_reason=finish_reason,
        prompt=question,
        reference=None,
        gold=gold,
    )
    return strongest(find(view))


@lru_cache(maxsize=4096)
def _gold(gold: str) -> Fraction:
    return read_gold(gold)
