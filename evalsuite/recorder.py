"""One arm's answers on their way to disk: scored, appended, and covered by evidence."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from evalsuite.assess import assess
from evalsuite.engines.base import Answer, ArmSession
from evalsuite.evidence import merge_evidence
from evalsuite.harness import HarnessTask
from evalsuite.recordlog import RecordLog, recover_records
from evalsuite.records import Evidence, Item, Record
from evalsuite.redact import redact
from evalsuite.storage import read_file, write_struct

PARTIAL = "evidence.partial.json"
EVIDENCE = "evidence.json"
RECORDS = "records.jsonl"

Key = tuple[str, int]


class ArmRecorder:
    """Takes the answers of one arm and keeps its folder such that a kill loses little.

    Scoring waits until the arm's turn is over, outside the measured time, or until `flush_s`
    seconds have passed: what is killed in between is asked again. Evidence goes to disk before the
    records it stands for, so that no saved record lacks its evidence.
    """

    def __init__(
        self,
        folder: Path,
        arm: str,
        task: HarnessTask,
        items: Mapping[str, Item],
        on_record: Callable[[Record], None],
        flush_s: float = 5.0,
    ) -> None:
        self.arm = arm
        self.folder = folder / arm
        self._task = task
        self._items = items
        self._on_record = on_record
        self._flush_s = flush_s
        self._pending: list[tuple[Answer, Key, int]] = []
        self._flushed_at = time.monotonic()
        self._session: ArmSession | None = None
        if self.finished:
            # A kill may have come between the last two steps of `finish`.
            (self.folder / PARTIAL).unlink(missing_ok=True)
        self._before = self._saved_evidence()
        self.records = {
            (record.item_id, record.repeat): record
            for record in recover_records(self.folder / RECORDS)
        }
        self._log = RecordLog(self.folder / RECORDS)

    @staticmethod
    def has_finished(folder: Path, arm: str) -> bool:
        """Whether `arm` ended before in the run at `folder`: its evidence is there."""
        return (folder / arm / EVIDENCE).exists()

    @property
    def finished(self) -> bool:
        """Whether this arm has ended."""
        return (self.folder / EVIDENCE).exists()

    def attach(self, session: ArmSession) -> None:
        """Take evidence from `session` from now on."""
        self._session = session

    def take(self, answer: Answer, key: Key, block: int) -> None:
        """Take one answer; writes when the last writing was long ago."""
        self._pending.append((answer, key, block))
        if time.monotonic() - self._flushed_at >= self._flush_s:
            self.flush()

    def flush(self) -> None:
        """Score and write all that was taken."""
        if self._pending:
            write_struct(self.folder / PARTIAL, self._evidence())
        while self._pending:
            answer, key, block = self._pending[0]
            if key not in self.records:
                record = self._record(answer, key, block)
                self._log.append(record)
                self.records[key] = record
                self._on_record(record)
            self._pending.pop(0)
        self._log.sync()
        self._flushed_at = time.monotonic()

    def finish(self) -> None:
        """End the arm: everything to disk, evidence last."""
        self.flush()
        write_struct(self.folder / EVIDENCE, self._evidence())
        (self.folder / PARTIAL).unlink(missing_ok=True)

    def close(self) -> None:
        """Write what is there and close the file."""
        self._log.close()

    def _evidence(self) -> Evidence:
        assert self._session is not None, "evidence is asked for before a session is attached"
        return merge_evidence(self._before, self._session.evidence())

    def _saved_evidence(self) -> Evidence | None:
        for name in (EVIDENCE, PARTIAL):
            if (self.folder / name).exists():
                return read_file(self.folder / name, Evidence)
        return None

    def _record(self, answer: Answer, key: Key, block: int) -> Record:
        item = self._items[key[0]]
        error = _broken_margin(answer) or answer.error
        margins = None if answer.margins is None or error else list(answer.margins)
        assessed = assess(
            answer.text,
            gold=item.gold,
            token_ids=answer.token_ids,
            finish_reason=answer.finish_reason,
            question=item.question,
            error=error,
        )
        read = None if answer.text is None else self._task.read(item.item_id, answer.text)
        return Record(
            item_id=item.item_id,
            arm=self.arm,
            repeat=key[1],
            text=answer.text,
            token_ids=None if answer.token_ids is None else list(answer.token_ids),
            margins=margins,
            finish_reason=answer.finish_reason,
            answer=assessed.answer,
            strict=None if read is None else read.strict,
            flexible=None if read is None else read.flexible,
            outcome=assessed.outcome,
            rule=assessed.rule,
            confidence=assessed.confidence,
            prompt_tokens=answer.prompt_tokens,
            output_tokens=answer.output_tokens,
            started=answer.started,
            ended=answer.ended,
            ttft_s=answer.ttft_s,
            block=block,
            drafted=answer.drafted,
            accepted=answer.accepted,
            error=None if error is None else redact(error),
        )


def _broken_margin(answer: Answer) -> str | None:
    # Logits that are not numbers mean that no answer was obtained, whatever tokens came of them.
    for index, margin in enumerate(answer.margins or ()):
        if not math.isfinite(margin):
            return f"the logits at token {index} of the answer are not finite (margin {margin})"
    return None
