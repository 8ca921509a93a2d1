"""Late-interaction score groups: a query runs ahead of its documents, as structure.

Documents are held here until their query has run or stands ahead of them in the step being formed.
It knows no queue and no vectors (the runner keeps those).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from cenote.engine.messages import EngineRequest
from cenote.engine.request import Request, RequestState
from cenote.errors import InvalidRequest


@dataclass(slots=True)
class ScoreGroup:
    """`documents` are those that haven't ended, of `num_tokens` tokens when they came; `open` says
    that they may be scheduled."""

    query: Request
    open: bool = False
    num_tokens: int = 0
    documents: dict[str, Request] = field(default_factory=dict)


class ScoreGroups:
    """The groups that have unfinished members, by query key."""

    def __init__(self) -> None:
        self._groups: dict[str, ScoreGroup] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def check(self, requests: Sequence[EngineRequest]) -> None:
        """Refuses a submission whose score groups are not whole: each query comes once, ahead of
        exactly `query_uses` documents, under a key that is not in use.

        Raises:
            InvalidRequest: names the key and what is wrong with it.
        """
        uses: dict[str, int] = {}
        documents: Counter[str] = Counter()
        for request in requests:
            part = request.params.late_interaction
            if part is None:
                continue
            key = part.query_key
            if part.mode == "cache_query":
                if not key or key in self._groups or key in uses:
                    raise _invalid(f"query_key {key!r} is empty or already in use.")
                if part.query_uses is None or part.query_uses < 1:
                    raise _invalid(f"query_uses must be at least 1, not {part.query_uses}.")
                uses[key] = part.query_uses
            elif key not in uses:
                raise _invalid(f"a document has query_key {key!r}, but no query came before it.")
            else:
                documents[key] += 1
        for key, count in uses.items():
            if documents[key] != count:
                raise _invalid(
                    f"query_uses is {count} for query_key {key!r}, with {documents[key]} documents."
                )

    def add(self, request: Request) -> bool:
        """Takes a member in; whether it may be queued now (a document must wait for its query)."""
        part = request.late_interaction
        if part is None:
            return True
        if part.mode == "cache_query":
            self._groups[part.query_key] = ScoreGroup(request)
            return True
        group = self._groups[part.query_key]
        group.documents[request.request_id] = request
        group.num_tokens += request.num_tokens
        return group.open

    def may_run(self, request: Request) -> bool:
        """Whether the request's query, if it needs one, is ahead of it."""
        part = request.late_interaction
        return part is None or part.mode == "cache_query" or self._groups[part.query_key].open

    def open_for(self, request: Request) -> list[Request]:
        """Called when a request is put into a step: documents that it lets be queued."""
        group = self._group_of_query(request)
        if group is None or group.open:
            return []
        group.open = True
        return [one for one in group.documents.values() if one.state is RequestState.WAITING]

    def close_for(self, request: Request) -> list[Request]:
        """Called when a request is preempted or failed: documents that must not run any more."""
        group = self._group_of_query(request)
        if group is None:
            return []
        group.open = False
        return list(group.documents.values())

    def ended(self, request: Request) -> None:
        """Called when a request is finished, failed or aborted."""
        part = request.late_interaction
        group = None if part is None else self._groups.get(part.query_key)
        if part is None or group is None:
            return
        group.documents.pop(request.request_id, None)
        query_over = group.query.state not in (RequestState.WAITING, RequestState.RUNNING)
        if query_over and not group.documents:
            del self._groups[part.query_key]

    def recount(self, request: Request) -> None:
        """Sets a query's uses to the documents that still need it; others stay as they are."""
        part = request.late_interaction
        if part is None or part.mode != "cache_query":
            return
        group = self._group_of_query(request)
        part = replace(part, query_uses=0 if group is None else len(group.documents))
        request.params = replace(request.params, late_interaction=part)

    @property
    def num_held(self) -> int:
        """Documents whose query hasn't run."""
        return sum(len(group.documents) for group in self._groups.values() if not group.open)

    @property
    def held_tokens(self) -> int:
        """Tokens of documents whose query hasn't run, about: some may have been aborted."""
        return sum(group.num_tokens for group in self._groups.values() if not group.open)

    def _group_of_query(self, request: Request) -> ScoreGroup | None:
        part = request.late_interaction
        group = None if part is None else self._groups.get(part.query_key)
        return group if group is not None and group.query is request else None


def _invalid(what: str) -> InvalidRequest:
    return InvalidRequest(f"Late interaction: {what}", param="late_interaction")
