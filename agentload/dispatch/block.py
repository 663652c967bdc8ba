"""Play one block on one arm: decide which call is due, and release it under the cap.

A call waits in one of three places: for the turns it depends on (`_sessions`), for its
instant (`_due`, a heap), or for a free slot (due, but the cap is reached).
A call is complete at the stamp of its answer's last byte, not at the moment when this
code learns of it: late processing never moves the schedule.

A window starts with priming calls, one after the other. They send the contexts that a server
would hold at that instant of the trace, in the order in which they were used. The block's clock
starts when the last of them is answered; every other call that is due by then waits for that
moment. When the block's time is over, calls are still sent but no longer count, so that the last
call that counts is answered under the same load. Then everything still in flight is cancelled.
"""

import heapq
from dataclasses import replace

from agentload.dispatch.arrivals import SECOND
from agentload.dispatch.dependencies import Dependencies
from agentload.dispatch.foresight import Foresight
from agentload.dispatch.intake import intake
from agentload.dispatch.outgoing import Outgoing
from agentload.dispatch.session import MissingReplyError, Player, Replies
from agentload.model.commands import Call, Cancel, Command, Ended, Forget, Outcome, Send, Status
from agentload.model.plan import Block, Plan, Play
from agentload.model.trace import PRIME, Session

BACKOFF_NS = SECOND  # wait before a second attempt; doubles with each further one
# A call that is sent before its instant has a slot from then on, which another may need.
CAPPED_LEAD_NS = 3_000_000
RETRIABLE: frozenset[Status] = frozenset({"refused", "reset", "connect_timeout", "busy"})


