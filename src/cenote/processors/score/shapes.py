"""Which query goes with which document: 1:1, 1:N or N:N. It knows nothing of models or tokens."""

from __future__ import annotations

from collections.abc import Sequence

from cenote.errors import InvalidRequest


def pair_up(queries: Sequence[str], documents: Sequence[str]) -> list[tuple[int, int]]:
    """Index pairs (query, document) in the order of the answer.

    One query is broadcast to all documents; otherwise both sides are read side by side. Raises
    `InvalidRequest` for an empty side, a text that is no string, or any other shape.
    """
    check_texts(queries, "queries", "text")
    check_texts(documents, "documents", "text_pair")
    if len(queries) == 1:
        return [(0, index) for index in range(len(documents))]
    if len(queries) != len(documents):
        raise InvalidRequest(
            f"Input lengths must be either 1:1, 1:N or N:N, not {len(queries)}:{len(documents)}.",
            param="documents",
        )
    return [(index, index) for index in range(len(documents))]


def check_texts(texts: Sequence[str], param: str, element: str) -> None:
    """Refuses an empty list and whatever is not a string in it, naming the place."""
    if not texts:
        raise InvalidRequest(
            f"At least one {element} element must be given, but {param} is empty.", param=param
        )
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InvalidRequest(
                f"{param}[{index}] must be a string, not {type(text).__name__}.", param=param
            )
