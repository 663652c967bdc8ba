"""Lay out the calls that measure an arm's step times.

Prefixes are cached and then decoded at chosen batch sizes, with prompts that join them.
One block is the whole grid, once, a point at a time: every turn waits for all turns of the
point before it. Prefixes of a length are sent one after the other, so that each prefills alone;
then the first of them, as many as the batch, continue together, each after its own prefix, with a
few new tokens. No two sequences share a prefix: a kernel may read a shared one once for all.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agentload.errors import PlanError
from agentload.model.apart import STEP_TIMES
from agentload.model.trace import Header, Segment, Session, Trace, Turn, TurnRef

CONTEXTS: Final = (1024, 8192, 32768, 100_000)
BATCHES: Final = (1, 2, 4, 8, 9, 16, 17, 32, 64)
"""Batch sizes at the shortest context; a captured graph is padded most at 9 and 17."""
FEW: Final = (1, 2, 8, 32)
"""Batch sizes at other contexts: enough to tell context, batch and their product apart."""
NEW: Final = (16, 512, 2048, 8192)
CACHED: Final = (0, 16384, 65536)
MIXED: Final = (8, 32)
STEPS: Final = 100
SMALL_CONTEXTS: Final = (256, 1024, 4096)
SMALL_BATCHES: Final = (1, 2, 4)
SMALL_NEW: Final = (16, 256, 1024, 4096)
SMALL_CACHED: Final = (0, 1024)
SMALL_STEPS: Final = 40
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGrid:
    """Hold the points that are played."""

    decode: tuple[tuple[int, int], ...]
    """Pairs of context and batch."""
    prefill: tuple[tuple[int, int], ...]
    """Pairs of cached and new tokens."""
    mixed: tuple[tuple[int, int, int], ...]
    """Context and batch that decode, and the new tokens of the prompt that joins them."""
    steps: int


def grid(bounds: Bounds) -> StepGrid:
    """Return the points inside the bounds.

    Raises PlanError where the bounds leave no room for two lengths.
    """
    small = bounds.is_small
    steps = SMALL_STEPS if small else STEPS
    room = min(bounds.window - steps - ADDED, max(bounds.longest, CONTEXTS[1]))
    contexts = [each for each in (SMALL_CONTEXTS if small else CONTEXTS) if each <= room]
    decode = [
        (context, batch)
        for number, context in enumerate(contexts)
        for batch in (SMALL_BATCHES if small else FEW if number else BATCHES)
        if batch <= bounds.sequences
        and batch * (context + steps + ADDED) <= FILLED * bounds.pool_tokens
    ]
    if len({context for context, _ in decode}) < 2:
        raise PlanError(
            f"a window of {bounds.window:,} tokens and a pool of {bounds.pool_tokens:,.0f} "
            "leave no room for step times at two lengths",
            hint="a longer max_model_len",
        )
    longest = min(bounds.window - SHORTEST, round(FILLED * bounds.pool_tokens))
    new = SMALL_NEW if small else NEW
    joins = next((each for each in reversed(new) if each + SHORTEST <= bounds.window), new[0])
    return StepGrid(
        decode=tuple(decode),
        prefill=tuple(
            (cached, each)
            for cached in (SMALL_CACHED if small else CACHED)
            for each in new
            if cached + each <= longest and cached <= max(room, CACHED[1])
        ),
        mixed=tuple(
            (context, batch, joins)
            for context, batch in decode
            if context == contexts[min(1, len(contexts) - 1)]
            and batch in (SMALL_BATCHES[-1:] if small else MIXED)
            and batch * (context + steps + ADDED) + joins <= FILLED * bounds.pool_tokens
        ),
        steps=steps,
    )


def step_times(found: StepGrid, *, seed: int) -> Trace:
    """Return the trace that plays a grid: one block, a point at a time."""
    turns: dict[str, list[Turn]] = defaultdict(list)
    last: tuple[TurnRef, ...] = ()

    def play(
        names: list[str],
        tokens: int,
        output: int,
        *,
        waits_s: float = 0.0,
        beside: tuple[TurnRef, ...] | None = None,
    ) -> None:
        """Add a turn of *tokens* new tokens to each of the sessions, sent together.

        They wait for everything sent before them, or only for the turns in *beside*.
        """
        nonlocal last
        sent = []
        for name in names:
            own = turns[name]
            add = (Segment(role="user", tokens=tokens, key=f"{name}.{len(own)}"),)
            after = last if beside is None else beside
            sent.append(TurnRef(session=name, turn=len(own)))
            own.append(
                Turn(
                    add=add,
                    output=output,
                    after=after,
                    keep=1 if own else None,
                    wait="schedule" if waits_s else None,
                    wait_s=waits_s,
                )
            )
        last = tuple(sent) if beside is None else (*last, *sent)

    mixed = {(context, batch): joins for context, batch, joins in found.mixed}
    for context, batches in _by(found.decode).items():
        names = [f"decode-{context}-{number}" for number in range(max(batches))]
        for name in names:
            play([name], context, SHORTEST)
        for batch in batches:
            play(names[:batch], ADDED, found.steps)
        for batch in batches:
            if (joins := mixed.get((context, batch))) is not None:
                before = last
                play(names[:batch], ADDED, found.steps)
                play([f"mixed-{context}-{batch}"], joins, SHORTEST, waits_s=LEAD_S, beside=before)
    for cached, new in _by(found.prefill).items():
        if cached:
            play([f"prefill-{cached}"], cached, SHORTEST)
        for each in new:
            play([f"prefill-{cached}" if cached else f"prefill-0-{each}"], each, SHORTEST)
    sessions = tuple(
        Session(session=name, workload=STEP_TIMES, start_s=0.0, turns=tuple(own))
        for name, own in turns.items()
    )
    return Trace(header=Header(name=STEP_TIMES, seed=seed), sessions=sessions)


def seconds(
    found: StepGrid, *, decode_s: Callable[[int, int], float], prefill_s: Callable[[int], float]
) -> float:
    """Return about how long one play of a grid takes.

    *decode_s* is the time of a step by batch and context, *prefill_s* that of a prompt.
    """
    filled_s = sum(
        prefill_s(context) * max(batches) for context, batches in _by(found.decode).items()
    )
    cached_s = sum(prefill_s(cached) for cached in _by(found.prefill))
    new_s = sum(prefill_s(cached + new) - prefill_s(cached) for cached, new in found.prefill)
    joining_s = sum(prefill_s(joins) for *_, joins in found.mixed)
    decoding = [*found.decode, *((context, batch) for context, batch, _ in found.mixed)]
    steps_s = found.steps * sum(decode_s(batch, context) for context, batch in decoding)
    return filled_s + cached_s + new_s + joining_s + steps_s


def _by(pairs: tuple[tuple[int, int], ...]) -> dict[int, list[int]]:
    out: dict[int, list[int]] = {}
    for first, second in pairs:
        out.setdefault(first, []).append(second)
    return out
