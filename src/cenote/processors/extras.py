"""The one place that puts a request's engine-level extras into the engine prompts it makes.

A request carries extras of two levels. Engine level (`cache_salt`, `mm_processor_kwargs`) belongs
in the prompt of EVERY engine request; template level (`chat_template_kwargs`) goes to the template
and is not known here. It knows nothing of tasks, text or scoring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from cenote.engine.messages import EnginePrompt
from cenote.errors import InvalidRequest
from cenote.processors.inputs import PromptOptions
from cenote.processors.validation import check_message, check_type

MAX_SALT_CHARACTERS = 1024


@dataclass(frozen=True, slots=True)
class EngineExtras:
    """The engine-level extras of one request; None: not given, so no key is set."""

    cache_salt: str | None = None
    mm_processor_kwargs: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, options: PromptOptions) -> EngineExtras:
        """The extras of a request, checked. Raises `InvalidRequest` naming the field.

        Keys of `mm_processor_kwargs` whose value is null are dropped, and so is an empty map.
        """
        check_salt(options.cache_salt)
        check_type(options.mm_processor_kwargs, "mm_processor_kwargs", Mapping, "a map")
        media = {k: v for k, v in (options.mm_processor_kwargs or {}).items() if v is not None}
        if media:
            check_message(media, "mm_processor_kwargs")
        return cls(cache_salt=options.cache_salt, mm_processor_kwargs=media or None)

    def put_into(self, prompt: EnginePrompt) -> EnginePrompt:
        """`prompt` with these extras on the part that the encoder reads; the given one stays.

        In a nested prompt that part is the innermost `encoder`, otherwise the prompt itself. Each
        prompt gets its own copy of the map.
        """
        if prompt.encoder is not None:
            return msgspec.structs.replace(prompt, encoder=self.put_into(prompt.encoder))
        changes: dict[str, Any] = {}
        if self.cache_salt is not None:
            changes["cache_salt"] = self.cache_salt
        if self.mm_processor_kwargs is not None:
            changes["mm_processor_kwargs"] = dict(self.mm_processor_kwargs)
        return msgspec.structs.replace(prompt, **changes) if changes else prompt


def check_salt(salt: object) -> None:
    """Refuses a `cache_salt` that is not a string of 1 to 1024 characters (None: not given)."""
    if salt is None:
        return
    if not isinstance(salt, str) or not salt:
        raise InvalidRequest(
            f"cache_salt must be a non-empty string, not {salt!r}.", param="cache_salt"
        )
    if len(salt) > MAX_SALT_CHARACTERS:
        raise InvalidRequest(
            f"cache_salt has {len(salt)} characters; the limit is {MAX_SALT_CHARACTERS}.",
            param="cache_salt",
        )
