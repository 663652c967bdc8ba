"""Measure our transport against a server that knows the truth, and beside it the clients that others build on.

    python benchmarks/transport.py [--seconds 15] [--clients agentload,aiohttp,openai] [--json]

Error of a gap: what the client says lies between two chunks, less what lay between the server's writes. Error of the TTFT: from the
sending of the request to the first chunk, as the client says, less from its arrival at the server to the server's first write.

What else runs on the machine makes clients late, so its share is printed too: a line is worth little where it is not small.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from transport_client import CLIENTS, Measured, Run

HERE = Path(__file__).parent
US, MS = 1e3, 1e6
TICKS = os.sysconf("SC_CLK_TCK")


class Truth(msgspec.Struct, array_like=True):
    """What the server says of one stream."""

    id: str
    arrived_ns: int
    before_ns: list[int]
    after_ns: list[int]


class Figures(msgspec.Struct):
    """One line of the table."""

    client: str
    load: str
    calls: int
    chunks: int
    lost: int
    coalesced: int
    gap_error_us_p50: float
    gap_error_us_p99: float
    gap_error_us_max: float
    write_us_p99: float
    """How long the server's own writes took: the truth is no sharper."""
    ttft_error_ms_p50: float
    ttft_error_ms_p99: float
    lag_ms_p50: float
    lag_ms_p99: float
    lag_ms_max: float
    cpu_us_per_chunk: float
    cpu_share: float
    cores_elsewhere: float
    note: str = ""


@contextmanager
def truth_server(*, tokens: int) -> Iterator[tuple[str, int]]:
    """Run the server in a process of its own; give its base URL and its process."""
    command = [sys.executable, str(HERE / "truth_server.py"), "--tokens", str(tokens)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1", process.pid
        finally:
            process.kill()


def played(client: str, *, tokens: int, load: list[str]) -> tuple[Run, dict[str, Truth], float]:
    """Run a client against a fresh server; return what each says, and how many cores were busy with something else."""
    with truth_server(tokens=tokens) as (url, server):
        began, busy_s, children_s = time.monotonic(), _busy_s(), _children_s()
        command = [sys.executable, str(HERE / "transport_client.py"), client, url, *load]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        own_s = _children_s() - children_s + _process_s(server)
        elsewhere = max(0.0, _busy_s() - busy_s - own_s) / (time.monotonic() - began)
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - our own server
            log = msgspec.msgpack.decode(answer.read(), type=list[Truth])
    return msgspec.msgpack.decode(done.stdout, type=Run), {truth.id: truth for truth in log}, elsewhere


def _busy_s() -> float:
    # user, nice, system, idle, iowait, irq, softirq, steal
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICKS


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _process_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def figures(client: str, load: str, run: Run, truths: dict[str, Truth], elsewhere: float, *, tokens: int) -> Figures:
    """Join what the client says with the truth. A session's first call opens a connection and is no steady state."""
    pairs = [(call, truths[call.id]) for call in run.calls if call.id in truths]
    steady = [(call, truth) for call, truth in pairs if load.startswith("open") or not call.id.endswith("-0")]
    gaps = np.concatenate([_gap_errors(call, truth) for call, truth in steady if len(call.stamps_ns) == tokens])
    writes = np.concatenate([np.subtract(truth.after_ns, truth.before_ns) for _, truth in steady])
    ttft = np.array([_ttft_error(call, truth) for call, truth in steady])
    lags = np.array([call.sent_ns - call.released_ns for call, _ in steady if call.sent_ns is not None])
    chunks = sum(len(call.stamps_ns) for call in run.calls)
    return Figures(
        client=client,
        load=load,
        calls=len(run.calls),
        chunks=chunks,
        lost=sum(tokens - sum(call.tokens) for call in run.calls) + tokens * (len(run.calls) - len(pairs)),
        coalesced=sum(call.coalesced for call in run.calls),
        gap_error_us_p50=_q(np.abs(gaps), 50) / US,
        gap_error_us_p99=_q(np.abs(gaps), 99) / US,
        gap_error_us_max=_q(np.abs(gaps), 100) / US,
        write_us_p99=_q(writes, 99) / US,
        ttft_error_ms_p50=_q(np.abs(ttft), 50) / MS,
        ttft_error_ms_p99=_q(np.abs(ttft), 99) / MS,
        lag_ms_p50=_q(lags, 50) / MS,
        lag_ms_p99=_q(lags, 99) / MS,
        lag_ms_max=_q(lags, 100) / MS,
        cpu_us_per_chunk=run.cpu_s * 1e6 / chunks,
        cpu_share=run.cpu_s / run.wall_s,
        cores_elsewhere=elsewhere,
        note=run.note,
    )


def _gap_errors(call: Measured, truth: Truth) -> NDArray[np.float64]:
    middle = (np.array(truth.before_ns) + np.array(truth.after_ns)) / 2
    errors: NDArray[np.float64] = np.diff(np.array(call.stamps_ns)) - np.diff(middle)
    return errors


def _ttft_error(call: Measured, truth: Truth) -> float:
    sent_ns = call.released_ns if call.sent_ns is None else call.sent_ns
    return (call.stamps_ns[0] - sent_ns) - (truth.before_ns[0] - truth.arrived_ns)


def _q(values: NDArray[np.float64], percent: float) -> float:
    return float(np.percentile(values, percent))


def table(lines: list[Figures]) -> str:
    """Return the figures as a Markdown table."""
    head = [
        "load",
        "client",
        "chunks",
        "lost",
        "coalesced",
        "gap error p50",
        "p99",
        "max",
        "TTFT error p50",
        "p99",
        "send lag p50",
        "p99",
        "CPU a chunk",
        "cores busy elsewhere",
    ]
    rows = [
        [
            line.load,
            line.client,
            f"{line.chunks:,}",
            str(line.lost),
            f"{line.coalesced:,}" if line.client == "agentload" else "?",
            f"{line.gap_error_us_p50:,.1f} µs",
            f"{line.gap_error_us_p99:,.1f} µs",
            f"{line.gap_error_us_max:,.0f} µs",
            f"{line.ttft_error_ms_p50:.3f} ms",
            f"{line.ttft_error_ms_p99:.3f} ms",
            *([f"{line.lag_ms_p50:.3f} ms", f"{line.lag_ms_p99:.3f} ms"] if line.client == "agentload" else ["?", "?"]),
            f"{line.cpu_us_per_chunk:.1f} µs",
            f"{line.cores_elsewhere:.2f}",
        ]
        for line in lines
    ]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]) + "\n"


def main() -> None:
    """Measure every load with every client and print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=15)
    options.add_argument("--streams", default="256,1000")
    options.add_argument("--rates", default="25,500")
    options.add_argument("--clients", default=",".join(CLIENTS))
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    lines: list[Figures] = []
    for client in chosen.clients.split(","):
        for streams in filter(None, chosen.streams.split(",")):
            played_ = played(client, tokens=100, load=["--streams", streams, "--seconds", str(chosen.seconds)])
            lines.append(figures(client, f"{streams} streams x 50/s", *played_, tokens=100))
        for rate in filter(None, chosen.rates.split(",")):
            played_ = played(client, tokens=10, load=["--rate", rate, "--seconds", str(chosen.seconds)])
            lines.append(figures(client, f"open loop {rate}/s", *played_, tokens=10))
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(lines)).decode() + "\n" if chosen.json else table(lines))


if __name__ == "__main__":
    main()
