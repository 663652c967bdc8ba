"""Hand out a block's sessions when their time has come.

Sessions are pulled from their iterator shortly before they start,
so memory grows with what is in flight, not with the length of the trace.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import assert_never

from agentload.dispatch.arrivals import SECOND, rng_of, starts
from agentload.model.plan import Arrivals, Block, ClosedLoop, OpenLoop, Plan, Recorded
from agentload.model.trace import Session

# A session is handed out this long before it starts, to make its first prompt ready.
AHEAD_NS = SECOND // 2


def intake(plan: Plan, block: Block, *, started_ns: int) -> "SessionStarts":
    """Return the intake of one play of a block; its plays differ only in *started_ns*."""
    seed = (plan.seed, "arrivals", block.index)
    return SessionStarts(
        block.sessions,
        plan.load.arrivals,
        seed=seed,
        started_ns=started_ns,
        is_held=block.is_window,
    )


class SessionStarts:
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
        """Prepare to hand out sessions; while *is_held*, only those that start at once."""
        self._is_held = is_held
        self.drain_ns: int | None = None
        """When a session ended and none was left to replace it: the load drains; else None."""
        self._arrivals = arrivals
        self._started_ns = started_ns
        self._sessions = iter(sessions)
        self._ahead: deque[Session] = deque(islice(self._sessions, 1))
        """Sessions pulled and not handed out; `followers` has looked at the first `_told`."""
        self._told = 0
        self._foretold = 0
        """How many of those first sessions are root sessions, which no other session spawns."""
        self._open = starts(arrivals, rng_of(*seed))
        self._next_open_ns = self._take_open()
        self._holders: dict[str, str] = {}
        """By session that is not over: the root session in whose slot it is."""
        self._active: Counter[str] = Counter()
        """By root session that has a slot: how many of its sessions are not over."""
        self._root = ""
        self._free_ns = started_ns

    def begin(self, at_ns: int) -> None:
        """Start the block's clock: recorded starts count from *at_ns*."""
        self._is_held = False
        self._started_ns = self._free_ns = at_ns

    @property
    def is_empty(self) -> bool:
        """Whether every session was handed out."""
        return not self._ahead

    def take(self, now_ns: int) -> Iterator[tuple[Session, int | None]]:
        """Yield each session that must be handed out by *now_ns*, with its start in ns.

        A session that another one spawns has None: it starts when its parent says so.
        """
        while self._ahead:
            session = self._ahead[0]
            if session.start_s is None:
                self._pull()
                if isinstance(self._arrivals, ClosedLoop) and self._arrivals.holds_trees:
                    self._hold(session.session)
                yield session, None
                continue
            start_ns = self._start_ns(session)
            if start_ns is None or start_ns - AHEAD_NS > now_ns:
                return
            self._pull()
            self._next_open_ns = self._take_open()
            self._root = session.session
            self._hold(session.session)
            yield session, start_ns

    def _hold(self, session: str) -> None:
        """Note that a session keeps the slot of the root session that came last."""
        self._holders[session] = self._root
        self._active[self._root] += 1

    def followers(self) -> Iterator[Session]:
        """Yield, once each, the sessions of a closed loop that start when others end.

        Nobody knows when they start; as many are yielded as sessions may end at the same time.
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
        """Note that a session is over: in a closed loop the next one may start."""
        root = self._holders.pop(session, None)
        if root is None:
            return
        self._active[root] -= 1
        if not self._active[root]:
            del self._active[root]
            self._free_ns = at_ns
            if self.is_empty and self.drain_ns is None:
                self.drain_ns = at_ns

    def next_ns(self) -> int | None:
        """Return when `take` has something to yield, unless a session ends first; else None."""
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
                if busy < wanted:
                    return max(
                        self._free_ns, self._started_ns + round(busy * ramp_s / wanted * SECOND)
                    )
                return None
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
        if self._open is None:
            return None
        return self._started_ns + next(self._open)
