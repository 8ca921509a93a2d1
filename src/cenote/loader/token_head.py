"""A classifier made of a language model's own output matrix: the rows of a few tokens.

Where a score is the difference of two tokens' logits, it is one row, the difference of theirs in
float32. It knows no prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from cenote.config.model import ModelConfig
from cenote.config.reranker import RerankerConfig
from cenote.errors import ModelLoadError
from cenote.loader.checkpoint import open_checkpoint
from cenote.loader.rules import Ignore, Rule, match
from cenote.loader.tokenizer_files import read_vocabulary

_HEAD = "lm_head.weight"

# What a language model's checkpoint has beside its body.
IGNORED: tuple[Rule, ...] = (Ignore(r"lm_head\..*"), Ignore(r"score\..*"))


def read_token_head(config: ModelConfig, head: RerankerConfig, rules: Sequence[Rule]) -> Tensor:
    """The classifier's weight, float32 `[labels, hidden]`, from the checkpoint of `config`.

    `rules` name the word table, which is the output matrix where the two are tied. Raises
    `ModelLoadError` for a token that isn't there, and for logits that aren't linear in the row.
    """
    folder = config.transformer_path
    if config.hf.get("final_logit_softcapping"):
        raise ModelLoadError(
            "config.json: final_logit_softcapping is not supported in a model that scores by the "
            "logits of tokens."
        )
    ids = _token_ids(folder, head.tokens, config.vocab_size)
    with open_checkpoint(folder) as checkpoint:
        if "lm_head.bias" in checkpoint.shapes:
            raise ModelLoadError("lm_head.bias is not supported in a model that scores by tokens.")
        tied = bool(config.hf.get("tie_word_embeddings", False))
        matrix = _HEAD
        if tied or _HEAD not in checkpoint.shapes:
            matrix = _word_table(list(checkpoint.shapes), rules)
        rows = checkpoint.read(matrix)[ids].to(torch.float32)
    return rows[1:] - rows[:1] if head.difference else rows


def _word_table(names: Sequence[str], rules: Sequence[Rule]) -> str:
    for name in names:
        for rule in rules:
            if match(rule, name) == "embeddings.words":
                return name
    raise ModelLoadError(f"The checkpoint has neither {_HEAD} nor a word table.")


def _token_ids(folder: Path, tokens: Sequence[str | int], vocab_size: int) -> list[int]:
    words = [token for token in tokens if isinstance(token, str)]
    known = _ids_of(folder, words) if words else {}
    ids = [known[token] if isinstance(token, str) else token for token in tokens]
    for token, token_id in zip(tokens, ids, strict=True):
        if not 0 <= token_id < vocab_size:
            raise ModelLoadError(f"Token {token!r} has id {token_id}, of {vocab_size} ids.")
    return ids


def _ids_of(folder: Path, words: Sequence[str]) -> dict[str, int]:
    """The id of each word as a whole token."""
    vocabulary: Mapping[str, int] = read_vocabulary(folder).get_vocab()
    absent = [word for word in words if word not in vocabulary]
    if absent:
        raise ModelLoadError(
            f"The tokens {absent} that this reranker answers with are not in the vocabulary of "
            f"{folder}. reranker=off serves it as an embedding model."
        )
    return {word: vocabulary[word] for word in words}
