"""Keep a prefix cache: which full blocks of which texts are kept or in use, and eviction order.

Texts are in a radix tree (`tree`). Two facts let the tree replace a queue of single blocks.

- A call uses a path from the root, so kept blocks are
  closed under ancestors: only the tail of a leaf can be evicted.
- A call that ends gives its blocks back tail first. So along a path a block is never evicted
  later than one above it, and it is enough to mark where calls ended: a block is evicted by the
  stamp of the latest mark at or below it.

Positions (`first`, `cached` and `used` of a node, too) are numbers of blocks from the root.

Equal, block for block, to vLLM's queue, with one exception: where two calls
compute the same block at the same time, vLLM keeps both copies and this cache keeps one.
"""

import heapq

from agentload.emulator.calls import Runs
from agentload.emulator.tree import Mark, Node, Place, descend, grow

_SWEEP = 64
"""Entries in the queue before stale ones are removed for the first time."""


class PrefixCache:
    """Keep full blocks of contexts; evict those that were given back longest ago."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._root = Node(parent=None, start=0, first=0, runs=(), skip=0)
        # Heap of stamp, order of arrival, mark, number of blocks. With a mark: the tail of the leaf
        # that ends with it, back to the previous one (the number says nothing). Without: that many
        # anonymous blocks, which no later call can ask for.
        self._queue: list[tuple[int, int, Mark | None, int]] = []
        self._serial = 0
        self._clock = 0
        self._sweep_at = _SWEEP
        # the context that was looked up last, and where the next look-up of it may go on
        self._resume: tuple[Runs, Place] | None = None
        self.cached = 0
        """Number of blocks kept, in use or not."""
        self.pinned = 0
        """Number of kept blocks in use."""

    def hit(self, content: Runs, limit: int) -> tuple[Node, int]:
        """Return the end of the longest kept prefix of at most *limit* blocks, and its size."""
        place = descend(self._root, content, limit * self._block_tokens)
        blocks = min(place.node.cached, (place.node.start + place.offset) // self._block_tokens)
        node = place.node.holder(blocks)
        # Mostly `keep` of the same context follows. It starts here if the context left the tree
        # before the limit, in the node that the caller will pin, so that nothing evicts it.
        if node is place.node and place.matched < limit * self._block_tokens:
            self._resume = (content, place)
        else:
            self._resume = None
        return node, blocks

    def keep(self, content: Runs, tokens: int) -> tuple[Node, int]:
        """Keep all full blocks of a context's first *tokens* tokens; return where they end.

        The caller must pin them at once: nothing has queued them for eviction.
        """
        full = tokens // self._block_tokens
        resume = self._resume
        if resume and resume[0] is content:
            place = resume[1]
        else:
            place = descend(self._root, content, tokens)
        node = place.node
        known = min(full, (node.start + place.offset) // self._block_tokens)
        if node.cached < known:
            # The tail of a leaf was evicted, but its text is still in the tree.
            self.cached += known - node.cached
            node.cached = known
        self._resume = None
        if known < full:
            place = grow(place, content, tokens, self._block_tokens)
            node = place.node
            self.cached += full - known
            node.cached = full
            # The next chunk of the same prompt continues here, unless another context comes first.
            self._resume = content, place
        return node.holder(full), full

    def pin(self, node: Node, position: int) -> Mark:
        """Use the path from the root to a block position."""
        mark = node.mark(position)
        mark.pins += 1
        if position > node.used:
            self.pinned += position - node.used
            node.used = position
        above = node.parent
        while above is not None:
            above.below += 1
            if above.used < above.cached:
                self.pinned += above.cached - above.used
                above.used = above.cached
            above = above.parent
        return mark

    def unpin(self, mark: Mark) -> None:
        """Stop using a path without giving its blocks back.

        The call holds a longer path by now, or was not admitted.
        """
        node = mark.node
        mark.pins -= 1
        if not node.below:
            self._recount_used(node)
        above = node.parent
        while above is not None:
            above.below -= 1
            if not above.below:
                self._recount_used(above)
            above = above.parent
        if not mark.pins and not mark.stamp:
            del node.marks[mark.position]

    def _recount_used(self, node: Node) -> None:
        """Compute again how far a node is in use, now that nothing below it is."""
        used = node.first
        for position, mark in node.marks.items():
            if mark.pins and position > used:
                used = position
        self.pinned -= node.used - used
        node.used = used

    def extend(self, mark: Mark, node: Node, position: int) -> Mark:
        """Use a longer path instead of the one that ends at a mark; return its mark."""
        if node is mark.node and mark.pins == 1 and position not in node.marks:
            # One call continues in its own node: nothing above it changes, and an
            # older stamp is dropped, as the call will leave a later one.
            del node.marks[mark.position]
            node.marks[position] = mark
            mark.position = position
            mark.stamp = 0
            if position > node.used:
                self.pinned += position - node.used
                node.used = position
            return mark
        longer = self.pin(node, position)
        self.unpin(mark)
        return longer

    def give_back(self, mark: Mark, anonymous: int) -> None:
        """End a call's use of its path.

        *anonymous* further blocks, which no later call can ask for, are evicted before the path's.
        """
        self._clock += 1
        if anonymous:
            self.cached += anonymous
            self._push(self._clock, None, anonymous)
        mark.stamp = self._clock
        self.unpin(mark)
        node = mark.node
        if len(node.marks) > 1:
            # Marks above decide nothing any more: their blocks are evicted by this later stamp.
            for position in [
                place
                for place, other in node.marks.items()
                if place < mark.position and not other.pins
            ]:
                del node.marks[position]
        self._settle(node)

    def evict(self, blocks: int) -> None:
        """Drop the *blocks* blocks that were given back longest ago; as many are not in use."""
        self.cached -= blocks
        while blocks:
            stamp, serial, mark, left = self._queue[0]
            if mark is not None:
                left = _tail(mark) if _is_due(mark, stamp) else 0
            taken = min(blocks, left)
            blocks -= taken
            if mark is not None and taken:
                _shorten(mark, taken)
            if taken < left:
                self._queue[0] = (stamp, serial, mark, left - taken)
                continue
            heapq.heappop(self._queue)
            if mark is not None and taken:
                self._settle(mark.node)

    def _settle(self, node: Node) -> None:
        """Queue the tail of a leaf that no call uses.

        If nothing of the leaf is kept, remove it and do the same for its parent.
        """
        while not node.children:
            mark = node.marks.get(node.cached)
            if mark is None or mark.pins:
                return
            if node.cached > node.first:
                self._push(mark.stamp, mark, 0)
                return
            parent = node.parent
            if parent is None:
                return
            del parent.children[node.runs[0][0], node.skip]
            node.marks.clear()
            end = parent.mark(parent.cached)
            end.stamp = max(end.stamp, mark.stamp)
            node = parent

    def _push(self, stamp: int, mark: Mark | None, blocks: int) -> None:
        self._serial += 1
        heapq.heappush(self._queue, (stamp, self._serial, mark, blocks))
        if len(self._queue) > self._sweep_at:
            # Leaves that were used again leave stale entries; sweeping whenever
            # the queue has doubled keeps the cost of a call constant.
            self._queue = [
                entry for entry in self._queue if entry[2] is None or _is_due(entry[2], entry[0])
            ]
            heapq.heapify(self._queue)
            self._sweep_at = max(_SWEEP, 2 * len(self._queue))


def _is_due(mark: Mark, stamp: int) -> bool:
    """Tell whether a mark is still the end of a leaf that no call has used since *stamp*."""
    node = mark.node
    return (
        mark.stamp == stamp
        and not mark.pins
        and mark.position == node.cached
        and not node.children
        and node.marks.get(mark.position) is mark
    )


def _tail(mark: Mark) -> int:
    """Return the number of blocks from a mark up to the previous one, or to the node's first."""
    node = mark.node
    if len(node.marks) == 1:
        return mark.position - node.first
    return mark.position - max(
        (position for position in node.marks if position < mark.position), default=node.first
    )


def _shorten(mark: Mark, blocks: int) -> None:
    """Drop blocks from the tail of the leaf that ends with a mark; the mark moves along."""
    node = mark.node
    del node.marks[mark.position]
    mark.position -= blocks
    node.cached = mark.position
    previous = node.marks.get(mark.position)
    if previous is None:
        node.marks[mark.position] = mark
    else:
        previous.stamp = max(previous.stamp, mark.stamp)
