"""What vLLM's log tells: architecture, backends, graph modes taken back, graph statistics.

Lines as vLLM 0.20 to 0.33 writes them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from evalsuite.records import Settings

_ARCHITECTURE = re.compile(r"Resolved architecture: (\w+)")
_BACKEND = re.compile(
    r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]+) (?:attention )?backend(?: out of |\.|$)"
)
_PREFILL = re.compile(r"Using (\w+) MLA prefill backend")
_MOE = re.compile(r"Using '?([\w.-]+)'? (?:\w+ )?MoE (?:LoRA )?backend")
_DOWNGRADE = re.compile(r"setting cudagraph_mode=(\w+)|Overriding to (?:CUDAGraphMode\.)?(\w+)")
_REBUILT = re.compile(
    r"cannot update draft decode metadata in place|Fused multi-step draft decode is not supported"
)
_CONFIG = re.compile(r"Initializing a V1 LLM engine \(v([^)]*)\) with config: (.*)")
_FIELDS = {
    "enforce_eager": re.compile(r"enforce_eager=(True|False)"),
    "dtype": re.compile(r"dtype=torch\.(\w+)"),
    "tensor_parallel": re.compile(r"tensor_parallel_size=(\d+)"),
    "num_speculative_tokens": re.compile(r"num_spec_tokens=(\d+)"),
    "speculative_method": re.compile(r"SpeculativeConfig\(method='(\w+)'"),
    "graph_mode": re.compile(r"'cudagraph_mode': <CUDAGraphMode\.(\w+)"),
}
_LARGEST = re.compile(r"'max_cudagraph_capture_size': (\d+)")
_ROW = re.compile(
    r"\|\s*(\d+)\s*\|\s*(\d+)\s*\|\s*\d+\s*\|\s*(NONE|PIECEWISE|FULL)\s*\|\s*(\d+)\s*\|"
)


@dataclass(slots=True)
class GraphSteps:
    """Target steps by how they ran. `eager_small`: without graph although a captured size fits."""

    full: int = 0
    piecewise: int = 0
    eager: int = 0
    eager_small: int = 0

    @property
    def replays(self) -> int:
        """Steps that replayed graphs."""
        return self.full + self.piecewise


@dataclass(slots=True)
class VllmLog:
    """The log so far."""

    architectures: list[str] = field(default_factory=list)
    backends: set[str] = field(default_factory=set)
    prefill: set[str] = field(default_factory=set)
    moe: set[str] = field(default_factory=set)
    settings: Settings = field(default_factory=dict)
    downgraded: str | None = None
    rebuilt: bool = False
    tables: int = 0
    heading: bool = False
    steps: GraphSteps = field(default_factory=GraphSteps)
    largest: int | None = None

    def on_line(self, line: str) -> None:
        """Take one line."""
        if (row := _ROW.search(line)) is not None:
            # A table counts from its first row on: a head alone tells of no step.
            self.tables += self.heading
            self.heading = False
            self._count(int(row[1]), row[3], int(row[4]))
        elif "CUDAGraph Stats" in line:
            self.heading = True
        elif (found := _ARCHITECTURE.search(line)) is not None:
            if found[1] not in self.architectures:
                self.architectures.append(found[1])
        elif (found := _PREFILL.search(line)) is not None:
            self.prefill.add(found[1])
        elif (found := _MOE.search(line)) is not None:
            self.moe.add(found[1])
        elif (found := _BACKEND.search(line)) is not None:
            self.backends.add(found[1])
        elif (found := _CONFIG.search(line)) is not None:
            self._configured(found[2])
        elif _REBUILT.search(line) is not None:
            self.rebuilt = True
        if (found := _DOWNGRADE.search(line)) is not None:
            self.downgraded = found[1] or found[2]

    def _configured(self, text: str) -> None:
        for name, pattern in _FIELDS.items():
            if (found := pattern.search(text)) is not None:
                self.settings[name] = _value(found[1])
        self.settings.setdefault("num_speculative_tokens", 0)
        largest = _LARGEST.search(text)
        self.largest = int(largest[1]) if largest is not None else None

    def _count(self, tokens: int, mode: str, count: int) -> None:
        if mode == "FULL":
            self.steps.full += count
        elif mode == "PIECEWISE":
            self.steps.piecewise += count
        else:
            self.steps.eager += count
            if self.largest is None or tokens <= self.largest:
                self.steps.eager_small += count


def _value(text: str) -> str | int | bool:
    if text in ("True", "False"):
        return text == "True"
    return int(text) if text.isdecimal() else text
