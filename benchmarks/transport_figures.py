"""What clients say, compared with the truth."""

from __future__ import annotations

from typing import TypedDict

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import Said
from benchmarks.transport_client import Run

US, MS = 1e3, 1e6


class Truth(msgspec.Struct, array_like=True):
    """What the server says of one stream."""

    id: str
    arrived_ns: int
    before_ns: list[int]
    after_ns: list[int]

    @property
    def ttft_ns(self) -> int:
        """Return the time from the request's arrival to the first write."""
        return self.before_ns[0] - self.arrived_ns

    @property
    def gaps_ns(self) -> NDArray[np.float64]:
        """Return what lay between the writes."""
        gaps: NDArray[np.float64] = np.diff(
            (np.array(self.before_ns) + np.array(self.after_ns)) / 2
        )
        return gaps


class Around(msgspec.Struct):
    """What was measured around a client's process."""

    wall_s: float
    """Of the process, from its start to its end."""
    cores_elsewhere: float


class Figures(msgspec.Struct, kw_only=True):
    """One line of the table; None is what a client cannot know or does not export."""

    client: str
    load: str
    calls: int
    chunks: int
    lost: int | None = None
    coalesced: int | None = None
    gap_error_us_p50: float | None = None
    gap_error_us_p99: float | None = None
    gap_error_us_max: float | None = None
    ttft_error_ms_p50: float
    ttft_error_ms_p99: float
    ttft_says_ms_p99: float
    ttft_true_ms_p99: float
    write_us_p99: float
    """How long the server's own writes took: the truth is no sharper."""
    lag_ms_p50: float | None = None
    lag_ms_p99: float | None = None
    lag_ms_max: float | None = None
    cpu_us_per_chunk: float | None = None
    beyond_s: float
    """Wall time of the process beyond the load itself."""
    cores_elsewhere: float
    note: str = ""


class GapErrors(TypedDict, total=False):
    """By how much gaps are off; empty where no call was whole."""

    gap_error_us_p50: float
    gap_error_us_p99: float
    gap_error_us_max: float


class FirstTokens(TypedDict):
    """When first tokens came, and by how much that is off."""

    ttft_error_ms_p50: float
    ttft_error_ms_p99: float
    ttft_says_ms_p99: float
    ttft_true_ms_p99: float


def of_client(
    client: str,
    load: str,
    run: Run,
    truths: list[Truth],
    around: Around,
    *,
    tokens: int,
    is_open: bool,
) -> Figures:
    """Join what a client of ours says with the truth.

    A session's first call opens a connection and is no steady state.
    """
    known = {truth.id: truth for truth in truths}
    pairs = [(call, known[call.id]) for call in run.calls if call.id in known]
    steady = [(call, truth) for call, truth in pairs if is_open or not call.is_first]
    whole = [(call, truth) for call, truth in steady if len(call.stamps_ns) == tokens]
    says = np.array(
        [
            call.stamps_ns[0] - (call.released_ns if call.sent_ns is None else call.sent_ns)
            for call, _ in steady
        ]
    )
    true = np.array([truth.ttft_ns for _, truth in steady])
    lags = np.array(
        [call.sent_ns - call.released_ns for call, _ in steady if call.sent_ns is not None]
    )
    chunks = sum(len(call.stamps_ns) for call in run.calls)
    knows = client.startswith("agentload")
    return Figures(
        client=client,
        load=load,
        calls=len(run.calls),
        chunks=chunks,
        lost=sum(tokens - sum(call.tokens) for call in run.calls)
        + tokens * (len(run.calls) - len(pairs)),
        coalesced=sum(call.coalesced for call in run.calls) if knows else None,
        **_gap_errors([np.diff(np.array(call.stamps_ns)) - truth.gaps_ns for call, truth in whole]),
        **_ttft(says, true),
        write_us_p99=_writes(truths),
        lag_ms_p50=_q(lags, 50) / MS if knows else None,
        lag_ms_p99=_q(lags, 99) / MS if knows else None,
        lag_ms_max=_q(lags, 100) / MS if knows else None,
        cpu_us_per_chunk=run.cpu_s * 1e6 / chunks,
        beyond_s=around.wall_s - run.wall_s,
        cores_elsewhere=around.cores_elsewhere,
        note=run.note,
    )


