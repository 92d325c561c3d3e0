"""A vLLM plug-in that breaks the server it is loaded into, when a file orders it to.

vLLM finds it where this folder is on PYTHONPATH. The variable GATE_FAULT_FILE names the file; what
stands in it at the moment is the fault that is on, and none is where it is empty. So one server is
healthy first and then breaks in one way after the other, without anything that a client can see of
the order.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

DRAFTER_INPUT = "the drafter's hidden input is that of the row before"
VERIFY_ROWS = "verification rows of width 6 are computed wrongly"
NO_DRAFTS = "MTP is switched off without a word"
FAULTS = (DRAFTER_INPUT, VERIFY_ROWS, NO_DRAFTS)
# MTP5 verifies its five drafts and the token they follow; other rows have other widths.
WIDTH = 6


def ordered() -> str:
    """Return the fault that is on."""
    return Path(os.environ["GATE_FAULT_FILE"]).read_text(encoding="utf-8").strip()


def register() -> None:
    """Patch the three places; called by vLLM in each of its processes."""
    if "GATE_FAULT_FILE" not in os.environ:
        return
    from vllm.model_executor.layers.attention.mla_attention import MLAAttention
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    _patch(SpecDecodeBaseProposer, "propose", _propose)
    _patch(MLAAttention, "forward_impl", _forward_impl)
    _patch(GPUModelRunner, "take_draft_token_ids", _take_draft_token_ids)


def _patch(owner: Any, name: str, around: Any) -> None:
    original = getattr(owner, name)

    def patched(self: Any, *args: Any, **words: Any) -> Any:
        return around(original, self, *args, **words)

    setattr(owner, name, patched)


def _propose(original: Any, self: Any, *args: Any, **words: Any) -> Any:
    if ordered() == DRAFTER_INPUT:
        words["target_hidden_states"] = words["target_hidden_states"].roll(1, dims=0)
    return original(self, *args, **words)


def _forward_impl(original: Any, self: Any, *args: Any, **words: Any) -> Any:
    done = original(self, *args, **words)
    metadata, output = args[4], words["output"]
    if metadata is not None and ordered() == VERIFY_ROWS:
        starts = metadata.query_start_loc.tolist()
        for start, end in pairwise(starts):
            if end - start == WIDTH:
                output[start:end] = output[start:end].flip(0)
    return done


def _take_draft_token_ids(original: Any, self: Any) -> Any:
    drafts = original(self)
    if drafts is not None and ordered() == NO_DRAFTS:
        drafts.draft_token_ids = [[] for _ in drafts.req_ids]
    return drafts
