"""Texts that are longer than the model, or that give more than one vector.

`chunk_mean` cuts a long text into parts of the model's length and averages their vectors. Late
chunking (Günther et al. 2024, arXiv:2409.04701) runs a text once and gives a vector for each span
of it: the mean of the span's rows, so each has seen the whole text. It knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from cenote.engine.messages import EngineOutput
from cenote.errors import InvalidRequest
from cenote.outputs import Embedding
from cenote.params import PoolingParams
from cenote.processors import results
from cenote.processors.inputs import EmbedInput, LateChunking, Prompt, PromptOptions
from cenote.processors.prepare import Offsets, Preparer, TokenPrompt, per_prompt
from cenote.processors.prepared import Prepared
from cenote.processors.prompts import prefix_for
from cenote.processors.validation import check_integer, check_type

# Inputs of one late-chunked document are joined by this.
JOINT = " "

LONG_INPUT = ("error", "chunk_mean")


def chunk_mean(preparer: Preparer, request: EmbedInput) -> Prepared[list[Embedding]]:
    """Prepares each text in as many parts as it needs, each with the prompt before it.

    A text's vector is the mean of its parts' vectors, weighted by their tokens, and normalised
    again where the parts' are.
    """
    options = request.options
    _refuse_cut(options, "long_input")
    params = preparer.params("embed", options, dimensions=request.dimensions)
    parts = [
        part
        for index, prompt in enumerate(request.prompts)
        for part in _parts(preparer, prompt, index, options)
    ]
    prompts = [part.prompt for part in parts]
    requests = preparer.requests(prompts, per_prompt(params, prompts), options)
    unit = (
        preparer.config.pooler.normalize
        if params.use_activation is None
        else (params.use_activation)
    )

    def finish(outputs: list[EngineOutput]) -> list[Embedding]:
        made: list[list[tuple[_Part, Embedding]]] = [[] for _ in request.prompts]
        for part, output in zip(parts, outputs, strict=True):
            made[part.owner].append((part, results.embedding(part.prompt, output)))
        return [_mean(own, unit=unit) for own in made]

    return Prepared(requests, finish)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of text number `owner`, and its own tokens: those of the text."""

    owner: int
    prompt: TokenPrompt
    num_tokens: int


def _parts(preparer: Preparer, prompt: Prompt, index: int, options: PromptOptions) -> list[_Part]:
    prefix = prefix_for(preparer.config, options)
    if not isinstance(prompt, str):
        raise InvalidRequest("long_input chunk_mean needs texts, not token ids.", param="input")
    tokenizer, limit = preparer.tokenizer, preparer.max_model_len
    lead, text = (
        item.ids
        for item in tokenizer.encode([prefix, prompt], add_special_tokens=False, offsets=False)
    )
    head, tail = _special(preparer, options)
    room = limit - len(head) - len(lead) - len(tail)
    if room < 1:
        raise InvalidRequest(
            f"The prompt and special tokens alone take the model's {limit} tokens.", param="prompt"
        )
    before = head + lead
    skip = 0 if preparer.config.pooler.include_prompt or not lead else len(before)
    parts = []
    for start in range(0, max(len(text), 1), room):
        own = text[start : start + room]
        made = TokenPrompt(token_ids=[*before, *own, *tail], offsets=[], skip_tokens=skip)
        preparer.check_length(made, limit, f"input[{index}]")
        parts.append(_Part(index, made, max(len(own), 1)))
    return parts


def _special(preparer: Preparer, options: PromptOptions) -> tuple[list[int], list[int]]:
    """The special tokens before and after a text."""
    if not options.add_special_tokens:
        return [], []
    (whole,) = preparer.tokenizer.encode(["a"], offsets=False)
    (bare,) = preparer.tokenizer.encode(["a"], add_special_tokens=False, offsets=False)
    at = whole.ids.index(bare.ids[0])
    return whole.ids[:at], whole.ids[at + len(bare.ids) :]


def _mean(own: list[tuple[_Part, Embedding]], *, unit: bool) -> Embedding:
    first = own[0][1]
    if len(own) == 1:
        return first
    weights = np.array([part.num_tokens for part, _ in own], dtype=np.float32)
    vectors = np.stack([item.embedding for _, item in own])
    mean: NDArray[np.float32] = (weights / weights.sum()) @ vectors
    if unit:
        mean = mean / max(float(np.linalg.norm(mean)), 1e-12)
    return replace(
        first,
        embedding=mean,
        prompt_tokens=sum(item.prompt_tokens for _, item in own),
        num_cached_tokens=sum(item.num_cached_tokens for _, item in own),
    )


