"""Where the model runs and in what number format. It knows no model and no request.

`auto` asks the machine: a CUDA device if there is one, and bfloat16 where the processor multiplies
it natively (AMX or AVX512-BF16 on x86, a CUDA device with bfloat16), else float32.
"""

from __future__ import annotations

from pathlib import Path

import torch

from cenote.config.engine import STEP_TOKENS, DTypeName
from cenote.errors import InvalidRequest

# Flags of /proc/cpuinfo that stand for a native bfloat16 product.
_BF16_FLAGS = frozenset({"amx_bf16", "avx512_bf16", "bf16"})

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(name: str) -> torch.device:
    """The device of a config's `device`.

    Raises:
        InvalidRequest: the name is not a device of this machine.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidRequest(
            f"device {name!r} is unknown; use auto, cpu, cuda or cuda:N.", param="device"
        ) from error
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        raise InvalidRequest(
            f"device {name!r} does not exist: this machine has {count} CUDA devices.",
            param="device",
        )
    if device.type not in STEP_TOKENS:
        raise InvalidRequest(f"device {name!r} is not supported; use cpu or cuda.", param="device")
    return device


def choose_dtype(name: DTypeName, device: torch.device) -> tuple[torch.dtype, str]:
    """The number format of a config's `dtype`, and why, for the log."""
    if name != "auto":
        return _DTYPES[name], "asked for"
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported():
            return torch.bfloat16, "the GPU multiplies it natively"
        return torch.float32, "the GPU has no bfloat16"
    found = sorted(_BF16_FLAGS & cpu_flags())
    if found:
        return torch.bfloat16, f"the processor has {', '.join(found)}"
    return torch.float32, "the processor has neither AMX nor AVX512-BF16"


def cpu_flags() -> set[str]:
    """The processor's features as Linux names them; empty where that can't be read."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return set()
    for line in text.splitlines():
        if line.lower().startswith(("flags", "features")):
            return set(line.partition(":")[2].split())
    return set()


def free_memory(device: torch.device) -> int:
    """Bytes that could be taken on a device now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = [_available(), _left_in_group()]
    return min((one for one in free if one is not None), default=0)


def _available() -> int | None:
    """Linux's own estimate for the machine."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) << 10 if found else None


def _left_in_group() -> int | None:
    """What a container's limit leaves, where there is one."""
    try:
        limit, used = (
            Path("/sys/fs/cgroup", name).read_text(encoding="utf-8").strip()
            for name in ("memory.max", "memory.current")
        )
        return max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return None


def step_tokens(configured: int, device: torch.device) -> int:
    """The token budget of a step: what was asked for, or what suits the device."""
    return configured or STEP_TOKENS[device.type]
