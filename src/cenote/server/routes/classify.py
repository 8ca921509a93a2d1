"""POST /classify: class scores of whole texts."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from cenote.outputs import Classification
from cenote.server.dispatch import Answer, Finished
from cenote.server.openapi import describe
from cenote.server.routing import plain_router
from cenote.server.schemas.classify import ClassifyRequest, ClassifyResponse
from cenote.server.state import Call, received

router = plain_router("classify")


@router.post("/classify", **describe(ClassifyResponse, ClassifyRequest))
@router.post("/v1/classify", include_in_schema=False)
async def create_classification(request: Request) -> Response:
    """Class scores for each input, in the order of the input."""
    body, call = await received(request, ClassifyRequest)
    call.limit(body.input, "input")
    prompts = body.to_input(call.request_id, call.target.adapter)
    return await call.run(
        partial(call.target.model.processors.classify, prompts), partial(_render, call)
    )


def _render(call: Call, finished: Finished[list[Classification]]) -> Answer:
    results = finished.result
    frame = call.frame("classify", finished)
    frame["labels"] = results[0].labels if results else ()
    frame["data"] = [
        {
            "index": index,
            "label": result.label,
            "probs": result.probs,
            "num_classes": len(result.probs),
            "prompt_tokens": result.prompt_tokens,
            "truncated": result.truncated,
        }
        for index, result in enumerate(results)
    ]
    truncated = sum(result.truncated for result in results)
    return Answer.json(frame, truncated)
