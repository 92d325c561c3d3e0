"""Finding a task by its name."""

from __future__ import annotations

from typing import Any

from evalsuite.errors import UsageError
from evalsuite.harness.library import make_ready, quiet
from evalsuite.harness.task import METRIC, HarnessTask
from evalsuite.paths import TASKS
from evalsuite.protocol import Chat


def load_task(
    name: str,
    *,
    shots: int | None = None,
    max_tokens: int | None = None,
    stops: tuple[str, ...] | None = None,
    chat: Chat | None = None,
) -> HarnessTask:
    """Load a task by name, this project's own first, then lm-eval's.

    `shots`, `max_tokens` and `stops` override the task's; `chat` asks its questions as chats.
    Raises UsageError for an unknown task, one that is not about generating text, or data that
    cannot be read.
    """
    make_ready()
    quiet()
    task = _find(name)
    if task.get_config("output_type") != "generate_until":
        kind = task.get_config("output_type")
        raise UsageError(f"task {name} is of type {kind}; only generation can be run", field="task")
    if METRIC not in task._metric_fn_list:
        raise UsageError(f"task {name} is not scored by {METRIC}", field="task")
    if shots is not None:
        task.set_config(key="num_fewshot", value=shots)
    from lm_eval.defaults import DEFAULT_OTHER_SEED

    task.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)
    return HarnessTask(name, task, max_tokens, stops, chat)


def own_tasks() -> frozenset[str]:
    """Return the names of the tasks in this project's `tasks/`."""
    from lm_eval.tasks import TaskManager

    return frozenset(TaskManager(include_path=str(TASKS), include_defaults=False).all_tasks)


def _find(name: str) -> Any:
    from lm_eval.tasks import TaskManager

    # lm-eval's own index takes many seconds to build; most runs do without it.
    own = name in own_tasks()
    manager = TaskManager(include_path=str(TASKS), include_defaults=not own)
    if name not in manager.all_subtasks:
        raise UsageError(f"no task {name!r}", field="task")
    try:
        return manager.load(name)["tasks"][name]
    except (OSError, ConnectionError) as problem:
        raise UsageError(f"the data of task {name} cannot be loaded: {problem}") from None
