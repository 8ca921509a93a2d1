"""`cenote serve`: the HTTP server. It only gathers settings; `server.run` does the work."""

from __future__ import annotations

from typing import Annotated

import typer

from cenote.cli.args import with_flags
from cenote.config.engine import EngineConfig
from cenote.config.overrides import engines_for
from cenote.config.server import ServerConfig
from cenote.errors import CenoteError


@with_flags(server=ServerConfig, engine=EngineConfig)
def serve(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]...", help="In place of --model.", show_default=False),
    ] = None,
    *,
    engine: EngineConfig,
    server: ServerConfig,
) -> None:
    """Serve models over HTTP, in the forms of OpenAI, Cohere, Jina, TEI… The page is at /docs.

    Example: cenote serve minilm ./my-reranker --alias rerank=./my-reranker --port 8000
    """
    from cenote import log
    from cenote.server.run import serve as run

    # The default level leaves the choice to the environment.
    log.setup(None if server.log_level == ServerConfig().log_level else server.log_level)
    try:
        run(engines_for(names or [engine.model], engine, server.override), server)
    except OSError as error:
        raise CenoteError(str(error.strerror or error)) from error
