"""Measure how many streams one machine can hold: the whole
command, `agentload replay`, against servers that know the truth.

    python -m benchmarks.scale [--servers 4] [--streams 2000]
    [--workers 4] [--nodes 2] [--seconds 30] [--period-ms 20] [--tokens 400]
    [--paths interpreter,thread]

The servers stand as the arms of a parallel design, each with its share of the streams, so
that all are played at once. Error of a gap: what the database says lies between two chunks,
less what lay between the server's writes. CPU is that of the command with all its workers;
that of the servers is printed next to it, as on a small machine they take it from the command.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack
from math import ceil
from pathlib import Path

import duckdb
import msgspec
import numpy as np

from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.tracefile.files import write
from benchmarks.transport import HOUSE, environment, process_s, truth_server
from benchmarks.transport_figures import Truth

TURNS = 8


def trace(sessions: int, tokens: int) -> Trace:
    """Return sessions of calls without waits."""

    def turns(index: int) -> tuple[Turn, ...]:
        said = (Segment(role="user", tokens=60, key=f"{index}.{turn}") for turn in range(TURNS))
        return tuple(Turn(add=(each,), output=tokens, keep=0) for each in said)

    kept = [
        Session(session=str(index), workload="scale", start_s=0.0, turns=turns(index))
        for index in range(sessions)
    ]
    return Trace(header=Header(name="scale"), sessions=kept)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--servers", type=int, default=4)
    options.add_argument("--streams", type=int, default=2000)
    options.add_argument("--workers", type=int, default=4)
    options.add_argument(
        "--nodes", type=int, default=1, help="dispatchers, each with so many workers"
    )
    options.add_argument("--seconds", type=float, default=30)
    options.add_argument(
        "--period-ms", type=float, default=20, help="between two tokens of a stream"
    )
    options.add_argument("--tokens", type=int, default=400, help="of an answer")
    options.add_argument(
        "--paths",
        default="interpreter",
        help="who reads the sockets, one run each; the thread needs `make reader`",
    )
    given = options.parse_args()
    sys.exit(max([play(given, path) for path in given.paths.split(",")]))


def play(given: argparse.Namespace, path: str) -> int:
    """Run the command once and print what it measured; return its exit code."""
    each = ceil(given.streams / given.servers)
    answer_s = given.tokens * given.period_ms / 1000
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = [
            stack.enter_context(truth_server(tokens=given.tokens, period_ms=given.period_ms))
            for _ in range(given.servers)
        ]
        write(
            folder / "scale.jsonl",
            trace(each * ceil(given.seconds / answer_s / TURNS + 1), given.tokens),
        )
        command = [
            sys.executable,
            "-m",
            "agentload",
            "replay",
            str(folder / "scale.jsonl"),
            "--db",
            str(folder / "scale.duckdb"),
        ]
        command += [
            "--endpoints",
            ",".join(f"s{place}={url}/v1" for place, (url, _) in enumerate(servers)),
            "--design",
            "parallel",
        ]
        command += [
            "--pairs",
            "1",
            "--sessions",
            str(each),
            "--ramp",
            f"{answer_s:g}",
            "--duration",
            f"{given.seconds + answer_s:g}",
        ]
        command += ["--on", "here", "--nodes", str(given.nodes)] if given.nodes > 1 else []
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [*command, "--workers", str(given.workers), "--quiet"],
            check=False,
            cwd=HOUSE,
            env=environment(path),
        )
        after, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        servers_s = sum(process_s(pid) for _, pid in servers)
        truths = {truth.id: truth for url, _ in servers for truth in _log(url)}
        print(f"sockets read by the {path}")
        _say(folder / "scale.duckdb", truths, wall_s, cpu_s, given.tokens)
        print(f"CPU of the command {cpu_s:.1f} s, of the servers {servers_s:.1f} s")
    return done.returncode


def _log(url: str) -> list[Truth]:
    with urllib.request.urlopen(f"{url}/truth", timeout=300) as answer:  # noqa: S310 - our own server
        return msgspec.msgpack.decode(answer.read(), type=list[Truth])


def _say(
    database: Path, truths: dict[str, Truth], wall_s: float, cpu_s: float, tokens: int
) -> None:
    with duckdb.connect(str(database), read_only=True) as connection:
        calls = connection.execute(
            "SELECT status, chunk_count, coalesced_reads, sent_ns - released_ns AS lag_ns "
            "FROM calls"
        ).fetchnumpy()
        kept = (
            "SELECT request_id, chunk_ns FROM calls WHERE status = 'ok' AND chunk_count = ? "
            "LIMIT 20000"
        )
        stamps = connection.execute(kept, [tokens]).fetchall()
    spread = [
        np.abs(np.diff(chunk_ns) - truths[name].gaps_ns) / 1e3
        for name, chunk_ns in stamps
        if name in truths
    ]
    statuses = Counter(calls["status"].tolist())
    chunks, coalesced = (
        int(np.ma.filled(calls[name], 0).sum()) for name in ("chunk_count", "coalesced_reads")
    )
    lag_ms = np.ma.compressed(calls["lag_ns"]) / 1e6
    print(f"{os.cpu_count()} cores; statuses {dict(statuses)}")
    print(f"{chunks:,} chunks in {wall_s:.0f} s of the whole command, {statuses.total():,} calls")
    print(
        f"coalesced {coalesced / max(1, chunks):.3%}, CPU a chunk "
        f"{cpu_s * 1e6 / max(1, chunks):.1f} µs"
    )
    if spread:
        print(
            "gap error p50 {:.1f} µs, p99 {:.1f} µs, max {:,.0f} µs".format(
                *np.percentile(np.concatenate(spread), [50, 99, 100])
            )
        )
    print("send lag p50 {:.2f} ms, p99 {:.2f} ms".format(*np.percentile(lag_ms, [50, 99])))


if __name__ == "__main__":
    main()