def late_chunking(
    preparer: Preparer, request: EmbedInput, wanted: LateChunking
) -> Prepared[list[Embedding]]:
    """Prepares one pass over the inputs joined, with a vector for each span.

    Several inputs: each is a span. One input: the given spans, or parts of `chunk_size` tokens.
    Special tokens and the prompt belong to no span. Raises `InvalidRequest` for a model whose
    tokens don't see what comes after them, or that doesn't pool by the mean.
    """
    _check_model(preparer)
    options = request.options
    _refuse_cut(options, "late_chunking")
    params = preparer.params("embed", options, dimensions=request.dimensions)
    texts = [text for text in request.prompts if isinstance(text, str)]
    if not texts or len(texts) < len(request.prompts):
        raise InvalidRequest("late_chunking needs texts, not token ids.", param="input")
    prefix = prefix_for(preparer.config, options)
    joined = JOINT.join(texts)
    (prompt,) = preparer.tokenize([joined], options, prefix=prefix, offsets=True)
    spans = _spans(texts, wanted, prompt.offsets)
    rows = tuple(_rows(span, prompt.offsets) for span in spans)
    own: PoolingParams = msgspec.structs.replace(params, spans=rows)

    def finish(outputs: list[EngineOutput]) -> list[Embedding]:
        vectors = outputs[0].array().astype(np.float32)
        # The pass is counted once, at its first vector.
        tokens = [len(prompt.token_ids)] + [0] * (len(spans) - 1)
        return [
            Embedding(embedding=vector, prompt_tokens=count, span=span)
            for vector, count, span in zip(vectors, tokens, spans, strict=True)
        ]

    return Prepared(preparer.requests([prompt], [own], options), finish)


def late_chunking_of(
    wanted: bool, chunk_size: int | None, spans: Sequence[Sequence[int]] | None
) -> LateChunking | None:
    """The three fields as one; refuses the last two without the first."""
    check_type(wanted, "late_chunking", bool, "true or false")
    if wanted:
        return LateChunking(chunk_size=chunk_size, spans=spans)
    for name, value in (("chunk_size", chunk_size), ("spans", spans)):
        if value is not None:
            raise InvalidRequest(f"{name} needs late_chunking.", param=name)
    return None


def _check_model(preparer: Preparer) -> None:
    if "token_embed" not in preparer.supported_tasks:
        problem = "one whose tokens see the whole text (an encoder that gives embeddings)"
    elif preparer.config.pooler.modes != ("mean",):
        problem = f"one that pools by the mean, not by {'+'.join(preparer.config.pooler.modes)}"
    else:
        return
    raise InvalidRequest(
        f"late_chunking needs a model of another kind: {problem}.", param="late_chunking"
    )


def _spans(texts: Sequence[str], wanted: LateChunking, offsets: Offsets) -> Offsets:
    """Characters `[start, end)` of each span in the joined text."""
    size, given = wanted.chunk_size, wanted.spans
    if len(texts) > 1 or (size is None and given is None):
        if size is not None or given is not None:
            raise InvalidRequest(
                "chunk_size and spans need a single input; several inputs are a span each.",
                param="chunk_size" if given is None else "spans",
            )
        starts = np.cumsum([0, *(len(text) + len(JOINT) for text in texts)]).tolist()
        return [(at, at + len(text)) for at, text in zip(starts, texts, strict=False)]
    if size is not None and given is not None:
        raise InvalidRequest("Give chunk_size or spans, not both.", param="spans")
    if size is not None:
        check_integer(size, "chunk_size", least=1)
        places = [place for place in offsets if place[1] > place[0]]
        return [
            (places[at][0], places[min(at + size, len(places)) - 1][1])
            for at in range(0, len(places), size)
        ]
    return [_checked(span, len(texts[0])) for span in given or ()]


def _checked(span: Sequence[int], length: int) -> tuple[int, int]:
    whole = len(span) == 2 and all(type(place) is int for place in span)
    if not whole or not 0 <= span[0] < span[1] <= length:
        raise InvalidRequest(
            f"A span must be [start, end) within the text's {length} characters, not {list(span)}.",
            param="spans",
        )
    return span[0], span[1]


def _rows(span: tuple[int, int], offsets: Offsets) -> tuple[int, int]:
    """Rows `[first, end)` of the tokens that share a character with the span."""
    inside = [
        row
        for row, (start, end) in enumerate(offsets)
        if start < end and start < span[1] and end > span[0]
    ]
    if not inside:
        raise InvalidRequest(f"The span {list(span)} has no tokens.", param="spans")
    return inside[0], inside[-1] + 1


def _refuse_cut(options: PromptOptions, name: str) -> None:
    if options.truncate_prompt_tokens is not None:
        raise InvalidRequest(
            f"{name} keeps the whole text, so truncate_prompt_tokens can't be given.",
            param="truncate_prompt_tokens",
        )
