"""Which models a running server offers, and which of them is meant."""

from __future__ import annotations

import msgspec

from evalsuite.client import Client, ServerLost
from evalsuite.errors import UsageError
from evalsuite.redact import redact


class ListedModel(msgspec.Struct):
    """One line of `/v1/models`."""

    id: str
    root: str | None = None


class Listed(msgspec.Struct):
    """The page `/v1/models`."""

    data: list[ListedModel] = []


def listed_models(client: Client, url: str) -> Listed:
    """Return what the server at `url` offers.

    Raises UsageError where nobody answers there, or whoever does is no such server or refuses the
    key.
    """
    field = "engine.options.url"
    try:
        page = client.fetch(f"{url}/v1/models")
    except ServerLost as problem:
        raise UsageError(redact(str(problem)), field=field) from None
    if page.status in (401, 403):
        told = f"{redact(url)} refuses the API key (HTTP {page.status}); see api_key_env"
        raise UsageError(told, field="engine.options.api_key_env")
    if page.status != 200:
        raise UsageError(f"{redact(url)}/v1/models answers HTTP {page.status}", field=field)
    try:
        return msgspec.json.decode(page.text, type=Listed)
    except msgspec.DecodeError:
        raise UsageError(f"{redact(url)}/v1/models is no list of models", field=field) from None


def served_name(listed: Listed, asked: str | None, model: str | None, url: str) -> str:
    """Return the name under which requests ask for the model.

    `asked` has to be among those listed; without it `model` is, or the only one there is. Raises
    UsageError naming what the server offers.
    """
    names = [one.id for one in listed.data]
    if asked is not None and asked in names:
        return asked
    if asked is None:
        for one in listed.data:
            if model is not None and model in (one.id, one.root):
                return one.id
        if model is None and len(names) == 1:
            return names[0]
    wanted = asked or model
    offered = ", ".join(names) or "none"
    told = "several models are served" if wanted is None else f"no model {wanted!r}"
    raise UsageError(
        f"{told} at {redact(url)}; it offers: {offered}", field="engine.options.served_model"
    )
