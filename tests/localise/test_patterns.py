"""What places have in common is told where chance does not explain it, and not otherwise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from evalsuite.localise.geometry import Geometry
from evalsuite.localise.onsets import Onset
from evalsuite.localise.patterns import LEVEL, patterns_of

MINI = Geometry(pool=4, block=16, topk=128)


def onset(item: int, token: int, prompt: int | None, **more: int) -> Onset:
    return Onset(0, item, token, True, 1.0, prompt, 80, **more)


def random_onsets(seed: int, count: int = 24) -> list[Onset]:
    dice = np.random.default_rng(seed)
    made = []
    for item in range(count):
        token = int(dice.integers(0, 80))
        row = (token - 1) % 4 if token else None
        prompt = int(dice.integers(60, 200))
        made.append(Onset(0, item, token, True, 1.0, prompt, 80, 4, row))
    return made


def whats(onsets: list[Onset], geometry: Geometry = MINI) -> list[str]:
    return [one.what for one in patterns_of(onsets, geometry)]


def test_chance_alone_gives_no_pattern_but_for_its_level() -> None:
    found = sum(bool(whats(random_onsets(seed))) for seed in range(150))
    assert found <= 150 * LEVEL + 3


def test_a_boundary_that_all_share_is_told_with_its_share() -> None:
    onsets = [
        one
        for one in random_onsets(1, 200)
        if one.token and (one.prompt_tokens + one.token) % 4 == 0
    ]
    (found,) = patterns_of(onsets, MINI)
    assert found.what == "at the last token of their pool of 4"
    assert found.count == found.of == len(onsets) and 0.2 < found.expected < 0.3
    assert str(found).startswith("62 of 62 at the last token of") and found.p < LEVEL


def position(one: Onset) -> int:
    return (one.prompt_tokens or 0) + one.token - 1


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (lambda one: position(one) % 16 == 0, "at the first token of their cache block of 16"),
        (lambda one: position(one) >= 190, "behind the top-k of 190"),
        (lambda one: one.row == 2 and one.token > 4, "at row 2 of a later verification step"),
        (lambda one: one.token > 4 and one.row > 0, "at no first row of a verification step"),
        (lambda one: position(one) % 4 < 3, "at no last token of their pool of 4"),
    ],
)
def test_each_pattern_is_seen(kept: Callable[[Onset], bool], told: str) -> None:
    onsets = [one for one in random_onsets(3, 900) if kept(one)][:50]
    assert told in whats(onsets, MINI._replace(topk=190))


def test_answers_that_all_go_wrong_at_once_behind_like_prompts_show_no_boundary() -> None:
    onsets = [onset(item, 1, 100 + 16 * (item % 3)) for item in range(40)]
    assert not any("pool" in one or "block" in one for one in whats(onsets))


def test_onsets_at_the_first_token_tell_of_a_prefill() -> None:
    found = whats([onset(item, 0, 100 + 7 * item) for item in range(12)])
    assert "at the first token, which a prefill gives" in found


def test_where_every_token_lies_behind_the_top_k_it_says_nothing() -> None:
    onsets = [onset(item, 3 + item, 300 + 5 * item) for item in range(30)]
    assert not any("top-k" in one for one in whats(onsets))


def test_few_places_or_unknown_positions_show_no_boundary() -> None:
    assert whats([onset(item, 3, 101) for item in range(3)]) == []
    assert whats([onset(item, 3 + item, None) for item in range(30)]) == []
    assert (
        whats([onset(item, 3 + item % 7, 129) for item in range(9)], Geometry(None, None, None))
        == []
    )
