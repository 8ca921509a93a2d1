"""The engine in a process of its own: answers, death and restart, orphans, draining.

Real processes with a tiny model; one start costs about two seconds, so tests share a client where
they leave it whole.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path

import numpy as np
import psutil
import pytest

from cenote.config.engine import EngineConfig
from cenote.engine.client import start_engine
from cenote.engine.in_process import InProcessClient
from cenote.engine.messages import EnginePrompt, EngineRequest, StepStats
from cenote.engine.placement import Placement
from cenote.engine.process_client import ProcessClient
from cenote.errors import EngineUnavailable, ModelLoadError, UnsupportedTask
from cenote.params import LateInteractionParams, PoolingParams, Task

TIMEOUT = 30.0


def config(folder: Path) -> EngineConfig:
    return EngineConfig(model=str(folder), dtype="float32", kernels="torch", threads=1)


def request(
    name: str, *ids: int, task: Task = "embed", part: LateInteractionParams | None = None
) -> EngineRequest:
    params = PoolingParams("token_embed" if part else task, late_interaction=part)
    return EngineRequest(name, EnginePrompt([101, *ids, 102]), params)


def long_work(count: int = 3000) -> list[EngineRequest]:
    """Different prompts that keep the engine busy for a second or more."""
    return [request(str(i), *([1000 + i] * 100)) for i in range(count)]


def score_group(key: str, documents: int) -> list[EngineRequest]:
    """A query of its own length and documents that differ."""
    ids = [2000 + i for i in range(1 + documents % 5)]
    asks = LateInteractionParams("cache_query", key, documents)
    scores = LateInteractionParams("score_doc", key)
    made = [request(key, *ids, part=asks)]
    for i in range(documents):
        made.append(request(f"{key}/{i}", *range(3000, 3001 + i), part=scores))
    return made


def eventually(condition: Callable[[], bool], seconds: float = TIMEOUT) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def niceness(pid: int) -> set[int]:
    """That of all threads of a process."""
    threads = [int(one.name) for one in Path(f"/proc/{pid}/task").iterdir()]
    return {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads}


def one_nicer_than_this() -> set[int]:
    return {min(19, os.getpriority(os.PRIO_PROCESS, 0) + 1)}


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="module")
def shared(tiny_bert: Path) -> Iterator[ProcessClient]:
    client = ProcessClient(config(tiny_bert), Placement(niceness=1))
    yield client
    client.close()


@pytest.fixture
def client(tiny_bert: Path) -> Iterator[ProcessClient]:
    made = ProcessClient(config(tiny_bert), Placement(niceness=1))
    yield made
    made.close(timeout=1.0)


# --- serving ------------------------------------------------------------------------------------


def test_it_says_what_it_serves(shared: ProcessClient) -> None:
    assert shared.is_alive
    assert shared.ready.supported_tasks == ["embed", "token_embed"]
    assert shared.ready.embedding_size == 32
    assert shared.ready.max_model_len == 128
    assert shared.ready.dtype == "float32"


def test_every_thread_of_the_engine_stands_back_as_far_as_told(shared: ProcessClient) -> None:
    shared.submit([request("a", 7)]).result(TIMEOUT)
    assert niceness(shared.pid) == one_nicer_than_this()


def test_both_clients_give_the_same_bytes(shared: ProcessClient, tiny_bert: Path) -> None:
    requests = [request(str(i), *range(2000, 2003 + i)) for i in range(20)]
    outputs = shared.submit(requests).result(TIMEOUT)
    local = start_engine(config(tiny_bert), in_process=True)
    try:
        assert isinstance(local, InProcessClient)
        for one, other in zip(outputs, local.submit(requests).result(TIMEOUT), strict=True):
            assert one.request_id == other.request_id
            np.testing.assert_allclose(one.array(), other.array(), atol=1e-6)
    finally:
        local.close()
    with pytest.raises(EngineUnavailable):
        local.submit(requests)


def test_errors_keep_their_class_across_the_boundary(shared: ProcessClient) -> None:
    future = shared.submit([request("a", 5, task="classify")])
    assert isinstance(future.exception(TIMEOUT), UnsupportedTask)


def test_cancelled_work_is_dropped_and_others_are_served(shared: ProcessClient) -> None:
    steps: list[StepStats] = []
    shared.on_step(steps.append)
    bulk = shared.submit(long_work())
    eventually(lambda: len(steps) > 0)
    assert bulk.cancel()
    with pytest.raises(CancelledError):
        bulk.result(0)
    assert len(shared.submit([request("a", 7)]).result(TIMEOUT)) == 1
    assert sum(one.batch_requests for one in steps) < 3000


def test_a_single_query_overtakes_a_bulk_job(shared: ProcessClient) -> None:
    bulk = shared.submit(long_work())
    query = shared.submit([request("query", 7)])
    query.result(TIMEOUT)
    assert not bulk.done()
    assert len(bulk.result(TIMEOUT)) == 3000


def test_an_idle_engine_uses_no_processor(shared: ProcessClient) -> None:
    shared.submit([request("a", 7)]).result(TIMEOUT)
    process = psutil.Process(shared.pid)
    time.sleep(0.1)
    before = sum(process.cpu_times()[:2])
    time.sleep(0.5)
    assert sum(process.cpu_times()[:2]) - before <= 0.03


def test_the_client_loads_no_torch(tiny_bert: Path) -> None:
    code = f"""
    import sys
    from cenote.config.engine import EngineConfig
    from cenote.engine.client import start_engine
    client = start_engine(EngineConfig(model={str(tiny_bert)!r}, threads=1), in_process=False)
    client.close()
    print("torch" in sys.modules, "numpy" in sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True"]


def test_a_model_that_cannot_be_loaded_says_so_at_once(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"config\.json"):
        start_engine(config(tmp_path), in_process=False)
    with pytest.raises(ModelLoadError, match=r"config\.json"):
        start_engine(config(tmp_path), in_process=True)


def test_groups_that_come_and_go_leave_nothing_behind(tiny_colbert: Path) -> None:
    client = ProcessClient(config(tiny_colbert))
    failures: list[BaseException] = []

    def rerank_and_go(number: int) -> None:
        luck = random.Random(number)
        for turn in range(15):
            future = client.submit(score_group(f"{number}.{turn}", luck.randint(1, 20)))
            if luck.random() < 0.5:
                time.sleep(luck.random() * 0.01)
                future.cancel()
            elif error := future.exception(TIMEOUT):
                failures.append(error)

    try:
        threads = [threading.Thread(target=rerank_and_go, args=(one,)) for one in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert failures == []
        client.submit(score_group("last", 1)).result(TIMEOUT)
        kept = client.control("stats").result(TIMEOUT)
        assert kept["score_groups"] == 0
        eventually(lambda: client.control("stats").result(TIMEOUT)["request_entries"] == 0)
        assert len(client._pending) == 0
    finally:
        client.close()


# --- death --------------------------------------------------------------------------------------


def test_death_fails_what_was_pending_and_the_engine_serves_again(
    client: ProcessClient, make_tiny_bert: Callable[..., Path]
) -> None:
    other = make_tiny_bert(seed=1)
    client.control("reload_weights", folder=str(other)).result(TIMEOUT)
    before = client.submit([request("a", 5)]).result(TIMEOUT)[0].data
    pending = [client.submit(long_work(500)) for _ in range(3)]
    call = client.control("reset_encoder_cache")
    first = client.pid
    os.kill(first, signal.SIGKILL)
    killed = time.monotonic()
    for future in [*pending, call]:
        assert isinstance(future.exception(TIMEOUT), EngineUnavailable)
    assert time.monotonic() - killed < 1.0
    assert not client.is_alive
    with pytest.raises(EngineUnavailable, match="started again"):
        client.submit([request("a", 5)])
    eventually(lambda: client.is_alive)
    assert client.restarts == 1
    assert niceness(client.pid) == one_nicer_than_this()
    assert client.pid != first
    # The weights of the last reload, not those of the start.
    assert client.submit([request("a", 5)]).result(TIMEOUT)[0].data == before


def test_closing_while_it_restarts_does_not_wait_for_it(client: ProcessClient) -> None:
    os.kill(client.pid, signal.SIGKILL)
    eventually(lambda: not client.is_alive)
    begun = time.monotonic()
    client.close(timeout=5.0)
    assert time.monotonic() - begun < 10.0
    assert not is_running(client.pid)


# --- the end ------------------------------------------------------------------------------------


def test_close_finishes_what_was_submitted(client: ProcessClient) -> None:
    futures: list[Future[list[object]]] = [client.submit(long_work(200)) for _ in range(3)]  # type: ignore[misc]
    client.close()
    assert [len(one.result(0)) for one in futures] == [200] * 3
    assert not is_running(client.pid)
    with pytest.raises(EngineUnavailable, match="shutting down"):
        client.submit([request("a", 5)])


def test_close_gives_up_after_its_timeout(client: ProcessClient) -> None:
    future = client.submit(long_work(20_000 // 7))
    client.close(timeout=0.05)
    assert isinstance(future.exception(0), EngineUnavailable)
    assert not is_running(client.pid)


def test_sigterm_and_sigint_are_left_to_the_parent(client: ProcessClient) -> None:
    future = client.submit(long_work(200))
    os.kill(client.pid, signal.SIGTERM)
    os.kill(client.pid, signal.SIGINT)
    assert len(future.result(TIMEOUT)) == 200
    assert client.restarts == 0


def test_the_engine_ends_when_its_parent_is_killed(tiny_bert: Path) -> None:
    code = f"""
    import time
    from cenote.config.engine import EngineConfig
    from cenote.engine.messages import EnginePrompt, EngineRequest
    from cenote.engine.process_client import ProcessClient
    from cenote.params import PoolingParams
    client = ProcessClient(EngineConfig(model={str(tiny_bert)!r}, threads=1))
    client.submit([
        EngineRequest(str(i), EnginePrompt([i] * 100), PoolingParams("embed"))
        for i in range(20_000)
    ])
    print(client.pid, flush=True)
    time.sleep(60)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        engine = int(parent.stdout.readline())
        assert is_running(engine)
        parent.kill()
    eventually(lambda: not is_running(engine), seconds=5.0)
