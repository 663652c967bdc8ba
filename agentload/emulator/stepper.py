"""When steps end: the clock of one engine, its batch, its log and its noise."""

from __future__ import annotations

from typing import NamedTuple

from agentload.emulator.batch import Batch
from agentload.emulator.inflight import tokens_per_step
from agentload.emulator.jumps import span, steps_to_reach
from agentload.emulator.noise import ONE, NoiseSource, Segment
from agentload.emulator.profile import step_time
from agentload.emulator.steplog import StepLog
from agentload.emulator.steptime import StepClock
from agentload.model.profile import ArmProfile


class Jump(NamedTuple):
    """Decode steps that can be taken at once: how many, how long the first lasts, by how much each next one is longer, when they end."""

    steps: int
    first: int
    growth: int
    end: int


class Stepper:
    """Play steps one after the other. Instants are ps since the engine's first request."""

    def __init__(self, arm: ArmProfile, *, seed: int, block_tokens: int) -> None:
        step = step_time(arm)
        self._clock = StepClock(step=step, experts=arm.model.experts, max_seqs=arm.server.max_num_seqs, speculation=arm.speculation)
        self._known_batch = step.known_to_batch
        pace = tokens_per_step(arm.speculation)
        self.block_steps = max(1, round(block_tokens / pace))
        """Steps in which a sequence fills a block."""
        self.batch = Batch(growth=max(1, round(pace)), block_steps=self.block_steps)
        self.log = StepLog()
        self.now = 0
        """The end of the last step, or when the idle engine woke."""
        self.beyond = 0
        """Steps with a larger batch than the profile's data cover."""
        self._noise = NoiseSource(arm.noise, seed=seed, name=arm.name)
        self._segment = Segment(ONE, 0)
        self._segment_steps = arm.noise.segment_steps
        self._segment_end = 0  # last step of the noise segment under way

    def host_ps(self, prompt_tokens: int) -> int:
        """Return how long a prompt is on its way to the scheduler."""
        return self._clock.host_ps(prompt_tokens)

    def wake(self, at_ps: int) -> None:
        """Go on after an idle time; what the machine does now has little to do with before."""
        self.now = at_ps
        self._segment_end = self.log.last

    def restart(self) -> None:
        """Lose the batch, and become the machine that a new start makes."""
        self.batch = Batch(growth=self.batch.growth, block_steps=self.block_steps)
        self._noise.restart()
        self._segment_end = self.log.last

    def jump(self, free_blocks: int, arrival: int | None) -> Jump:
        """Return the decode steps that can be taken at once; none if not even one has its blocks.

        A jump ends with the first call that ends, with the noise segment, before blocks run out, and at the first step end that is not
        before the next arrival.
        """
        batch, done = self.batch, self.log.last
        size = batch.size
        steps = batch.next_end() - done
        base, per_token = self._clock.base_ps[size], self._clock.per_token_ps[size]
        if self._noise.is_silent:
            first = base + per_token * batch.context
        else:
            pause = self._pause()
            base, per_token = base * self._segment.factor // ONE, per_token * self._segment.factor // ONE
            steps = 1 if pause else min(steps, self._segment_end - done)
            first = base + per_token * batch.context + pause
        growth = per_token * size * batch.growth
        if steps * size > free_blocks:
            steps = batch.steps_within(done, free_blocks, steps)
        end = self.now + steps * first + growth * (steps * (steps - 1) // 2)
        if arrival is not None and steps > 1 and end > arrival:
            steps = max(1, steps_to_reach(arrival - self.now, first, growth))
            end = self.now + span(steps, first, growth)
        return Jump(steps, first, growth, end)

    def play(self, jump: Jump) -> None:
        """Play decode steps."""
        batch = self.batch
        self.log.append_run(self.now, jump.steps, jump.first, jump.growth)
        self.now = jump.end
        batch.context += jump.steps * batch.size * batch.growth
        if batch.size > self._known_batch:
            self.beyond += jump.steps

    def mixed_end(self, tokens: int, twice_pairs: int) -> int:
        """Return when a step that starts now will end if it also holds prefill chunks."""
        duration = self._clock.mixed_ps(self.batch.size, self.batch.context, tokens, twice_pairs)
        if not self._noise.is_silent:
            pause = self._pause()
            duration = duration * self._segment.factor // ONE + pause
        return self.now + duration

    def play_mixed(self, end_ps: int, admitted: int) -> None:
        """Play a step that also held prefill chunks, with so many calls on the machine."""
        self.log.append(end_ps)
        self.now = end_ps
        self.batch.context += self.batch.size * self.batch.growth
        if admitted > self._known_batch:
            self.beyond += 1

    def _pause(self) -> int:
        """Draw the noise of the coming step if a segment begins with it; return the pause before the step."""
        if self.log.last >= self._segment_end:
            self._segment = self._noise.segment(self.now)
            self._segment_end = self.log.last + self._segment_steps
            return self._segment.pause_ps
        return self._segment.pause_ps if self._segment_end - self.log.last == self._segment_steps else 0
