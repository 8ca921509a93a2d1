"""What leaves the engine for a run that is over. It knows no scheduling and no transport."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import numpy as np

from cenote.engine.messages import EngineOutput
from cenote.engine.request import Ended
from cenote.errors import CenoteError
from cenote.step import PooledResult

logger = logging.getLogger(__name__)


def guilty(request_id: str, error: Exception) -> PooledResult:
    """The result of a request that made a step of its own fail."""
    if not isinstance(error, CenoteError):
        logger.error("request %s failed", request_id, exc_info=error)
        error = CenoteError(f"The model failed on this input: {type(error).__name__}: {error}")
    return PooledResult(request_id, error=error)


def failure(request_id: str, error: CenoteError) -> EngineOutput:
    """The output of a request that has failed."""
    return EngineOutput(request_id, error_code=error.code, error_message=error.message)


def outputs_of(ended: Ended, now: float) -> list[EngineOutput]:
    """One output for each waiter of a run that ended at `now` (seconds)."""
    request, result = ended.request, ended.result
    if result.error is not None or result.data is None:
        error = result.error or CenoteError("The runner gave no result; this is a bug.")
        return [failure(request_id, error) for request_id in request.waiters]
    array, started = result.data, request.started
    data, dtype, shape = array.tobytes(), _name(array.dtype), array.shape
    indices = None if result.indices is None else result.indices.tobytes()
    more = [_further(one) for one in result.more] or None
    return [
        EngineOutput(
            waiter.request_id,
            data,
            dtype,
            shape,
            indices,
            request.num_cached_tokens or 0,
            max(0.0, started - waiter.since),
            now - started,
            more=more,
        )
        for waiter in request.waiters.values()
    ]


def _further(result: PooledResult) -> EngineOutput:
    """The result of a further task, for the output of the first one (errors are the request's)."""
    data = np.empty(0, np.float32) if result.data is None else result.data
    indices = None if result.indices is None else result.indices.tobytes()
    return EngineOutput(result.request_id, data.tobytes(), _name(data.dtype), data.shape, indices)


@cache
def _name(dtype: np.dtype[Any]) -> str:
    """NumPy makes the name anew each time, which took a fifth of the engine's own time."""
    return dtype.name
