"""The body of /invocations: whatever another route takes."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from cenote.server.schemas.body import ModelBody


class Invocation(ModelBody):
    """The body of one of the other routes; its fields say of which."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [{"input": "A sinkhole."}, {"query": "a", "documents": ["b", "c"]}]
        },
    )

    input: Any = Field(None, description="Embeddings, or classes, by what the model does.")
    inputs: Any = Field(None, description="A body of text-embeddings-inference.")
    query: Any = Field(None, description="A rerank.")
    task: Any = Field(None, description="Pooling.")
