"""Write jobs for this machine's schedulers: lines of a crontab, or systemd units.

A job has a service and a timer of systemd. Every file names absolute paths, because a scheduler
starts anywhere with hardly any environment. Debian's cron reads times in the machine's zone alone:
a job of another zone is called as often as it may be due there, and `--scheduled` lets it do
nothing at any other time. A timer of systemd knows time zones, and catches up after the machine was
off.
"""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim

from agentload.errors import AgentloadError
from agentload.model.record import Record
from agentload.watch.job import Job
from agentload.watch.jobs_file import Jobs
from agentload.watch.ledger import lock_path
from agentload.watch.schedule import Schedule


class Machine(Record):
    """Name where things are on the machine that the files are for."""

    program: Path
    """Agentload program to call."""
    jobs_file: Path
    database: Path
    local_zone: str
    """Time zone in which its schedulers read times."""
    path: str
    """PATH for the commands that an arms file may call."""

    def command(self, job: Job) -> tuple[str, ...]:
        """Return the command that executes a job."""
        return (
            str(self.program),
            "watch",
            "run",
            job.name,
            "--file",
            str(self.jobs_file),
            "--scheduled",
        )

    def log(self, job: Job) -> Path:
        """Return the log file of a job."""
        return self.database.with_suffix(".journal") / f"watch-{job.name}.log"

    def lock(self, job: Job) -> Path:
        """Return the lock that keeps two executions apart."""
        return lock_path(self.database, job.name)


BEGIN: Final = "# agentload watch: begin"
END: Final = "# agentload watch: end"
# Daylight saving shifts zones against each other: one instant in every month shows all shifts.
MONTHS: Final = tuple(datetime(2026, month, 15, 12, tzinfo=UTC) for month in range(1, 13))


def crontab(jobs: Sequence[Job], machine: Machine) -> str:
    """Return the crontab lines of the jobs, with our markers around them."""
    lines = [f"{BEGIN} {machine.jobs_file} (agentload watch install --remove takes it out)"]
    for job in jobs:
        schedule = job.schedule
        command = shlex.join(machine.command(job))
        log = shlex.quote(str(machine.log(job)))
        called = f"{command} >>{log} 2>&1".replace("%", "\\%")  # cron reads a bare % as a new line
        lines.append(
            f"# {job.name}: {schedule.cron} ({schedule.time_zone}); one at a time by "
            f"{machine.lock(job)}"
        )
        lines.append(
            f"{cron_fields(job, machine.local_zone)} PATH={shlex.quote(machine.path)} {called}"
        )
    lines.append(f"{END} {machine.jobs_file}")
    return "\n".join(lines) + "\n"


def cron_fields(job: Job, local_zone: str) -> str:
    """Return the five fields that cover a job's schedule in the machine's zone."""
    schedule = job.schedule
    apart = {_apart(schedule.time_zone, local_zone, each) for each in MONTHS}
    if apart == {timedelta()}:
        return schedule.cron
    are_whole_hours = all(each % timedelta(hours=1) == timedelta() for each in apart)
    minute = schedule.cron.split()[0] if are_whole_hours else "*"
    return f"{minute} * * * *"


def without_block(text: str, jobs_file: str) -> str:
    """Remove our block for this jobs file from a crontab; everything else stays as it is."""
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


def with_block(text: str, block: str, jobs_file: str) -> str:
    """Put our block at the end of a crontab, in place of an older one."""
    rest = without_block(text, jobs_file)
    if rest and not rest.endswith("\n"):
        rest += "\n"
    return rest + block


def _apart(one: str, other: str, at: datetime) -> timedelta:
    first, second = (at.astimezone(ZoneInfo(zone)).utcoffset() for zone in (one, other))
    assert first is not None
    assert second is not None
    return first - second


WEEKDAYS: Final = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")


def systemd(jobs: Sequence[Job], machine: Machine) -> dict[str, str]:
    """Return the units by file name."""
    units: dict[str, str] = {}
    for job in jobs:
        units[f"agentload-{job.name}.service"] = _service(job, machine)
        units[f"agentload-{job.name}.timer"] = _timer(job)
    return units


