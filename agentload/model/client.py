"""Can this machine measure?

What was seen of its timers and cores, next to the load that is asked for.

A request that leaves late is late by our fault, and a part of a run in which one of a hundred
leaves 5 ms late is invalid (`live.health`). Three things make requests late: timers that fire late,
cores that other programs or other machines of the host take, and more chunks than a process reads.
"""

import math
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from agentload.model.record import Record

Verdict: TypeAlias = Literal["ok", "doubtful", "cannot"]

MAX_LATE_MS: Final = 5.0
"""p99 of a valid part of a run (`live.health`)."""
_FINEST: Final = 3
"""Most decimals of a lag."""
DOUBTFUL_LATE_MS: Final = MAX_LATE_MS / 2
"""The other half is needed for what else delays a request."""
DOUBTFUL_TAKEN: Final = 0.25
"""Of all cores: a quiet machine shows less than 5%, one other busy program on two cores a half."""
LEAST_FREE_CORES: Final = 0.25
"""What is left must hold a client: a decision with two sessions on emulated servers takes 0.1."""
DOUBTFUL_STEAL: Final = 0.05
"""Of the time of a virtual machine: the host gave it to others in pieces of some ms."""
BUSY_SHARE: Final = 0.7
"""Of a core for a second: from here on bursts wait for the process, not for the network."""
STREAM_US = 14.0
"""CPU a chunk, in µs, as measured (docs/transport.md)."""
TURN_US = 1800.0
"""CPU a turn of the event loop, in µs, shared by its streams."""
MOST_US = 120.0
"""Cap of the CPU a chunk, in µs: reached below 17 streams."""


def lateness(lag_ms: float) -> str:
    """Say how late requests left that left too late.

    A lag above the limit is shown with up to 3 decimals, so that it does not read as the limit.
    """
    shown = (f"{lag_ms:.{decimals}f}" for decimals in range(1, _FINEST))
    apart = (text for text in shown if float(text) > MAX_LATE_MS)
    return f"{next(apart, f'{lag_ms:.{_FINEST}f}')} ms late (p99; limit {MAX_LATE_MS:g})"


class ClientLook(Record):
    """Hold what was seen of this machine within a second."""

    cores: int
    timer_p50_ms: float
    """How late a timer fires."""
    timer_p99_ms: float
    taken_share: float
    """Share of the time, over all cores, in which
    one process wanted a core and something else ran.
    """
    steal_share: float | None = None
    """Of the machine's time, given to other machines of its host; None where nothing says."""
    load: float | None = None
    """Processes that wanted to run, over the last minute."""


class AskedLoad(Record):
    """State what a run asks of this machine."""

    streams: float
    """At once."""
    chunks_per_s: float
    workers: int = 1
    has_emulated: bool = False
    """The servers run on this machine, too."""

    @property
    def cpu_share(self) -> float:
        """Return about how much of a core each process needs to read the chunks."""
        us = min(MOST_US, STREAM_US + TURN_US / max(1.0, self.streams))
        return self.chunks_per_s * us * 1e-6 / self.workers


class Readiness(Record):
    """Say whether a machine can measure, what was seen, and what to do about it."""

    verdict: Verdict
    seen: str
    cure: str | None = None


def readiness(look: ClientLook, asked: AskedLoad | None = None) -> Readiness:
    """Judge what was seen of a machine, for the load that is *asked* of it."""
    free = look.cores * (1 - look.taken_share)
    is_hopeless = look.timer_p50_ms > MAX_LATE_MS or free < LEAST_FREE_CORES
    doubts = tuple(_doubts(look, asked))
    seen = (
        f"timers fire {look.timer_p99_ms:.1f} ms late (p99), other programs take "
        f"{look.taken_share:.0%} of {look.cores} cores"
    )
    if is_hopeless:
        return Readiness(verdict="cannot", seen=seen, cure=_quieter(look, asked))
    if not doubts:
        return Readiness(verdict="ok", seen=seen)
    more = "".join(f", {text}" for text, _ in doubts if text)
    cures = dict.fromkeys(cure for _, cure in doubts)
    return Readiness(verdict="doubtful", seen=f"{seen}{more}", cure="; ".join(cures))


def _doubts(look: ClientLook, asked: AskedLoad | None) -> Iterator[tuple[str, str]]:
    """Yield each doubt and its remedy.

    The text is empty for timers and cores, which `seen` of `readiness` states already.
    """
    if look.timer_p99_ms > DOUBTFUL_LATE_MS or look.taken_share > DOUBTFUL_TAKEN:
        yield "", _quieter(look, asked)
    if look.steal_share is not None and look.steal_share > DOUBTFUL_STEAL:
        stolen = f"its host gives {look.steal_share:.0%} of its time to others"
        yield stolen, "measure from a machine with cores of its own"
    if asked is not None and asked.cpu_share > BUSY_SHARE:
        each = (
            "of a core" if asked.workers == 1 else f"of a core in each of {asked.workers} workers"
        )
        chunks = (
            f"about {asked.chunks_per_s:,.0f} chunks a second take {asked.cpu_share:.0%} {each}"
        )
        wanted = math.ceil(asked.cpu_share * asked.workers / BUSY_SHARE)
        fits = wanted <= look.cores
        yield chunks, f"--workers {wanted}" if fits else "lower the number of sessions or the rate"


def _quieter(look: ClientLook, asked: AskedLoad | None) -> str:
    busy = "" if look.load is None else f" ({look.load:.1f} processes want {look.cores} cores)"
    shared = asked is not None and asked.has_emulated
    own = "; emulated servers share its cores, so ask for fewer sessions" if shared else ""
    return f"stop what else runs here{busy}, or measure from another machine{own}"
