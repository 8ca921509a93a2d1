"""POST /tokenize and /detokenize: what the model is fed for a text, and back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cenote.processors.tokenizer import Tokenizer
from cenote.server.dialects import set_dialect
from cenote.server.dispatch import Answer
from cenote.server.openapi import describe
from cenote.server.routes.tei_tokens import tokenize_texts
from cenote.server.routing import plain_router
from cenote.server.schemas.tei import TeiTokenizeRequest
from cenote.server.schemas.tokenize import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from cenote.server.state import Call, received

router = plain_router("tokenize")


@router.post("/tokenize", **describe(TokenizeResponse, TokenizeRequest))
async def tokenize(request: Request) -> Response:
    """The tokens of one text.

    With `inputs` in place of prompt it is text-embeddings-inference's, as at /tei/tokenize.
    """

    def kind(fields: Mapping[str, Any]) -> type[TokenizeRequest | TeiTokenizeRequest]:
        if "inputs" not in fields or "prompt" in fields:
            return TokenizeRequest
        set_dialect(request.scope, "tei")
        return TeiTokenizeRequest

    body, call = await received(request, kind)
    if isinstance(body, TokenizeRequest):
        return await _tokenized(body, call)
    return await tokenize_texts(body, call)


@router.post("/vllm/tokenize", **describe(TokenizeResponse, TokenizeRequest, dialect="vllm"))
async def tokenize_vllm(request: Request) -> Response:
    """/tokenize with vLLM's errors."""
    return await _tokenized(*await received(request, TokenizeRequest))


@router.post("/detokenize", **describe(DetokenizeResponse, DetokenizeRequest))
@router.post("/vllm/detokenize", include_in_schema=False)
async def detokenize(request: Request) -> Response:
    """The text of token ids."""
    body, call = await received(request, DetokenizeRequest)
    work = partial(_detokenize, call.target.model.tokenizer, body)
    return (await call.server.dispatcher.call(work)).response


async def _tokenized(body: TokenizeRequest, call: Call) -> Response:
    model = call.target.model
    work = partial(_tokenize, model.tokenizer, model.config.max_model_len, body)
    return (await call.server.dispatcher.call(work)).response


def _tokenize(tokenizer: Tokenizer, max_model_len: int, body: TokenizeRequest) -> Answer:
    (encoded,) = tokenizer.encode(
        [body.prompt], add_special_tokens=body.add_special_tokens, offsets=False, param="prompt"
    )
    ids = encoded.ids
    return Answer.json(
        {
            "count": len(ids),
            "max_model_len": max_model_len,
            "tokens": ids,
            "token_strs": tokenizer.tokens(ids) if body.return_token_strs else None,
        }
    )


def _detokenize(tokenizer: Tokenizer, body: DetokenizeRequest) -> Answer:
    return Answer.json({"prompt": tokenizer.decode(body.tokens)})
