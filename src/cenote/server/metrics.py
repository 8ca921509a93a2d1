"""What /metrics tells, by name. The names are an interface: a test holds the list.

Request metrics are recorded by `dispatch` and `middleware`, once each. Engine metrics are made from
the engine's step records (`StepStats`) and from nothing else. Times are seconds.
"""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from cenote.engine.client import EngineClient
from cenote.engine.messages import StepStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_TOKENS = (16, 64, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


class Metrics:
    """All metrics of one server, in a registry of its own. Thread-safe."""

    def __init__(self) -> None:
        # The time a metric was made at would double the text, and nobody reads it.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._make_request_metrics()
        self._make_engine_metrics()

    def _make_request_metrics(self) -> None:
        self.requests = self._counter("requests", "HTTP requests answered.", "route", "status")
        self.errors = self._counter("errors", "Errors answered, by their stable code.", "code")
        self.prompt_tokens = self._counter("prompt_tokens", "Tokens that were asked to run.")
        self.truncated = self._counter("truncated_inputs", "Inputs that were cut, as asked.")
        self.cancelled = self._counter("cancelled_requests", "Requests whose client went away.")
        self.request_seconds = self._histogram(
            "request_seconds", "From the first byte to the answer.", _SECONDS, "route"
        )
        self.tokenize_seconds = self._histogram(
            "tokenize_seconds", "Making engine requests of an HTTP request.", _SECONDS
        )
        self.queue_seconds = self._histogram(
            "queue_seconds", "Wait of a prompt in the engine's queue.", _SECONDS
        )
        self.run_seconds = self._histogram("run_seconds", "Run of a prompt's steps.", _SECONDS)
        # Finding a metric by its labels takes longer than counting does.
        self._by_answer: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self.requests_in_flight = 0
        self._gauge("http_requests_in_flight", "HTTP requests under way.").set_function(
            lambda: self.requests_in_flight
        )

    def _make_engine_metrics(self) -> None:
        self.batch_requests = self._histogram("batch_requests", "Prompts in one step.", _COUNTS)
        self.batch_tokens = self._histogram("batch_tokens", "Tokens in one step.", _TOKENS)
        self.step_seconds = self._histogram("step_seconds", "Time of one step.", _SECONDS)
        self.shared_runs = self._counter("shared_runs", "Prompts answered by another's run.")
        self.preemptions = self._counter("preemptions", "Prompts sent back to the queue.")
        self.query_cache_hits = self._counter("query_cache_hits", "Queries found encoded.")
        self.query_cache_misses = self._counter("query_cache_misses", "Queries not found encoded.")
        self.prefix_cache_hits = self._counter("prefix_cache_hits", "Tokens found cached.")
        self.prefix_cache_queries = self._counter("prefix_cache_queries", "Tokens looked up.")
        self.running = self._gauge("requests_running", "Prompts in the running step.", "model")
        self.waiting = self._gauge("requests_waiting", "Prompts in the engine's queue.", "model")
        self.kv_blocks = self._gauge("kv_blocks", "Blocks of keys and values.", "model")
        self.kv_blocks_held = self._gauge("kv_blocks_held", "Those held by prompts.", "model")
        self.engine_up = self._gauge("engine_up", "1 while the engine answers.", "model")
        self.restarts = self._gauge("engine_restarts_total", "Restarts after a death.", "model")

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Counts an HTTP request that was answered after so many seconds."""
        found = self._by_answer.get((route, status))
        if found is None:
            counter = self.requests.labels(route, str(status))
            found = counter, self.request_seconds.labels(route)
            self._by_answer[route, status] = found
        counter, histogram = found
        counter.inc()
        histogram.observe(seconds)

    def watch(self, name: str, client: EngineClient) -> None:
        """Follows one engine: its gauges are read at each scrape, its steps as they come."""
        self.running.labels(name).set_function(lambda: client.stats.running)
        self.waiting.labels(name).set_function(lambda: client.stats.waiting)
        self.kv_blocks.labels(name).set_function(lambda: client.ready.kv_blocks)
        self.kv_blocks_held.labels(name).set_function(lambda: client.stats.kv_blocks_held)
        self.engine_up.labels(name).set_function(lambda: client.is_alive)
        self.restarts.labels(name).set_function(lambda: client.restarts)
        client.on_step(self.record_step)

    def record_step(self, step: StepStats) -> None:
        """Adds one engine step; called by the client's reader thread."""
        self.batch_requests.observe(step.batch_requests)
        self.batch_tokens.observe(step.batch_tokens)
        self.step_seconds.observe(step.step_time)
        for counter, amount in (
            (self.shared_runs, step.shared_runs),
            (self.preemptions, step.preemptions),
            (self.query_cache_hits, step.query_cache_hits),
            (self.query_cache_misses, step.query_cache_misses),
            (self.prefix_cache_hits, step.prefix_cache_hits),
            (self.prefix_cache_queries, step.prefix_cache_queries),
        ):
            if amount:
                counter.inc(amount)

    def text(self) -> bytes:
        """The Prometheus text format of all metrics."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"cenote_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"cenote_{name}", text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(f"cenote_{name}", text, labels, buckets=buckets, registry=self.registry)
