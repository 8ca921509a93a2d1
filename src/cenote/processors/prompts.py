"""Which prefix a text gets: the prompts that a model declares, chosen by what a request says.

The first of these that a request has decides:

1. `prompt`: the text itself ("" for none);
2. `prompt_name`: the model's prompt of that name; an unknown name is refused;
3. `input_type`: the model's prompt of that very name; else `query` and `search_query` mean the
   model's query prompt, `document`, `passage` and `search_document` its document prompt, under
   whatever name the model has it, and nothing where it has none. The other types of hosted services
   (classification, clustering, text-matching…) mean nothing to a model without any prompts; all
   else is refused;
4. the model's default prompt, if it declares one.

It knows no tokens: how many of them a prefix has is counted where texts are encoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, cast

from cenote.config.model import ModelConfig
from cenote.errors import InvalidRequest
from cenote.params import InputType
from cenote.processors.inputs import PromptOptions

# The names under which models have the prompt of each side, best first.
_SIDES: dict[InputType, tuple[str, ...]] = {
    "query": ("query", "search_query", "retrieval.query", "retrieval_query", "s2p_query"),
    "document": (
        "document",
        "passage",
        "search_document",
        "retrieval.passage",
        "retrieval.document",
        "retrieval_document",
        "corpus",
        "doc",
    ),
}

# What hosted services call uses that are neither side.
_OTHER_USES = frozenset(
    {"classification", "clustering", "separation", "text-matching", "code.query", "code.passage"}
)

# What a request may call each side.
_SIDE_OF: dict[str, InputType] = {name: side for side, names in _SIDES.items() for name in names}


def prefix_for(config: ModelConfig, options: PromptOptions) -> str:
    """The prefix of a request's texts ("" for none), by the rule above. Raises `InvalidRequest`."""
    chosen = _chosen(config, options)
    if chosen is not None:
        return chosen
    prompts = config.pooler.prompts
    if options.input_type is not None:
        return _by_input_type(prompts, options.input_type)
    return prompts.get(config.pooler.default_prompt_name or "", "")


class Led(NamedTuple):
    """A text as it is tokenised: its beginning `lead` is a prompt, and the caller's own text begins
    at character `start`."""

    text: str
    lead: str
    start: int


def lead(config: ModelConfig, prefix: str, text: str) -> Led:
    """`text` after `prefix`, unless it brings the model's own form of a prompt itself."""
    form = config.pooler.prompt_form
    own = None if form is None else re.match(form, text)
    if own is not None:
        return Led(text, own[0], 0)
    return Led(prefix + text, prefix, len(prefix))


def side_prefix(config: ModelConfig, options: PromptOptions, side: str) -> str:
    """The prefix of one side of a score: the model's prompt for that side.

    `prompt` and `prompt_name` replace the query's; a document's only where the request says
    `input_type: document`. The default prompt plays no part. Raises `InvalidRequest`.
    """
    if side == side_of(options.input_type):
        chosen = _chosen(config, options)
        if chosen is not None:
            return chosen
    return _by_input_type(config.pooler.prompts, side)


def adapter_for(config: ModelConfig, options: PromptOptions, side: str | None = None) -> str | None:
    """The low-rank adapter of a request's texts, or of one side of a score; None: none.

    `adapter` itself; else the model's own task adapter that has the name of the prompt in use
    (`prompt_name`, `input_type`, the side's, the default one).
    """
    if options.adapter is not None or not config.adapters:
        return options.adapter
    names: list[str | None] = []
    if side is None or side == side_of(options.input_type):
        names += [options.prompt_name, options.input_type]
    meant = side or _SIDE_OF.get(options.input_type or "")
    if meant is not None:
        names += _SIDES[cast(InputType, meant)]
    elif options.prompt_name is None and options.prompt is None:
        names.append(config.pooler.default_prompt_name)
    return next((name for name in names if name in config.adapters), None)


def side_of(input_type: str | None) -> InputType:
    """The side of an asymmetric model that `input_type` means; None is a query.

    Raises `InvalidRequest` for a type that is neither.
    """
    if input_type is None:
        return "query"
    side = _SIDE_OF.get(input_type)
    if side is None:
        raise InvalidRequest(
            f"input_type must be query or document, not {input_type!r}.", param="input_type"
        )
    return side


def _chosen(config: ModelConfig, options: PromptOptions) -> str | None:
    """The prompt that a request names outright."""
    if options.prompt is not None:
        return options.prompt
    if options.prompt_name is None:
        return None
    prompts = config.pooler.prompts
    try:
        return prompts[options.prompt_name]
    except KeyError:
        raise InvalidRequest(
            f"The model has no prompt {options.prompt_name!r}. Its prompts: {sorted(prompts)}.",
            param="prompt_name",
        ) from None


def _by_input_type(prompts: Mapping[str, str], input_type: str) -> str:
    if prompts.get(input_type):
        return prompts[input_type]
    side = _SIDE_OF.get(input_type)
    if side is not None:
        return next((prompts[name] for name in _SIDES[side] if prompts.get(name)), "")
    if input_type in prompts:
        return prompts[input_type]
    if input_type in _OTHER_USES and not any(prompts.values()):
        return ""
    raise InvalidRequest(
        f"Unsupported input_type {input_type!r}. This model takes: "
        f"{sorted({'query', 'document'} | set(prompts))}.",
        param="input_type",
    )
