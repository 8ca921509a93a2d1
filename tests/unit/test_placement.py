"""Which cores each replica gets, on machines made up of files; a process that stays on its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cenote.config.profile import usable_cores
from cenote.engine.placement import Placement, share_cores


def machine(root: Path, nodes: list[str], physical: list[int]) -> Path:
    """A system folder: the nodes' lists of cores, and each core's physical one."""
    for node, cores in enumerate(nodes):
        folder = root / f"node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cores + "\n")
    for core, behind in enumerate(physical):
        topology = root / f"cpu/cpu{core}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text("0\n")
        (topology / "core_id").write_text(f"{behind}\n")
    return root


@pytest.fixture
def two_nodes(tmp_path: Path) -> Path:
    """Two nodes of four cores with two threads each, numbered as Linux does: threads last."""
    return machine(tmp_path, ["0-3,8-11", "4-7,12-15"], [*range(8), *range(8)])


def test_a_replica_for_each_node(two_nodes: Path) -> None:
    shares = share_cores(2, list(range(16)), two_nodes)
    assert shares == [{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}]


def test_both_threads_of_a_core_stay_together(two_nodes: Path) -> None:
    shares = share_cores(4, list(range(16)), two_nodes)
    assert shares == [{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}, {6, 7, 14, 15}]


def test_only_cores_that_may_be_used(two_nodes: Path) -> None:
    assert share_cores(2, [1, 2, 5, 9, 10, 13], two_nodes) == [{1, 9, 2}, {10, 5, 13}]


@pytest.mark.parametrize("count", range(1, 17))
def test_shares_are_even_and_apart(count: int, two_nodes: Path) -> None:
    shares = share_cores(count, list(range(16)), two_nodes)
    assert sorted(core for share in shares for core in share) == list(range(16))
    sizes = {len(share) for share in shares}
    assert max(sizes) - min(sizes) <= 1


def test_more_replicas_than_cores_run_anywhere(two_nodes: Path) -> None:
    assert share_cores(3, [0, 1], two_nodes) == [frozenset()] * 3


def test_a_system_that_says_nothing(tmp_path: Path) -> None:
    assert share_cores(2, [0, 1, 2, 3], tmp_path) == [{0, 1}, {2, 3}]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system can't place processes")
def test_a_process_stays_on_its_cores(child: subprocess.Popen[bytes]) -> None:
    cores = frozenset(usable_cores()[:1])
    Placement(niceness=1, cores=cores).apply(child.pid)
    assert os.sched_getaffinity(child.pid) == cores
    assert os.getpriority(os.PRIO_PROCESS, child.pid) == os.getpriority(os.PRIO_PROCESS, 0) + 1
