"""Say when a job is due: cron's five fields in a time zone.

Where the clocks change, the rules are those of Debian's cron.
"""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from agentload.errors import AgentloadError

SECOND: Final = 1_000_000_000
# Most firings that are listed: nobody reads a list of a million missed minutes.
COUNTED: Final = 1000
HOUR_NS: Final = 3600 * SECOND
CORRECTED_NS: Final = 3 * HOUR_NS
"""Most nanoseconds by which a clock goes back when it is corrected.

A clock that goes back further was wrong before, and what it said is forgotten: Debian's cron has
the same limit.
"""


class Schedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Define a schedule by five cron fields in a time zone."""

    cron: str
    time_zone: str = "UTC"
    stagger_s: float = 0.0
    """Largest delay of a start, in seconds.

    Each job has a fixed share of its own, so that jobs of one instant do not meet.
    """


def check(schedule: Schedule, *, where: str) -> None:
    """Raise `AgentloadError` for an unreadable expression or zone, or one that never fires."""
    try:
        zone = ZoneInfo(schedule.time_zone)
    except (KeyError, ValueError, OSError) as error:
        raise AgentloadError(
            f"{where}: no time zone '{schedule.time_zone}'", hint="such as Europe/Berlin, or UTC"
        ) from error
    try:
        if len(schedule.cron.split()) != 5:
            raise CronSimError("expected five fields")
        next(CronSim(schedule.cron, datetime(2026, 1, 1, tzinfo=zone)))
    # A field of thousands of digits is no whole number to Python.
    except (CronSimError, StopIteration, ValueError) as error:
        why = str(error) or "it never fires"
        raise AgentloadError(
            f"{where}: schedule '{schedule.cron}': {why}",
            hint="minute hour day month weekday, such as '0 2 * * 1-5'",
        ) from error
    if schedule.stagger_s < 0:
        raise AgentloadError(
            f"{where}: stagger_s must not be negative, got {schedule.stagger_s:g}",
            hint="stagger_s: 300",
        )


def firings(schedule: Schedule, after_ns: int) -> Iterator[int]:
    """Yield the instants after *after_ns* at which the schedule fires."""
    # Whole seconds at least: cronsim starts after the minute that it is given.
    start = datetime.fromtimestamp(after_ns // SECOND, UTC).astimezone(ZoneInfo(schedule.time_zone))
    for each in CronSim(schedule.cron, start - timedelta(minutes=1)):
        at_ns = round(each.timestamp()) * SECOND
        if at_ns > after_ns:
            yield at_ns


def firings_between(schedule: Schedule, after_ns: int, until_ns: int) -> tuple[int, ...]:
    """List the firings after one instant, up to and with another; at most the last `COUNTED`."""
    found: list[int] = []
    for at_ns in takewhile(lambda each: each <= until_ns, firings(schedule, after_ns)):
        found.append(at_ns)
        if len(found) > COUNTED:
            return _latest(schedule, until_ns)
    return tuple(found)


def _latest(schedule: Schedule, until_ns: int) -> tuple[int, ...]:
    zone = ZoneInfo(schedule.time_zone)
    start = datetime.fromtimestamp(until_ns // SECOND, UTC).astimezone(zone) + timedelta(seconds=1)
    backwards = CronSim(schedule.cron, start, reverse=True)
    return tuple(sorted(round(next(backwards).timestamp()) * SECOND for _ in range(COUNTED)))


def stagger_s(schedule: Schedule, *, job: str, host: str) -> float:
    """Return this job's share of the stagger on this host, in seconds.

    It is always the same, so that runs stay equally far apart.
    """
    digest = hashlib.sha256(f"{host}/{job}".encode()).digest()
    return schedule.stagger_s * int.from_bytes(digest[:8], "big") / 2**64


def unanswered_firings(schedule: Schedule, *, last_ns: int | None, now_ns: int) -> tuple[int, ...]:
    """List the firings since a job was last executed.

    A new job has only the latest firing of the last hour.
    """
    if last_ns is None:
        return firings_between(schedule, now_ns - HOUR_NS, now_ns)[-1:]
    return firings_between(schedule, last_ns, now_ns)
