"""Jobs as lines of a crontab and as units of systemd."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agentload.errors import AgentloadError
from agentload.watch.jobs_file import Jobs, add, read_jobs
from agentload.watch.schedule import Schedule
from agentload.watch.schedulers import (
    Machine,
    calendar,
    cron_fields,
    crontab,
    systemd,
    with_block,
    without_block,
)
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


@pytest.mark.parametrize(
    ("cron", "events"),
    [
        ("0 2 * * *", ("*-*-* 02:00:00 UTC",)),
        ("*/20 8-9 * * 1-5", ("Mon,Tue,Wed,Thu,Fri *-*-* 08,09:00,20,40:00 UTC",)),
        ("0 0 13 * 5", ("*-*-13 00:00:00 UTC", "Fri *-*-* 00:00:00 UTC")),
        ("0 0 1 1,7 7", ("*-01,07-01 00:00:00 UTC", "Sun *-01,07-* 00:00:00 UTC")),
    ],
)
def test_a_cron_schedule_has_the_same_firings_as_a_calendar(
    cron: str, events: tuple[str, ...]
) -> None:
    assert calendar(Schedule(cron=cron)) == events


def test_a_schedule_without_a_calendar_form_is_refused() -> None:
    with pytest.raises(AgentloadError, match="L or # in its day"):
        calendar(Schedule(cron="0 0 L * *"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    found = jobs(tmp_path)
    program = Path(shutil.which("true") or "/bin/true")
    for name, text in systemd(found.jobs, replace(place(found), program=program)).items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", *map(str, tmp_path.glob("agentload-*"))],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "")
