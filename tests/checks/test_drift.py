"""Numbers that move although the answers stay: margins, and the counts of drafts by item."""

from __future__ import annotations

import gzip
import itertools
import json
import shutil
from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_factory import Factory, arms, change_records

from evalsuite.baseline import accept_baseline
from evalsuite.compare import compare_runs
from evalsuite.divergence import Drift
from evalsuite.judge import judge


def failing(verdict):
    return {name for name, status in verdict.checks.items() if status in ("fail", "missing")}


def reasons(verdict, check):
    return [f for f in verdict.findings if f.check == check and f.status in ("fail", "missing")]


def shift(bench, arm, by, *, of=1, token=2, every=1):
    """Move the margins from `token` on by `by` in the first `of` of each `every` records."""
    count = itertools.count()

    def moved(row):
        margins = [m + by * (at >= token) for at, m in enumerate(row["margins"])]
        return {**row, "margins": margins} if next(count) % every < of else row

    change_records(bench.run, arm, moved)


def redraft(bench, arm, by, *, every):
    """Accept `by` drafts more in each `every`-th answer."""
    count = itertools.count()
    change_records(
        bench.run,
        arm,
        lambda row: {**row, "accepted": row["accepted"] + by * (next(count) % every == 0)},
    )


def without(bench, tmp_path, *fields):
    """The bench's baseline as an earlier version wrote it: its cells end early."""
    folder = tmp_path / "old"
    shutil.copytree(bench.baseline.rsplit("/", 1)[0], folder)
    path = folder / f"{bench.factory.dtype}.answers.jsonl.gz"
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    for line in lines:
        line["arms"] = {arm: [cell[:4] for cell in cells] for arm, cells in line["arms"].items()}
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    return str(folder / f"{bench.factory.dtype}.json")


def test_margins_of_one_arm_leave_eagers(bench):
    shift(bench, "mtp2", 0.25, every=1000)
    verdict = judge(bench.run, bench.baseline)
    assert failing(verdict) == {"equality"}
    (finding,) = reasons(verdict, "equality")
    assert finding.arm == "mtp2"
    assert "margins of 1 of 120 answers of mtp2 leave eager's" in finding.message
    assert "at token 2 by 0.25" in finding.message
    assert finding.examples == [finding.figures["item"]]


def test_rounding_of_margins_is_no_drift(bench):
    for number, arm in enumerate(bench.factory.arms):
        shift(bench, arm.name, 1e-5 * number, token=0)
    assert judge(bench.run, bench.baseline).verdict == "pass"


def test_a_drift_common_to_all_arms_shows_against_the_baseline(bench):
    for arm in bench.factory.arms:
        shift(bench, arm.name, 0.25)
    verdict = judge(bench.run, bench.baseline)
    assert failing(verdict) == {"equality"}
    (finding,) = reasons(verdict, "equality")
    assert finding.arm == "eager"
    assert "120 of 120 answers of eager are not the accepted ones up to rounding" in finding.message
    assert judge(bench.run, "none").verdict == "pass"


def test_another_text_than_any_accepted_one(bench):
    for arm in bench.factory.arms:
        change_records(bench.run, arm.name, lambda row: {**row, "text": row["text"] + " Yes."})
    (finding,) = reasons(judge(bench.run, bench.baseline), "equality")
    assert "120 have another text" in finding.message


def test_a_single_arm_is_held_against_the_baseline(tmp_path):
    factory = Factory.of(48, arms=arms("mtp1"))
    accept_baseline(factory.make(tmp_path / "a", 1), "first", root=tmp_path / "b")
    run = factory.make(tmp_path / "run", 2)
    baseline = str(tmp_path / "b" / "made" / "float32.json")
    assert judge(run, baseline).verdict == "pass"
    change_records(run, "mtp1", lambda row: {**row, "margins": [9.0] * 4})
    assert [f.arm for f in reasons(judge(run, baseline), "equality")] == ["mtp1"]


def test_a_baseline_without_margins_and_counts_says_so(bench, tmp_path):
    old = without(bench, tmp_path)
    for arm in bench.factory.arms:
        shift(bench, arm.name, 0.25)
    redraft(bench, "mtp3", -1, every=2)
    verdict = judge(bench.run, old)
    assert verdict.verdict == "pass"
    told = {f.check: f.message for f in verdict.findings}
    assert "the baseline has no margins" in told["equality"]
    assert "the baseline has no counts by item" in told["acceptance"]


def test_numbers_of_other_weights_are_not_compared(bench, tmp_path):
    """Two types, or two checkpoints, answer alike with other numbers."""
    other = Factory.of(120, dtype="bfloat16").make(tmp_path / "other", 3)
    for arm in bench.factory.arms:
        shift(bench, arm.name, 0.25)
    assert not reasons(compare_runs(other, bench.run).verdict, "equality")