def of_peer(
    client: str,
    load: str,
    said: list[Said],
    truths: list[Truth],
    around: Around,
    *,
    streams: int,
    tokens: int,
) -> Figures:
    """Join what a peer exports with the truth, but for the
    first call of each stream, which opens a connection.
    """
    pairs = sorted(_pairs(said, truths), key=lambda pair: pair[1].arrived_ns)
    steady = pairs[streams:]
    whole = [
        (call, truth)
        for call, truth in steady
        if call.gaps_ns is not None and len(call.gaps_ns) == tokens - 1
    ]
    began_ns, ended_ns = (
        min(truth.arrived_ns for truth in truths),
        max(truth.after_ns[-1] for truth in truths),
    )
    return Figures(
        client=client,
        load=load,
        calls=len(said),
        chunks=len(said) * tokens,
        **_gap_errors([np.array(call.gaps_ns) - truth.gaps_ns for call, truth in whole]),
        **_ttft(
            np.array([call.ttft_ns for call, _ in steady]),
            np.array([truth.ttft_ns for _, truth in steady]),
        ),
        write_us_p99=_writes(truths),
        beyond_s=around.wall_s - (ended_ns - began_ns) / 1e9,
        cores_elsewhere=around.cores_elsewhere,
    )


def _pairs(said: list[Said], truths: list[Truth]) -> list[tuple[Said, Truth]]:
    if all(call.id is not None for call in said):
        known = {truth.id: truth for truth in truths}
        return [(call, known[call.id]) for call in said if call.id in known]
    # As many of the last as there are: some peers try the server once before they begin.
    in_order = sorted(truths, key=lambda truth: truth.arrived_ns)[-len(said) :]
    return list(zip(sorted(said, key=lambda call: call.started_s), in_order, strict=True))


def _gap_errors(errors: list[NDArray[np.float64]]) -> GapErrors:
    if not errors:
        return {}
    joined = np.abs(np.concatenate(errors))
    return {
        "gap_error_us_p50": _q(joined, 50) / US,
        "gap_error_us_p99": _q(joined, 99) / US,
        "gap_error_us_max": _q(joined, 100) / US,
    }


def _ttft(says: NDArray[np.float64], true: NDArray[np.float64]) -> FirstTokens:
    errors = np.abs(says - true)
    return {
        "ttft_error_ms_p50": _q(errors, 50) / MS,
        "ttft_error_ms_p99": _q(errors, 99) / MS,
        "ttft_says_ms_p99": _q(says, 99) / MS,
        "ttft_true_ms_p99": _q(true, 99) / MS,
    }


def _writes(truths: list[Truth]) -> float:
    return (
        _q(np.concatenate([np.subtract(truth.after_ns, truth.before_ns) for truth in truths]), 99)
        / US
    )


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
    ]
    head += [
        "TTFT p99 said (true)",
        "send lag p50",
        "p99",
        "CPU a chunk",
        "beyond the load",
        "cores busy elsewhere",
    ]
    rows = [
        [
            line.load,
            line.client,
            f"{line.chunks:,}",
            _cell(line.lost, "{:,}"),
            _cell(line.coalesced, "{:,}"),
            _cell(line.gap_error_us_p50, "{:,.1f} µs"),
            _cell(line.gap_error_us_p99, "{:,.1f} µs"),
            _cell(line.gap_error_us_max, "{:,.0f} µs"),
            f"{line.ttft_error_ms_p50:,.3f} ms",
            f"{line.ttft_error_ms_p99:,.3f} ms",
            f"{line.ttft_says_ms_p99:,.2f} ({line.ttft_true_ms_p99:,.2f}) ms",
            _cell(line.lag_ms_p50, "{:.2f} ms"),
            _cell(line.lag_ms_p99, "{:.2f} ms"),
            _cell(line.cpu_us_per_chunk, "{:.1f} µs"),
            f"{line.beyond_s:.1f} s",
            f"{line.cores_elsewhere:.2f}",
        ]
        for line in lines
    ]
    return (
        "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows])
        + "\n"
    )


def _cell(value: float | None, form: str) -> str:
    return "?" if value is None else form.format(value)
