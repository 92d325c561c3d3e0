"""Each check turns red for its own fault, for the right reason, and leaves the others alone."""

from __future__ import annotations

import itertools
import json
import shutil

import msgspec
import numpy as np
import pytest
from run_factory import Factory, arms, change_json, change_records, rows, write_rows

from evalsuite.baseline import accept_baseline
from evalsuite.checks.collapse import expected_share
from evalsuite.judge import judge
from evalsuite.policy import Policy
from evalsuite.protocol import Protocol
from evalsuite.reference import ReferenceArm
from evalsuite.runview import CODE
from evalsuite.stats import stopping_look, stopping_rule


def every(period, change):
    """Change each `period`-th record of a file."""
    count = itertools.count()
    return lambda row: change(row) if next(count) % period == 0 else row


def findings(verdict, check, status="fail"):
    return [f for f in verdict.findings if f.check == check and f.status == status]


def broken_checks(verdict):
    return {name for name, status in verdict.checks.items() if status in ("fail", "missing")}


def change_evidence(bench, arm, **values):
    change_json(bench.run / arm / "evidence.json", lambda old: {**old, **values})


@pytest.mark.parametrize("kind", ["bench", "noisy"])
def test_healthy_run_passes_every_check(kind, request):
    found = request.getfixturevalue(kind)
    verdict = judge(found.run, found.baseline)
    assert verdict.verdict == "pass", verdict.reasons()
    assert set(verdict.checks.values()) == {"pass"}
    assert verdict.exit_code == 0


# completeness


def test_ten_of_the_planned_items(bench):
    path = bench.run / "mtp2" / "records.jsonl"
    write_rows(path, rows(path)[:10])
    verdict = judge(bench.run, bench.baseline)
    (finding,) = findings(verdict, "completeness")
    assert finding.message == "mtp2 has 10 of 120 planned answers"
    assert verdict.exit_code == 1


def test_error_outcome(bench):
    def lost(row):
        fields = ("text", "token_ids", "margins", "finish_reason", "output_tokens")
        return {**row, **dict.fromkeys(fields), "error": "timed out"}

    first = rows(bench.run / "graph" / "records.jsonl")[0]["item_id"]
    change_records(bench.run, "graph", lambda r: lost(r) if r["item_id"] == first else r)
    (finding,) = findings(judge(bench.run, bench.baseline), "completeness")
    assert "no answer was obtained for 1 requests of graph" in finding.message
    assert finding.examples == [first]


def test_duplicate_foreign_and_mislabelled_records(bench):
    path = bench.run / "graph" / "records.jsonl"
    lines = rows(path)
    for extra, words in (
        (lines[3], "was answered before"),
        ({**lines[3], "item_id": "f" * 16}, "is not in the plan"),
        ({**lines[3], "repeat": 1}, "repeat 1 is not in the plan"),
        ({**lines[3], "arm": "eager"}, "is a record of arm eager"),
    ):
        write_rows(path, [*lines, extra])
        verdict = judge(bench.run, bench.baseline)
        assert words in findings(verdict, "completeness")[0].message
        assert "graph/records.jsonl:121" in findings(verdict, "completeness")[0].message


def test_arm_that_is_a_copy_of_another(bench):
    shutil.rmtree(bench.run / "mtp4")
    shutil.copytree(bench.run / "mtp3", bench.run / "mtp4")
    message = findings(judge(bench.run, bench.baseline), "completeness")[0].message
    assert "is a record of arm mtp3" in message
    # The same with the name changed everywhere.
    change_records(bench.run, "mtp4", lambda r: {**r, "arm": "mtp4"})
    verdict = judge(bench.run, bench.baseline)
    assert "mtp4 is a copy of mtp3" in findings(verdict, "completeness")[0].message
    messages = [f.message for f in findings(verdict, "route")]
    assert "mtp4 drafted 3 tokens a step, not 4" in messages


def test_nan_and_null_are_damage(bench):
    path = bench.run / "mtp1" / "records.jsonl"
    whole = path.read_text()
    for bad, words in (
        (whole.replace('"margins":[3.0', '"margins":[NaN', 1), "not JSON"),
        (whole.replace('"outcome":"correct"', '"outcome":null', 1), "outcome"),
        (whole.replace('"block":0', '"block":"0"', 1), "block"),
        (whole.replace('"block":0', '"unknown":1,"block":0', 1), "unknown"),
        (whole[:-30], "torn"),
    ):
        assert bad != whole
        path.write_text(bad)
        verdict = judge(bench.run, bench.baseline)
        message = findings(verdict, "completeness")[0].message
        assert message.startswith("mtp1/records.jsonl:") and words in message
        assert verdict.exit_code == 1


