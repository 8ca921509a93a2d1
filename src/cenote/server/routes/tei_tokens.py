"""TEI's /tokenize and /decode: texts to tokens with their places, and back."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from cenote.server.dispatch import Answer
from cenote.server.openapi import describe
from cenote.server.routing import plain_router
from cenote.server.schemas.tei import TeiDecodeRequest, TeiToken, TeiTokenizeRequest
from cenote.server.state import Call, received

router = plain_router("text-embeddings-inference")

_describe = partial(describe, dialect="tei")


@router.post("/tei/tokenize", **_describe(list[list[TeiToken]], TeiTokenizeRequest))
async def tokenize(request: Request) -> Response:
    """The tokens of texts. Also at /tokenize, by the field inputs."""
    return await tokenize_texts(*await received(request, TeiTokenizeRequest))


async def tokenize_texts(body: TeiTokenizeRequest, call: Call) -> Response:
    """The tokens of a checked body's texts."""
    call.limit(body.texts(), "inputs")
    work = partial(_tokens, call, body)
    return (await call.server.dispatcher.call(work)).response


def _tokens(call: Call, body: TeiTokenizeRequest) -> Answer:
    model = call.target.model
    prefix = model.processors.prompt_text(body.prompt_name)
    tokenizer = model.tokenizer
    encoded = tokenizer.encode(
        [prefix + text for text in body.texts()],
        add_special_tokens=body.add_special_tokens,
        param="inputs",
    )
    rows = []
    for item in encoded:
        row = []
        for token, text, (start, stop) in zip(
            item.ids, tokenizer.tokens(item.ids), item.offsets, strict=True
        ):
            special = tokenizer.is_special(token)
            place = {"start": None, "stop": None} if special else {"start": start, "stop": stop}
            row.append({"id": token, "text": text, "special": special, **place})
        rows.append(row)
    return Answer.json(rows)


@router.post("/decode", **_describe(list[str], TeiDecodeRequest))
@router.post("/tei/decode", include_in_schema=False)
async def decode(request: Request) -> Response:
    """The texts of token ids."""
    body, call = await received(request, TeiDecodeRequest)
    rows = body.rows()
    call.limit(rows, "ids")
    tokenizer = call.target.model.tokenizer
    skip = body.skip_special_tokens

    def work() -> Answer:
        return Answer.json(
            [tokenizer.decode(row, skip_special_tokens=skip, param="ids") for row in rows]
        )

    return (await call.server.dispatcher.call(work)).response
