"""The OpenAPI document of routes that parse their own bodies.

FastAPI makes it from function signatures; ours take the plain request, because its own parsing
costs more than a short text's embedding. So each route tells its models here.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from cenote.server.dialects import Dialect, Failure, error_body
from cenote.server.schemas.errors import ERRORS

_REFERENCE = "#/components/schemas/{model}"

# What can go wrong, by its stable code, with the status that it has outside of a dialect.
_FAILURES: dict[str, tuple[int, str]] = {
    "invalid_request": (400, "A field is wrong: the message names it, its value and the limit."),
    "empty_input": (400, "There is no input."),
    "unsupported_task": (400, "The model can't do this."),
    "unauthorized": (401, "The API key is missing or wrong."),
    "model_not_found": (404, "No such model."),
    "payload_too_large": (413, "The body has too many bytes or too many items."),
    "unsupported_media_type": (415, "The body is not application/json."),
    "overloaded": (429, "The queue is full; Retry-After says when to come again."),
    "internal_error": (500, "The server failed, or the model gave numbers that are not finite."),
    "engine_unavailable": (503, "The engine is starting again, or the server is shutting down."),
    "timeout": (504, "No answer within request_timeout."),
}
_FAILURES_WITHOUT_BODY = ("unauthorized", "engine_unavailable")

# The bodies that routes have told of, by name, until an app's document takes them up.
_bodies: dict[str, type[BaseModel]] = {}


def describe(
    answer: Any,
    body: type[BaseModel] | None = None,
    *,
    dialect: Dialect = "cenote",
    finds_model: bool = False,
    other_kind: str | None = None,
) -> dict[str, Any]:
    """Keywords for `add_api_route`: the schemas of the answer, of all errors, and of the body.

    `answer` None: the answer is no JSON; `other_kind` is the media type that it may have instead.
    `finds_model`: a route without a body that may answer 404.
    """
    failures = list(_FAILURES if body is not None else _FAILURES_WITHOUT_BODY)
    if finds_model:
        failures.append("model_not_found")
    responses = _error_responses(failures, dialect)
    responses[200] = {"description": "Success."}
    keywords: dict[str, Any] = {"responses": responses}
    if answer is not None:
        responses[200]["model"] = answer
    else:
        keywords["response_class"] = Response
    if other_kind is not None:
        is_text = other_kind.startswith("text/")
        text = {"type": "string", **({} if is_text else {"format": "binary"})}
        responses[200]["content"] = {other_kind: {"schema": text}}
    if body is not None:
        _bodies[body.__name__] = body
        schema = {"$ref": _REFERENCE.format(model=body.__name__)}
        content = {"application/json": {"schema": schema}}
        keywords["openapi_extra"] = {"requestBody": {"required": True, "content": content}}
    return keywords


def _error_responses(failures: list[str], dialect: Dialect) -> dict[int | str, dict[str, Any]]:
    """The dialect's error statuses, each with all that it can mean."""
    meanings: dict[int, list[str]] = {}
    for code in failures:
        usual, text = _FAILURES[code]
        status, _ = error_body(dialect, Failure(usual, code, "", "", None))
        meanings.setdefault(status, []).append(text)
    return {
        status: {"model": ERRORS[dialect], "description": " ".join(texts)}
        for status, texts in sorted(meanings.items())
    }


def install(app: FastAPI, *, secured: bool) -> None:
    """Completes the app's document with the request bodies and, with keys, the key's scheme."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
            )
            components = schema.setdefault("components", {})
            _add_bodies(components.setdefault("schemas", {}), _used(schema))
            if secured:
                components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
                schema["security"] = [{"key": []}]
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _used(schema: dict[str, Any]) -> list[type[BaseModel]]:
    """The bodies of the document's own routes."""
    used = []
    for methods in schema["paths"].values():
        for operation in methods.values():
            content = operation.get("requestBody", {}).get("content", {})
            reference = content.get("application/json", {}).get("schema", {}).get("$ref", "")
            body = _bodies.get(reference.rpartition("/")[2])
            if body is not None and body not in used:
                used.append(body)
    return used


def _add_bodies(schemas: dict[str, Any], bodies: list[type[BaseModel]]) -> None:
    pairs = [(body, "validation") for body in bodies]
    _, made = models_json_schema(pairs, ref_template=_REFERENCE)  # type: ignore[arg-type]
    schemas.update(made.get("$defs", {}))
