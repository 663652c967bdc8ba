"""Hand out a block's sessions when their time has come.

Sessions are pulled from their iterator shortly before they start,
so memory follows what is in flight, not the length of the trace.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import assert_never

from agentload.dispatch.arrivals import SECOND, seeded, starts
from agentload.model.plan import Arrivals, Block, ClosedLoop, OpenLoop, Plan, Recorded
from agentload.model.trace import Session

AHEAD_NS = (
    SECOND // 2
)  # a session is handed out this long before it starts, so that its first prompt can be made ready


def intake(plan: Plan, block: Block, *, started_ns: int) -> "Intake":
    """Return the intake of one play of a block; equal
    for all its plays, but for when they started.
    """
    seed = (plan.seed, "arrivals", block.index)
    return Intake(
        block.sessions,
        plan.load.arrivals,
        seed=seed,
        started_ns=started_ns,
        is_held=block.is_window,
    )


class Intake:
    """Know when the next root session of a block starts under the plan's arrivals."""

    def __init__(
        self,
        sessions: Iterable[Session],
        arrivals: Arrivals,
        *,
        seed: tuple[object, ...],
        started_ns: int,
        is_held: bool = False,
    ) -> None:
        """While it *is_held*, none but the sessions that a block begins with are handed out."""
        self._is_held = is_held
        self.drain_ns: int | None = None
        """When the load began to drain: a session ended and none was left to take its place.

        None until then.
        """
        self._arrivals = arrivals
        self._started_ns = started_ns
        self._sessions = iter(sessions)
        self._ahead: deque[Session] = deque(islice(self._sessions, 1))
        """Sessions pulled and not begun; the first of them were foretold."""
        self._told = 0
        self._foretold = 0
        """So many of them begin by themselves."""
        self._open = starts(arrivals, seeded(*seed))
        self._next_open_ns = self._take_open()
        self._active: set[str] = set()
        self._free_ns = started_ns

    def begin(self, at_ns: int) -> None:
        """Start the block's clock: sessions that begin later count from here."""
        self._is_held = False
        self._started_ns = self._free_ns = at_ns

    @property
    def is_empty(self) -> bool:
        """Tell whether every session was handed out."""
        return not self._ahead

    def take(self, now_ns: int) -> Iterator[tuple[Session, int | None]]:
        """Yield each session to be begun by *now_ns* with its
        start; a spawned one, which follows its parent, without.
        """
        while self._ahead:
            session = self._ahead[0]
            if session.start_s is None:
                self._pull()
                yield session, None
                continue
            start_ns = self._start_ns(session)
            if start_ns is None or start_ns - AHEAD_NS > now_ns:
                return
            self._pull()
            self._next_open_ns = self._take_open()
            self._active.add(session.session)
            yield session, start_ns

    def followers(self) -> Iterator[Session]:
        """Yield, once each, the sessions that begin when others
        end, nobody knows when: as many as may end at the same time.
        """
        if not isinstance(self._arrivals, ClosedLoop) or self.next_ns() is not None:
            return
        while self._foretold < self._arrivals.sessions:
            if self._told == len(self._ahead):
                self._ahead.extend(islice(self._sessions, 1))
            if self._told == len(self._ahead):
                return
            session = self._ahead[self._told]
            self._told += 1
            if session.start_s is not None:
                self._foretold += 1
                yield session

    def ended(self, session: str, at_ns: int) -> None:
        """Note that a session is over: in a closed loop the next may start."""
        if session in self._active:
            self._active.remove(session)
            self._free_ns = at_ns
            if self.is_empty and self.drain_ns is None:
                self.drain_ns = at_ns

    def next_ns(self) -> int | None:
        """Return the instant at which `take` has something to yield, if no session ends before."""
        if not self._ahead:
            return None
        start_ns = self._start_ns(self._ahead[0])
        return None if start_ns is None else start_ns - AHEAD_NS

    def _start_ns(self, session: Session) -> int | None:
        match self._arrivals:
            case Recorded() if self._is_held and session.start_s:
                return None
            case Recorded(speed=speed):
                return self._started_ns + round((session.start_s or 0.0) * SECOND / speed)
            case OpenLoop():
                return self._next_open_ns
            case ClosedLoop(sessions=wanted, ramp_s=ramp_s):
                busy = len(self._active)
                return (
                    max(self._free_ns, self._started_ns + round(busy * ramp_s / wanted * SECOND))
                    if busy < wanted
                    else None
                )
            case _:
                assert_never(self._arrivals)

    def _pull(self) -> None:
        begun = self._ahead.popleft()
        if self._told:
            self._told -= 1
            self._foretold -= begun.start_s is not None
        if not self._ahead:
            self._ahead.extend(islice(self._sessions, 1))

    def _take_open(self) -> int | None:
        return None if self._open is None else self._started_ns + next(self._open)
