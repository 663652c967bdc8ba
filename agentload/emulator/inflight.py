"""Follow one call inside the engine, from submission to its last token."""

from itertools import accumulate
from random import Random
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agentload.emulator.calls import EngineRequest, Runs
from agentload.emulator.pool import Lease
from agentload.emulator.steplog import Stay, StepLog
from agentload.model.profile import Speculation


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
        self.earlier: tuple[Stay, ...] = ()
        """Stays in the batch that preemptions ended."""
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

    def stays(self, log: StepLog) -> tuple[Stay, ...]:
        """Return the call's stays in the batch, which hold its emissions so far."""
        if self.state != "decode":
            return self.earlier
        last = min(log.last, self.last_step)
        return (*self.earlier, Stay(log, self.first_step, last, self.counts))

    def content_so_far(self, step: int) -> Runs:
        """Return the context with the tokens generated up to the end of *step*."""
        generated = self.generated_before + self.generated_since(step)
        return (*self.request.content, (self.request.answer or f"\0{self.request.id}", generated))

    def put_off(self, log: StepLog) -> None:
        """Preempt the call: keep what it has emitted, but have all its tokens computed again."""
        self.earlier = self.stays(log)
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


def tokens_per_step(speculation: Speculation | None) -> float:
    """Return the expected number of tokens of a decode step."""
    if speculation is None:
        return 1.0
    return 1.0 + sum(
        accumulate(
            [speculation.acceptance] * speculation.drafts, lambda kept, chance: kept * chance
        )
    )
