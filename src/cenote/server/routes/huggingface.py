"""POST /: what Hugging Face's inference client asks a model's own address, whatever its task.

The body's shape and what the model does say which it is; answers have the shapes of the hub's
pipelines. Vectors, classes and similarities are TEI's routes; entities are only here.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cenote.errors import EmptyInput, InvalidRequest, UnsupportedTask
from cenote.outputs import Entities
from cenote.server.dialects import set_dialect
from cenote.server.dispatch import Answer, Finished
from cenote.server.openapi import describe
from cenote.server.parsing import checked
from cenote.server.routes.tei import compare_texts, embed_inputs, predict_inputs
from cenote.server.routing import plain_router
from cenote.server.schemas.huggingface import InputsRequest, TokenClassificationBody
from cenote.server.schemas.tei import TeiEmbedRequest, TeiPredictRequest, TeiSimilarityRequest
from cenote.server.state import Call, received

router = plain_router("hugging face")


@router.post("/", **describe(list[Any], InputsRequest, dialect="tei"))
async def run_inputs(request: Request) -> Response:
    """Vectors, classes, entities or similarities of the inputs, by what the model does."""
    set_dialect(request.scope, "tei")
    body, call = await received(request, InputsRequest)
    fields = body.fields()
    if isinstance(body.inputs, dict):
        return await compare_texts(checked(fields, TeiSimilarityRequest), call)
    tasks = call.target.model.processors.supported_tasks
    if "classify" in tasks:
        return await _classes(fields, call)
    if "token_classify" in tasks:
        return await _entities(checked(fields, TokenClassificationBody), call)
    if "embed" in tasks:
        return await embed_inputs(checked(fields, TeiEmbedRequest), call)
    raise UnsupportedTask("embed", tasks)


async def _classes(fields: dict[str, Any], call: Call) -> Response:
    """A list of a text's classes in a list, as the hub's text-classification answers."""
    inputs = fields["inputs"]
    texts = [[inputs]] if isinstance(inputs, str) else inputs
    if isinstance(texts, list):
        fields["inputs"] = [[item] if isinstance(item, str) else item for item in texts]
    how = fields.get("function_to_apply")
    if how not in (None, "none"):
        raise InvalidRequest(
            f"function_to_apply must be none or absent, not {how!r}: the model says how its "
            "classes are scored.",
            param="function_to_apply",
        )
    if how == "none":
        fields["raw_scores"] = True
    top_k = fields.get("top_k")
    if top_k is not None and (type(top_k) is not int or top_k < 1):
        raise InvalidRequest(f"top_k must be at least 1, not {top_k!r}.", param="top_k")
    body = checked(fields, TeiPredictRequest)
    return await predict_inputs(body, call, nested=True, top_k=top_k)


async def _entities(body: TokenClassificationBody, call: Call) -> Response:
    """A list of a text's entities; for several texts a list of lists."""
    inputs = body.to_input(call.request_id, call.target.adapter)
    call.limit(inputs.prompts, "inputs")
    if not inputs.prompts:
        raise EmptyInput("inputs is empty.", param="inputs")
    joined = inputs.aggregation_strategy != "none"

    def render(finished: Finished[list[Entities]]) -> Answer:
        rows = [
            [
                {
                    "entity_group" if joined else "entity": entity.label,
                    "score": entity.score,
                    "word": entity.word,
                    "start": entity.start,
                    "end": entity.end,
                }
                for entity in item.entities
            ]
            for item in finished.result
        ]
        return Answer.json(rows[0] if isinstance(body.inputs, str) else rows)

    return await call.run(partial(call.target.model.processors.pooling, inputs), render)
