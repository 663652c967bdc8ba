"""The driver's side of a run from several nodes: who
starts when, what came back, and whether it is whole.

Nothing passes here while load runs. At a barrier every node hands over what it measured; the
shards are checked against each other and written into the run's own journal, on the driver's
clock; then the barrier of any run follows, and all nodes go on at one instant. A block is
invalid and played again if a shard is not whole or a node's clock moved. It is invalid, and
left at that, if a node could not keep up: neither would it the next time. A node that is
lost ends the run, as a worker does; `--resume` divides what is left over those that remain.
"""

import asyncio
import pickle
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, Protocol

from agentload import __version__
from agentload.dispatch.dispatcher import PlayEnd
from agentload.errors import AgentloadError, LaunchError
from agentload.layout.division import divided
from agentload.live.health import Health, Monitor, together, worst_of
from agentload.live.workers.messages import (
    Broken,
    Go,
    NodeOrder,
    NodeReport,
    Over,
    Play,
    Reached,
    Ready,
)
from agentload.model.commands import Lost, Open, Settle, Stopped
from agentload.model.plan import Plan
from agentload.model.rows import CallRow, Row
from agentload.remote.post import Seat
from agentload.remote.shards import Pair, merged

MS: Final = 1_000_000
AHEAD_NS: Final = 300 * MS
"""How long before the instant nodes hear of it: a message takes some ms."""
PINGS: Final = 9
MOVED_NS: Final = 5 * MS
"""A clock that moves by more than this within a block, beyond
what its readings are uncertain by, is not one axis with ours.
"""
LATE_NS: Final = 250 * MS
"""A node that begins so much later than another played
another load; a stall as long makes timings invalid as well.
"""
ENDING_S: Final = 30.0
"""What survivors of a lost node have to hand over what they measured."""


class Settling(Protocol):
    """The barrier of a run, told what the nodes found wrong
    with the round, and whether that has it played again.
    """

    def __call__(
        self, settle: Settle, ends: tuple[PlayEnd, ...], *, fault: str | None, again: bool
    ) -> Awaitable[tuple[tuple[int, str], ...]]:
        """Close the round's blocks and say which pairs must be played again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How far a node's clock is ahead of ours."""

    ahead_ns: int
    error_ns: int
    """At most: half of what the quickest question and answer took."""


