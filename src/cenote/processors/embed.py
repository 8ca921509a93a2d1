"""Texts or token ids in, one vector for each out. It knows nothing of HTTP or of scoring."""

from __future__ import annotations

from cenote.engine.messages import EngineOutput
from cenote.outputs import Embedding
from cenote.processors import results
from cenote.processors.inputs import EmbedInput
from cenote.processors.prepare import Preparer, per_prompt
from cenote.processors.prepared import Prepared
from cenote.processors.prompts import prefix_for


def embed(preparer: Preparer, request: EmbedInput) -> Prepared[list[Embedding]]:
    """Prepares a request for embeddings, with the prefix that the request or the model names."""
    options = request.options
    params = preparer.params("embed", options, dimensions=request.dimensions)
    prefix = prefix_for(preparer.config, options)
    prompts = preparer.tokenize(request.prompts, options, prefix=prefix)
    requests = preparer.requests(prompts, per_prompt(params, prompts), options)

    def finish(outputs: list[EngineOutput]) -> list[Embedding]:
        return [results.embedding(*item) for item in zip(prompts, outputs, strict=True)]

    return Prepared(requests, finish)
