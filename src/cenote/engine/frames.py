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
_READ_BYTES = 64 << 10

# Each message is two parts; more than some hundred parts no system call takes.
_MOST_KEPT_PARTS = 64


class FrameSocket(Generic[MessageT]):
    """Sends anything, receives messages of type `MessageT`. All threads may send, one receives.

    Every write wakes the other side, which takes the processor from somebody on a busy machine:
    between `cork` and `uncork` messages are therefore kept, in their order, to go in one piece.
    """

    def __init__(self, connection: socket.socket, receives: Any) -> None:
        self._socket = connection
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self._socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        self._input = connection.makefile("rb", _READ_BYTES)
        self._sending = threading.Lock()
        self._unsent: list[bytes] = []
        self._is_corked = False
        self._is_closed = False
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[MessageT] = msgspec.msgpack.Decoder(receives)

    def send(self, message: Any) -> None:
        """Sends one message whole. Raises OSError if the other side is gone.

        One that is kept raises that only if this side has been closed.
        """
        with self._sending:
            if self._is_closed:
                raise BrokenPipeError("The connection was closed.")
            body = self._encoder.encode(message)
            self._unsent += (_HEADER.pack(len(body)), body)
            if not self._is_corked or len(self._unsent) >= _MOST_KEPT_PARTS:
                self._write()

    def cork(self) -> None:
        """What is sent from now on may wait for `uncork`."""
        self._is_corked = True

    def uncork(self) -> None:
        """Sends what was kept. Raises OSError if the other side is gone."""
        with self._sending:
            self._is_corked = False
            if self._unsent:
                self._write()

    def _write(self) -> None:
        parts, self._unsent = self._unsent, []
        sent = self._socket.sendmsg(parts)
        for part in parts:
            if sent < len(part):
                self._socket.sendall(memoryview(part)[sent:])
            sent = max(0, sent - len(part))

    def receive(self) -> MessageT | None:
        """The next message; None at the end of the stream, in the middle of a message or not."""
        try:
            header = self._input.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return None
            (size,) = _HEADER.unpack(header)
            body = self._input.read(size)
        except (OSError, ValueError):  # ValueError: closed on this side
            return None
        return self._decoder.decode(body) if len(body) == size else None

    def finish_sending(self) -> None:
        """Tells the other side that no more messages come; receiving goes on."""
        try:
            self.uncork()
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self) -> None:
        """Call it when nobody receives any more, or the other side is gone."""
        with self._sending:
            self._is_closed = True
        self._input.close()
        self._socket.close()
