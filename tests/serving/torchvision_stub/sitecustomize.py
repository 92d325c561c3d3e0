"""On PYTHONPATH, gives every interpreter modules of the name torchvision that do nothing.

vLLM looks into a model's multimodal classes in a process of its own, and those import torchvision
by name. The CPU build comes without one that fits.
"""

from __future__ import annotations

import sys
import types
from importlib.machinery import ModuleSpec
from typing import ClassVar


class Anything(type):
    """A class that has whatever is asked for."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class Stub(types.ModuleType):
    """A module that has whatever is asked for."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})


for part in ("", ".transforms", ".transforms.functional", ".transforms.v2",
             ".transforms.v2.functional", ".io"):  # fmt: skip
    module = Stub(f"torchvision{part}")
    module.__spec__ = ModuleSpec(module.__name__, None)
    module.__version__ = "0.28.0"
    sys.modules[module.__name__] = module
    parent, _, leaf = module.__name__.rpartition(".")
    if parent:
        setattr(sys.modules[parent], leaf, module)
