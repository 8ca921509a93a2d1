"""Routes whose functions take the plain request: FastAPI documents them and stands aside.

FastAPI's own way from a request to a function (dependencies, parameters, its models) costs more
than a short text's whole journey. This is its documented hook for other ways.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]


class PlainRoute(APIRoute):
    """A route that calls its function with the request, and with nothing else."""

    def get_route_handler(self) -> Endpoint:
        endpoint: Endpoint = self.endpoint
        return endpoint


def plain_router(tag: str) -> APIRouter:
    """A router of plain routes; `tag` is their heading in the document."""
    return APIRouter(tags=[tag], route_class=PlainRoute)
