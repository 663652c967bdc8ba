"""Take the picture of the overview that the manual
shows: `python -m tests.ui.picture [docs/images/ui.png]`.

Simulated nights of a job whose server gets 8% slower with a new version, two simulated
decisions, and a replay on emulated servers that runs while the picture is taken. Needs Chromium.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from agentload.store.places import journalled_runs
from tests.report.chromium import browser
from tests.ui.site import site
from tests.watch.simulated import ARM, JOB, NIGHT_NS, nights, slower, upgraded

PICTURE: Final = Path("docs/images/ui.png")
QUIET, SLOW = 24, 5
WIDTH, HEIGHT = 1_120, 1_220
DAY_S: Final = 86_400
DUE_S: Final = 2 * 3_600
"""Of the day, as the schedule says."""
SPEC: Final = '{"schedule": {"cron": "0 2 * * *"}}'
WAIT_S: Final = 60.0
AGENTLOAD: Final = (
    sys.executable,
    "-c",
    "from agentload.cli.main import main; raise SystemExit(main())",
)
DECIDED: Final = (("llama-3.1-8b-h100", "rag"), ("gpt-oss-20b-h100", "chat"))


def kept(folder: Path) -> Path:
    """Return a database of the nights and of what was decided."""
    due_s = (int(time.time()) - DUE_S) // DAY_S * DAY_S + DUE_S
    with pytest.MonkeyPatch.context() as patch:
        scene = nights(patch, folder, job=replace(JOB, name="nightly-rag", spec=SPEC))
        scene.now_ns = (
            due_s * 10**9 - (QUIET + SLOW) * NIGHT_NS
        )  # the last night is the one that was due last
        for _ in range(QUIET):
            scene.night()
        scene.arm = upgraded(slower(ARM, 0.08), "0.20.0")
        for _ in range(SLOW):
            scene.night()
    for profile, trace in DECIDED:
        command(folder, "simulate", trace, "--profile", profile, "--db", scene.database.name)
        command(folder, "advise", scene.database.name)
    return scene.database


def command(folder: Path, *words: str) -> None:
    """Call agentload as a user does."""
    subprocess.run([*AGENTLOAD, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def playing(folder: Path, database: Path) -> Iterator[None]:
    """Replay on emulated servers meanwhile."""
    before = set(journalled_runs(database))
    words = [
        "replay",
        "demo-rag",
        "demo-chat",
        "--endpoints",
        "emulated:gpt-oss-20b-h100",
        "--pairs",
        "4",
        "--db",
        database.name,
    ]
    with subprocess.Popen(
        [*AGENTLOAD, *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        until_s = time.monotonic() + WAIT_S
        while (
            set(journalled_runs(database)) == before
            and process.poll() is None
            and time.monotonic() < until_s
        ):
            time.sleep(0.1)
        time.sleep(20.0)  # until there is something to see of each arm
        yield
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)


async def taken(database: Path, profile: Path) -> bytes:
    """Look at the overview."""
    async with site(database) as client, browser(profile) as page:
        await page.shape(width=WIDTH, height=HEIGHT)
        await page.open(f"http://127.0.0.1:{client.port}/")
        return await page.screenshot(height=HEIGHT)


def main() -> None:
    """Write the picture."""
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        database = kept(folder)
        with playing(folder, database):
            png = asyncio.run(taken(database, folder / "profile"))
    place.write_bytes(png)


if __name__ == "__main__":
    main()