def _service(job: Job, machine: Machine) -> str:
    return f"""\
# One at a time by {machine.lock(job)}
[Unit]
Description=agentload job {job.name}
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
ExecStart={" ".join(map(_quoted, machine.command(job)))}
Environment={_quoted(f"PATH={machine.path}")}
StandardOutput=append:{_escaped(str(machine.log(job)))}
StandardError=inherit
TimeoutStartSec={job.timeout_s}
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


def calendar(schedule: Schedule) -> tuple[str, ...]:
    """Return systemd's calendar events for a cron schedule.

    Days and weekdays that are both restricted add up, as in cron.
    """
    parsed = CronSim(schedule.cron, datetime(2026, 1, 1, tzinfo=UTC))
    minutes, hours, days, months = map(
        _numbers,
        (parsed.minutes, parsed.hours, parsed.days, parsed.months),
        ("minute", "hour", "day", "month"),
    )
    weekdays = sorted({each % 7 for each in _numbers(parsed.weekdays, "weekday")})
    clock = f"{_listed(hours, 24)}:{_listed(minutes, 60)}:00 {schedule.time_zone}"
    every_day = len(days) == 31
    every_weekday = len(weekdays) == 7
    month = _listed(months, 12)
    by_day = f"*-{month}-{_listed(days, 31)} {clock}"
    by_weekday = f"{','.join(WEEKDAYS[each] for each in weekdays)} *-{month}-* {clock}"
    if every_weekday:
        return (by_day,)
    return (by_weekday,) if every_day else (by_day, by_weekday)


def _numbers(found: Iterable[object], field: str) -> list[int]:
    numbers = [each for each in found if isinstance(each, int) and each >= 0]
    if len(numbers) < len(list(found)):
        raise AgentloadError(
            f"a schedule with L or # in its {field} has no systemd form",
            hint="agentload watch export crontab",
        )
    return sorted(numbers)


def _listed(numbers: Sequence[int], all_of_them: int) -> str:
    if len(numbers) == all_of_them:
        return "*"
    return ",".join(f"{each:02}" for each in numbers)


def _quoted(text: str) -> str:
    escaped = _escaped(text).replace("$", "$$").replace("\\", "\\\\").replace('"', '\\"')
    if any(each in text for each in " \t\"'\\;"):
        return f'"{escaped}"'
    return escaped


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


LOCALTIME = Path("/etc/localtime")
TIMEZONE = Path("/etc/timezone")
# Not the caller's own PATH: Debian's cron refuses lines of 1,000 characters.
SYSTEM = "/usr/local/bin:/usr/bin:/bin"


def this_machine(jobs: Jobs) -> Machine:
    """Describe this machine.

    Raises `AgentloadError` when there is no agentload command.
    """
    beside = Path(sys.executable).with_name("agentload")
    program = str(beside) if beside.is_file() else shutil.which("agentload")
    if program is None:
        raise AgentloadError(
            "no agentload command next to this Python or on the PATH", hint="pip install agentload"
        )
    return Machine(
        program=Path(program).absolute(),
        jobs_file=jobs.path,
        database=jobs.database,
        local_zone=local_zone(),
        path=f"{Path(program).absolute().parent}:{SYSTEM}",
    )


def local_zone() -> str:
    """Return the name of this machine's time zone, as its cron reads it; UTC without one."""
    _, is_zone, name = str(LOCALTIME.resolve()).rpartition("/zoneinfo/")
    if is_zone:
        return name
    if not TIMEZONE.is_file():
        return "UTC"
    return TIMEZONE.read_text().strip()


def read_crontab() -> str:
    """Read the user's crontab; empty when there is none."""
    done = subprocess.run([_program(), "-l"], capture_output=True, text=True, check=False)
    if done.returncode and "no crontab" not in done.stderr:
        raise AgentloadError(
            f"crontab -l: {done.stderr.strip()}",
            hint="may this user have a crontab? see crontab(1)",
        )
    return "" if done.returncode else done.stdout


def write_crontab(text: str) -> None:
    """Replace the user's crontab; an empty one is removed."""
    command = [_program(), "-"] if text.strip() else [_program(), "-r"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode and "no crontab" not in done.stderr:
        raise AgentloadError(
            f"crontab: {done.stderr.strip()}",
            hint="agentload watch export crontab prints the lines",
        )


def _program() -> str:
    found = shutil.which("crontab")
    if found is None:
        raise AgentloadError(
            "no crontab command on this machine",
            hint="install cron, or: agentload watch export systemd; agentload watch daemon",
        )
    return found