def test_altered_outcome_is_damage(bench):
    path = bench.run / "mtp1" / "records.jsonl"
    lines = rows(path)
    wrong = next(line for line in lines if line["outcome"] == "wrong")
    wrong["outcome"] = "correct"
    write_rows(path, lines)
    verdict = judge(bench.run, bench.baseline)
    (finding,) = findings(verdict, "completeness")
    assert "outcome of 1 records is not what their text and gold give" in finding.message
    assert finding.examples == [wrong["item_id"]]


def test_unfinished_arm_is_incomplete(bench):
    (bench.run / "mtp5" / "evidence.json").unlink()
    path = bench.run / "mtp5" / "records.jsonl"
    write_rows(path, rows(path)[:50])
    verdict = judge(bench.run, bench.baseline)
    assert (verdict.verdict, verdict.exit_code) == ("incomplete", 3)
    messages = [f.message for f in findings(verdict, "completeness", "missing")]
    assert any("was not run to its end" in message for message in messages)


def test_records_of_an_older_extractor_are_judged_anew(bench):
    path = bench.run / "run.json"
    old = json.loads(path.read_text())
    old["protocol"]["extractor"] = "0"
    old["fingerprint"] = msgspec.convert(old["protocol"], Protocol).fingerprint()
    path.write_text(json.dumps(old))
    change_records(bench.run, "mtp1", lambda r: {**r, "outcome": "wrong"}, rescore=False)
    verdict = judge(bench.run, "none")
    assert verdict.checks["completeness"] == "warn" and verdict.exit_code == 0
    assert verdict.arms[2].accuracy == verdict.arms[0].accuracy


# truncation


def test_truncated_answers_are_told_as_such(bench):
    cut = {row["item_id"] for row in rows(bench.run / "mtp3" / "records.jsonl")[:20]}

    def shorten(row):
        if row["item_id"] not in cut:
            return row
        return {**row, "text": " He has many", "finish_reason": "length", "answer": None}

    change_records(bench.run, "mtp3", shorten)
    verdict = judge(bench.run, bench.baseline)
    (first, *_) = findings(verdict, "truncation")
    assert "16.7% of the answers of mtp3 hit the token budget" in first.message
    assert set(first.examples) <= cut


def test_missing_values_are_told_as_such(bench):
    index = iter(range(1000))
    change_records(
        bench.run, "graph", lambda r: {**r, "text": " I do not know."} if next(index) < 20 else r
    )
    (first, *_) = findings(judge(bench.run, bench.baseline), "truncation")
    assert "hold no answer" in first.message


# collapse, accuracy


def answer_wrong(row):
    value = row["text"].rpartition(" ")[2]
    return {
        **row,
        "text": row["text"].replace(value, str(int(value) + 13)),
        "token_ids": [1, 2, 3, 4],
    }


def test_collapsed_arm_is_named(bench):
    change_records(bench.run, "mtp1", answer_wrong)
    verdict = judge(bench.run, bench.baseline)
    (finding,) = findings(verdict, "collapse")
    assert "mtp1 collapsed: 0 of the first 32 right" in finding.message
    assert finding.figures["false_alarm"] < 2e-6
    assert findings(verdict, "accuracy")[0].arm == "mtp1"


def test_a_reference_without_errors_allows_for_one():
    right = np.full(32, CODE["correct"], dtype=np.int8)
    none = np.zeros(32, dtype=np.int8)
    arm = ReferenceArm(right, none, none, shares=None, drafts=None, accuracy=1.0)
    asked = Policy().collapse
    rule = stopping_rule(expected_share(arm), asked.looks, asked.level)
    assert stopping_look([True] * 31 + [False], rule) is None
    assert stopping_look([False] * 32, rule) is not None
    assert stopping_look([True] * 31 + [False], stopping_rule(1.0, asked.looks, asked.level))


