"""Late interaction beside the model: queries' vectors are kept, documents become scores.

The pooling runner owns one of these. Its state and when it changes:

| event                            | effect                                                        |
|----------------------------------|---------------------------------------------------------------|
| query added                      | its key gets `query_uses` remaining uses                      |
| query pooled                     | a clone of its vectors is kept under the key                  |
| document added                   | request → key: it reserves one use                            |
| document scored                  | its use is spent; after the last one the query is dropped     |
| document finished, never scored  | (or aborted) its use is released, to the same effect          |
| request preempted                | nothing: it keeps its reservation                             |
| query finished, never pooled     | its key is forgotten                                          |
| clear                            | everything is forgotten                                       |

It knows no scheduling and no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cenote.errors import CenoteError, InvalidRequest, NonFiniteResult
from cenote.kernels.maxsim import best_matches, maxsim
from cenote.params import LateInteractionParams
from cenote.runner.query_cache import QueryVectors


@dataclass(frozen=True, slots=True)
class TokenVectors:
    """One prompt's kept token rows in this step: vectors `[rows, dim]`, positions `[rows]`."""

    request_id: str
    part: LateInteractionParams
    vectors: Tensor
    positions: Tensor | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What leaves the engine in place of the vectors, or why nothing does.

    A query: data `[1]` zero, indices = the prompt positions of its rows. A document: data `[1]`,
    its score. A document with `explain`: data `[1 + Q]`, the score and then each query row's
    similarity to its best match; indices `[Q]`, the prompt positions of those matches. Other
    prompts: what their pooler gives, or its `row` of what it gives for several.
    """

    data: Tensor | None = None
    indices: Tensor | None = None
    error: CenoteError | None = None
    row: int | None = None


class LateInteractionRunner:
    """See the module. All state is in four maps; `num_entries` counts them for leak tests."""

    def __init__(self) -> None:
        self._queries: dict[str, QueryVectors] = {}
        self._uses: dict[str, int] = {}
        self._query_keys: dict[str, str] = {}
        self._document_keys: dict[str, str] = {}

    @property
    def num_entries(self) -> int:
        maps = (self._queries, self._uses, self._query_keys, self._document_keys)
        return sum(len(one) for one in maps)

    def add_request(self, request_id: str, part: LateInteractionParams | None) -> None:
        """Registers a prompt's part; again for a known request changes nothing.

        `query_uses` 0: the query's documents are all gone, so it will not be kept.

        Raises:
            InvalidRequest: the key is empty or another query's, or `query_uses` is below 0.
        """
        if part is None or request_id in self._query_keys or request_id in self._document_keys:
            return
        if not part.query_key:
            raise InvalidRequest("Late interaction: query_key is empty.", param="query_key")
        if part.mode == "score_doc":
            self._document_keys[request_id] = part.query_key
            return
        if part.query_uses == 0:
            return
        if part.query_uses is None or part.query_uses < 0:
            raise InvalidRequest(
                f"Late interaction: query_uses must be at least 0, not {part.query_uses}.",
                param="query_uses",
            )
        if part.query_key in self._uses:
            raise InvalidRequest(
                f"Late interaction: query_key {part.query_key!r} is already in use.",
                param="query_key",
            )
        self._uses[part.query_key] = part.query_uses
        self._query_keys[request_id] = part.query_key

    def on_requests_finished(self, request_ids: Iterable[str]) -> None:
        """Told of finished, failed and aborted requests only, never of preempted ones."""
        for request_id in request_ids:
            document_key = self._document_keys.pop(request_id, None)
            if document_key is not None:
                self._release(document_key)
            query_key = self._query_keys.pop(request_id, None)
            if query_key is not None and query_key not in self._queries:
                self._uses.pop(query_key, None)

    def keep(self, part: LateInteractionParams, query: QueryVectors) -> Answer:
        """Keeps a query's vectors (which the caller has cloned) while documents still need them."""
        if part.query_key in self._uses:
            self._queries[part.query_key] = query
        return Answer(query.vectors.new_zeros(1), query.positions)

    def score(self, documents: Sequence[TokenVectors]) -> list[Answer]:
        """MaxSim of each document with its query, in the given order; spends their uses.

        Uses are spent after all scores are made, so that a failure on the way leaves them.
        """
        answers: list[Answer] = [Answer()] * len(documents)
        groups: dict[tuple[str, bool], list[int]] = {}
        for index, document in enumerate(documents):
            groups.setdefault((document.part.query_key, document.part.explain), []).append(index)
        for (key, explain), indices in groups.items():
            query = self._queries.get(key)
            group = [documents[index] for index in indices]
            if query is None:
                made = [Answer(error=_gone(key))] * len(group)
            else:
                made = _answers(query, group, explain)
            for index, answer in zip(indices, made, strict=True):
                answers[index] = answer
        for document in documents:
            key_or_none = self._document_keys.pop(document.request_id, None)
            if key_or_none is not None:
                self._release(key_or_none)
        return answers

    def clear(self) -> None:
        """Forgets everything: the vectors are of weights that are no more."""
        self._queries.clear()
        self._uses.clear()
        self._query_keys.clear()
        self._document_keys.clear()

    def _release(self, key: str) -> None:
        if key not in self._uses:
            return
        self._uses[key] -= 1
        if self._uses[key] == 0:
            del self._uses[key]
            self._queries.pop(key, None)


def _answers(query: QueryVectors, documents: Sequence[TokenVectors], explain: bool) -> list[Answer]:
    """Scores of one query's documents. Those with NaN or infinity are set apart: a maximum may pass
    over a NaN, so the scores wouldn't show it."""
    rows = torch.cat([document.vectors for document in documents])
    if not all_finite(rows):
        if len(documents) == 1:
            return [Answer(error=not_finite())]
        return [answer for one in documents for answer in _answers(query, [one], explain)]
    lengths = torch.tensor([0, *(document.vectors.shape[0] for document in documents)])
    cu_seqlens = lengths.cumsum(0).to(device=rows.device, dtype=torch.int32)
    if not explain:
        return [Answer(score) for score in maxsim(query.vectors, rows, cu_seqlens).unsqueeze(1)]
    found = best_matches(query.vectors, rows, cu_seqlens)
    data = torch.cat([found.scores.unsqueeze(1), found.similarities], dim=1)
    answers = []
    for row, matches, document in zip(data, found.rows, documents, strict=True):
        positions = document.positions
        if positions is not None and len(positions) > 0:
            matches = positions[matches.long()].to(torch.int32)
        answers.append(Answer(row, matches))
    return answers


def all_finite(rows: Tensor) -> bool:
    """Whether no number is NaN or infinite. The sum shows it in a tenth of the time, but may
    overflow by itself: only then all numbers are looked at."""
    return bool(torch.isfinite(rows.sum())) or bool(torch.isfinite(rows).all())


def not_finite() -> NonFiniteResult:
    return NonFiniteResult(
        "The model gave NaN or infinity for this input. With 16-bit numbers, try dtype float32; in "
        "float32 its weights are at fault."
    )


def _gone(key: str) -> InvalidRequest:
    return InvalidRequest(
        f"Late interaction: no query is kept under {key!r}; it must run before its documents.",
        param="query_key",
    )
