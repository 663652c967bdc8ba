"""How fast rows are journalled, loaded and reported on, and
what they take: `python -m benchmarks.store [--calls 1000000]`.

Two arms, twenty block pairs, sessions of ten turns; each call streams 100 chunks about 20 ms
apart, one in a hundred held up by somebody's prompt for up to half a second. Every stage is a
process of its own, so its memory is its own; its CPU counts start-up, and for the journal also
the making of the rows. Where other work shares the machine, believe CPU rather than seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from agentload.model.rows import ArmRow, BlockRow, CallRow, LegRow, Row, RunRow
from agentload.model.stamps import Stamps
from agentload.store.database import reading
from agentload.store.journal import Writer
from agentload.store.loader import load

RUN, ARMS, PAIRS, TURNS, CHUNKS = "bench", ("bf16", "fp8"), 20, 10, 100
S, MS, US = 1_000_000_000, 1_000_000, 1_000
PLAY_S, SESSION_EVERY_S, TURN_S = 10_000, 0.02, 2.5  # 500 calls a second: 50,000 chunks
ONES = np.ones(CHUNKS, dtype=np.uint16).tobytes()


def opening() -> Iterator[Row]:
    """Yield what describes the run."""
    options = {"load": {"arrivals": {"kind": "OpenLoop"}, "max_in_flight": None}, "cache": "cold"}
    yield RunRow(
        run_id=RUN,
        kind="simulated",
        name="benchmark",
        created_ns=0,
        trace_name="benchmark",
        trace_hash=None,
        model="m",
        design="interleaved",
        seed=0,
        version="0",
        command="python -m benchmarks.store",
        options=json.dumps(options),
    )
    yield LegRow(
        run_id=RUN, leg=1, host="bench", boot_id=None, monotonic_ns=0, wall_ns=0, status="done"
    )
    for position, arm in enumerate(ARMS):
        yield ArmRow(run_id=RUN, arm=arm, position=position, url=None, model="m")


def play(pair: int, arm: str, calls: int) -> Iterator[Row]:
    """Yield the rows of one block on one arm."""
    number = 2 * pair + (ARMS.index(arm) + pair) % 2  # AB, BA, AB, …
    started = number * PLAY_S * S
    rng = np.random.default_rng([pair, ARMS.index(arm)])
    level_us = 20_000 * (0.93 if arm == "fp8" else 1.0)
    for call in range(calls):
        session, turn = divmod(call, TURNS)
        due = started + round((session * SESSION_EVERY_S + turn * TURN_S) * S)
        gaps = (level_us * np.exp(rng.normal(0, 0.02, CHUNKS))).astype(np.int32)
        gaps += ((rng.random(CHUNKS) < 0.01) * rng.exponential(100_000, CHUNKS)).astype(np.int32)
        gaps[0] = 0
        first = due + 60 * MS + int(rng.integers(0, 20 * MS))
        last = first + int(gaps.sum()) * US
        yield CallRow(
            run_id=RUN,
            leg=1,
            arm=arm,
            block=pair,
            pair=pair,
            workload="rag" if session % 3 else "chat",
            session=f"s{session}",
            turn=turn,
            attempt=0,
            retry_of=None,
            request_id=f"{int(rng.integers(1 << 62)):016x}{call:016x}",
            due_ns=due,
            released_ns=due + 20 * US,
            opened_ns=due + 90 * US,
            sent_ns=due + 120 * US,
            first_ns=first,
            first_answer_ns=first,
            last_ns=last,
            done_ns=last + 200 * US,
            stamp_source="kernel",
            coalesced_reads=0,
            token_rule="usage",
            prompt_tokens=1000 + 400 * turn,
            context_tokens=1000 + 400 * turn,
            cached_tokens=800 + 400 * turn if turn else 0,
            asked_tokens=CHUNKS,
            output_tokens=CHUNKS,
            status="ok",
            http_status=200,
            finish_reason="length",
            replica="10.0.0.1:8000",
            prompt_hash=f"{hash((pair, call)) & (1 << 64) - 1:016x}",
            chunks=Stamps(first_ns=first, gap_us=gaps.tobytes(), tokens=ONES),
        )
    yield BlockRow(
        run_id=RUN,
        leg=1,
        pair=pair,
        block=pair,
        arm=arm,
        round=number,
        started_ns=started,
        drain_ns=None,
        ended_ns=started + (PLAY_S - 1) * S,
        salt=f"{RUN}/{pair}",
    )


def write(folder: Path, calls: int) -> dict[str, float]:
    """Journal all rows, flushing as often as 50,000 chunks a second would."""
    spent, longest, rows = 0.0, 0.0, 0
    with Writer(folder / "a.journal") as journal:
        for row in opening():
            journal.append(row)
        for pair in range(PAIRS):
            for arm in ARMS:
                for row in play(pair, arm, calls // (2 * PAIRS)):
                    began = time.perf_counter()
                    journal.append(row)
                    rows += 1
                    if rows % 500 == 0:
                        flushing = time.perf_counter()
                        journal.flush()
                        longest = max(longest, time.perf_counter() - flushing)
                    spent += time.perf_counter() - began
    size = (folder / "a.journal").stat().st_size
    return {"seconds": spent, "longest_ms": longest * 1e3, "bytes": size, "rows": rows}


def fill(folder: Path, calls: int) -> dict[str, float]:
    """Load the journal into a new database."""
    began = time.perf_counter()
    loaded = load([folder / "a.journal"], folder / "x.duckdb")
    seconds = time.perf_counter() - began
    assert loaded.calls == calls, loaded
    with reading(folder / "x.duckdb") as connection:
        ((blocks,),) = connection.execute(
            "SELECT count(DISTINCT block_id) FROM pragma_storage_info('chunks_row') WHERE "
            "persistent"
        ).fetchall()
        block_bytes = connection.execute("PRAGMA database_size").fetchall()[0][2]
    return {
        "seconds": seconds,
        "stamps": loaded.stamps,
        "chunk_bytes": blocks * block_bytes,
        "bytes": (folder / "x.duckdb").stat().st_size,
    }


def gathered(folder: Path, calls: int) -> dict[str, float]:
    """Gather the evidence."""
    # Measured with the stage, as a verb would import it.
    from agentload.evidence.gather import gather
    from agentload.evidence.view import run_view

    began = time.perf_counter()
    with reading(folder / "x.duckdb") as connection:
        evidence = gather(connection, run_view(connection, RUN))
    assert sum(len(each.calls) for each in evidence.observations if each.calls is not None) == calls
    return {"seconds": time.perf_counter() - began}


def verb(folder: Path, *arguments: str) -> dict[str, float]:
    """Run a verb of the command line, start-up included."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "agentload", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
    return {"seconds": time.perf_counter() - began}


