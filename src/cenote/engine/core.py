"""The engine without its surroundings: requests in, steps under way, outputs out.

It ties the scheduler to the runner and isolates errors. It knows no sockets and no clients.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from cenote.config.engine import EngineConfig
from cenote.engine.answers import failure, guilty, outputs_of
from cenote.engine.chunked_prompts import ChunkedPrompts
from cenote.engine.flights import Flight, Flights, StepRunner
from cenote.engine.launch import can_launch, launch
from cenote.engine.messages import (
    EngineOutput,
    EngineOutputs,
    EngineReady,
    EngineRequest,
    StepStats,
)
from cenote.engine.prompts import WholePrompts
from cenote.engine.scheduler import Scheduler
from cenote.errors import CenoteError, InputTooLong, InvalidRequest, UnsupportedTask
from cenote.params import PoolingParams
from cenote.runner.model_runner import ModelRunner, RunnerInfo
from cenote.runner.query_cache import QueryCache
from cenote.step import PooledResult, ScheduledStep

logger = logging.getLogger(__name__)

# These change what results depend on: they wait until no submission is half run.
QUIET_METHODS = frozenset({"reset_encoder_cache", "reload_weights"})


class Runner(StepRunner, Protocol):
    """What the core asks of a model runner (a fake in some tests)."""

    ready_info: RunnerInfo

    @property
    def query_cache(self) -> QueryCache: ...
    @property
    def num_entries(self) -> int: ...
    def add_request(self, request_id: str, params: PoolingParams) -> None: ...
    def reset_encoder_cache(self) -> None: ...
    def reset_mm_cache(self) -> None: ...
    def reload_weights(self, folder: str | None = None) -> None: ...


class EngineCore:
    """One thread at a time. Loads the model unless it is given a runner.

    `landed` is called, on any thread, when a step that was under way may be ended.

    Raises:
        ModelLoadError: the model can't be found, read or served.
    """

    def __init__(
        self,
        config: EngineConfig,
        runner: Runner | None = None,
        landed: Callable[[], None] = lambda: None,
    ) -> None:
        self.runner: Runner = ModelRunner(config) if runner is None else runner
        info = self.runner.ready_info
        prompts = WholePrompts() if info.kv is None else ChunkedPrompts(info.kv)
        self.scheduler = Scheduler(info.step_tokens, config.max_num_seqs, prompts)
        self.flights = Flights(self.runner, info.lanes, landed)
        self.scheduler.pace.can_pause = self.flights.can_pause
        self.ready = EngineReady(
            supported_tasks=list(info.supported_tasks),
            embedding_size=info.embedding_size,
            max_model_len=info.max_model_len,
            dtype=info.dtype,
            device=info.device,
            kernels=info.kernels,
            load_time=info.load_time,
            kv_blocks=0 if info.kv is None else info.kv.num_blocks,
        )
        self._refused: list[EngineOutput] = []
        self._counted = self._totals()
        self._last_stats = StepStats()

    @property
    def has_work(self) -> bool:
        """Whether anything is to be done or under way."""
        return bool(self._refused or self.flights) or self.scheduler.has_work

    @property
    def can_step(self) -> bool:
        """Whether `step` would do something now, rather than wait for a step under way."""
        if self._refused or self.flights.has_landed:
            return True
        return can_launch(self.scheduler, self.flights)

    def add(self, requests: Sequence[EngineRequest]) -> None:
        """Queues a submission, or refuses it as a whole: the next step tells which.

        The runner is told of score groups at once, so that a document that is aborted before it
        was ever scheduled still releases its use of the query.
        """
        queued: list[str] = []
        try:
            for request in requests:
                self._check(request)
            self.scheduler.add(requests, time.monotonic())
            queued = [request.request_id for request in requests]
            for request in requests:
                if request.params.late_interaction is not None:
                    self.runner.add_request(request.request_id, request.params)
        except CenoteError as error:
            self.scheduler.abort(queued)
            self._refused += [failure(request.request_id, error) for request in requests]

    def _check(self, request: EngineRequest) -> None:
        info = self.runner.ready_info
        if request.params.task not in info.supported_tasks:
            raise UnsupportedTask(str(request.params.task), info.supported_tasks)
        ids = request.prompt.token_ids
        if not ids:
            raise InvalidRequest("The prompt has no tokens.", param="input")
        if len(ids) > info.max_model_len:
            raise InputTooLong(len(ids), info.max_model_len)
        if min(ids) < 0 or max(ids) >= info.vocab_size:
            wrong = next(one for one in ids if not 0 <= one < info.vocab_size)
            raise InvalidRequest(
                f"Token id {wrong} is not in the vocabulary of {info.vocab_size} tokens.",
                param="input",
            )

    def abort(self, request_ids: Sequence[str]) -> None:
        """Drops requests whose clients went away."""
        self.scheduler.abort(request_ids)

    # --- steps ----------------------------------------------------------------------------------

    def step(self) -> EngineOutputs:
        """Starts what may start, and ends one step, which it waits for if it must.

        `stats` is None if nothing ran.
        """
        self.launch()
        return self.land()

    def launch(self) -> None:
        """Starts what may start."""
        launch(self.scheduler, self.flights)

    def land(self) -> EngineOutputs:
        """Ends a step, if any is under way."""
        outputs, self._refused = self._refused, []
        if not self.flights:
            return EngineOutputs(outputs)
        flight = self.flights.land()
        started = time.perf_counter()
        results = self._results(flight)
        flight.seconds += time.perf_counter() - started
        now = time.monotonic()
        for one in self.scheduler.update(results):
            outputs += outputs_of(one, now)
        return EngineOutputs(outputs, self._record(flight) if flight.step.requests else None)

    def _results(self, flight: Flight) -> list[PooledResult]:
        """The step's results. If it raised, its requests run one by one, so that only the guilty
        fail; what was told to the runner may be told again."""
        step = flight.step
        try:
            results = flight.end()
        except Exception as error:
            if not step.requests:
                raise
            return self._isolate(step, error)
        answered = {result.request_id for result in results}
        lost = [
            one for one in step.requests if one.is_last_chunk and one.request_id not in answered
        ]
        return results + [PooledResult(one.request_id) for one in lost]

    def _isolate(self, step: ScheduledStep, error: Exception) -> list[PooledResult]:
        if len(step.requests) == 1:
            return [guilty(step.requests[0].request_id, error)]
        logger.warning("a step of %d requests failed: %r", len(step.requests), error)
        if self.scheduler.retry_alone(step):
            return []
        alone = (
            ScheduledStep([one], step.finished_ids, step.preempted_ids) for one in step.requests
        )
        return [result for one in alone for result in self._results(self.flights.at_once(one))]

    def _record(self, flight: Flight) -> StepStats:
        step, tokens = flight.step, flight.step.num_tokens
        self.scheduler.pace.ran(tokens, flight.seconds / flight.lanes)
        totals, use = self._totals(), self.scheduler.prompts.usage()
        stats = StepStats(
            running=len(step.requests),
            waiting=self.scheduler.num_waiting,
            batch_requests=len(step.requests),
            batch_tokens=tokens,
            step_time=flight.seconds,
            kv_blocks_held=use.held,
            **{name: total - self._counted[name] for name, total in totals.items()},
        )
        self._counted, self._last_stats = totals, stats
        return stats

    def _totals(self) -> dict[str, int]:
        """What has been counted since the start, by its name in `StepStats`."""
        scheduler, queries = self.scheduler, self.runner.query_cache
        prefixes = scheduler.prompts.usage()
        return {
            "shared_runs": scheduler.shared_runs,
            "preemptions": scheduler.preemptions,
            "query_cache_hits": queries.hits,
            "query_cache_misses": queries.misses,
            "prefix_cache_hits": prefixes.hits,
            "prefix_cache_queries": prefixes.queries,
        }

    # --- control --------------------------------------------------------------------------------

    def ready_for(self, method: str) -> bool:
        """Whether `control` may be called now. If not, call `step` until it may; for those that
        need a quiet moment, only what has begun is scheduled from now on."""
        if method == "stats":
            # What has ended just now is still to be told to the runner.
            return self.scheduler.is_busy or not self.has_work
        if method not in QUIET_METHODS:
            return True
        self.scheduler.park()
        return not (self.scheduler.is_busy or self.flights)

    def control(self, method: str, args: dict[str, Any]) -> Any:
        """Does an admin call; `ready_for` must have said yes.

        Raises:
            InvalidRequest: the method or an argument is unknown.
            ModelLoadError: the new weights can't be served; the old ones still are.
        """
        try:
            return self._control(method, args)
        finally:
            if method in QUIET_METHODS:
                self.scheduler.unpark()

    def _control(self, method: str, args: dict[str, Any]) -> Any:
        allowed = {"folder"} if method == "reload_weights" else set()
        if unknown := sorted(set(args) - allowed):
            raise InvalidRequest(f"{method} has no argument {unknown[0]!r}.", param=unknown[0])
        match method:
            case "reset_encoder_cache":
                self.runner.reset_encoder_cache()
                self._register_again()
            case "reset_mm_cache":
                self.runner.reset_mm_cache()
            case "reset_prefix_cache":
                self.scheduler.prompts.reset()
            case "reload_weights":
                self.runner.reload_weights(args.get("folder"))
                self.scheduler.prompts.reset()
                self._register_again()
            case "stats":
                return self._stats()
            case _:
                raise InvalidRequest(f"Unknown control method {method!r}.", param="method")
        return None

    def _stats(self) -> dict[str, Any]:
        """The latest step's record, and what is kept: all but the caches is 0 once all is done."""
        use = self.scheduler.prompts.usage()
        return {
            **msgspec.to_builtins(self._last_stats),
            "running": len(self.scheduler.running),
            "waiting": self.scheduler.num_waiting,
            "request_entries": self.runner.num_entries,
            "score_groups": self.scheduler.num_groups,
            "query_cache_bytes": self.runner.query_cache.nbytes,
            "kv_blocks": use.num_blocks,
            "kv_blocks_held": use.held,
            "kv_blocks_kept": use.kept,
        }

    def _register_again(self) -> None:
        """Tells the runner, which has forgotten everything, of the requests that still wait."""
        for request_id, params in self.scheduler.registrations():
            self.runner.add_request(request_id, params)
