"""Who runs in which step: the queue, prefill chunks,
decoding, blocks, and who makes way when they run out.

Strategy: between two events (a call ends, a prompt becomes visible, a noise segment
ends, blocks run out) the batch is constant and step k lasts T0 + k*d, so K steps are one
jump in closed form. Steps that hold prefill chunks are played one by one. A jump that is
under way is booked when it is over, or as far as it has come when somebody looks;
cutting it never changes what follows, because all arithmetic is in whole picoseconds.
"""

import heapq
from collections import deque
from dataclasses import dataclass

from agentload.emulator.calls import Finished, FirstToken, Happening, Run
from agentload.emulator.inflight import InFlight
from agentload.emulator.pool import KvPool
from agentload.emulator.stepper import NEVER, Axis, Jump, Stepper, span, steps_within
from agentload.kvmath.pool import Pool
from agentload.model.profile import ArmProfile


@dataclass(slots=True)
class Counts:
    """What has been done so far, in tokens but for preemptions."""

    preemptions: int = 0
    queries: int = 0
    hits: int = 0
    prompt: int = 0
    prompt_cached: int = 0
    generated: int = 0
    """By calls that have left."""


class Scheduler:
    """Play the calls that come in.

    Instants are ps since the engine's first request; what happens is told on the shell's axis.
    """

    def __init__(self, arm: ArmProfile, *, pool: Pool, axis: Axis, seed: int) -> None:
        self._arm = arm
        self._pool = pool
        self._axis = axis
        self._seed = seed
        self.kv = KvPool(pages=pool.pages, layout=pool.layout, caching=arm.server.prefix_caching)
        self.steps = Stepper(arm, seed=seed, block_tokens=self.kv.block_tokens)
        self.counts = Counts()
        self.calls: dict[str, InFlight] = {}
        """In flight, by id; an aborted call is in no longer."""
        self.waiting: deque[InFlight] = deque()
        self.admitted: dict[InFlight, None] = {}
        """In order of admission: the last one is preempted first."""
        self.out: list[Happening] = []
        self.next_ps: int | None = None
        """Instant before which nothing happens, as of the last `play`."""
        self._external: list[
            tuple[int, int, InFlight]
        ] = []  # heap: prompts that become visible, calls to be dropped
        self._serial = 0
        self._prefilling: deque[InFlight] = deque()
        self._is_full = False  # the first in the queue did not fit; nothing was given back since
        self._is_short = (
            False  # somebody was preempted for the coming step: like vLLM, nobody is admitted in it
        )
        self._mixed_end: int | None = None  # of the step with prefill chunks that is under way
        self._jump: Jump | None = None  # the decode steps under way, while nothing changes
        self._ended_ps = (
            NEVER  # when somebody hears of a call that ended, for the first time since `play` began
        )

    def expect(self, call: InFlight, at_ps: int) -> None:
        """Look at a call at the first step that begins at or after an
        instant: queue it if it arrives, drop it if it was aborted.
        """
        self._serial += 1
        heapq.heappush(self._external, (at_ps, self._serial, call))
        if self._jump and at_ps < self._jump.end:
            self._jump = None

    def restart(self) -> None:
        """Lose every call and the prefix cache."""
        for call in (*self.admitted, *self.waiting):
            self.counts.generated += self.generated(call)
        self.kv = KvPool(
            pages=self._pool.pages,
            layout=self._pool.layout,
            caching=self._arm.server.prefix_caching,
        )
        self.steps.restart()
        for held in (self.calls, self._external, self.waiting, self._prefilling, self.admitted):
            held.clear()
        self._mixed_end = self._jump = self.next_ps = None
        self._is_full = self._is_short = False

    def generated(self, call: InFlight) -> int:
        """Count the tokens that a call has generated so far."""
        since = call.generated_since(self.steps.log.last) if call.state == "decode" else 0
        return call.generated_before + since

    def next_step_ps(self) -> int | None:
        """Return the end of the running step, or `next_ps` where there is none."""
        if self._mixed_end is None and self.steps.batch.size:
            return self.steps.now + self._next_jump().first
        return self.next_ps

    def trim(self) -> None:
        """Forget the ends of steps that no call in flight needs."""
        decoding = [call.first_step for call in self.admitted if call.state == "decode"]
        self.steps.log.forget_before(min(decoding, default=self.steps.log.last))

    def play(self, until: int, *, to_end: bool = False) -> None:
        """Play what is due, one event after the other; note when the next one will be.

        With *to_end* nothing is played beyond the instant, in whole ns,
        at which the next call ends: whoever hears of it may act then.
        """
        steps, external = self.steps, self._external
        log = steps.log
        self._ended_ps = NEVER
        while True:
            if self._mixed_end is not None:
                if self._mixed_end > until:
                    self.next_ps = self._mixed_end
                    break
                self._end_mixed(self._mixed_end)
            until = self._ended_ps if to_end and self._ended_ps < until else until
            while external and external[0][0] <= steps.now:
                self._arrive(heapq.heappop(external)[2])
            wants_in = self.waiting and not self._is_full and not self._is_short
            if (self._prefilling or wants_in) and self._start_mixed():
                continue
            if steps.batch.size:
                jump = self._next_jump()
                if not jump.steps:
                    self._preempt()
                elif jump.end > until:
                    self.next_ps = jump.end
                    break
                else:
                    self._play(jump)
                    if steps.batch.first_end <= log.last:
                        self._end_calls()
            elif external and external[0][0] <= until:
                steps.wake(external[0][0])
            else:
                self.next_ps = external[0][0] if external else None
                break

    def _arrive(self, call: InFlight) -> None:
        self._jump = None
        if call.state == "arriving":
            call.state = "waiting"
            self.waiting.append(call)
        elif call.state != "gone":
            self.drop(call)

    def _next_jump(self) -> Jump:
        if self._jump is None:
            jump = self.steps.jump(
                self.kv.free_blocks, self._external[0][0] if self._external else None
            )
            # After a preemption the queue is looked at again with the next step.
            self._jump = (
                Jump(1, jump.first, jump.growth, self.steps.now + jump.first)
                if self._is_short and jump.steps > 1
                else jump
            )
        return self._jump

    def _play(self, jump: Jump) -> None:
        self.kv.grow(self.steps.batch.blocks(self.steps.log.last, jump.steps))
        self.steps.play(jump)
        self._jump = None
        self._is_short = False

    def catch_up(self, until: int) -> None:
        """Book the steps of the jump under way that are over."""
        if self._mixed_end is None and self.steps.batch.size:
            jump = self._next_jump()
            over = steps_within(until - self.steps.now, jump.first, jump.growth)
            if over > 0:
                self._play(
                    Jump(
                        over,
                        jump.first,
                        jump.growth,
                        self.steps.now + span(over, jump.first, jump.growth),
                    )
                )

    def _start_mixed(self) -> bool:
        """Start a step with prefill chunks, if any can be scheduled:
        running calls first, then the queue, first come first served.
        """
        server, kv, batch = self._arm.server, self.kv, self.steps.batch
        while (growing := batch.blocks(self.steps.log.last, 1)) > kv.free_blocks:
            self._preempt()
        kv.grow(growing)
        room = server.max_num_batched_tokens - batch.size
        tokens = pairs = 0
        for call in self._prefilling:
            if tokens == room:
                break
            chunk, attended = self._chunk(call, room - tokens)
            tokens, pairs = tokens + chunk, pairs + attended
        while (
            self.waiting
            and tokens < room
            and not self._is_short
            and len(self.admitted) < server.max_num_seqs
        ):
            if not self._admit(self.waiting[0]):
                break
            chunk, attended = self._chunk(self.waiting.popleft(), room - tokens)
            tokens, pairs = tokens + chunk, pairs + attended
        if not tokens:
            kv.grow(-growing)
            return False
        self._mixed_end = self.steps.mixed_end(tokens, pairs)
        self._jump = None
        return True

    def _admit(self, call: InFlight) -> bool:
        """Give a waiting call its blocks: like vLLM, only if its whole prompt fits."""
        lease = self.kv.lease(call.content, call.to_compute)
        if lease is None:
            self._is_full = True
            return False
        hit = lease.mark.position * self.kv.block_tokens
        if not call.preemptions:
            call.cached = hit
            self.counts.queries += call.prompt_tokens
            self.counts.hits += hit
        call.lease, call.computed, call.state = lease, hit, "prefill"
        self._prefilling.append(call)
        self.admitted[call] = None
        return True

    def _chunk(self, call: InFlight, room: int) -> tuple[int, int]:
        """Schedule a call's next chunk; return its
        tokens, and twice the causal pairs it attends to.
        """
        assert call.lease
        chunk = min(room, call.to_compute - call.computed)
        pairs = chunk * (2 * call.computed + chunk)
        call.computed += chunk
        self.kv.computed(call.lease, call.content, call.computed)
        return chunk, pairs

    def _end_mixed(self, end_ps: int) -> None:
        self._mixed_end = self._jump = None
        self._is_short = False
        steps = self.steps
        steps.play_mixed(end_ps)
        if steps.batch.first_end <= steps.log.last:
            self._end_calls()
        while self._prefilling and self._prefilling[0].computed == self._prefilling[0].to_compute:
            self._begin_decode(self._prefilling.popleft())
        if steps.batch.first_end <= steps.log.last:
            self._end_calls()

    def _begin_decode(self, call: InFlight) -> None:
        assert call.lease
        call.state, call.first_step = "decode", self.steps.log.last
        if self._arm.speculation:
            call.draw_counts(self._arm.speculation, self._seed)
        call.last_step = (
            call.first_step + (call.remaining if call.counts is None else len(call.counts)) - 1
        )
        block = self.kv.block_tokens
        room = call.lease.blocks * block - call.to_compute
        self.steps.batch.join(call, room=room * self.steps.block_steps // block)
        if not call.generated_before:
            self.counts.prompt += call.prompt_tokens
            self.counts.prompt_cached += call.cached
            if not call.is_silent:
                self.out.append(
                    FirstToken(call.request.id, self._axis.ns(self.steps.now), call.cached)
                )

    def _end_calls(self) -> None:
        """Let the calls go whose last token left with the step that is over."""
        log = self.steps.log
        for call in self.steps.batch.ended(log.last):
            request = call.request
            ends, counts = call.emissions(log)
            self._let_go(
                call,
                (*request.content, (request.answer, request.output_tokens))
                if request.answer
                else None,
            )
            self.counts.generated += request.output_tokens
            call.state = "gone"
            if not call.is_silent:
                del self.calls[request.id]
                if self._ended_ps == NEVER:  # the first that end are the earliest
                    self._ended_ps = self._axis.up(self.steps.now)
                at_ns = self._axis.ns(self.steps.now)
                said = call.prompt_tokens, call.cached, call.preemptions
                self.out.append(
                    Finished(request.id, at_ns, ends, counts, *said, self._axis.origin_ns)
                )

    def _preempt(self) -> None:
        """Send the call that was admitted last back to the head of
        the queue; its cached blocks stay until they are evicted.
        """
        call = next(reversed(self.admitted))
        if call.state == "decode":
            self._let_go(call, call.content_so_far(self.steps.log.last))
            call.put_off(self.steps.log)
        else:
            self._prefilling.remove(call)
            self._let_go(call, None)
        call.state, call.computed, call.lease = "waiting", 0, None
        call.preemptions += 1
        self.counts.preemptions += 1
        self.waiting.appendleft(call)
        self._is_short = True

    def drop(self, call: InFlight) -> None:
        """Take an aborted call out of wherever it is."""
        if call.state == "waiting":
            self.waiting.remove(call)
        elif call.state == "prefill":
            self._prefilling.remove(call)
            self._let_go(call, None)
        else:
            self.counts.generated += call.generated_since(self.steps.log.last)
            self._let_go(call, None)
        self.counts.generated += call.generated_before
        call.state = "gone"

    def _let_go(self, call: InFlight, content: tuple[Run, ...] | None) -> None:
        """Take a call off the machine and free its blocks;
        *content* names what it has generated for those who may ask.
        """
        assert call.lease
        in_cache = call.computed
        if call.state == "decode":
            in_cache = call.to_compute + call.generated_since(self.steps.log.last) - 1
            call.lease.blocks += self.steps.batch.leave(call, self.steps.log.last)
        self.kv.release(call.lease, content, in_cache)
        del self.admitted[call]
        self._is_full = False
        self._jump = None
