"""Counters from a page in Prometheus' text format."""

from __future__ import annotations

import re
from typing import NamedTuple

_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    """One line: a value under a name and labels."""

    name: str
    labels: dict[str, str]
    value: float


class Metrics:
    """A page of metrics. Values are summed over what labels tell apart (engines, ranks)."""

    def __init__(self, text: str) -> None:
        self.samples = [
            Sample(found[1], dict(_LABEL.findall(found[2] or "")), float(found[3]))
            for line in text.splitlines()
            if line and not line.startswith("#") and (found := _SAMPLE.match(line))
        ]

    def total(self, name: str) -> float | None:
        """Return the sum of `name`, with or without the `_total` of counters; None for none."""
        found = [s.value for s in self.samples if s.name in (name, f"{name}_total")]
        return sum(found) if found else None

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Return the sums of `name` by the values of `label`."""
        sums: dict[str, float] = {}
        for sample in self.samples:
            if sample.name in (name, f"{name}_total") and label in sample.labels:
                key = sample.labels[label]
                sums[key] = sums.get(key, 0.0) + sample.value
        return sums

    def label(self, name: str, label: str) -> str | None:
        """Return the value of `label` in the first sample of `name`."""
        for sample in self.samples:
            if sample.name == name and label in sample.labels:
                return sample.labels[label]
        return None


def instance(text: str) -> str | None:
    """Return what tells one process from the next that serves at the same address."""
    started = Metrics(text).total("process_start_time_seconds")
    return None if started is None else str(started)


def increase(before: float | None, after: float | None) -> int | None:
    """Return how much a counter grew; None where it is not told."""
    return None if after is None else round(after - (before or 0.0))
