"""Drive a run from several nodes: have them start, and check what they measured.

No call passes through the driver while load runs. At a barrier every node hands over what it
measured; the shards are checked against each other and written into the run's own journal, on
the driver's clock; then the usual barrier of a run follows, and all nodes continue at one
instant. A block is invalid and played again if a shard is incomplete or a node's clock moved. It
is invalid and not played again if a node could not keep up: it could not the next time either. A
node that is lost ends the run, as a lost worker does; `--resume` divides what is left over the
nodes that remain.
"""

import asyncio
import pickle
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final

from agentload import __version__
from agentload.dispatch.dispatcher import PlayEnd
from agentload.errors import AgentloadError, LaunchError
from agentload.layout.division import divide
from agentload.live.health import Health, Monitor, together, worst_of
from agentload.live.runner import Settling
from agentload.live.workers.messages import Go, Order, Over, Reached, Ready, Report
from agentload.live.workers.node import Seat, listen
from agentload.model.commands import Lost, Open, Stopped
from agentload.model.plan import Plan
from agentload.model.record import Record
from agentload.model.rows import CallRow, Row
from agentload.remote.player import PlayShare
from agentload.remote.shards import Pair, merge

MS: Final = 1_000_000
AHEAD_NS: Final = 300 * MS
"""How far ahead the common start instant is set: a message to the nodes takes some ms."""
PINGS: Final = 9
MOVED_NS: Final = 5 * MS
"""A clock that moves by more within a block, beyond reading errors, makes the block invalid."""
LATE_NS: Final = 250 * MS
"""A node that starts a block this much later than another has played another load.

A stall of this length makes timings invalid as well.
"""
ENDING_S: Final = 30.0
"""Time for the other nodes to hand over what they measured after one is lost."""


class Reading(Record):
    """Hold how far a node's clock is ahead of ours."""

    ahead_ns: int
    error_ns: int
    """Largest possible error: half of the time of the quickest question and answer."""


