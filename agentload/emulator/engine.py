"""A continuous-batching engine in virtual time: pure, exact, and as fast as its events are rare.

Strategy: between two events (a call finishes, a prompt becomes visible) the batch is constant and step k lasts T0 + k*d, so K steps
are one jump in closed form. Steps that hold prefill chunks are played one by one. A jump is cut wherever the shell asks for an instant, at
the end of a step, and cutting never changes what follows: all arithmetic is in whole picoseconds.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from math import isqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agentload.emulator.calls import Finished, FirstToken, Gauges, Happening, Rejected, Request
from agentload.emulator.profile import step_time
from agentload.emulator.steplog import StepLog
from agentload.emulator.steptime import PS_PER_NS, StepClock
from agentload.model.profile import ArmProfile

TRIM_STEPS = 1 << 17
"""Steps held in the log before those that no call in flight needs are dropped."""


@dataclass(slots=True, eq=False)
class _Call:
    """One call inside the engine."""

    request: Request
    prompt_tokens: int
    cached: int = 0
    computed: int = 0
    """Prompt tokens whose KV is there."""
    first_step: int = 0
    """Step that emitted the first token; 0 before."""
    last_step: int = 0
    """Step that will emit the last token."""
    state: Literal["queued", "prefill", "decode", "gone"] = "queued"
    preemptions: int = 0


class Engine:
    """Play calls on one arm. `seed` fixes its noise."""

    def __init__(self, arm: ArmProfile, *, seed: int = 0) -> None:
        server = arm.server
        self.arm = arm
        self.seed = seed
        self._clock = StepClock(step=step_time(arm), experts=arm.model.experts, max_seqs=server.max_num_seqs, speculation=arm.speculation)
        self._known_batch = step_time(arm).known_to_batch
        self._origin_ns: int | None = None
        self._now = 0  # ps since the origin: the end of the last step, or when the idle engine woke
        self._log = StepLog()
        self._calls: dict[str, _Call] = {}
        self._external: list[tuple[int, int, _Call]] = []  # heap: prompts that become visible, aborts
        self._serial = 0
        self._waiting: deque[_Call] = deque()
        self._prefilling: deque[_Call] = deque()
        self._finishing: list[tuple[int, int, _Call]] = []  # heap by the step of the last token
        self._decoding = 0
        self._context = 0  # cached tokens of all decoding sequences
        self._mixed: tuple[int, int] | None = None  # end of the mixed step under way, its start
        self._out: list[Happening] = []
        self._beyond = 0
        self._prompt_done = 0
        self._generated_done = 0

    # The shell's side.

    def submit(self, request: Request, at_ns: int) -> None:
        """Send a call at an instant that the engine has been advanced to."""
        if self._origin_ns is None:
            self._origin_ns = at_ns
        prompt = sum(tokens for _, tokens in request.content)
        limit = self.arm.server.max_model_len
        if prompt + request.output_tokens > limit:
            self._out.append(Rejected(request.id, at_ns, f"{prompt} prompt and {request.output_tokens} output tokens exceed {limit}"))
            return
        call = _Call(request, prompt)
        self._calls[request.id] = call
        self._push(self._ps(at_ns) + self._clock.host_ps(prompt), call)

    def abort(self, id: str, at_ns: int) -> None:
        """Forget a call; its sequence leaves at the end of the running step. Nothing comes for it any more."""
        call = self._calls.pop(id, None)
        if call is not None:
            if call.state == "queued" and call not in self._waiting:
                call.state = "gone"
                return
            self._push(self._ps(at_ns), call)

    def advance(self, until_ns: int) -> list[Happening]:
        """Play everything that happens at or before an instant, in order."""
        if self._origin_ns is None:
            return self._drain()
        until = self._ps(until_ns)
        while self._step(until):
            pass
        if self._log.held > TRIM_STEPS:
            self._log.forget_before(min((call.first_step for _, _, call in self._finishing), default=self._log.last))
        return self._drain()

    def next_ns(self) -> int | None:
        """Return an instant before which nothing happens unless something is submitted; None when idle."""
        if self._out:
            return self._ns(self._now)
        if self._mixed:
            return self._ns(self._mixed[0])
        if self._decoding:
            steps, first, growth = self._jump()
            return self._ns(self._now + _span(steps, first, growth))
        return self._ns(self._external[0][0]) if self._external else None

    def next_step_ns(self) -> int | None:
        """Return the end of the running step; None when idle."""
        if self._mixed:
            return self._ns(self._mixed[0])
        if self._decoding:
            return self._ns(self._now + self._jump()[1])
        return self._ns(self._external[0][0]) if self._external else None

    def emitted(self, id: str) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
        """Return the instants (ns) and token counts that a call in flight has emitted so far."""
        call = self._calls.get(id)
        if call is None or not call.first_step:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint16)
        return self._emissions(call, min(self._log.last, call.last_step))

    def gauges(self) -> Gauges:
        """Return the state and the counters after the last advance."""
        emitted = sum(min(self._log.last, call.last_step) - call.first_step + 1 for _, _, call in self._finishing if call.state == "decode")
        return Gauges(
            running=self._decoding + len(self._prefilling),
            waiting=len(self._waiting),
            kv_usage=0.0,
            preemptions=0,
            prefix_queries=self._prompt_done,
            prefix_hits=0,
            prompt_tokens=self._prompt_done,
            prompt_tokens_cached=0,
            prompt_tokens_computed=self._prompt_done,
            generation_tokens=self._generated_done + emitted,
            steps=self._log.last,
            steps_beyond_known=self._beyond,
        )

    # One event of the scheduler.

    def _step(self, until: int) -> bool:
        """Play the next step, jump or wake-up if it ends by *until*."""
        if self._mixed:
            if self._mixed[0] > until:
                return False
            self._finish_mixed()
            return True
        self._admit_visible()
        if self._prefilling or (self._waiting and self._decoding < self.arm.server.max_num_seqs):
            self._start_mixed()
            return True
        if self._decoding:
            return self._decode(until)
        if self._external and self._external[0][0] <= until:
            self._now = max(self._now, self._external[0][0])
            return True
        return False

    def _admit_visible(self) -> None:
        while self._external and self._external[0][0] <= self._now:
            _, _, call = heapq.heappop(self._external)
            if call.state == "gone":
                continue
            if call.request.id in self._calls:
                self._waiting.append(call)
            else:
                self._drop(call)

    def _drop(self, call: _Call) -> None:
        if call.state == "queued":
            self._waiting.remove(call)
        elif call.state == "prefill":
            self._prefilling.remove(call)
        elif call.state == "decode":
            self._decoding -= 1
            self._context -= call.prompt_tokens + self._log.last - call.first_step
            self._generated_done += self._log.last - call.first_step + 1
        call.state = "gone"
        while self._finishing and self._finishing[0][2].state == "gone":
            heapq.heappop(self._finishing)

    def _decode(self, until: int) -> bool:
        steps, first, growth = self._jump()
        if self._now + first > until:
            return False
        if self._now + _span(steps, first, growth) > until:
            steps = _steps_within(until - self._now, first, growth)
        self._log.append_run(self._now, steps, first, growth)
        self._now += _span(steps, first, growth)
        self._context += steps * self._decoding
        if self._decoding > self._known_batch:
            self._beyond += steps
        self._finish_due()
        return True

    def _jump(self) -> tuple[int, int, int]:
        """Return how many decode steps may be taken at once, how long the first lasts and by how much each next one is longer."""
        batch = self._decoding
        per_token = self._clock.per_token_ps[batch]
        first = self._clock.base_ps[batch] + per_token * self._context
        growth = per_token * batch
        steps = self._finishing[0][0] - self._log.last
        if self._external and steps > 1:
            wait = self._external[0][0] - self._now
            if _span(steps, first, growth) > wait:
                steps = max(1, _steps_to_reach(wait, first, growth))
        return steps, first, growth

    def _start_mixed(self) -> None:
        batch = self._decoding
        room = self.arm.server.max_num_batched_tokens - batch
        total, twice_pairs = 0, 0
        for call in self._prefilling:
            chunk = min(room - total, call.prompt_tokens - call.computed)
            if chunk <= 0:
                break
            twice_pairs += chunk * (2 * call.computed + chunk)
            call.computed += chunk
            total += chunk
        while self._waiting and total < room and batch + len(self._prefilling) < self.arm.server.max_num_seqs:
            call = self._waiting.popleft()
            call.state = "prefill"
            chunk = min(room - total, call.prompt_tokens)
            twice_pairs += chunk * chunk
            call.computed = chunk
            total += chunk
            self._prefilling.append(call)
        self._mixed = (self._now + self._clock.mixed_ps(batch, self._context, total, twice_pairs), self._now)

    def _finish_mixed(self) -> None:
        assert self._mixed
        self._now, self._mixed = self._mixed[0], None
        self._log.append(self._now)
        self._context += self._decoding
        if self._decoding + len(self._prefilling) > self._known_batch:
            self._beyond += 1
        self._finish_due()
        while self._prefilling and self._prefilling[0].computed == self._prefilling[0].prompt_tokens:
            call = self._prefilling.popleft()
            call.state = "decode"
            call.first_step = self._log.last
            call.last_step = self._log.last + call.request.output_tokens - 1
            self._prompt_done += call.prompt_tokens
            self._out.append(FirstToken(call.request.id, self._ns(self._now), call.cached))
            self._decoding += 1
            self._context += call.prompt_tokens
            self._serial += 1
            heapq.heappush(self._finishing, (call.last_step, self._serial, call))
            if call.request.output_tokens == 1:
                self._finish_due()

    def _finish_due(self) -> None:
        while self._finishing and (self._finishing[0][0] <= self._log.last or self._finishing[0][2].state == "gone"):
            _, _, call = heapq.heappop(self._finishing)
            if call.state == "gone":
                continue
            self._decoding -= 1
            self._context -= call.prompt_tokens + self._log.last - call.first_step
            self._generated_done += call.request.output_tokens
            call.state = "gone"
            self._calls.pop(call.request.id, None)
            stamps, counts = self._emissions(call, call.last_step)
            self._out.append(
                Finished(call.request.id, self._ns(self._now), stamps, counts, call.prompt_tokens, call.cached, call.preemptions)
            )

    # Small change.

    def _emissions(self, call: _Call, last: int) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
        assert self._origin_ns is not None
        ends = self._log.ends_ps(call.first_step, last)
        stamps = -(-ends // PS_PER_NS) + self._origin_ns
        return stamps, np.ones(len(stamps), dtype=np.uint16)

    def _drain(self) -> list[Happening]:
        out, self._out = self._out, []
        return out

    def _push(self, at_ps: int, call: _Call) -> None:
        self._serial += 1
        heapq.heappush(self._external, (at_ps, self._serial, call))

    def _ps(self, at_ns: int) -> int:
        assert self._origin_ns is not None
        return (at_ns - self._origin_ns) * PS_PER_NS

    def _ns(self, at_ps: int) -> int:
        # Upwards: a shell that advances to this instant gets what happens at it.
        assert self._origin_ns is not None
        return self._origin_ns - (-at_ps // PS_PER_NS)


def _span(steps: int, first: int, growth: int) -> int:
    return steps * first + growth * (steps * (steps - 1) // 2)


def _steps_to_reach(wait: int, first: int, growth: int) -> int:
    """Return the least number of steps that last at least *wait*."""
    if not growth:
        return -(-wait // first)
    linear = 2 * first - growth
    steps = (isqrt(linear * linear + 8 * growth * wait) - linear) // (2 * growth)
    while _span(steps, first, growth) < wait:
        steps += 1
    return steps


def _steps_within(wait: int, first: int, growth: int) -> int:
    """Return the largest number of steps that last at most *wait*."""
    steps = _steps_to_reach(wait, first, growth)
    return steps if _span(steps, first, growth) <= wait else steps - 1
