"""Secrets never reach a file."""

from __future__ import annotations

import pytest

from evalsuite.redact import HIDDEN, redact

SECRET = "s3cr3t-value-0123456789"


@pytest.mark.parametrize(
    "text",
    [
        f"http://user:{SECRET}@host/v1",
        f"https://host/v1?token={SECRET}&a=1",
        f"vllm serve --api-key {SECRET} --port 8000",
        f"--hf-token={SECRET}",
        f'{{"password": "{SECRET}"}}',
        f"Authorization: Bearer {SECRET}",
        f"OPENAI_API_KEY={SECRET}",
        f"key sk-{SECRET}",
        f"hf_{SECRET.replace('-', '')}",
    ],
)
def test_a_secret_in_a_text_is_hidden(text: str) -> None:
    cleaned = redact(text)
    assert SECRET not in cleaned
    assert SECRET.replace("-", "") not in cleaned
    assert HIDDEN in cleaned


@pytest.mark.parametrize(
    "name", ["api_key", "API_KEY", "token", "hf_token", "auth-token", "password", "client_secret"]
)
def test_a_value_under_a_secret_name_is_hidden(name: str) -> None:
    assert redact({"outer": {name: SECRET}}) == {"outer": {name: HIDDEN}}


@pytest.mark.parametrize(
    "value",
    [
        {"max_tokens": 256, "eos_token": "</s>", "stop_token_ids": [1, 2], "keys": 3},
        "http://127.0.0.1:8000/v1/completions",
        "token limit of 2048 exceeded by the request",
        "KeyError: 'layers.3.key'",
        [1, 2.5, None, True],
    ],
)
def test_what_is_no_secret_stays(value: object) -> None:
    assert redact(value) == value


def test_the_word_after_a_secret_flag_is_hidden() -> None:
    words = ["serve", "--api-key", SECRET, "--hf-token", SECRET, "--port", "8000"]
    assert redact(words) == [
        "serve", "--api-key", HIDDEN, "--hf-token", HIDDEN, "--port", "8000",
    ]  # fmt: skip
