"""What lm-eval already wrote becomes a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalsuite.errors import UsageError
from evalsuite.harness import HarnessTask
from evalsuite.importer import import_lm_eval
from evalsuite.judge import judge_run
from evalsuite.storage import read_evidence, read_items, read_records, read_run

STAMP = "2026-01-02T03-04-05.678901"
FILTERS = ("strict-match", "flexible-extract")
COUNT = 30


def write_results(folder: Path, task: HarnessTask, *, wrong: int = 0, **changes: Any) -> Path:
    """Write what lm-eval 0.4.13 writes of an evaluation of the first items of `task`."""
    config = task._task.config.to_dict(keep_callable=False)
    kept = ("task", "output_type", "doc_to_text", "doc_to_target", "generation_kwargs")
    results = {
        "results": {"gsm_mini": {"alias": "gsm_mini"}},
        "configs": {"gsm_mini": {name: config[name] for name in kept}},
        "versions": {"gsm_mini": 1.0},
        "n-shot": {"gsm_mini": 2},
        "n-samples": {"gsm_mini": {"original": 1319, "effective": COUNT}},
        "config": {"model": "vllm", "model_args": {"pretrained": "m", "dtype": "bfloat16"}},
        "lm_eval_version": "0.4.13",
        "transformers_version": "5.17.0",
        "model_name": "m",
        "chat_template": None,
        **changes,
    }
    folder.mkdir(parents=True)
    (folder / f"results_{STAMP}.json").write_text(json.dumps(results))
    with (folder / f"samples_gsm_mini_{STAMP}.jsonl").open("w") as file:
        for name in FILTERS:
            for number, entry in enumerate(task.items[:COUNT]):
                said = " so\n#### 5" if number < wrong else f" so\n#### {entry.item.gold}"
                row = {
                    "doc_id": number,
                    "doc": task._docs[entry.item.item_id],
                    "target": task._targets[entry.item.item_id],
                    "arguments": {"gen_args_0": {"arg_0": entry.prompt, "arg_1": {}}},
                    "resps": [[said]],
                    "filtered_resps": ["x"],
                    "filter": name,
                    "exact_match": 1.0,
                }
                file.write(json.dumps(row) + "\n")
    return folder


def test_an_import_is_a_run_under_the_same_protocol_and_item_ids(
    tmp_path: Path, gsm_mini_task: HarnessTask
) -> None:
    source = write_results(tmp_path / "in", gsm_mini_task, wrong=3)
    imported = import_lm_eval(source, "eager", out=tmp_path / "run")
    assert (imported.items, imported.correct) == (COUNT, COUNT - 3)
    run = read_run(tmp_path / "run")
    assert run.protocol == gsm_mini_task.protocol(run.protocol.extractor)
    assert run.fewshot_prefix == gsm_mini_task.fewshot_prefix
    assert (run.engine.name, run.dtype, run.model) == ("vllm", "bfloat16", "m")
    expected = [entry.item for entry in gsm_mini_task.items[:COUNT]]
    assert read_items(tmp_path / "run") == expected
    records = read_records(tmp_path / "run", "eager")
    assert [record.item_id for record in records] == list(run.plan.items)
    assert {record.outcome for record in records[:3]} == {"wrong"}
    evidence = msgspec.to_builtins(read_evidence(tmp_path / "run", "eager"))
    assert {key for key, value in evidence.items() if value is not None} == {
        "engine_version", "asked",
    }  # fmt: skip


def test_two_imports_are_judged_against_each_other(
    tmp_path: Path, gsm_mini_task: HarnessTask
) -> None:
    out = tmp_path / "run"
    import_lm_eval(write_results(tmp_path / "a", gsm_mini_task), "eager", out=out)
    assert judge_run(out, baseline="none").exit_code == 0
    broken = write_results(tmp_path / "b", gsm_mini_task, wrong=COUNT)
    import_lm_eval(broken, "mtp5", out=out)
    assert [arm.name for arm in read_run(out).plan.arms] == ["eager", "mtp5"]
    assert not (out / "verdict.json").exists()
    verdict = judge_run(out, baseline="none").verdict
    assert verdict.verdict == "fail"
    assert verdict.checks["accuracy"] == "fail"
    assert verdict.checks["route"] == verdict.checks["acceptance"] == "skipped"


def test_an_arm_joins_only_what_it_belongs_to(tmp_path: Path, gsm_mini_task: HarnessTask) -> None:
    out = tmp_path / "run"
    first = write_results(tmp_path / "a", gsm_mini_task)
    import_lm_eval(first, "eager", out=out)
    files = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="has an arm eager already"):
        import_lm_eval(first, "eager", out=out)
    shots = write_results(tmp_path / "b", gsm_mini_task, **{"n-shot": {"gsm_mini": 5}})
    with pytest.raises(UsageError, match=r"protocol\.num_fewshot: 2 != 5"):
        import_lm_eval(shots, "mtp1", out=out)
    other = write_results(tmp_path / "c", gsm_mini_task, model_name="n")
    with pytest.raises(UsageError, match="model"):
        import_lm_eval(other, "mtp1", out=out)
    assert files == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def _samples(folder: Path) -> Path:
    return folder / f"samples_gsm_mini_{STAMP}.jsonl"


def _drop_lines(folder: Path) -> None:
    lines = _samples(folder).read_bytes().splitlines(keepends=True)
    _samples(folder).write_bytes(b"".join(lines[: COUNT // 2]))


def _edit_line(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        lines = _samples(folder).read_text().splitlines()
        row = json.loads(lines[4])
        change(row)
        lines[4] = json.dumps(row)
        _samples(folder).write_text("\n".join(lines) + "\n")

    return edit


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda folder: _samples(folder).unlink(), "--log_samples"),
        (lambda folder: _samples(folder).write_text(""), "is empty"),
        (_drop_lines, "holds 15 documents, .* speaks of 30"),
        (lambda f: _samples(f).write_bytes(_samples(f).read_bytes()[:-9]), "60: .*torn"),
        (_edit_line(lambda row: row.pop("resps")), r"jsonl:5: resps: "),
        (_edit_line(lambda row: row.update(resps=[[]])), r"jsonl:5: resps: holds no answer"),
        (_edit_line(lambda row: row.update(doc_id=0)), r"jsonl:5: filter: document 0"),
        (_edit_line(lambda row: row.update(arguments={})), "document 4: holds no prompt"),
        (_edit_line(lambda row: row.update(doc={})), "document 4: .*question"),
        (lambda f: (f / f"results_{STAMP}.json").write_text("{"), "not JSON"),
        (lambda f: (f / f"results_{STAMP}.json").write_text("{}"), "missing required field"),
        (lambda f: (f / "results_x.json").write_text("{}"), "several results"),
    ],
)
def test_bad_results_are_refused_and_nothing_is_written(
    tmp_path: Path, gsm_mini_task: HarnessTask, damage: Callable[[Path], object], told: str
) -> None:
    source = write_results(tmp_path / "in", gsm_mini_task)
    damage(source)
    with pytest.raises(UsageError, match=told):
        import_lm_eval(source, "eager", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_wrong_places_and_names_are_refused(tmp_path: Path, gsm_mini_task: HarnessTask) -> None:
    source = write_results(tmp_path / "in", gsm_mini_task)
    for place, arm, task, told in (
        (tmp_path / "none", "eager", None, "no such file"),
        (tmp_path, "mtp9", None, "mtp9"),
        (source, "eager", "other", "gsm_mini"),
    ):
        with pytest.raises(UsageError, match=told):
            import_lm_eval(place, arm, task=task, out=tmp_path / "run")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(UsageError, match="not empty"):
        import_lm_eval(source, "eager", out=tmp_path / "full")


def test_secrets_in_model_arguments_are_not_kept(
    tmp_path: Path, gsm_mini_task: HarnessTask
) -> None:
    arguments = {"base_url": "http://h/v1", "api_key": "s3cr3t-0123456789"}
    config = {"model": "local-completions", "model_args": arguments}
    source = write_results(tmp_path / "in", gsm_mini_task, config=config)
    import_lm_eval(source, "eager", out=tmp_path / "run")
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file():
            assert b"s3cr3t" not in path.read_bytes()
