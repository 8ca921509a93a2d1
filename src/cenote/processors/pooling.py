"""Any task by name: vectors, class scores, token vectors, token classes or sparse vectors.

Token vectors of a ColBERT model are encoded by side: `input_type` query or document (the default).
It knows nothing of HTTP or of scoring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec

from cenote.config.architectures import STEPWISE
from cenote.config.model import ModelConfig
from cenote.engine.messages import EngineOutput
from cenote.errors import InvalidRequest
from cenote.outputs import (
    Classification,
    Embedding,
    Entities,
    SparseEmbedding,
    TaskResults,
    TokenClassification,
    TokenEmbeddings,
)
from cenote.params import InputType, PoolingParams, Task
from cenote.processors import results
from cenote.processors.colbert import ColbertEncoder
from cenote.processors.entities import STRATEGIES, Strategy, find_entities
from cenote.processors.inputs import PoolingInput, PromptOptions
from cenote.processors.prepare import Preparer, TokenPrompt, per_prompt
from cenote.processors.prepared import Prepared
from cenote.processors.prompts import prefix_for, side_of
from cenote.processors.sparse import sparse_prompts, sparse_side
from cenote.processors.validation import check_prompt_choice, check_prompts, check_type

Result = (
    Embedding
    | Classification
    | TokenEmbeddings
    | TokenClassification
    | SparseEmbedding
    | TaskResults
    | Entities
)


def pooling(
    preparer: Preparer, colbert: ColbertEncoder | None, request: PoolingInput, default: Task
) -> Prepared[Any]:
    """Prepares a request for `request.task`, or for `default` where it names none.

    Several tasks run in one forward pass, and each text's results come together.
    """
    task, *also = tasks_of(request.task, default)
    options = request.options
    params = preparer.params(
        task, options, also=also, dimensions=request.dimensions, sparse=request.sparse
    )
    _check_return_tokens(request, (task, *also))
    _check_aggregation(request, (task, *also))
    prompts, params = _prompts(preparer, colbert, request, params)
    requests = preparer.requests(prompts, per_prompt(params, prompts), options)

    def finish(outputs: list[EngineOutput]) -> list[Result]:
        return [
            _result(preparer, request, (task, *also), index, prompt, output)
            for index, (prompt, output) in enumerate(zip(prompts, outputs, strict=True))
        ]

    return Prepared(requests, finish)


def tasks_of(task: Task | Sequence[Task] | None, default: Task) -> list[Task]:
    """The tasks that a request names, each once. Raises `InvalidRequest` for an empty list."""
    if task is None:
        return [default]
    if isinstance(task, str):
        return [task]
    if not task:
        raise InvalidRequest("task is an empty list; leave it out or name a task.", param="task")
    return list(dict.fromkeys(task))


def _check_return_tokens(request: PoolingInput, tasks: Sequence[Task]) -> None:
    wants = request.sparse.return_tokens
    check_type(wants, "return_tokens", bool, "true or false")
    if wants and "sparse_embed" not in tasks:
        raise InvalidRequest("return_tokens is for sparse_embed only.", param="return_tokens")


def _check_aggregation(request: PoolingInput, tasks: Sequence[Task]) -> None:
    strategy = request.aggregation_strategy
    if strategy is None:
        return
    if strategy not in STRATEGIES:
        problem = f"aggregation_strategy must be one of {list(STRATEGIES)}, not {strategy!r}."
    elif list(tasks) != ["token_classify"]:
        problem = "aggregation_strategy is for token_classify only."
    elif request.options.use_activation is False:
        problem = "aggregation_strategy needs probabilities, so use_activation can't be false."
    elif not all(isinstance(prompt, str) for prompt in request.prompts):
        problem = "aggregation_strategy needs texts, not token ids."
    else:
        return
    raise InvalidRequest(problem, param="aggregation_strategy")


def _prompts(
    preparer: Preparer,
    colbert: ColbertEncoder | None,
    request: PoolingInput,
    params: PoolingParams,
) -> tuple[list[TokenPrompt], PoolingParams]:
    """The prompts as the first task wants them, and the parameters with their side."""
    options = request.options
    if params.task == "token_embed" and colbert is not None:
        side = colbert_side(options)
        prompts = _colbert_prompts(preparer, colbert, request, side)
        return prompts, msgspec.structs.replace(params, input_type=side)
    prefix = prefix_for(preparer.config, options)
    if params.task == "sparse_embed":
        side = sparse_side(preparer, options)
        prompts = sparse_prompts(preparer, request.prompts, options, side, prefix=prefix)
        return prompts, msgspec.structs.replace(params, input_type=side)
    offsets = params.task == "token_classify"
    return preparer.tokenize(request.prompts, options, prefix=prefix, offsets=offsets), params


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


def _kept_labels(config: ModelConfig, options: PromptOptions) -> Sequence[str]:
    """Names of the classes that a token's scores are of: all, or those that were chosen."""
    own = options.pooling_params and options.pooling_params.returned_token_ids
    if config.architecture in STEPWISE:
        own = own or config.hf.get("returned_token_ids")
    return [config.labels[at] for at in own] if own else config.labels


def _result(
    preparer: Preparer,
    request: PoolingInput,
    tasks: Sequence[Task],
    index: int,
    prompt: TokenPrompt,
    output: EngineOutput,
) -> Result:
    tokenizer = preparer.tokenizer if request.sparse.return_tokens else None
    labels = preparer.config.labels
    made: dict[Task, Any] = {}
    for task, one in zip(tasks, (output, *(output.more or ())), strict=True):
        match task:
            case "embed":
                made[task] = results.embedding(prompt, one)
            case "classify":
                made[task] = results.classification(prompt, one, labels)
            case "token_embed":
                made[task] = results.token_embeddings(prompt, one)
            case "token_classify":
                kept = _kept_labels(preparer.config, request.options)
                made[task] = results.token_classification(prompt, one, kept)
            case "sparse_embed":
                made[task] = results.sparse_embedding(prompt, one, tokenizer)
    if request.aggregation_strategy is not None:
        strategy = cast("Strategy", request.aggregation_strategy)
        text = str(request.prompts[index])
        found = find_entities(strategy, made[tasks[0]], text, preparer.tokenizer)
        return Entities(found, len(prompt.token_ids), prompt.truncated)
    if len(tasks) == 1:
        return cast("Result", made[tasks[0]])
    return TaskResults(made, len(prompt.token_ids), prompt.truncated)