async def reading(seat: Seat) -> Reading:
    """Compare a node's clock with ours; the quickest of several questions is the most exact."""
    found: list[tuple[int, int]] = []
    for _ in range(PINGS):
        before_ns = time.monotonic_ns()
        theirs_ns = await seat.clock_ns()
        after_ns = time.monotonic_ns()
        found.append((after_ns - before_ns, theirs_ns - (before_ns + after_ns) // 2))
    took_ns, ahead_ns = min(found)
    return Reading(ahead_ns=ahead_ns, error_ns=took_ns // 2)


def drift(before: Reading, after: Reading) -> int | None:
    """Return how far a clock moved between two readings; None if within the allowed error."""
    by_ns = abs(after.ahead_ns - before.ahead_ns)
    if by_ns > MOVED_NS + before.error_ns + after.error_ns:
        return by_ns
    return None


class NodeArrival(Record):
    """Describe a node at a round's end, with readings of its clock before and after."""

    name: str
    share: str
    reached: Reached
    before: Reading
    after: Reading

    @property
    def ahead_ns(self) -> int:
        """How far the node's clock was ahead of ours in the middle of the round."""
        return (self.before.ahead_ns + self.after.ahead_ns) // 2


class Crew:
    """Have nodes play a plan; offers `play`, `stop` and `lose` as a runner does."""

    def __init__(
        self,
        seats: Sequence[Seat],
        plan: Plan,
        order: PlayShare,
        barrier: Settling,
        *,
        write: Callable[[Row], None],
        ended: Callable[[CallRow], None],
        opening: Callable[[Open], Awaitable[None]],
    ) -> None:
        """Prepare to have each node play its share of the plan as *order* says."""
        self._seats = tuple(seats)
        self._plan = plan
        self._barrier = barrier
        self._write = write
        self._ended = ended
        self._opening = opening
        self._is_stopping = False
        shares = divide(plan, len(seats))
        self._orders = {
            seat: _of(share, order, number)
            for number, (seat, share) in enumerate(zip(self._seats, shares, strict=True), start=1)
        }
        self._names = {seat: f"node {seat.number}" for seat in self._seats}
        self._rounds: list[Health] = []

    def stop(self, *, drain: bool = True) -> None:
        """Have nodes release nothing more; without *drain*, cancel what is in flight."""
        self._is_stopping = True
        self._spread(Stopped(at_ns=0, drain=drain))

    def lose(self, arm: str, *, for_good: bool) -> None:
        """Have nodes release nothing more on a dead arm: in this round, or for good."""
        self._spread(Lost(at_ns=0, arm=arm, for_good=for_good))

    async def play(self) -> Health:
        """Play the plan to its end; after `stop`, until nothing is in flight.

        Raises LaunchError when a node is lost.
        """
        await asyncio.gather(*map(self._ready, self._seats))
        if self._is_stopping:
            return self._health()
        void: tuple[tuple[int, str], ...] = ()
        while True:
            before = await self._go(void)
            arrivals, lost = await self._arrivals(before)
            if arrivals:
                void = await self._settle(arrivals, lost)
            if lost is not None:
                raise lost
            if not arrivals:
                return self._health()

    async def _settle(
        self, arrivals: Sequence[NodeArrival], lost: AgentloadError | None
    ) -> tuple[tuple[int, str], ...]:
        """Write what the nodes measured; close the round, or start the servers of the next.

        Returns the pairs that are played again.
        """
        ends = _join_ends(
            [(each.reached.ends, each.ahead_ns) for each in arrivals], is_whole=lost is None
        )
        found = merge(
            [each.reached.shard for each in arrivals],
            {each.share: each.ahead_ns for each in arrivals},
            expected=self._expected(ends),
            drained_ns={end.play.arm: end.drain_ns for end in ends},
        )
        for row in found.rows:
            self._write(row)
            if isinstance(row, CallRow):
                self._ended(row)
        command = arrivals[0].reached.command
        if isinstance(command, Open):
            if lost is None:
                await self._opening(command)
            return ()
        self._rounds.append(together([each.reached.health for each in arrivals]))
        if lost is None:
            fault = found.fault or _jump(arrivals) or _interruption(arrivals)
        else:
            fault = lost.message
        void = await self._barrier(
            command, ends, fault=fault or _doubt(arrivals), again=fault is not None
        )
        return () if self._is_stopping else void

    def _expected(self, ends: Sequence[PlayEnd]) -> set[Pair]:
        """Return the sessions of blocks that were played whole; none if there is a budget."""
        budget = self._plan.load.budget
        if (budget.calls, budget.tokens, budget.seconds) != (None, None, None):
            return set()
        blocks = {block.index: block for block in self._plan.blocks}
        whole = [end.play for end in ends if end.is_whole]
        return {
            (play.arm, each.session)
            for play in whole
            for each in blocks[play.block].sessions
            if each.turns
        }

    async def _go(self, void: tuple[tuple[int, str], ...]) -> dict[Seat, Reading]:
        """Have all nodes continue at one instant; return the readings of their clocks."""
        readings = await asyncio.gather(*map(reading, self._seats))
        at_ns = time.monotonic_ns() + AHEAD_NS
        for seat, each in zip(self._seats, readings, strict=True):
            seat.say(Go(at_ns=at_ns + each.ahead_ns, void=void))
        return dict(zip(self._seats, readings, strict=True))

    async def _arrivals(
        self, before: Mapping[Seat, Reading]
    ) -> tuple[list[NodeArrival], AgentloadError | None]:
        """Wait until every node has reached the barrier, or one is lost.

        If one is lost, the others are cut short, and what they have is returned with the error.
        No node arrives when all is played.
        """
        tasks = [asyncio.create_task(self._arrival(seat, each)) for seat, each in before.items()]
        _, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if left:
            self._spread(Stopped(at_ns=0, drain=False))
            _, left = await asyncio.wait(left, timeout=ENDING_S)
            for task in left:
                task.cancel()
        arrivals: list[NodeArrival] = []
        lost: AgentloadError | None = None
        for task in tasks:
            if task in left:
                continue
            try:
                arrival = task.result()
            except AgentloadError as error:
                lost = error
            else:
                arrivals += [] if arrival is None else [arrival]
        return arrivals, lost

    async def _arrival(self, seat: Seat, before: Reading) -> NodeArrival | None:
        """Wait until a node reaches the barrier, read its clock; None if its share is over."""
        said = await self._report(seat)
        if isinstance(said, Over):
            return None
        assert isinstance(said, Reached), said
        return NodeArrival(
            name=self._names[seat],
            share=self._orders[seat].name,
            reached=said,
            before=before,
            after=await reading(seat),
        )

    async def _ready(self, seat: Seat) -> None:
        """Start a node's work; raise LaunchError if it has another version of agentload."""
        await seat.start(self._orders[seat])
        said = await self._report(seat)
        assert isinstance(said, Ready), said
        self._names[seat] += f" ({said.host})"
        if said.version != __version__:
            raise LaunchError(
                f"{said.host} has agentload {said.version}, and this is {__version__}",
                hint="install one version everywhere",
            )

    async def _report(self, seat: Seat) -> Report:
        """Return the report that a node sends before it waits; raise LaunchError if lost."""

        def loss(how: str) -> LaunchError:
            return LaunchError(
                f"{self._names[seat]} is lost: its process {how}",
                hint=f"agentload replay … --resume {self._plan.run}",
            )

        said: tuple[Report, ...] = ()
        while not said:
            said = await listen(seat, loss)
        return said[0]

    def _health(self) -> Health:
        """Sum up the rounds; a round in which a node could not keep up decides for the run."""
        if not self._rounds:
            return Monitor().health()
        worst = worst_of(self._rounds)
        return replace(
            together(self._rounds),
            cpu_share=max(each.cpu_share for each in self._rounds),
            workers=worst.workers,
        )

    def _spread(self, order: Order) -> None:
        for seat in self._seats:
            seat.say(order)


def _jump(arrivals: Sequence[NodeArrival]) -> str | None:
    """Return which node's clock moved during the round; None if none did."""
    for each in arrivals:
        by_ns = drift(each.before, each.after)
        if by_ns is not None:
            moved = f"the clock of {each.name} moved by {by_ns / MS:.0f} ms"
            return f"{moved} against ours during the block"
    return None


def _interruption(arrivals: Sequence[NodeArrival]) -> str | None:
    """Return which node was interrupted during the round, and by what; None if none was."""
    for each in arrivals:
        if each.reached.health.interruption is not None:
            return f"{each.name}: {each.reached.health.interruption}"
    return None


def _doubt(arrivals: Sequence[NodeArrival]) -> str | None:
    """Return which nodes could not keep up; None if all did."""
    began = {
        each.name: each.reached.ends[0].started_ns - each.ahead_ns
        for each in arrivals
        if each.reached.ends
    }
    last = max(began, key=began.__getitem__, default=None)
    if last is not None:
        late_ns = began[last] - min(began.values())
        if late_ns > LATE_NS:
            return f"{last} began {late_ns / MS:.0f} ms after the others"
    doubts = [
        f"{each.name}: {each.reached.health.void}"
        for each in arrivals
        if each.reached.health.void is not None
    ]
    return "; ".join(doubts) or None


def _of(share: Plan, order: PlayShare, number: int) -> PlayShare:
    packed = pickle.dumps(share, pickle.HIGHEST_PROTOCOL)
    return replace(order, share=packed, name=sha256(packed).hexdigest(), number=number)


def _join_ends(
    parts: Sequence[tuple[Sequence[PlayEnd], int]], *, is_whole: bool
) -> tuple[PlayEnd, ...]:
    """Join the plays of a round over all nodes: first start, first drain, last end.

    Each part comes with how far its node's clock is ahead of ours, in ns.
    """
    plays: dict[tuple[int, str], list[tuple[PlayEnd, int]]] = {}
    for part, ahead_ns in parts:
        for end in part:
            plays.setdefault((end.play.pair, end.play.arm), []).append((end, ahead_ns))
    joined = []
    for ends in plays.values():
        drains = [end.drain_ns - ahead_ns for end, ahead_ns in ends if end.drain_ns is not None]
        first, _ = ends[0]
        whole = replace(
            first,
            started_ns=min(end.started_ns - ahead_ns for end, ahead_ns in ends),
            drain_ns=min(drains, default=None),
            ended_ns=max(end.ended_ns - ahead_ns for end, ahead_ns in ends),
            is_whole=is_whole and all(end.is_whole for end, _ in ends),
        )
        joined.append(whole)
    return tuple(joined)
