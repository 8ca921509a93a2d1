"""A real server for everything in the docs that talks to one."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The address of a real `cenote serve` of the built-in model."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = subprocess.Popen([sys.executable, "-m", "cenote", "serve", "--port", str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(f"{url}/health", process)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    pytest.fail("the server did not answer within a minute")
