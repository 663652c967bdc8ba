"""Lay out the calls that measure an arm's step times.

Prefixes of a few lengths are put into the cache; then batches of a few sizes decode, each sequence
behind its own prefix, and prompts join some of the batches.
One block is the whole grid, once, a point at a time: every turn waits for all turns of the
point before it. Prefixes of a length are sent one after the other, so that each prefills alone;
then the first of them, as many as the batch, continue together, each after its own prefix, with a
few new tokens. No two sequences share a prefix: a kernel may read a shared one once for all.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from agentload.errors import PlanError
from agentload.model.apart import STEP_TIMES
from agentload.model.record import Record
from agentload.model.trace import Header, Segment, Session, Trace, Turn, TurnRef

CONTEXTS: Final = (1024, 8192, 32768, 100_000)
CACHED: Final = (0, 16384, 65536)
ADDED: Final = 16
"""New tokens of a sequence that continues.

With too few, the last block of a prompt that is cached to its end would be computed again.
"""
FILLED: Final = 0.8
"""Share of the pool that a point may take; beyond, the next point would evict blocks."""
LEAD_S: Final = 0.3
"""How long a batch decodes before a prompt joins it."""
SHORTEST: Final = 2
"""Tokens of an answer of which only the first counts."""


class Bounds(Record):
    """Hold the limits within which every arm's server can be measured."""

    window: int
    """The most tokens of a prompt with its answer."""
    pool_tokens: float
    sequences: int
    """The most sequences at once."""
    longest: int
    """Longest context of the user's own sessions; longer ones need not be measured."""
    is_small: bool = False
    """Whether the server has no GPU: its steps take a hundred times as long, so play few."""


class StepGrid(Record):
    """Hold the points that are played."""

    decode: tuple[tuple[int, int], ...]
    """Pairs of context and batch."""
    prefill: tuple[tuple[int, int], ...]
    """Pairs of cached and new tokens."""
    mixed: tuple[tuple[int, int, int], ...]
    """Context and batch that decode, and the new tokens of the prompt that joins them."""
    steps: int
    """Steps that each batch decodes."""


class _Sizes(Record):
    """Sizes of the points that are tried; those outside a server's bounds are left out."""

    contexts: tuple[int, ...]
    batches: tuple[int, ...]
    """Batch sizes at the shortest context."""
    few: tuple[int, ...]
    """Batch sizes at other contexts."""
    new: tuple[int, ...]
    cached: tuple[int, ...]
    mixed: tuple[int, ...]
    """Batch sizes that a prompt joins."""
    steps: int

    def tokens(self, context: int, batch: int) -> int:
        """Return how many tokens a batch holds when it has decoded."""
        return batch * (context + self.steps + ADDED)


_OF_A_GPU: Final = _Sizes(
    contexts=CONTEXTS,
    # A captured graph is padded most at 9 and 17.
    batches=(1, 2, 4, 8, 9, 16, 17, 32, 64),
    # Enough to tell context, batch and their product apart.
    few=(1, 2, 8, 32),
    new=(16, 512, 2048, 8192),
    cached=CACHED,
    mixed=(8, 32),
    steps=100,
)
_WITHOUT_A_GPU: Final = _Sizes(
    contexts=(256, 1024, 4096),
    batches=(1, 2, 4),
    few=(1, 2, 4),
    new=(16, 256, 1024, 4096),
    cached=(0, 1024),
    mixed=(4,),
    steps=40,
)


def grid(bounds: Bounds) -> StepGrid:
    """Return the points inside the bounds.

    Raises PlanError where the bounds leave no room for two lengths.
    """
    sizes = _WITHOUT_A_GPU if bounds.is_small else _OF_A_GPU
    room = min(bounds.window - sizes.steps - ADDED, max(bounds.longest, CONTEXTS[1]))
    contexts = [context for context in sizes.contexts if context <= room]
    decode = list(_decode_points(sizes, bounds, contexts))
    if len({context for context, _ in decode}) < 2:
        raise PlanError(
            f"a window of {bounds.window:,} tokens and a pool of {bounds.pool_tokens:,.0f} "
            "leave no room for step times at two lengths",
            hint="a longer max_model_len",
        )
    mixed_context = contexts[min(1, len(contexts) - 1)]
    fitting = [new for new in sizes.new if new + SHORTEST <= bounds.window]
    joining = max(fitting, default=sizes.new[0])
    filled = FILLED * bounds.pool_tokens - joining
    mixed = []
    for context, batch in decode:
        is_mixed = context == mixed_context and batch in sizes.mixed
        if is_mixed and sizes.tokens(context, batch) <= filled:
            mixed.append((context, batch, joining))
    return StepGrid(
        decode=tuple(decode),
        prefill=tuple(_prefill_points(sizes, bounds, room)),
        mixed=tuple(mixed),
        steps=sizes.steps,
    )


