"""Which cores engines of one machine run on, and how far they stand back. It knows no engine.

Memory is close to some cores and far from the others (NUMA). Linux gives a process memory from
where it first writes to it, so an engine that stays on one node's cores has its weights there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

SYSTEM = Path("/sys/devices/system")


@dataclass(frozen=True, slots=True)
class Placement:
    """How a process is to run: `niceness` (0 to 19) below the priority of this one, on `cores`
    alone if there are any."""

    niceness: int = 0
    cores: frozenset[int] = frozenset()

    def apply(self, pid: int) -> None:
        """For a process that has just been started: its threads will be placed as the one which
        starts them is, so later it would be too late."""
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + self.niceness)
        if self.cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(pid, self.cores)


def share_cores(count: int, cores: list[int], system: Path = SYSTEM) -> list[frozenset[int]]:
    """`count` equal shares of `cores` (which differ by one at most) without a core in common: on
    as few nodes as may be, and with both threads of a core in one. Empty ones if there are fewer
    cores than shares."""
    if count > len(cores):
        return [frozenset()] * count
    nodes = _nodes(system)
    order = sorted(cores, key=lambda core: (nodes.get(core, 0), *_core_of(core, system), core))
    bounds = [len(order) * i // count for i in range(count + 1)]
    return [frozenset(order[first:end]) for first, end in pairwise(bounds)]


def _nodes(system: Path) -> dict[int, int]:
    """Core → node; empty where the system doesn't say."""
    found = {}
    for folder in system.glob("node/node*"):
        text = _read(folder / "cpulist")
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("-")
            cores = range(int(first), int(last or first) + 1)
            found.update(dict.fromkeys(cores, int(folder.name.removeprefix("node"))))
    return found


def _core_of(core: int, system: Path) -> tuple[int, int]:
    """Socket and physical core behind what the system calls a core."""
    topology = system / f"cpu/cpu{core}/topology"
    package, physical = (_read(topology / name) for name in ("physical_package_id", "core_id"))
    return int(package or 0), int(physical or core)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
