"""Pairs as prompts by a score template: rendered, made tokens, and cut where a request asks for it.

What a template writes after the document is what the model answers to, so a cut takes from the
document, never from the finished prompt. It knows nothing of scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cenote.errors import InvalidRequest
from cenote.processors.inputs import PromptOptions, ScoreInput
from cenote.processors.prepare import Preparer, TokenPrompt
from cenote.processors.score.limits import limit_texts
from cenote.processors.score.sides import Sides
from cenote.processors.templates import ScoreTemplate, bounded


class TemplatedPrompts:
    """One request's way from texts to prompts. Raises `InvalidRequest`, as rendering does."""

    def __init__(self, preparer: Preparer, template: ScoreTemplate, request: ScoreInput) -> None:
        options = request.options
        self._keep = preparer.cut_length(options)
        if self._keep is not None and options.truncation_side == "left":
            raise InvalidRequest(
                "truncation_side must be right where a score template is in use: it is the end of "
                "the document that is cut.",
                param="truncation_side",
            )
        self._preparer = preparer
        self._template = template
        self._options: PromptOptions = replace(
            options,
            truncate_prompt_tokens=None,
            add_special_tokens=options.add_special_tokens and not template.complete,
        )
        self._variables = dict(options.chat_template_kwargs or {})
        if request.instruction is not None:
            self._variables.setdefault("instruction", request.instruction)

    def of(self, sides: Sides) -> list[TokenPrompt]:
        """The prompts of all pairs, in order."""
        texts = [
            (sides.queries[query].text, sides.documents[document].text)
            for query, document in sides.pairs
        ]
        prompts = self._tokens(texts)
        if self._keep is None:
            return prompts
        return [
            self._cut(pair, prompt) if len(prompt.token_ids) > self._keep else prompt
            for pair, prompt in zip(texts, prompts, strict=True)
        ]

    def _tokens(self, pairs: Sequence[tuple[str, str]]) -> list[TokenPrompt]:
        start = self._preparer.tokenizer.start if self._options.add_special_tokens else ""
        rendered = bounded(self._template.render(*pair, self._variables) for pair in pairs)
        # Whoever writes a first special token doesn't want the tokenizer's before it.
        texts = [text.removeprefix(start) for text in rendered]
        options = self._options
        encoded = self._preparer.tokenizer.encode(
            texts,
            add_special_tokens=options.add_special_tokens,
            refuse_over=None if self._keep is not None else self._preparer.max_model_len,
            offsets=False,
            param="documents",
        )
        return [TokenPrompt(token_ids=item.ids, offsets=[]) for item in encoded]

    def _cut(self, pair: tuple[str, str], prompt: TokenPrompt) -> TokenPrompt:
        """The prompt of a pair whose document is as long as there is room for."""
        keep = self._keep or 0
        query, document = pair
        tokenizer = self._preparer.tokenizer
        (whole,) = tokenizer.encode([document], add_special_tokens=False, offsets=False)
        room = len(whole.ids)
        while len(prompt.token_ids) > keep:
            room -= len(prompt.token_ids) - keep
            if room < 1:
                raise InvalidRequest(
                    f"truncate_prompt_tokens is {keep}, but the template and the query alone take "
                    f"{keep - room} tokens.",
                    param="truncate_prompt_tokens",
                )
            (shorter,) = limit_texts(tokenizer, [document], room)
            (prompt,) = self._tokens([(query, shorter.text)])
        return prompt._replace(truncated=True)
