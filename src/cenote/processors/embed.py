"""Texts or token ids in, one vector for each out. It knows nothing of HTTP or of scoring."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cenote.engine.messages import EngineOutput
from cenote.outputs import Embedding
from cenote.params import Task
from cenote.processors import results
from cenote.processors.inputs import EmbedInput, PoolingInput, SparseOptions
from cenote.processors.pooling import pooling
from cenote.processors.prepare import Preparer, per_prompt
from cenote.processors.prepared import Prepared
from cenote.processors.prompts import prefix_for


def embed(preparer: Preparer, request: EmbedInput) -> Prepared[list[Embedding]]:
    """Prepares a request for embeddings, with the prefix that the request or the model names."""
    if request.sparse is not None:
        return _with_sparse(preparer, request)
    options = request.options
    params = preparer.params("embed", options, dimensions=request.dimensions)
    prefix = prefix_for(preparer.config, options)
    prompts = preparer.tokenize(request.prompts, options, prefix=prefix)
    requests = preparer.requests(prompts, per_prompt(params, prompts), options)

    def finish(outputs: list[EngineOutput]) -> list[Embedding]:
        return [results.embedding(*item) for item in zip(prompts, outputs, strict=True)]

    return Prepared(requests, finish)


def _with_sparse(preparer: Preparer, request: EmbedInput) -> Prepared[list[Embedding]]:
    """Both vectors from one forward pass; a model without dense ones gives empty embeddings."""
    has_dense = "embed" in preparer.supported_tasks
    tasks: list[Task] = ["embed", "sparse_embed"] if has_dense else ["sparse_embed"]
    wanted = PoolingInput(
        prompts=request.prompts,
        task=tasks,
        dimensions=request.dimensions,
        sparse=request.sparse or SparseOptions(),
        options=request.options,
    )
    prepared = pooling(preparer, None, wanted, "embed")

    def finish(outputs: list[EngineOutput]) -> list[Embedding]:
        made = prepared.finish(outputs)
        if has_dense:
            return [
                replace(item.results["embed"], sparse=item.results["sparse_embed"]) for item in made
            ]
        return [
            Embedding(
                embedding=np.empty(0, np.float32),
                prompt_tokens=item.prompt_tokens,
                truncated=item.truncated,
                sparse=item,
            )
            for item in made
        ]

    return Prepared(prepared.requests, finish)