class BlockPlay:
    """Decide what one block sends to one arm, from events and their instants."""

    def __init__(
        self,
        plan: Plan,
        block: Block,
        play: Play,
        *,
        known: Foresight,
        started_ns: int,
        prepares: bool,
        lead_ns: int,
    ) -> None:
        self.play = play
        self.started_ns = started_ns
        self.clock_ns: int | None = None
        """When the block's clock started; None while contexts are primed."""
        self.in_flight: dict[str, tuple[Send, Player]] = {}
        self.is_cut = False
        """Whether the block ended unfinished for another reason than its budget."""
        self._plan = plan
        self._load = plan.load
        self._outgoing = Outgoing(plan, play)
        self._replies = Replies(known.quoted, live_history=plan.load.history == "live")
        self._prepares = prepares
        self._cap = plan.load.max_in_flight
        self._lead_ns = lead_ns if self._cap is None else min(lead_ns, CAPPED_LEAD_NS)
        self._intake = intake(plan, block, started_ns=started_ns)
        self._ends_ns: int | None = None
        """When the block's time is over; None where it is not limited, or not known yet."""
        if not known.primes:
            self._begin(started_ns)
        self._sessions = Dependencies(plan, due=self._became_due)
        self._foretold: dict[str, None] = {}
        """Sessions that are not over and were prepared before their start was known; a set."""
        self._due: list[tuple[int, int, Player, Send | None]] = []
        """Heap of (due instant, order, player, failed attempt, None for a first attempt)."""
        self._order = 0
        self._primes = known.primes
        """Number of priming calls that are not answered yet."""
        self._held: list[tuple[int, Player]] = []
        """Sessions whose next call waits for the clock, and the wait in ns after it starts."""
        self._is_window = block.is_window
        self._counting: set[str] = set()
        """Request ids of the calls in flight that count."""
        self._over_ns: int | None = None
        """When the time of a window was over."""
        self._slot_ns = started_ns
        """When a slot last became free while the cap was reached."""
        self._last_ns = started_ns
        self.left_ns = started_ns
        """Latest instant at which a call leaves: it may be handed over before that."""
        self._calls = 0
        self._tokens = 0
        self._is_closed = False
        self._is_stopped = False

    @property
    def drain_ns(self) -> int | None:
        """When the load began to drain, or when the time of a window was over; None before."""
        if self._over_ns is None:
            return self._intake.drain_ns
        return self._over_ns

    @property
    def primed_ns(self) -> int | None:
        """When a window's contexts were primed and its clock started; None for other blocks."""
        return self.clock_ns if self._is_window else None

    @property
    def is_over(self) -> bool:
        """Whether nothing is in flight and nothing can still become due."""
        return not self.in_flight and (
            self._is_closed
            or (not self._due and not self._sessions.players and self._intake.is_empty)
        )

    def close(self) -> None:
        """Release no more calls; those in flight run to their end."""
        self._is_closed = True
        self._due.clear()
        self._held.clear()

    def _end_window(self, now_ns: int, out: list[Command]) -> None:
        """Cancel what is in flight once a window is over and no call that counts is left."""
        self._end_time(now_ns)
        if self._over_ns is not None and not self._counting:
            self.close()
            out.extend(Cancel(request_id=name) for name in self.in_flight)

    def cut(self) -> None:
        """Close the block early.

        The block is incomplete if turns are still unplayed when nothing is in flight any more.
        """
        if not self._is_closed:
            self._is_stopped = True
            self.close()

    def step(self, now_ns: int) -> list[Command]:
        """Return what to prepare, send, skip, cancel and forget now that it is *now_ns*."""
        out: list[Command] = []
        while not self._is_closed:
            if self._is_window:
                self._end_window(now_ns, out)
            if not self._intake.is_empty and not self._is_closed:
                self._begin_sessions(now_ns + self._lead_ns, out)
            self._skip_idleness()
            self._release(now_ns, out)
            if self.in_flight or self.next_ns() is not None:
                break
            self._strand(out)
            if self._intake.is_empty:
                break
        if not self.in_flight and self.is_over:
            self._finish()
        if self._sessions.over:
            out.extend(
                Forget(arm=self.play.arm, session=session) for session in self._sessions.over
            )
            self._sessions.over.clear()
        return out

    def _finish(self) -> None:
        """Drop the sessions that are left once nothing is in flight; note whether any was cut."""
        left = bool(self._sessions.drop() or self._sessions.parked) or not self._intake.is_empty
        self.is_cut = self.is_cut or (self._is_stopped and left)
        gone = frozenset(self._sessions.over)
        self._sessions.over += [name for name in self._foretold if name not in gone]
        self._foretold.clear()

    def ended(self, event: Ended) -> None:
        """Note that an attempt is over; `step` then says what follows."""
        was_full = self._cap is not None and len(self.in_flight) >= self._cap
        send, player = self.in_flight.pop(event.request_id)
        self._counting.discard(event.request_id)
        outcome = event.outcome
        # A call that is handed over before its instant can also be refused before it.
        done_ns = max(event.at_ns if outcome.done_ns is None else outcome.done_ns, send.released_ns)
        self._last_ns = done_ns
        self.is_cut = self.is_cut or outcome.status == "stopped"
        if was_full:
            self._slot_ns = done_ns
        if not send.call.prime:
            self._tokens += (outcome.prompt_tokens or 0) + (outcome.output_tokens or 0)
        if outcome.status in RETRIABLE and send.attempt < self._load.retries:
            wait_ns = max(BACKOFF_NS * 2**send.attempt, outcome.retry_after_ns or 0)
            self._push(done_ns + wait_ns, player, send)
            return
        self._complete(send, player, outcome, done_ns)

    def _complete(self, send: Send, player: Player, outcome: Outcome, done_ns: int) -> None:
        """Go on after a turn's last attempt."""
        if outcome.status == "ok" and outcome.reply is not None and send.call.wants_reply:
            self._replies.keep(player.session, send.call.turn, outcome.reply)
        self._sessions.complete(player, done_ns)
        if player.has_ended:
            self._retire(player, done_ns)
        else:
            self._sessions.follow(player)
        if send.call.prime and self.clock_ns is None:
            self._primes -= 1
            if not self._primes:
                self._start_clock(done_ns)

    def _begin(self, at_ns: int) -> None:
        self.clock_ns = at_ns
        self._intake.begin(at_ns)
        seconds = self._load.budget.seconds
        self._ends_ns = None if seconds is None else at_ns + round(seconds * SECOND)

    def _start_clock(self, at_ns: int) -> None:
        """Start the window's clock: every context is primed."""
        self._begin(at_ns)
        for wait_ns, player in self._held:
            player.ready_ns = at_ns
            self._push(at_ns + wait_ns, player, None)
        self._held.clear()

    def next_ns(self) -> int | None:
        """Return when `step` has something to do, unless a call ends first; None if never."""
        if self._is_closed or (self.clock_ns is None and self.in_flight):
            return None
        instants: list[int] = []
        if self._due and (self._cap is None or len(self.in_flight) < self._cap):
            instants.append(self._opens_ns(self._due[0][0]))
        begins_ns = self._intake.next_ns()
        if begins_ns is not None:
            instants.append(begins_ns - self._lead_ns)
        if self._is_window and self._over_ns is None and self._ends_ns is not None:
            instants.append(self._ends_ns)
        return min(instants, default=None)

    def _opens_ns(self, due_ns: int) -> int:
        """Return from when on a call may be released that is due at *due_ns*.

        One that is due after the block's time is not released within it.
        """
        early_ns = due_ns - self._lead_ns
        if self._ends_ns is None or due_ns < self._ends_ns:
            return early_ns
        return max(early_ns, self._ends_ns)

    def _begin_sessions(self, until_ns: int, out: list[Command]) -> None:
        for session, start_ns in self._intake.take(until_ns):
            if start_ns is None:
                self._foretell(session, out)
                self._sessions.park(session)
                continue
            player = self._sessions.begin(session, start_ns)
            if session.session not in self._foretold:
                self._prepare(player, out)
        if self._prepares:
            for session in self._intake.followers():
                self._foretell(session, out)

    def _retire(self, player: Player, done_ns: int) -> None:
        self._sessions.retire(player)
        self._foretold.pop(player.session.session, None)
        self._replies.forget(player.session, turns=player.next_turn)
        self._intake.ended(player.session.session, done_ns)

    def _became_due(self, due_ns: int, player: Player) -> None:
        if self.clock_ns is None and player.session.turns[player.next_turn].event != PRIME:
            self._held.append((due_ns - player.ready_ns, player))
        else:
            self._push(due_ns, player, None)

    def _push(self, due_ns: int, player: Player, failed: Send | None) -> None:
        if not self._is_closed:
            self._order += 1
            heapq.heappush(self._due, (due_ns, self._order, player, failed))

    def _skip_idleness(self) -> None:
        """Move the turns that are due nearer where the load would be idle for too long.

        A retry stays: it is sent no sooner than its server asked for.
        """
        cap_s = self._load.idle_cap_s
        if cap_s is None or self.clock_ns is None or self.in_flight or not self._due:
            return
        until_ns = self._last_ns + round(cap_s * SECOND)
        if self._due[0][0] <= until_ns:
            return
        turns_ns = [due_ns for due_ns, _, _, failed in self._due if failed is None]
        less_ns = min(turns_ns, default=until_ns) - until_ns
        self._due = [
            (due_ns if failed else due_ns - less_ns, order, player, failed)
            for due_ns, order, player, failed in self._due
        ]
        heapq.heapify(self._due)

    # --- sending ---

    def _release(self, now_ns: int, out: list[Command]) -> None:
        cap = 1 if self.clock_ns is None else self._cap
        while (
            self._due
            and self._opens_ns(self._due[0][0]) <= now_ns
            and (cap is None or len(self.in_flight) < cap)
        ):
            if not self._is_window and self._is_spent(now_ns):
                self.close()
                return
            due_ns, _, player, failed = heapq.heappop(self._due)
            try:
                send = self._send(due_ns, player, failed)
            except MissingReplyError:
                self._abandon(player, due_ns, out)
                continue
            self.in_flight[send.request_id] = (send, player)
            self.left_ns = max(self.left_ns, send.released_ns)
            if not send.call.prime:
                self._counting.add(send.request_id)
                self._calls += 1
                if self._is_window:
                    self._end_time(max(now_ns, send.released_ns))
            out.append(send)
            if self._prepares:
                self._prepare(player, out, after=send.call.turn)

    def _end_time(self, now_ns: int) -> None:
        """Note when a window's time is over.

        Calls are still sent after that, to keep up the load, but they do not count.
        """
        if self._over_ns is None and self._is_spent(now_ns):
            self._over_ns = now_ns

    def _is_spent(self, now_ns: int) -> bool:
        budget = self._load.budget
        if self.clock_ns is None:
            return False
        return (
            (budget.calls is not None and self._calls >= budget.calls)
            or (budget.tokens is not None and self._tokens >= budget.tokens)
            or (self._ends_ns is not None and now_ns >= self._ends_ns)
        )

    def _send(self, due_ns: int, player: Player, failed: Send | None) -> Send:
        released_ns = due_ns if self._cap is None else max(due_ns, self._slot_ns)
        if self.clock_ns is None:  # priming calls go one after the other
            released_ns = max(due_ns, self._last_ns)
        tail = self._is_tail(released_ns)
        if failed is not None:
            return self._outgoing.again(failed, due_ns=due_ns, released_ns=released_ns, tail=tail)
        call = self._call(player, player.next_turn, due_ns)
        if self._over_ns is not None:
            call = replace(call, prime=True)
        return self._outgoing.send(call, due_ns=due_ns, released_ns=released_ns, tail=tail)

    def _is_tail(self, released_ns: int) -> bool:
        if self._over_ns is not None:
            return True
        drain_ns = self._intake.drain_ns
        return drain_ns is not None and released_ns > drain_ns

    def _call(self, player: Player, turn: int, due_ns: int | None) -> Call:
        call = player.call(turn, self._replies.of)
        spec = player.session.turns[turn]
        if due_ns is not None and spec.deadline_s is not None:
            call = replace(call, deadline_ns=due_ns + round(spec.deadline_s * SECOND))
        recorded = None if spec.recorded is None else spec.recorded.answer
        is_read = bool(spec.check or recorded) or self._replies.are_read(player.session, turn)
        if is_read:
            return replace(call, wants_reply=True, check=spec.check, recorded=recorded)
        return call

    def _foretell(self, session: Session, out: list[Command]) -> None:
        if self._prepares:
            self._foretold[session.session] = None
            self._prepare(self._sessions.player(session), out, connects=False)

    def _prepare(
        self, player: Player, out: list[Command], *, after: int = -1, connects: bool = True
    ) -> None:
        turn = after + 1
        if not self._prepares or turn >= len(player.session.turns) or not player.is_fixed(turn):
            return
        out.append(self._outgoing.prepare(self._call(player, turn, None), connects=connects))

    # --- what cannot be sent ---

    def _abandon(self, player: Player, at_ns: int, out: list[Command]) -> None:
        """Skip a session's remaining turns; sessions that waited for its turns continue."""
        out.extend(self._outgoing.skips(player.session, since=player.next_turn, at_ns=at_ns))
        while not player.has_ended:
            self._sessions.complete(player, at_ns)
        self._retire(player, at_ns)

    def _strand(self, out: list[Command]) -> None:
        """Skip every turn that waits for something impossible; do nothing once closed.

        Cut the block if even then nothing can start, so that `step` comes to an end.
        """
        if self._is_closed:
            return
        for player in self._sessions.drop():
            out.extend(
                self._outgoing.skips(player.session, since=player.next_turn, at_ns=player.ready_ns)
            )
            self._intake.ended(player.session.session, player.ready_ns)
        # A spawned session follows its parent in the trace, so nothing can start these any more.
        for session in self._sessions.parked.values():
            out.extend(self._outgoing.skips(session, since=0, at_ns=self._last_ns))
            self._intake.ended(session.session, self._last_ns)
        self._sessions.parked.clear()
        if self._intake.next_ns() is None and not self._intake.is_empty:
            self.cut()  # no end of a session will bring the next one