STAGES: Final[dict[str, Callable[[Path, int], dict[str, float]]]] = {
    "journal": write,
    "load": fill,
    "evidence": gathered,
    "report": lambda folder, _: verb(folder, "report", "x.duckdb", "--out", "report"),
    "show": lambda folder, _: verb(folder, "runs", "show", RUN, "--db", "x.duckdb"),
}


def stage(name: str, folder: Path, calls: int) -> dict[str, float]:
    """Run one stage in a process of its own and add its peak memory."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.store",
        "--stage",
        name,
        "--folder",
        str(folder),
        "--calls",
        str(calls),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found: dict[str, float] = json.loads(process.stdout.read() or "{}")
    if process.returncode:
        raise SystemExit(f"{name} failed")
    return found


def table(calls: int, found: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield the lines of the table."""
    stamps = calls * CHUNKS
    journal, loaded = found["journal"], found["load"]
    said = {
        "journal": f"{stamps / journal['seconds']:,.0f} chunks/s, longest flush "
        f"{journal['longest_ms']:.1f} ms, "
        f"{journal['bytes'] / stamps:.2f} bytes a stamp with its call",
        "load": f"{stamps / loaded['seconds']:,.0f} chunks/s, {loaded['chunk_bytes'] / stamps:.2f} "
        "bytes a stamp, "
        f"{loaded['bytes'] / stamps:.2f} with its call and the rest of the file",
        "evidence": "gathered from the database",
        "report": "`agentload report` from start to end: Markdown, HTML, JSON",
        "show": "`agentload runs show` from start to end",
    }
    yield f"{calls:,} calls of {CHUNKS} chunks"
    yield (
        "goals at 1,000,000: journal and load 50,000 chunks/s, load 30 s and 2 bytes a stamp, "
        "report 10 s and 2,000 MB"
    )
    yield f"{'stage':<10}{'seconds':>9}{'CPU':>9}{'memory':>10}   what"
    for name, each in found.items():
        yield (
            f"{name:<10}{each['seconds']:>7.1f} s{each['cpu_s']:>7.1f} "
            f"s{each['peak_mb']:>7,.0f} MB   {said[name]}"
        )


def main() -> None:
    """Run the stages and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--calls",
        type=int,
        default=100_000,
        help="goals are stated for 1,000,000: about 3 minutes and 3 GB of disk",
    )
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    calls = options.calls // (2 * PAIRS * TURNS) * (2 * PAIRS * TURNS)
    if options.stage:
        found = STAGES[options.stage](options.folder, calls)
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        peak_mb = max(each.ru_maxrss for each in used) / (
            1024**2 if sys.platform == "darwin" else 1024
        )
        print(
            json.dumps(
                {
                    **found,
                    "peak_mb": peak_mb,
                    "cpu_s": sum(each.ru_utime + each.ru_stime for each in used),
                }
            )
        )
        return
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        for line in table(calls, {name: stage(name, Path(folder), calls) for name in STAGES}):
            print(line)


if __name__ == "__main__":
    main()
