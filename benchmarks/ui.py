"""How long the pages take with many runs: `python -m benchmarks.ui [--runs 10000]`.

A database of so many runs, each of two arms with six block pairs, 40 calls and a decision of 30
kB, and a job of 365 executions. The server is `agentload ui` in a process of its own; times are
from the request to the last byte, over a kept connection. `anew` is with a database that has
changed since the last request, so that nothing is answered from memory; `CPU` is what the server
then spends on one (Linux). Where other work shares the machine, believe CPU rather than times.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import aiohttp

from agentload.model.rows import Row
from agentload.store.database import writing
from agentload.store.journal import Writer
from agentload.store.loader import load
from benchmarks.store import ARMS, opening, play

ROUNDS: Final = 15
GOAL_MS: Final = 300.0
JOB: Final = 365
BLOCKS, CALLS = 6, 20

# One run is stored as a run is, then multiplied.
FILL: Final = """
CREATE TEMP TABLE r AS SELECT range AS number, format('20260101-{:06d}-aaaa', range) AS run_id
    FROM range($runs);
INSERT INTO legs SELECT t.* REPLACE (r.run_id AS run_id, if(number % 50 = 0, 'stopped',
    'done') AS status) FROM legs AS t, r;
INSERT INTO arms SELECT t.* REPLACE (r.run_id AS run_id) FROM arms AS t, r;
INSERT INTO blocks SELECT t.* REPLACE (r.run_id AS run_id, if(number % 90 = 0, 'void',
    NULL) AS void) FROM blocks AS t, r;
INSERT INTO calls_row SELECT t.* REPLACE (r.run_id AS run_id, number * 100 + t.call_id AS call_id,
    r.run_id || t.request_id AS request_id,
    if(t.turn = 7 AND number % 5 = 0, 'http_error', 'ok') AS status) FROM calls_row AS t, r
        ORDER BY number, t.call_id;
INSERT INTO runs SELECT t.* REPLACE (r.run_id AS run_id, ['measured', 'emulated',
    'simulated'][1 + number % 3] AS kind,
    'mix ' || number % 40 AS name, t.created_ns + number * 3600000000000 AS created_ns,
        'trace-' || number % 40 AS trace_name,
    'hash-' || number % 40 AS trace_hash, 'model-' || number % 7 AS model) FROM runs AS t, r
        ORDER BY number;
INSERT INTO verdicts BY NAME SELECT run_id, number AS at_ns, 'default' AS policy,
    'stay on BF16' AS headline, 'avoid' AS verdict,
    '0.1.0' AS version,
        '{"headline":"stay on BF16","decision":{"choice":{"verdict":"avoid"},"figures":"'
        || repeat(run_id, 1500) || '"}}'
    AS decision FROM r;
INSERT INTO executions BY NAME SELECT 'nightly' AS job, number * 86400000000000 AS started_ns,
    number * 86400000000000 + 60 AS ended_ns,
    'done' AS outcome, run_id,
        format('{{"reference":"20260101-000000-aaaa","changes":[{{"arm":"bf16","metric":"turn_ms",
    "log_ratio":{},"error":0.004,"pairs":6}}]}}', 0.01 * sin(number * 12.9898)) AS detail
    FROM r WHERE number BETWEEN 1 AND $job;
"""
PAGES: Final = {
    "first page of runs": "runs?page=1",
    "last page": "runs?page=100000",
    "a word in many runs": "runs?q=model-3",
    "a word in no run": "runs?q=nowhere",
    "filtered": "runs?kind=measured&status=stopped",
    "overview": "",
    "decisions": "decisions",
    "comparisons": "comparisons",
    "one run": "runs/20260101-005000-aaaa",
    "a pair of blocks": "runs/20260101-005000-aaaa/pairs/0",
    "a session": "runs/20260101-005000-aaaa/pairs/0/sessions/s0",
    "one job, a year": "jobs/nightly",
}


def template() -> Iterator[Row]:
    """Yield the rows of one run."""
    yield from opening()
    for number in range(2 * BLOCKS):
        arm = ARMS[number % 2]
        *calls, block = play(number // 2, arm, CALLS)
        yield from calls if number < 2 else ()
        yield block


def fill(database: Path, runs: int) -> None:
    """Make the database."""
    with Writer(database.with_name("template.journal")) as journal:
        for row in template():
            journal.append(row)
    load([database.with_name("template.journal")], database)
    with writing(database) as connection:
        for statement in FILL.replace("$runs", str(runs)).replace("$job", str(JOB)).split(";\n"):
            if statement.strip():
                connection.execute(statement)


@contextmanager
def served(database: Path) -> Iterator[tuple[str, int]]:
    """Run the verb and yield the address of the database's pages, and the process."""
    command = [
        sys.executable,
        "-m",
        "agentload",
        "ui",
        str(database),
        "--port",
        "0",
        "--for",
        "600",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[0], process.pid
        finally:
            process.terminate()


async def times_ms(base: str, page: str, database: Path, *, anew: bool) -> list[float]:
    """Ask for a page so many times."""
    found = []
    async with aiohttp.ClientSession() as client:
        for number in range(ROUNDS + 2):
            if anew:
                os.utime(database, ns=(number, number + 1))
            began = time.perf_counter()
            async with client.get(base + page) as answer:
                await answer.read()
                assert answer.status == 200, (page, answer.status)
            found.append(1e3 * (time.perf_counter() - began))
    return sorted(found[2:])


def cpu_ms(pid: int) -> float:
    """Return the CPU time of a process so far."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return float("nan")
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return 1e3 * (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


async def measured(base: str, database: Path, pid: int) -> Iterator[str]:
    """Return the lines of the table."""
    lines = [f"{'page':<22}{'anew p50':>10}{'worst':>9}{'CPU':>8}{'kept p50':>11}"]
    missed = []
    for name, page in PAGES.items():
        began_ms = cpu_ms(pid)
        anew = await times_ms(base, page, database, anew=True)
        spent_ms = (cpu_ms(pid) - began_ms) / (ROUNDS + 2)
        kept = await times_ms(base, page, database, anew=False)
        lines.append(
            f"{name:<22}{anew[ROUNDS // 2]:>7.0f} ms{anew[-1]:>6.0f} ms{spent_ms:>5.0f} "
            f"ms{kept[ROUNDS // 2]:>8.1f} ms"
        )
        missed += [name] if page.startswith("runs?") and anew[ROUNDS // 2] > GOAL_MS else []
    lines.append(
        f"goal: {GOAL_MS:.0f} ms for every list of runs, by its median: "
        + (f"missed by {', '.join(missed)}" if missed else "met")
    )
    return iter(lines)


def main() -> None:
    """Fill, serve, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "bench.duckdb"
        fill(database, options.runs)
        print(
            f"{options.runs:,} runs, {40 * options.runs:,} calls, "
            f"{database.stat().st_size / 1e6:,.0f} MB"
        )
        with served(database) as (base, pid):
            for line in asyncio.run(measured(base, database, pid)):
                print(line)


if __name__ == "__main__":
    main()
