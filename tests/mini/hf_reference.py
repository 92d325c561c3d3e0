"""transformers' implementation of the architecture, with a head, as the independent reference.

No postponed annotations here: transformers reads the class behind `config` from the annotation.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

transformers = pytest.importorskip("transformers", minversion="5.17")
pytest.importorskip("transformers.models.glm5_next")
from transformers import DynamicCache, GenerationMixin, Glm5NextTextConfig  # noqa: E402
from transformers.modeling_outputs import CausalLMOutputWithPast  # noqa: E402
from transformers.models.glm5_next.modeling_glm5_next import (  # noqa: E402
    Glm5NextPreTrainedModel,
    Glm5NextTextModel,
)

transformers.logging.set_verbosity_error()


class HeadedModel(Glm5NextPreTrainedModel, GenerationMixin):
    """The text model with its untied head; transformers itself has no such class."""

    config: Glm5NextTextConfig

    def __init__(self, config: Glm5NextTextConfig) -> None:
        super().__init__(config)
        self.model = Glm5NextTextModel(config)
        self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        # transformers looks for the experts in the file of the class; they are in the base's.
        return True

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        **_: Any,
    ) -> CausalLMOutputWithPast:
        """Logits [B, T, V] (of the last `logits_to_keep` rows) and the cache."""
        out = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            use_cache=use_cache,
        )
        hidden = out.last_hidden_state[:, -logits_to_keep:]
        return CausalLMOutputWithPast(
            logits=self.lm_head(hidden), past_key_values=out.past_key_values
        )


def load_reference(
    folder: Path, dtype: torch.dtype = torch.float32
) -> tuple[HeadedModel, dict[str, Any]]:
    """The reference of a model folder, and transformers' account of missing and unknown keys."""
    model, account = HeadedModel.from_pretrained(
        folder,
        dtype=dtype,
        experts_implementation="eager",
        output_loading_info=True,
        local_files_only=True,
    )
    return model.eval(), account


def reference_hidden(model: HeadedModel, tokens: list[int], chunks: list[int]) -> Tensor:
    """Last hidden states [T, H] of `tokens`, fed to a cache in pieces of these sizes."""
    cache = DynamicCache(config=model.config)
    parts, start = [], 0
    for size in chunks:
        piece = torch.tensor([tokens[start : start + size]])
        with torch.no_grad():
            out = model.model(input_ids=piece, past_key_values=cache, use_cache=True)
        parts.append(out.last_hidden_state[0])
        start += size
    if start != len(tokens):
        raise ValueError(f"{start} of {len(tokens)} tokens in the chunks")
    return torch.cat(parts)
