"""Any task by name: vectors, class scores, token vectors, token classes or sparse vectors.

Token vectors of a ColBERT model are encoded by side: `input_type` query or document (the default).
It knows nothing of HTTP or of scoring.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from cenote.engine.messages import EngineOutput
from cenote.outputs import SparseEmbedding, TokenClassification, TokenEmbeddings
from cenote.params import InputType, Task
from cenote.processors import results
from cenote.processors.classify import classify
from cenote.processors.colbert import ColbertEncoder
from cenote.processors.embed import embed
from cenote.processors.inputs import ClassifyInput, EmbedInput, PoolingInput, PromptOptions
from cenote.processors.prepare import (
    Preparer,
    TokenPrompt,
    check_prompt_choice,
    check_prompts,
    per_prompt,
)
from cenote.processors.prepared import Prepared
from cenote.processors.prompts import prefix_for, side_of

TokenResult = TokenEmbeddings | TokenClassification | SparseEmbedding


def pooling(
    preparer: Preparer, colbert: ColbertEncoder | None, request: PoolingInput, default: Task
) -> Prepared[Any]:
    """Prepares a request for `request.task`, or for `default` where it names none."""
    task = request.task or default
    options = request.options
    params = preparer.params(task, options, dimensions=request.dimensions)
    if task == "embed":
        return embed(
            preparer,
            EmbedInput(prompts=request.prompts, dimensions=request.dimensions, options=options),
        )
    if task == "classify":
        return classify(preparer, ClassifyInput(prompts=request.prompts, options=options))
    if task == "token_embed" and colbert is not None:
        side = colbert_side(options)
        params = msgspec.structs.replace(params, input_type=side)
        prompts = _colbert_prompts(preparer, colbert, request, side)
    else:
        prefix = prefix_for(preparer.config, options)
        prompts = preparer.tokenize(
            request.prompts, options, prefix=prefix, offsets=task == "token_classify"
        )
    requests = preparer.requests(prompts, per_prompt(params, prompts), options)

    def finish(outputs: list[EngineOutput]) -> list[TokenResult]:
        labels = preparer.config.labels
        return [
            _result(task, labels, prompt, output)
            for prompt, output in zip(prompts, outputs, strict=True)
        ]

    return Prepared(requests, finish)


def colbert_side(options: PromptOptions) -> InputType:
    """The side that a request names: `input_type`, or the caller's own params; else document."""
    own = options.pooling_params.input_type if options.pooling_params else None
    return side_of(options.input_type or own or "document")


def _colbert_prompts(
    preparer: Preparer, colbert: ColbertEncoder, request: PoolingInput, side: InputType
) -> list[TokenPrompt]:
    """Texts by side; token ids are what the model is fed, so nothing is added to them."""
    check_prompts(request.prompts)
    check_prompt_choice(request.prompts, request.options)
    options = replace(request.options, input_type=side)
    texts = [prompt for prompt in request.prompts if isinstance(prompt, str)]
    ids = [prompt for prompt in request.prompts if not isinstance(prompt, str)]
    encoded = iter(colbert.encode(texts, side, options) if texts else [])
    given = iter(preparer.tokenize(ids, options) if ids else [])
    return [next(encoded if isinstance(prompt, str) else given) for prompt in request.prompts]


def _result(
    task: Task, labels: tuple[str, ...], prompt: TokenPrompt, output: EngineOutput
) -> TokenResult:
    if task == "token_embed":
        return results.token_embeddings(prompt, output)
    if task == "token_classify":
        return results.token_classification(prompt, output, labels)
    return results.sparse_embedding(prompt, output)
