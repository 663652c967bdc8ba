"""Follow one call inside the engine, from submission to its last token, and log the steps' ends.

All sequences of a step emit at its end, so a slice of one log serves every call.
"""

from itertools import accumulate
from random import Random
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agentload.emulator.calls import EngineRequest, Run
from agentload.emulator.pool import Lease
from agentload.model.profile import Speculation

_SMALL = 10
"""Below this many steps a Python loop beats the fixed cost of numpy calls."""
_FIRST_CAPACITY = 4096
_ONES = np.ones(1 << 16, dtype=np.uint16)
_ONES.flags.writeable = False


class StepLog:
    """Hold the end instants (ps) of steps `first` to `last`; steps are numbered from 1."""

    __slots__ = ("_ends", "_first", "_powers", "last")

    def __init__(self) -> None:
        self.last = 0
        self._first = 1
        self._ends = np.empty(_FIRST_CAPACITY, dtype=np.int64)
        self._powers = _powers(256)

    def append(self, end_ps: int) -> None:
        """Add one step."""
        at = self.last + 1 - self._first
        if at >= len(self._ends):
            self._grow(at + 1)
        self._ends[at] = end_ps
        self.last += 1

    def append_run(self, start_ps: int, steps: int, first_ps: int, growth_ps: int) -> None:
        """Add *steps* steps that start at *start_ps*.

        The first lasts *first_ps*, and each next one *growth_ps* more than the one before it.
        """
        at = self.last + 1 - self._first
        if at + steps > len(self._ends):
            self._grow(at + steps)
        if steps < _SMALL:
            few = []
            lasts = first_ps
            for _ in range(steps):
                start_ps += lasts
                lasts += growth_ps
                few.append(start_ps)
            self._ends[at : at + steps] = few
        else:
            if steps > self._powers.shape[1]:
                self._powers = _powers(2 * steps)
            np.matmul(
                np.array((start_ps, first_ps, growth_ps)),
                self._powers[:, :steps],
                out=self._ends[at : at + steps],
            )
        self.last += steps

    def ends_ps(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the end instants of steps *first* to *last*, as a view that never changes."""
        return self._ends[first - self._first : last + 1 - self._first]

    def forget_before(self, first: int) -> None:
        """Drop the steps before *first*, which no call needs."""
        dropped = min(first, self.last + 1) - self._first
        if dropped <= 0:
            return
        kept = np.empty_like(self._ends)
        kept[: self.held - dropped] = self._ends[dropped : self.held]
        self._ends = kept
        self._first += dropped

    @property
    def held(self) -> int:
        """Number of steps in the log."""
        return self.last + 1 - self._first

    def _grow(self, needed: int) -> None:
        grown = np.empty(max(needed, 2 * len(self._ends)), dtype=np.int64)
        grown[: self.held] = self._ends[: self.held]
        self._ends = grown


class InFlight:
    """Hold what the engine knows about a call.

    A preempted call starts again, with what it has generated as part of its prompt.
    """

    def __init__(self, request: EngineRequest, prompt_tokens: int) -> None:
        self.request = request
        self.prompt_tokens = prompt_tokens
        self.content = request.content
        """The context; after a preemption also the tokens generated so far."""
        self.to_compute = prompt_tokens
        """Tokens that must be in the KV cache before the next token can come."""
        self.state: Literal["arriving", "waiting", "prefill", "decode", "gone"] = "arriving"
        self.lease: Lease | None = None
        self.cached = 0
        """Prompt tokens found in the prefix cache when the call was first admitted."""
        self.computed = 0
        """Tokens in the KV cache, not counting those of decoding."""
        self.first_step = 0
        """Step that emits the first token since the call was last admitted."""
        self.last_step = 0
        """Step that will emit the last token."""
        self.ticket = 0
        """Number of the call's entry in `Batch`; entries with another number are stale."""
        self.phase = 0
        """The call needs another block in each step congruent to this, modulo `block_steps`."""
        self.preemptions = 0
        self.is_silent = False
        """Whether the call was aborted: it runs to the end of its step and reports nothing."""
        self.earlier: list[tuple[NDArray[np.int64], NDArray[np.uint16]]] = []
        """Emissions before preemptions: instants in ps, and tokens."""
        self.generated_before = 0
        self.counts: NDArray[np.uint16] | None = None
        """Tokens of each emission since the last admission; None: one each."""

    @property
    def remaining(self) -> int:
        """Tokens that were not yet generated when the call was last admitted."""
        return self.request.output_tokens - self.generated_before

    def generated_since(self, step: int) -> int:
        """Return how many tokens were generated from the last admission to the end of *step*."""
        emissions = min(step, self.last_step) - self.first_step + 1
        if self.counts is None:
            return emissions
        return int(self.counts[:emissions].sum())

    def emissions(self, log: StepLog) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
        """Return instants (ps) and tokens of all emissions so far."""
        parts = [*self.earlier]
        if self.state == "decode":
            last = min(log.last, self.last_step)
            ends = log.ends_ps(self.first_step, last)
            parts.append(
                (ends, _ones(len(ends)) if self.counts is None else self.counts[: len(ends)])
            )
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint16)
        return np.concatenate([ends for ends, _ in parts]), np.concatenate(
            [counts for _, counts in parts]
        )

    def content_so_far(self, step: int) -> tuple[Run, ...]:
        """Return the context with the tokens generated up to the end of *step*."""
        generated = self.generated_before + self.generated_since(step)
        return (*self.request.content, (self.request.answer or f"\0{self.request.id}", generated))

    def put_off(self, log: StepLog) -> None:
        """Preempt the call: keep what it has emitted, but have all its tokens computed again."""
        ends = log.ends_ps(self.first_step, log.last)
        self.earlier.append(
            (ends, _ones(len(ends)) if self.counts is None else self.counts[: len(ends)])
        )
        self.content = self.content_so_far(log.last)
        self.generated_before += self.generated_since(log.last)
        self.to_compute = self.prompt_tokens + self.generated_before

    def draw_counts(self, speculation: Speculation, seed: int) -> None:
        """Draw how many tokens each emission carries: one, then 1 plus the drafts accepted."""
        rng = Random(f"drafts:{seed}:{self.request.id}:{self.preemptions}")
        counts = [1]
        left = self.remaining - 1
        while left > 0:
            kept = 0
            while kept < speculation.drafts and rng.random() < speculation.acceptance:
                kept += 1
            counts.append(min(left, 1 + kept))
            left -= counts[-1]
        self.counts = np.array(counts, dtype=np.uint16)


def _powers(steps: int) -> NDArray[np.int64]:
    """Return the factors by which start, first step and growth count in each step's end."""
    each = np.arange(1, steps + 1, dtype=np.int64)
    return np.stack((np.ones_like(each), each, each * (each - 1) // 2))


def tokens_per_step(speculation: Speculation | None) -> float:
    """Return the expected number of tokens of a decode step."""
    if speculation is None:
        return 1.0
    return 1.0 + sum(
        accumulate(
            [speculation.acceptance] * speculation.drafts, lambda kept, chance: kept * chance
        )
    )


def _ones(count: int) -> NDArray[np.uint16]:
    if count <= len(_ONES):
        return _ONES[:count]
    return np.ones(count, dtype=np.uint16)
