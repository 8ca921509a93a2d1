"""The one shape of every processor: what to run, and how to make the result from what came back.

`LLM` (offline) and the server (online) both do: prepare (threads) → run (engine) → finish. So no
processor is written twice for sync and async.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from cenote.engine.messages import EngineOutput, EngineRequest

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Prepared(Generic[ResultT]):
    """Engine requests in the order they must be given to the engine, and the step after them.

    `finish` takes one output for each request, in the same order.
    """

    requests: list[EngineRequest]
    finish: Callable[[list[EngineOutput]], ResultT]
