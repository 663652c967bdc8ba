"""What this machine's schedulers need to know, and its user's crontab."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from agentload.errors import AgentloadError
from agentload.watch.exports.parts import Place
from agentload.watch.jobs_file import Jobs

LOCALTIME = Path("/etc/localtime")
TIMEZONE = Path("/etc/timezone")
# Not the caller's own PATH: Debian's cron refuses lines of 1,000 characters.
SYSTEM = "/usr/local/bin:/usr/bin:/bin"


def place(jobs: Jobs) -> Place:
    """Describe this machine; raise `AgentloadError` when the agentload command is not to be found."""
    beside = Path(sys.executable).with_name("agentload")
    program = str(beside) if beside.is_file() else shutil.which("agentload")
    if program is None:
        raise AgentloadError("no agentload command beside this Python or on the PATH", hint="pip install agentload")
    return Place(
        program=Path(program).absolute(),
        jobs_file=jobs.path,
        database=jobs.database,
        local_zone=local_zone(),
        path=f"{Path(program).absolute().parent}:{SYSTEM}",
    )


def local_zone() -> str:
    """Return the name of this machine's time zone, as its cron reads it; UTC where it has none."""
    target = str(LOCALTIME.resolve())
    if "/zoneinfo/" in target:
        return target.rpartition("/zoneinfo/")[2]
    return TIMEZONE.read_text().strip() if TIMEZONE.is_file() else "UTC"


def crontab() -> str:
    """Read the user's crontab; empty when there is none."""
    done = subprocess.run([_program(), "-l"], capture_output=True, text=True, check=False)
    if done.returncode and "no crontab" not in done.stderr:
        raise AgentloadError(f"crontab -l: {done.stderr.strip()}", hint="may this user have a crontab? see crontab(1)")
    return "" if done.returncode else done.stdout


def write_crontab(text: str) -> None:
    """Replace the user's crontab; an empty one is removed."""
    command = [_program(), "-"] if text.strip() else [_program(), "-r"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode and "no crontab" not in done.stderr:
        raise AgentloadError(f"crontab: {done.stderr.strip()}", hint="agentload watch export crontab prints the lines")


def _program() -> str:
    found = shutil.which("crontab")
    if found is None:
        raise AgentloadError(
            "no crontab command on this machine", hint="install cron, or: agentload watch export systemd; agentload watch daemon"
        )
    return found
