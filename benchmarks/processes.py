"""Starting `cenote serve` as a user would, and waiting until it answers."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(*arguments: str, timeout: float = 120) -> Iterator[str]:
    """The URL of a server that answers /health; it is stopped with SIGTERM at the end."""
    port = free_port()
    command: Sequence[str] = (
        *(sys.executable, "-m", "cenote", "serve", "--port", str(port), "--log-level", "warning"),
        *arguments,
    )
    process = subprocess.Popen(command)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(url, process, timeout)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def wait_for(url: str, process: subprocess.Popen[bytes], timeout: float) -> None:
    """Returns when /health answers 200; raises where the process ends or time runs out."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"The server ended with {process.returncode}.")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=1):
                return
        except OSError:
            time.sleep(0.01)
    raise TimeoutError(f"No answer from {url} in {timeout} s.")
