"""Jobs as lines of a crontab."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentload.watch.jobs_file import Jobs, add, read_jobs
from agentload.watch.schedulers import Machine, cron_fields, crontab, with_block, without_block
from tests.watch.test_jobs_file import ENTRY


def jobs(folder: Path) -> Jobs:
    add(folder / "watch.yaml", "nightly", ENTRY)
    return read_jobs(folder / "watch.yaml")


def place(found: Jobs, *, zone: str = "Europe/Berlin") -> Machine:
    program = Path("/opt/agentload/bin/agentload")
    return Machine(
        program=program,
        jobs_file=found.path,
        database=found.database,
        local_zone=zone,
        path="/usr/bin:/bin",
    )


def test_a_crontab_line_is_absolute_and_logs(tmp_path: Path) -> None:
    found = jobs(tmp_path)
    line = next(
        line for line in crontab(found.jobs, place(found)).splitlines() if not line.startswith("#")
    )
    assert line == (
        "0 2 * * * PATH=/usr/bin:/bin /opt/agentload/bin/agentload watch run nightly "
        f"--file {tmp_path}/watch.yaml --scheduled "
        f">>{tmp_path}/watch.journal/watch-nightly.log 2>&1"
    )


@pytest.mark.parametrize(
    ("local", "fields"),
    [
        ("Europe/Berlin", "0 2 * * *"),
        ("Europe/Paris", "0 2 * * *"),
        ("UTC", "0 * * * *"),
        ("Asia/Kolkata", "* * * * *"),
    ],
)
def test_a_job_of_another_zone_is_called_whenever_it_may_be_due(
    tmp_path: Path, local: str, fields: str
) -> None:
    assert cron_fields(jobs(tmp_path).jobs[0], local) == fields


def test_installing_twice_and_removing_leaves_a_crontab_as_it_was(tmp_path: Path) -> None:
    found = jobs(tmp_path)
    block, mine = crontab(found.jobs, place(found)), str(found.path)
    for before in ("", "MAILTO=me\n5 4 * * * backup\n"):
        once = with_block(before, block, mine)
        assert with_block(once, block, mine) == once
        assert without_block(once, mine) == before
        assert without_block(once, "/other/watch.yaml") == once
