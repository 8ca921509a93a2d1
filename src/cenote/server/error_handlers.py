"""Every error as one body, whatever went wrong and wherever.

The body is OpenAI's (`error` with message, type, param and code), with the message again at the top
level as `detail` and `message`: Voyage's client reads the first, Cohere's the second. A traceback
never leaves the server.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from cenote.errors import CenoteError, EngineUnavailable, Overloaded
from cenote.server.metrics import Metrics

logger = logging.getLogger(__name__)

# The dead engine is started again in about this many seconds.
RESTART_SECONDS = 2

TYPES: dict[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}

# Errors that HTTP itself brings have no class of their own in `cenote.errors`.
HTTP_CODES: dict[int, str] = {
    404: "not_found",
    405: "method_not_allowed",
    415: "unsupported_media_type",
    504: "timeout",
}


class ErrorResponse(Response):
    """One error as JSON; `code` is the stable code that the metrics count by."""

    media_type = "application/json"

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        kind = TYPES.get(status, "server_error")
        error: dict[str, Any] = {"message": message, "type": kind, "param": param, "code": code}
        body = orjson.dumps({"error": error, "detail": message, "message": message})
        super().__init__(body, status, headers)
        self.code = code


def error_response(error: Exception) -> ErrorResponse:
    """The answer to any exception; one that nobody expected becomes a 500 that tells nothing."""
    if isinstance(error, CenoteError):
        headers = _headers(error)
        return ErrorResponse(error.status, error.code, error.message, error.param, headers)
    if isinstance(error, HTTPException):
        code = HTTP_CODES.get(error.status_code, "http_error")
        return ErrorResponse(error.status_code, code, _sentence(error), headers=error.headers)
    message = "The server failed on this request. Its log has the details."
    return ErrorResponse(500, CenoteError.code, message)


def report(error: Exception, scope: Scope, metrics: Metrics) -> ErrorResponse:
    """`error_response`, counted by its code, and logged where the server is at fault."""
    response = error_response(error)
    metrics.errors.labels(response.code).inc()
    if isinstance(error, CenoteError | HTTPException):
        level = logging.WARNING if response.status_code >= 500 else logging.DEBUG
        logger.log(level, "%s %s: %s", scope["method"], scope["path"], error)
    else:
        logger.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
    return response


def _headers(error: CenoteError) -> dict[str, str]:
    if isinstance(error, Overloaded):
        return {"Retry-After": str(error.retry_after)}
    if isinstance(error, EngineUnavailable):
        return {"Retry-After": str(RESTART_SECONDS)}
    return {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}


def _sentence(error: HTTPException) -> str:
    if error.status_code == 404:
        return "There is no such route. GET /openapi.json lists them all."
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return f"This route does not take that method. Allowed: {allowed}"
    return str(error.detail)
