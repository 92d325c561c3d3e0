"""Both tasks through lm-eval's own TaskManager: prompts, targets, filters, metric and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evalsuite.errors import UsageError
from gsm_mini.rows import read_split

lm_tasks = pytest.importorskip("lm_eval.tasks")
Instance = pytest.importorskip("lm_eval.api.instance").Instance
load_yaml = pytest.importorskip("lm_eval.tasks._yaml_loader").load_yaml

ROOT = Path(__file__).parents[2]
TASKS = ROOT / "tasks"
REAL = ROOT.parent / "shared" / "data" / "gsm8k"
VARIABLE = "EVALSUITE_GSM8K_DIR"

QUESTION = {"question": "Ann has 2 pens and buys 3. How many?", "answer": "2+3=<<2+3=5>>5\n#### 5"}


@pytest.fixture(scope="module")
def manager() -> Any:
    return lm_tasks.TaskManager(include_path=str(TASKS), include_defaults=False)


@pytest.fixture(scope="module")
def mini(manager: Any) -> Any:
    return manager.load("gsm_mini")["tasks"]["gsm_mini"]


def small_gsm8k(folder: Path, rows: int = 7) -> Path:
    for split in ("train", "test"):
        lines = [json.dumps({**QUESTION, "question": f"{split} {i}?"}) for i in range(rows)]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def scores(task: Any, doc: dict[str, Any], said: str) -> dict[str, float]:
    instance = Instance("generate_until", doc, ("", {}), 0, metadata=(task.config.task, 0, 1))
    instance.resps = [said]
    task._instances = [instance]
    task.apply_filters()
    return {
        name: task.process_results(doc, [answer])["exact_match"]
        for name, answer in instance.filtered_resps.items()
    }


def test_ours_replace_the_built_in_task() -> None:
    manager = lm_tasks.TaskManager(include_path=str(TASKS))
    for name in ("gsm8k", "gsm_mini"):
        assert manager.task_index[name].yaml_path == TASKS / f"{name}.yaml"


def test_mini_prompt(mini: Any) -> None:
    shots = read_split("fewshot")[:2]
    for place in (0, 700):
        doc = mini.eval_docs[place]
        asked = "".join(f"Question: {s['question']}\nAnswer: {s['answer']}\n\n" for s in shots)
        expected = f"{asked}Question: {doc['question']}\nAnswer:"
        assert mini.fewshot_context(doc, mini.config.num_fewshot) == expected
        assert mini.doc_to_target(doc) == doc["answer"]
    assert mini.config.num_fewshot == 2
    assert len(mini.eval_docs) == 1319
    assert [doc["question"] for doc in mini.eval_docs] == [
        r["question"] for r in read_split("test")
    ]


def test_mini_generation(mini: Any) -> None:
    kwargs = mini.config.generation_kwargs
    assert kwargs["until"] == ["Question:", "</s>", "<|im_end|>"]
    assert kwargs["do_sample"] is False
    assert kwargs["max_gen_toks"] > 0


def published(name: str) -> Any:
    return load_yaml(Path(lm_tasks.__file__).parent / "gsm8k" / "gsm8k.yaml")[name]


@pytest.mark.parametrize("task", ["gsm_mini", "gsm8k"])
@pytest.mark.parametrize("key", ["metric_list", "doc_to_text", "doc_to_target"])
def test_scoring_is_the_published_one(manager: Any, task: str, key: str) -> None:
    assert manager.task_index[task].cfg[key] == published(key)


@pytest.mark.parametrize("task", ["gsm_mini", "gsm8k"])
def test_the_published_filters_stand_beside_our_reading(manager: Any, task: str) -> None:
    filters = manager.task_index[task].cfg["filter_list"]
    assert filters[:2] == published("filter_list")
    assert [entry["name"] for entry in filters[2:]] == ["numeric"]


@pytest.mark.parametrize("key", ["generation_kwargs", "num_fewshot", "fewshot_split", "test_split"])
def test_gsm8k_asks_as_published(manager: Any, key: str) -> None:
    assert manager.task_index["gsm8k"].cfg[key] == published(key)


def test_filters_on_real_rows(mini: Any) -> None:
    for place in range(0, 1319, 130):
        doc = dict(mini.eval_docs[place])
        gold = doc["answer"].split("#### ")[1]
        right = {"strict-match": 1.0, "flexible-extract": 1.0, "numeric": 1.0}
        assert scores(mini, doc, f" {doc['answer']}\n\n") == right
        assert scores(mini, doc, f" {doc['answer']}0") == dict.fromkeys(right, 0.0)
        loose = {**right, "strict-match": 0.0}
        assert scores(mini, doc, f" It is ${gold}.") == loose
        assert scores(mini, doc, " no idea") == dict.fromkeys(right, 0.0)


def test_gsm8k_from_a_folder(manager: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(small_gsm8k(tmp_path)))
    task = manager.load("gsm8k")["tasks"]["gsm8k"]
    assert len(task.eval_docs) == 7
    task.set_fewshot_seed(1234)
    prompt = task.fewshot_context(task.eval_docs[0], 5)
    assert prompt.count("Question: train ") == 5
    assert prompt.endswith("\n\nQuestion: test 0?\nAnswer:")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("test.jsonl", "", "test.jsonl: is empty"),
        ("train.jsonl", json.dumps(QUESTION) + '\n{"question": "Q', "train.jsonl:2: not JSON"),
        ("test.jsonl", '{"question": "Q?", "answer": "5"}\n', "test.jsonl:1: answer: does not end"),
        ("test.jsonl", '{"answer": "#### 5"}\n', "test.jsonl:1: question: is missing"),
        ("test.jsonl", None, "test.jsonl: cannot be read"),
    ],
)
def test_gsm8k_damaged_folder(
    manager: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    text: str | None,
    message: str,
) -> None:
    path = small_gsm8k(tmp_path) / file
    path.unlink() if text is None else path.write_text(text)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(UsageError) as caught:
        manager.load("gsm8k")
    assert message in str(caught.value)


def test_gsm8k_folder_that_is_none(manager: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/no/such/folder")
    with pytest.raises(UsageError, match="EVALSUITE_GSM8K_DIR: is not a folder"):
        manager.load("gsm8k")


@pytest.mark.skipif(not REAL.is_dir(), reason="../shared/data/gsm8k is not there")
def test_real_gsm8k(manager: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(REAL))
    task = manager.load("gsm8k")["tasks"]["gsm8k"]
    assert len(task.eval_docs) == 1319
    assert len(task.training_docs()) == 7473
    for place in (0, 500, 1318):
        doc = dict(task.eval_docs[place])
        assert set(scores(task, doc, f" {doc['answer']}").values()) == {1.0}


def test_any_current_directory(tmp_path: Path) -> None:
    code = (
        "import sys; from lm_eval.tasks import TaskManager;"
        "task = TaskManager(include_path=sys.argv[1], include_defaults=False)"
        ".load('gsm_mini')['tasks']['gsm_mini']; print(len(task.eval_docs))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TASKS), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", code, str(TASKS)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[-1] == "1319"