def _decode_points(
    sizes: _Sizes, bounds: Bounds, contexts: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Yield the pairs of context and batch inside the bounds."""
    filled = FILLED * bounds.pool_tokens
    for context in contexts:
        batches = sizes.batches if context == contexts[0] else sizes.few
        for batch in batches:
            if batch <= bounds.sequences and sizes.tokens(context, batch) <= filled:
                yield context, batch


def _prefill_points(sizes: _Sizes, bounds: Bounds, room: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs of cached and new tokens inside the bounds."""
    longest = min(bounds.window - SHORTEST, round(FILLED * bounds.pool_tokens))
    for cached in sizes.cached:
        for new in sizes.new:
            if cached + new <= longest and cached <= max(room, CACHED[1]):
                yield cached, new


def step_times(found: StepGrid, *, seed: int) -> Trace:
    """Return the trace that plays a grid: one block, a point at a time."""
    script = _Script()
    joining = {(context, batch): tokens for context, batch, tokens in found.mixed}
    for context, batches in _by_first(found.decode).items():
        names = [f"decode-{context}-{number}" for number in range(max(batches))]
        for name in names:
            script.play([name], context, SHORTEST)
        for batch in batches:
            script.play(names[:batch], ADDED, found.steps)
        for batch in batches:
            if (context, batch) in joining:
                before = script.last
                script.play(names[:batch], ADDED, found.steps)
                script.join(f"mixed-{context}-{batch}", joining[context, batch], before)
    for cached, new in _by_first(found.prefill).items():
        if cached:
            script.play([f"prefill-{cached}"], cached, SHORTEST)
        for each in new:
            name = f"prefill-{cached}" if cached else f"prefill-0-{each}"
            script.play([name], each, SHORTEST)
    sessions = tuple(
        Session(session=name, workload=STEP_TIMES, start_s=0.0, turns=tuple(own))
        for name, own in script.turns.items()
    )
    return Trace(header=Header(name=STEP_TIMES, seed=seed), sessions=sessions)


class _Script:
    """Write the turns of the sessions that play a grid."""

    def __init__(self) -> None:
        self.turns: dict[str, list[Turn]] = defaultdict(list)
        self.last: tuple[TurnRef, ...] = ()
        """Turns that the next point waits for."""

    def play(self, names: Sequence[str], tokens: int, output: int) -> None:
        """Let sessions send *tokens* new tokens together, after everything sent before them."""
        after = self.last
        self.last = tuple(self._add(name, tokens, output, after=after) for name in names)

    def join(self, name: str, tokens: int, after: tuple[TurnRef, ...]) -> None:
        """Let a prompt join the batch that started after the turns *after*."""
        joined = self._add(name, tokens, SHORTEST, after=after, waits_s=LEAD_S)
        self.last = (*self.last, joined)

    def _add(
        self,
        name: str,
        tokens: int,
        output: int,
        *,
        after: tuple[TurnRef, ...],
        waits_s: float = 0.0,
    ) -> TurnRef:
        own = self.turns[name]
        ref = TurnRef(session=name, turn=len(own))
        new = Segment(role="user", tokens=tokens, key=f"{name}.{len(own)}")
        own.append(
            Turn(
                add=(new,),
                output=output,
                after=after,
                keep=1 if own else None,
                wait="schedule" if waits_s else None,
                wait_s=waits_s,
            )
        )
        return ref


def seconds(
    found: StepGrid, *, decode_s: Callable[[int, int], float], prefill_s: Callable[[int], float]
) -> float:
    """Return about how long one play of a grid takes.

    *decode_s* is the time of a step by batch and context, *prefill_s* that of a prompt.
    """
    filled_s = sum(
        prefill_s(context) * max(batches) for context, batches in _by_first(found.decode).items()
    )
    cached_s = sum(map(prefill_s, _by_first(found.prefill)))
    new_s = sum(prefill_s(cached + new) - prefill_s(cached) for cached, new in found.prefill)
    joining_s = sum(prefill_s(tokens) for *_, tokens in found.mixed)
    decoding = [*found.decode, *((context, batch) for context, batch, _ in found.mixed)]
    steps_s = found.steps * sum(decode_s(batch, context) for context, batch in decoding)
    return filled_s + cached_s + new_s + joining_s + steps_s


def _by_first(pairs: tuple[tuple[int, int], ...]) -> dict[int, list[int]]:
    """Group the second numbers of pairs by the first."""
    out: dict[int, list[int]] = {}
    for first, second in pairs:
        out.setdefault(first, []).append(second)
    return out
