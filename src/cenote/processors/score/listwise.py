"""Scores from a reranker that reads a query and all its documents as one prompt (Jina v3).

A marker token stands after each document and after the query; what the model gives there is
compared by the cosine. Documents see those before them, so a score depends on its company, as the
model means it. More documents than fit go into several prompts, whose query vectors are averaged,
each weighing as much as its best document. Source: the model's own code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from cenote.config.architectures import MARKERS
from cenote.engine.messages import EngineOutput
from cenote.errors import InvalidRequest
from cenote.outputs import Score
from cenote.processors.inputs import ScoreInput
from cenote.processors.prepare import Preparer, TokenPrompt
from cenote.processors.prepared import Prepared
from cenote.processors.score.prompts import JINA_LISTWISE
from cenote.processors.score.sides import Sides, read_sides, refuse_fields
from cenote.processors.templates import Template

# The model's own bounds: documents in one prompt, and tokens of a text; longer ones are cut.
MOST_DOCUMENTS = 125
QUERY_LENGTH, DOCUMENT_LENGTH = 512, 2048

_TEMPLATE = Template(JINA_LISTWISE)


@dataclass(frozen=True, slots=True)
class _Block:
    """One prompt: which query it is for, and the places of its documents in the answer."""

    query: int
    places: list[int]


def score(preparer: Preparer, request: ScoreInput) -> Prepared[list[Score]]:
    """Prepares one prompt, or a few, for each query. Raises `InvalidRequest`.

    A prompt's tokens are counted in the result of its first document.
    """
    scorer = "a listwise reranker"
    refuse_fields(
        request, scorer, "explain", "input_type", "prompt", "prompt_name", "chat_template"
    )
    options = request.options
    if options.truncate_prompt_tokens not in (None, -1):
        raise InvalidRequest(
            f"truncate_prompt_tokens has no meaning for {scorer}: max_tokens_per_doc cuts "
            "documents.",
            param="truncate_prompt_tokens",
        )
    params = preparer.params("token_embed", options)
    params = msgspec.structs.replace(params, use_activation=False)
    sides = read_sides(preparer, _limited(request, preparer.max_model_len))
    blocks = _blocks(preparer, sides)
    prompts = _prompts(preparer, request, sides, blocks)
    requests = preparer.requests(prompts, [params] * len(prompts), options)

    def finish(outputs: list[EngineOutput]) -> list[Score]:
        vectors = [output.array().astype(np.float32) for output in outputs]
        found: dict[int, float] = {}
        for query in {block.query for block in blocks}:
            own = [at for at, block in enumerate(blocks) if block.query == query]
            scores = _scores([vectors[at] for at in own])
            places = [place for at in own for place in blocks[at].places]
            found.update(zip(places, scores.tolist(), strict=True))
        tokens = {
            block.places[0]: len(prompt.token_ids)
            for block, prompt in zip(blocks, prompts, strict=True)
        }
        return [
            Score(
                score=found[place],
                prompt_tokens=tokens.get(place, 0),
                truncated=sides.is_cut(pair),
            )
            for place, pair in enumerate(sides.pairs)
        ]

    return Prepared(requests, finish)


def _limited(request: ScoreInput, most: int) -> ScoreInput:
    """The request with the model's own limits where it has none."""
    return replace(
        request,
        max_tokens_per_query=request.max_tokens_per_query or min(QUERY_LENGTH, most - 1),
        max_tokens_per_doc=request.max_tokens_per_doc or min(DOCUMENT_LENGTH, most - 1),
    )


def _blocks(preparer: Preparer, sides: Sides) -> list[_Block]:
    """Documents in order, as many in one prompt as there is room for."""
    encode = preparer.tokenizer.encode
    framed = [
        _passage(at, sides.documents[document].text) for at, (_, document) in enumerate(sides.pairs)
    ]
    sizes = [len(item.ids) for item in encode(framed, add_special_tokens=False, offsets=False)]
    queries = [item.text for item in sides.queries]
    bare = [_render(query, [], None) for query in queries]
    bases = [len(item.ids) for item in encode(bare, offsets=False)]
    blocks: list[_Block] = []
    room = 0
    for place, ((query, _), size) in enumerate(zip(sides.pairs, sizes, strict=True)):
        last = blocks[-1] if blocks else None
        full = last is None or last.query != query or len(last.places) == MOST_DOCUMENTS
        if last is None or full or size > room:
            last = _Block(query, [])
            blocks.append(last)
            room = preparer.max_model_len - bases[query]
        last.places.append(place)
        room -= size
    return blocks


def _prompts(
    preparer: Preparer, request: ScoreInput, sides: Sides, blocks: Sequence[_Block]
) -> list[TokenPrompt]:
    variables = dict(request.options.chat_template_kwargs or {})
    instruction = request.instruction or variables.get("instruction")
    texts = [
        _render(
            sides.queries[block.query].text,
            [sides.documents[sides.pairs[place][1]].text for place in block.places],
            instruction,
        )
        for block in blocks
    ]
    encoded = preparer.tokenizer.encode(texts, offsets=False, param="documents")
    prompts = [TokenPrompt(token_ids=item.ids, offsets=[]) for item in encoded]
    for prompt, block in zip(prompts, blocks, strict=True):
        where = f"The prompt of documents[{block.places[0]}]"
        preparer.check_length(prompt, preparer.max_model_len, where, param="documents")
    return prompts


def _render(query: str, documents: Sequence[str], instruction: str | None) -> str:
    passages = [_passage(at, document) for at, document in enumerate(documents)]
    own = {
        "query": _without_markers(query),
        "passages": "".join(passages),
        "count": len(passages),
        "instruction": _without_markers(instruction or ""),
        "marker": MARKERS[1],
    }
    return _TEMPLATE.fill(None, own)


def _passage(at: int, document: str) -> str:
    return f'<passage id="{at}">\n{_without_markers(document)}{MARKERS[0]}\n</passage>\n'


def _without_markers(text: str) -> str:
    """The text without markers of its own, which would be read as the prompt's."""
    while any(marker in text for marker in MARKERS):
        for marker in MARKERS:
            text = text.replace(marker, "")
    return text


def _scores(blocks: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Cosines of all documents' vectors with the query's; each block's last row is its query's."""
    weights = [(1 + _cosines(rows[:-1], rows[-1]).max()) / 2 for rows in blocks]
    query = np.average([rows[-1] for rows in blocks], axis=0, weights=weights)
    return _cosines(np.concatenate([rows[:-1] for rows in blocks]), query)


def _cosines(rows: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
    cosines: NDArray[np.float32] = (rows @ query) / np.maximum(lengths, 1e-8)
    return cosines
