"""Text to token ids and back, for many texts at once, with truncation in one place.

Built on the `tokenizers` library: it releases the GIL and works on all cores. A `Tokenizer` never
changes after it is made, so threads share it. It knows nothing of prompts' prefixes or tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from tokenizers import Encoding

from cenote.config.model import ModelConfig
from cenote.config.static import MODEL_TYPE as STATIC
from cenote.errors import InputTooLong, InvalidRequest
from cenote.loader.tokenizer_files import load_tokenizer_files
from cenote.log import get_logger
from cenote.params import TruncationSide
from cenote.processors.long_text import Input, deciding_part, encode_for_cut
from cenote.processors.surrogates import refuse_surrogates
from cenote.processors.truncation import Strategy, cut, kept_positions

log = get_logger(__name__)
FOREIGN = "The tokenizer has %d tokens, the model embeds %d: texts with the others are refused."


@dataclass(slots=True)
class Encoded:
    """One prompt's tokens after truncation.

    `offsets[i]` is (start, end) in characters of the text that token i came from, (0, 0) for
    special tokens; in a pair each text counts from 0. Empty where offsets were not asked for.
    `num_tokens_before_cut` counts special tokens; it is a lower bound for a text so long that it
    was not encoded to its end.
    """

    ids: list[int]
    type_ids: list[int]
    offsets: list[tuple[int, int]]
    num_tokens_before_cut: int
    truncated: bool


class Tokenizer:
    """The tokenizer of one model folder. Thread-safe. Raises `ModelLoadError` when made."""

    def __init__(self, folder: Path, config: ModelConfig) -> None:
        files = load_tokenizer_files(folder / config.subfolder, config.pooler)
        self._backend = files.backend
        self._side: TruncationSide = files.truncation_side
        self._special = {
            role: token_id
            for role, token in files.special.items()
            if (token_id := files.backend.token_to_id(token)) is not None
        }
        added = files.backend.get_added_tokens_decoder()
        self.special_ids: frozenset[int] = frozenset(self._special.values()) | {
            token_id for token_id, token in added.items() if token.special
        }
        self.vocab_size = config.vocab_size
        # A static model is fed the text's own tokens only.
        self._adds_special = config.model_type != STATIC
        # Added tokens may lie beyond the embedding (Gemma's for images); words of a text hardly.
        words = files.backend.get_vocab_size(with_added_tokens=False)
        if words > config.vocab_size and self._adds_special:
            log.warning(FOREIGN, words, config.vocab_size)
        self._may_exceed = files.backend.get_vocab_size() > config.vocab_size
        named = files.input_names is None or "token_type_ids" in files.input_names
        # Whether the model is fed a pair's token types.
        self.uses_token_types = named and config.token_types > 1

    @property
    def mask_token_id(self) -> int | None:
        """The id of the mask token, None where the tokenizer has none."""
        return self._special.get("mask")

    @property
    def eos_token_id(self) -> int | None:
        return self._special.get("eos")

    @property
    def pad_token_id(self) -> int | None:
        return self._special.get("pad")

    @property
    def cls_token_id(self) -> int | None:
        return self._special.get("cls")

    @property
    def sep_token_id(self) -> int | None:
        return self._special.get("sep")

    @property
    def unk_token_id(self) -> int | None:
        return self._special.get("unk")

    @property
    def truncation_side(self) -> TruncationSide:
        """The side on which this tokenizer cuts where a request doesn't say."""
        return self._side

    @cached_property
    def start(self) -> str:
        """The special token that is put before a text, "" where there is none."""
        first = self.encode(["a"], offsets=False)[0].ids[:1]
        return self.tokens(first)[0] if first and self.is_special(first[0]) else ""

    def is_special(self, token_id: int) -> bool:
        return token_id in self.special_ids

    def num_special_tokens(self, pair: bool = False) -> int:
        """How many tokens are added to a text, or to a pair."""
        return int(self._backend.num_special_tokens_to_add(pair)) if self._adds_special else 0

    def token_to_id(self, token: str) -> int | None:
        """The id of a whole token, None where the vocabulary lacks it."""
        found: int | None = self._backend.token_to_id(token)
        return found

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The vocabulary's own text of each id ("" for an id without one)."""
        return [self._backend.id_to_token(token_id) or "" for token_id in ids]

    @property
    def marks_subwords(self) -> bool:
        """Whether a token's own string tells that it goes on with the word before it."""
        return bool(getattr(self._backend.model, "continuing_subword_prefix", None))

    def join(self, tokens: list[str]) -> str:
        """The text of tokens given as the vocabulary's own strings."""
        decoder = self._backend.decoder
        return " ".join(tokens) if decoder is None else str(decoder.decode(tokens))

    def decode(
        self, ids: Sequence[int], *, skip_special_tokens: bool = False, param: str = "tokens"
    ) -> str:
        """The text of `ids`. Raises `InvalidRequest` for what is no token id."""
        checked = self._checked_ids(ids, param)
        return str(self._backend.decode(checked, skip_special_tokens=skip_special_tokens))

    def encode(
        self,
        texts: list[str],
        *,
        pairs: list[str] | None = None,
        add_special_tokens: bool = True,
        max_tokens: int | None = None,
        side: TruncationSide | None = None,
        strategy: Strategy = "longest_first",
        offsets: bool = True,
        refuse_over: int | None = None,
        reserve: int = 0,
        param: str = "input",
    ) -> list[Encoded]:
        """Tokens of texts, or of pairs (`texts[i]`, `pairs[i]`), in order.

        `max_tokens` cuts to that many tokens, special tokens included and kept, on `side` (None:
        the tokenizer's own); None does not cut. `reserve` of them are left free, for special tokens
        that the caller adds. Without `offsets` it is about a third faster.
        `refuse_over` raises `InputTooLong` where a text that isn't cut is sure to have more tokens,
        found from its beginning alone; below that it changes nothing, and the caller still checks
        lengths. Raises `InvalidRequest` where `max_tokens` has no room for special tokens, or for a
        token that the model has no row for.
        """
        add_special_tokens = add_special_tokens and self._adds_special
        added = self.num_special_tokens(pairs is not None) if add_special_tokens else 0
        if max_tokens is not None and max_tokens < added + reserve:
            raise InvalidRequest(
                f"truncate_prompt_tokens is {max_tokens}, but special tokens alone take "
                f"{added + reserve}.",
                param="truncate_prompt_tokens",
            )
        side = side or self._side
        run = partial(self._run, special=add_special_tokens, offsets=offsets, param=param)
        inputs: list[Input] = list(texts if pairs is None else zip(texts, pairs, strict=True))
        if max_tokens is None or (pairs is not None and strategy == "only_first"):
            if refuse_over is not None and max_tokens is None:
                self._refuse_long([*texts, *(pairs or ())], refuse_over, param)
            encodings, starts = run(inputs), [0] * len(inputs)
        else:
            encodings, starts = encode_for_cut(inputs, max_tokens, side, run, self._count)
        room = None if max_tokens is None else max_tokens - added - reserve
        result = []
        for encoding, start in zip(encodings, starts, strict=True):
            item = _encoded(encoding, pairs is not None, offsets, start)
            if room is not None and len(item.ids) > room + added:
                item = _cut(item, encoding, room, side, strategy)
            result.append(item)
        if self._may_exceed:
            for item in result:
                self._checked_ids(item.ids, param)
        return result

    def _count(self, text: str) -> int:
        """How many tokens a text has, without special tokens."""
        return len(self._run([text], special=False, offsets=False, param="input")[0])

    def _run(
        self, inputs: Sequence[Input], *, special: bool, offsets: bool, param: str
    ) -> list[Encoding]:
        run = self._backend.encode_batch if offsets else self._backend.encode_batch_fast
        try:
            return list(run(inputs, add_special_tokens=special))
        except TypeError:
            # Python strings may hold what is no text: half of a surrogate pair.
            refuse_surrogates(inputs, param)
            raise

    def _refuse_long(self, texts: list[str], limit: int, param: str) -> None:
        for text in texts:
            part = deciding_part(text, limit, "right", self._count)
            if part is not None:
                raise InputTooLong(self._count(text[: part[1]]), limit, param=param, at_least=True)

    def check_ids(
        self,
        ids: Sequence[int],
        *,
        max_tokens: int | None = None,
        side: TruncationSide | None = None,
        param: str = "input",
    ) -> Encoded:
        """A prompt of token ids, fed as it is: no special tokens are added or kept by a cut.

        Raises `InvalidRequest` for what is no token id of the model. An empty prompt has no tokens.
        """
        checked = self._checked_ids(ids, param)
        kept = checked if max_tokens is None else cut(checked, max_tokens, side or self._side)
        return Encoded(
            ids=kept,
            type_ids=[0] * len(kept),
            offsets=[(0, 0)] * len(kept),
            num_tokens_before_cut=len(checked),
            truncated=len(kept) < len(checked),
        )

    def _checked_ids(self, ids: Sequence[int], param: str) -> list[int]:
        for token_id in ids:
            if type(token_id) is not int:
                raise InvalidRequest(
                    f"A token id must be an integer, not {token_id!r}.", param=param
                )
            if not 0 <= token_id < self.vocab_size:
                known = 0 <= token_id < self._backend.get_vocab_size()
                token = self._backend.id_to_token(token_id) if known else None
                named = "" if token is None else f" ({token!r})"
                limit = f"the model has ids 0 to {self.vocab_size - 1}"
                raise InvalidRequest(
                    f"Token id {token_id}{named} is out of range; {limit}.", param=param
                )
        return list(ids)


def _encoded(encoding: Encoding, pair: bool, offsets: bool, start: int) -> Encoded:
    """Everything of an encoding that is asked for; each attribute read is a copy, so no more."""
    ids = encoding.ids
    places: list[tuple[int, int]] = encoding.offsets if offsets else []
    if start:
        places = [(a + start, b + start) if b > a else (a, b) for a, b in places]
    return Encoded(
        ids=ids,
        # One text's token types are all zero in every family served.
        type_ids=encoding.type_ids if pair else [0] * len(ids),
        offsets=places,
        num_tokens_before_cut=len(ids),
        truncated=False,
    )


def _cut(
    item: Encoded, encoding: Encoding, room: int, side: TruncationSide, strategy: Strategy
) -> Encoded:
    kept = kept_positions(encoding.sequence_ids, room, side, strategy)
    return Encoded(
        ids=[item.ids[i] for i in kept],
        type_ids=[item.type_ids[i] for i in kept],
        offsets=[item.offsets[i] for i in kept] if item.offsets else [],
        num_tokens_before_cut=item.num_tokens_before_cut,
        truncated=True,
    )
