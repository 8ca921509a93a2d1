"""The kernels' thread pool: many callers, forks, sleeping workers, and the end of a process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import torch

native = pytest.importorskip("cenote._native", reason="the C++ kernels are not built")


class Product:
    """One product large enough that every thread takes part."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.x, self.w = torch.randn(256, 128), torch.randn(192, 128)
        self.weight = native.PackedWeight(self.w.data_ptr(), native.F32, 192, 128, kind="f32")
        self.expected = self.run()

    def run(self) -> torch.Tensor:
        out = torch.empty(256, 192)
        native.linear(self.x.data_ptr(), native.F32, 256, self.weight, out.data_ptr(), native.F32)
        return out

    def holds(self) -> bool:
        return torch.equal(self.run(), self.expected)


@pytest.fixture
def product() -> Product:
    return Product()


def test_callers_on_several_threads_take_turns(product: Product) -> None:
    right: list[bool] = []

    def work() -> None:
        right.append(all(product.holds() for _ in range(50)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 4


def test_the_number_of_threads_may_change_between_calls(product: Product) -> None:
    before = native.num_threads()
    try:
        for count in (1, 3, 2, 5, 1, 2):
            native.set_num_threads(count)
            assert native.num_threads() == count
            assert all(product.holds() for _ in range(20))
    finally:
        native.set_num_threads(before)


def test_idle_workers_sleep(product: Product) -> None:
    product.run()
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.05


def test_workers_wake_up_after_a_pause(product: Product) -> None:
    for _ in range(20):
        time.sleep(0.002)
        assert product.holds()


def run_alone(code: str) -> subprocess.CompletedProcess[str]:
    prelude = """
        import os, threading
        from array import array
        from cenote import _native as native
        # No torch in here: its own threads neither survive a fork nor always end well.
        ones = array("f", [1.0]) * (256 * 128)
        out = array("f", [0.0]) * (256 * 192)
        weight = native.PackedWeight(ones.buffer_info()[0], 0, 192, 128, kind="f32")
        native.set_num_threads(2)
        arguments = (ones.buffer_info()[0], 0, 256, weight, out.buffer_info()[0], 0)
        def run():
            for i in range(0, len(out), 7):
                out[i] = 0
            native.linear(*arguments)
            return set(out) == {128.0}
    """
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(prelude) + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_has_a_pool_of_its_own() -> None:
    result = run_alone(
        """
        assert run()
        child = os.fork()
        if child == 0:
            os._exit(0 if run() and run() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert run()
        """
    )
    assert result.returncode == 0, result.stderr


def test_the_process_ends_while_a_thread_still_computes() -> None:
    result = run_alone(
        """
        def forever():
            while True:
                native.linear(*arguments)
        threading.Thread(target=forever, daemon=True).start()
        assert run()
        """
    )
    assert result.returncode == 0, result.stderr


def test_level_can_be_chosen_by_the_environment() -> None:
    code = "from cenote import _native; print(_native.isa())"
    path = os.pathsep.join(sys.path)
    for name, fine in (("generic", True), ("nonsense", False)):
        result = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": path, "CENOTE_ISA": name},
        )
        assert (result.returncode == 0) == fine
        assert result.stdout.strip() == (name if fine else "")


def test_a_thread_can_compute_alone(product: Product) -> None:
    before = native.num_threads()
    native.set_num_threads(3)
    found: list[object] = []

    def alone() -> None:
        native.set_alone(True)
        found.append(native.num_threads())
        found.append(product.holds())
        native.set_alone(False)
        found.append(native.num_threads())

    try:
        thread = threading.Thread(target=alone)
        thread.start()
        thread.join()
        assert found == [1, True, 3]
        assert native.num_threads() == 3
    finally:
        native.set_num_threads(before)


def test_a_thread_alone_waits_at_a_gate_while_it_is_held_but_not_for_ever() -> None:
    waited: list[float] = []

    def alone() -> None:
        native.set_alone(True)
        began = time.perf_counter()
        native.pass_gate()
        waited.append(time.perf_counter() - began)
        native.set_alone(False)

    native.hold_alone(True)
    native.hold_alone(True)
    native.hold_alone(False)  # another one still holds
    try:
        thread = threading.Thread(target=alone)
        thread.start()
        native.pass_gate()  # not for threads that share their work
        thread.join(30)
    finally:
        native.hold_alone(False)
    assert waited[0] > 0.01
    alone()  # nobody holds
    assert len(waited) == 2
