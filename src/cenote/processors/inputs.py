"""What a processor is asked for, already checked for type by whoever called it (schema or `LLM`).

Values are checked by the processors, so that online and offline refuse the same things in the same
words. It knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cenote.params import InputType, PoolingParams, Task, TruncationSide

# A text, or a prompt of token ids.
Prompt = str | Sequence[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptOptions:
    """The fields that every request has. See docs/api.md for what each means.

    `truncate_prompt_tokens`: None refuses a prompt over the limit, -1 cuts to the model's limit, n
    keeps n tokens. `chat_template` takes the place of the model's for a conversation, or of the
    score template for pairs. `pooling_params` is the caller's own (offline API); the processor
    clones it.
    """

    truncate_prompt_tokens: int | None = None
    truncation_side: TruncationSide | None = None
    add_special_tokens: bool = True
    use_activation: bool | None = None
    priority: int = 0
    request_id: str | None = None
    adapter: str | None = None
    prompt: str | None = None
    prompt_name: str | None = None
    input_type: str | None = None
    cache_salt: str | None = None
    mm_processor_kwargs: Mapping[str, Any] | None = None
    chat_template: str | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None
    pooling_params: PoolingParams | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SparseOptions:
    """How much of a sparse vector is wanted: its `top_k` heaviest entries of at least `threshold`.

    `return_tokens` adds the entries' strings.
    """

    top_k: int | None = None
    threshold: float | None = None
    return_tokens: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class LateChunking:
    """One pass over all inputs joined, a vector for each; or for parts of a single input.

    Parts are `chunk_size` tokens long, or the given `spans` of characters.
    """

    chunk_size: int | None = None
    spans: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbedInput:
    """One vector for each prompt; `dimensions` cuts it (matryoshka), then normalises again.

    `sparse` asks for the sparse vector as well, from the same forward pass. `long_input` says what
    becomes of a text over the model's length: error, or chunk_mean.
    """

    prompts: Sequence[Prompt]
    dimensions: int | None = None
    sparse: SparseOptions | None = None
    long_input: str = "error"
    late_chunking: LateChunking | None = None
    options: PromptOptions = PromptOptions()


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifyInput:
    """Class scores for each prompt; `pairs` are second texts, None where a prompt is alone.

    With `candidate_labels` an NLI model scores the request's own labels, each put into
    `hypothesis_template`; `multi_label` lets several be true.
    """

    prompts: Sequence[Prompt]
    pairs: Sequence[str | None] | None = None
    candidate_labels: Sequence[str] | None = None
    hypothesis_template: str = "This example is {}."
    multi_label: bool = False
    options: PromptOptions = PromptOptions()


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolingInput:
    """Any task by name; None is the model's default task, several are run in one forward pass.

    `aggregation_strategy` (token_classify) gives entities in place of every token's scores.
    """

    prompts: Sequence[Prompt]
    task: Task | Sequence[Task] | None = None
    dimensions: int | None = None
    sparse: SparseOptions = SparseOptions()
    aggregation_strategy: str | None = None
    options: PromptOptions = PromptOptions()


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreInput:
    """Scores of pairs: 1:1, 1:N or N:N. Token limits cut one side's text before pairing.

    `score_weights` asks an embedding model for the weighted mean of its outputs' scores, by task.
    """

    queries: Sequence[str]
    documents: Sequence[str]
    max_tokens_per_query: int = 0
    max_tokens_per_doc: int = 0
    instruction: str | None = None
    explain: bool = False
    score_weights: Mapping[str, float] | None = None
    options: PromptOptions = PromptOptions()


@dataclass(frozen=True, kw_only=True, slots=True)
class RerankInput:
    """One query against documents, best first; `top_n` None or 0 keeps all."""

    query: str
    documents: Sequence[str]
    top_n: int | None = None
    max_tokens_per_query: int = 0
    max_tokens_per_doc: int = 0
    instruction: str | None = None
    explain: bool = False
    score_weights: Mapping[str, float] | None = None
    options: PromptOptions = PromptOptions()


__all__ = [
    "ClassifyInput",
    "EmbedInput",
    "InputType",
    "LateChunking",
    "PoolingInput",
    "Prompt",
    "PromptOptions",
    "RerankInput",
    "ScoreInput",
    "SparseOptions",
]
