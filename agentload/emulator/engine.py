"""A continuous-batching engine in virtual time: pure, exact, and as fast as its events are rare.

Strategy: between two events (a call ends, a prompt becomes visible, a noise segment ends, blocks run out) the batch is constant and step k
lasts T0 + k*d, so K steps are one jump in closed form. Steps that hold prefill chunks are played one by one. A jump that is under way is
booked when it is over, or as far as it has come when somebody looks; cutting it never changes what follows, because all arithmetic is in
whole picoseconds.
"""

from __future__ import annotations

import heapq
from collections import deque
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from agentload.emulator.calls import Finished, FirstToken, Gauges, Happening, Rejected, Request, Run
from agentload.emulator.inflight import InFlight
from agentload.emulator.jumps import span, steps_within
from agentload.emulator.pool import KvPool
from agentload.emulator.stepper import Jump, Stepper
from agentload.emulator.steptime import PS_PER_NS
from agentload.kvmath.pool import pool_of
from agentload.model.profile import ArmProfile

__all__ = ["Engine", "Finished", "FirstToken", "Gauges", "Happening", "Rejected", "Request"]

TRIM_STEPS = 1 << 16
"""Steps held in the log before those that no call in flight needs are dropped."""
_run_tokens = itemgetter(1)


class Engine:
    """Play calls on one arm. `seed` fixes its noise and its drafts."""

    def __init__(self, arm: ArmProfile, *, seed: int = 0) -> None:
        self.arm = arm
        self.seed = seed
        self.pool = pool_of(arm)
        self._kv = KvPool(pages=self.pool.pages, layout=self.pool.layout, caching=arm.server.prefix_caching)
        self._steps = Stepper(arm, seed=seed, block_tokens=self._kv.block_tokens)
        self._origin_ns = 0  # of the axis of ps: the first request
        self._is_started = False
        self._until = 0  # ps that the engine has been advanced to
        self._calls: dict[str, InFlight] = {}
        self._external: list[tuple[int, int, InFlight]] = []  # heap: prompts that become visible, calls to be dropped
        self._serial = 0
        self._waiting: deque[InFlight] = deque()
        self._prefilling: deque[InFlight] = deque()
        self._admitted: dict[InFlight, None] = {}  # in order of admission: the last one is preempted first
        self._is_full = False  # the first in the queue did not fit; nothing was given back since
        self._mixed_end: int | None = None  # of the step with prefill chunks that is under way
        self._jump: Jump | None = None  # the decode steps under way, while nothing changes
        self._next: int | None = None  # ps before which nothing happens
        self._is_stale = True  # something came in since that was found
        self._out: list[Happening] = []
        self._preemptions = self._queries = self._hits = 0
        self._prompt_done = self._prompt_cached = self._generated_done = 0

    # What a shell calls.

    def submit(self, request: Request, at_ns: int) -> None:
        """Send a call at an instant that the engine has been advanced to."""
        if not self._is_started:
            self._origin_ns, self._is_started = at_ns, True
        prompt = sum(map(_run_tokens, request.content))
        refusal = self._refusal(prompt, request.output_tokens)
        if refusal:
            self._out.append(Rejected(request.id, at_ns, refusal))
            return
        call = InFlight(request, prompt, request.content, prompt)
        self._calls[request.id] = call
        self._push(self._ps(at_ns) + self._steps.host_ps(prompt), call)

    def abort(self, id: str, at_ns: int) -> None:
        """Forget a call: nothing comes for it any more, and it leaves the batch at the end of the running step."""
        call = self._calls.pop(id, None)
        if call is None:
            return
        call.is_silent = True
        if call.state == "waiting":
            self._drop(call)
        elif call.state == "arriving":
            call.state = "gone"
        else:
            self._push(self._ps(at_ns), call)

    def advance(self, until_ns: int) -> list[Happening]:
        """Play everything that happens at or before an instant, in order."""
        if not self._is_started:
            return self._drain()
        self._until = max(self._until, self._ps(until_ns))
        if self._is_stale or (self._next is not None and self._next <= self._until):
            self._play_due()
            if self._steps.log.held > TRIM_STEPS:
                decoding = [call.first_step for call in self._admitted if call.state == "decode"]
                self._steps.log.forget_before(min(decoding, default=self._steps.log.last))
        return self._drain()

    def next_ns(self) -> int | None:
        """Return an instant before which nothing happens unless something is submitted; None when idle for good.

        What happens then may also be a decision inside, with nothing to report: advance, and ask again.
        """
        if self._is_stale:
            self._play_due()
        if self._out:
            return self._ns(self._until)
        return None if self._next is None else self._ns(self._next)

    def next_step_ns(self) -> int | None:
        """Return the end of the running step; None when idle."""
        if self._mixed_end is None and self._steps.batch.size and not self._out:
            self._catch_up()
            return self._ns(self._steps.now + self._next_jump().first)
        return self.next_ns()

    def emitted(self, id: str) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
        """Return the instants (ns) and token counts that a call in flight has emitted so far."""
        call = self._calls.get(id)
        if call is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint16)
        self._catch_up()
        ends, counts = call.emissions(self._steps.log)
        return self._stamps(ends), counts

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache, unless calls are running, and tell whether it was done."""
        return self._kv.forget()

    def restart(self) -> None:
        """Lose every call and the prefix cache, as a server does that is started again; the shell tells the clients."""
        self._catch_up()
        for call in [*self._admitted, *self._waiting]:
            self._generated_done += call.generated_before
            self._generated_done += call.generated_since(self._steps.log.last) if call.state == "decode" else 0
        self._kv = KvPool(pages=self.pool.pages, layout=self.pool.layout, caching=self.arm.server.prefix_caching)
        self._steps.restart()
        for held in (self._calls, self._external, self._waiting, self._prefilling, self._admitted):
            held.clear()
        self._mixed_end = self._jump = self._next = None
        self._is_full = False

    def gauges(self) -> Gauges:
        """Return the state and the counters as of the last advance."""
        self._catch_up()
        generated = self._generated_done
        for call in [*self._admitted, *self._waiting]:
            generated += call.generated_before + (call.generated_since(self._steps.log.last) if call.state == "decode" else 0)
        return Gauges(
            running=len(self._admitted),
            waiting=len(self._waiting),
            kv_usage=self._kv.used_pages / self._kv.capacity,
            preemptions=self._preemptions,
            prefix_queries=self._queries,
            prefix_hits=self._hits,
            prompt_tokens=self._prompt_done,
            prompt_tokens_cached=self._prompt_cached,
            prompt_tokens_computed=self._prompt_done - self._prompt_cached,
            generation_tokens=generated,
            steps=self._steps.log.last,
            steps_beyond_known=self._steps.beyond,
        )

    # One event: the end of a step or jump, a decision of the scheduler, or a wake-up.

    def _play_due(self) -> None:
        while self._event():
            pass
        self._is_stale = False

    def _event(self) -> bool:
        """Play the next event if it is due; else note when it will be."""
        steps, external = self._steps, self._external
        if self._mixed_end is not None:
            if self._mixed_end > self._until:
                self._next = self._mixed_end
                return False
            self._end_mixed(self._mixed_end)
            return True
        while external and external[0][0] <= steps.now:
            self._arrive(heapq.heappop(external)[2])
        if (self._prefilling or (self._waiting and not self._is_full)) and self._start_mixed():
            return True
        if steps.batch.size:
            jump = self._next_jump()
            if not jump.steps:
                self._preempt()
                return True
            if jump.end > self._until:
                self._next = jump.end
                return False
            self._play(jump)
            self._end_calls()
            return True
        if external and external[0][0] <= self._until:
            steps.wake(external[0][0])
            return True
        self._next = external[0][0] if external else None
        return False

    def _arrive(self, call: InFlight) -> None:
        self._jump = None
        if call.state == "arriving":
            call.state = "waiting"
            self._waiting.append(call)
        elif call.state != "gone":
            self._drop(call)

    def _next_jump(self) -> Jump:
        if self._jump is None:
            self._jump = self._steps.jump(self._kv.free_blocks, self._external[0][0] if self._external else None)
        return self._jump

    def _play(self, jump: Jump) -> None:
        self._kv.grow(self._steps.batch.blocks(self._steps.log.last, jump.steps))
        self._steps.play(jump)
        self._jump = None

    def _catch_up(self) -> None:
        """Book the steps of the jump under way that are over."""
        if self._mixed_end is None and self._steps.batch.size:
            jump = self._next_jump()
            over = steps_within(self._until - self._steps.now, jump.first, jump.growth)
            if over > 0:
                self._play(Jump(over, jump.first, jump.growth, self._steps.now + span(over, jump.first, jump.growth)))

    def _start_mixed(self) -> bool:
        """Start a step with prefill chunks, if any can be scheduled: running calls first, then the queue, first come first served."""
        server, kv, batch = self.arm.server, self._kv, self._steps.batch
        preempted = False
        while (growing := batch.blocks(self._steps.log.last, 1)) > kv.free_blocks:
            self._preempt()
            preempted = True
        kv.grow(growing)
        room = server.max_num_batched_tokens - batch.size
        tokens = pairs = 0
        for call in self._prefilling:
            if tokens == room:
                break
            chunk, attended = self._chunk(call, room - tokens)
            tokens, pairs = tokens + chunk, pairs + attended
        # vLLM admits nobody in a step in which it had to preempt.
        while self._waiting and tokens < room and not preempted and len(self._admitted) < server.max_num_seqs:
            if not self._admit(self._waiting[0]):
                break
            chunk, attended = self._chunk(self._waiting.popleft(), room - tokens)
            tokens, pairs = tokens + chunk, pairs + attended
        if not tokens:
            kv.grow(-growing)
            return False
        self._mixed_end = self._steps.mixed_end(tokens, pairs)
        self._jump = None
        return True

    def _admit(self, call: InFlight) -> bool:
        """Give a waiting call its blocks: like vLLM, only if its whole prompt fits."""
        lease = self._kv.lease(call.content, call.to_compute)
        if lease is None:
            self._is_full = True
            return False
        hit = lease.mark.position * self._kv.block_tokens
        if not call.preemptions:
            call.cached = hit
            self._queries += call.prompt_tokens
            self._hits += hit
        call.lease, call.computed, call.state = lease, hit, "prefill"
        self._prefilling.append(call)
        self._admitted[call] = None
        return True

    def _chunk(self, call: InFlight, room: int) -> tuple[int, int]:
        """Schedule a call's next chunk; return its tokens, and twice the causal pairs it attends to."""
        assert call.lease
        chunk = min(room, call.to_compute - call.computed)
        pairs = chunk * (2 * call.computed + chunk)
        call.computed += chunk
        self._kv.computed(call.lease, call.content, call.computed)
        return chunk, pairs

    def _end_mixed(self, end_ps: int) -> None:
        self._mixed_end = self._jump = None
        self._steps.play_mixed(end_ps, len(self._admitted))
        self._end_calls()
        while self._prefilling and self._prefilling[0].computed == self._prefilling[0].to_compute:
            self._begin_decode(self._prefilling.popleft())
        self._end_calls()

    def _begin_decode(self, call: InFlight) -> None:
        assert call.lease
        call.state, call.first_step = "decode", self._steps.log.last
        if self.arm.speculation:
            call.draw_counts(self.arm.speculation, self.seed)
        call.last_step = call.first_step + (call.remaining if call.counts is None else len(call.counts)) - 1
        block = self._kv.block_tokens
        room = call.lease.blocks * block - call.to_compute
        self._steps.batch.join(call, room=room * self._steps.block_steps // block)
        if not call.generated_before:
            self._prompt_done += call.prompt_tokens
            self._prompt_cached += call.cached
            if not call.is_silent:
                self._out.append(FirstToken(call.request.id, self._ns(self._steps.now), call.cached))

    def _end_calls(self) -> None:
        """Let the calls go whose last token left with the step that is over."""
        log = self._steps.log
        for call in self._steps.batch.ended(log.last):
            request = call.request
            stamps, counts = call.emissions(log)
            self._let_go(call, (*request.content, (request.answer, request.output_tokens)) if request.answer else None)
            self._generated_done += request.output_tokens
            call.state = "gone"
            if not call.is_silent:
                del self._calls[request.id]
                at_ns = self._ns(self._steps.now)
                self._out.append(
                    Finished(request.id, at_ns, self._stamps(stamps), counts, call.prompt_tokens, call.cached, call.preemptions)
                )

    def _preempt(self) -> None:
        """Send the call that was admitted last back to the head of the queue; its cached blocks stay until they are evicted."""
        call = next(reversed(self._admitted))
        if call.state == "decode":
            self._let_go(call, call.content_so_far(self._steps.log.last))
            call.put_off(self._steps.log)
        else:
            self._prefilling.remove(call)
            self._let_go(call, None)
        call.state, call.computed, call.lease = "waiting", 0, None
        call.preemptions += 1
        self._preemptions += 1
        self._waiting.appendleft(call)

    def _drop(self, call: InFlight) -> None:
        """Take an aborted call out of wherever it is."""
        if call.state == "waiting":
            self._waiting.remove(call)
        elif call.state == "prefill":
            self._prefilling.remove(call)
            self._let_go(call, None)
        else:
            self._generated_done += call.generated_since(self._steps.log.last)
            self._let_go(call, None)
        self._generated_done += call.generated_before
        call.state = "gone"

    def _let_go(self, call: InFlight, content: tuple[Run, ...] | None) -> None:
        """Take a call off the machine and free its blocks; *content* names what it has generated for those who may ask."""
        assert call.lease
        in_cache = call.computed
        if call.state == "decode":
            in_cache = call.to_compute + call.generated_since(self._steps.log.last) - 1
            call.lease.blocks += self._steps.batch.leave(call, self._steps.log.last)
        self._kv.release(call.lease, content, in_cache)
        del self._admitted[call]
        self._is_full = False
        self._jump = None

    # Small change.

    def _refusal(self, prompt: int, output: int) -> str | None:
        server = self.arm.server
        if prompt + output > server.max_model_len:
            return f"{prompt} prompt and {output} output tokens exceed the model length of {server.max_model_len}"
        queued = len(self._calls) - len(self._admitted)
        if server.max_waiting is not None and queued >= server.max_waiting:
            return f"the queue is full: {queued} calls are waiting"
        if self._kv.pages_for(prompt + output) > self._kv.capacity:
            return f"{prompt + output} tokens do not fit into the KV pool"
        return None

    def _drain(self) -> list[Happening]:
        out, self._out = self._out, []
        return out

    def _push(self, at_ps: int, call: InFlight) -> None:
        self._serial += 1
        heapq.heappush(self._external, (at_ps, self._serial, call))
        self._is_stale = True
        if self._jump and at_ps < self._jump.end:
            self._jump = None

    def _stamps(self, ends_ps: NDArray[np.int64]) -> NDArray[np.int64]:
        return -(-ends_ps // PS_PER_NS) + self._origin_ns

    def _ps(self, at_ns: int) -> int:
        return (at_ns - self._origin_ns) * PS_PER_NS

    def _ns(self, at_ps: int) -> int:
        # Upwards: a shell that advances to this instant gets what happens at it.
        return self._origin_ns - (-at_ps // PS_PER_NS)
