"""Keep KV blocks in a second tier behind the pool: a machine's memory, or a store.

As with vLLM's offloading, every full block that a call has computed is copied there, in the
background; those used longest ago make room. A prompt whose start the tier holds
beyond what the prefix cache holds is not computed there: the step that admits the call
waits until these blocks are read back.
"""

from agentload.emulator.calls import PS_PER_NS, Runs
from agentload.emulator.prefixes import PrefixCache
from agentload.kvmath.layout import Layout
from agentload.kvmath.pool import GIB
from agentload.model.profile import OffloadTier


class OffloadedKv:
    """Hold the blocks that one server's tier has."""

    def __init__(self, tier: OffloadTier, layout: Layout) -> None:
        self._block = layout.block_tokens
        size = layout.page_bytes * layout.pages_per_block
        self._room = int(tier.gib * GIB) // size
        self._block_ps = round(size / tier.gb_per_s * PS_PER_NS)  # one GB/s is one byte a ns
        self._cache = PrefixCache(self._block)

    def store(self, content: Runs, tokens: int) -> None:
        """Keep the full blocks of a context's first *tokens* tokens."""
        if tokens >= self._block and self._room:
            node, full = self._cache.keep(content, tokens)
            self._cache.give_back(self._cache.pin(node, full), 0)
            self._cache.evict(max(0, self._cache.cached - self._room))

    def fetch(self, content: Runs, held: int, tokens: int) -> tuple[int, int]:
        """Read what the tier has of a prompt's *tokens* tokens beyond the *held* ones.

        Return how many tokens are held then, and how long reading takes. As in
        the prefix cache, a prompt's last token is always computed.
        """
        node, blocks = self._cache.hit(content, (tokens - 1) // self._block)
        more = blocks - held // self._block
        if more <= 0:
            return held, 0
        self._cache.give_back(self._cache.pin(node, blocks), 0)
        return blocks * self._block, more * self._block_ps
