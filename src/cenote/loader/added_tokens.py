"""Tokens that a folder adds to its vocabulary, in the files from before tokenizer.json.

`added_tokens_decoder` of tokenizer_config.json, or added_tokens.json. It knows no model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from cenote.config.files import read_object
from cenote.errors import ModelLoadError

_FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")


def add_listed_tokens(backend: Backend, folder: Path, settings: Mapping[str, Any]) -> None:
    """Adds the tokens that `folder` lists, under the ids that it gives them.

    `settings` is tokenizer_config.json. Raises `ModelLoadError` for a token with another id than
    its own, or the next free one.
    """
    for token_id, token in sorted(_listed(folder, settings).items()):
        backend.add_tokens([token])
        found = backend.token_to_id(token.content)
        if found != token_id:
            raise ModelLoadError(
                f"{folder}: the added token {token.content!r} has id {token_id}, but in the "
                f"vocabulary it is {found}."
            )


def _listed(folder: Path, settings: Mapping[str, Any]) -> dict[int, AddedToken]:
    """The tokens by id."""
    decoder = settings.get("added_tokens_decoder")
    try:
        if decoder:
            return {int(key): _token(value) for key, value in decoder.items()}
        older = read_object(folder / "added_tokens.json")
        return {int(token_id): AddedToken(text) for text, token_id in older.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelLoadError(
            f"{folder}: added_tokens_decoder or added_tokens.json is broken: {error}"
        ) from error


def _token(value: Mapping[str, Any]) -> AddedToken:
    flags = {name: bool(value[name]) for name in _FLAGS if name in value}
    return AddedToken(value["content"], **flags)
