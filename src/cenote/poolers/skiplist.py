"""The token ids of a late-interaction model's skip list, from the tokenizer file of its folder.

The engine process has no tokenizer; this reads the vocabulary once and lets it go.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from cenote.errors import ModelLoadError


def skip_ids(folder: Path, words: Sequence[str]) -> list[int]:
    """The ids of `words` (as whole tokens) in the vocabulary of `folder`; words without one don't
    occur as a token and are left out. Raises ModelLoadError where there is no vocabulary."""
    if not words:
        return []
    if (folder / "tokenizer.json").is_file():
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        found = (tokenizer.token_to_id(word) for word in words)
        return [index for index in found if index is not None]
    if (folder / "vocab.txt").is_file():
        lines = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
        wanted = set(words)
        return [index for index, line in enumerate(lines) if line in wanted]
    raise ModelLoadError(
        f"{folder}: the model has a skip list, but no tokenizer.json or vocab.txt to find it in."
    )
