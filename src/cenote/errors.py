"""The one error tree. Every error a user can cause says which field, which value and which limit.

    CenoteError                         500 internal_error
    ├── InvalidRequest                  400 invalid_request        a field is wrong
    │   ├── InputTooLong                400 input_too_long         names the length and the limit
    │   ├── EmptyInput                  400 empty_input            nothing to work on
    │   ├── UnsupportedTask             400 unsupported_task       lists what the model can do
    │   └── UnsupportedInput            400 unsupported_input      e.g. images to a text model
    ├── Unauthorized                    401 unauthorized
    ├── ModelNotFound                   404 model_not_found
    ├── PayloadTooLarge                 413 payload_too_large
    ├── Overloaded                      429 overloaded             carries retry_after (seconds)
    ├── NonFiniteResult                 500 non_finite_result      the model gave NaN or infinity
    ├── EngineUnavailable               503 engine_unavailable     dead, restarting or draining
    └── ModelLoadError                  start-up only              a checkpoint that can't be served

It knows nothing of HTTP beyond the number: the server turns an error into each dialect's body.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar


class CenoteError(Exception):
    """Base of all errors raised on purpose. `status` is an HTTP status, `code` is stable."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InvalidRequest(CenoteError):
    """A value that the caller sent can't be accepted; `param` names the field."""

    status = 400
    code = "invalid_request"


class InputTooLong(InvalidRequest):
    """A prompt has more tokens than the model (or a limit of the request) takes."""

    code = "input_too_long"

    def __init__(
        self,
        length: int,
        limit: int,
        *,
        param: str | None = "input",
        at_least: bool = False,
        place: str | None = None,
    ) -> None:
        some = "at least " if at_least else ""
        where = f" ({place})" if place else ""
        super().__init__(
            f"This model's maximum context length is {limit} tokens. However, your prompt contains "
            f"{some}{length} tokens{where}. Shorten it, or set truncate_prompt_tokens.",
            param=param,
        )
        self.length = length
        self.limit = limit


class EmptyInput(InvalidRequest):
    """There is nothing to work on: no input, or an empty one where that is refused."""

    code = "empty_input"


class UnsupportedTask(InvalidRequest):
    """The served model can't do the task that was asked for."""

    code = "unsupported_task"

    def __init__(self, task: str, supported: Iterable[str]) -> None:
        super().__init__(
            f"Unsupported task: {task!r} Supported tasks: {sorted(supported)}", param="task"
        )
        self.task = task


class UnsupportedInput(InvalidRequest):
    """The input's kind (an image, a pair, token ids) is not one that this model takes."""

    code = "unsupported_input"


class Unauthorized(CenoteError):
    """The API key is missing or wrong."""

    status = 401
    code = "unauthorized"


class ModelNotFound(CenoteError):
    """No served model, alias or adapter has that name."""

    status = 404
    code = "model_not_found"

    def __init__(self, name: str, served: Iterable[str]) -> None:
        super().__init__(
            f"The model {name!r} does not exist. Served models: {sorted(served)}", param="model"
        )


class PayloadTooLarge(CenoteError):
    """The body has more bytes, or the request more items, than the server takes."""

    status = 413
    code = "payload_too_large"


class Overloaded(CenoteError):
    """The queue is full. `retry_after` is a whole number of seconds."""

    status = 429
    code = "overloaded"

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NonFiniteResult(CenoteError):
    """The model produced NaN or infinity; such numbers are never sent as a result."""

    code = "non_finite_result"


class EngineUnavailable(CenoteError):
    """The engine process died, is starting again, or the server is draining."""

    status = 503
    code = "engine_unavailable"


class ModelLoadError(CenoteError):
    """A model can't be found, read or served; raised at start-up, never for a request."""

    code = "model_load_error"


# What crosses the process boundary is a code and a message; this finds the class again.
BY_CODE: dict[str, type[CenoteError]] = {
    cls.code: cls
    for cls in (
        InvalidRequest,
        InputTooLong,
        UnsupportedTask,
        UnsupportedInput,
        NonFiniteResult,
        EngineUnavailable,
        ModelLoadError,
    )
}


def from_code(code: str, message: str) -> CenoteError:
    """The error that was raised in the engine process, from its stable code and its message."""
    cls = BY_CODE.get(code, CenoteError)
    error = cls.__new__(cls)  # Some classes take the parts of a message; here it is whole.
    CenoteError.__init__(error, message)
    return error
