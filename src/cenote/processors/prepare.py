"""The preparation that every task, route and shape shares: prompts in, engine requests out.

Prefix → tokens (cut only if asked for) → length check → `EngineRequest`s with the request's extras.
It knows neither which result is made of them nor HTTP. Thread-safe: nothing here is written to.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import msgspec

from cenote.config.engine import EngineConfig
from cenote.config.model import ModelConfig
from cenote.engine.messages import EnginePrompt, EngineReady, EngineRequest
from cenote.errors import InputTooLong, InvalidRequest
from cenote.params import PoolingParams, Task
from cenote.processors import validation
from cenote.processors.extras import EngineExtras
from cenote.processors.inputs import Prompt, PromptOptions, SparseOptions
from cenote.processors.prompts import adapter_for, lead
from cenote.processors.tokenizer import Encoded, Tokenizer
from cenote.processors.truncation import Strategy

# Of the requests of this process, which are all that an engine gets.
_numbers = count()

Offsets = list[tuple[int, int]]

_NOTHING_ASKED = PoolingParams()


class TokenPrompt(NamedTuple):
    """One prompt as the model is fed it.

    `offsets` are characters of the caller's own text, empty where nobody asked for them.
    `type_ids` is None where the model is not fed token types (one text: all zero).
    """

    token_ids: list[int]
    offsets: Offsets
    truncated: bool = False
    skip_tokens: int = 0
    attended_tokens: int | None = None
    type_ids: list[int] | None = None


class Preparer:
    """Turns prompts and options into engine requests for one model."""

    def __init__(
        self,
        config: ModelConfig,
        tokenizer: Tokenizer,
        ready: EngineReady,
        engine: EngineConfig,
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.engine = engine
        self.supported_tasks: tuple[Task, ...] = tuple(ready.supported_tasks)
        self.embedding_size = ready.embedding_size
        self.max_model_len = ready.max_model_len
        self._adapters = frozenset({*engine.adapter_sources(), *config.adapters})

    def params(
        self,
        task: Task,
        options: PromptOptions,
        *,
        also: Sequence[Task] = (),
        dimensions: int | None = None,
        sparse: SparseOptions | None = None,
    ) -> PoolingParams:
        """The parameters of a request for `task`: a clone of the caller's own, plus its fields.

        Every request comes through here first, so that its options are checked alike for all.
        Raises `UnsupportedTask`, or `InvalidRequest` for a value that none of the tasks takes.
        """
        validation.check_options(options, self.max_model_len)
        tasks = (task, *also)
        for one in tasks:
            validation.check_task(one, self.supported_tasks)
        own = options.pooling_params
        if own is None:
            own = _NOTHING_ASKED
        else:
            validation.check_own_params(own, task)
        cut = own.dimensions if dimensions is None else dimensions
        activate = own.use_activation if options.use_activation is None else options.use_activation
        sparse = sparse or SparseOptions()
        top_k = own.sparse_top_k if sparse.top_k is None else sparse.top_k
        threshold = own.sparse_threshold if sparse.threshold is None else sparse.threshold
        fields = {
            "dimensions": cut,
            "use_activation": activate,
            "sparse_top_k": top_k,
            "sparse_threshold": threshold,
            "step_tag_id": own.step_tag_id,
            "returned_token_ids": own.returned_token_ids,
        }
        given = [name for name, value in fields.items() if value is not None]
        validation.check_accepted(tasks, given)
        validation.check_sparse(top_k, threshold)
        validation.check_steps(own, self.config)
        if cut is not None:
            validation.check_dimensions(
                cut,
                self.config,
                self.embedding_size,
                allow_any=self.engine.allow_any_dimensions,
            )
        return msgspec.structs.replace(
            own,
            task=task,
            dimensions=cut,
            use_activation=activate,
            also=tuple(also),
            sparse_top_k=top_k,
            sparse_threshold=threshold,
            extra_kwargs=dict(own.extra_kwargs),
        )

    def tokenize(
        self,
        prompts: Sequence[Prompt],
        options: PromptOptions,
        *,
        prefix: str = "",
        param: str = "input",
        offsets: bool = False,
    ) -> list[TokenPrompt]:
        """Texts and token-id prompts to tokens, in order. Raises `InputTooLong` unless cut."""
        validation.check_prompts(prompts, param)
        validation.check_prompt_choice(prompts, options)
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        of_texts = iter(self._tokenize_texts(texts, options, prefix, param, offsets))
        result = [
            next(of_texts)
            if isinstance(prompt, str)
            else self._token_ids(prompt, options, param, f"{param}[{index}]")
            for index, prompt in enumerate(prompts)
        ]
        for index, token_prompt in enumerate(result):
            if not 0 < len(token_prompt.token_ids) <= self.max_model_len:
                self.check_length(token_prompt, self.max_model_len, f"{param}[{index}]", param)
        return result

    def _tokenize_texts(
        self, texts: list[str], options: PromptOptions, prefix: str, param: str, offsets: bool
    ) -> list[TokenPrompt]:
        """Texts alone, each led by what it is to begin with; their lengths aren't checked."""
        led = [lead(self.config, prefix, text) for text in texts]
        encoded = self.encode([of.text for of in led], options, offsets=offsets, param=param)
        skip = {one: self._prefix_tokens(one, options) for one in {of.lead for of in led}}
        return [
            TokenPrompt(
                item.ids,
                shift_offsets(item.offsets, of.start),
                item.truncated,
                self._kept_prefix(skip[of.lead], item, options) if skip[of.lead] else 0,
            )
            for of, item in zip(led, encoded, strict=True)
        ]

    def encode(
        self,
        texts: list[str],
        options: PromptOptions,
        *,
        pairs: list[str] | None = None,
        offsets: bool = False,
        param: str = "input",
        strategy: Strategy = "longest_first",
    ) -> list[Encoded]:
        """Tokens of texts or pairs, cut as the request says."""
        return self.tokenizer.encode(
            texts,
            pairs=pairs,
            add_special_tokens=options.add_special_tokens,
            max_tokens=self.cut_length(options),
            side=options.truncation_side,
            strategy=strategy,
            offsets=offsets,
            refuse_over=self.max_model_len,
            param=param,
        )

    def cut_length(self, options: PromptOptions) -> int | None:
        """The most tokens that truncation leaves; None: the request did not ask for it."""
        keep = options.truncate_prompt_tokens
        return self.max_model_len if keep == -1 else keep

    def check_length(
        self, prompt: TokenPrompt, limit: int, place: str, param: str = "input"
    ) -> None:
        """Refuses a prompt without tokens or with more than `limit`."""
        if not prompt.token_ids:
            raise InvalidRequest(f"{place} is empty: it has no tokens.", param=param)
        if len(prompt.token_ids) > limit:
            raise InputTooLong(len(prompt.token_ids), limit, param=param, place=place)

    def requests(
        self,
        prompts: Sequence[TokenPrompt],
        params: Sequence[PoolingParams],
        options: PromptOptions,
        adapters: Sequence[str | None] | None = None,
    ) -> list[EngineRequest]:
        """One engine request for each prompt, all with the request's extras and unique ids.

        `adapters` where prompts of one request have different ones. A caller's `request_id` is
        only a prefix: equal ids of two clients never meet.
        """
        extras = EngineExtras.of(options)
        self._check_adapter(options.adapter)
        if adapters is None:
            adapters = [adapter_for(self.config, options)] * len(prompts)
        unique = str(next(_numbers))
        base = f"{options.request_id}-{unique}" if options.request_id else unique
        arrival = time.monotonic()
        return [
            EngineRequest(
                request_id=f"{base}-{index}",
                prompt=extras.put_into(EnginePrompt(token_ids=prompt.token_ids)),
                params=param,
                priority=options.priority,
                arrival_time=arrival,
                adapter=adapter,
            )
            for index, (prompt, param, adapter) in enumerate(
                zip(prompts, params, adapters, strict=True)
            )
        ]

    def _token_ids(
        self, ids: Sequence[int], options: PromptOptions, param: str, place: str
    ) -> TokenPrompt:
        keep, side = self.cut_length(options), options.truncation_side
        try:
            item = self.tokenizer.check_ids(ids, max_tokens=keep, side=side, param=param)
        except InvalidRequest as error:
            raise InvalidRequest(f"{place}: {error.message}", param=param) from None
        return TokenPrompt(
            token_ids=item.ids, offsets=[(0, 0)] * len(item.ids), truncated=item.truncated
        )

    def _prefix_tokens(self, prefix: str, options: PromptOptions) -> int:
        """Leading tokens that take no part in pooling, where the model excludes its prompt."""
        if not prefix or self.config.pooler.include_prompt:
            return 0
        (item,) = self.tokenizer.encode(
            [prefix], add_special_tokens=options.add_special_tokens, offsets=False
        )
        ends = len(item.ids) > 1 and self.tokenizer.is_special(item.ids[-1])
        return len(item.ids) - 1 if ends else len(item.ids)

    def _kept_prefix(self, skip: int, item: Encoded, options: PromptOptions) -> int:
        """How much of an excluded prefix is left after the cut; one token is always pooled."""
        side = options.truncation_side or self.tokenizer.truncation_side
        if side == "left":
            skip -= item.num_tokens_before_cut - len(item.ids)
        return max(min(skip, len(item.ids) - 1), 0)

    def _check_adapter(self, adapter: str | None) -> None:
        if adapter is not None and adapter not in self._adapters:
            raise InvalidRequest(
                f"No adapter is named {adapter!r}. Adapters: {sorted(self._adapters)}.",
                param="adapter",
            )


def per_prompt(params: PoolingParams, prompts: Sequence[TokenPrompt]) -> list[PoolingParams]:
    """`params` for each prompt: a clone where the prompt skips or hides some of its tokens."""
    return [
        msgspec.structs.replace(
            params, skip_tokens=prompt.skip_tokens, attended_tokens=prompt.attended_tokens
        )
        if prompt.skip_tokens or prompt.attended_tokens is not None
        else params
        for prompt in prompts
    ]


def shift_offsets(offsets: Offsets, prefix: int) -> Offsets:
    """Offsets in the caller's text, from offsets in the prefixed one: (0, 0) inside the prefix."""
    if not prefix:
        return offsets
    return [(max(start - prefix, 0), max(end - prefix, 0)) for start, end in offsets]
