"""Texts or token ids in, one vector for each out. It knows nothing of HTTP or of scoring."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cenote.engine.messages import EngineOutput
from cenote.errors import InvalidRequest
from cenote.outputs import Embedding
from cenote.params import Task
from cenote.processors import results
from cenote.processors.inputs import EmbedInput, PoolingInput, SparseOptions
from cenote.processors.long_input import LONG_INPUT, chunk_mean, late_chunking
from cenote.processors.pooling import pooling
from cenote.processors.prepare import Preparer, per_prompt
from cenote.processors.prepared import Prepared
from cenote.processors.prompts import prefix_for


def embed(preparer: Preparer, request: EmbedInput) -> Prepared[list[Embedding]]:
    """Prepares a request for embeddings, with the prefix that the request or the model names."""
    special = _special(preparer, request)
    if special is not None:
        return special
    options = request.options
    params = preparer.params("embed", options, dimensions=request.dimensions)
    prefix = prefix_for(preparer.config, options)
    prompts = preparer.tokenize(request.prompts, options, prefix=prefix)
    requests = preparer.requests(prompts, per_prompt(params, prompts), options)

    def finish(outputs: list[EngineOutput]) -> list[Embedding]:
        return [results.embedding(*item) for item in zip(prompts, outputs, strict=True)]

    return Prepared(requests, finish)


def _special(preparer: Preparer, request: EmbedInput) -> Prepared[list[Embedding]] | None:
    """Requests that ask for more, or for other, than a vector for each prompt; they don't mix."""
    asked = {
        "return_sparse": request.sparse is not None,
        "long_input": request.long_input != "error",
        "late_chunking": request.late_chunking is not None,
    }
    given = [name for name, wanted in asked.items() if wanted]
    if len(given) > 1:
        raise InvalidRequest(f"{' and '.join(given)} can't be given together.", param=given[1])
    if request.long_input not in LONG_INPUT:
        raise InvalidRequest(
            f"long_input must be one of {list(LONG_INPUT)}, not {request.long_input!r}.",
            param="long_input",
        )
    if request.sparse is not None:
        return _with_sparse(preparer, request)
    if request.late_chunking is not None:
        return late_chunking(preparer, request, request.late_chunking)
    return chunk_mean(preparer, request) if given else None


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
