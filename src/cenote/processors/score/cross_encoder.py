"""Scores from a classifier that reads query and document together.

A pair is one prompt: the tokenizer's own pair form with token types, or the model's score template.
Nothing is cut unless the request says so; a cut takes from the longer side first, as the reference
CrossEncoder does, and from the document where a template stands around both. The activation is the
pooler's; `use_activation=False` gives logits.
"""

from __future__ import annotations

from cenote.engine.messages import EngineOutput
from cenote.errors import InputTooLong
from cenote.outputs import Score
from cenote.processors.inputs import PromptOptions, ScoreInput
from cenote.processors.pairs import pair_prompts, typed_params
from cenote.processors.prepare import Preparer, TokenPrompt
from cenote.processors.prepared import Prepared
from cenote.processors.score.sides import Sides, read_sides, refuse_fields
from cenote.processors.score.templated import TemplatedPrompts
from cenote.processors.templates import ScoreTemplate, given_template


def score(
    preparer: Preparer, template: ScoreTemplate | None, request: ScoreInput
) -> Prepared[list[Score]]:
    """Prepares one classify request for each pair."""
    refuse_fields(request, "a cross-encoder", "explain", "input_type", "prompt", "prompt_name")
    if request.options.chat_template:
        template = given_template(ScoreTemplate, request.options.chat_template, preparer.config)
    if template is None:
        refuse_fields(request, "a cross-encoder without a score template", "instruction")
    options = request.options
    params = preparer.params("classify", options)
    sides = read_sides(preparer, request)
    _refuse_long_queries(preparer, sides, options)
    if template is None:
        prompts = _pairs(preparer, sides, request)
    else:
        prompts = _templated(preparer, template, sides, request)
    for index, prompt in enumerate(prompts):
        preparer.check_length(
            prompt, preparer.max_model_len, f"documents[{index}]", param="documents"
        )
    requests = preparer.requests(
        prompts, [typed_params(params, prompt) for prompt in prompts], options
    )

    def finish(outputs: list[EngineOutput]) -> list[Score]:
        return [
            Score(
                score=float(output.array().reshape(-1)[0]),
                prompt_tokens=len(prompt.token_ids),
                truncated=prompt.truncated,
            )
            for prompt, output in zip(prompts, outputs, strict=True)
        ]

    return Prepared(requests, finish)


def _refuse_long_queries(preparer: Preparer, sides: Sides, options: PromptOptions) -> None:
    """Else each pair's error would name its document, which can't be blamed."""
    limit = preparer.max_model_len
    texts = [query.text for query in sides.queries]
    if options.truncate_prompt_tokens is not None or max(map(len, texts)) <= limit:
        return
    for index, item in enumerate(preparer.encode(texts, options, param="queries")):
        if len(item.ids) > limit:
            place = f"queries[{index}]"
            raise InputTooLong(len(item.ids), limit, param="queries", place=place)


def _pairs(preparer: Preparer, sides: Sides, request: ScoreInput) -> list[TokenPrompt]:
    prompts = pair_prompts(
        preparer,
        [sides.queries[query].text for query, _ in sides.pairs],
        [sides.documents[document].text for _, document in sides.pairs],
        request.options,
        param="documents",
    )
    return [
        prompt._replace(truncated=prompt.truncated or sides.is_cut(pair))
        for prompt, pair in zip(prompts, sides.pairs, strict=True)
    ]


def _templated(
    preparer: Preparer, template: ScoreTemplate, sides: Sides, request: ScoreInput
) -> list[TokenPrompt]:
    prompts = TemplatedPrompts(preparer, template, request)
    return [
        prompt._replace(truncated=prompt.truncated or sides.is_cut(pair))
        for prompt, pair in zip(prompts.of(sides), sides.pairs, strict=True)
    ]
