"""Every error as an answer, whatever went wrong and wherever, in the words of the caller's dialect.

Which members a body has and which status stands before it is `dialects`' knowledge. A traceback
never leaves the server.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from cenote.errors import CenoteError, EngineUnavailable, InvalidRequest, Overloaded
from cenote.server.dialects import Dialect, Failure, dialect_of, error_body, name_as_sent
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
        dialect: Dialect = "cenote",
    ) -> None:
        kind = TYPES.get(status, "server_error")
        status, body = error_body(dialect, Failure(status, code, message, kind, param))
        super().__init__(orjson.dumps(body), status, headers)
        self.code = code


def error_response(error: Exception, dialect: Dialect = "cenote") -> ErrorResponse:
    """The answer to any exception; one that nobody expected becomes a 500 that tells nothing."""
    if isinstance(error, CenoteError):
        headers = _headers(error)
        return ErrorResponse(error.status, error.code, error.message, error.param, headers, dialect)
    if isinstance(error, HTTPException):
        status = error.status_code
        code = HTTP_CODES.get(status, "http_error")
        return ErrorResponse(status, code, _sentence(error), None, error.headers, dialect)
    message = "The server failed on this request. Its log has the details."
    return ErrorResponse(500, CenoteError.code, message, dialect=dialect)


def report(error: Exception, scope: Scope, metrics: Metrics) -> ErrorResponse:
    """`error_response`, counted by its code, and logged where the server is at fault."""
    _name_as_sent(error, scope)
    response = error_response(error, dialect_of(scope))
    metrics.errors.labels(response.code).inc()
    if isinstance(error, CenoteError | HTTPException):
        level = logging.WARNING if response.status_code >= 500 else logging.DEBUG
        logger.log(level, "%s %s: %s", scope["method"], scope["path"], error)
    else:
        logger.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
    return response


def _name_as_sent(error: Exception, scope: Scope) -> None:
    """Gives the error's field the name that the request has for it."""
    if isinstance(error, InvalidRequest) and error.param is not None:
        name = name_as_sent(scope, error.param)
        error.message = re.sub(rf"\b{re.escape(error.param)}\b", name, error.message, count=1)
        error.param = name


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
