"""Scores from a ColBERT model: MaxSim in the engine, beside the model.

Each distinct query is one request that leaves its vectors in the engine; its documents follow it in
the same submit and bring back one number each. Keys are made here, never from what a client sent.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass

import msgspec

from cenote.config.model import ModelConfig
from cenote.engine.messages import EngineOutput
from cenote.outputs import Score, TokenMatch
from cenote.params import LateInteractionParams, PoolingParams
from cenote.processors import results
from cenote.processors.colbert import ColbertEncoder
from cenote.processors.extras import EngineExtras
from cenote.processors.inputs import PromptOptions, ScoreInput
from cenote.processors.prepare import Preparer, TokenPrompt
from cenote.processors.prepared import Prepared
from cenote.processors.score.sides import Sides, read_sides, refuse_fields
from cenote.processors.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class _Pair:
    """One document's place: its own request's row, its query's row, and its place in the answer."""

    query_row: int
    document_row: int
    place: int
    cut: bool


def score(
    preparer: Preparer, encoder: ColbertEncoder, request: ScoreInput
) -> Prepared[list[Score]]:
    """Prepares each distinct query followed by its documents, as one submit.

    A query's tokens are counted in the result of its first document.
    """
    refuse_fields(
        request,
        "a late-interaction model",
        "instruction",
        "input_type",
        "prompt",
        "prompt_name",
        "chat_template",
    )
    options = request.options
    params = preparer.params("token_embed", options)
    sides = read_sides(preparer, request)
    prompts, all_params, pairs = _layout(preparer, encoder, request, sides, params)
    requests = preparer.requests(prompts, all_params, options)

    def finish(outputs: list[EngineOutput]) -> list[Score]:
        scores: dict[int, Score] = {}
        counted: set[int] = set()
        for pair in pairs:
            query, document = prompts[pair.query_row], prompts[pair.document_row]
            asked, output = outputs[pair.query_row], outputs[pair.document_row]
            tokens = len(document.token_ids)
            if pair.query_row not in counted:
                counted.add(pair.query_row)
                tokens += len(query.token_ids)
            scores[pair.place] = Score(
                score=float(output.array().reshape(-1)[0]),
                prompt_tokens=tokens,
                truncated=pair.cut or query.truncated or document.truncated,
                matches=_matches(preparer.tokenizer, (query, asked), (document, output))
                if request.explain
                else None,
            )
        return [scores[place] for place in range(len(scores))]

    return Prepared(requests, finish)


def _layout(
    preparer: Preparer,
    encoder: ColbertEncoder,
    request: ScoreInput,
    sides: Sides,
    params: PoolingParams,
) -> tuple[list[TokenPrompt], list[PoolingParams], list[_Pair]]:
    """Rows in engine order: a query, its documents, the next query, its documents…"""
    options = request.options
    groups: dict[str, list[int]] = {}
    for place, (query, _) in enumerate(sides.pairs):
        groups.setdefault(sides.queries[query].text, []).append(place)
    queries = encoder.encode(
        list(groups),
        "query",
        options,
        limited=request.max_tokens_per_query > 0,
        param="queries",
        offsets=request.explain,
    )
    documents = encoder.encode(
        [sides.documents[document].text for _, document in sides.pairs],
        "document",
        options,
        limited=request.max_tokens_per_doc > 0,
        param="documents",
        offsets=request.explain,
    )
    prompts: list[TokenPrompt] = []
    all_params: list[PoolingParams] = []
    pairs: list[_Pair] = []
    for prompt, places in zip(queries, groups.values(), strict=True):
        key = uuid.uuid4().hex
        query_row = len(prompts)
        prompts.append(prompt)
        content = content_key(preparer.config, prompt, params, options)
        all_params.append(_query_params(params, prompt, key, len(places), content))
        for place in places:
            cut = sides.is_cut(sides.pairs[place])
            pairs.append(_Pair(query_row, len(prompts), place, cut))
            prompts.append(documents[place])
            all_params.append(_document_params(params, key, explain=request.explain))
    return prompts, all_params, pairs


def content_key(
    config: ModelConfig, query: TokenPrompt, params: PoolingParams, options: PromptOptions
) -> str:
    """The name under which equal queries of later requests may find this one's vectors.

    All that the vectors depend on is in it (weights apart: a reload clears the cache), and the
    salt: requests with different salts, or without one, never share.
    """
    extras = EngineExtras.of(options)
    parts = (
        config.name,
        config.revision,
        query.token_ids,
        query.attended_tokens,
        params.dimensions,
        params.use_activation,
        params.extra_kwargs,
        extras.mm_processor_kwargs,
        options.adapter,
        extras.cache_salt,
    )
    return hashlib.blake2b(
        msgspec.msgpack.encode(parts, order="deterministic"), digest_size=16
    ).hexdigest()


def _query_params(
    params: PoolingParams, query: TokenPrompt, key: str, uses: int, content: str
) -> PoolingParams:
    return msgspec.structs.replace(
        params,
        input_type="query",
        attended_tokens=query.attended_tokens,
        late_interaction=LateInteractionParams(
            mode="cache_query", query_key=key, query_uses=uses, content_key=content
        ),
    )


def _document_params(params: PoolingParams, key: str, *, explain: bool) -> PoolingParams:
    return msgspec.structs.replace(
        params,
        input_type="document",
        late_interaction=LateInteractionParams(mode="score_doc", query_key=key, explain=explain),
    )


def _matches(
    tokenizer: Tokenizer,
    query: tuple[TokenPrompt, EngineOutput],
    document: tuple[TokenPrompt, EngineOutput],
) -> list[TokenMatch]:
    """Each query row's best document token.

    The document's output holds the score and then a similarity for each query row, and as indices
    the prompt positions of the matches; the query's indices say which position each row is.
    """
    similarities = document[1].array().reshape(-1)[1:].tolist()
    positions = results.positions(document[1]).tolist()
    rows = query[1].index_array()
    query_positions = list(range(len(similarities))) if rows is None else rows.tolist()
    query_tokens = tokenizer.tokens(query[0].token_ids)
    document_tokens = tokenizer.tokens(document[0].token_ids)
    return [
        TokenMatch(
            query_token=query_tokens[left],
            query_offset=query[0].offsets[left],
            document_token=document_tokens[right],
            document_offset=document[0].offsets[right],
            similarity=similarity,
        )
        for left, right, similarity in zip(query_positions, positions, similarities, strict=True)
        if right >= 0
    ]
