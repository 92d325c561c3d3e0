"""Comparison of results: it has to see what is wrong, and say where."""

from __future__ import annotations

import re

import pytest
import torch

from sparse_mla.compare import Tolerance, cosine_difference, difference

TOLERANCE = Tolerance(1e-3, 1e-2, 1e-6)
NAN, INF = float("nan"), float("inf")


def test_equal_tensors_pass() -> None:
    values = torch.tensor([0.0, 1.0, -INF, NAN])
    assert difference(values, values, TOLERANCE) is None
    assert difference(torch.zeros(3), torch.zeros(3), TOLERANCE) is None


@pytest.mark.parametrize(
    ("found", "wanted", "message"),
    [
        ([0.0, NAN], [0.0, 1.0], r"NaN at other places \(1\), first \(1,\)"),
        ([0.0, 1.0], [0.0, -INF], r"-inf at other places"),
        ([INF, 1.0], [-INF, 1.0], r"\+inf at other places"),
        ([1.0, 1.5, 1.2], [1.0, 1.0, 1.0], r"2 of 3 elements, worst at \(1,\): 1.5, expected 1"),
        ([1.0], [[1.0]], "shape"),
    ],
)
def test_the_worst_is_named(found: list[float], wanted: list[float], message: str) -> None:
    wrong = difference(torch.tensor(found), torch.tensor(wanted), TOLERANCE)
    assert wrong is not None
    assert re.search(message, wrong), wrong


def test_many_small_errors_show_in_the_cosine() -> None:
    wanted = torch.ones(1000)
    found = wanted + 0.005 * torch.tensor([1.0, -1.0]).repeat(500)
    assert "cosine" in str(difference(found, wanted, TOLERANCE))
    assert cosine_difference(found, wanted) == pytest.approx(1.25e-5, rel=1e-2)


def test_nan_is_no_agreement() -> None:
    assert difference(torch.full((4,), NAN), torch.ones(4), TOLERANCE) is not None
