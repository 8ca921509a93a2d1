"""Bodies of Jina's routes that no other service has."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cenote.server.schemas.embed import EmbeddingRequest
from cenote.server.schemas.inputs import input_config


class MultiVectorRequest(EmbeddingRequest):
    """Texts whose tokens each get a vector."""

    model_config = input_config({"input": ["A sinkhole."], "input_type": "document"})

    return_multivector: Literal[True] = Field(True, description="Always so on this route.")
