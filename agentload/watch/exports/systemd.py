"""Jobs as systemd units: a service and a timer each. A timer knows time zones and catches up after the machine was off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from cronsim import CronSim

from agentload.errors import AgentloadError
from agentload.watch.exports.parts import Place
from agentload.watch.job import Job
from agentload.watch.schedule import Schedule

WEEKDAYS: Final = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
SLACK_S: Final = 120  # beyond the job's own limit: comparing and storing


def systemd(jobs: Sequence[Job], place: Place) -> dict[str, str]:
    """Return the units by file name."""
    return {
        f"agentload-{job.name}.{kind}": text for job in jobs for kind, text in (("service", _service(job, place)), ("timer", _timer(job)))
    }


def calendar(schedule: Schedule) -> tuple[str, ...]:
    """Return systemd's calendar events for a cron schedule: days and weekdays that are both restricted add up, as in cron."""
    parsed = CronSim(schedule.cron, datetime(2026, 1, 1, tzinfo=UTC))
    minutes, hours, days, months = map(
        _numbers, (parsed.minutes, parsed.hours, parsed.days, parsed.months), ("minute", "hour", "day", "month")
    )
    weekdays = sorted({each % 7 for each in _numbers(parsed.weekdays, "weekday")})
    clock = f"{_listed(hours, 24)}:{_listed(minutes, 60)}:00 {schedule.time_zone}"
    every_day, every_weekday = len(days) == 31, len(weekdays) == 7
    month = _listed(months, 12)
    by_day = f"*-{month}-{_listed(days, 31)} {clock}"
    by_weekday = f"{','.join(WEEKDAYS[each] for each in weekdays)} *-{month}-* {clock}"
    if every_weekday:
        return (by_day,)
    return (by_weekday,) if every_day else (by_day, by_weekday)


def _service(job: Job, place: Place) -> str:
    limit_s = round(job.longest_s + job.schedule.stagger_s + SLACK_S)
    return f"""\
# One at a time by {place.lock(job)}
[Unit]
Description=agentload job {job.name}
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
ExecStart={" ".join(map(_quoted, place.command(job)))}
Environment={_quoted(f"PATH={place.path}")}
StandardOutput=append:{_escaped(str(place.log(job)))}
StandardError=inherit
TimeoutStartSec={limit_s}
# 3 says that something got worse: the job itself has worked.
SuccessExitStatus=3
"""


def _timer(job: Job) -> str:
    events = "\n".join(f"OnCalendar={each}" for each in calendar(job.schedule))
    return f"""\
# {job.schedule.cron} ({job.schedule.time_zone})
[Unit]
Description=Schedule of agentload job {job.name}

[Timer]
{events}
AccuracySec=1s
Persistent=true

[Install]
WantedBy=timers.target
"""


def _numbers(found: Iterable[object], field: str) -> list[int]:
    numbers = [each for each in found if isinstance(each, int) and each >= 0]
    if len(numbers) < len(list(found)):
        raise AgentloadError(f"a schedule with L or # in its {field} has no systemd form", hint="agentload watch export crontab")
    return sorted(numbers)


def _listed(numbers: Sequence[int], all_of_them: int) -> str:
    return "*" if len(numbers) == all_of_them else ",".join(f"{each:02}" for each in numbers)


def _quoted(text: str) -> str:
    escaped = _escaped(text).replace("$", "$$").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if any(each in text for each in " \t\"'\\;") else escaped


def _escaped(text: str) -> str:
    return text.replace("%", "%%")
