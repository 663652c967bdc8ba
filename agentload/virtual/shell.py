"""Play a plan on emulated engines in virtual time; equal seeds give equal rows.

One loop orders everything that can happen: an engine's next event, the dispatcher's wake, a
call's time limit. At one instant engines come first (a token that leaves at a limit has left in
time), then limits, then the wake. No engine is advanced past the instant of the next
command. Gauges are read at an interval of virtual time, as telemetry reads a server's /metrics.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import NamedTuple, assert_never

import numpy as np
from msgspec.structs import replace

from agentload.dispatch.answer import CallTerms, Parsed
from agentload.dispatch.call import CallMachine
from agentload.dispatch.checking import answer_row
from agentload.dispatch.dispatcher import Dispatcher
from agentload.dispatch.row import row
from agentload.dispatch.session import live_key
from agentload.dispatch.stretches import stretches, where
from agentload.emulator.calls import (
    PS_PER_NS,
    EngineRequest,
    Finished,
    FirstToken,
    Gauges,
    Rejected,
)
from agentload.emulator.engine import Engine
from agentload.emulator.steplog import ends_ps, token_counts
from agentload.emulator.steptime import slower_arm
from agentload.model.commands import (
    Cancel,
    Chunks,
    Command,
    Ended,
    Event,
    Finish,
    Forget,
    Open,
    Opened,
    Outcome,
    Prepare,
    Send,
    Settle,
    Settled,
    Skip,
    Started,
    Wake,
    Woke,
)
from agentload.model.plan import Plan
from agentload.model.profile import ArmProfile
from agentload.model.record import without_cycle_search
from agentload.model.rows import Row, SampleRow
from agentload.model.stamps import US, Stamps
from agentload.prompts.renderer import Renderer
from agentload.virtual.content import Contents, Speaker

NEVER = 1 << 62
SETTLE_NS = 1_000_000_000  # virtual time between rounds, about as long as a live barrier takes
ROWS_AT_ONCE = 512  # the stamps of so many calls are packed in the time of three, one by one


def stamps_of(answers: Sequence[Finished]) -> Iterator[Stamps]:
    """Yield the stamps of finished calls, each equal to `model.stamps.stamps` of its instants.

    numpy takes as long for one call as for many.
    """
    if not answers:
        return
    ends = [ends_ps(done.stays) for done in answers]
    sizes = list(map(len, ends))
    bounds = [0, *accumulate(sizes)]
    instants_ps = np.concatenate(ends)
    origins_ns = np.array([done.origin_ns for done in answers])
    firsts_ns = origins_ns - (-instants_ps[bounds[:-1]] // PS_PER_NS)
    # Round up to whole ns, then count whole µs from half a µs before
    # the first instant: one division does both.
    zeros_ps = PS_PER_NS * (origins_ns - firsts_ns + US // 2) + PS_PER_NS - 1
    offsets_us = (instants_ps + np.repeat(zeros_ps, sizes)) // (PS_PER_NS * US)
    gaps_us = np.diff(offsets_us, prepend=0).astype(np.int32)
    gaps_us[bounds[:-1]] = 0
    gaps = gaps_us.tobytes()
    tokens = np.concatenate([token_counts(done.stays) for done in answers]).tobytes()
    for first_ns, (start, end) in zip(firsts_ns.tolist(), pairwise(bounds), strict=True):
        yield Stamps(
            first_ns=first_ns, gap_us=gaps[4 * start : 4 * end], tokens=tokens[2 * start : 2 * end]
        )


def values(gauges: Gauges) -> dict[str, float]:
    """Return the gauges under the names that `exposition` gives those of a server."""
    same = (
        "running",
        "waiting",
        "kv_usage",
        "preemptions",
        "prefix_queries",
        "prefix_hits",
        "prompt_tokens",
    )
    return {name: getattr(gauges, name) for name in same} | {
        "cached_tokens": gauges.prompt_tokens_cached,
        "computed_tokens_sum": gauges.prompt_tokens_computed,
        "output_tokens": gauges.generation_tokens,
    }


class Sampler:
    """Sample every engine each `every_ns`, and whenever asked to."""

    def __init__(self, *, run_id: str, leg: int, every_ns: int) -> None:
        self._run_id = run_id
        self._leg = leg
        self._every_ns = every_ns
        self.next_ns = 0
        """When the next sample is due."""

    def take(self, now_ns: int, engines: Mapping[str, Engine]) -> Iterator[SampleRow]:
        """Return the samples of all engines, and set when the next ones are due."""
        looks = now_ns // self._every_ns + 1
        self.next_ns = looks * self._every_ns
        return self.now(now_ns, engines)

    def now(self, now_ns: int, engines: Mapping[str, Engine]) -> Iterator[SampleRow]:
        """Yield the samples of all engines as of *now_ns*."""
        for arm, engine in engines.items():
            for name, value in values(engine.gauges()).items():
                yield SampleRow(
                    run_id=self._run_id,
                    leg=self._leg,
                    arm=arm,
                    at_ns=now_ns,
                    name=name,
                    value=float(value),
                )


class _Flight:
    def __init__(self, send: Send, sent_ns: int, tokens: int, text: str) -> None:
        self.send = send
        self.sent_ns = sent_ns
        self.tokens = tokens
        """Tokens that the engine generates; fewer than asked for if the plan cancels a call."""
        self.text = text
        """Text of the answer, if it will be read; else empty."""
        self.first_ns = 0
        self.heard_ns = 0
        """When its first token came, and its last so far; 0 before."""
        self.answer: Finished | None = None

    def machine(self) -> CallMachine:
        """Return a machine that has followed the call so far."""
        call = self.send.call
        machine = CallMachine(
            released_ns=self.send.released_ns,
            limits=self.send.limits,
            asked=CallTerms(tokens=call.output, is_forced=True, wants_reply=call.wants_reply),
        )
        machine.opened(self.sent_ns, is_new=False)
        machine.sent(self.sent_ns)
        if self.first_ns:
            machine.head(200)
            machine.heard(self.first_ns)
            machine.heard(self.heard_ns)
        return machine


class _Unstamped(NamedTuple):
    """A call that is over; its row needs the stamps of its answer, which are packed later."""

    send: Send
    outcome: Outcome
    answer: Finished


class Shell:
    """Join a dispatcher with one engine per arm.

    An arm that changes machines gets a new engine there.
    """

    def __init__(
        self,
        plan: Plan,
        arms: Mapping[str, ArmProfile],
        *,
        seed: int,
        leg: int = 1,
        sample_s: float = 5.0,
        slowness: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Prepare to play *plan*; *slowness* is the factor on step times, by machine."""
        self._plan = plan
        self._leg = leg
        self._dispatcher = Dispatcher(plan, prepares=False)
        self._arms = arms
        self._seed = seed
        self._slowness = slowness
        self._stretches = {rounds[0].index: rounds for rounds in stretches(plan.rounds)}
        self._engines = self._started(0)
        self._contents = Contents(block=plan.header.block)
        renderer = Renderer(seed=plan.header.seed, block=plan.header.block)
        self._speaker = Speaker(arms, renderer, seed=seed)
        self._sampler = Sampler(run_id=plan.run, leg=leg, every_ns=round(sample_s * 1e9))
        self._flights: dict[str, _Flight] = {}
        self._limits: list[tuple[int, int, str]] = []
        self._order = 0
        self._wake_ns = NEVER
        self._rows: list[Row | _Unstamped] = []
        self._judged: Outcome | None = None
        """How a call ends whose answer comes whole and is not read."""
        self._has_settled = False
        self._is_finished = False

    def play(self) -> Iterator[Row]:
        """Yield the rows of the run in the order in which they arise."""
        self._tell(Started(at_ns=0))
        yield from self._stamped()  # a plan without calls is over by then
        while not self._is_finished:
            with without_cycle_search():
                self._has_settled = False
                while not self._has_settled and len(self._rows) < ROWS_AT_ONCE:
                    self._next()
                rows = self._stamped()
            yield from rows

    def _stamped(self) -> list[Row]:
        """Take the rows so far, with the stamps of all answers."""
        rows = self._rows
        self._rows = []
        packed = stamps_of([one.answer for one in rows if isinstance(one, _Unstamped)])
        run = self._plan.run
        return [
            row(one.send, one.outcome, run_id=run, leg=self._leg, chunks=next(packed))
            if isinstance(one, _Unstamped)
            else one
            for one in rows
        ]

    def _next(self) -> None:
        limits = self._limits
        flights = self._flights
        while limits and limits[0][2] not in flights:  # mostly a call is over long before its limit
            heapq.heappop(limits)
        at_ns = others_ns = NEVER
        arm = ""
        for name, engine in self._engines.items():
            next_ns = engine.next_ns()
            if next_ns is None:
                continue
            if next_ns < at_ns:
                at_ns, arm, others_ns = next_ns, name, at_ns
            elif next_ns < others_ns:
                others_ns = next_ns
        limit_ns = limits[0][0] if limits else NEVER
        wake_ns = self._wake_ns
        command_ns = min(limit_ns, wake_ns)
        if at_ns <= command_ns and at_ns < NEVER:
            self._sample(at_ns)
            until_ns = min(command_ns, others_ns - 1, self._sampler.next_ns - 1)
            until_ns = max(at_ns, until_ns)
            for happening in self._engines[arm].advance_to_end(until_ns):
                self._happened(happening)
        elif limit_ns <= wake_ns and limit_ns < NEVER:
            self._check_limit()
        else:
            assert wake_ns < NEVER, "calls are in flight, but nothing is going to happen"
            self._wake_ns = NEVER
            self._sample(wake_ns)
            self._tell(Woke(at_ns=wake_ns))

    def _sample(self, now_ns: int) -> None:
        if now_ns >= self._sampler.next_ns:
            self._rows.extend(self._sampler.take(now_ns, self._engines))

    # --- what engines and limits do ---

    def _happened(self, happening: FirstToken | Finished | Rejected) -> None:
        flight = self._flights.get(happening.id)
        if flight is None:
            return
        match happening:
            case FirstToken(at_ns=at_ns):
                flight.first_ns = flight.heard_ns = at_ns
            case Finished(at_ns=at_ns):
                flight.heard_ns = at_ns
                flight.answer = happening
                if flight.tokens < flight.send.call.output:
                    self._tell(Chunks(at_ns=at_ns, request_id=happening.id, tokens=flight.tokens))
                else:
                    self._end(flight, at_ns, self._whole(flight, happening))
            case Rejected(at_ns=at_ns, reason=reason):
                machine = flight.machine()
                machine.head(400)
                machine.closed(at_ns)
                self._end(flight, at_ns, replace(machine.outcome(), error=reason))
            case _:
                assert_never(happening)

    def _whole(self, flight: _Flight, done: Finished) -> Outcome:
        """Return how a call ended whose answer came whole.

        Answers that nobody reads differ in numbers alone, so the first of them is judged for all.
        """
        is_read = flight.send.call.wants_reply
        if is_read or self._judged is None:
            machine = flight.machine()
            machine.closed(done.at_ns)
            outcome = machine.outcome(_parsed(flight, done))
            if is_read:
                return outcome
            self._judged = outcome
        return replace(
            self._judged,
            sent_ns=flight.sent_ns,
            first_ns=flight.first_ns,
            first_answer_ns=flight.first_ns,
            last_ns=done.at_ns,
            done_ns=done.at_ns,
            prompt_tokens=done.prompt_tokens,
            cached_tokens=done.cached_tokens,
            output_tokens=flight.tokens,
        )

    def _check_limit(self) -> None:
        limit_ns, _, name = heapq.heappop(self._limits)
        flight = self._flights[name]
        engine = self._engine(flight.send, limit_ns)
        if flight.first_ns:
            emitted, _ = engine.emitted(name)
            if len(emitted):
                flight.heard_ns = int(emitted[-1])
        machine = flight.machine()
        if machine.expired(limit_ns):
            engine.abort(name, limit_ns)
            self._end(flight, limit_ns, machine.outcome())
        else:
            deadline_ns = machine.deadline_ns()
            assert deadline_ns is not None
            self._watch_limit(name, deadline_ns)

    def _engine(self, send: Send, at_ns: int) -> Engine:
        engine = self._engines[send.arm]
        for happening in engine.advance(at_ns):
            self._happened(happening)
        return engine

    def _end(self, flight: _Flight, at_ns: int, outcome: Outcome) -> None:
        send = flight.send
        del self._flights[send.request_id]
        if flight.answer is None:
            self._keep(send, outcome)
        else:
            self._rows.append(_Unstamped(send, outcome, flight.answer))
        graded = answer_row(send, outcome, run_id=self._plan.run)
        if graded is not None:
            self._rows.append(graded)
        self._tell(Ended(at_ns=at_ns, request_id=send.request_id, outcome=outcome))

    def _keep(self, send: Send, outcome: Outcome) -> None:
        self._rows.append(row(send, outcome, run_id=self._plan.run, leg=self._leg))

    # --- what the dispatcher decides ---

    def _tell(self, event: Event) -> None:
        for command in self._dispatcher.handle(event):
            self._act(command, event.at_ns)

    def _act(self, command: Command, now_ns: int) -> None:
        match command:
            case Send():
                self._send(command, now_ns)
            case Wake(at_ns=at_ns):
                self._wake_ns = at_ns
            case Skip(send=send):
                self._keep(send, Outcome(status="not_sent", stamp_source="virtual"))
            case Cancel(request_id=name, why=why):
                flight = self._flights.get(name)
                if flight is not None:
                    machine = flight.machine()
                    machine.cancel(now_ns, why)
                    self._engine(flight.send, now_ns).abort(name, now_ns)
                    answer = flight.answer
                    parsed = None if answer is None else _parsed(flight, answer)
                    self._end(flight, now_ns, machine.outcome(parsed))
            case Settle(next_round=next_round):
                self._settle(now_ns)
                if next_round in self._stretches:
                    self._engines = self._started(next_round)
                self._tell(Settled(at_ns=now_ns + SETTLE_NS))
            case Open():
                self._tell(Opened(at_ns=now_ns))
            case Finish():
                self._is_finished = True
            case Forget(arm=arm, session=session):
                self._contents.forget(arm, session)
            case Prepare():
                pass
            case _:
                assert_never(command)

    def _send(self, send: Send, now_ns: int) -> None:
        call = send.call
        limit = None if send.watch is None else send.watch.cancel_after_tokens
        tokens = call.output if limit is None else min(limit, call.output)
        text = self._speaker.says(send, tokens) if call.wants_reply else ""
        self._flights[send.request_id] = _Flight(send, now_ns, tokens, text)
        self._watch_limit(send.request_id, send.released_ns + send.limits.unheard_ns)
        runs = self._contents.runs(send)
        said = live_key(text) if text else None
        request = EngineRequest(
            send.request_id, runs, tokens, said, prompt_tokens=call.context_tokens
        )
        self._engine(send, now_ns).submit(request, now_ns)

    def _watch_limit(self, name: str, deadline_ns: int) -> None:
        self._order += 1
        heapq.heappush(self._limits, (deadline_ns, self._order, name))

    def _settle(self, now_ns: int) -> None:
        self._has_settled = True
        for end in self._dispatcher.ended_plays():
            self._rows.append(end.row(run_id=self._plan.run, leg=self._leg))
        self._rows.extend(self._sampler.now(now_ns, self._engines))

    def _started(self, round_: int) -> dict[str, Engine]:
        """Return new engines for a stretch of rounds, each slowed as its machine is."""
        machines = where(self._stretches.get(round_, ()))
        engines = {}
        for name in self._plan.arms:
            machine = machines.get(name) or ""
            arm = slower_arm(self._arms[name], self._slowness.get(machine, 1.0))
            engines[name] = Engine(arm, seed=self._seed + round_)
        return engines


def _parsed(flight: _Flight, done: Finished) -> Parsed:
    is_whole = flight.tokens == flight.send.call.output
    return Parsed(
        stamps_ns=(flight.first_ns, done.at_ns),
        tokens=(1, 1),
        token_rule="token_ids",
        first_answer_ns=flight.first_ns,
        prompt_tokens=done.prompt_tokens,
        cached_tokens=done.cached_tokens,
        output_tokens=flight.tokens,
        text=flight.text,
        finish_reason="length" if is_whole else None,
        has_end_mark=is_whole,
    )
