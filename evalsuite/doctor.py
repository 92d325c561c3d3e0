"""What this machine offers: device, versions, and what each arm of a suite would get."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from evalsuite.arms import Arm
from evalsuite.engines.base import Engine, Request
from evalsuite.engines.opening import open_engine
from evalsuite.errors import EXIT_PASS, EXIT_USAGE, UsageError
from evalsuite.suite import load_suite

LIBRARIES = ("torch", "triton", "transformers", "lm_eval", "datasets", "tokenizers", "safetensors",
             "numpy", "scipy", "msgspec")  # fmt: skip
# By maker: the variables that hide its GPUs from a process, and what the system shows of them.
GPU_MARKS = {
    "an NVIDIA GPU": (
        ("CUDA_VISIBLE_DEVICES",),
        ("/proc/driver/nvidia/gpus", "/dev/nvidiactl", "/dev/nvidia0"),
    ),
    "an AMD GPU": (("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), ("/dev/kfd",)),
}
HIDING = ("", "-1")
# Long enough for a step of every kind that an arm takes.
PROBE = Request("doctor", "Question: Ann has 3 hens and 4 ducks.\nAnswer:", 16, ())


@dataclass(frozen=True)
class Device:
    """What torch computes on. `name` and `capability` are torch's words for the first GPU."""

    kind: str
    name: str
    count: int
    capability: str | None
    problem: str | None


@dataclass(frozen=True)
class ArmOffer:
    """What one arm would get: its engine's settings and routes, or why it cannot run."""

    arm: str
    backend: str | None
    settings: dict[str, Any] | None
    routes: dict[str, str] | None
    problem: str | None


@dataclass(frozen=True)
class Examination:
    """All findings. Any problem makes the exit code 2."""

    device: Device
    versions: dict[str, str | None]
    suite: str
    arms: list[ArmOffer] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 where all is well, 2 where something must be put right first."""
        return EXIT_USAGE if self.problems else EXIT_PASS

    def as_json(self) -> dict[str, Any]:
        """Return the one object of `--json`."""
        return {**asdict(self), "exit_code": self.exit_code}

    def renderables(self) -> list[RenderableType]:
        """Return what a person reads, problems last."""
        found = ", ".join(f"{name} {number or '–'}" for name, number in self.versions.items())
        device = self.device
        lines: list[RenderableType] = [
            f"device: {device.kind}, {device.count} × {device.name}"
            + (f" ({device.capability})" if device.capability else ""),
            f"versions: {found}",
        ]
        if self.arms:
            lines.append(_arm_table(self.suite, self.arms))
        return lines + [f"problem: {problem}" for problem in self.problems]


def examine(suite_name: str) -> Examination:
    """Look at device and libraries, and try each arm of a suite to see what it would get."""
    device = find_device()
    versions = {"python": platform.python_version(), **library_versions()}
    problems = [device.problem] if device.problem else []
    if versions["lm_eval"] is None:
        problems.append("lm-eval is not installed: tasks cannot be run (make setup)")
    suite = load_suite(suite_name)
    offers: list[ArmOffer] = []
    try:
        engine = open_engine(suite.engine)
    except UsageError as problem:
        problems.append(f"engine: {problem}")
    else:
        try:
            offers = [offer(engine, arm) for arm in suite.parsed_arms()]
        finally:
            engine.close()
    problems += [f"{found.arm}: {found.problem}" for found in offers if found.problem]
    return Examination(device, versions, suite.name, offers, problems)


def offer(engine: Engine, arm: Arm) -> ArmOffer:
    """Start `arm`, ask it one thing, say what it got; a refusal or crash is told, not raised."""
    try:
        session = engine.start(arm)
        try:
            session.warm_up()
            session.generate([PROBE], lambda answer: None)
            evidence = session.evidence()
        finally:
            session.close()
    except Exception as problem:
        # Whatever stops an arm here is the very thing that the doctor is asked to tell.
        told = f"{type(problem).__name__}: {problem}"
        return ArmOffer(arm.name, None, None, None, told)
    settings = evidence.read_back if evidence.read_back is not None else evidence.asked
    return ArmOffer(arm.name, evidence.backend, dict(settings), evidence.routes, None)


def library_versions() -> dict[str, str | None]:
    """Return the installed version of each library, None where it is missing."""
    return {name: _version(name) for name in LIBRARIES}


def find_device() -> Device:
    """Return what torch computes on; `problem` where a GPU is there and torch cannot use it."""
    import torch

    present = gpu_in_machine()
    if not torch.cuda.is_available():
        built = torch.version.cuda or torch.version.hip
        problem = None
        if present is not None:
            why = "finds no usable driver" if built else "is a CPU build"
            problem = (
                f"{present} is in this machine, but torch {torch.__version__} {why}; install a "
                "matching torch (make setup TORCH_INDEX=… or PYTHON=…)"
            )
        name = platform.processor() or platform.machine()
        return Device("cpu", name, torch.get_num_threads(), None, problem)
    kind = "rocm" if torch.version.hip else "cuda"
    major, minor = torch.cuda.get_device_capability(0)
    return Device(
        kind,
        torch.cuda.get_device_name(0),
        torch.cuda.device_count(),
        f"{major}.{minor}",
        _broken(),
    )


def gpu_in_machine() -> str | None:
    """Return whose GPU the system shows, whatever torch thinks of it; None where it is hidden."""
    for maker, (variables, paths) in GPU_MARKS.items():
        hidden = any(os.environ.get(name) in HIDING for name in variables)
        if not hidden and any(Path(path).exists() for path in paths):
            return maker
    return None


def _broken() -> str | None:
    import torch

    try:
        ones = torch.ones(64, 64, device="cuda")
        total = float((ones @ ones).sum())
    except RuntimeError as problem:
        return f"torch sees the GPU but cannot compute on it: {problem}"
    return None if total == 64.0**3 else f"the GPU computes wrongly: {total} instead of {64.0**3}"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _arm_table(suite: str, offers: list[ArmOffer]) -> Table:
    table = Table(title=suite, title_justify="left", header_style="bold", pad_edge=False)
    for name in ("arm", "backend", "settings", "routes"):
        table.add_column(name)
    for found in offers:
        settings = found.settings or {}
        table.add_row(
            found.arm,
            found.backend or "–",
            found.problem or ", ".join(f"{key}={value}" for key, value in settings.items()),
            "; ".join(f"{kind} → {route}" for kind, route in (found.routes or {}).items()) or "–",
        )
    return table
