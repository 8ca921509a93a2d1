"""Prompts of causal models: in parts, with blocks for what is kept of them, and shared prefixes.

The rules:

- A request takes blocks as its parts run, and gives all back when it ends or is preempted. Who has
  the better rank is served first, so whoever holds blocks between steps ranks behind whoever needs
  them: the worst of them is preempted, and the best always goes on. There is no deadlock.
- Full blocks can be found by their prefix as soon as the step that fills them is formed. In one
  step keys are written before they are read, so prompts that start alike compute the common part
  once even if all run in that step. If a step fails, all of its requests start again, each alone.
- A prompt's last token always runs: its row is the result.

It knows no tensors and no order: the scheduler asks for one request after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cenote.engine.kv_cache import BlockPool
from cenote.engine.prefix_cache import PrefixCache, block_hashes, first_hash
from cenote.engine.prompts import LOOK_AHEAD
from cenote.engine.request import Request
from cenote.errors import InvalidRequest
from cenote.step import KVSpace, KVUse


@dataclass(slots=True)
class Holding:
    """What a begun request holds. The first `shared` of its blocks were found, the first `known`
    can be found; `hashes` are those of all full blocks of the prompt."""

    request: Request
    hashes: list[bytes]
    blocks: list[int] = field(default_factory=list)
    shared: int = 0
    known: int = 0


class ChunkedPrompts:
    """See the module. `space` is the pool as the runner made it."""

    is_retried = True

    def __init__(self, space: KVSpace) -> None:
        self.space = space
        self.pool = BlockPool(space.num_blocks)
        self.cache = PrefixCache(self.pool)
        # A request that gets no blocks ends the step: those behind it would take what it needs.
        self.look_ahead = 1 if space.chunked else LOOK_AHEAD
        self._held: dict[str, Holding] = {}
        self._in_step: set[str] = set()

    def check(self, num_tokens: int) -> None:
        """Raises InvalidRequest for a prompt that is larger than the whole pool."""
        needed, size = self._blocks_for(num_tokens), self.space.block_size
        if needed > self.space.num_blocks:
            raise InvalidRequest(
                f"The prompt's {num_tokens} tokens need {needed} blocks of keys and values, but "
                f"the pool has {self.space.num_blocks} blocks, which is room for "
                f"{self.space.num_blocks * size} tokens. Shorten it, or raise kv_cache_bytes.",
                param="input",
            )

    def begin_step(self) -> None:
        """Those of the step before may be preempted again."""
        self._in_step.clear()

    def take(self, request: Request, tokens_left: int, *, first: bool) -> int:
        """What is left of the prompt or of the budget, if there are blocks for it."""
        held = self._held.get(request.request_id)
        found = self._found(request) if held is None else []
        start = request.num_computed_tokens if held else len(found) * self.space.block_size
        tokens = self._part(request.num_tokens - start, tokens_left, first)
        have = len(found) if held is None else len(held.blocks)
        missing = self._blocks_for(start + tokens) - have
        # Blocks that were found but are used by nobody stop being free by being used.
        idle = sum(not self.pool.references(block) for block in found)
        if tokens == 0 or missing + idle > self.pool.num_free:
            return 0
        if held is None:
            held = self._open(request, found)
        self._extend(held, missing, start + tokens)
        self._in_step.add(request.request_id)
        return tokens

    def victim(self) -> Request | None:
        """Of those that hold blocks and don't run in this step, the one with the worst rank."""
        idle = [one.request for id_, one in self._held.items() if id_ not in self._in_step]
        return max(idle, key=lambda request: request.rank, default=None)

    def blocks(self, request: Request) -> list[int] | None:
        """The blocks of the prompt's tokens so far, this step's included."""
        return list(self._held[request.request_id].blocks)

    def release(self, request: Request, *, spoiled: bool = False) -> None:
        """Gives back its blocks, the last first: what more prompts may share is kept longest."""
        held = self._held.pop(request.request_id, None)
        if held is None:
            return
        if spoiled:
            for block in held.blocks[held.shared : held.known]:
                self.cache.forget(block)
        for block in reversed(held.blocks):
            self.pool.release(block, keep=block in self.cache)

    def reset(self) -> None:
        """No later prompt finds what is kept now; those that run keep what they hold."""
        self.cache.clear()

    def usage(self) -> KVUse:
        """What is held and kept now."""
        return KVUse(
            self.space.num_blocks,
            self.pool.num_used,
            self.pool.num_kept,
            self.cache.hits,
            self.cache.queries,
        )

    # --- inner ------------------------------------------------------------------------------------

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.space.block_size)

    def _part(self, left: int, tokens_left: int, first: bool) -> int:
        if self.space.chunked:
            return min(left, tokens_left)
        return left if first or left <= tokens_left else 0

    def _hashes(self, request: Request) -> list[bytes]:
        """Made once for a request, also if it is preempted."""
        if request.block_hashes is None:
            first = first_hash(self.space.model, request.adapter, request.cache_salt)
            request.block_hashes = list(
                block_hashes(request.token_ids, self.space.block_size, first)
            )
        return request.block_hashes

    def _reads(self, request: Request) -> bool:
        """Whether its results can be made without the rows of a prefix that doesn't run."""
        tasks = {request.params.task, *request.params.also}
        return self.space.prefix_caching and tasks <= self.space.last_row_tasks

    def _found(self, request: Request) -> list[int]:
        """Blocks of its prefix that are there; never all of the prompt."""
        if not self._reads(request):
            return []
        most = (request.num_tokens - 1) // self.space.block_size
        return self.cache.find(self._hashes(request)[:most])

    def _open(self, request: Request, found: list[int]) -> Holding:
        self.pool.retain(found)
        hashes = self._hashes(request) if self.space.prefix_caching else []
        held = Holding(request, hashes, found, len(found), len(found))
        self._held[request.request_id] = held
        request.num_computed_tokens = len(found) * self.space.block_size
        # One that is preempted finds its own blocks again; that is not a saving.
        if request.num_cached_tokens is None:
            request.num_cached_tokens = request.num_computed_tokens
            if self._reads(request):
                self.cache.queries += request.num_tokens
                self.cache.hits += request.num_computed_tokens
        return held

    def _extend(self, held: Holding, missing: int, end: int) -> None:
        """More blocks, up to token `end`; those that this step fills can be found from now on."""
        taken = self.pool.allocate(missing)
        for block in taken:
            self.cache.forget(block)
        held.blocks += taken
        full = min(end // self.space.block_size, len(held.hashes))
        for index in range(held.known, full):
            self.cache.put(held.hashes[index], held.blocks[index])
        held.known = max(held.known, full)
