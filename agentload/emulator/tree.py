"""Keep texts in a radix tree: contexts with a common start share nodes.

A thousand blocks are compared as a few tuples. What of the tree is kept, and what is evicted
first, is up to the cache (`prefixes`).
"""

from bisect import bisect_right
from itertools import accumulate
from operator import itemgetter

from agentload.emulator.calls import Runs

_tokens = itemgetter(1)


class Mark:
    """Mark a block position on a path where calls end.

    `pins` of those calls still run; `stamp` tells when the last one gave its blocks back (0: none).
    """

    __slots__ = ("node", "pins", "position", "stamp")

    def __init__(self, node: "Node", position: int) -> None:
        self.node = node
        self.position = position
        self.pins = 0
        self.stamp = 0


class Node:
    """Hold a stretch of text that all contexts through it share.

    A block belongs to the node that holds its last token. Children start at a
    node's end. Where texts part within a run, the rest of the run is a child
    whose first run lacks the `skip` tokens that its parents have.
    """

    __slots__ = (
        "below",
        "cached",
        "children",
        "first",
        "marks",
        "parent",
        "runs",
        "skip",
        "start",
        "tokens",
        "used",
    )

    def __init__(
        self, *, parent: "Node | None", start: int, first: int, runs: Runs, skip: int
    ) -> None:
        self.parent = parent
        self.start = start
        self.first = first  # the first block that belongs to this node
        # One past the last block that is kept; with children, all blocks are kept
        self.cached = first
        self.used = first  # one past the last block in use
        self.runs = runs
        self.skip = skip
        self.tokens = sum(tokens for _, tokens in runs)
        self.children: dict[tuple[str, int], Node] = {}
        self.marks: dict[int, Mark] = {}
        self.below = 0  # pins in the nodes below

    def mark(self, position: int) -> Mark:
        """Return the mark at a block position; add one if there is none."""
        found = self.marks.get(position)
        if found is None:
            found = self.marks[position] = Mark(self, position)
        return found

    def holder(self, position: int) -> "Node":
        """Return the topmost node on the path to this one that reaches a block position."""
        node = self
        while node.parent is not None and position <= node.first:
            node = node.parent
        return node


class Place:
    """Say where a context leaves the tree.

    That is `offset` tokens into a node and `used` tokens into the context's run `index`;
    `matched` tokens match in all.
    """

    __slots__ = ("index", "matched", "node", "offset", "used")

    def __init__(self, node: Node, offset: int, index: int, used: int, matched: int) -> None:
        self.node = node
        self.offset = offset
        self.index = index
        self.used = used
        self.matched = matched


def descend(root: Node, content: Runs, limit: int) -> Place:
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


def _follow(place: Place, content: Runs, limit: int) -> None:
    """Follow a context through the runs of the place's node, as far as they agree."""
    runs = place.node.runs
    tokens = place.node.tokens
    if not place.used and place.matched + tokens <= limit:
        # Mostly a node holds all of the context so far, its last run perhaps
        # cut by a chunk: then one comparison of tuples is enough.
        end = place.index + len(runs)
        if end <= len(content) and content[end - 1] == runs[-1]:
            if content[place.index : end] == runs:
                place.index = end
                place.offset = tokens
                place.matched += tokens
                return
        elif content[place.index : end - 1] == runs[:-1]:
            place.index = end - 1
            place.offset = tokens - runs[-1][1]
            place.matched += place.offset
            runs = runs[-1:]
    _walk(place, content, runs, limit)


def _walk(place: Place, content: Runs, runs: Runs, limit: int) -> None:
    for identity, tokens in runs:
        if (
            place.index == len(content)
            or place.matched == limit
            or content[place.index][0] != identity
        ):
            return
        length = content[place.index][1]
        step = min(tokens, length - place.used, limit - place.matched)
        place.offset += step
        place.matched += step
        place.used += step
        if place.used == length:
            place.index = place.index + 1
            place.used = 0
        elif step == tokens:
            return  # the context's run continues where the node's run ends
        if step < tokens:
            return


def grow(place: Place, content: Runs, limit: int, block: int) -> Place:
    """Add a context's runs from a place up to *limit* tokens; return the place of their end.

    A leaf grows in place, so that a long conversation stays one node.
    Text of the leaf beyond the place is dropped if none of its blocks is kept.
    """
    runs, index, used = _rest(content, place, limit)
    node = place.node
    offset = place.offset
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
        whole = content[place.index]
        identity, more = runs[0]
        joined = (identity, node.runs[-1][1] + more)
        # If both are equal, take the context's own run: comparing an object with itself is quicker.
        node.runs = node.runs[:-1]
        node.runs += (whole if whole == joined else joined, *runs[1:])
    else:
        node.runs += runs
    node.tokens += limit - place.matched
    return Place(node, node.tokens, index, used, limit)


def _rest(content: Runs, place: Place, limit: int) -> tuple[Runs, int, int]:
    """Return a context's runs from a place up to *limit* tokens, and where they end in it."""
    index = place.index
    used = place.used
    left = limit - place.matched + used
    # how many tokens end with each run, from the start of the first one
    ends = list(accumulate(map(_tokens, content[index:])))
    whole = bisect_right(ends, left)
    runs = content[index : index + whole]
    left -= ends[whole - 1] if whole else 0
    if left:
        runs += ((content[index + whole][0], left),)
    if used:
        identity, tokens = runs[0]
        runs = ((identity, tokens - used), *runs[1:])
    return runs, index + whole, left


def _split(lower: Node, offset: int, boundary: int) -> Node:
    """Cut a node in two at *offset* tokens; return the new upper one.

    The old one stays as the lower one, with its children.
    """
    parent = lower.parent
    assert parent is not None
    head, tail = _cut(lower.runs, offset)
    upper = Node(parent=parent, start=lower.start, first=lower.first, runs=head, skip=lower.skip)
    upper.cached = boundary
    upper.used = min(lower.used, boundary)
    parent.children[head[0][0], lower.skip] = upper
    within_run = len(head) + len(tail) > len(lower.runs)
    if not within_run:
        lower.skip = 0
    elif len(head) == 1:
        lower.skip += offset
    else:
        lower.skip = head[-1][1]
    lower.parent = upper
    lower.start = lower.start + offset
    lower.first = boundary
    lower.used = max(lower.used, boundary)
    lower.runs = tail
    lower.tokens = lower.tokens - offset
    upper.children[tail[0][0], lower.skip] = lower
    upper.marks = {position: mark for position, mark in lower.marks.items() if position <= boundary}
    for position, mark in upper.marks.items():
        mark.node = upper
        del lower.marks[position]
    upper.below = lower.below + sum(mark.pins for mark in lower.marks.values())
    return upper


def _cut(runs: Runs, offset: int) -> tuple[Runs, Runs]:
    """Cut runs in two at *offset* tokens, within a run if need be."""
    for index, (identity, tokens) in enumerate(runs):
        if offset < tokens:
            head = runs[:index]
            if offset:
                head = (*head, (identity, offset))
            return head, ((identity, tokens - offset), *runs[index + 1 :])
        offset -= tokens
    return runs, ()
