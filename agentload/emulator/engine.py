"""Offer the continuous-batching engine in virtual time to the shells that drive it.

The engine is pure and exact; its cost grows with the number of events, not of steps.
"""

from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from agentload.emulator.calls import EngineRequest, Gauges, Happening, Rejected, stamps
from agentload.emulator.inflight import InFlight
from agentload.emulator.scheduler import Scheduler
from agentload.emulator.steplog import ends_ps, token_counts
from agentload.emulator.stepper import Axis
from agentload.kvmath.pool import pool_of
from agentload.model.profile import ArmProfile

TRIM_STEPS = 1 << 14
"""Steps held in the log before those that no call in flight needs are dropped."""
_run_tokens = itemgetter(1)


class Engine:
    """Play calls on one arm; *seed* fixes the arm's noise and drafts.

    A shell advances the engine to an instant before it submits, aborts
    or restarts there, and never beyond the next command's instant.
    """

    def __init__(self, arm: ArmProfile, *, seed: int = 0) -> None:
        self.arm = arm
        self.seed = seed
        self.pool = pool_of(arm)
        self._axis = Axis()
        self._scheduler = Scheduler(arm, pool=self.pool, axis=self._axis, seed=seed)
        self._until = 0  # instant in ps that the engine has been advanced to

    def submit(self, request: EngineRequest, at_ns: int) -> None:
        """Submit a call at an instant that the engine has been advanced to."""
        self._axis.start(at_ns)
        scheduler = self._scheduler
        if request.prompt_tokens is None:
            prompt = sum(map(_run_tokens, request.content))
        else:
            prompt = request.prompt_tokens
        refusal = self._refusal(prompt, request.output_tokens)
        if refusal:
            scheduler.out.append(Rejected(request.id, at_ns, refusal))
            return
        call = InFlight(request, prompt)
        scheduler.calls[request.id] = call
        scheduler.expect(call, self._axis.ps(at_ns) + scheduler.steps.host_ps(prompt))

    def abort(self, id: str, at_ns: int) -> None:
        """Abort a call: nothing is reported of it any more.

        If it runs, it leaves the batch at the end of the current step.
        """
        call = self._scheduler.calls.pop(id, None)
        if call is None:
            return
        call.is_silent = True
        if call.state == "waiting":
            self._scheduler.drop(call)
        elif call.state == "arriving":
            call.state = "gone"
        else:
            self._scheduler.expect(call, self._axis.ps(at_ns))

    def restart(self) -> None:
        """Lose every call and the prefix cache, as a restarted server does.

        Nothing is reported of the lost calls: the shell tells their clients.
        """
        self._scheduler.catch_up(self._until)
        self._scheduler.restart()

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache unless calls are running; return whether this was done."""
        return self._scheduler.kv.forget()

    def advance(self, until_ns: int) -> list[Happening]:
        """Play everything that happens at or before *until_ns*; return it in order."""
        scheduler = self._scheduler
        if self._axis.is_started:
            self._until = max(self._until, self._axis.ps(until_ns))
            if scheduler.next_ps is not None and scheduler.next_ps <= self._until:
                scheduler.play(self._until)
        return self._happened()

    def advance_to_end(self, until_ns: int) -> list[Happening]:
        """Play everything up to the next call that ends, but nothing beyond *until_ns*.

        The engine has then been advanced to its last event.
        """
        scheduler = self._scheduler
        if not scheduler.out and scheduler.next_ps is not None:
            scheduler.play(self._axis.ps(until_ns), to_end=True)
            self._until = max(self._until, self._axis.up(scheduler.steps.now))
        return self._happened()

    def next_ns(self) -> int | None:
        """Return an instant before which nothing happens unless a call is submitted.

        None when idle for good. What happens then may be an internal decision
        with nothing to report: advance, and ask again.
        """
        if self._scheduler.out:
            return self._axis.ns(self._until)
        at_ps = self._scheduler.next_ps
        return None if at_ps is None else self._axis.ns(at_ps)

    def next_step_ns(self) -> int | None:
        """Return the end of the running step; None when idle."""
        if self._scheduler.out:
            return self._axis.ns(self._until)
        self._scheduler.catch_up(self._until)
        at_ps = self._scheduler.next_step_ps()
        return None if at_ps is None else self._axis.ns(at_ps)

    def emitted(self, id: str) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
        """Return the instants (ns) and token counts that a call in flight has emitted so far."""
        call = self._scheduler.calls.get(id)
        if call is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint16)
        self._scheduler.catch_up(self._until)
        stays = call.stays(self._scheduler.steps.log)
        return stamps(ends_ps(stays), self._axis.origin_ns), token_counts(stays)

    def gauges(self) -> Gauges:
        """Return the state and the counters as of the last advance."""
        scheduler = self._scheduler
        scheduler.catch_up(self._until)
        counts = scheduler.counts
        kv = scheduler.kv
        return Gauges(
            running=len(scheduler.admitted),
            waiting=len(scheduler.waiting),
            kv_usage=kv.used_pages / kv.capacity,
            preemptions=counts.preemptions,
            prefix_queries=counts.queries,
            prefix_hits=counts.hits,
            prompt_tokens=counts.prompt,
            prompt_tokens_cached=counts.prompt_cached,
            prompt_tokens_computed=counts.prompt - counts.prompt_cached,
            generation_tokens=counts.generated
            + sum(scheduler.generated(call) for call in (*scheduler.admitted, *scheduler.waiting)),
            steps=scheduler.steps.log.last,
        )

    def _happened(self) -> list[Happening]:
        scheduler = self._scheduler
        if scheduler.steps.log.held > TRIM_STEPS:
            scheduler.trim()
        out = scheduler.out
        scheduler.out = []
        return out

    def _refusal(self, prompt: int, output: int) -> str | None:
        server = self.arm.server
        scheduler = self._scheduler
        if prompt + output > server.max_model_len:
            return (
                f"{prompt} prompt and {output} output tokens exceed the model length of "
                f"{server.max_model_len}"
            )
        queued = len(scheduler.calls) - len(scheduler.admitted)
        if server.max_waiting is not None and queued >= server.max_waiting:
            return f"the queue is full: {queued} calls are waiting"
        if scheduler.kv.pages_for(prompt + output) > scheduler.kv.capacity:
            return f"{prompt + output} tokens do not fit into the KV pool"
        return None
