"""How the HTTP server is to run: frozen, resolved once. It knows nothing of models or engines.

CLI flags of `serve` are made from these fields: the metadata's `help` is the flag's help.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal

from cenote.config import env
from cenote.config.flags import check_values, flag
from cenote.errors import InvalidRequest

# The kernel's own limit.
MAX_NICENESS = 19


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerConfig:
    """Every setting of one server. `0` or None means: no limit, or chosen for the machine.

    Raises `InvalidRequest` that names the field, the value and the limit.
    """

    host: str = flag("127.0.0.1", "Address to listen on; 0.0.0.0 for every network.")
    port: int = flag(8000, "Port to listen on; 0 takes a free one and logs it.")
    uds: str | None = flag(None, "Unix socket to listen on, in place of host and port.")
    api_key: tuple[str, ...] = flag(
        (), f"Key that every route but /health asks for; several allowed; or {env.API_KEY.name}."
    )
    served_model_name: tuple[str, ...] = flag(
        (), "Names that requests may use for the model; the first is reported. Default: its own."
    )
    alias: tuple[str, ...] = flag(
        (), "Another name of a model, as name=model; repeat it for more. Adds to its own name."
    )
    lazy: bool = flag(
        False, "Start each model's engine at its first request; its folder is read at once."
    )
    override: tuple[str, ...] = flag(
        (), "A setting of one of several models, as model:field=value, in place of the shared one."
    )
    max_body_bytes: int = flag(32 << 20, "Largest request body; beyond it requests get 413.")
    max_items_per_request: int = flag(4096, "Most prompts or documents in one request (413).")
    trust_request_chat_template: bool = flag(
        False, "Take a chat_template from requests. It runs in a sandbox, but may take long."
    )
    enable_admin: bool = flag(False, "Serve /reload_weights, /reset_… and /engine_stats.")
    request_timeout: float = flag(0.0, "Seconds until a request is given up with 504; 0: never.")
    drain_timeout: float = flag(30.0, "Seconds that running requests get after SIGTERM.")
    engine_niceness: int = flag(
        5, "How far engines stand back for the API process (and others), 0 to 19; 0: not."
    )
    tokenizer_threads: int = flag(0, "Threads for tokenising and encoding; 0: chosen.")
    cors_origins: tuple[str, ...] = flag((), "Origins whose pages may call the server; * for all.")
    root_path: str = flag("", "Path prefix that a proxy in front strips.")
    log_level: Literal["debug", "info", "warning", "error"] = flag(
        "info", "debug, info, warning or error."
    )
    access_log: bool = flag(False, "Log a line for every request.")

    def __post_init__(self) -> None:
        check_values(self)
        for name, least in (
            ("port", 0),
            ("max_body_bytes", 1),
            ("max_items_per_request", 1),
            ("request_timeout", 0),
            ("drain_timeout", 0),
            ("engine_niceness", 0),
            ("tokenizer_threads", 0),
        ):
            value = getattr(self, name)
            if value < least:
                raise InvalidRequest(f"{name} must be at least {least}, not {value}.", param=name)
        for name, most in (("port", 65535), ("engine_niceness", MAX_NICENESS)):
            value = getattr(self, name)
            if value > most:
                raise InvalidRequest(f"{name} must be at most {most}, not {value}.", param=name)
        if "" in self.api_key:
            raise InvalidRequest("api_key must not be an empty string.", param="api_key")

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(item.name for item in fields(cls))

    def with_environment(self, environ: Mapping[str, str] | None = None) -> ServerConfig:
        """A copy whose keys come from CENOTE_API_KEY (several with commas) if none were given."""
        given = env.API_KEY.read(environ) or ""
        keys = tuple(key.strip() for key in given.split(",") if key.strip())
        return replace(self, api_key=keys) if keys and not self.api_key else self

    @property
    def threads(self) -> int:
        """Threads of the tokeniser pool: as asked for, else by the number of cores."""
        return self.tokenizer_threads or min(8, max(2, (os.cpu_count() or 2) // 2))
