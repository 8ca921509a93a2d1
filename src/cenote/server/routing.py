"""An app and its routes that FastAPI documents, and on whose requests it stands aside.

FastAPI's and Starlette's own layers (dependencies, exit stacks, error pages, telemetry) cost more
than a short text's whole journey, and `Guard` does what is needed of them. Both hooks are public
methods of Starlette.
"""

from __future__ import annotations

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send


class Api(FastAPI):
    """A FastAPI app with no layers but those that were added, the last one added outermost.

    One of them must answer exceptions: nothing below does.
    """

    def build_middleware_stack(self) -> ASGIApp:
        app: ASGIApp = self.router
        for layer in reversed(self.user_middleware):
            app = layer.cls(app, *layer.args, **layer.kwargs)
        return app


class PlainRoute(APIRoute):
    """A route that calls its function with the request, and with nothing else."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        methods = self.methods or set()
        if scope["method"] not in methods:
            raise HTTPException(405, headers={"Allow": ", ".join(sorted(methods))})
        response = await self.endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


def plain_router(tag: str) -> APIRouter:
    """A router of plain routes; `tag` is their heading in the document."""
    return APIRouter(tags=[tag], route_class=PlainRoute)
