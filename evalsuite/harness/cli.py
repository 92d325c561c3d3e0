"""lm-eval's own command line, with our model class and our tasks known to it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from evalsuite.harness.library import make_ready
from evalsuite.harness.loading import own_tasks
from evalsuite.harness.model import MODEL_NAME, model_class
from evalsuite.paths import TASKS


def run_lm_eval(arguments: Sequence[str]) -> None:
    """Run `lm-eval` with `arguments`, as its own program would.

    lm-eval 0.4.13 finds neither models nor tasks of other packages by itself, so both are made
    known before its parser runs: the model `evalsuite`, and `tasks/` beside what `--include_path`
    names. Raises SystemExit as lm-eval does, and UsageError where lm-eval is not installed.
    """
    make_ready()
    from lm_eval._cli import HarnessCLI
    from lm_eval.api.registry import model_registry
    from lm_eval.utils import setup_logging

    model_registry.register(MODEL_NAME, target=model_class())
    setup_logging()
    previous = sys.argv
    sys.argv = ["lm-eval", *arguments]
    try:
        parser = HarnessCLI()
        parsed = parser.parse_args()
        _know_own_tasks(getattr(parsed, "tasks", None))
        parser.execute(parsed)
    finally:
        sys.argv = previous


def _know_own_tasks(asked: Any) -> None:
    import lm_eval.evaluator
    import lm_eval.tasks
    from lm_eval.tasks.manager import TaskManager

    names = asked if isinstance(asked, list) else str(asked or "").split(",")
    # Indexing lm-eval's thousands of tasks takes long and is needless for our own.
    only_own = bool(asked) and set(names) <= own_tasks()

    class OwnTasksToo(TaskManager):  # type: ignore[misc]
        """lm-eval's task manager that looks into `tasks/` as well."""

        def __init__(
            self,
            verbosity: str | None = None,
            include_path: Any = None,
            include_defaults: bool = True,
            metadata: Any = None,
        ) -> None:
            given = include_path if isinstance(include_path, list) else [include_path]
            super().__init__(
                verbosity,
                [str(TASKS), *(path for path in given if path)],
                include_defaults and not only_own,
                metadata,
            )

    lm_eval.tasks.TaskManager = OwnTasksToo
    lm_eval.evaluator.TaskManager = OwnTasksToo
