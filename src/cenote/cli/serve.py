"""`cenote serve`: the HTTP server. It only gathers settings; `server.run` does the work."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from cenote.cli.args import with_flags
from cenote.config.engine import EngineConfig
from cenote.config.server import ServerConfig
from cenote.errors import CenoteError


@with_flags(server=ServerConfig, engine=EngineConfig)
def serve(
    name: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="The same as --model.", show_default=False),
    ] = None,
    *,
    engine: EngineConfig,
    server: ServerConfig,
) -> None:
    """Serve a model over HTTP: OpenAI, Cohere and Jina forms. The API's page is at /docs.

    Example: cenote serve minilm --port 8000
    """
    from cenote import log
    from cenote.server.run import serve as run

    # The default level leaves the choice to the environment.
    log.setup(None if server.log_level == ServerConfig().log_level else server.log_level)
    try:
        run(replace(engine, model=name) if name else engine, server)
    except OSError as error:
        raise CenoteError(str(error.strerror or error)) from error
