"""lm-eval's tasks seen through the harness."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine

from evalsuite.errors import RunIncomplete, UsageError
from evalsuite.harness import HarnessTask, load_task
from evalsuite.harness.library import read_generation
from evalsuite.harness.model import engine_config, model_class
from evalsuite.protocol import Chat, ThinkingModel, sha256_text
from evalsuite.scoring import flexible_extract, strict_match
from evalsuite.suite import EngineConfig

GSM8K = Path(__file__).resolve().parents[2] / "shared" / "data" / "gsm8k"
TEXTS = Path(__file__).parent / "data" / "extraction.jsonl"


def test_prompts_are_what_lm_eval_would_send(gsm_mini_task: HarnessTask) -> None:
    from lm_eval.tasks import TaskManager

    from evalsuite.paths import TASKS

    manager = TaskManager(include_path=str(TASKS), include_defaults=False)
    own = manager.load("gsm_mini")["tasks"]["gsm_mini"]
    own.set_fewshot_seed(seed=1234)
    own.build_all_requests()
    assert [entry.prompt for entry in gsm_mini_task.items] == [
        instance.args[0] for instance in own.instances
    ]


def test_prompt_is_prefix_and_question(gsm_mini_task: HarnessTask) -> None:
    prefix = gsm_mini_task.fewshot_prefix
    assert prefix is not None
    assert prefix.count("Question: ") == prefix.count("\n#### ") == 2
    for entry in gsm_mini_task.items:
        assert entry.prompt == f"{prefix}Question: {entry.item.question}\nAnswer:"


def test_the_protocol_says_what_decides_a_score(gsm_mini_task: HarnessTask) -> None:
    protocol = gsm_mini_task.protocol("7")
    assert protocol.prefix_sha256 == sha256_text(gsm_mini_task.fewshot_prefix or "")
    assert protocol.num_fewshot == 2
    assert protocol.stops == ("Question:", "</s>", "<|im_end|>")
    assert protocol.extractor == "7"
    assert protocol.harness == "lm-eval 0.4.13"
    other = load_task("gsm_mini", shots=1, max_tokens=50)
    assert [line.split(":")[0] for line in other.protocol("7").differences(protocol)] == [
        "protocol.num_fewshot",
        "protocol.prefix_sha256",
        "protocol.max_tokens",
    ]


def test_readings_and_scores_are_lm_evals_own(gsm_mini_task: HarnessTask) -> None:
    """The shortcut that spares rendering the target agrees with lm-eval's process_results."""
    from lm_eval.api.instance import Instance

    task = gsm_mini_task._task
    texts = [json.loads(line)["response"] for line in TEXTS.read_text().splitlines()]
    assert len(texts) > 50
    for index, text in enumerate([*texts, "", "#### 13", "#### 1,300.", "so $13."]):
        item = gsm_mini_task.items[index].item.item_id
        doc = gsm_mini_task._docs[item]
        instance = Instance("generate_until", doc, ("",), 0, resps=[text])
        for ensemble in task._filters:
            ensemble.apply([instance])
        read = gsm_mini_task.read(item, text)
        for name, score in (
            ("strict-match", read.strict_score),
            ("flexible-extract", read.flexible_score),
        ):
            filtered = instance.filtered_resps[name]
            assert task.process_results(doc, [filtered])["exact_match"] == score
        assert (read.strict, read.flexible) == (strict_match(text), flexible_extract(text))


def test_the_gold_answer_scores_on_every_item(gsm_mini_task: HarnessTask) -> None:
    for entry in gsm_mini_task.items[:200]:
        read = gsm_mini_task.read(entry.item.item_id, f"text\n#### {entry.item.gold}")
        assert (read.strict_score, read.flexible_score) == (1.0, 1.0)
        assert read.strict == entry.item.gold


@pytest.mark.skipif(not GSM8K.is_dir(), reason="no ../shared/data/gsm8k beside the repository")
def test_real_gsm8k_has_its_published_shots_and_a_prefix_of_its_own_for_each_item(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EVALSUITE_GSM8K_DIR", str(GSM8K))
    task = load_task("gsm8k")
    assert len(task.items) == 1319
    assert task.num_fewshot == 5
    assert task.fewshot_prefix is None
    assert all(entry.prompt.count("Question: ") == 6 for entry in task.items[:50])
    assert task.protocol("1") == load_task("gsm8k").protocol("1")


def test_an_unknown_task_or_one_of_another_kind_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import lm_eval.tasks

    manager = lm_eval.tasks.TaskManager

    def own_only(include_path: str, include_defaults: bool) -> Any:
        return manager(include_path=include_path, include_defaults=False)

    # lm-eval's own index takes many seconds to build.
    monkeypatch.setattr(lm_eval.tasks, "TaskManager", own_only)
    with pytest.raises(UsageError, match="task: no task 'nosuch'"):
        load_task("nosuch")


@pytest.mark.parametrize(
    "arguments",
    [{"do_sample": True, "temperature": 0.7}, {"temperature": 0.3}, {"top_k": 5}],
)
def test_sampling_and_unknown_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="task t "):
        read_generation({"until": ["Q:"], **arguments}, "t")