def test_drop_in_one_arm(noisy):
    index = iter(range(1000))
    change_records(noisy.run, "mtp2", lambda r: answer_wrong(r) if next(index) % 12 == 0 else r)
    verdict = judge(noisy.run, noisy.baseline)
    failed = findings(verdict, "accuracy")
    assert {f.arm for f in failed} <= {"mtp2", None} and failed[0].arm == "mtp2"
    assert "adjusted p" in failed[0].message and failed[0].examples
    assert findings(verdict, "collapse") == []


def test_every_verdict_states_its_power(noisy):
    verdict = judge(noisy.run, noisy.baseline)
    assert verdict.power is not None and "n = 300" in verdict.power.statement
    assert len(verdict.margins) == 7 and len(verdict.tests) == 15


# degeneration


def test_one_degenerate_answer_fails_the_run(bench):
    index = iter(range(1000))
    change_records(
        bench.run, "mtp5", lambda r: {**r, "text": " the" * 60} if next(index) == 77 else r
    )
    verdict = judge(bench.run, bench.baseline)
    (finding, *_) = findings(verdict, "degeneration")
    assert finding.arm == "mtp5" and finding.figures["excerpt"].startswith(" the the the")
    assert finding.figures["item"] == finding.examples[0]


def test_answers_of_another_length_as_a_whole(bench):
    extra = " So we can see that it is as we said before, and that is what was asked."

    def lengthen(row):
        return {**row, "text": row["text"].replace("\n####", f"{extra}\n####")}

    change_records(bench.run, "mtp5", lengthen)
    messages = [f.message for f in findings(judge(bench.run, bench.baseline), "degeneration")]
    assert any("mtp5 differ as a whole from eager's in length" in message for message in messages)


def mark(row):
    return {**row, "text": row["text"] + " \ufffd"}


def test_weak_finds_count_as_an_excess_over_eager_and_baseline(bench):
    change_records(bench.run, "mtp5", every(4, mark))
    failed = findings(judge(bench.run, bench.baseline), "degeneration")
    assert any("25.00% of the answers of mtp5 are weak finds" in f.message for f in failed)
    change_records(bench.run, "eager", every(4, mark))
    change_records(bench.run, "mtp5", lambda r: r)
    failed = findings(judge(bench.run, bench.baseline), "degeneration")
    assert {f.arm for f in failed if "weak finds" in f.message} == {"eager"}


def test_one_weak_find_is_nothing(bench):
    change_records(bench.run, "mtp5", every(120, mark))
    verdict = judge(bench.run, bench.baseline)
    assert verdict.checks["degeneration"] == "pass"


def test_degenerate_answers_of_a_weak_model_are_paired(tmp_path):
    def loop(row):
        return {**row, "text": " lock" * 60, "token_ids": [3, 3, 3, 3]}

    factory = Factory.of(96, arms=arms("eager", "graph"))

    def made(name, seed, period):
        folder = factory.make(tmp_path / name, seed)
        for arm in factory.arms:
            change_records(folder, arm.name, every(period, loop))
        return folder

    for seed in range(2):
        accept_baseline(made(f"a{seed}", seed, 8), "weak", root=tmp_path / "b", force=True)
    baseline = str(tmp_path / "b" / "made" / "float32.json")
    assert judge(made("same", 8, 8), baseline).checks["degeneration"] == "pass"
    verdict = judge(made("worse", 9, 3), baseline)
    failed = findings(verdict, "degeneration")
    assert {f.arm for f in failed} == {"eager", "graph"}
    assert "33.33% of the answers of eager are degenerate answers, 12.50% in" in failed[0].message


# equality


def test_divergence_above_the_rounding_margin(bench):
    index = iter(range(1000))
    change_records(
        bench.run,
        "mtp3",
        lambda r: {**r, "token_ids": [5, 99, 7, 9]} if next(index) == 5 else r,
    )
    verdict = judge(bench.run, bench.baseline)
    (finding,) = findings(verdict, "equality")
    assert "1 of 120 answers of mtp3 part from eager's above the rounding margin" in finding.message
    assert (finding.figures["token"], finding.figures["margin"]) == (1, 2.5)
    assert broken_checks(verdict) == {"equality"}


