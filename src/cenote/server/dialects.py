"""The dialects that clients speak: which one a request is in, and what its errors look like.

A dialect's prefix (`/cohere/…`) settles it, and so does a path that only one dialect has. All else
is answered with one body that OpenAI's, Cohere's and Voyage's clients can read alike: `error` for
the first, `message` for the second, `detail` for the third. It knows no route's fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

from starlette.types import Scope

Dialect = Literal["cenote", "vllm", "cohere", "jina", "voyage", "tei", "infinity", "ollama"]

PREFIXES: dict[str, Dialect] = {
    "vllm": "vllm",
    "cohere": "cohere",
    "jina": "jina",
    "voyage": "voyage",
    "tei": "tei",
    "infinity": "infinity",
    "ollama": "ollama",
    "api": "ollama",
    "embed": "tei",
    "embed_all": "tei",
    "embed_sparse": "tei",
    "predict": "tei",
    "similarity": "tei",
    "decode": "tei",
    "info": "tei",
    "": "tei",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """One error before it is put into words of a dialect."""

    status: int
    code: str
    message: str
    type: str
    param: str | None


def dialect_of(scope: Scope) -> Dialect:
    """The dialect of a request: what its route found in the body, else what its path says."""
    found = scope.get("state", {}).get("dialect")
    if found is not None:
        return cast(Dialect, found)
    return PREFIXES.get(scope["path"].split("/", 2)[1], "cenote")


def set_dialect(scope: Scope, dialect: Dialect) -> None:
    """Says that a request on a path of several dialects is in this one."""
    scope.setdefault("state", {})["dialect"] = dialect


# What other dialects call a field, for errors that name it by the usual name.
_OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "dimensions": ("output_dimension",),
    "input_type": ("task",),
    "top_n": ("top_k",),
}


def set_fields(scope: Scope, fields: set[str]) -> None:
    """Says which fields a request has sent."""
    scope.setdefault("state", {})["fields"] = fields


def name_as_sent(scope: Scope, param: str) -> str:
    """The name under which the request has sent the field `param`."""
    sent = scope.get("state", {}).get("fields", ())
    names = (param, *_OTHER_NAMES.get(param, ()))
    return next((name for name in names if name in sent), param)


def error_body(dialect: Dialect, failure: Failure) -> tuple[int, dict[str, Any]]:
    """The status and the body of an error in a dialect."""
    return _BODIES[dialect](failure)


def _nested(failure: Failure) -> dict[str, Any]:
    return {
        "message": failure.message,
        "type": failure.type,
        "param": failure.param,
        "code": failure.code,
    }


def _cenote(failure: Failure) -> tuple[int, dict[str, Any]]:
    message = failure.message
    body = {"error": _nested(failure), "detail": message, "message": message}
    return failure.status, body


def _openai(failure: Failure) -> tuple[int, dict[str, Any]]:
    return failure.status, {"error": _nested(failure)}


# vLLM tells the status as `code`, and the class of its error as `type`.
_VLLM_TYPES = {
    400: "BadRequestError",
    401: "Unauthorized",
    404: "NotFoundError",
    429: "TooManyRequestsError",
    503: "ServiceUnavailableError",
}


def _vllm(failure: Failure) -> tuple[int, dict[str, Any]]:
    status = failure.status
    fallback = "BadRequestError" if status < 500 else "InternalServerError"
    kind = _VLLM_TYPES.get(status, fallback)
    return status, {"error": {**_nested(failure), "type": kind, "code": status}}


def _message(failure: Failure) -> tuple[int, dict[str, Any]]:
    return failure.status, {"message": failure.message}


def _detail(failure: Failure) -> tuple[int, dict[str, Any]]:
    return failure.status, {"detail": failure.message}


def _ollama(failure: Failure) -> tuple[int, dict[str, Any]]:
    return failure.status, {"error": failure.message}


# TEI's own statuses. What is wrong with a field is 422 there, and a model's failure 424.
_TEI: dict[str, tuple[int, str]] = {
    "empty_input": (400, "Empty"),
    "invalid_request": (422, "Validation"),
    "input_too_long": (422, "Validation"),
    "unsupported_input": (422, "Tokenizer"),
    "unsupported_task": (424, "Backend"),
    "payload_too_large": (413, "Validation"),
    "overloaded": (429, "Overloaded"),
    "non_finite_result": (424, "Backend"),
    "internal_error": (424, "Backend"),
    "engine_unavailable": (503, "Unhealthy"),
    "timeout": (424, "Backend"),
}


def _tei(failure: Failure) -> tuple[int, dict[str, Any]]:
    status, kind = _TEI.get(failure.code, (failure.status, "Validation"))
    return status, {"error": failure.message, "error_type": kind}


_BODIES: dict[Dialect, Callable[[Failure], tuple[int, dict[str, Any]]]] = {
    "cenote": _cenote,
    "vllm": _vllm,
    "cohere": _message,
    "jina": _detail,
    "voyage": _detail,
    "tei": _tei,
    "infinity": _openai,
    "ollama": _ollama,
}
