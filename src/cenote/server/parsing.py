"""From a request's bytes to a checked body. Whatever is wrong becomes an error that names it.

It knows no route: the body's class says what is expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from cenote.errors import InvalidRequest
from cenote.server.schemas.body import Body
from cenote.server.schemas.prompts import shown

_JSON = b"application/json"
_JSON_KIND = re.compile(r"application/[\w.-]+\+json")

BodyT = TypeVar("BodyT", bound=Body)


async def read(request: Request) -> bytes:
    """The request's body; answers 415 where it says that it is something else than JSON."""
    headers = request.scope["headers"]
    value = next((value for name, value in headers if name == b"content-type"), b"absent")
    if value != _JSON:
        text = value.decode("latin-1")
        kind = text.partition(";")[0].strip().lower()
        if kind != "application/json" and not _JSON_KIND.fullmatch(kind):
            raise HTTPException(415, f"Content-Type must be application/json, not {text}.")
    return await request.body()


def check(body: bytes, kind: type[BodyT] | Callable[[Mapping[str, Any]], type[BodyT]]) -> BodyT:
    """JSON text as `kind`, or as the kind that a function finds by its fields.

    Raises `InvalidRequest`.
    """
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if not body:
            raise InvalidRequest("The body is empty; send a JSON object.") from None
        raise InvalidRequest(f"The body is not valid JSON: {error}.") from None
    if not isinstance(fields, dict):
        raise InvalidRequest(f"The body must be a JSON object, not {shown(fields)}.")
    return checked(fields, kind if isinstance(kind, type) else kind(fields))


def checked(fields: Mapping[str, Any], kind: type[BodyT]) -> BodyT:
    """A body's fields as `kind`; raises `InvalidRequest`."""
    kind.refuse_names(fields)
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise _invalid(error) from None


def _invalid(error: ValidationError) -> InvalidRequest:
    """The first mistake in words; the others are counted."""
    mistakes = error.errors(include_url=False, include_context=False)
    first = mistakes[0]
    field = ".".join(str(part) for part in first["loc"] if not _is_branch(part))
    param = str(first["loc"][0]) if first["loc"] else None
    if first["type"] == "missing":
        message = f"{field} is missing."
    else:
        message = f"{field}: {first['msg']}, not {shown(first['input'])}."
    if len(mistakes) > 1:
        more = len(mistakes) - 1
        message += f" ({more} more mistake{'s' * (more > 1)} in this body.)"
    return InvalidRequest(message, param=param)


def _is_branch(part: Any) -> bool:
    """Whether a part of pydantic's location is a type and not a field (`input.list[str].0`)."""
    return isinstance(part, str) and ("[" in part or part in {"str", "int", "bool", "float"})
