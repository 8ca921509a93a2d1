"""Checks of the values a caller sends, in one place, so that every route refuses the same things.

Each check raises `InvalidRequest` (or a subclass) that names the field, the value and the limit. It
knows no text and no tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any, cast

import msgspec

from cenote.config.architectures import STEPWISE
from cenote.config.model import ModelConfig
from cenote.errors import InvalidRequest, UnsupportedTask
from cenote.params import PoolingParams, Task
from cenote.processors.inputs import Prompt, PromptOptions

_INT64 = 2**63
MAX_REQUEST_ID_CHARACTERS = 256

# The parameters that a task takes; any other is refused by name.
ACCEPTED: dict[Task, frozenset[str]] = {
    "embed": frozenset({"dimensions", "use_activation"}),
    "token_embed": frozenset({"dimensions", "use_activation"}),
    "classify": frozenset({"use_activation"}),
    "token_classify": frozenset({"use_activation", "step_tag_id", "returned_token_ids"}),
    "sparse_embed": frozenset({"sparse_top_k", "sparse_threshold"}),
}


def check_task(task: str, supported: Collection[Task]) -> None:
    """Refuses a task that the served model can't do, listing those it can."""
    if task not in supported:
        raise UnsupportedTask(task, supported)


def check_integer(value: object, param: str, *, least: int, most: int | None = None) -> None:
    """Refuses what is no whole number in `[least, most]`; True and False are no numbers here."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRequest(f"{param} must be a whole number, not {value!r}.", param=param)
    if value < least:
        raise InvalidRequest(f"{param} must be at least {least}, not {value}.", param=param)
    if most is not None and value > most:
        raise InvalidRequest(f"{param} must be at most {most}, not {value}.", param=param)


def check_type(value: object, param: str, kind: type, words: str) -> None:
    """Refuses a value of another type; None is an absent value and passes."""
    if value is not None and not isinstance(value, kind):
        raise InvalidRequest(f"{param} must be {words}, not {type(value).__name__}.", param=param)


def check_options(options: PromptOptions, max_model_len: int) -> None:
    """Checks the fields that every request has; engine-level extras are checked by `extras`."""
    for name in ("request_id", "adapter", "prompt", "prompt_name", "input_type"):
        check_type(getattr(options, name), name, str, "a string")
    for name in ("use_activation", "add_special_tokens"):
        check_type(getattr(options, name), name, bool, "true or false")
    check_type(options.pooling_params, "pooling_params", PoolingParams, "PoolingParams")
    check_type(options.chat_template_kwargs, "chat_template_kwargs", Mapping, "a map")
    check_truncation(options, max_model_len)
    check_integer(options.priority, "priority", least=-_INT64, most=_INT64 - 1)
    given = options.request_id
    if given is not None and not 0 < len(given) <= MAX_REQUEST_ID_CHARACTERS:
        raise InvalidRequest(
            f"request_id must have 1 to {MAX_REQUEST_ID_CHARACTERS} characters, not {len(given)}.",
            param="request_id",
        )


def check_truncation(options: PromptOptions, max_model_len: int) -> None:
    """Checks `truncate_prompt_tokens` (None, -1, or 1 to the model's limit) and the side."""
    keep = options.truncate_prompt_tokens
    if keep is not None:
        check_integer(keep, "truncate_prompt_tokens", least=-1)
        if keep == 0:
            raise InvalidRequest(
                "truncate_prompt_tokens 0 would leave nothing; give -1 or at least 1.",
                param="truncate_prompt_tokens",
            )
        if keep > max_model_len:
            raise InvalidRequest(
                f"truncate_prompt_tokens {keep} is greater than the model's maximum of "
                f"{max_model_len} tokens. Please choose a smaller truncation size.",
                param="truncate_prompt_tokens",
            )
    if options.truncation_side not in (None, "left", "right"):
        raise InvalidRequest(
            f"truncation_side must be left or right, not {options.truncation_side!r}.",
            param="truncation_side",
        )


def check_prompts(prompts: Sequence[Prompt], param: str = "input") -> None:
    """Refuses an empty list and whatever is neither a text nor a list of token ids."""
    if not prompts:
        raise InvalidRequest("You must pass at least one prompt.", param=param)
    for index, prompt in enumerate(prompts):
        if isinstance(prompt, str):
            continue
        if not isinstance(prompt, Sequence) or isinstance(prompt, bytes | bytearray):
            raise InvalidRequest(
                f"{param}[{index}] must be a text or a list of token ids, "
                f"not {type(prompt).__name__}.",
                param=param,
            )


def check_prompt_choice(prompts: Sequence[Prompt], options: PromptOptions) -> None:
    """Refuses a prompt for token ids, which are fed as they are, and a template without a use."""
    if options.chat_template is not None:
        raise InvalidRequest(
            "chat_template is for messages, and for pairs that a cross-encoder scores.",
            param="chat_template",
        )
    if all(isinstance(prompt, str) for prompt in prompts):
        return
    for name, value in (("prompt", options.prompt), ("prompt_name", options.prompt_name)):
        if value:
            raise InvalidRequest(f"{name} can't be put before token ids.", param=name)


def check_dimensions(
    dimensions: int, config: ModelConfig, embedding_size: int, *, allow_any: bool
) -> None:
    """Refuses a size that is out of range, or that the model was not trained to be cut to."""
    check_integer(dimensions, "dimensions", least=1)
    if dimensions > embedding_size:
        raise InvalidRequest(
            f"dimensions {dimensions} is greater than the model's embedding size {embedding_size}.",
            param="dimensions",
        )
    if allow_any:
        return
    sizes = config.pooler.matryoshka
    if sizes and dimensions not in sizes:
        raise InvalidRequest(
            f"dimensions must be one of {list(sizes)} for model {config.name}, not {dimensions}.",
            param="dimensions",
        )
    if not sizes and not config.pooler.is_matryoshka and dimensions != embedding_size:
        raise InvalidRequest(
            f"Model {config.name} is not known as matryoshka, so dimensions {dimensions} would cut "
            f"its {embedding_size} blindly. Start with --allow-any-dimensions to allow it.",
            param="dimensions",
        )


def check_accepted(tasks: Sequence[Task], given: Collection[str]) -> None:
    """Refuses a parameter that none of the tasks takes."""
    for name in sorted(given):
        if not any(name in ACCEPTED[task] for task in tasks):
            words = f"Task {tasks[0]!r} does" if len(tasks) == 1 else f"Tasks {list(tasks)} do"
            raise InvalidRequest(f"{words} not take {name}.", param=name)


def check_sparse(top_k: object, threshold: object) -> None:
    """Refuses a top_k below 1, and a threshold that is no finite number of at least 0."""
    if top_k is not None:
        check_integer(top_k, "sparse_top_k", least=1)
    if threshold is None:
        return
    is_number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
    if not is_number or not 0 <= cast(float, threshold) < inf:
        raise InvalidRequest(
            f"sparse_threshold must be a number of at least 0, not {threshold!r}.",
            param="sparse_threshold",
        )


def check_steps(params: PoolingParams, config: ModelConfig) -> None:
    """Refuses settings of steps where there are none, and ids that are out of range."""
    tag, classes = params.step_tag_id, params.returned_token_ids
    for name, value in (("step_tag_id", tag), ("returned_token_ids", classes)):
        if value is not None and config.architecture not in STEPWISE:
            raise InvalidRequest(
                f"{name} is for models that answer at the ends of steps; {config.name} "
                f"({config.architecture}) isn't one.",
                param=name,
            )
    if tag is not None:
        check_integer(tag, "step_tag_id", least=0, most=config.vocab_size - 1)
    if classes is None:
        return
    if not isinstance(classes, list | tuple) or not classes:
        raise InvalidRequest(
            f"returned_token_ids must name at least one class, not {classes!r}.",
            param="returned_token_ids",
        )
    for one in classes:
        check_integer(one, "returned_token_ids", least=0, most=config.num_labels - 1)


def check_message(value: Any, field: str) -> None:
    """Refuses what no message to the engine can carry: plain values only."""
    try:
        msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(
            f"{field} can't be sent to the engine: {error}", param=field.partition(".")[0]
        ) from error


def check_own_params(params: PoolingParams, task: Task) -> None:
    """Refuses, in a caller's own `PoolingParams`, another task and what only processors may set.

    `extra_kwargs` must be plain values, since they travel to the engine as a message.
    """
    check_message(params.extra_kwargs, "pooling_params.extra_kwargs")
    if params.task is not None and params.task != task:
        raise InvalidRequest(
            f"pooling_params has task {params.task!r} in a request for {task!r}.",
            param="pooling_params",
        )
    for name, value, default in (
        ("late_interaction", params.late_interaction, None),
        ("attended_tokens", params.attended_tokens, None),
        ("skip_tokens", params.skip_tokens, 0),
        ("also", params.also, ()),
        ("spans", params.spans, ()),
    ):
        if value != default:
            raise InvalidRequest(
                f"pooling_params.{name} is set by the engine's own processors only.",
                param="pooling_params",
            )
