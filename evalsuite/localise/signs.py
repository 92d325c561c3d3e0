"""What a failed run shows, in the terms that families of faults differ in."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from scipy import stats as scipy_stats

from evalsuite.checks import Finding
from evalsuite.localise.geometry import geometry_of
from evalsuite.localise.onsets import Onset, onsets_of
from evalsuite.localise.patterns import patterns_of
from evalsuite.localise.told import Pattern, listed
from evalsuite.policy import Policy
from evalsuite.reference import Reference, accepted_arm
from evalsuite.runview import ABSENT, EAGER, EQUAL, RunView

# What says that answers, or the numbers behind them, are wrong.
OF_ANSWERS = frozenset({"equality", "accuracy", "degeneration", "collapse", "truncation"})
# Rules of degeneration by which an answer says the same again.
LOOPS = frozenset(
    {
        *("loop", "inner_loop", "few_words", "near_loop", "drifting_loop", "glued_loop"),
        *("id_loop", "doubled_tokens", "doubled_against_twin", "repeated_marker"),
        "repeated_whole",
    }
)
LOST = 0.2
# Level at which wrong answers are said to go with rejected drafts.
LEVEL = 0.01


class Signs:
    """A failed run beside what it is held against; `failing` are the findings that fail."""

    def __init__(
        self,
        run: RunView,
        reference: Reference | None,
        failing: Sequence[Finding],
        policy: Policy,
    ) -> None:
        self.run, self.reference, self.failing = run, reference, failing
        self.onsets, self.items = onsets_of(run, reference, policy)
        self.geometry = geometry_of(run.run)
        self.graphs = {name for name, arm in run.arms.items() if arm.arm.graph}
        self.drafts = {name for name, arm in run.arms.items() if arm.arm.mtp}

    @cached_property
    def wrong(self) -> set[str]:
        """Arms whose answers, or whose margins, are not what they should be."""
        named = {
            one.arm for one in self.failing if one.status == "fail" and one.check in OF_ANSWERS
        }
        parted = {name for name, found in self.onsets.items() if found and self.run.exact}
        return {name for name in self.run.arms if name in named | parted}

    @property
    def checks(self) -> set[str]:
        """The checks that fail."""
        return {one.check for one in self.failing}

    def says(self, *words: str) -> bool:
        """Whether a failing finding's message holds any of `words`."""
        return any(word in one.message for one in self.failing for word in words)

    def stopped(self) -> bool:
        """Whether nothing is missing but the end of arms that are wrong: these were stopped."""
        found = [one for one in self.failing if one.check == "completeness"]
        return all("planned" in one.figures and self._ends_early(one.arm) for one in found)

    def _ends_early(self, name: str | None) -> bool:
        if name not in self.wrong:
            return False
        there = (self.run.arms[name].outcome != ABSENT).ravel()
        return bool(there[: int(there.sum())].all())

    @cached_property
    def moved(self) -> dict[str, set[str]]:
        """Kernels that rows went to and should not have, with the kinds of those rows."""
        accepted = None
        if self.reference is not None:
            accepted = self.reference.hardware.get(self.run.hardware_class)
        moved: dict[str, set[str]] = {}
        for name, arm in self.run.arms.items():
            known = {} if accepted is None else accepted.routes.get(name, {})
            routes = (arm.evidence.routes if arm.evidence is not None else None) or {}
            for kind, kernel in routes.items():
                if kind in known and known[kind] != kernel:
                    moved.setdefault(kernel, set()).add(kind.partition(":")[0])
        return moved

    def change(self, name: str) -> float | None:
        """How far an arm's acceptance moved, at the position where most; None where not known."""
        evidence = self.run.arms[name].evidence
        known = accepted_arm(self.reference, name)
        if evidence is None or not evidence.drafts or known is None or known.drafts is None:
            return None
        counts = zip(evidence.accepted_per_position or [], known.drafts.accepted, strict=False)
        moves = [a / evidence.drafts - b / known.drafts.drafts for a, b in counts]
        return max(moves, key=abs, default=None)

    @property
    def fall(self) -> float | None:
        """The largest fall of acceptance over the arms, 0 where it fell nowhere; None where no
        arm's is known."""
        changes = [self.change(name) for name in self.drafts]
        return max((max(-one, 0.0) for one in changes if one is not None), default=None)

    def share(self, first: int, last: int) -> float:
        """Share of the answers of the wrong arms that leave eager's at tokens `first` to `last`,
        of the arm where it is largest."""
        shares = [0.0]
        for name in self.wrong & set(self.onsets):
            answers = int((self.run.arms[name].outcome[:, : self.items] != ABSENT).sum())
            held = sum(first <= one.token <= last for one in self.onsets[name])
            shares.append(held / answers if answers else 0.0)
        return max(shares)

    def after_rejections(self) -> bool:
        """Whether only answers go wrong in which the accepted runs had drafts turned down."""
        for name in self.wrong & self.drafts:
            known = accepted_arm(self.reference, name)
            if known is None or known.counts is None:
                continue
            arm = self.run.arms[name]
            wrong = {one.item for one in self.onsets.get(name, ())}
            table = [[0, 0], [0, 0]]
            for item in range(self.items):
                drafted, accepted = (part[:, item] for part in known.counts)
                if drafted.min() >= 0 and arm.outcome[:, item].min() != ABSENT:
                    table[not (drafted > accepted).any()][item not in wrong] += 1
            p = float(scipy_stats.fisher_exact(table, alternative="greater").pvalue)
            if table[1][0] == 0 and p <= LEVEL:
                return True
        return False

    def accepts_all(self) -> bool:
        """Whether a wrong arm accepts every draft on items where accepted runs turned some down."""
        for name in self.wrong & self.drafts:
            arm = self.run.arms[name]
            known = accepted_arm(self.reference, name)
            if known is None or known.counts is None:
                continue
            drafted, accepted = known.counts
            rejecting = (drafted > accepted).all(axis=0)
            every = bool(((arm.drafted > 0) & (arm.drafted == arm.accepted)).all())
            if every and rejecting.any():
                return True
        return False

    def text_only(self) -> bool:
        """Whether texts differ while token ids are eager's."""
        return any(
            ((arm.same_text == 0) & (arm.divergence == EQUAL)).any()
            for name, arm in self.run.arms.items()
            if name != EAGER
        )

    def exchanged(self) -> bool:
        """Whether an arm's wrong answers are right answers to other items."""
        if EAGER not in self.run.arms:
            return False
        eager = set(filter(None, self.run.arms[EAGER].texts[0]))
        for name in self.wrong - {EAGER}:
            arm = self.run.arms[name]
            strange = [t for at, t in enumerate(arm.texts[0]) if arm.same_text[0, at] == 0 and t]
            if strange and sum(text in eager for text in strange) > len(strange) / 2:
                return True
        return False

    def empty(self) -> bool:
        """Whether an arm hands out empty texts where eager has some."""
        return any(
            text == "" and bool(theirs)
            for name, arm in self.run.arms.items()
            if name != EAGER and EAGER in self.run.arms
            for text, theirs in zip(arm.texts[0], self.run.arms[EAGER].texts[0], strict=True)
        )

    def symptoms(self) -> list[str]:
        """What answers and routes show by themselves: repeated tokens, rows at another kernel."""
        found = []
        rules = {seen.rule for arm in self.run.arms.values() for seen in arm.seen if seen.high}
        if rules & LOOPS:
            found.append("repeated tokens")
        elif rules:
            found.append(f"degenerate answers ({', '.join(sorted(rules))})")
        lost = [name for name in self.run.arms if self._lost(name)]
        if lost:
            found.append(f"hardly an answer of {listed(lost)} right")
        for kernel, kinds in self.moved.items():
            found.append(f"{listed(sorted(kinds))} rows routed to {kernel}")
        return found

    def _lost(self, name: str) -> bool:
        """Whether an arm is right on less than a fifth of what it should be right on."""
        known = accepted_arm(self.reference, name)
        if known is None:
            return False
        return float(self.run.arms[name].correct.mean()) < LOST * float(known.correct.mean())

    @cached_property
    def patterns(self) -> list[Pattern]:
        """What first places have in common beyond chance."""
        return patterns_of(self.first_places(), self.geometry)

    def places_are(self, words: str) -> str | None:
        """The first pattern that is told in these words."""
        return next((str(one) for one in self.patterns if words in one.what), None)

    def first_places(self) -> list[Onset]:
        """The earliest onset of each item over the wrong arms and repeats: these are independent
        of each other."""
        earliest: dict[int, Onset] = {}
        for name in self.wrong & set(self.onsets):
            for one in self.onsets[name]:
                if one.item not in earliest or one.token < earliest[one.item].token:
                    earliest[one.item] = one
        return [earliest[item] for item in sorted(earliest)]
