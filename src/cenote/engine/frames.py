"""Messages over a stream socket: a length, then the message in msgpack. It knows no engine.

The kernel closes both ends when a process ends, however it ends, so the end of the stream is how
each side learns of the other's death.
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import Any, Generic, TypeVar

import msgspec

MessageT = TypeVar("MessageT")

_HEADER = struct.Struct("<Q")
_BUFFER_BYTES = 4 << 20


class FrameSocket(Generic[MessageT]):
    """Sends anything, receives messages of type `MessageT`. All threads may send, one receives."""

    def __init__(self, connection: socket.socket, receives: Any) -> None:
        self._socket = connection
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self._socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        self._sending = threading.Lock()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[MessageT] = msgspec.msgpack.Decoder(receives)

    def send(self, message: Any) -> None:
        """Sends one message whole. Raises OSError if the other side is gone."""
        with self._sending:
            body = self._encoder.encode(message)
            header = _HEADER.pack(len(body))
            sent = self._socket.sendmsg([header, body])
            if sent < len(header):
                self._socket.sendall(header[sent:])
                sent = len(header)
            if sent < len(header) + len(body):
                self._socket.sendall(memoryview(body)[sent - len(header) :])

    def receive(self) -> MessageT | None:
        """The next message; None at the end of the stream, in the middle of a message or not."""
        header = self._read(_HEADER.size)
        body = None if header is None else self._read(_HEADER.unpack(header)[0])
        return None if body is None else self._decoder.decode(body)

    def _read(self, size: int) -> bytearray | None:
        buffer = bytearray(size)
        view = memoryview(buffer)
        while view:
            try:
                count = self._socket.recv_into(view)
            except OSError:
                return None
            if count == 0:
                return None
            view = view[count:]
        return buffer

    def finish_sending(self) -> None:
        """Tells the other side that no more messages come; receiving goes on."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self) -> None:
        self._socket.close()
