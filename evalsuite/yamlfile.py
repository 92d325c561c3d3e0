"""Strict reading of a YAML file into a struct, with errors that name key and line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

import msgspec
import yaml

from evalsuite.errors import UsageError

T = TypeVar("T")

_AT = re.compile(r" - at `(?:key in )?\$\.?(?P<path>[^`]*)`")
_NAMED = re.compile(r"(?:unknown|required) field `([^`]+)`|^(\w+)(?:: | must )")


def read_yaml(path: Path, kind: type[T]) -> T:
    """Return the YAML file at `path` as a `kind`.

    Raises UsageError naming file, line and key for a missing file, bad YAML, a key given twice, an
    unknown key, a missing one or a value of another type.
    """
    text = _text(path)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark
        line = None if mark is None else mark.line + 1
        raise UsageError(f"not YAML: {problem.problem}", file=path, line=line) from None
    except yaml.YAMLError as problem:
        raise UsageError(f"not YAML: {problem}", file=path) from None
    if node is None:
        raise UsageError("is empty", file=path)
    lines: dict[str, int] = {}
    _collect(node, "", lines, path)
    try:
        return msgspec.convert(data, type=kind, strict=True)
    except msgspec.ValidationError as problem:
        raise _placed(problem, lines, path) from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError("no such file", file=path) from None
    except UnicodeDecodeError as problem:
        raise UsageError(f"not UTF-8: {problem.reason}", file=path) from None
    except OSError as problem:
        raise UsageError(f"cannot be read: {problem.strerror}", file=path) from None


def _collect(node: yaml.Node, key: str, lines: dict[str, int], path: Path) -> None:
    lines.setdefault(key, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for name_node, value in node.value:
            name = str(name_node.value)
            line = name_node.start_mark.line + 1
            inner = f"{key}.{name}" if key else name
            if name in seen:
                raise UsageError("is given twice", file=path, line=line, field=inner)
            seen.add(name)
            lines[inner] = line
            _collect(value, inner, lines, path)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _collect(value, f"{key}[{index}]", lines, path)


def _placed(problem: msgspec.ValidationError, lines: dict[str, int], path: Path) -> UsageError:
    message = str(problem)
    at = _AT.search(message)
    key = at["path"] if at else ""
    named = _NAMED.search(message)
    if named:
        name = named[1] or named[2]
        key = f"{key}.{name}" if key else name
    key = key.replace("[...]", "")
    line = lines.get(key) or lines.get(key.rpartition(".")[0])
    text = _AT.sub("", message).removeprefix(f"{named[2]}: " if named else "")
    return UsageError(text[:1].lower() + text[1:], file=path, line=line, field=key or None)
