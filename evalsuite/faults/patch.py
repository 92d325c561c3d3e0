"""Patches: a module's or class's attribute replaced for the length of a `with` block."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

Wrap = Callable[[Any], Any]


@dataclass(frozen=True)
class Patch:
    """`target` is `module:attribute` or `module:Class.attribute`; `wrap` makes the replacement from
    what stood there."""

    target: str
    wrap: Wrap

    def place(self) -> tuple[Any, str]:
        """The object that holds the attribute, and its name. Raises LookupError where it is gone.

        A seam that was renamed must not turn a fault into a healthy run.
        """
        module, _, path = self.target.partition(":")
        owner: Any = importlib.import_module(module)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent, None)
        if owner is None or not hasattr(owner, name):
            raise LookupError(f"no seam {self.target}")
        return owner, name


@contextmanager
def installed(patches: Iterable[Patch]) -> Iterator[None]:
    """Put all patches in place, and what stood there back at the end, whatever happens."""
    with ExitStack() as stack:
        for patch in patches:
            owner, name = patch.place()
            before = getattr(owner, name)
            stack.callback(setattr, owner, name, before)
            setattr(owner, name, patch.wrap(before))
        yield


def wherever(name: str, modules: Iterable[str], wrap: Wrap) -> list[Patch]:
    """The same patch on a function under `name` in every module that imported it."""
    return [Patch(f"{module}:{name}", wrap) for module in modules]
