"""Measure how well the client kept up, and say why a part of a run is invalid if it did not."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from agentload.live.hub import ReadPath
from agentload.live.look import cores
from agentload.live.punctuality import Attendance, Punctuality
from agentload.live.wire import WireFacts
from agentload.model.client import BUSY_SHARE, MAX_LATE_MS, lateness
from agentload.model.record import Record
from agentload.model.rows import BlockRow, CallRow

BEAT_S = 0.02
SECOND: Final = 1_000_000_000
# p99. The default latency margins are some ms, and the client must add far less than that.
MAX_SEND_LAG_MS = MAX_LATE_MS
MAX_STALL_MS = 250.0  # one stall this long makes due calls of every session late at once
# No scheduler keeps a process waiting for so long: somebody suspended it.
SUSPENDED_S = 2.0
# A sleep lasts longer; two clocks that are read one after the other differ by less.
ASLEEP_S = 0.5
# Above this share, gaps between chunks show our reads as much as the
# server; one chunk in twenty does not move a p95.
MAX_COALESCED_SHARE = 0.05
MAX_DROPPED_SHARE = 0.01  # above this share, a p99 is made of calls with stamps of user space


class Health(Record):
    """Figures of one part of a run, or of one of its worker processes.

    Only calls that count are in it, as in the report: lags are of the arm whose requests left
    latest, the coalesced share is the largest of any arm.
    """

    calls: int
    send_lag_p50_ms: float | None
    send_lag_p99_ms: float | None
    loop_stall_max_ms: float
    """Longest stall of the event loop in any of the processes."""
    coalesced_share: float | None
    cpu_share: float
    """CPU time of all processes over wall time; 1 is one core."""
    stamp_sources: tuple[str, ...]
    cpu_peak_share: float = 0.0
    """CPU share of the busiest second of the busiest process that holds sockets."""
    clock_steps: int = 0
    """How often the wall clock was stepped; kernel stamps around such a moment are off."""
    dropped_stamps: int = 0
    """Reads and requests that the kernel should have stamped and did not."""
    dropped_share: float | None = None
    """Dropped stamps as a share of all reads."""
    read_path: ReadPath | None = None
    """Who read the sockets; the interpreter where it did so in any process."""
    workers: tuple["Health", ...] = ()
    """Each process that held sockets; empty if only the dispatcher's did."""
    void: str | None = None
    """Why the timings of this part cannot be used, with a remedy; None when they can."""
    interruption: str | None = None
    """What interrupted the block that was settled last, whose figures are left out."""

    @property
    def is_late(self) -> bool:
        """Whether the client could not keep up, which less load may cure."""
        late = void_reason(
            send_lag_p99_ms=self.send_lag_p99_ms,
            loop_stall_max_ms=self.loop_stall_max_ms,
            coalesced_share=self.coalesced_share,
        )
        return late is not None


