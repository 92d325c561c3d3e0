"""Faults of any size, and the sizes that the sensitivity curve is measured at."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import sensitivity
from tiny import prompt, request, tiny_session

from evalsuite.engines.base import Answer
from evalsuite.engines.mini import MiniSession
from evalsuite.faults.graded import GRADES, noise, other_numbers, requests, rows

COUNT = 200


def answer(number: int) -> Answer:
    return Answer(
        request_id=str(number),
        text=f"He has 3 boxes.\n#### {number} apples",
        token_ids=(1, 2, 3, 4),
        margins=(1.0, 1.0, 1.0, 1.0),
        finish_reason="stop",
        prompt_tokens=9,
        output_tokens=4,
        started=0.0,
        ended=1.0,
        ttft_s=None,
        drafted=3,
        accepted=3,
        error=None,
    )


def handed_out(monkeypatch: pytest.MonkeyPatch, share: float, seed: int, mtp: int) -> list[Answer]:
    def generate(self: Any, asked: Any, on_answer: Any) -> None:
        for number in range(COUNT):
            on_answer(answer(number))

    monkeypatch.setattr(MiniSession, "generate", generate)
    found: list[Answer] = []
    asked = [SimpleNamespace(request_id=str(number)) for number in range(COUNT)]
    with requests(share, seed).active():
        MiniSession.generate(SimpleNamespace(arm=SimpleNamespace(mtp=mtp)), asked, found.append)  # type: ignore[arg-type]
    return found


def test_a_share_of_requests_ends_on_another_number(monkeypatch: pytest.MonkeyPatch) -> None:
    found = handed_out(monkeypatch, 0.25, 1, mtp=3)
    hit = [one for one in found if one != answer(int(one.request_id))]
    assert 30 < len(hit) < 70
    for one in hit:
        assert one.text == f"He has 3 boxes.\n#### {int(one.request_id) + 1} apples"
        assert one.token_ids == (1, 2, 4, 3)
    assert found == handed_out(monkeypatch, 0.25, 1, mtp=3)
    assert found != handed_out(monkeypatch, 0.25, 2, mtp=3)
    assert handed_out(monkeypatch, 1.0, 1, mtp=0) == [answer(n) for n in range(COUNT)]


def test_a_healthy_answer_is_changed_on_its_way() -> None:
    class Healthy:
        def generate(self, asked: Any, on_answer: Any) -> None:
            for number in range(3):
                on_answer(answer(number))

    found: list[Answer] = []
    changed = sensitivity.Changed(Healthy(), other_numbers(1.0, 0))  # type: ignore[arg-type]
    changed.generate([], found.append)
    assert [one.text for one in found] == [answer(n + 1).text for n in range(3)]


def margins(k: int) -> list[float]:
    torch.manual_seed(0)
    made = [request(str(n), prompt(20 + n, seed=n), 12) for n in range(3)]
    return [m for one in tiny_session(k=k).generate(made) for m in one.margins]


@pytest.mark.parametrize("grade", [noise, rows])
def test_attention_is_hit_in_steps_that_verify_and_in_no_other(grade: Any) -> None:
    plain, drafting = margins(0), margins(3)
    with grade(0.5, 0).active():
        assert margins(0) == plain and margins(3) != drafting
    with grade(0.0, 0).active():
        assert margins(3) == drafting


def test_sizes_close_in_on_where_half_of_the_trials_are_red() -> None:
    def at(size: float) -> dict[str, Any]:
        return {"size": size, "red": 8 if size > 3e-3 else 0, "of": 8}

    found = sensitivity.halved(GRADES[2], at, 6)
    below = max(row["size"] for row in found if not row["red"])
    above = min(row["size"] for row in found if row["red"])
    assert len(found) == 8 and below < 3e-3 < above and above / below < 1.3
    sizes = [row["size"] for row in found]
    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize("red", [0, 8])
def test_where_no_size_or_every_size_is_seen_it_ends_all_the_same(red: int) -> None:
    found = sensitivity.halved(GRADES[0], lambda size: {"size": size, "red": red, "of": 8}, 3)
    assert len({row["size"] for row in found}) == 5


def test_the_figure_and_the_page_have_every_kind(tmp_path: Path) -> None:
    made = [
        {
            "grade": grade.name,
            "unit": grade.unit,
            "size": size,
            "red": red,
            "of": 8,
            "first": {"equality": red} if red else {},
        }
        for grade in GRADES
        for size, red in ((grade.least, 0), (grade.most, 8))
    ]
    sensitivity.draw(made, 16, tmp_path / "s.svg")
    machine = {
        "hardware": {"name": "m", "device": "cpu"},
        "dtype": "float32",
        "software": {"torch": "2"},
        "date": "2026-09-01",
    }
    result = {"machine": machine, "items": 16, "seconds": 600.0, "rows": made}
    page = sensitivity.page(json.loads(json.dumps(result)), "s")
    assert "![share of trials that are red" in page and page.count("| 8 of 8 | equality 8 |") == 3
    assert (tmp_path / "s.svg").read_text().count("<svg") == 1
