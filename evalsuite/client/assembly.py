"""An answer put together from its pieces."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from evalsuite.client.errors import TRY_AGAIN, NoAnswer, TryAgain
from evalsuite.client.settings import Finish, Reply, Thinking
from evalsuite.client.wire import Choice, Chunk, MetaInfo, Usage, margins_of, margins_of_meta


@dataclass(slots=True)
class Assembly:
    """The pieces of one answer so far. `begun` is when the request was first sent."""

    request_id: str
    begun: float
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    margins: list[float | None] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Usage | None = None
    first_at: float | None = None
    drafted: int | None = None
    histogram: list[int] | None = None

    def add(self, chunk: Chunk) -> None:
        """Take a piece. Raises NoAnswer where the server says that something failed, and TryAgain
        where another attempt may help: some find out that they are full after they said 200."""
        if chunk.error is not None:
            why = f"the server reports: {str(chunk.error)[:300]}"
            code = chunk.error.get("code") if isinstance(chunk.error, dict) else None
            if isinstance(code, int) and code in TRY_AGAIN and not self.started:
                raise TryAgain(str(code), why)
            raise NoAnswer("server error", why)
        if chunk.usage is not None:
            self.usage = chunk.usage
        if chunk.metrics is not None and chunk.metrics.speculative_decoding is not None:
            told = chunk.metrics.speculative_decoding
            self.drafted, self.histogram = told.num_draft_tokens, told.acceptance_histogram
        for choice in chunk.choices[:1]:
            self._choice(choice)
        if chunk.meta_info is not None:
            self._generated(chunk, chunk.meta_info)

    def _choice(self, choice: Choice) -> None:
        said = choice.delta or choice.message
        text = choice.text if said is None else said.content
        thought = None if said is None else (said.reasoning or said.reasoning_content)
        if text:
            self.texts.append(text)
        if thought:
            self.thoughts.append(thought)
        if choice.token_ids:
            self.ids += choice.token_ids
        if choice.logprobs is not None:
            self.margins += margins_of(choice.logprobs)
        if choice.finish_reason is not None:
            self.finish_reason = choice.finish_reason
        if choice.meta_info is not None:
            self._speculated(choice.meta_info)
        # Servers hold back text that could be the beginning of a stop, so a token can come without.
        # Only a chat's first piece, which names the role, stands for no token.
        told = choice.text is not None or choice.logprobs is not None
        if self.first_at is None and (text or thought or choice.token_ids or told):
            self.first_at = time.time()

    def _generated(self, chunk: Chunk, meta: MetaInfo) -> None:
        """Take all of the answer so far."""
        self.texts = [chunk.text or ""]
        self.ids = chunk.output_ids or []
        self.margins = margins_of_meta(meta)
        self.usage = Usage(meta.prompt_tokens, meta.completion_tokens)
        self._speculated(meta)
        ended = meta.finish_reason
        self.finish_reason = ended.get("type") if isinstance(ended, dict) else ended
        if self.first_at is None and (chunk.text or chunk.output_ids):
            self.first_at = time.time()

    def _speculated(self, meta: MetaInfo) -> None:
        counts = meta.spec_correct_drafts_histogram or meta.spec_accept_histogram
        drafted = meta.spec_num_proposed_drafts
        told = meta.spec_num_correct_drafts
        total = told if told is not None else meta.spec_accept_token_num
        # Versions differ in whether the histogram counts the token that is always emitted.
        if counts is not None and total in (None, sum(n * c for n, c in enumerate(counts))):
            self.histogram = counts
        if drafted is not None or meta.spec_draft_token_num is not None:
            self.drafted = drafted if drafted is not None else meta.spec_draft_token_num

    @property
    def started(self) -> bool:
        """Whether any part of the answer came."""
        return self.first_at is not None or self.finish_reason is not None

    def reply(self, thinking: Thinking | None, streamed: bool) -> Reply:
        """Return the whole answer. Raises NoAnswer where it has no end, or a failed one."""
        if self.finish_reason is None:
            raise NoAnswer("no end", "the answer has no finish_reason")
        if self.finish_reason not in ("stop", "length"):
            raise NoAnswer("no end", f"the server ended the answer with {self.finish_reason!r}")
        return self._reply("length" if self.finish_reason == "length" else "stop",
                           thinking, streamed)  # fmt: skip

    def cut(self, thinking: Thinking | None) -> Reply:
        """Return what came before our own time limit, as an answer cut by it."""
        return self._reply("length", thinking, True)

    def _reply(self, finish: Finish, thinking: Thinking | None, streamed: bool) -> Reply:
        usage = self.usage or Usage()
        counted = usage.completion_tokens
        whole = self.margins if all(margin is not None for margin in self.margins) else []
        margins = tuple(margin for margin in whole if margin is not None)
        return Reply(
            request_id=self.request_id,
            text=self._text(thinking),
            token_ids=tuple(self.ids) or None,
            margins=margins if margins and len(margins) == (len(self.ids) or counted) else None,
            finish=finish,
            prompt_tokens=usage.prompt_tokens,
            output_tokens=counted if counted is not None else (len(self.ids) or None),
            started=self.begun,
            ended=time.time(),
            ttft_s=self.first_at - self.begun if streamed and self.first_at else None,
            error=None,
            drafted=self.drafted,
            accepted_histogram=None if self.histogram is None else tuple(self.histogram),
        )

    def _text(self, thinking: Thinking | None) -> str:
        text, thought = "".join(self.texts), "".join(self.thoughts)
        if thought:
            # Thinking that was never answered is kept, so that it can be looked at: whoever reads
            # an answer from a text knows that none is given inside an open thinking block.
            opening = thinking.open if thinking is not None else "<think>"
            return text if text.strip() else opening + thought
        if thinking is None:
            return text
        before, closed, after = text.rpartition(thinking.close)
        if closed:
            return after
        if thinking.implied and not before:
            return thinking.open + text
        return text
