"""Every environment variable that Cenote or its loader heeds, in one table.

Ours are read here and nowhere else in Python (the native kernels read CENOTE_ISA themselves); those
of huggingface_hub are listed so that they are documented, and are read by that library. Nothing is
read at import.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from cenote.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable: its name, what it does, its default, and its values where they are a choice."""

    name: str
    help: str
    default: str | None = None
    choices: tuple[str, ...] = ()
    secret: bool = False

    def read(self, environ: Mapping[str, str] | None = None) -> str | None:
        """The value, or the default where it is unset or empty. Raises `InvalidRequest` for a
        value that is none of the choices."""
        value = (os.environ if environ is None else environ).get(self.name) or self.default
        if value is not None and self.choices and value not in self.choices:
            raise InvalidRequest(
                f"{self.name}={value!r} is unknown; it must be one of {', '.join(self.choices)}.",
                param=self.name,
            )
        return value


API_KEY = Variable(
    "CENOTE_API_KEY", "Keys that the server asks for, with commas between several.", secret=True
)
LOG_LEVEL = Variable(
    "CENOTE_LOG_LEVEL", "How much is logged.", "info", ("debug", "info", "warning", "error")
)
LOG_FORMAT = Variable(
    "CENOTE_LOG_FORMAT", "Log lines for people (text) or machines (json).", "text", ("text", "json")
)
ISA = Variable(
    "CENOTE_ISA",
    "Instruction set of the native kernels; unset: the best that the processor has.",
    choices=("amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2", "generic", "amx_emulated"),
)

KERNELS = Variable(
    "CENOTE_KERNELS",
    "What kernels=auto means: the native ones where they run, or plain torch.",
    "auto",
    ("auto", "native", "torch"),
)

CACHE = Variable(
    "CENOTE_CACHE",
    "Folder of the profiles that `cenote tune` writes; unset: cenote in the user's cache folder.",
)

OWN = (API_KEY, LOG_LEVEL, LOG_FORMAT, ISA, KERNELS, CACHE)

HUGGING_FACE = (
    Variable("HF_HOME", "Folder of the hub's cache and token.", "~/.cache/huggingface"),
    Variable("HF_HUB_CACHE", "Folder of downloaded models.", "$HF_HOME/hub"),
    Variable("HF_HUB_OFFLINE", "1: never use the network; models come from the cache.", "0"),
    Variable("HF_TOKEN", "Token for private and gated models.", secret=True),
    Variable("HF_ENDPOINT", "Address of the hub or of a mirror.", "https://huggingface.co"),
    Variable("HF_HUB_DOWNLOAD_TIMEOUT", "Seconds until a download's connection fails.", "10"),
    Variable("HF_HUB_DISABLE_PROGRESS_BARS", "1: no progress bars for downloads.", "0"),
)
