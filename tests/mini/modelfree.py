"""A session whose steps run no model: its memory holds hashes of the history behind each row.

So thousands of schedules run in a minute, and a row that would have read another request's page,
a stale page or another request's recurrent state is still seen.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tiny import VOCABULARY, tiny_model, tiny_tokenizer

from evalsuite.mini.batch import RowSpec
from evalsuite.mini.config import LINEAR
from evalsuite.mini.engine import Session, SessionOptions
from evalsuite.mini.runner import Emission
from evalsuite.mini.sequence import GenerationRequest, Sequence


def answer_token(request_id: str, position: int) -> int:
    """The one right token of a request at a position, made up."""
    return 1 + random.Random(f"{request_id} {position}").randrange(VOCABULARY - 1)


@dataclass
class Story:
    """A request's whole history, known in advance: `behind[p]` stands for tokens 0 .. p."""

    tokens: list[int]
    behind: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        last = 0
        for token in self.tokens:
            last = hash((last, token))
            self.behind.append(last)


class ModelFree:
    """Drives a Session through schedules with pretended results."""

    def __init__(self, dice: random.Random, **options: Any) -> None:
        model = tiny_model(num_hidden_layers=1, layer_types=(LINEAR,), mlp_layer_types=("dense",))
        self.dice, self.k = dice, options.get("k", 0)
        self.session = Session(model, tiny_tokenizer(), SessionOptions(**options))
        self.block_size = self.session.options.block_size
        self.session.runner.run = self.run  # type: ignore[method-assign]
        self.session._restore = self.restore  # type: ignore[method-assign]
        self.rows = [[0] * self.block_size for _ in range(self.session.pool.num_blocks)]
        self.drafter = [[0] * self.block_size for _ in range(self.session.pool.num_blocks)]
        self.states: dict[int, list[int]] = {}
        self.kept: dict[int, int] = {}
        self.stories: dict[str, Story] = {}

    def add(self, request_id: str, prompt: list[int], max_tokens: int) -> Sequence:
        """Queue a request that will be answered with its right tokens."""
        answer = [answer_token(request_id, len(prompt) + i) for i in range(max_tokens + 1)]
        self.stories[request_id] = Story(prompt + answer)
        request = GenerationRequest(request_id, tuple(prompt), max_tokens)
        return self.session.scheduler.add(request)

    def restore(self) -> None:
        """Give admitted requests their state: a snapshot or nothing."""
        for sequence, snapshot in self.session.scheduler.restores:
            self.states[sequence.slot] = [self.kept[snapshot] if snapshot >= 0 else 0]
        self.session.scheduler.restores = []

    def run(
        self,
        decode: list[RowSpec],
        prefill: list[RowSpec],
        bounds: Any,
        snapshots: list[tuple[int, int, int]],
    ) -> list[Emission]:
        """Check what every row would read, write its memory, and emit right tokens."""
        specs, limits = decode + prefill, self.session.options
        assert sum(len(spec.tokens) for spec in specs) <= limits.max_num_batched_tokens
        assert len({spec.sequence.slot for spec in specs} - {0}) == len(specs), "one slot each"
        for spec in specs:
            self._check_history(spec)
        out = [self._decode(spec) for spec in decode]
        for spec in prefill:
            out += self._prefill(spec)
        for index, chunk, slot in snapshots:
            end = prefill[index].start + chunk * 16
            self.kept[slot] = self._story(prefill[index].sequence).behind[end - 1]
        return out

    def _story(self, sequence: Sequence) -> Story:
        return self.stories[sequence.request.request_id]

    def _check_history(self, spec: RowSpec) -> None:
        sequence, size, story = spec.sequence, self.block_size, self._story(spec.sequence)
        assert sequence.tokens == story.tokens[: len(sequence.tokens)], "another history"
        for start in range(0, spec.start, size):
            count, block = min(size, spec.start - start), sequence.blocks[start // size]
            assert self.rows[block][:count] == story.behind[start : start + count], "rows"
            after = story.behind[start + 1 : start + count + 1]
            assert not self.k or self.drafter[block][:count] == after, "the drafter's rows"
        state = self.states[sequence.slot][sequence.accepted]
        assert state == (story.behind[spec.start - 1] if spec.start else 0), "recurrent state"

    def _write(self, spec: RowSpec, rows: list[int], following: list[int]) -> None:
        for offset, (row, after) in enumerate(zip(rows, following, strict=True)):
            number, at = divmod(spec.start + offset, self.block_size)
            self.rows[spec.sequence.blocks[number]][at] = row
            self.drafter[spec.sequence.blocks[number]][at] = after

    def _decode(self, spec: RowSpec) -> Emission:
        story, start = self._story(spec.sequence), spec.start
        accepted, width = 0, len(spec.tokens)
        while (
            accepted + 1 < width and spec.tokens[accepted + 1] == story.tokens[start + accepted + 1]
        ):
            accepted += 1
        true = story.behind[start : start + accepted + 1]
        garbage = [self.dice.random() for _ in range(width - accepted - 1)]
        after = story.behind[start + 1 : start + accepted + 2]
        self._write(spec, true + garbage, after + garbage)  # type: ignore[operator]
        self.states[spec.sequence.slot] = true + garbage  # type: ignore[assignment]
        emitted = story.tokens[start + 1 : start + accepted + 2]
        return self._emission(spec.sequence, emitted, accepted)

    def _prefill(self, spec: RowSpec) -> list[Emission]:
        story, end = self._story(spec.sequence), spec.start + len(spec.tokens)
        self._write(spec, story.behind[spec.start : end], story.behind[spec.start + 1 : end + 1])
        self.states[spec.sequence.slot] = [story.behind[end - 1]]
        if end < len(spec.sequence.tokens):
            return []
        return [self._emission(spec.sequence, [story.tokens[end]], 0)]

    def _emission(self, sequence: Sequence, tokens: list[int], accepted: int) -> Emission:
        story, newest = self._story(sequence), len(sequence.tokens) + len(tokens) - 1
        self._draft_rows(sequence, newest)
        drafts = story.tokens[newest + 1 : newest + 1 + self.dice.randint(0, self.k)]
        drafts += [0] * (self.k - len(drafts))
        return Emission(sequence, tokens, [1.0] * len(tokens), accepted, drafts)

    def _draft_rows(self, sequence: Sequence, newest: int) -> None:
        """Later draft steps write rows behind the newest one, into the request's own blocks."""
        for position in range(newest, newest + self.k - 1):
            number, at = divmod(position, self.block_size)
            self.drafter[sequence.blocks[number]][at] = -1
