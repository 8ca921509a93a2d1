"""The token ids of a late-interaction model's skip list, from the tokenizer files of its folder.

The engine process has no tokenizer; this reads the vocabulary once and lets it go.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cenote.loader.tokenizer_files import read_vocabulary


def skip_ids(folder: Path, words: Sequence[str]) -> list[int]:
    """The ids of `words` (as whole tokens) in the vocabulary of `folder`; words without one don't
    occur as a token and are left out. Raises ModelLoadError where there is no vocabulary."""
    if not words:
        return []
    tokenizer = read_vocabulary(folder)
    found = (tokenizer.token_to_id(word) for word in words)
    return [index for index in found if index is not None]
