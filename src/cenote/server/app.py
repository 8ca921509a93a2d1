"""The HTTP application over models that already run. It starts and loads nothing (see `run`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from cenote import __version__
from cenote.config.server import ServerConfig
from cenote.server import openapi
from cenote.server.dispatch import Dispatcher
from cenote.server.metrics import Metrics
from cenote.server.middleware import Guard
from cenote.server.routes import (
    admin,
    classify,
    cohere,
    docs,
    embed,
    huggingface,
    infinity,
    ollama,
    pooling,
    rerank,
    score,
    system,
    tei,
    tei_tokens,
    tokenize,
    vllm,
)
from cenote.server.routing import Api
from cenote.server.served import LazyModel, ServedModel, ServedModels
from cenote.server.state import Server

# In the order in which a request's path is compared: the busiest first.
ROUTERS = (
    embed.router,
    rerank.router,
    score.router,
    classify.router,
    pooling.router,
    cohere.router,
    tei.router,
    tei_tokens.router,
    ollama.router,
    infinity.router,
    huggingface.router,
    vllm.router,
    tokenize.router,
)


def create_app(models: Iterable[ServedModel | LazyModel], config: ServerConfig) -> FastAPI:
    """The app for some models; `app.state.server` holds what its routes share.

    Closing the app (its lifespan) closes the tokeniser threads, not the engines.
    """
    metrics = Metrics()
    served = ServedModels(models)
    server = Server(
        config=config, models=served, metrics=metrics, dispatcher=Dispatcher(config, metrics)
    )
    served.on_start(lambda model: metrics.watch(model.name, model.client))
    app = Api(
        title="Cenote",
        version=__version__,
        description="Embeddings, reranking, late interaction and classification.",
        root_path=config.root_path,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
    )
    app.state.server = server
    routers = (
        *ROUTERS,
        system.router,
        docs.router,
        *((admin.router,) if config.enable_admin else ()),
    )
    # As they are, since including a router would wrap its routes; and before those of the docs.
    app.router.routes[:0] = [route for router in routers for route in router.routes]
    openapi.install(app, secured=bool(config.api_key))
    _add_middleware(app, server)
    return app


def _add_middleware(app: FastAPI, server: Server) -> None:
    """The last one added is the first to see a request."""
    app.add_middleware(
        Guard,
        config=server.config,
        metrics=server.metrics,
        routes=[getattr(route, "path", "") for route in app.routes],
        is_draining=lambda: server.is_draining,
    )
    if server.config.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(server.config.cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "metadata"],
        )


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.server.dispatcher.close()