def asleep_ns() -> int:
    """Return how long this machine has slept since its start; 0 where it does not say so.

    The monotonic clock stands still meanwhile.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None:
        return 0
    return time.clock_gettime_ns(clock) - time.monotonic_ns()


class Monitor:
    """Watch the event loop and collect the lag of each call."""

    def __init__(
        self,
        *,
        is_timing: Callable[[], bool] = lambda: True,
        arms: int = 1,
        asleep_ns: Callable[[], int] = asleep_ns,
    ) -> None:
        """Start to watch calls to *arms* arms.

        Stalls count only while *is_timing* says that something is timed.
        """
        self._is_timing = is_timing
        self._arms = arms
        self._asleep_ns = asleep_ns
        self._asleep_before_ns = asleep_ns()
        self._dropped_settled = 0
        self.begin()

    def begin(self, facts: WireFacts | None = None) -> None:
        """Begin all figures anew; *facts* are those of the wire until now."""
        self._steps_before = facts.clock_steps if facts else 0
        self._dropped_before = facts.dropped_stamps if facts else 0
        self._attendance = Attendance(arms=self._arms)
        self._reads = 0
        self._sources: set[str] = set()
        self._stall_ns = 0
        self._block_stall_ns = 0
        self._interruption: str | None = None
        self._cpu_from = self._cpu_then = time.process_time_ns()
        self._wall_from = self._wall_then = time.monotonic_ns()
        self._peak_share = 0.0

    async def beat(self) -> None:
        """Measure how late the loop wakes and how busy its busiest second is, until cancelled.

        Time in which nothing is timed is left out.
        """
        while True:
            before, was_timing = time.monotonic_ns(), self._is_timing()
            await asyncio.sleep(BEAT_S)
            now = time.monotonic_ns()
            if not (was_timing and self._is_timing()):
                self._begin_second(now)
                continue
            self._block_stall_ns = max(self._block_stall_ns, now - before - round(BEAT_S * 1e9))
            if now - self._wall_then >= SECOND:
                self._peak_share = max(
                    self._peak_share,
                    (time.process_time_ns() - self._cpu_then) / (now - self._wall_then),
                )
                self._begin_second(now)

    def ended(self, ended: CallRow, *, chunks: int) -> None:
        """Note one finished attempt."""
        self._attendance.ended(ended, chunks)
        if chunks:
            self._reads += chunks
            self._sources.add(ended.stamp_source)

    def closed(self, block: BlockRow) -> None:
        """Note a block that is over, and whether its calls count."""
        self._attendance.closed(block)

    def open_block(self, facts: WireFacts | None = None) -> None:
        """Count sleep and steps of the clock from now on: what came before disturbed no block."""
        self._asleep_before_ns = self._asleep_ns()
        self._steps_before = facts.clock_steps if facts else 0

    def settle(
        self, facts: WireFacts | None = None, *, workers: Sequence[Health] = ()
    ) -> str | None:
        """Return what interrupted the block that is over; such a block is to be played again.

        The stalls, steps and lost stamps of an interrupted block are left out of the figures.
        """
        steps = facts.clock_steps if facts else 0
        dropped = facts.dropped_stamps if facts else 0
        asleep_ns = self._asleep_ns()
        own = interruption(
            asleep_s=(asleep_ns - self._asleep_before_ns) / SECOND,
            stall_s=self._block_stall_ns / SECOND,
            clock_steps=steps - self._steps_before,
        )
        if own is None:
            self._stall_ns = max(self._stall_ns, self._block_stall_ns)
        else:
            self._steps_before = steps
            self._dropped_before += dropped - self._dropped_settled
        self._asleep_before_ns, self._dropped_settled = asleep_ns, dropped
        self._block_stall_ns = 0
        of_workers = (each.interruption for each in workers if each.interruption is not None)
        self._interruption = next(of_workers, None) if own is None else own
        return self._interruption

    def health(self, facts: WireFacts | None = None, *, workers: Sequence[Health] = ()) -> Health:
        """Sum up the figures so far and decide whether the part of the run is invalid.

        *facts* are of this process's wire, *workers* are the figures of other processes.
        """
        by_arm = self._attendance.by_arm().values()
        latest = max(by_arm, key=lambda each: each.lag_p99_ms or 0.0, default=Punctuality())
        shares = [each.coalesced_share for each in by_arm if each.coalesced_share is not None]
        p99 = latest.lag_p99_ms
        share = max(shares, default=None)
        own_stall_ns = max(self._stall_ns, self._block_stall_ns)
        stall_ms = max([own_stall_ns / 1e6, *(each.loop_stall_max_ms for each in workers)])
        peak = max((each.cpu_peak_share for each in workers), default=self._peak_share)
        # All processes see the same wall clock, but each may notice a
        # step of it before or after its last call.
        steps = max(
            [
                facts.clock_steps - self._steps_before if facts else 0,
                *(each.clock_steps for each in workers),
            ]
        )
        dropped = (facts.dropped_stamps - self._dropped_before if facts else 0) + sum(
            each.dropped_stamps for each in workers
        )
        dropped_share = dropped / self._reads if self._reads else None
        wall_ns = max(1, time.monotonic_ns() - self._wall_from)
        return Health(
            calls=sum(len(each.lags_ns) for each in by_arm),
            send_lag_p50_ms=latest.lag_p50_ms,
            send_lag_p99_ms=p99,
            loop_stall_max_ms=stall_ms,
            coalesced_share=share,
            cpu_share=(time.process_time_ns() - self._cpu_from) / wall_ns
            + sum(each.cpu_share for each in workers),
            stamp_sources=tuple(sorted(self._sources)),
            cpu_peak_share=peak,
            clock_steps=steps,
            dropped_stamps=dropped,
            dropped_share=dropped_share,
            read_path=facts.read_path if facts else _slowest(workers),
            workers=tuple(workers),
            interruption=self._interruption,
            void=void_reason(
                send_lag_p99_ms=p99,
                loop_stall_max_ms=stall_ms,
                coalesced_share=share,
                clock_steps=steps,
                dropped_share=dropped_share,
                more_workers=more_workers(
                    peak,
                    own_share=self._peak_share if workers else 0.0,
                    workers=max(1, len(workers)),
                    cores=len(cores()),
                ),
            ),
        )

    def _begin_second(self, now_ns: int) -> None:
        self._cpu_then, self._wall_then = time.process_time_ns(), now_ns


def worst_of(parts: Sequence[Health]) -> Health:
    """Return the part whose timings are least reliable: invalid first, then by p99 lag."""
    return max(parts, key=lambda each: (each.void is not None, each.send_lag_p99_ms or 0.0))


def together(parts: Sequence[Health]) -> Health:
    """Sum up the figures of several nodes, or of several rounds.

    Calls, CPU shares and dropped stamps are added; what made a part invalid is of the worst part;
    of the rest the largest value is kept.
    """
    return replace(
        worst_of(parts),
        calls=sum(each.calls for each in parts),
        send_lag_p50_ms=_largest(each.send_lag_p50_ms for each in parts),
        send_lag_p99_ms=_largest(each.send_lag_p99_ms for each in parts),
        loop_stall_max_ms=max(each.loop_stall_max_ms for each in parts),
        coalesced_share=_largest(each.coalesced_share for each in parts),
        dropped_share=_largest(each.dropped_share for each in parts),
        cpu_share=sum(each.cpu_share for each in parts),
        stamp_sources=tuple(sorted({source for each in parts for source in each.stamp_sources})),
        cpu_peak_share=max(each.cpu_peak_share for each in parts),
        clock_steps=max(each.clock_steps for each in parts),
        dropped_stamps=sum(each.dropped_stamps for each in parts),
        read_path=_slowest(parts),
        workers=tuple(parts),
    )


def _largest(values: Iterable[float | None]) -> float | None:
    return max((each for each in values if each is not None), default=None)


def _slowest(parts: Sequence[Health]) -> ReadPath | None:
    paths = [each.read_path for each in parts if each.read_path is not None]
    return min(paths, default=None)  # "interpreter" comes before "thread"


def interruption(*, asleep_s: float, stall_s: float, clock_steps: int) -> str | None:
    """Return what interrupted a block; None if nothing did."""
    if asleep_s >= ASLEEP_S:  # its wall clock is ahead by as much, which is no step of its own
        return f"this machine slept for {asleep_s:.0f} s during the block"
    if stall_s >= SUSPENDED_S:
        return f"this process was suspended for {stall_s:.0f} s during the block"
    if clock_steps > 0:
        return "the wall clock was stepped during the block"
    return None


def void_reason(
    *,
    send_lag_p99_ms: float | None,
    loop_stall_max_ms: float,
    coalesced_share: float | None,
    clock_steps: int = 0,
    dropped_share: float | None = None,
    more_workers: int | None = None,
) -> str | None:
    """Return why timings taken this way cannot be used, with a remedy; None if they can.

    *more_workers* is the number of workers, in all, that the remedy names.
    """
    split = f"play with --workers {more_workers}, " if more_workers is not None else ""
    if clock_steps:
        return (
            f"the wall clock was stepped {clock_steps} times, and kernel stamps are wall time: "
            "let it settle before you measure"
        )
    if send_lag_p99_ms is not None and send_lag_p99_ms > MAX_SEND_LAG_MS:
        late = f"requests left {lateness(send_lag_p99_ms)}"
        return f"{late}: {split}lower the rate or the number of sessions"
    if loop_stall_max_ms > MAX_STALL_MS:
        return (
            f"this process stood still for {loop_stall_max_ms:.0f} ms (limit {MAX_STALL_MS:g}): "
            "leave it a core of its own"
        )
    if coalesced_share is not None and coalesced_share > MAX_COALESCED_SHARE:
        shared = (
            f"{coalesced_share:.0%} of chunks came in one read with the one before (limit "
            f"{MAX_COALESCED_SHARE:.0%})"
        )
        return f"{shared}: {split}lower the load or move the client"
    if dropped_share is not None and dropped_share > MAX_DROPPED_SHARE:
        return (
            f"the kernel gave {dropped_share:.1%} of reads no stamp (limit "
            f"{MAX_DROPPED_SHARE:.0%}): see agentload doctor"
        )
    return None


def more_workers(peak_share: float, *, own_share: float, workers: int, cores: int) -> int | None:
    """Return a number of workers, in all, that relieves the load; None where more do not help.

    They help where one process is short of CPU, the machine has cores left, and the dispatcher,
    which remains a single process, can keep up.
    """
    if peak_share < BUSY_SHARE or own_share >= BUSY_SHARE or cores <= workers:
        return None
    return min(cores, 2 * workers)
