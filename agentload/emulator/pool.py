"""Count the pages of an engine's KV pool: held by calls, kept by the prefix cache, or free."""

from agentload.emulator.calls import Runs
from agentload.emulator.prefixes import PrefixCache
from agentload.emulator.tree import Mark
from agentload.kvmath.layout import Layout


class Lease:
    """The pages of one running call."""

    __slots__ = ("blocks", "mark")

    def __init__(self, mark: Mark, blocks: int) -> None:
        self.mark = mark
        """End of the call's path in the prefix cache."""
        self.blocks = blocks
        """All blocks that the call holds, including shared ones."""


class KvPool:
    """Count the pages of a pool.

    A block of a call costs `pages_per_block`; windows and states cost `fixed_pages` a call.
    """

    def __init__(self, *, pages: int, layout: Layout, caching: bool) -> None:
        self.block_tokens = layout.block_tokens
        self.capacity = pages - 1  # vLLM keeps one null block
        self._per_block = layout.pages_per_block
        self._fixed = layout.fixed_pages
        self._caching = caching
        self._cache = PrefixCache(self.block_tokens)
        self._own = 0  # pages of running calls that are not in the cache

    def pages_for(self, tokens: int) -> int:
        """Return how many pages a running call of *tokens* tokens holds."""
        return -(-tokens // self.block_tokens) * self._per_block + self._fixed

    @property
    def used_pages(self) -> int:
        """Number of pages that running calls hold."""
        return self._own + self._cache.pinned * self._per_block

    @property
    def free_blocks(self) -> int:
        """Blocks that running calls could still take, evicting cached ones not in use."""
        return (self.capacity - self._own) // self._per_block - self._cache.pinned

    def lease(self, content: Runs, tokens: int) -> Lease | None:
        """Reserve the blocks of a prompt, sharing cached ones; None if they do not fit."""
        # vLLM computes at least the last token, so even a full hit computes its last block again.
        node, hit = self._cache.hit(
            content, (tokens - 1) // self.block_tokens if self._caching else 0
        )
        blocks = -(-tokens // self.block_tokens)
        mark = self._cache.pin(node, hit)
        needed = (blocks - hit) * self._per_block + self._fixed
        if needed > self.capacity - self.used_pages:
            self._cache.unpin(mark)
            return None
        self._take(needed)
        return Lease(mark, blocks)

    def computed(self, lease: Lease, content: Runs, tokens: int) -> None:
        """Put the full blocks of a call's first *tokens* tokens into the prefix cache.

        vLLM does so when it schedules them.
        """
        if not self._caching or tokens // self.block_tokens <= lease.mark.position:
            return
        node, full = self._cache.keep(content, tokens)
        self._own -= (full - lease.mark.position) * self._per_block
        lease.mark = self._cache.extend(lease.mark, node, full)

    def grow(self, blocks: int) -> None:
        """Give running calls *blocks* more blocks.

        The caller has checked `free_blocks`, and adds the blocks to leases when calls end.
        """
        if blocks:
            self._take(blocks * self._per_block)

    def release(self, lease: Lease, content: Runs | None, tokens: int) -> None:
        """End a lease whose first *tokens* tokens are computed.

        *content* names the text with what was generated; None if no later call can hold it.
        """
        if content is not None:
            self.computed(lease, content, tokens)
        position = lease.mark.position
        self._own -= (lease.blocks - position) * self._per_block + self._fixed
        if self._caching:
            generated = min(tokens // self.block_tokens, lease.blocks) - position
        else:
            generated = 0
        self._cache.give_back(lease.mark, generated)

    def forget(self) -> bool:
        """Empty the prefix cache unless calls are running; return whether this was done.

        Same as vLLM's `reset_prefix_cache`.
        """
        if self.used_pages:
            return False
        self._cache = PrefixCache(self.block_tokens)
        return True

    def _take(self, pages: int) -> None:
        self._own += pages
        short = self._own + self._cache.cached * self._per_block - self.capacity
        if short > 0:
            self._cache.evict(-(-short // self._per_block))
