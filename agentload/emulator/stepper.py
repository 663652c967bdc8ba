"""Compute when steps end, from an engine's clock, its batch, its log and its noise.

A jump over many decode steps costs no more than one step: the batch knows how many calls decode,
with how much context, which ends when and which needs a new block in which step; and steps that
each last longer than the one before by the same amount are summed in whole picoseconds.
"""

import heapq
from math import isqrt

from agentload.emulator.calls import PS_PER_NS
from agentload.emulator.inflight import InFlight, tokens_per_step
from agentload.emulator.profile import step_time
from agentload.emulator.steplog import StepLog
from agentload.emulator.steptime import ONE, NoiseSource, StepClock, StepNoise
from agentload.model.profile import ArmProfile

NEVER = 1 << 62


class Axis:
    """Convert instants between the shell's axis (ns) and the engine's (ps since its start)."""

    __slots__ = ("is_started", "origin_ns")

    def __init__(self) -> None:
        self.origin_ns = 0
        self.is_started = False

    def start(self, at_ns: int) -> None:
        """Start the engine's axis at *at_ns*, unless it has started."""
        if not self.is_started:
            self.origin_ns = at_ns
            self.is_started = True

    def ps(self, at_ns: int) -> int:
        """Return an instant of the shell on the engine's axis."""
        return (at_ns - self.origin_ns) * PS_PER_NS

    def ns(self, at_ps: int) -> int:
        """Return an instant of the engine on the shell's axis, rounded up.

        A shell that advances to the result gets what happens at *at_ps*.
        """
        return self.origin_ns - (-at_ps // PS_PER_NS)

    def up(self, at_ps: int) -> int:
        """Round an instant of the engine up to a whole ns, at which the shell sees it."""
        return -(-at_ps // PS_PER_NS) * PS_PER_NS


class Batch:
    """Hold the decoding calls so that a jump over many steps costs no more than one step."""

    def __init__(self, *, growth: int, block_steps: int) -> None:
        self.growth = growth
        """Tokens that a sequence's context gains in a step."""
        self.size = 0
        self.context = 0
        """Cached tokens of all sequences."""
        self.first_end = NEVER
        """Step with which the next call ends, or an earlier one if that call has left."""
        # Heap by last step, with stale entries of calls that have left
        self._ends: list[tuple[int, int, InFlight]] = []
        self._serial = 0
        # number of sequences by the step, modulo, in which they need a block
        self._phases = [0] * block_steps

    def join(self, call: InFlight, *, room: int) -> None:
        """Add a call whose first token leaves with step `call.first_step`.

        Its last block has room for *room* more steps.
        """
        self.size += 1
        self.context += call.computed
        self._serial += 1
        call.ticket = self._serial
        heapq.heappush(self._ends, (call.last_step, call.ticket, call))
        self.first_end = min(self.first_end, call.last_step)
        call.phase = (call.first_step + 1 + room) % len(self._phases)
        self._phases[call.phase] += 1

    def leave(self, call: InFlight, step: int) -> int:
        """Remove a call after *step*; return how many blocks it has taken since it joined."""
        steps = step - call.first_step
        self.size -= 1
        self.context -= call.computed + steps * self.growth
        self._phases[call.phase] -= 1
        period = len(self._phases)
        return (step - call.phase) // period - (call.first_step - call.phase) // period

    def ended(self, step: int) -> list[InFlight]:
        """Take from the heap the calls whose last token has left; they are still to leave."""
        done = []
        ends = self._ends
        while ends:
            last, ticket, call = ends[0]
            is_listed = call.state == "decode" and call.ticket == ticket
            if is_listed and last > step:
                break
            heapq.heappop(ends)
            if is_listed:
                done.append(call)
        self.first_end = ends[0][0] if ends else NEVER
        return done

    def next_end(self) -> int:
        """Return the step with which the next call ends."""
        while True:
            last, ticket, call = self._ends[0]
            if call.state == "decode" and call.ticket == ticket:
                return last
            heapq.heappop(self._ends)

    def blocks(self, after: int, steps: int) -> int:
        """Return how many blocks are needed in the *steps* steps after step *after*."""
        phases = self._phases
        if steps == 1:
            return phases[(after + 1) % len(phases)]
        period = len(phases)
        cycles, left = divmod(steps, period)
        start = (after + 1) % period
        end = start + left
        return (
            cycles * self.size
            + sum(phases[start:end])
            + (sum(phases[: end - period]) if end > period else 0)
        )

    def steps_within(self, after: int, free: int, most: int) -> int:
        """Return for how many of the next *most* steps *free* blocks suffice."""
        period = len(self._phases)
        if (most // period + 1) * self.size <= free or self.blocks(after, most) <= free:
            return most
        cycles, left = divmod(free, self.size)
        steps = cycles * period
        while True:
            left -= self._phases[(after + steps + 1) % period]
            if left < 0:
                return min(steps, most)
            steps += 1


def span(steps: int, first: int, growth: int) -> int:
    """Return how long *steps* steps last in all.

    The first lasts *first*, and each next one *growth* more than the one before it.
    """
    return steps * first + growth * (steps * (steps - 1) // 2)


def steps_to_reach(wait: int, first: int, growth: int) -> int:
    """Return the least number of steps that last at least *wait*."""
    if not growth:
        return -(-wait // first)
    linear = 2 * first - growth
    steps = (isqrt(linear * linear + 8 * growth * max(wait, 0)) - linear) // (2 * growth)
    while span(steps, first, growth) < wait:
        steps += 1
    return steps


def steps_within(wait: int, first: int, growth: int) -> int:
    """Return the largest number of steps that last at most *wait*."""
    steps = steps_to_reach(wait, first, growth)
    if span(steps, first, growth) <= wait:
        return steps
    return steps - 1


class Jump:
    """Hold decode steps that can be taken at once.

    How many, how long the first lasts, how much longer each next one lasts, and when they end.
    """

    __slots__ = ("end", "first", "growth", "steps")

    def __init__(self, steps: int, first: int, growth: int, end: int) -> None:
        self.steps = steps
        self.first = first
        self.growth = growth
        self.end = end


class Stepper:
    """Play steps one after the other; instants are ps since the engine's first request."""

    def __init__(self, arm: ArmProfile, *, seed: int, block_tokens: int) -> None:
        step = step_time(arm)
        self._clock = StepClock(
            step=step,
            experts=arm.model.experts,
            max_seqs=arm.server.max_num_seqs,
            speculation=arm.speculation,
        )
        pace = tokens_per_step(arm.speculation)
        self.block_steps = max(1, round(block_tokens / pace))
        """Number of steps in which a sequence fills a block."""
        self.batch = Batch(growth=max(1, round(pace)), block_steps=self.block_steps)
        self.log = StepLog()
        self.now = 0
        """End of the last step, or when the idle engine woke."""
        self._noise = NoiseSource(arm.noise, seed=seed, name=arm.name)
        self._segment = StepNoise(ONE, 0)
        self._segment_steps = arm.noise.segment_steps
        self._segment_end = 0  # last step of the current noise segment
        self._pause_ps = 0  # pause before the coming step, if a segment starts with it

    def host_ps(self, prompt_tokens: int) -> int:
        """Return how long a prompt takes to reach the scheduler, in ps."""
        return self._clock.host_ps(prompt_tokens)

    def wake(self, at_ps: int) -> None:
        """Continue after an idle time, with a new noise segment."""
        self.now = at_ps
        self._segment_end = self.log.last

    def restart(self) -> None:
        """Lose the batch, and draw the machine's character again, as a new start does."""
        self.batch = Batch(growth=self.batch.growth, block_steps=self.block_steps)
        self._noise.restart()
        self._segment_end = self.log.last

    def jump(self, free_blocks: int, arrival: int | None) -> Jump:
        """Return the decode steps that can be taken at once; none if one lacks its blocks.

        A jump ends with the first call that ends, with the noise segment, before
        blocks run out, and at the first step end that is not before the next arrival.
        """
        batch = self.batch
        done = self.log.last
        size = batch.size
        steps = batch.next_end() - done
        base = self._clock.base_ps[size]
        per_token = self._clock.per_token_ps[size]
        if self._noise.is_silent:
            first = base + per_token * batch.context
        else:
            if done >= self._segment_end:
                self._draw_segment()
            pause = self._pause_ps
            base = base * self._segment.factor // ONE
            per_token = per_token * self._segment.factor // ONE
            if pause:
                steps = 1
            elif self._segment_end - done < steps:
                steps = self._segment_end - done
            first = base + per_token * batch.context + pause
        growth = per_token * size * batch.growth
        if steps * size > free_blocks:
            steps = batch.steps_within(done, free_blocks, steps)
        jump = Jump(steps, first, growth, self.now + span(steps, first, growth))
        return jump if arrival is None else self.cut(jump, arrival)

    def cut(self, jump: Jump, arrival: int) -> Jump:
        """Return the steps of a jump up to the first one that ends no sooner than an arrival."""
        if jump.steps < 2 or jump.end <= arrival:
            return jump
        steps = max(1, steps_to_reach(arrival - self.now, jump.first, jump.growth))
        end = self.now + span(steps, jump.first, jump.growth)
        return Jump(steps, jump.first, jump.growth, end)

    def play(self, jump: Jump) -> None:
        """Play the decode steps of a jump."""
        batch = self.batch
        self.log.append_run(self.now, jump.steps, jump.first, jump.growth)
        self.now = jump.end
        self._pause_ps = 0
        batch.context += jump.steps * batch.size * batch.growth

    def mixed_end(self, tokens: int, twice_pairs: int, extra_ps: int = 0) -> int:
        """Return when a step that starts now will end if it also holds prefill chunks.

        *extra_ps* is how long it encodes images in them and reads blocks of a second tier.
        """
        duration = self._clock.mixed_ps(self.batch.size, self.batch.context, tokens, twice_pairs)
        duration += extra_ps
        if not self._noise.is_silent:
            if self.log.last >= self._segment_end:
                self._draw_segment()
            duration = duration * self._segment.factor // ONE + self._pause_ps
        return self.now + duration

    def play_mixed(self, end_ps: int) -> None:
        """Play a step that also held prefill chunks."""
        self.log.append(end_ps)
        self.now = end_ps
        self._pause_ps = 0
        self.batch.context += self.batch.size * self.batch.growth

    def _draw_segment(self) -> None:
        """Draw the noise of the coming steps."""
        self._segment = self._noise.segment(self.now)
        self._segment_end = self.log.last + self._segment_steps
        self._pause_ps = self._segment.pause_ps
