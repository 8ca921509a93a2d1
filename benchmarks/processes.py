"""Starting `cenote serve` as a user would, and waiting until it answers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server(NamedTuple):
    """A running one: its address and the process that listens."""

    url: str
    pid: int

    def resident_mib(self) -> tuple[float, float]:
        """Resident memory now: of the process that listens, and of all its children."""
        return _resident_mib(self.pid), sum(map(_resident_mib, self._children()))

    def cpu_seconds(self) -> tuple[float, float]:
        """Processor time so far: of the process that listens, and of all its children."""
        return _cpu_seconds(self.pid), sum(map(_cpu_seconds, self._children()))

    def _children(self) -> list[int]:
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        return [int(pid) for one in threads for pid in (one / "children").read_text().split()]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime


def _resident_mib(pid: int) -> float:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@contextmanager
def server_process(*arguments: str, timeout: float = 120) -> Iterator[Server]:
    """A server that answers /health; it is stopped with SIGTERM at the end."""
    port = free_port()
    command: Sequence[str] = (
        *(sys.executable, "-m", "cenote", "serve", "--port", str(port), "--log-level", "warning"),
        *arguments,
    )
    with _running(command, f"http://127.0.0.1:{port}", timeout) as started:
        yield started


@contextmanager
def server(*arguments: str, timeout: float = 120) -> Iterator[str]:
    """The URL of a `server_process`."""
    with server_process(*arguments, timeout=timeout) as started:
        yield started.url


@contextmanager
def infinity(python: str, folder: str, dtype: str, timeout: float = 180) -> Iterator[str]:
    """The URL of Infinity's server for a model folder, in its own environment."""
    port = free_port()
    command = [str(Path(python).with_name("infinity_emb")), "v2", "--model-id", folder]
    command += ["--port", str(port), "--engine", "torch", "--dtype", dtype, "--device", "cpu"]
    command += ["--no-bettertransformer", "--no-model-warmup", "--url-prefix", "/v1"]
    with _running(command, f"http://127.0.0.1:{port}", timeout, "/v1/models") as started:
        yield started.url


@contextmanager
def _running(
    command: Sequence[str], url: str, timeout: float, path: str = "/health"
) -> Iterator[Server]:
    """Runs a server until the block ends."""
    verbose = os.environ.get("BENCHMARK_VERBOSE")
    process = subprocess.Popen(command, stderr=None if verbose else subprocess.DEVNULL)
    try:
        wait_for(url, process, timeout, path)
        yield Server(url, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(
    url: str, process: subprocess.Popen[bytes], timeout: float, path: str = "/health"
) -> None:
    """Returns when `path` answers 200; raises where the process ends or time runs out."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"The server ended with {process.returncode}.")
        try:
            with urllib.request.urlopen(f"{url}{path}", timeout=1):
                return
        except OSError:
            time.sleep(0.01)
    raise TimeoutError(f"No answer from {url} in {timeout} s.")
