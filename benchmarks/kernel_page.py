"""The kernels' figures as a page for people."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_shapes import Shape


def page(
    software: dict[str, str],
    configs: dict[str, str],
    figures: list[dict[str, object]],
    shapes: list[Shape],
) -> str:
    """The results for people."""
    lines = [
        "# Sparse MLA on one GPU",
        "",
        ", ".join(f"{name} {value}" for name, value in software.items()) + ".",
        "Microseconds, medians of CUDA graph replays; top-k 2048, value width 512. Cold: lists",
        "that rotate over a cache of 1 GiB (P4k: a context of 32,768 tokens); warm: one list again",
        "and again. Every result was within a cosine difference of 1e-4 of float64 before it was",
        "timed. Floor, must and aim: see benchmarks/kernel_shapes.py.",
    ]
    for cold in (True, False):
        part = [figure for figure in figures if figure["cold"] == cold]
        if part:
            lines += ["", f"## {'Cold' if cold else 'Warm'}", "", *table(part, shapes)]
    lines += ["", "## Configurations", ""]
    lines += [f"- {name}: {label}" for name, label in configs.items()]
    reasons = sorted({f"{f['kernel']}: {f['absent']}" for f in figures if "absent" in f})
    lines += ["", "## Left out", "", *(f"- {reason}" for reason in reasons)] if reasons else []
    return "\n".join(lines) + "\n"


def table(figures: list[dict[str, object]], shapes: list[Shape]) -> Iterator[str]:
    """One line for each shape, one column for each kernel."""
    names = list(dict.fromkeys(str(figure["kernel"]) for figure in figures))
    cells = {(f["shape"], f["kernel"]): f for f in figures}
    yield "| " + " | ".join(["shape", "floor", "must", "aim", *names]) + " |"
    yield "|" + " --- |" * (4 + len(names))
    for shape in shapes:
        row = [shape.name, *map(_number, (shape.floor, shape.must, shape.aim))]
        for name in names:
            figure = cells.get((shape.name, name), {})
            row.append("wrong" if "wrong" in figure else _number(figure.get("us")))
        yield "| " + " | ".join(row) + " |"


def _number(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else "" if value is None else str(value)
