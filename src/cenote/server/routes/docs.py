"""GET /docs: a page that shows the OpenAPI document and sends requests; it works offline."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from cenote.server.routing import plain_router

router = plain_router("docs")

# The page's own script and style, requests to this server, and nothing else.
_POLICY = (
    "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)


@cache
def _page() -> bytes:
    return files("cenote.server").joinpath("docs.html").read_bytes()


@router.get("/docs", include_in_schema=False)
async def show_docs(_: Request) -> Response:
    """The page."""
    headers = {"Content-Security-Policy": _POLICY}
    return Response(_page(), media_type="text/html; charset=utf-8", headers=headers)
