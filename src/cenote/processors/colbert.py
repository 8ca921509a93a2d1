"""A ColBERT model's two sides, encoded the way it was trained: never alike.

A query gets the query marker and is padded with expansion tokens; a document gets the document
marker and is cut at the document length, which is these models' own definition of a document: the
result says `truncated`. A query over its length is an error unless cutting was asked for.
Sources: ColBERT (Khattab and Zaharia 2020), PyLate. It knows nothing of scoring.
"""

from __future__ import annotations

from collections.abc import Sequence

from cenote.config.pooling import ColbertConfig
from cenote.errors import InputTooLong, ModelLoadError
from cenote.params import InputType
from cenote.processors.inputs import PromptOptions
from cenote.processors.prepare import Preparer, TokenPrompt, shift_offsets
from cenote.processors.prompts import side_prefix


class ColbertEncoder:
    """Texts of one side to prompts. Raises `ModelLoadError` if there is no expansion token."""

    def __init__(self, preparer: Preparer, colbert: ColbertConfig) -> None:
        self._preparer = preparer
        self._colbert = colbert
        self._marker_texts: dict[InputType, str] = {
            "query": colbert.query_marker,
            "document": colbert.document_marker,
        }
        self._markers = {side: self._token_id(text) for side, text in self._marker_texts.items()}
        self._expansion = self._expansion_token() if colbert.do_query_expansion else None

    def encode(
        self,
        texts: Sequence[str],
        side: InputType,
        options: PromptOptions,
        *,
        limited: bool = False,
        param: str = "input",
        offsets: bool = False,
    ) -> list[TokenPrompt]:
        """Prompts of one side. `limited`: the caller's own token limit replaces the side's.

        `truncate_prompt_tokens`: None and -1 mean the side's length (and only -1 cuts a query), n
        replaces it. Raises `InputTooLong` for a query (or a limited text) that does not fit.
        """
        limit = self._limit(side, options, limited=limited)
        cuts = options.truncate_prompt_tokens is not None or (side == "document" and not limited)
        marker = self._markers[side]
        prefix = self._prefix(side, options)
        encoded = self._preparer.tokenizer.encode(
            [prefix + text for text in texts],
            add_special_tokens=options.add_special_tokens,
            max_tokens=limit if cuts else None,
            side=options.truncation_side,
            offsets=offsets,
            refuse_over=limit,
            reserve=0 if marker is None else 1,
            param=param,
        )
        prompts = []
        for index, item in enumerate(encoded):
            prompt = TokenPrompt(
                token_ids=item.ids,
                offsets=shift_offsets(item.offsets, len(prefix)),
                truncated=item.truncated,
            )
            if marker is not None:
                prompt = self._marked(prompt, marker)
            if len(prompt.token_ids) > limit:
                length, place = len(prompt.token_ids), f"{param}[{index}]"
                raise InputTooLong(length, limit, param=param, place=place)
            prompts.append(self._expanded(prompt) if side == "query" else prompt)
        return prompts

    def _limit(self, side: InputType, options: PromptOptions, *, limited: bool) -> int:
        most = self._preparer.max_model_len
        keep = options.truncate_prompt_tokens
        if keep is not None and keep > 0:
            return keep
        if limited:
            return most
        own = self._colbert.query_length if side == "query" else self._colbert.document_length
        return min(own, most)

    def _prefix(self, side: InputType, options: PromptOptions) -> str:
        """The side's prompt, behind the marker where that is no token of the vocabulary."""
        marker = self._marker_texts[side]
        prompt = side_prefix(self._preparer.config, options, side).removeprefix(marker)
        return prompt if self._markers[side] is not None else marker + prompt

    def _marked(self, prompt: TokenPrompt, marker: int) -> TokenPrompt:
        """The prompt with the marker after its first special token, or in front without one."""
        ids = prompt.token_ids
        at = 1 if ids and self._preparer.tokenizer.is_special(ids[0]) else 0
        offsets = prompt.offsets
        return prompt._replace(
            token_ids=[*ids[:at], marker, *ids[at:]],
            offsets=[*offsets[:at], (0, 0), *offsets[at:]] if offsets else [],
        )

    def _expanded(self, prompt: TokenPrompt) -> TokenPrompt:
        """A query padded with expansion tokens; they give rows and are scored."""
        colbert = self._colbert
        length = min(colbert.expansion_length or colbert.query_length, self._preparer.max_model_len)
        missing = length - len(prompt.token_ids)
        if self._expansion is None or missing <= 0:
            return prompt
        attended = colbert.attend_to_expansion_tokens
        return prompt._replace(
            token_ids=prompt.token_ids + [self._expansion] * missing,
            offsets=prompt.offsets + [(0, 0)] * missing if prompt.offsets else [],
            attended_tokens=None if attended else len(prompt.token_ids),
        )

    def _expansion_token(self) -> int:
        tokenizer = self._preparer.tokenizer
        named = self._colbert.expansion_token
        if named is not None:
            token = tokenizer.token_to_id(named)
        else:
            token = tokenizer.mask_token_id
            token = tokenizer.eos_token_id if token is None else token
        if token is None:
            raise ModelLoadError(
                f"This model expands queries with {named or 'a mask token'!r}, which its tokenizer "
                "does not have."
            )
        return token

    def _token_id(self, marker: str) -> int | None:
        """The marker's id, with its trailing space or without; None: it is ordinary text."""
        for form in (marker, marker.strip()):
            token_id = self._preparer.tokenizer.token_to_id(form) if form else None
            if token_id is not None:
                return token_id
        return None