async def reading(seat: Seat) -> Reading:
    """Compare a node's clock with ours: the quickest of several questions says most."""
    found: list[tuple[int, int]] = []
    for _ in range(PINGS):
        before_ns = time.monotonic_ns()
        theirs_ns = await seat.clock_ns()
        after_ns = time.monotonic_ns()
        found.append((after_ns - before_ns, theirs_ns - (before_ns + after_ns) // 2))
    took_ns, ahead_ns = min(found)
    return Reading(ahead_ns=ahead_ns, error_ns=took_ns // 2)


def moved(before: Reading, after: Reading) -> int | None:
    """Return by how much a clock moved against ours between
    two readings; None where that is no more than it may.
    """
    by_ns = abs(after.ahead_ns - before.ahead_ns)
    return by_ns if by_ns > MOVED_NS + before.error_ns + after.error_ns else None


class Crew:
    """Have nodes play a plan; as a runner it plays and is stopped."""

    def __init__(
        self,
        seats: Sequence[Seat],
        plan: Plan,
        order: Play,
        barrier: Settling,
        *,
        write: Callable[[Row], None],
        ended: Callable[[CallRow], None],
        opening: Callable[[Open], Awaitable[None]],
    ) -> None:
        """Have each node play as the *order* says, each its share of the plan."""
        self._seats = tuple(seats)
        self._plan = plan
        self._barrier = barrier
        self._write = write
        self._ended = ended
        self._opening = opening
        self._is_stopping = False
        self._orders = [
            _of(share, order, number)
            for number, share in enumerate(divided(plan, len(seats)), start=1)
        ]
        self._hosts = dict[int, str]()
        self._rounds: list[Health] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def stop(self, *, drain: bool = True) -> None:
        """Have nodes release nothing more; with *drain* what is
        in flight comes to its end, otherwise it is cancelled.
        """
        self._is_stopping = True
        self._spread(Stopped(at_ns=0, drain=drain))

    def lose(self, arm: str, *, for_good: bool) -> None:
        """Have nodes release nothing more on an arm
        whose endpoint is dead: in this round, or ever.
        """
        self._spread(Lost(at_ns=0, arm=arm, for_good=for_good))

    async def play(self) -> Health:
        """Play the plan to its end, or to the end of what is in flight after `stop`.

        Raises LaunchError when a node is lost.
        """
        await asyncio.gather(
            *(
                self._ready(seat, order)
                for seat, order in zip(self._seats, self._orders, strict=True)
            )
        )
        if self._is_stopping:
            return self._health()
        before = await self._go(())
        while True:
            reached, lost = await self._reached()
            if lost is None and all(isinstance(each, Over) for each, _ in reached.values()):
                return self._health()
            before = await self._go(await self._settled(before, reached, lost))

    async def _settled(
        self,
        before: Sequence[Reading],
        reached: Mapping[int, tuple[Reached | Over, Reading]],
        lost: AgentloadError | None,
    ) -> tuple[tuple[int, str], ...]:
        """Take what the nodes measured, and close the round or
        start its servers; return the pairs that are played again.
        """
        if not (
            here := {
                number: each for number, (each, _) in reached.items() if isinstance(each, Reached)
            }
        ):
            assert lost is not None
            raise lost
        after = {number: reached[number][1] for number in here}
        shares = {
            self._orders[number].name: (before[number].ahead_ns + after[number].ahead_ns) // 2
            for number in here
        }
        parts = [(each.ends, shares[self._orders[number].name]) for number, each in here.items()]
        ends = joined(parts, is_whole=lost is None)
        drained = {end.play.arm: end.drain_ns for end in ends}
        found = merged(
            [each.shard for each in here.values()],
            shares,
            expected=self._expected(ends),
            drained_ns=drained,
        )
        for row in found.rows:
            self._write(row)
            if isinstance(row, CallRow):
                self._ended(row)
        command = next((each.command for each in here.values()), None)
        if isinstance(command, Settle):
            self._rounds.append(together([each.health for each in here.values()]))
            fault = lost.message if lost is not None else found.fault or self._jumped(before, after)
            doubt = self._doubt(here, shares)
            void = await self._barrier(command, ends, fault=fault or doubt, again=fault is not None)
        if lost is not None:
            raise lost
        if isinstance(command, Open):
            await self._opening(command)
            return ()
        return () if self._is_stopping else void

    def _jumped(self, before: Sequence[Reading], after: Mapping[int, Reading]) -> str | None:
        for number, each in after.items():
            if (by_ns := moved(before[number], each)) is not None:
                return (
                    f"the clock of {self._named(number)} moved by {by_ns / MS:.0f} ms against "
                    "ours during the block"
                )
        return None

    def _doubt(self, here: Mapping[int, Reached], shares: Mapping[str, int]) -> str | None:
        """Say which nodes could not keep up: one of them decides for all."""
        began = {
            number: each.ends[0].started_ns - shares[self._orders[number].name]
            for number, each in here.items()
            if each.ends
        }
        last = max(began, key=began.__getitem__, default=None)
        if last is not None and (late_ns := began[last] - min(began.values())) > LATE_NS:
            return f"{self._named(last)} began {late_ns / MS:.0f} ms after the others"
        void = {
            number: each.health.void
            for number, each in here.items()
            if each.health.void is not None
        }
        return "; ".join(f"{self._named(number)}: {why}" for number, why in void.items()) or None

    def _expected(self, ends: Sequence[PlayEnd]) -> set[Pair]:
        """Return the sessions of blocks that were played whole; a budget may have left some out."""
        budget = self._plan.load.budget
        if (budget.calls, budget.tokens, budget.seconds) != (None, None, None):
            return set()
        blocks = {block.index: block for block in self._plan.blocks}
        return {
            (end.play.arm, each.session)
            for end in ends
            if end.is_whole
            for each in blocks[end.play.block].sessions
            if each.turns
        }

    async def _go(self, void: tuple[tuple[int, str], ...]) -> tuple[Reading, ...]:
        """Have all nodes go on at one instant; return the
        readings of their clocks that say when that is.
        """
        readings = tuple(await asyncio.gather(*map(reading, self._seats)))
        at_ns = time.monotonic_ns() + AHEAD_NS
        said = (
            seat.say(Go(at_ns=at_ns + each.ahead_ns, void=void))
            for seat, each in zip(self._seats, readings, strict=True)
        )
        await asyncio.gather(*said)
        return readings

    async def _reached(
        self,
    ) -> tuple[dict[int, tuple[Reached | Over, Reading]], AgentloadError | None]:
        """Wait until every node waits, or one is lost: then for what the others have, cut short."""
        tasks = {
            asyncio.create_task(self._waiting(seat)): number
            for number, seat in enumerate(self._seats)
        }
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        lost: AgentloadError | None = None
        if left:
            self._spread(Stopped(at_ns=0, drain=False))
            more, left = await asyncio.wait(left, timeout=ENDING_S)
            done |= more
            for task in left:
                task.cancel()
        found: dict[int, tuple[Reached | Over, Reading]] = {}
        for task in done:
            error = task.exception()
            if error is None:
                found[tasks[task]] = task.result()
            elif isinstance(error, AgentloadError):
                lost = error
            else:
                raise error
        return found, lost

    async def _ready(self, seat: Seat, order: Play) -> None:
        """Have a node get ready."""
        await seat.say(order)
        said = await self._heard(seat)
        assert isinstance(said, Ready), said
        self._hosts[seat.number] = f" ({said.host})"
        if said.version != __version__:
            raise LaunchError(
                f"{said.host} has agentload {said.version}, and this is {__version__}",
                hint="install one version everywhere",
            )

    async def _waiting(self, seat: Seat) -> tuple[Reached | Over, Reading]:
        """Wait until a node waits, and compare its clock once more."""
        said = await self._heard(seat)
        assert isinstance(said, Reached | Over), said
        return said, await reading(seat)

    async def _heard(self, seat: Seat) -> NodeReport:
        """Wait for what a node says: it says one thing, and waits for ours.

        Raises LaunchError when it is lost.
        """
        while not (said := await seat.heard()):
            pass
        if (broken := next((each for each in said if isinstance(each, Broken)), None)) is not None:
            raise self._loss(seat, broken)
        return said[0]

    def _health(self) -> Health:
        """Sum the rounds up: one in which a node could not keep up is what the run is judged by."""
        if not self._rounds:
            return Monitor().health()
        worst = worst_of(self._rounds)
        return replace(
            together(self._rounds),
            cpu_share=max(each.cpu_share for each in self._rounds),
            workers=worst.workers,
        )

    def _loss(self, seat: Seat, broken: Broken) -> AgentloadError:
        if broken.hint is not None:
            return AgentloadError(broken.message, hint=broken.hint)
        return LaunchError(
            f"{self._named(seat.number - 1)} is lost: {broken.message}",
            hint=f"agentload replay … --resume {self._plan.run}",
        )

    def _named(self, number: int) -> str:
        return f"node {number + 1}{self._hosts.get(number + 1, '')}"

    def _spread(self, order: NodeOrder) -> None:
        for seat in self._seats:
            task = asyncio.get_running_loop().create_task(_said(seat, order))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _said(seat: Seat, order: NodeOrder) -> None:
    with suppress(LaunchError):  # who waits for what it says hears that it is gone
        await seat.say(order)


def _of(share: Plan, order: Play, number: int) -> Play:
    packed = pickle.dumps(share, pickle.HIGHEST_PROTOCOL)
    return replace(order, share=packed, name=sha256(packed).hexdigest(), number=number)


def joined(
    parts: Sequence[tuple[Sequence[PlayEnd], int]], *, is_whole: bool
) -> tuple[PlayEnd, ...]:
    """Join the ends of a round's plays on nodes, each with how far its
    clock is ahead: from the first start and drain to the last end.
    """
    plays: dict[tuple[int, str], list[tuple[PlayEnd, int]]] = {}
    for part, ahead_ns in parts:
        for end in part:
            plays.setdefault((end.play.pair, end.play.arm), []).append((end, ahead_ns))
    return tuple(
        replace(
            ends[0][0],
            started_ns=min(end.started_ns - ahead_ns for end, ahead_ns in ends),
            drain_ns=min(
                (end.drain_ns - ahead_ns for end, ahead_ns in ends if end.drain_ns is not None),
                default=None,
            ),
            ended_ns=max(end.ended_ns - ahead_ns for end, ahead_ns in ends),
            is_whole=is_whole and all(end.is_whole for end, _ in ends),
        )
        for ends in plays.values()
    )
