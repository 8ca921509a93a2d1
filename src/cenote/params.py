"""What a caller asks of the engine for one prompt. Frozen: who changes one makes a new one.

It knows nothing of text, HTTP or tensors. Field names are those of vLLM's pooling parameters, so
that its users find them again.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Task = Literal["embed", "classify", "token_embed", "token_classify", "sparse_embed"]

TASKS: tuple[Task, ...] = ("embed", "classify", "token_embed", "token_classify", "sparse_embed")

# These need every token of the prompt in one forward pass, so only models with bidirectional
# attention offer them: a causal model drops all of them together, through this one constant.
TOKEN_LEVEL_TASKS: frozenset[Task] = frozenset({"token_embed", "token_classify", "sparse_embed"})

TruncationSide = Literal["left", "right"]
InputType = Literal["query", "document"]


class LateInteractionParams(msgspec.Struct, frozen=True, omit_defaults=True):
    """One prompt's part in a late-interaction score group; made by the processors only.

    `cache_query` keeps the prompt's token vectors under `query_key` for `query_uses` documents and
    returns nothing but a scalar 0; `score_doc` returns MaxSim against the query of that key, or,
    with `explain`, that score and the match of each query token.
    """

    mode: Literal["cache_query", "score_doc"]
    query_key: str
    query_uses: int | None = None
    explain: bool = False
    # Key of the cache across requests (content, model revision, template and salt); None: no reuse.
    content_key: str | None = None


class PoolingParams(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the pooler is to do with one prompt's hidden states.

    `use_activation=None` is the model's default (normalise an embedding, softmax or sigmoid a
    class). `input_type` is the prompt's side in an asymmetric model (a ColBERT document drops the
    rows of its skip list). `skip_tokens` leading tokens take no part in pooling (an instruction,
    where the model says `include_prompt: false`). Tokens from `attended_tokens` on are not attended
    to by others but still give rows (ColBERT's expansion tokens). `also` names further tasks on the
    same forward pass. A sparse vector keeps its `sparse_top_k` heaviest entries of those that weigh
    at least `sparse_threshold`. `extra_kwargs` is a free map that travels to the model runner, e.g.
    `compressed_token_type_ids`: merged with, never replaced. With `spans` an embedding is one
    vector for each `[first, end)` of the prompt's tokens. A model that answers at the ends of steps
    takes `step_tag_id`, the token that ends one, and `returned_token_ids`, the classes to return,
    in place of its configuration's.
    """

    task: Task | None = None
    dimensions: int | None = None
    use_activation: bool | None = None
    late_interaction: LateInteractionParams | None = None
    input_type: InputType | None = None
    skip_tokens: int = 0
    attended_tokens: int | None = None
    also: tuple[Task, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    sparse_top_k: int | None = None
    sparse_threshold: float | None = None
    step_tag_id: int | None = None
    returned_token_ids: tuple[int, ...] | None = None
    extra_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)

    def with_extra(self, **extra: Any) -> PoolingParams:
        """A clone whose `extra_kwargs` has the given keys added; this object stays as it is."""
        return msgspec.structs.replace(self, extra_kwargs={**self.extra_kwargs, **extra})