def test_rounding_is_excused_rarely(bench):
    def near_tie(row, limit):
        near = {**row, "margins": [3.0, 5e-5, 2.0, 4.0]}
        return {**near, "token_ids": [5, 99, 7, 9]} if row["arm"] == "mtp3" and limit else near

    for arm in bench.factory.arms:
        index = iter(range(1000))
        change_records(bench.run, arm.name, lambda r, i=index: near_tie(r, next(i) < 2))
    (finding,) = findings(judge(bench.run, "none"), "equality")
    assert "more often than rounding explains" in finding.message


def test_more_divergence_than_the_baseline_has(noisy):
    index = iter(range(1000))
    change_records(
        noisy.run,
        "mtp4",
        lambda r: {**r, "token_ids": [1, 2, 3, 4]} if next(index) % 6 == 0 else r,
    )
    messages = [f.message for f in findings(judge(noisy.run, noisy.baseline), "equality")]
    assert any("of the answers of mtp4 part from eager's" in message for message in messages)


def test_token_ids_lost_from_one_record(bench):
    path = bench.run / "mtp4" / "records.jsonl"
    lines = rows(path)
    lines[3]["token_ids"] = lines[4]["margins"] = None
    write_rows(path, lines)
    verdict = judge(bench.run, bench.baseline)
    assert [f.message for f in findings(verdict, "equality", "missing")] == [
        "1 of 120 records of mtp4 have no token_ids",
        "1 of 120 records of mtp4 have no margins",
    ]


# acceptance, route


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"drafts": 0, "accepted_per_position": [0, 0]}, "made no drafts"),
        ({"accepted_per_position": [3000, 2600]}, "at position 1, below the floor"),
        ({"accepted_per_position": [4000, 4000]}, "at position 1, above the ceiling"),
        ({"accepted_per_position": [3800]}, "acceptance at 1 positions, not 2"),
        ({"accepted_per_position": [3800, 3900]}, "more drafts at a position than reached it"),
        ({"drafted_tokens": 5000}, "accepted 7"),
    ],
)
def test_acceptance(bench, values, words):
    change_evidence(bench, "mtp2", **values)
    verdict = judge(bench.run, bench.baseline)
    assert words in findings(verdict, "acceptance")[0].message
    assert broken_checks(verdict) == {"acceptance"}


def test_no_miss_at_all_is_suspicious_where_the_baseline_has_some(tmp_path):
    factory = Factory.of(48, arms=arms("eager", "graph", "mtp1"))

    def made(name, seed, accepted):
        folder = factory.make(tmp_path / name, seed)
        path = folder / "mtp1" / "evidence.json"
        change_json(path, lambda old: {**old, "accepted_per_position": [accepted]})
        return folder

    for seed, accepted in enumerate((3980, 3990)):
        accept_baseline(made(f"a{seed}", seed, accepted), "first", root=tmp_path / "b")
    baseline = str(tmp_path / "b" / "made" / "float32.json")
    assert judge(made("near", 8, 3999), baseline).exit_code == 0
    verdict = judge(made("all", 9, 4000), baseline)
    assert "a rate of 1.0 is suspicious" in findings(verdict, "acceptance")[0].message


def test_speculation_where_none_was_asked(bench):
    change_evidence(bench, "graph", drafts=5)
    assert (
        "although it must not"
        in findings(judge(bench.run, bench.baseline), "acceptance")[0].message
    )


def test_perfect_acceptance_is_suspicious_without_a_baseline(bench):
    change_evidence(bench, "mtp1", accepted_per_position=[4000])
    (finding,) = findings(judge(bench.run, "none"), "acceptance", "warn")
    assert "suspicious" in finding.message


@pytest.mark.parametrize(
    ("arm", "values", "words"),
    [
        ("graph", {"graph_replays": 0}, "graph replayed no graph"),
        ("mtp3", {"eager_decode_steps": 4}, "mtp3 fell back to eager decode 4 times"),
        ("eager", {"graph_replays": 7}, "eager replayed 7 graphs"),
        ("eager", {"eager_decode_steps": 0}, "eager ran no eager decode step"),
        ("mtp3", {"draft_length": 2}, "drafted 2 tokens a step, not 3"),
        (
            "mtp3",
            {"routes": {"prefill": "dense", "verify:4": "wide"}},
            "mtp3 sent verify:4 rows to wide, the baseline's route is ragged",
        ),
        ("mtp3", {"steps_by_kind": {"prefill": 20, "verify:3": 9}}, "width 3 at most, not 4"),
        ("graph", {"read_back": {"graph": False, "mtp": 0}}, "runs with graph = False, not True"),
    ],
)
def test_route(bench, arm, values, words):
    change_evidence(bench, arm, **values)
    verdict = judge(bench.run, bench.baseline)
    assert any(words in f.message for f in findings(verdict, "route"))
    assert "route" in broken_checks(verdict) and broken_checks(verdict) <= {"route"}


