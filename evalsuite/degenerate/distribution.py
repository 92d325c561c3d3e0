"""All answers of an arm at once: a fault that no single answer proves shifts what is usual."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from evalsuite.degenerate.view import AnswerView, Reading

FEATURES = ("repetition", "length", "odd_characters", "prompt_overlap", "identical", "digits")


@dataclass(frozen=True)
class Distribution:
    """Per-answer values of each feature, in the order of the answers.

    repetition: share of three-token runs that occurred before in the answer, 0 to 1;
    length: characters; odd_characters: share that is neither ASCII nor in the prompt;
    prompt_overlap: share of the prompt's words that the answer uses;
    identical: how many other answers are the same text; digits: share of digits.
    """

    values: dict[str, tuple[float, ...]]

    @property
    def count(self) -> int:
        """Number of answers."""
        return len(self.values["length"])

    def mean(self, feature: str) -> float:
        """Mean of a feature; raises ValueError where there are no answers."""
        if not self.count:
            raise ValueError("a distribution of no answers has no mean")
        return fmean(self.values[feature])


@dataclass(frozen=True)
class Shift:
    """One feature in an arm and its twin; `z` is the paired mean difference in standard errors."""

    feature: str
    arm: float
    twin: float
    z: float


def distribution(answers: Iterable[AnswerView | str]) -> Distribution:
    """Measure every answer. Order matters: `compare` pairs by position."""
    views = [AnswerView(a) if isinstance(a, str) else a for a in answers]
    same = Counter(view.text for view in views)
    rows = [_features(view, same[view.text] - 1) for view in views]
    return Distribution({name: tuple(row[i] for row in rows) for i, name in enumerate(FEATURES)})


def _features(view: AnswerView, identical: int) -> tuple[float, ...]:
    reading, text = Reading(view), view.text
    size = max(1, len(text))
    prompt = reading.asked
    odd = 0 if reading.ascii else sum(not c.isascii() and c not in prompt.text for c in text)
    used = len(prompt.words.intersection(reading.lower)) if prompt.words else 0
    return (
        max(0, reading.repeats) / max(1, len(reading.lower) - 2),
        float(len(text)),
        odd / size,
        used / max(1, len(prompt.words)),
        float(identical),
        sum(map(text.count, "0123456789")) / size,
    )


def compare(arm: Distribution, twin: Distribution) -> tuple[Shift, ...]:
    """Compare an arm with its twin (or the baseline's answers), item by item, feature by feature.

    `z` is mean(d) / (sd(d) / sqrt(n)) of the paired differences d, infinite where every answer
    shifted by the same amount. Raises ValueError where the two do not hold as many answers.
    """
    if arm.count != twin.count or not arm.count:
        raise ValueError(f"cannot pair {arm.count} answers with {twin.count}")
    return tuple(
        Shift(name, arm.mean(name), twin.mean(name), _z(arm.values[name], twin.values[name]))
        for name in FEATURES
    )


def _z(mine: Sequence[float], theirs: Sequence[float]) -> float:
    differences = [a - b for a, b in zip(mine, theirs, strict=True)]
    mean = fmean(differences)
    if not mean:
        return 0.0
    variance = sum((d - mean) ** 2 for d in differences) / max(1, len(differences) - 1)
    error = (variance / len(differences)) ** 0.5
    return mean / error if error > 1e-12 * abs(mean) else float("inf") * (1 if mean > 0 else -1)
