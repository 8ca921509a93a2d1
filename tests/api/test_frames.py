"""Messages over a real socket pair: whole, in order, kept together while corked."""

from __future__ import annotations

import socket
import threading

import pytest

from cenote.engine.frames import FrameSocket
from cenote.engine.messages import AbortRequests, ToEngine

Frames = FrameSocket[ToEngine]


@pytest.fixture
def ends() -> tuple[Frames, Frames]:
    one, other = socket.socketpair()
    return FrameSocket(one, ToEngine), FrameSocket(other, ToEngine)


def is_silent(frames: Frames) -> bool:
    """Whether nothing has come."""
    try:
        return not frames._socket.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
    except BlockingIOError:
        return True


def test_corked_messages_go_together_and_in_order(ends: tuple[Frames, Frames]) -> None:
    sender, receiver = ends
    sender.cork()
    for name in "abc":
        sender.send(AbortRequests([name]))
    assert is_silent(receiver)
    sender.uncork()
    assert [receiver.receive() for _ in "abc"] == [AbortRequests([name]) for name in "abc"]
    sender.send(AbortRequests(["d"]))
    assert receiver.receive() == AbortRequests(["d"])


def test_many_corked_messages_do_not_wait(ends: tuple[Frames, Frames]) -> None:
    sender, receiver = ends
    sender.cork()
    for number in range(40):
        sender.send(AbortRequests([str(number)]))
    assert [receiver.receive() for _ in range(32)] == [AbortRequests([str(n)]) for n in range(32)]
    assert is_silent(receiver)
    sender.finish_sending()
    left = [AbortRequests([str(number)]) for number in range(32, 40)]
    assert [receiver.receive() for _ in left] == left
    assert receiver.receive() is None


def test_messages_beyond_every_buffer_arrive_whole(ends: tuple[Frames, Frames]) -> None:
    sender, receiver = ends
    large = AbortRequests(["x" * (9 << 20), "y"])
    sender.cork()
    sender.send(AbortRequests(["before"]))
    sender.send(large)
    sending = threading.Thread(target=sender.uncork)
    sending.start()
    assert receiver.receive() == AbortRequests(["before"])
    assert receiver.receive() == large
    sending.join()


def test_a_message_cut_off_is_the_end(ends: tuple[Frames, Frames]) -> None:
    sender, receiver = ends
    sender._socket.sendall(b"\x10\0\0\0\0\0\0\0only a part")
    sender.close()
    assert receiver.receive() is None


def test_nothing_is_kept_for_a_connection_that_is_gone(ends: tuple[Frames, Frames]) -> None:
    sender, receiver = ends
    receiver.close()
    sender.cork()
    sender.send(AbortRequests(["a"]))
    with pytest.raises(OSError, match="pipe"):
        sender.uncork()
    sender.close()
    sender.cork()
    with pytest.raises(BrokenPipeError, match="closed"):
        sender.send(AbortRequests(["b"]))
    assert sender.receive() is None
