"""Arms by name."""

import pytest

from evalsuite.arms import MAX_DRAFTS, STANDARD_ARMS, Arm, parse_arm, parse_arms, reference_arms
from evalsuite.errors import UsageError


def test_the_seven_standard_arms_are_parsed_from_their_names() -> None:
    assert [arm.name for arm in STANDARD_ARMS] == [
        "eager", "graph", "mtp1", "mtp2", "mtp3", "mtp4", "mtp5",
    ]  # fmt: skip
    assert parse_arms([arm.name for arm in STANDARD_ARMS]) == STANDARD_ARMS


def test_mixed_names_turn_graph_and_drafts_on_separately() -> None:
    assert parse_arm("eager-mtp1") == Arm("eager-mtp1", False, 1)
    assert parse_arm("graph-mtp5") == Arm("graph-mtp5", True, 5)


@pytest.mark.parametrize("name", ["", "mtp", "mtp0", "mtp6", "mtp-1", "eager-mtp0", "Eager", "x"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        parse_arm(name)


@pytest.mark.parametrize("names", [[], ["eager", "eager"]])
def test_no_arm_or_one_named_twice_is_refused(names: list[str]) -> None:
    with pytest.raises(UsageError, match="arms"):
        parse_arms(names)


@pytest.mark.parametrize("drafts", [-1, MAX_DRAFTS + 1])
def test_an_arm_cannot_be_built_with_drafts_out_of_range(drafts: int) -> None:
    with pytest.raises(ValueError, match="drafts"):
        Arm("odd", True, drafts)


def test_an_arm_is_read_beside_the_arms_it_is_compared_with() -> None:
    assert [arm.name for arm in reference_arms(parse_arm("mtp3"))] == ["eager", "graph", "mtp3"]
    assert [arm.name for arm in reference_arms(parse_arm("graph"))] == ["eager", "graph"]
    assert [arm.name for arm in reference_arms(parse_arm("eager"))] == ["eager"]
