"""Two texts as the one prompt of a model that reads them together: the tokenizer's own pair form.

It knows nothing of scores or classes.
"""

from __future__ import annotations

from collections.abc import Sequence

from cenote.params import PoolingParams
from cenote.processors.inputs import ClassifyInput, PromptOptions
from cenote.processors.prepare import Preparer, TokenPrompt
from cenote.processors.score import token_types
from cenote.processors.truncation import Strategy
from cenote.processors.validation import check_prompts


def pair_prompts(
    preparer: Preparer,
    firsts: Sequence[str],
    seconds: Sequence[str],
    options: PromptOptions,
    param: str,
    strategy: Strategy = "longest_first",
) -> list[TokenPrompt]:
    """The pairs' prompts, in order, with token types where the model is fed them."""
    encoded = preparer.encode(
        list(firsts), options, pairs=list(seconds), param=param, strategy=strategy
    )
    typed = preparer.tokenizer.uses_token_types
    return [
        TokenPrompt(
            token_ids=item.ids,
            offsets=item.offsets,
            truncated=item.truncated,
            type_ids=item.type_ids if typed else None,
        )
        for item in encoded
    ]


def typed_params(params: PoolingParams, prompt: TokenPrompt) -> PoolingParams:
    """A clone with the pair's token types merged in; the params themselves where it has none."""
    if prompt.type_ids is None:
        return params
    return params.with_extra(**{token_types.KEY: token_types.compress(prompt.type_ids)})


def mixed_prompts(
    preparer: Preparer, request: ClassifyInput, seconds: Sequence[str | None]
) -> list[TokenPrompt]:
    """Prompts of texts and of pairs of texts, mixed, in order."""
    options = request.options
    check_prompts(request.prompts)
    done: dict[int, TokenPrompt] = {}
    alone = [i for i, second in enumerate(seconds) if second is None]
    if alone:
        made = preparer.tokenize([request.prompts[i] for i in alone], options)
        done.update(zip(alone, made, strict=True))
    both = [i for i, second in enumerate(seconds) if second is not None]
    if both:
        firsts = [str(request.prompts[i]) for i in both]
        made = pair_prompts(preparer, firsts, [str(seconds[i]) for i in both], options, "input")
        done.update(zip(both, made, strict=True))
    result = [done[i] for i in range(len(request.prompts))]
    for i, prompt in enumerate(result):
        preparer.check_length(prompt, preparer.max_model_len, f"input[{i}]")
    return result
