"""From the signs of a failed run to the likeliest family of faults, and why.

The rules go from what leaves no doubt to what is only likely. Each names the families that the same
signs fit next: arms, widths and drafts alone do not tell an alignment of rows from their dispatch.
"""

from __future__ import annotations

from typing import NamedTuple

from evalsuite.localise.signs import Signs
from evalsuite.localise.told import listed
from evalsuite.runview import EAGER

SEVERAL, MOST = 0.05, 0.5
# No answer has so many tokens.
LAST = 1 << 30


class Guess(NamedTuple):
    """A family, why it is named, and what the signs fit next."""

    family: str
    reason: str
    otherwise: str = ""


def guess(signs: Signs) -> Guess:
    """Name the likeliest family."""
    for rule in (_by_files, _by_configuration, _by_text, _by_drafts, _by_arms, _by_eager):
        found = rule(signs)
        if found is not None:
            return found
    return _by_rows(signs)


def _by_files(signs: Signs) -> Guess | None:
    if "completeness" not in signs.checks:
        return None
    if signs.says("not finite", "no answer was obtained"):
        broken = {name for name, arm in signs.run.arms.items() if arm.are("error").any()}
        if broken == set(signs.run.arms):
            return Guess("G", "no arm's logits are numbers")
        return Guess("S", f"scores of {', '.join(sorted(broken))} are not numbers", "G")
    if signs.stopped():
        return None
    return Guess("S", "records are missing, foreign or copied")


def _by_configuration(signs: Signs) -> Guess | None:
    if signs.moved:
        return Guess("A", "rows went to another kernel than the baseline's")
    # Rows of a kind that the baseline never met come of answers that end elsewhere.
    if "route" in signs.checks and (not signs.wrong or not signs.says("baseline names no")):
        return Guess("S", "the configuration that ran is not the one asked for")
    return None


def _by_text(signs: Signs) -> Guess | None:
    if signs.text_only():
        return Guess("H", "texts differ while token ids agree", "S")
    if signs.exchanged():
        return Guess("S", "answers are right answers to other items")
    if signs.empty():
        return Guess("S", "answers are empty", "H")
    if "truncation" in signs.checks and not any(signs.onsets.values()):
        return Guess("S", "answers end early and are right until then")
    return None


def _by_drafts(signs: Signs) -> Guess | None:
    if signs.wrong:
        if signs.accepts_all():
            told = "every draft is accepted, also where the accepted runs turned some down"
            return Guess("S", f"{told}, and answers are wrong", "D")
        return None
    if "acceptance" not in signs.checks:
        return None
    eager = signs.drafts - signs.graphs
    if signs.graphs & signs.drafts and eager and not any(signs.says(f"{n} ") for n in eager):
        return Guess("F", "answers are right, and acceptance changed only under replay", "E")
    told = "answers are right to the last margin, and acceptance changed"
    # No arm drafts without replay that would tell the two apart.
    return Guess("E", told, "" if eager else "F")


def _by_arms(signs: Signs) -> Guess | None:
    wrong = signs.wrong
    if EAGER in wrong or not wrong or not wrong <= signs.graphs:
        return None
    told = f"only {listed(sorted(wrong))}, which replay graphs, are wrong"
    if "graph" in wrong:
        return Guess("F", told, "B")
    # Where replay without drafts is right, a graph made for other rows fits too.
    return Guess("F", told, "A") if signs.drafts - signs.graphs else None


def _by_eager(signs: Signs) -> Guess | None:
    if EAGER not in signs.wrong:
        return None
    others = signs.wrong - {EAGER}
    if others and any(signs.onsets.get(name) for name in others):
        return Guess("C", f"eager is wrong, and {listed(sorted(others))} otherwise than eager", "G")
    told = "every arm is wrong alike, eager too: what is computed, not where it lies"
    return Guess("G", told, "C")


def _by_rows(signs: Signs) -> Guess:
    if not signs.wrong:
        return Guess("S", "what fails tells of no answer, draft or step")
    told = _widths(signs)
    before = signs.share(0, 0)
    if before > MOST * signs.share(0, LAST):
        return Guess("D", f"{told}; {before:.0%} of the answers part before they begin", "C")
    if signs.after_rejections():
        return Guess("D", f"{told}, where drafts are turned down and nowhere else", "C")
    steps = max(signs.run.arms[name].arm.mtp for name in signs.wrong) + 1
    if signs.share(1, steps) <= MOST:
        return Guess("D", f"{told}, and only later in an answer{_fallen(signs)}", "C")
    return _by_steps(signs, f"{told} from the first steps on")


def _by_steps(signs: Signs, told: str) -> Guess:
    """Nearly every verification is wrong: which of its rows, and by how much."""
    pool = signs.places_are(" of their pool ")
    if pool is not None:
        return Guess("C", f"{told}, {pool}", "B")
    later = signs.places_are("at no first row ")
    if later is not None:
        return Guess("A", f"{told}, {later}: as if made for one row a request", "B")
    row = signs.places_are(" of a later verification step")
    if row is not None:
        return Guess("B", f"{told}, {row}", "A")
    told = f"{told}{_fallen(signs)}"
    held = signs.fall is not None and signs.fall <= SEVERAL
    return Guess("B", told, "A") if held else Guess("A", told, "B")


def _fallen(signs: Signs) -> str:
    return "" if signs.fall is None else f"; acceptance fell by {signs.fall:.0%}"


def _widths(signs: Signs) -> str:
    """Which widths are wrong and which right, with or without replay."""
    arms = signs.run.arms
    wrong = {arms[name].arm.mtp + 1 for name in signs.wrong if name != EAGER}
    right = {arms[name].arm.mtp + 1 for name in signs.drafts - signs.wrong} - wrong
    several = "widths" if len(wrong) > 1 else "width"
    listed = ", ".join(map(str, sorted(wrong)))
    told = f"only {several} {listed} {'are' if len(wrong) > 1 else 'is'} wrong"
    if right:
        told += f" ({', '.join(map(str, sorted(right)))} right)"
    if signs.wrong & signs.graphs and (signs.wrong - signs.graphs) - {EAGER}:
        told += ", with and without graphs"
    return told
