"""POST /tokenize and /detokenize: what the model is fed for a text, and back."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from cenote.processors.tokenizer import Tokenizer
from cenote.server.dispatch import Answer
from cenote.server.openapi import describe
from cenote.server.routing import plain_router
from cenote.server.schemas.tokenize import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from cenote.server.state import received

router = plain_router("tokenize")


@router.post("/tokenize", **describe(TokenizeResponse, TokenizeRequest))
async def tokenize(request: Request) -> Response:
    """The tokens of one text."""
    body, call = await received(request, TokenizeRequest)
    model = call.target.model
    work = partial(_tokenize, model.tokenizer, model.config.max_model_len, body)
    return (await call.server.dispatcher.call(work)).response


@router.post("/detokenize", **describe(DetokenizeResponse, DetokenizeRequest))
async def detokenize(request: Request) -> Response:
    """The text of token ids."""
    body, call = await received(request, DetokenizeRequest)
    work = partial(_detokenize, call.target.model.tokenizer, body)
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
