"""What `cenote tune` found for a model on a machine: a small JSON file in the user's cache.

A setting that was given beats the profile, and the profile beats the defaults. It knows neither how
the settings were measured nor what they do.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from cenote.config import env
from cenote.config.engine import DTypeName, EngineConfig, KernelChoice

logger = logging.getLogger(__name__)

# What a profile may set, and what each is while nobody has set it.
UNSET: Mapping[str, Any] = {
    "dtype": "auto",
    "kernels": "auto",
    "threads": 0,
    "lanes": 0,
    "max_num_batched_tokens": 0,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """The fastest settings found; `tokens_per_s` is what they gave, for people."""

    model: str
    machine: str
    dtype: DTypeName = "auto"
    kernels: KernelChoice = "auto"
    threads: int = 0
    lanes: int = 0
    max_num_batched_tokens: int = 0
    tokens_per_s: float = 0.0
    measured: str = ""

    def apply(self, engine: EngineConfig) -> EngineConfig:
        """The config with the profile's values where none was given."""
        found = {
            name: getattr(self, name)
            for name, unset in UNSET.items()
            if getattr(engine, name) == unset
        }
        if env.KERNELS.read() != env.KERNELS.default:
            found.pop("kernels", None)  # The environment says what `auto` means.
        return replace(engine, **found)

    def write(self, path: Path) -> None:
        """Writes the file whole or not at all. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        part.replace(path)

    @classmethod
    def read(cls, path: Path) -> Profile | None:
        """The file's profile; None where there is none, or (with a warning) no valid one."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError:
            return None
        try:
            profile = cls(**json.loads(text))
            profile._check()
        except (TypeError, ValueError) as error:
            logger.warning("the profile %s is not used: %s", path, error)
            return None
        return profile

    def _check(self) -> None:
        """Raises ValueError where a value can't be a setting."""
        for name, allowed in (("dtype", DTypeName), ("kernels", KernelChoice)):
            if getattr(self, name) not in get_args(allowed):
                raise ValueError(f"{name} is {getattr(self, name)!r}")
        for name in ("threads", "lanes", "max_num_batched_tokens"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{name} is {value!r}")


def with_profile(engine: EngineConfig, folder: Path) -> EngineConfig:
    """The config with what a profile of the model in `folder` on this machine adds to it."""
    if not engine.profile or engine.device not in ("auto", "cpu"):
        return engine
    path = profile_path(folder, engine)
    profile = Profile.read(path)
    if profile is None:
        return engine
    tuned = profile.apply(engine)
    if tuned != engine:
        logger.info("settings of %s from %s (--no-profile leaves them)", engine.model, path)
    return tuned


def profile_path(folder: Path, engine: EngineConfig) -> Path:
    """Where the profile of a model on this machine is or would be.

    The model is its config.json: weights of one shape run alike. int8 has a profile of its own.
    """
    try:
        shape = (folder / "config.json").read_bytes()
    except OSError:
        shape = str(folder).encode()
    parts = (shape, machine().encode(), engine.quantization.encode())
    key = hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]
    return cache_folder() / "profiles" / f"{key}.json"


def cache_folder() -> Path:
    """CENOTE_CACHE, else the user's cache folder."""
    own = env.CACHE.read()
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cenote"


def machine() -> str:
    """The processor and the cores that this process may use: settings for one suit its likes."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = [line.partition(":") for line in file]
    except OSError:
        lines = []
    seen = {key.strip().lower(): value.strip() for key, _, value in reversed(lines)}
    name = seen.get("model name", name)
    flags = hashlib.sha256(seen.get("flags", seen.get("features", "")).encode()).hexdigest()[:8]
    return f"{name}, {len(usable_cores())} cores, features {flags}"


def usable_cores() -> list[int]:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return sorted(affinity(0)) if affinity else list(range(os.cpu_count() or 1))
