"""What an import keeps, how fast it is and what it takes.

`python -m benchmarks.importers [--samples FOLDER] [--gb 0.2] [--formats weka,otel]`.
With a folder of public traces, those of kv-cache-tester and Mooncake are taken from
it; else such traces are made. The volumes are always made: logs of --gb gigabytes,
each imported in a process of its own, whose peak memory must not pass the mark.
Speed is of CPU time, so that other work on the machine counts little.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from agentload import documents
from agentload.errors import UsageError
from agentload.exporters.mooncake import lines as mooncake_lines
from agentload.importers import catalog
from agentload.importers.catalog import Conversion, conversion
from agentload.importers.parts import records
from agentload.importers.parts.notes import ImportNotes
from agentload.model.trace import Header
from agentload.model.walk import contexts
from agentload.tracefile import write
from benchmarks import import_samples as samples

SMALLER: Final = 50
MB_PER_S: Final = 40.0
POINTS: Final = 0.5
MEMORY_MB: Final = 1_000.0
TIMES: Final = 3
"""The fastest of so many imports counts."""
KEY: Final = b"a key of the benchmark, for names"


class Table:
    """Lines of what was found, beside what it must be."""

    def __init__(self) -> None:
        self.missed = 0

    def line(self, what: str, found: str, mark: str, *, holds: bool) -> None:
        """Print a line."""
        self.missed += not holds
        print(f"{what:<44} {found:>24}  {mark:<22} {'ok' if holds else 'MISSED'}", flush=True)


def made(paths: Iterable[Path], format: str) -> Conversion:
    """Prepare an import."""
    return conversion(list(paths), key=KEY, format=format)


def kv_cache_tester(table: Table, paths: list[Path], scratch: Path) -> None:
    """Hold an import of kv-cache-tester traces against its source, request by request."""
    found, out = made(paths, "weka"), scratch / "weka.jsonl"
    times = []
    for _ in range(TIMES):
        started = time.process_time()
        write(out, found.trace)
        times.append(time.process_time() - started)
    lengths: list[int] = []
    blocks = distinct = 0
    for place, trace in (
        read for path in paths for read in records(path, dict[str, Any], ImportNotes())
    ):
        agents = [
            trace["requests"],
            *(
                request["requests"]
                for request in trace["requests"]
                if request["type"] == "subagent"
            ),
        ]
        calls = [request for agent in agents for request in agent if request["type"] != "subagent"]
        assert calls, place
        lengths += [request["in"] for request in calls]
        blocks += sum(len(request["hash_ids"]) for request in calls)
        distinct += len({block for request in calls for block in request["hash_ids"]})
    size = sum(_expanded(path) for path in paths)
    prompts = [
        sum(segment.tokens for segment in context)
        for session in found
        for context in contexts(Header(name=""), session)
    ]
    hits, truth = (
        100 * (found.summary.ideal_import or 0.0),
        100 * (blocks - distinct) * 64 / sum(lengths),
    )
    other = sum(one != two for one, two in zip(lengths, prompts, strict=True))
    table.line(
        f"kv-cache-tester, {size / 1e6:,.1f} MB: smaller",
        f"{size / out.stat().st_size:.0f} times",
        f"≥ {SMALLER}",
        holds=size >= SMALLER * out.stat().st_size,
    )
    table.line(
        "  speed on one core",
        f"{size / 1e6 / min(times):.0f} MB/s",
        f"≥ {MB_PER_S:.0f}",
        holds=size / 1e6 / min(times) >= MB_PER_S,
    )
    table.line("  prompts of another length", f"{other} of {len(lengths):,}", "0", holds=not other)
    table.line(
        "  prefix-hit ratio, source and import",
        f"{truth:.2f}% and {hits:.2f}%",
        f"within {POINTS}",
        holds=abs(hits - truth) <= POINTS,
    )


def _expanded(path: Path) -> int:
    return sum(map(len, documents.chunks(path)))


def round_trip(table: Table, paths: list[Path]) -> None:
    """Import requests, export them, and compare every one:
    its time, its lengths and the blocks that it shares.
    """
    source = [
        request for path in paths for _, request in records(path, dict[str, Any], ImportNotes())
    ]
    source.sort(key=lambda request: request["timestamp"])
    again = [msgspec.json.decode(line) for line in mooncake_lines(made(paths, "mooncake").trace)]
    other = sum(
        one != two for one, two in zip(_renumbered(source), _renumbered(again), strict=True)
    )
    table.line(
        "Mooncake, there and back: other requests",
        f"{other} of {len(source):,}",
        "0",
        holds=not other,
    )


def _renumbered(requests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    # Ids that are too large to be numbers may be hashes
    # of contents, and get a name of the import's own.
    numbers: dict[int, int] = {}
    for request in requests:
        yield request | {
            "hash_ids": [numbers.setdefault(found, len(numbers)) for found in request["hash_ids"]]
        }


def volume(table: Table, format: str, size: int, scratch: Path) -> None:
    """Import much of a format in a process of its own."""
    folder = scratch / format
    samples.fill(folder, format, size)
    command = [
        sys.executable,
        "-m",
        "benchmarks.importers",
        "--import",
        format,
        str(folder),
        str(scratch / "out.jsonl"),
    ]
    said = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    memory, speed = said["memory_mb"], size / 1e6 / said["cpu_s"]
    what = f"{format}, {size / 1e9:g} GB, {said['calls']:,} calls"
    table.line(
        f"{what}: memory",
        f"{memory:.0f} MB at {speed:.0f} MB/s",
        f"≤ {MEMORY_MB:.0f} MB",
        holds=memory <= MEMORY_MB,
    )
    for path in folder.iterdir():
        path.unlink()


def import_alone(format: str, folder: Path, out: Path) -> None:
    """Import a folder, and say what it took."""
    found = made([folder], format)
    started = time.process_time()
    write(out, found.trace)
    print(
        json.dumps(
            {
                "cpu_s": time.process_time() - started,
                "calls": found.summary.calls,
                "memory_mb": _peak_mb(),
            }
        )
    )


def _peak_mb() -> float:
    # The peak that getrusage tells begins with that of the process which started this one.
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        next(
            int(line.split()[1])
            for line in status.read_text().splitlines()
            if line.startswith("VmHWM")
        )
        / 1024
    )


def of_format(folder: Path, format: str) -> Iterator[Path]:
    """Find the files of a format in a folder of samples."""
    for path in sorted(folder.rglob("*.json*")):
        try:
            if catalog.likeliest_format([path]) == format:
                yield path
        except UsageError:
            continue


def main() -> int:
    """Print the table; return how many marks were missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--samples", type=Path, help="a folder with kv-cache-tester and Mooncake traces"
    )
    parser.add_argument("--gb", type=float, default=0.2, help="gigabytes of each made log")
    parser.add_argument("--formats", default=",".join(samples.FORMATS), help="formats of made logs")
    parser.add_argument(
        "--scratch", type=Path, help="where made logs are put for as long as they are needed"
    )
    parser.add_argument("--import", dest="alone", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        import_alone(given.alone[0], Path(given.alone[1]), Path(given.alone[2]))
        return 0
    table = Table()
    with tempfile.TemporaryDirectory(prefix="agentload-", dir=given.scratch) as name:
        scratch = Path(name)
        weka = list(of_format(given.samples, "weka")) if given.samples else []
        if not weka:
            weka = [scratch / "made.jsonl"]
            weka[0].write_bytes(
                b"".join(samples.encode(record) + b"\n" for record in samples.kv_cache_tester(60))
            )
        kv_cache_tester(table, weka, scratch)
        mooncake = list(of_format(given.samples, "mooncake")) if given.samples else []
        if not mooncake:
            mooncake = [scratch / "mooncake.jsonl"]
            mooncake[0].write_bytes(b"".join(samples.mooncakes(4_000)))
        round_trip(table, mooncake)
        for each in given.formats.split(","):
            volume(table, each, round(given.gb * 1e9), scratch)
    return table.missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