def test_margins_lost_from_a_whole_arm(bench):
    for arm in bench.factory.arms:
        change_records(bench.run, arm.name, lambda row: {**row, "margins": None})
    (finding,) = reasons(judge(bench.run, bench.baseline), "equality")
    assert (finding.status, finding.evidence) == ("missing", "margins")


@pytest.mark.parametrize(("every", "red"), [(5, False), (3, True)])
def test_more_drift_from_eager_than_in_the_baseline(noisy, every, red):
    """Margins jump where rounding chooses other keys: some answers of 300 are no fault."""
    shift(noisy, "mtp3", 0.15, every=every)
    found = reasons(judge(noisy.run, noisy.baseline), "equality")
    assert [f.arm for f in found] == ["mtp3"] * red
    assert all("more than 0.1 from eager's" in f.message for f in found)
    assert not reasons(judge(noisy.run, "none"), "equality")


@pytest.mark.parametrize(("every", "red"), [(50, False), (5, True)])
def test_mean_margins_beside_the_accepted_in_bfloat16(noisy, every, red):
    for arm in noisy.factory.arms:
        shift(noisy, arm.name, 0.4, every=every)
    found = reasons(judge(noisy.run, noisy.baseline), "equality")
    assert [f.arm for f in found] == ["eager"] * red
    assert all("from the accepted ones" in f.message for f in found)


def test_accepted_runs_that_move_themselves_allow_for_it(tmp_path):
    """An engine whose mean margins wander from run to run is not held to repeat itself."""
    factory = Factory.of(150, arms=arms("eager", "graph"), dtype="bfloat16", device="cuda")
    dice = np.random.default_rng(4)

    def wandering(name, seed):
        folder = factory.make(tmp_path / name, seed)
        for arm in factory.arms:
            change_records(
                folder,
                arm.name,
                lambda row: {**row, "margins": [m + dice.normal(0, 0.3) for m in row["margins"]]},
            )
        return folder

    for seed in range(2):
        run = wandering(f"a{seed}", seed)
        accept_baseline(run, "first", force=True, root=tmp_path / "b")
    baseline = str(tmp_path / "b" / "made" / "bfloat16.json")
    assert judge(wandering("run", 7), baseline).verdict == "pass"


def test_drafts_of_the_same_answer_counted_otherwise(bench):
    redraft(bench, "mtp3", -1, every=60)
    verdict = judge(bench.run, bench.baseline)
    assert failing(verdict) == {"acceptance"}
    (finding,) = reasons(verdict, "acceptance")
    assert "mtp3 drafts otherwise than the accepted runs in 2 of 120 answers" in finding.message
    assert "fell by 0.07 points" in finding.message


@pytest.mark.parametrize(("by", "side"), [(-1, "fell"), (1, "rose")])
def test_a_small_change_of_acceptance_on_many_items(noisy, by, side):
    redraft(noisy, "mtp2", by, every=10)
    verdict = judge(noisy.run, noisy.baseline)
    assert failing(verdict) == {"acceptance"}
    (finding,) = reasons(verdict, "acceptance")
    assert f"accepted drafts of mtp2 {side} by 0.62 points" in finding.message


def test_more_accepted_than_drafted(bench):
    redraft(bench, "mtp1", 9, every=60)
    (finding,) = reasons(judge(bench.run, bench.baseline), "acceptance")
    assert "2 records of mtp1 accept more drafts than they made" in finding.message


def test_changes_both_ways_are_chance(noisy):
    count = itertools.count()
    change_records(
        noisy.run,
        "mtp2",
        lambda row: {**row, "accepted": row["accepted"] + (1, -1, 0)[next(count) % 3]},
    )
    assert judge(noisy.run, noisy.baseline).verdict == "pass"


def test_one_record_that_does_not_tell_its_drafts(bench):
    count = itertools.count()
    change_records(
        bench.run, "mtp3", lambda row: {**row, "drafted": None} if next(count) == 7 else row
    )
    (finding,) = reasons(judge(bench.run, bench.baseline), "acceptance")
    assert (finding.status, finding.evidence) == ("missing", "drafted")
    assert "1 of 120 records of mtp3" in finding.message


@given(
    st.lists(
        st.tuples(
            st.lists(st.floats(0, 30, width=32), max_size=6),
            st.lists(st.floats(0, 30, width=32), max_size=6),
            st.integers(0, 7),
        ),
        max_size=12,
    )
)
def test_drift_of_ragged_answers(pairs):
    drift = Drift(len(pairs))
    for slot, (ours, theirs, length) in enumerate(pairs):
        drift.add(slot, ours, array("f", theirs), length)
    drift.finish()
    for slot, (ours, theirs, length) in enumerate(pairs):
        away = [abs(np.float32(a) - np.float32(b)) for a, b in zip(ours, theirs, strict=False)]
        away = away[:length]
        if not away:
            assert np.isnan(drift.largest[slot]) and drift.token[slot] == -1
        else:
            assert drift.largest[slot] == max(away)
            assert drift.token[slot] == away.index(max(away))
