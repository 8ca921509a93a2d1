"""The OpenAPI document of routes that parse their own bodies.

FastAPI makes it from function signatures; ours take the plain request, because its own parsing
costs more than a short text's embedding. So each route tells its models here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from cenote.server.schemas.system import ErrorResponse

_REFERENCE = "#/components/schemas/{model}"

_ERRORS = {
    400: "A field is wrong: the message names it, its value and the limit.",
    401: "The API key is missing or wrong.",
    404: "No such model.",
    413: "The body has too many bytes or too many items.",
    415: "The body is not application/json.",
    429: "The queue is full; Retry-After says when to come again.",
    500: "The server failed, or the model gave numbers that are not finite.",
    503: "The engine is starting again, or the server is shutting down.",
}


def describe(answer: type[BaseModel] | None, body: type[BaseModel] | None = None) -> dict[str, Any]:
    """Keywords for `add_api_route`: the schemas of the answer, of all errors, and of the body."""
    codes = _ERRORS if body is not None else {401: _ERRORS[401], 503: _ERRORS[503]}
    responses: dict[int, Any] = {
        code: {"model": ErrorResponse, "description": text} for code, text in codes.items()
    }
    if answer is not None:
        responses[200] = {"model": answer, "description": "Success."}
    keywords: dict[str, Any] = {"responses": responses}
    if body is not None:
        schema = {"$ref": _REFERENCE.format(model=body.__name__)}
        content = {"application/json": {"schema": schema}}
        keywords["openapi_extra"] = {"requestBody": {"required": True, "content": content}}
    return keywords


def install(app: FastAPI, bodies: Sequence[type[BaseModel]], *, secured: bool) -> None:
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
            for body in bodies:
                _add(components.setdefault("schemas", {}), body)
            if secured:
                components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
                schema["security"] = [{"key": []}]
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _add(schemas: dict[str, Any], body: type[BaseModel]) -> None:
    schema = body.model_json_schema(ref_template=_REFERENCE)
    schemas.update(schema.pop("$defs", {}))
    schemas[body.__name__] = schema
