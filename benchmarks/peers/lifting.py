"""Functions out of a module that cannot be imported whole, as it imports its whole project."""

from __future__ import annotations

import ast
import importlib.util
import sys
import tempfile
from pathlib import Path
from types import ModuleType


def lift(source: Path, names: set[str], header: str) -> ModuleType:
    """A module of the top-level `names` of `source` and of what they use, below `header`.

    It is written to a temporary file: Triton reads the source of its functions from disk.
    """
    text = source.read_text()
    tree = ast.parse(text)
    defined = {name: node for node in tree.body for name in _defines(node)}
    wanted, queue = set(), list(names)
    while queue:
        name = queue.pop()
        if name in defined and name not in wanted:
            wanted.add(name)
            queue += [node.id for node in ast.walk(defined[name]) if isinstance(node, ast.Name)]
    kept = [node for node in tree.body if wanted & set(_defines(node))]
    lines = text.splitlines()
    parts = []
    for node in kept:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        parts.append("\n".join(lines[first - 1 : node.end_lineno]))
    path = Path(tempfile.mkdtemp()) / f"lifted_{source.stem}.py"
    path.write_text(header + "\n\n" + "\n\n\n".join(parts) + "\n")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []
