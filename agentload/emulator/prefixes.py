"""The prefix cache: which full blocks of which texts are kept, which are in use, and which go first.

Texts lie in a radix tree: contexts that begin alike share nodes, and a thousand blocks are compared as a few tuples. Two facts let it
stand for a queue of single blocks.

- A call uses a path from the root, so kept blocks are closed under ancestors: only the tail of a leaf can go.
- A call that ends gives its blocks back tail first. So along a path the turn to go never comes later with depth, and it is enough to mark
  where calls ended: a block's turn comes with the latest mark at or below it.

Equal, block for block, to the queue that vLLM keeps, but for one thing: where two calls compute the same block at the same time, vLLM
keeps both copies and this cache keeps one.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from agentload.emulator.calls import Run

_SWEEP = 64
"""Entries in the queue before stale ones are looked for."""


class Mark:
    """A block position on a path where calls end: `pins` of them still run; `stamp` tells when the last one gave its blocks back."""

    __slots__ = ("node", "pins", "position", "stamp")

    def __init__(self, node: Node, position: int) -> None:
        self.node = node
        self.position = position
        self.pins = 0
        self.stamp = 0


class Node:
    """A stretch of text that all contexts through it share.

    A block belongs to the node that holds its last token. Children hang at a node's end. Where texts part within a run, the rest of the
    run is a child whose first run lacks the `skip` tokens that its parents have.
    """

    __slots__ = ("below", "cached", "children", "first", "marks", "parent", "runs", "skip", "start", "tokens", "used")

    def __init__(self, *, parent: Node | None, start: int, first: int, runs: tuple[Run, ...], skip: int) -> None:
        self.parent = parent
        self.start = start
        self.first = first  # the first block that belongs here
        self.cached = first  # one past the last block that is kept; with children, all are
        self.used = first  # one past the last block in use
        self.runs = runs
        self.skip = skip
        self.tokens = sum(tokens for _, tokens in runs)
        self.children: dict[tuple[str, int], Node] = {}
        self.marks: dict[int, Mark] = {}
        self.below = 0  # pins in the nodes below

    def mark(self, position: int) -> Mark:
        """Return the mark at a block position, made if need be."""
        found = self.marks.get(position)
        if found is None:
            found = self.marks[position] = Mark(self, position)
        return found

    def holder(self, position: int) -> Node:
        """Return the topmost node on the way here that reaches a block position."""
        node = self
        while node.parent is not None and position <= node.first:
            node = node.parent
        return node


@dataclass(slots=True)
class Place:
    """Where a context leaves the tree: `offset` tokens into a node, `used` tokens into its own run `index`, `matched` in all."""

    node: Node
    offset: int
    index: int
    used: int
    matched: int


def descend(root: Node, content: tuple[Run, ...], limit: int) -> Place:
    """Follow a context down the tree for at most *limit* tokens."""
    place = Place(root, root.tokens, 0, 0, 0)
    while place.index < len(content) and place.matched < limit:
        child = place.node.children.get((content[place.index][0], place.used))
        if child is None:
            break
        place.node = child
        place.offset = 0
        _follow(place, content, limit)
        if place.offset < child.tokens:
            break
    return place


def _follow(place: Place, content: tuple[Run, ...], limit: int) -> None:
    """Follow a context through the runs of the place's node, as far as they agree."""
    runs, tokens = place.node.runs, place.node.tokens
    if not place.used and place.matched + tokens <= limit:
        # Mostly a node is all of the context so far, its last run perhaps cut by a chunk: two comparisons at the speed of C.
        end = place.index + len(runs)
        if content[place.index : end] == runs:
            place.index, place.offset = end, tokens
            place.matched += tokens
            return
        if content[place.index : end - 1] == runs[:-1]:
            place.index, place.offset = end - 1, tokens - runs[-1][1]
            place.matched += place.offset
            runs = runs[-1:]
    _walk(place, content, runs, limit)


def _walk(place: Place, content: tuple[Run, ...], runs: tuple[Run, ...], limit: int) -> None:
    for identity, tokens in runs:
        if place.index == len(content) or place.matched == limit or content[place.index][0] != identity:
            return
        length = content[place.index][1]
        step = min(tokens, length - place.used, limit - place.matched)
        place.offset += step
        place.matched += step
        place.used += step
        if place.used == length:
            place.index, place.used = place.index + 1, 0
        elif step == tokens:
            return  # the context's run goes on where the node's ends
        if step < tokens:
            return


def grow(place: Place, content: tuple[Run, ...], limit: int, block: int) -> Place:
    """Add the runs of a context from a place up to *limit* tokens; return the place where they end.

    A leaf grows in place, so that a long conversation stays one node. What it had beyond the place makes way if none of its blocks is kept.
    """
    runs, index, used = _rest(content, place, limit)
    node, offset = place.node, place.offset
    if offset < node.tokens:
        boundary = (node.start + offset) // block
        if node.children or node.cached > boundary:
            node = _split(node, offset, boundary)
        else:
            node.runs, _ = _cut(node.runs, offset)
            node.tokens = offset
    if node.parent is None or node.children:
        start = node.start + node.tokens
        child = Node(parent=node, start=start, first=start // block, runs=runs, skip=place.used)
        node.children[runs[0][0], place.used] = child
        return Place(child, child.tokens, index, used, limit)
    if place.used:
        identity, tokens = node.runs[-1]
        node.runs = (*node.runs[:-1], (identity, tokens + runs[0][1]), *runs[1:])
    else:
        node.runs += runs
    node.tokens += limit - place.matched
    return Place(node, node.tokens, index, used, limit)


def _rest(content: tuple[Run, ...], place: Place, limit: int) -> tuple[tuple[Run, ...], int, int]:
    """Return the runs of a context from a place up to *limit* tokens, and where in the context they end."""
    index, used, left = place.index, place.used, limit - place.matched
    runs: list[Run] = []
    while left:
        run = content[index]
        length = run[1] - used
        if length > left:
            runs.append((run[0], left))
            return tuple(runs), index, used + left
        runs.append((run[0], length) if used else run)
        left -= length
        index, used = index + 1, 0
    return tuple(runs), index, used


def _split(lower: Node, offset: int, boundary: int) -> Node:
    """Cut a node in two at *offset* tokens; return the new upper one. The old one stays the lower, with its children."""
    parent = lower.parent
    assert parent is not None
    head, tail = _cut(lower.runs, offset)
    upper = Node(parent=parent, start=lower.start, first=lower.first, runs=head, skip=lower.skip)
    upper.cached = boundary
    upper.used = min(lower.used, boundary)
    parent.children[head[0][0], lower.skip] = upper
    within_run = len(head) + len(tail) > len(lower.runs)
    lower.skip = head[-1][1] + (lower.skip if len(head) == 1 else 0) if within_run else 0
    lower.parent, lower.start, lower.first = upper, lower.start + offset, boundary
    lower.used = max(lower.used, boundary)
    lower.runs, lower.tokens = tail, lower.tokens - offset
    upper.children[tail[0][0], lower.skip] = lower
    upper.marks = {position: mark for position, mark in lower.marks.items() if position <= boundary}
    for position, mark in upper.marks.items():
        mark.node = upper
        del lower.marks[position]
    upper.below = lower.below + sum(mark.pins for mark in lower.marks.values())
    return upper


def _cut(runs: tuple[Run, ...], offset: int) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """Cut runs in two at *offset* tokens, within a run if need be."""
    for index, (identity, tokens) in enumerate(runs):
        if offset < tokens:
            head = runs[:index] + (((identity, offset),) if offset else ())
            return head, ((identity, tokens - offset), *runs[index + 1 :])
        offset -= tokens
    return runs, ()


@dataclass(slots=True)
class _Turn:
    """What is to go: the tail of a leaf down to its next mark, or blocks that nobody can ask for."""

    mark: Mark | None
    blocks: int


class PrefixCache:
    """Keep full blocks of contexts and evict those that were given back longest ago."""

    def __init__(self, block_tokens: int) -> None:
        self._block = block_tokens
        self._root = Node(parent=None, start=0, first=0, runs=(), skip=0)
        self._queue: list[tuple[int, int, _Turn]] = []  # heap by stamp, then order of arrival
        self._serial = 0
        self._clock = 0
        self._sweep_at = _SWEEP
        self._left: tuple[tuple[Run, ...], Place] | None = None  # the context that was looked up last, and where it left the tree
        self.cached = 0
        """Blocks kept, in use or not."""
        self.pinned = 0
        """Of these, blocks in use."""

    def hit(self, content: tuple[Run, ...], limit: int) -> tuple[Node, int]:
        """Find the longest kept prefix of at most *limit* blocks: where it ends, and its blocks."""
        place = descend(self._root, content, limit * self._block)
        blocks = min(place.node.cached, (place.node.start + place.offset) // self._block)
        node = place.node.holder(blocks)
        # The `keep` that mostly follows need not look again, if the context left the tree before the limit, in a node that will be pinned.
        self._left = (content, place) if node is place.node and place.matched < limit * self._block else None
        return node, blocks

    def keep(self, content: tuple[Run, ...], tokens: int) -> tuple[Node, int]:
        """Keep all full blocks of a context's first *tokens*; return where they end, to be pinned at once."""
        full = tokens // self._block
        left = self._left
        place = left[1] if left and left[0] is content else descend(self._root, content, tokens)
        node = place.node
        known = min(full, (node.start + place.offset) // self._block)
        if node.cached < known:
            # The tail of a leaf was evicted, its text not yet forgotten.
            self.cached += known - node.cached
            node.cached = known
        self._left = None
        if known < full:
            place = grow(place, content, tokens, self._block)
            node = place.node
            self.cached += full - known
            node.cached = full
            # The next chunk of the same prompt goes on here, unless the tree grows before.
            self._left = content, place
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
        """Stop using a path without giving its blocks back: the call holds a longer one by now, or was not admitted."""
        node = mark.node
        mark.pins -= 1
        if not node.below:
            self._reuse(node)
        above = node.parent
        while above is not None:
            above.below -= 1
            if not above.below:
                self._reuse(above)
            above = above.parent
        if not mark.pins and not mark.stamp:
            del node.marks[mark.position]

    def _reuse(self, node: Node) -> None:
        """Find anew how far a node is in use, now that nothing below it is."""
        used = node.first
        for position, mark in node.marks.items():
            if mark.pins and position > used:
                used = position
        self.pinned -= node.used - used
        node.used = used

    def extend(self, mark: Mark, node: Node, position: int) -> Mark:
        """Use a longer path instead of the one that ends at a mark."""
        if node is mark.node and mark.pins == 1 and position not in node.marks:
            # One call goes on in its own node: nothing above it changes, and a stamp from before gives way to the one that it will leave.
            del node.marks[mark.position]
            node.marks[position] = mark
            mark.position, mark.stamp = position, 0
            if position > node.used:
                self.pinned += position - node.used
                node.used = position
            return mark
        longer = self.pin(node, position)
        self.unpin(mark)
        return longer

    def give_back(self, mark: Mark, anonymous: int) -> None:
        """End a call's use of its path; *anonymous* further blocks that nobody can ask for go before it."""
        self._clock += 1
        if anonymous:
            self.cached += anonymous
            self._push(self._clock, None, anonymous)
        mark.stamp = self._clock
        self.unpin(mark)
        node = mark.node
        if len(node.marks) > 1:
            # Shallower marks say nothing any more: their blocks now wait for this stamp.
            for position in [place for place, other in node.marks.items() if place < mark.position and not other.pins]:
                del node.marks[position]
        self._settle(node)

    def evict(self, blocks: int) -> None:
        """Drop the *blocks* that were given back longest ago."""
        self.cached -= blocks
        while blocks:
            stamp, _, turn = self._queue[0]
            mark = turn.mark
            if mark is not None:
                turn.blocks = _tail(mark) if _is_due(mark, stamp) else 0
            taken = min(blocks, turn.blocks)
            blocks -= taken
            turn.blocks -= taken
            if mark is not None and taken:
                _shorten(mark, taken)
            if not turn.blocks:
                heapq.heappop(self._queue)
                if mark is not None and taken:
                    self._settle(mark.node)

    def _settle(self, node: Node) -> None:
        """Queue the tail of a leaf that nobody uses; drop the leaf if nothing of it is left, and so on upwards."""
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
        heapq.heappush(self._queue, (stamp, self._serial, _Turn(mark, blocks)))
        if len(self._queue) > self._sweep_at:
            # Leaves that were used again leave stale entries; sweeping at doubled size keeps the cost of a call constant.
            self._queue = [entry for entry in self._queue if entry[2].mark is None or _is_due(entry[2].mark, entry[0])]
            heapq.heapify(self._queue)
            self._sweep_at = max(_SWEEP, 2 * len(self._queue))


def _is_due(mark: Mark, stamp: int) -> bool:
    """Tell whether a mark is still the end of a leaf that nobody has used since."""
    node = mark.node
    return (
        mark.stamp == stamp
        and not mark.pins
        and mark.position == node.cached
        and not node.children
        and node.marks.get(mark.position) is mark
    )


def _tail(mark: Mark) -> int:
    """Count the blocks from a mark down to the next one, or to the node's first."""
    node = mark.node
    if len(node.marks) == 1:
        return mark.position - node.first
    return mark.position - max((position for position in node.marks if position < mark.position), default=node.first)


def _shorten(mark: Mark, blocks: int) -> None:
    """Drop blocks from the tail of the leaf that ends with a mark; the mark moves with the end."""
    node = mark.node
    del node.marks[mark.position]
    mark.position -= blocks
    node.cached = mark.position
    below = node.marks.get(mark.position)
    if below is None:
        node.marks[mark.position] = mark
    else:
        below.stamp = max(below.stamp, mark.stamp)
