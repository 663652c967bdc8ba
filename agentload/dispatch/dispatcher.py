"""Turn events into commands: play a plan's rounds in turn, the blocks of one together.

The caller owns the clock and the sockets. It must send Woke at the instant of the last Wake,
Ended once for every Send, Settled after every Settle, and Opened after every Open.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from agentload.dispatch.block import BlockPlay
from agentload.dispatch.foresight import Foresight, foresight
from agentload.model.commands import (
    Cancel,
    Chunks,
    Command,
    Ended,
    Event,
    Finish,
    Lost,
    Open,
    Opened,
    Send,
    Settle,
    Settled,
    Started,
    Stopped,
    Wake,
    Woke,
)
from agentload.model.plan import Plan, Play, Round
from agentload.model.rows import BlockRow

MAX_REPLAYS = 2  # an invalid pair is played again at most this often


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayEnd:
    """Record when a play started, began to drain and ended, and whether all of it was played."""

    play: Play
    round: int
    started_ns: int
    drain_ns: int | None
    ended_ns: int
    is_whole: bool
    primed_ns: int | None = None

    def row(self, *, run_id: str, leg: int, void: str | None = None) -> BlockRow:
        """Return the stored row of this play; *void* is the reason why nothing of it counts."""
        return BlockRow(
            run_id=run_id,
            leg=leg,
            pair=self.play.pair,
            block=self.play.block,
            arm=self.play.arm,
            round=self.round,
            started_ns=self.started_ns,
            primed_ns=self.primed_ns,
            drain_ns=self.drain_ns,
            ended_ns=self.ended_ns,
            salt=self.play.salt,
            warmup=self.play.warmup,
            void=void,
            machine=self.play.machine,
        )


class Dispatcher:
    """Decide what to send, given what has happened so far."""

    def __init__(
        self,
        plan: Plan,
        *,
        leg: int = 1,
        done: Iterable[int] = (),
        voided: Mapping[int, int] | None = None,
        prepares: bool = True,
        lead_ns: int = 0,
    ) -> None:
        """Prepare to play the plan without the pairs *done* in earlier parts of the run.

        *voided* counts for each pair how often it was started and lost before. A call whose
        instant is known is sent *lead_ns* before it, and whoever carries it out waits.
        """
        self._plan = plan
        self._leg = leg
        self._prepares = prepares
        self._lead_ns = lead_ns
        self._blocks = {block.index: block for block in plan.blocks}
        self._warmups = {
            play.pair for round_ in plan.rounds for play in round_.plays if play.warmup
        }
        self._replays: Counter[int] = Counter(voided or {})
        finished = frozenset(done)
        self._rounds = deque(kept for r in plan.rounds if (kept := self._fresh(r, finished)).plays)
        self._known: dict[int, Foresight] = {}
        if prepares:  # before a clock runs: it takes a while
            for round_ in self._rounds:
                self._look_ahead(round_)
        self._next_index = max((r.index for r in plan.rounds), default=-1) + 1
        self._round: Round | None = None
        self._playing: dict[str, BlockPlay] = {}
        self._arm_of: dict[str, str] = {}
        self._ends: list[PlayEnd] = []
        self._wake_ns: int | None = None
        self._gone: set[str] = set()
        self._is_stopped = False
        self._is_settling = False
        self._start: int | None = None
        self._is_opening = False

    @property
    def is_playing(self) -> bool:
        """Whether a round is being played; False while it settles or servers are started."""
        return bool(self._playing) and not self._is_settling

    def ended_plays(self) -> tuple[PlayEnd, ...]:
        """Return the plays of the round that is settling or was settled last."""
        return tuple(self._ends)

    def handle(self, event: Event) -> tuple[Command, ...]:
        """Return what to do now that *event* has happened."""
        match event:
            case Woke():
                self._wake_ns = None
                return self._step(event.at_ns)
            case Ended(request_id=request_id):
                self._playing[self._arm_of.pop(request_id)].ended(event)
                return self._step(event.at_ns)
            case Started(at_ns=at_ns):
                return self._next_round(at_ns)
            case Chunks(request_id=request_id, tokens=tokens):
                return self._watched(request_id, tokens)
            case Settled(at_ns=at_ns, void=void):
                self._is_settling = False
                self._repeat(pair for pair, _ in void)
                return self._next_round(at_ns)
            case Opened(at_ns=at_ns):
                self._is_opening = False
                if self._is_stopped:
                    return (Finish(),)
                return self._begin(at_ns)
            case Stopped():
                return self._stop(event)
            case Lost():
                return self._lose(event)
            case _:
                assert_never(event)

    def _fresh(self, round_: Round, finished: frozenset[int]) -> Round:
        plays = tuple(self._salted(play) for play in round_.plays if play.pair not in finished)
        return replace(round_, plays=plays)

    def _salted(self, play: Play) -> Play:
        """Give a pair that is played again its own salt, so that caches hold nothing of it.

        Every later part of a run gets new salts too: a part that was killed in its first second
        leaves no record, but its contexts are in the servers' caches.
        """
        count = self._replays[play.pair]
        if not count and self._leg == 1:
            return play
        leg = f"{self._leg}." if self._leg > 1 else ""
        return replace(play, salt=f"{play.salt.partition('~')[0]}~{leg}{count}")

    def _next_round(self, at_ns: int) -> tuple[Command, ...]:
        self._playing.clear()
        if self._is_stopped or not self._rounds:
            return (Finish(),)
        self._round = self._rounds.popleft()
        self._ends = []
        if self._round.start is None or self._round.start == self._start:
            return self._begin(at_ns)
        self._start = self._round.start
        self._is_opening = True
        return (Open(round=self._round.index, arms=tuple(play.arm for play in self._round.plays)),)

    def _look_ahead(self, round_: Round) -> None:
        """Look through the blocks of a round that were not looked through before."""
        for play in round_.plays:
            if play.block not in self._known:
                self._known[play.block] = foresight(self._plan, self._blocks[play.block])

    def _begin(self, at_ns: int) -> tuple[Command, ...]:
        assert self._round is not None
        self._look_ahead(self._round)
        if self._prepares:
            lead_ns = max(self._known[play.block].lead_ns for play in self._round.plays)
        else:
            lead_ns = 0
        started_ns = at_ns + lead_ns
        for play in self._round.plays:
            self._playing[play.arm] = BlockPlay(
                self._plan,
                self._blocks[play.block],
                play,
                known=self._known[play.block],
                started_ns=started_ns,
                prepares=self._prepares,
                lead_ns=self._lead_ns,
            )
        return self._step(at_ns)

    def _step(self, now_ns: int) -> tuple[Command, ...]:
        # An alarm of a block that closed early may ring while servers of the next round start.
        if not self._playing:
            return ()
        out: list[Command] = []
        for arm, playing in self._playing.items():
            for command in playing.step(now_ns):
                if isinstance(command, Send):
                    self._arm_of[command.request_id] = arm
                out.append(command)
        if not self._is_settling:
            self._settle_or_wake(now_ns, out)
        return tuple(out)

    def _settle_or_wake(self, now_ns: int, out: list[Command]) -> None:
        is_over = True
        wake_ns = None
        for playing in self._playing.values():
            if not playing.in_flight and playing.is_over:
                if all(end.play != playing.play for end in self._ends):
                    self._ends.append(self._end(playing, now_ns))
                continue
            is_over = False
            at_ns = playing.next_ns()
            if at_ns is not None and (wake_ns is None or at_ns < wake_ns):
                wake_ns = at_ns
        if is_over:
            assert self._round is not None
            self._is_settling = True
            following = None if self._is_stopped or not self._rounds else self._rounds[0].index
            out.append(Settle(round=self._round.index, next_round=following))
            return
        if wake_ns is not None and wake_ns != self._wake_ns:
            self._wake_ns = wake_ns
            out.append(Wake(at_ns=wake_ns))

    def _end(self, playing: BlockPlay, now_ns: int) -> PlayEnd:
        assert self._round is not None
        return PlayEnd(
            play=playing.play,
            round=self._round.index,
            started_ns=playing.started_ns,
            primed_ns=playing.primed_ns,
            drain_ns=playing.drain_ns,
            ended_ns=max(now_ns, playing.left_ns),
            is_whole=not playing.is_cut,
        )

    def _watched(self, request_id: str, tokens: int) -> tuple[Command, ...]:
        arm = self._arm_of.get(request_id)
        if arm is None:
            return ()
        send, _ = self._playing[arm].in_flight[request_id]
        limit = send.watch.cancel_after_tokens if send.watch else None
        if limit is not None and tokens >= limit:
            return (Cancel(request_id=request_id),)
        return ()

    def _repeat(self, pairs: Iterable[int]) -> None:
        """Play invalid pairs again, whole, after everything else.

        Pairs of a warm-up are left out: at the end there is nothing left to warm up for.
        """
        for pair in sorted(set(pairs) - self._warmups):
            if self._replays[pair] >= MAX_REPLAYS:
                continue
            self._replays[pair] += 1
            self._rounds = deque(r for r in (_without(r, pair) for r in self._rounds) if r.plays)
            for round_ in self._plan.rounds:
                plays = tuple(
                    self._salted(play) for play in self._present(round_).plays if play.pair == pair
                )
                if plays:
                    # Where servers are started at all, the round gets a start of
                    # its own: no round before has this number.
                    start = None if round_.start is None else self._next_index
                    self._rounds.append(Round(index=self._next_index, plays=plays, start=start))
                    self._next_index += 1

    def _stop(self, event: Stopped) -> tuple[Command, ...]:
        self._is_stopped = True
        self._rounds.clear()
        if self._is_opening:
            return ()
        for playing in self._playing.values():
            playing.cut()
        cancels: tuple[Command, ...] = (
            ()
            if event.drain
            else tuple(Cancel(request_id=name, why="stopped") for name in self._arm_of)
        )
        return cancels + self._step(event.at_ns)

    def _lose(self, event: Lost) -> tuple[Command, ...]:
        """Close the arm's block; if the arm is lost for good, drop it from later rounds."""
        if event.for_good:
            self._gone.add(event.arm)
            self._rounds = deque(r for r in (self._present(r) for r in self._rounds) if r.plays)
        self._start = None  # a later round needs new servers, as one is dead
        playing = self._playing.get(event.arm)
        if playing is not None:
            playing.cut()
        if self._is_settling:
            return ()
        return self._step(event.at_ns)

    def _present(self, round_: Round) -> Round:
        return replace(
            round_, plays=tuple(play for play in round_.plays if play.arm not in self._gone)
        )


def _without(round_: Round, pair: int) -> Round:
    return replace(round_, plays=tuple(play for play in round_.plays if play.pair != pair))
