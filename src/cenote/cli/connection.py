"""A connection to a running server that costs its client next to nothing: HTTP/1.1 on a socket.

It knows no bodies: bytes go out and come back.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from typing import NamedTuple
from urllib.parse import urlsplit

from cenote.config import env


class Reply(NamedTuple):
    """An answer as it came."""

    status: int
    content: bytes


class Connection:
    """One keep-alive connection that posts JSON to one path."""

    def __init__(self, url: str, path: str, reader: StreamReader, writer: StreamWriter) -> None:
        self.address = f"{base_url(url)}{path}"
        self._reader, self._writer = reader, writer
        parts = urlsplit(self.address)
        fields = {"Host": parts.netloc, **json_headers()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._head = f"POST {parts.path} HTTP/1.1\r\n{lines}".encode()

    @classmethod
    async def open(cls, url: str, path: str) -> Connection:
        """Raises OSError where nothing listens."""
        parts = urlsplit(base_url(url))
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        streams = await asyncio.open_connection(parts.hostname, port, ssl=secure or None)
        return cls(url, path, *streams)

    async def post(self, body: bytes) -> Reply:
        """Raises OSError or EOFError where the connection ends before the answer does."""
        self.send(body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, *lines = head.split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
        if headers.get("transfer-encoding") == "chunked":
            content = b"".join([chunk async for chunk in self._chunks()])
        else:
            content = await self._reader.readexactly(int(headers["content-length"]))
        return Reply(int(status.split(" ", 2)[1]), content)

    def send(self, body: bytes, size: int | None = None) -> None:
        """Sends a request, or only the first `size` bytes of its body."""
        self._writer.write(b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body[:size]))

    def close(self) -> None:
        self._writer.close()

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self._reader.readline(), 16):
            yield await self._reader.readexactly(size)
            await self._reader.readline()
        await self._reader.readline()


def base_url(url: str) -> str:
    """The server's address without /v1."""
    return (url if "//" in url else f"http://{url}").rstrip("/").removesuffix("/v1")


def json_headers() -> dict[str, str]:
    """Of every request: its media type, and the key in CENOTE_API_KEY."""
    headers = {"Content-Type": "application/json"}
    if key := env.API_KEY.read():
        headers["Authorization"] = f"Bearer {key.split(',')[0].strip()}"
    return headers
