"""An app and its routes that FastAPI documents, and on whose requests it stands aside.

FastAPI's and Starlette's own layers (dependencies, exit stacks, error pages, telemetry, patterns
tried one after the other) cost more than a short text's whole journey, and `Guard` does what is
needed of them. All hooks are public methods of Starlette.
"""

from __future__ import annotations

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send


class Api(FastAPI):
    """A FastAPI app with no layers but those that were added, the last one added outermost.

    One of them must answer exceptions: nothing below does.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        if self.root_path:
            scope["root_path"] = self.root_path
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        await self.middleware_stack(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        app: ASGIApp = Paths(self.router)
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


class Paths:
    """The plain routes by method and path; all else is for the router: patterns, 404 and 405."""

    def __init__(self, router: Router) -> None:
        self._router = router
        plain = [route for route in router.routes if isinstance(route, PlainRoute)]
        self._routes = {
            (method, route.path): route
            for route in reversed(plain)  # of two the first one counts, as it does for a router
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = None
        if scope["type"] == "http":
            route = self._routes.get((scope["method"], scope["path"]))
        await (route.handle if route else self._router)(scope, receive, send)


def plain_router(tag: str) -> APIRouter:
    """A router of plain routes; `tag` is their heading in the document."""
    return APIRouter(tags=[tag], route_class=PlainRoute)
