"""What every scheduler's file needs: absolute paths, for a scheduler starts anywhere with hardly any environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agentload.watch.job import Job
from agentload.watch.lock import lock_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where things are on the machine that the files are for."""

    program: Path
    """The agentload to call."""
    jobs_file: Path
    database: Path
    local_zone: str
    """Time zone in which its schedulers read times."""
    path: str
    """PATH for the commands that an arms file may call."""

    def command(self, job: Job) -> tuple[str, ...]:
        """Return what executes a job."""
        return (str(self.program), "watch", "run", job.name, "--file", str(self.jobs_file), "--scheduled")

    def log(self, job: Job) -> Path:
        """Return where its output goes."""
        return self.database.with_suffix(".journal") / f"watch-{job.name}.log"

    def lock(self, job: Job) -> Path:
        """Return the lock that keeps two executions apart."""
        return lock_path(self.database, job.name)
