"""Every message that crosses the boundary between the API side and the engine.

Plain msgspec structs: token ids go in, result bytes with a dtype and a shape come out, never lists
of floats. They know nothing of text, HTTP or torch.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from cenote.config.engine import EngineConfig
from cenote.params import PoolingParams, Task


class EnginePrompt(msgspec.Struct, omit_defaults=True):
    """What the model is fed for one request.

    `token_type_ids` is not here: it travels compressed in `PoolingParams.extra_kwargs`. A nested
    prompt (`encoder`) is the form of encoder-decoder models: extras belong on the innermost target.
    """

    token_ids: list[int]
    cache_salt: str | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    encoder: EnginePrompt | None = None


class EngineRequest(msgspec.Struct, tag=True, omit_defaults=True):
    """One prompt to run. A smaller `priority` is served earlier; `adapter` names a LoRA."""

    request_id: str
    prompt: EnginePrompt
    params: PoolingParams
    priority: int = 0
    arrival_time: float = 0.0
    adapter: str | None = None


class StartEngine(msgspec.Struct, tag=True, omit_defaults=True):
    """The first message to an engine process. `weights` is the folder of the last reload, if any:
    an engine that is started again serves what the one before it did."""

    config: EngineConfig
    weights: str | None = None
    log_level: str = "info"


class AddRequests(msgspec.Struct, tag=True):
    """Requests that came together; a score group (a query and its documents) is never split."""

    requests: list[EngineRequest]


class AbortRequests(msgspec.Struct, tag=True):
    """The clients of these requests went away."""

    request_ids: list[str]


class ControlRequest(msgspec.Struct, tag=True, omit_defaults=True):
    """An admin call: reset_encoder_cache, reset_mm_cache, reset_prefix_cache, reload_weights,
    stats. Answered by one `ControlReply` with the same id."""

    call_id: str
    method: str
    args: dict[str, Any] = msgspec.field(default_factory=dict)


class EngineOutput(msgspec.Struct, tag=True, omit_defaults=True):
    """One request's result: raw little-endian bytes with a NumPy dtype name and a shape.

    `error_code` is set instead when the request failed. `indices` accompanies results that have
    token positions or ids: the kept token rows of a token task (positions in the prompt), the
    vocabulary ids of a sparse vector (int32 bytes). `more` holds the results of the params' further
    tasks, in their order. Times are seconds.
    """

    request_id: str
    data: bytes = b""
    dtype: str = "float32"
    shape: tuple[int, ...] = ()
    indices: bytes | None = None
    num_cached_tokens: int = 0
    queue_time: float = 0.0
    run_time: float = 0.0
    error_code: str | None = None
    error_message: str | None = None
    more: list[EngineOutput] | None = None

    def array(self) -> NDArray[Any]:
        """The result as a read-only NumPy array of `shape` (bfloat16 is never sent: float32 is)."""
        return np.frombuffer(self.data, dtype=self.dtype).reshape(self.shape)

    def index_array(self) -> NDArray[np.int32] | None:
        """`indices` as an int32 array, or None where the task has none."""
        return None if self.indices is None else np.frombuffer(self.indices, dtype=np.int32)


class StepStats(msgspec.Struct, omit_defaults=True):
    """One record per engine step, from which all engine metrics are made."""

    running: int = 0
    waiting: int = 0
    batch_requests: int = 0
    batch_tokens: int = 0
    step_time: float = 0.0
    shared_runs: int = 0
    preemptions: int = 0
    query_cache_hits: int = 0
    query_cache_misses: int = 0
    prefix_cache_hits: int = 0
    prefix_cache_queries: int = 0
    kv_blocks_held: int = 0


class EngineOutputs(msgspec.Struct, tag=True, omit_defaults=True):
    """What one step finished, and the step's record."""

    outputs: list[EngineOutput]
    stats: StepStats | None = None


class ControlReply(msgspec.Struct, tag=True, omit_defaults=True):
    """The answer to a `ControlRequest`."""

    call_id: str
    result: Any = None
    error_code: str | None = None
    error_message: str | None = None


class EngineReady(msgspec.Struct, tag=True, omit_defaults=True):
    """The first message of an engine: what it serves and on what."""

    supported_tasks: list[Task]
    embedding_size: int
    max_model_len: int
    dtype: str
    device: str
    kernels: str  # "torch", or the instruction set of the native kernels
    load_time: float = 0.0
    kv_blocks: int = 0  # of keys and values; 0: the model needs none


ToEngine = StartEngine | AddRequests | AbortRequests | ControlRequest
FromEngine = EngineOutputs | ControlReply | EngineReady
