"""Jobs as lines of a crontab.

Debian's cron reads times in the machine's zone alone. A job of another zone is called as often as it may be due there, and
`--scheduled` lets it do nothing at any other time.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from agentload.watch.exports.parts import Place
from agentload.watch.job import Job

BEGIN: Final = "# agentload watch: begin"
END: Final = "# agentload watch: end"
# Zones shift against each other by daylight saving: a look at every month of a year sees all of it.
MONTHS: Final = tuple(datetime(2026, month, 15, 12, tzinfo=UTC) for month in range(1, 13))


def crontab(jobs: Sequence[Job], place: Place) -> str:
    """Return the lines between our markers, markers included."""
    lines = [f"{BEGIN} {place.jobs_file} (agentload watch install --remove takes it out)"]
    for job in jobs:
        command = shlex.join(place.command(job)).replace("%", "\\%")  # cron reads a bare % as a new line
        log = shlex.quote(str(place.log(job))).replace("%", "\\%")
        lines.append(f"# {job.name}: {job.schedule.cron} ({job.schedule.time_zone}); one at a time by {place.lock(job)}")
        lines.append(f"{when(job, place.local_zone)} PATH={shlex.quote(place.path)} {command} >>{log} 2>&1")
    return "\n".join([*lines, f"{END} {place.jobs_file}"]) + "\n"


def when(job: Job, local_zone: str) -> str:
    """Return the five fields that cover a job's schedule in the machine's zone."""
    schedule = job.schedule
    apart = {_apart(schedule.time_zone, local_zone, each) for each in MONTHS}
    if apart == {timedelta()}:
        return schedule.cron
    minute = schedule.cron.split()[0]
    return f"{minute} * * * *" if all(each % timedelta(hours=1) == timedelta() for each in apart) else "* * * * *"


def without(text: str, jobs_file: str) -> str:
    """Take our block for this jobs file out of a crontab; everything else stays as it is."""
    kept: list[str] = []
    is_ours = False
    for line in text.splitlines(keepends=True):
        if line.startswith(f"{BEGIN} {jobs_file} "):
            is_ours = True
        elif is_ours and line.rstrip("\n") == f"{END} {jobs_file}":
            is_ours = False
        elif not is_ours:
            kept.append(line)
    return "".join(kept)


def installed(text: str, block: str, jobs_file: str) -> str:
    """Put our block at the end of a crontab, in place of an older one."""
    rest = without(text, jobs_file)
    return rest + ("" if not rest or rest.endswith("\n") else "\n") + block


def _apart(one: str, other: str, at: datetime) -> timedelta:
    first, second = (at.astimezone(ZoneInfo(zone)).utcoffset() for zone in (one, other))
    assert first is not None
    assert second is not None
    return first - second