def test_generation_arguments_have_lm_evals_defaults() -> None:
    assert read_generation({"until": "Q:", "do_sample": False}, "t") == (("Q:",), 256)
    assert read_generation({"until": [], "max_gen_toks": 9}, "t") == ((), 9)


def test_a_missing_lm_eval_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import PackageNotFoundError

    from evalsuite.harness import library

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(library, "version", missing)
    with pytest.raises(UsageError, match="lm-eval is not installed"):
        load_task("gsm_mini")


def test_model_arguments_become_an_engine() -> None:
    config = engine_config({"engine": "mini", "dtype": "float32", "concurrency": 4, "seed": 3})
    assert (config.kind, config.dtype, config.concurrency) == ("mini", "float32", 4)
    assert config.options["seed"] == 3
    with pytest.raises(UsageError, match="model_args"):
        engine_config({"engine": "nosuch"})


def test_lm_evals_default_device_leaves_the_choice_to_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from evalsuite.harness import model

    seen: list[str | None] = []

    def record(config: EngineConfig) -> FakeEngine:
        seen.append(config.device)
        return FakeEngine({})

    monkeypatch.setattr(model, "open_engine", record)
    beside: dict[str, Any] = {"batch_size": 1, "max_batch_size": None, "device": "cuda:0"}
    create = model_class().create_from_arg_obj
    create({"arm": "eager"}, beside)
    create({"arm": "eager"}, {**beside, "device": "cpu"})
    create({"arm": "eager", "device": "cuda"}, {**beside, "device": "cpu"})
    model_class().create_from_arg_string("arm=eager,device=cpu", beside)
    assert seen == [None, "cpu", "cuda", "cpu"]


def test_a_failed_request_is_no_empty_answer_for_lm_eval() -> None:
    from lm_eval.api.instance import Instance

    model = model_class()(engine="fake_engine:open_engine", arm="eager", lose_arm="eager")
    requests = [
        Instance("generate_until", {}, (f"Question: {entry}\nAnswer:", {"until": ["Q:"]}), 0)
        for entry in _questions(6)
    ]
    with pytest.raises(RunIncomplete, match="no answer came back"):
        model.generate_until(requests)


def _questions(count: int) -> list[str]:
    from fake_engine import answers_by_question

    return list(answers_by_question())[:count]


def test_chats_hold_the_shots_as_turns_and_end_in_the_question() -> None:
    task = load_task("gsm_mini", chat=Chat(system="Answer shortly."))
    entry = task.items[0]
    messages = entry.messages
    assert messages is not None
    assert [role for role, _ in messages] == [
        "system", "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip
    assert messages[0][1] == "Answer shortly."
    assert messages[-1][1] == f"Question: {entry.item.question}\nAnswer:"
    assert "####" in messages[2][1] and not messages[2][1].startswith("Question")
    assert json.loads(entry.prompt) == [list(turn) for turn in messages]
    assert entry.item.question not in (task.fewshot_prefix or entry.item.question)


def test_a_chat_in_one_turn() -> None:
    task = load_task("gsm_mini", chat=Chat(turns=False))
    messages = task.items[0].messages
    assert messages is not None and [role for role, _ in messages] == ["user"]
    assert messages[0][1].count("Question: ") == 3
    assert (task.fewshot_prefix or "").count("Question: ") == 2


def test_chats_are_another_protocol(gsm_mini_task: HarnessTask) -> None:
    plain = gsm_mini_task.protocol("1", "the server's own")
    assert plain.chat_template_sha256 is None
    chat = load_task("gsm_mini", chat=Chat(), stops=("\n\n",))
    protocol = chat.protocol("1", "a template", ThinkingModel(budget=9))
    assert [line.split(":")[0] for line in protocol.differences(plain)] == [
        "protocol.prefix_sha256",
        "protocol.chat_template_sha256",
        "protocol.stops",
        "protocol.chat",
        "protocol.thinking",
    ]
    assert chat.items[0].item == gsm_mini_task.items[0].item
