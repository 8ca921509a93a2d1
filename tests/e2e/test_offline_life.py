"""An `LLM` that nobody closes: nothing of it stays, and nothing is said at the end."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from pathlib import Path

from cenote import LLM

SCRIPT = """
import sys
from cenote import LLM
llm = LLM(sys.argv[1], threads=1)
print(llm.embed("hello", progress=False)[0].embedding.shape[0])
"""


def engines() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name == "cenote-engine"}


def test_a_script_that_does_not_close_it_ends_in_silence(tiny_bert: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tiny_bert)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert int(ended.stdout) > 0
    assert ended.stderr == ""


def test_one_that_is_let_go_of_ends_its_engine(tiny_bert: Path) -> None:
    before = engines()
    llm = LLM(str(tiny_bert), threads=1)
    assert len(engines() - before) == 1
    del llm
    assert engines() == before


def test_one_in_a_cycle_is_collected_by_whoever_collects(tiny_bert: Path) -> None:
    before = engines()
    knot: list[object] = [LLM(str(tiny_bert), threads=1)]
    knot.append(knot)
    del knot
    gc.collect()
    until = time.monotonic() + 10
    while engines() != before and time.monotonic() < until:
        time.sleep(0.01)
    assert engines() == before
