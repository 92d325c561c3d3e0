"""The one package that knows lm-eval: its tasks, its model class, its command line.

lm-eval takes seconds to import, so it is imported inside the functions that need it.
"""

from evalsuite.harness.loading import load_task
from evalsuite.harness.task import HarnessTask, Readings, TaskItem, drawn, item_id, select

__all__ = ["HarnessTask", "Readings", "TaskItem", "drawn", "item_id", "load_task", "select"]
