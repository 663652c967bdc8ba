"""Measure our transport against a server that knows the truth, and
beside it the clients and the load generators that others build.

    python -m benchmarks.transport [--seconds 15] [--clients agentload,aiohttp,openai]
    [--workers 1,2] [--paths interpreter,thread] [--times 3] [--held-ms 20] [--json]
    python -m benchmarks.transport --spread-s 0 --streams 256 --rates ''
    --peer vllm=PATH --peer aiperf=PATH --peer guidellm=PATH

Error of a gap: what the client says lies between two chunks, less what lay between the server's
writes. Error of the TTFT: from the sending of the request to the first chunk, as the client says,
less from its arrival at the server to the server's first write. A peer is named by its program in
an installation of its own; all its streams begin at once, as `--spread-s 0` makes ours do.

What else runs on the machine makes clients late, so its share
is printed too: a line is worth little where it is not small.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.peers import PEERS, PeerError, Said, Wanted
from benchmarks.transport_client import CALL_S, CLIENTS, TOKEN_S, Run
from benchmarks.transport_figures import Around, Figures, Truth, of_client, of_peer, table

HOUSE = Path(__file__).parents[1]
TICKS = os.sysconf("SC_CLK_TCK")
TOKENS = 100  # of each call of a stream; calls of an open loop are short
OPEN_TOKENS = 10

T = TypeVar("T")


@contextmanager
def truth_server(*, tokens: int, period_ms: float = 1000 * TOKEN_S) -> Iterator[tuple[str, int]]:
    """Run the server in a process of its own; give its URL and its process."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.truth_server",
        "--tokens",
        str(tokens),
        "--period-ms",
        str(period_ms),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}", process.pid
        finally:
            process.kill()


def played(run: Callable[[str], T], *, tokens: int) -> tuple[T, list[Truth], Around]:
    """Run a client against a fresh server; return what each
    says, and how many cores were busy with something else.
    """
    with truth_server(tokens=tokens) as (url, server):
        began, busy_s, children_s = time.monotonic(), _busy_s(), _children_s()
        said = run(url)
        wall_s = time.monotonic() - began
        own_s = _children_s() - children_s + process_s(server)
        elsewhere = max(0.0, _busy_s() - busy_s - own_s) / wall_s
        with urllib.request.urlopen(f"{url}/truth", timeout=60) as answer:  # noqa: S310 - our own server
            log = msgspec.msgpack.decode(answer.read(), type=list[Truth])
    return said, log, Around(wall_s=wall_s, cores_elsewhere=elsewhere)


def environment(path: str) -> dict[str, str]:
    """Return the environment in which sockets are read this way."""
    if path != "thread":
        return os.environ | ({"AGENTLOAD_PURE": "1"} if path == "interpreter" else {})
    places = (str(HOUSE / "build" / "speedups"), os.environ.get("PYTHONPATH", ""))
    return os.environ | {"AGENTLOAD_PURE": "0", "PYTHONPATH": os.pathsep.join(filter(None, places))}


def client(name: str, arguments: list[str], *, path: str = "") -> Callable[[str], Run]:
    """Return how to play a load through a client of our own
    making, whose sockets are read this way.
    """

    def run(url: str) -> Run:
        command = [sys.executable, "-m", "benchmarks.transport_client", name, f"{url}/v1"]
        done = subprocess.run(
            [*command, *arguments], check=True, stdout=subprocess.PIPE, env=environment(path)
        )
        return msgspec.msgpack.decode(done.stdout, type=Run)

    return run


