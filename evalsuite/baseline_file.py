"""What a baseline looks like on disk.

    baselines/<suite>/<dtype>.json               Baseline, or Published where only figures are known
    baselines/<suite>/<dtype>.answers.jsonl.gz   ItemAnswers, a line for each item

Accuracy, answers and acceptance hold on any hardware; kernel routes and times are kept by hardware
class. A run contributes one unit of answers for each of its repeats.
"""

from __future__ import annotations

import gzip
import hashlib
import io
from pathlib import Path

import msgspec

from evalsuite.errors import DamagedRun, UsageError
from evalsuite.protocol import Protocol
from evalsuite.records import Confidence, DiskStruct, Outcome, Settings
from evalsuite.storage import decode, encode, parse_lines, write_atomic

SCHEMA = 1


class Shares(DiskStruct, frozen=True):
    """Counts of how an arm's answers relate to eager's: over token ids and over texts.

    Of `compared` answers `diverged` differ in a token, `large` of them at a logit margin above
    `margin`; of `texts` answers `different` differ in their text.
    """

    margin: float
    compared: int
    diverged: int
    large: int
    texts: int
    different: int


class Drifted(DiskStruct, frozen=True):
    """Of `compared` answers `drifted` have a margin farther than `limit` from eager's, over the
    tokens before the first that differs."""

    limit: float
    compared: int
    drifted: int


class Drafts(DiskStruct, frozen=True):
    """Verification steps with drafts, and in how many of them the draft at a position held."""

    drafts: int
    accepted: list[int]


class ArmFigures(DiskStruct, frozen=True):
    """One arm of one accepted run."""

    accuracy: float
    outcomes: dict[str, int]
    shares: Shares | None
    drafts: Drafts | None
    drifted: Drifted | None = None


class AcceptedRun(DiskStruct, frozen=True):
    """One accepted run. `digest` is over its records, so that none is accepted twice."""

    digest: str
    created: str
    repeats: int
    engine: str
    engine_version: str | None
    hardware: Settings
    software: Settings
    arms: dict[str, ArmFigures]


class HardwareRun(DiskStruct, frozen=True):
    """Times of one accepted run: seconds by arm over all its answers, ratios by arm."""

    answers: int
    concurrency: int | None
    seconds: dict[str, float]
    ratios: dict[str, float]


class HardwareClass(DiskStruct, frozen=True):
    """What holds on one class of hardware alone: kernel routes by arm and row kind, and times."""

    routes: dict[str, dict[str, str]]
    runs: list[HardwareRun]


class Accept(DiskStruct, frozen=True):
    """One act of acceptance. `old` and `new` are accuracies by arm, `failing` the checks that the
    run failed when it was forced in; `replaced` that earlier runs were dropped."""

    when: str
    who: str
    why: str
    digest: str
    forced: bool
    failing: list[str]
    replaced: bool
    old: dict[str, float]
    new: dict[str, float]


class Baseline(DiskStruct, frozen=True, tag_field="kind", tag="accepted"):
    """Accepted runs, reduced. `items` counts the items of the answers file."""

    schema: int
    suite: str
    dtype: str
    protocol: Protocol
    fingerprint: str
    model_hash: str
    items: int
    runs: list[AcceptedRun]
    hardware: dict[str, HardwareClass]
    history: list[Accept]

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema {self.schema} is not {SCHEMA}, the one this version reads")
        if self.fingerprint != self.protocol.fingerprint():
            raise ValueError("fingerprint does not belong to protocol")
        if not self.runs:
            raise ValueError("runs is empty")


class PublishedArm(DiskStruct, frozen=True):
    """What somebody published of one arm; null where they did not."""

    accuracy: float | None
    seconds: float | None
    acceptance: float | None


class Published(DiskStruct, frozen=True, tag_field="kind", tag="published"):
    """Aggregates without items under a protocol that is not known: shown, never a reason."""

    schema: int
    suite: str
    dtype: str
    source: str
    hardware: str
    items: int
    note: str
    arms: dict[str, PublishedArm]


class Cell(msgspec.Struct, frozen=True, array_like=True):
    """One answer: index into the item's texts, outcome, the rule that saw something, the mean of
    its margins, and its draft tokens. Files of earlier versions end behind `confidence`."""

    text: int | None
    outcome: Outcome
    rule: str | None
    confidence: Confidence | None
    margin: float | None = None
    drafted: int | None = None
    accepted: int | None = None


class ItemAnswers(DiskStruct, frozen=True):
    """All accepted answers to one item: each arm's cells in the order of runs and repeats."""

    item_id: str
    texts: list[str]
    arms: dict[str, list[Cell]]


def answers_path(path: Path) -> Path:
    """Return the file of answers that belongs to the baseline file `path`."""
    return path.with_name(f"{path.stem}.answers.jsonl.gz")


def read_baseline(path: Path) -> Baseline | Published:
    """Read a baseline file. Raises UsageError naming file and field for whatever is wrong."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        message = f"baseline cannot be read: {problem.strerror}"
        raise UsageError(message, file=path) from None
    found: Baseline | Published = decode(
        data,
        Baseline | Published,  # type: ignore[arg-type]
        path,
        error=UsageError,
    )
    return found


def read_answers(path: Path, baseline: Baseline) -> dict[str, ItemAnswers]:
    """Read the answers beside the baseline file `path`, by item id.

    Raises UsageError where the file is missing, torn, or does not fit the baseline.
    """
    file = answers_path(path)
    try:
        data = gzip.decompress(file.read_bytes())
    except (OSError, EOFError, gzip.BadGzipFile, ValueError) as problem:
        raise UsageError(f"answers of the baseline cannot be read: {problem}", file=file) from None
    try:
        rows = list(parse_lines(data, ItemAnswers, file))
    except DamagedRun as problem:
        raise UsageError(
            problem.message, file=file, line=problem.line, field=problem.field
        ) from None
    units = sum(run.repeats for run in baseline.runs)
    arms = set(baseline.runs[0].arms)
    for line, row in enumerate(rows, start=1):
        if set(row.arms) != arms or any(len(cells) != units for cells in row.arms.values()):
            message = f"does not hold {units} answers of each arm"
            raise UsageError(message, file=file, line=line, field="arms")
    found = {row.item_id: row for row in rows}
    if len(found) != len(rows) or len(rows) != baseline.items:
        message = f"holds {len(found)} items where the baseline names {baseline.items}"
        raise UsageError(message, file=file)
    return found


def write_baseline(path: Path, baseline: Baseline, answers: list[ItemAnswers]) -> None:
    """Write both files, answers first. The bytes depend on the content alone."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, filename="", compresslevel=9) as packed:
        for row in answers:
            packed.write(encode(row) + b"\n")
    write_atomic(answers_path(path), buffer.getvalue())
    write_atomic(path, msgspec.json.format(encode(baseline), indent=1) + b"\n")


def digest_of(chunks: list[bytes]) -> str:
    """Return 16 hex digits over `chunks`."""
    whole = hashlib.sha256()
    for chunk in chunks:
        whole.update(len(chunk).to_bytes(8))
        whole.update(chunk)
    return whole.hexdigest()[:16]
