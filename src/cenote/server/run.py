"""From configs to a server that answers, and down again without losing a request.

Each engine starts in its own process while this one reads the model's config and tokenizer; this
process never imports torch. SIGTERM and SIGINT drain: nothing new is taken, what runs is finished.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import uvicorn

from cenote import garbage
from cenote.config.engine import EngineConfig
from cenote.config.model import load_model_config
from cenote.config.profile import with_profile
from cenote.config.server import ServerConfig
from cenote.engine.client import EngineClient, start_engine
from cenote.errors import InvalidRequest
from cenote.loader.hub import resolve
from cenote.processors.registry import Processors
from cenote.processors.tokenizer import Tokenizer
from cenote.server.app import create_app
from cenote.server.served import LazyModel, ServedModel
from cenote.server.state import Server

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)

# A tokeniser thread has the interpreter for so long before the event loop gets it back.
SWITCH_SECONDS = 5e-4

# Longer than the pools of usual clients keep idle connections, so that the client closes first.
KEEP_ALIVE_SECONDS = 75


def serve(engine: EngineConfig | Sequence[EngineConfig], server: ServerConfig) -> None:
    """Serves models until SIGTERM or SIGINT; returns when all running requests are answered.

    Raises `ModelLoadError` where the model can't be served, and `OSError` where the address can't
    be listened on: that is tried first, because loading may take long.
    """
    server = server.with_environment()
    listener = bind(server)
    try:
        engines = [engine] if isinstance(engine, EngineConfig) else list(engine)
        check_names(engines, server)
        with _exit_on_signals():
            models = load_all(engines, server)
            try:
                _run(models, server, listener)
            finally:
                _close_all(models)
    finally:
        listener.close()


def check_names(engines: Sequence[EngineConfig], server: ServerConfig) -> None:
    """Refuses names that no model, or more than one, would have. Raises `InvalidRequest`."""
    if server.served_model_name and len(engines) > 1:
        raise InvalidRequest(
            "served_model_name is for one model; with several, use alias.",
            param="served_model_name",
        )
    served = [engine.model for engine in engines]
    for text in server.alias:
        name, _, model = text.partition("=")
        if not name or model not in served:
            raise InvalidRequest(
                f"alias must be name=model with one of the models {served}, not {text!r}.",
                param="alias",
            )


def load_all(
    engines: Sequence[EngineConfig], server: ServerConfig
) -> list[ServedModel | LazyModel]:
    """All models, one after the other; none stays running where one can't be served."""
    models: list[ServedModel | LazyModel] = []
    try:
        for engine in engines:
            models.append(load_lazily(engine, server) if server.lazy else load(engine, server))
    except BaseException:
        _close_all(models)
        raise
    return models


def load_lazily(engine: EngineConfig, server: ServerConfig) -> LazyModel:
    """A model whose folder is read now, so that what is wrong with it is told now."""
    found = resolve(engine.model, engine.revision)
    config = load_model_config(
        found.folder, name=found.name, revision=found.revision, engine=engine
    )
    Tokenizer(found.folder, config)
    return LazyModel(
        _names(engine, server, found.name),
        config,
        lambda: load(engine, server),
        adapters=tuple(engine.adapter_sources()),
    )


def _names(engine: EngineConfig, server: ServerConfig, own: str) -> tuple[str, ...]:
    """The names of a model: its own or those it is served under, and its aliases."""
    aliases = (text.partition("=") for text in server.alias)
    more = [name for name, _, model in aliases if model == engine.model]
    return tuple(dict.fromkeys((*(server.served_model_name or (own,)), *more)))


def _close_all(models: Sequence[ServedModel | LazyModel]) -> None:
    for model in models:
        running = model.running if isinstance(model, LazyModel) else model
        if running is not None:
            running.client.close()


def load(engine: EngineConfig, server: ServerConfig) -> ServedModel:
    """Starts the engine and, meanwhile, reads what this process needs of the model."""
    found = resolve(engine.model, engine.revision)
    engine = with_profile(engine, found.folder)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(
            start_engine, engine, in_process=False, niceness=server.engine_niceness
        )
        try:
            config = load_model_config(
                found.folder, name=found.name, revision=found.revision, engine=engine
            )
            tokenizer = Tokenizer(found.folder, config)
        except BaseException:
            starting.add_done_callback(_close)
            raise
        client = starting.result()
    return ServedModel(
        names=_names(engine, server, found.name),
        config=config,
        tokenizer=tokenizer,
        processors=Processors(config, tokenizer, client.ready, engine),
        client=client,
        adapters=tuple(engine.adapter_sources()),
    )


def _close(starting: Future[EngineClient]) -> None:
    """Ends an engine that nobody wants any more; one that failed by itself has no client."""
    if not starting.cancelled() and starting.exception() is None:
        starting.result().close()


def bind(server: ServerConfig) -> socket.socket:
    """A socket bound to the server's address; it does not listen yet. Raises `OSError`."""
    if server.uds:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        address: str | tuple[str, int] = server.uds
    else:
        family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        address = (server.host, server.port)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"Can't listen on {address}: {error.strerror}") from None
    return listener


class HttpServer(uvicorn.Server):
    """Uvicorn, except that a signal first marks the server as draining and is not raised again.

    Uvicorn raises it again to end the process; ours has an engine to close after that.
    """

    def __init__(self, config: uvicorn.Config, state: Server) -> None:
        super().__init__(config)
        self._state = state

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        logger.info("%s: finishing what runs.", signal.Signals(sig).name)
        self._state.is_draining = True
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def http_server(models: Sequence[ServedModel | LazyModel], server: ServerConfig) -> HttpServer:
    """Uvicorn over the app of some models, with all its settings in one place."""
    app = create_app(models, server)
    config = uvicorn.Config(
        app,
        loop="auto",
        http="httptools",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        root_path=server.root_path,
        backlog=2048,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=round(server.drain_timeout) or None,
    )
    # What uvicorn warns of goes where our own log goes, in the same form.
    logging.getLogger("uvicorn").parent = logging.getLogger("cenote")
    return HttpServer(config, app.state.server)


def _run(
    models: Sequence[ServedModel | LazyModel], server: ServerConfig, listener: socket.socket
) -> None:
    garbage.settle()
    sys.setswitchinterval(SWITCH_SECONDS)
    logger.info("Ready: %s at %s.", ", ".join(model.name for model in models), _url(listener))
    http_server(models, server).run(sockets=[listener])


def _url(listener: socket.socket) -> str:
    name = listener.getsockname()
    if isinstance(name, str):
        return f"unix socket {name}"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"http://{host}:{name[1]}"


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Until requests are taken there is nothing to finish: a signal ends the process in order."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