EVIDENCE = (
    "graph_replays",
    "eager_decode_steps",
    "steps_by_kind",
    "routes",
    "drafts",
    "drafted_tokens",
    "accepted_per_position",
    "draft_length",
    "read_back",
)


@pytest.mark.parametrize("field", EVIDENCE)
def test_missing_evidence_fails_unless_declared(bench, field):
    change_evidence(bench, "mtp2", **{field: None})
    verdict = judge(bench.run, bench.baseline)
    assert (verdict.verdict, verdict.exit_code) == ("fail", 1)
    (check,) = broken_checks(verdict)
    declared = [f"{check}.{field}"]
    change_json(bench.run / "run.json", lambda old: {**old, "unavailable": declared})
    verdict = judge(bench.run, bench.baseline)
    assert verdict.exit_code == 0
    assert verdict.checks[check] == "skipped"
    assert "declared by the suite" in findings(verdict, check, "skipped")[0].message


# wall

AT_ALL_LENGTHS = {"wall": {"shortest": 0.0}}


def test_slow_arm_fails_on_a_gpu_and_warns_on_a_cpu(bench, noisy):
    for found, status in ((bench, "warn"), (noisy, "fail")):
        found.factory.make(found.run, seed=9, slow={"mtp5": 2.5})
        change_json(found.run / "run.json", lambda old: {**old, "policy": AT_ALL_LENGTHS})
        verdict = judge(found.run, found.baseline)
        messages = [f.message for f in findings(verdict, "wall", status)]
        assert any("mtp5 takes 1.4" in m and "of graph's time" in m for m in messages)
        assert any("more than 1.3 times as long" in message for message in messages)
        assert any("not below 1" in message for message in messages) == (status == "fail")
        assert verdict.exit_code == int(status == "fail")


def test_times_of_short_arms_are_not_compared(noisy):
    noisy.factory.make(noisy.run, seed=9, slow={"eager": 2.5})
    for shortest, slow in ((0.0, ["eager"]), (1e6, [])):
        policy = {"wall": {"shortest": shortest}}
        change_json(noisy.run / "run.json", lambda old, new=policy: {**old, "policy": new})
        verdict = judge(noisy.run, noisy.baseline)
        assert [finding.arm for finding in findings(verdict, "wall")] == slow


def test_a_ratio_fails_only_where_it_costs_time(noisy):
    noisy.factory.make(noisy.run, seed=9, slow={"mtp2": 2.0})
    for excess, slow in ((0.0, ["mtp2"]), (1e6, [])):
        policy = {"wall": {"excess": excess}}
        change_json(noisy.run / "run.json", lambda old, new=policy: {**old, "policy": new})
        verdict = judge(noisy.run, noisy.baseline)
        assert [finding.arm for finding in findings(verdict, "wall")] == slow


def test_ratios_under_another_load_are_not_compared(noisy):
    noisy.factory.make(noisy.run, seed=9, slow={"mtp2": 2.0})
    verdict = judge(noisy.run, noisy.baseline)
    assert [finding.arm for finding in findings(verdict, "wall")] == ["mtp2"]

    def at_once(old):
        return {**old, "engine": {**old["engine"], "concurrency": 77}}

    change_json(noisy.run / "run.json", at_once)
    verdict = judge(noisy.run, noisy.baseline)
    (finding,) = findings(verdict, "wall", "skipped")
    assert "no accepted run with 77 requests at once" in finding.message
    assert not findings(verdict, "wall")


def test_other_hardware_keeps_the_accuracy_gate(bench):
    change_json(
        bench.run / "run.json",
        lambda old: {**old, "hardware": {"device": "cuda", "name": "H200", "count": 1}},
    )
    verdict = judge(bench.run, bench.baseline)
    assert verdict.verdict == "pass" and verdict.checks["accuracy"] == "pass"
    (finding,) = findings(verdict, "wall", "skipped")
    assert finding.message == "no baseline for hardware class cuda 1 H200"