def _busy_s() -> float:
    # user, nice, system, idle, iowait, irq, softirq, steal
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICKS


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def process_s(pid: int) -> float:
    """Return the seconds of CPU that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def own_lines(chosen: argparse.Namespace) -> Iterator[Figures]:
    """Play every load through every client of ours."""
    spread_s = ["--spread-s", str(chosen.spread_s)]
    at_once = "" if chosen.spread_s else " at once"
    at_once += f", held for {chosen.held_ms:g} ms" if chosen.held_ms else ""
    loads = [
        (
            f"{streams} streams x 50/s{at_once}",
            ["--streams", streams, *spread_s, "--tokens", str(TOKENS)],
            TOKENS,
            False,
        )
        for streams in filter(None, chosen.streams.split(","))
    ] + [
        (f"open loop {rate}/s", ["--rate", rate, "--tokens", str(OPEN_TOKENS)], OPEN_TOKENS, True)
        for rate in filter(None, chosen.rates.split(","))
    ]
    for name in filter(None, chosen.clients.split(",")):
        for workers, path in ways(chosen) if name == "agentload" else [("1", "")]:
            for load, arguments, tokens, is_open in loads:
                run = client(
                    name,
                    [
                        *arguments,
                        *("--seconds", str(chosen.seconds)),
                        *("--workers", workers),
                        *("--held-ms", str(chosen.held_ms)),
                    ],
                    path=path,
                )
                said, truths, around = played(run, tokens=tokens)
                shown = name if workers == "1" else f"{name}, {workers} workers"
                shown += f", {said.read_path}" if said.read_path else ""
                yield of_client(shown, load, said, truths, around, tokens=tokens, is_open=is_open)


def ways(chosen: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Return numbers of workers and who reads the sockets, so that paths alternate."""
    for _ in range(chosen.times):
        for workers in chosen.workers.split(","):
            for path in chosen.paths.split(","):
                yield workers, path


def peer(
    name: str, program: str, *, streams: int, calls: int, folder: Path
) -> Callable[[str], list[Said]]:
    """Return how to play so many calls through a peer."""
    return lambda url: PEERS[name](
        program, Wanted(url=url, streams=streams, calls=calls, tokens=TOKENS, folder=folder)
    )


def peer_lines(chosen: argparse.Namespace) -> Iterator[Figures]:
    """Let every peer play so many streams, about as long."""
    for named in chosen.peer:
        name, _, program = named.partition("=")
        for streams in map(int, filter(None, chosen.streams.split(","))):
            calls = streams * max(2, round(chosen.seconds / (CALL_S + TOKEN_S * (TOKENS - 1))))
            with tempfile.TemporaryDirectory() as folder:
                try:
                    said, truths, around = played(
                        peer(name, program, streams=streams, calls=calls, folder=Path(folder)),
                        tokens=TOKENS,
                    )
                except PeerError as error:
                    sys.stderr.write(f"{name}: {error}\n")
                    continue
            yield of_peer(
                name,
                f"{streams} streams x 50/s at once",
                said,
                truths,
                around,
                streams=streams,
                tokens=TOKENS,
            )


def main() -> None:
    """Measure every load with every client and print the table."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--seconds", type=float, default=15)
    options.add_argument("--streams", default="256,1000")
    options.add_argument("--rates", default="25,500")
    options.add_argument("--clients", default=",".join(CLIENTS))
    options.add_argument(
        "--workers", default="1,2", help="numbers of processes in which agentload holds its sockets"
    )
    options.add_argument(
        "--paths",
        default="interpreter",
        help="who reads agentload's sockets; the thread needs `make reader`",
    )
    options.add_argument(
        "--held-ms",
        type=float,
        default=0,
        help="for so long, ten times a second, another thread of the client holds the interpreter",
    )
    options.add_argument("--times", type=int, default=1, help="rounds of paths that alternate")
    options.add_argument(
        "--spread-s", type=float, default=2, help="seconds over which streams begin"
    )
    options.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=PROGRAM",
        help=f"one of {', '.join(PEERS)}; repeatable",
    )
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    if unknown := [
        named for named in chosen.peer if named.partition("=")[0] not in PEERS or "=" not in named
    ]:
        options.error(
            f"--peer takes NAME=PROGRAM with a name of {', '.join(PEERS)}, not {unknown[0]}"
        )
    lines = [*own_lines(chosen), *peer_lines(chosen)]
    sys.stdout.write(
        msgspec.json.format(msgspec.json.encode(lines)).decode() + "\n"
        if chosen.json
        else table(lines)
    )


if __name__ == "__main__":
    main()
