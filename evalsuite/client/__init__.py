"""A client of OpenAI-style completion and chat endpoints: many requests at once, few surprises."""

from evalsuite.client.errors import ClientError, ServerLost, ServerRefused
from evalsuite.client.loop import Client
from evalsuite.client.settings import ClientSettings, Counts, Prompt, Reply, Style, Thinking

__all__ = [
    "Client",
    "ClientError",
    "ClientSettings",
    "Counts",
    "Prompt",
    "Reply",
    "ServerLost",
    "ServerRefused",
    "Style",
    "Thinking",
]
