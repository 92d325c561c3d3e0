"""Prompts as chats: what lm-eval makes of shots and question, as messages instead of a text."""

from __future__ import annotations

import json
from typing import Any

from evalsuite.protocol import Chat

# (role, content), in order.
Messages = tuple[tuple[str, str], ...]


def chat_arguments(chat: Chat | None) -> dict[str, Any]:
    """Return what lm-eval's `build_all_requests` needs in order to build chats; nothing for text.

    The server applies its own template, so lm-eval's place for one only writes the messages down.
    """
    if chat is None:
        return {}
    return {
        "apply_chat_template": True,
        "fewshot_as_multiturn": chat.turns,
        "chat_template": _written,
        "system_instruction": chat.system,
    }


def _written(messages: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
    return json.dumps([[m["role"], m["content"]] for m in messages], ensure_ascii=False)


def read_messages(prompt: str) -> Messages:
    """Return the messages that a prompt built by `chat_arguments` holds."""
    return tuple((str(role), str(content)) for role, content in json.loads(prompt))


def prefix_of(prompt: str, messages: Messages | None, bare: str) -> str | None:
    """Return what stands before the question `bare`; None where the prompt does not end in it.

    Of a chat it is the JSON of the turns before, and of whatever the last turn holds before.
    """
    text = prompt if messages is None else messages[-1][1]
    if not text.endswith(bare):
        return None
    before = text[: len(text) - len(bare)]
    if messages is None:
        return before
    return json.dumps([*messages[:-1], before], ensure_ascii=False)
