"""Rows as columns of observations: latencies in ms, one row a turn, for one workload on one arm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
import polars as pl

from advisor.evidence import Calls, Floats, Ints
from agentload.evidence import inflight
from agentload.evidence.plays import Play

LatencyFrom: TypeAlias = Literal["due", "released"]
"""Open loop counts from `due`: whatever delays a turn is the server's. A closed loop or a cap of ours holds turns back: `released`."""

# By plan or by the user, not by the server: no outcome of the turn.
NOT_OUTCOMES: Final = ("cancelled", "stopped")

READ: Final = (
    "workload", "arm", "status", "tail", "play", "pair", "machine", "session", "turn", "restart", "start_s", "ttft_ms", "tpot_ms",
    "turn_ms", "lag_ms",
    "gap_p99_ms", "prompt_tokens", "context_tokens", "cached_tokens", "asked_tokens", "tokens", "batch_kv_tokens", "batch_sequences",
    "busy_s", "sent_ns", "first_ns", "chunk_count", "coalesced_reads", "stamp_source",
)  # fmt: skip


def timed(rows: pl.DataFrame, plays: Sequence[Play], *, latency_from: LatencyFrom) -> pl.DataFrame:
    """Add latencies and what each call shared its server with, for every attempt of the run."""
    since = pl.col("due_ns" if latency_from == "due" else "began_ns")
    tokens = pl.coalesce("output_tokens", "streamed_tokens")
    # A first chunk of several tokens says nothing of the time between them: only those after it took last - first.
    after_first = tokens.cast(pl.Int64) - pl.coalesce(pl.col("first_chunk_tokens").cast(pl.Int64), 1)
    frame = rows.with_columns(
        ttft_ms=_ms(pl.col("first_ns") - since),
        turn_ms=_ms(pl.col("done_ns") - since),
        tpot_ms=pl.when(after_first > 0).then(_ms(pl.col("last_ns") - pl.col("first_ns")) / after_first),
        # Opening a connection is no delay of ours.
        lag_ms=_ms(pl.col("sent_ns") - pl.max_horizontal("released_ns", "opened_ns")),
        gap_p99_ms=pl.col("gap_p99_us") / 1e3,
        tokens=tokens,
        kv_prompt=pl.coalesce("prompt_tokens", "context_tokens"),
    )
    return _with_batches(frame, plays)


def counted(frame: pl.DataFrame, plays: Sequence[Play]) -> pl.DataFrame:
    """Keep the last attempt of every turn of the plays that are evidence, sorted: equal rows give equal evidence."""
    kept = pl.DataFrame(
        [(play.number, play.pair, play.machine, play.restart, play.start_s, play.started_ns) for play in plays if play.left_out is None],
        schema={
            "play": pl.Int64,
            "pair": pl.Int64,
            "machine": pl.String,
            "restart": pl.Int64,
            "start_s": pl.Float64,
            "started_ns": pl.Int64,
        },
        orient="row",
    )
    # A play is one arm's, so numbers alone sort the rows of every workload and arm, and nothing is carried along that nobody reads.
    return (
        frame.lazy()
        .filter(pl.col("is_last") & ~pl.col("prime") & ~pl.col("status").is_in(NOT_OUTCOMES))
        .join(kept.lazy(), on="play", how="inner")
        .with_columns(start_s=pl.col("start_s") + (pl.col("began_ns") - pl.col("started_ns")) / 1e9)
        .select(READ)
        .sort("play", "session", "turn")
        .collect()
    )


def calls(rows: pl.DataFrame, machines: Sequence[str]) -> Calls:
    """Turn the rows of one workload on one arm into the advisor's columns; *machines* are numbered as the advisor numbers them."""
    cached = rows["cached_tokens"].null_count() < rows.height
    return Calls(
        restart=_ints(rows, "restart"),
        pair=_ints(rows, "pair"),
        block=_ints(rows, "play"),
        session=_ints(rows, "session"),
        turn=_ints(rows, "turn"),
        start_s=_floats(rows, "start_s"),
        ok=rows["status"].eq("ok").to_numpy(),
        ttft_ms=_floats(rows, "ttft_ms"),
        tpot_ms=_floats(rows, "tpot_ms"),
        turn_ms=_floats(rows, "turn_ms"),
        prompt_tokens=_floats(rows, "prompt_tokens"),
        output_tokens=_floats(rows, "tokens"),
        computed_tokens=_floats(rows, "prompt_tokens") - _floats(rows, "cached_tokens") if cached else None,
        asked_tokens=_floats(rows, "asked_tokens"),
        batch_kv_tokens=_floats(rows, "batch_kv_tokens"),
        lag_ms=_floats(rows, "lag_ms"),
        gap_p99_ms=_floats(rows, "gap_p99_ms"),
        machine=None if rows["machine"].has_nulls() else rows["machine"].replace_strict(list(machines), range(len(machines))).to_numpy(),
        tail=rows["tail"].to_numpy(),
    )


def _with_batches(frame: pl.DataFrame, plays: Sequence[Play]) -> pl.DataFrame:
    """Add the batch of every call: all that was in flight counts, whether or not it is evidence itself."""
    names = ("batch_kv_tokens", "batch_sequences", "busy_s")
    columns: dict[str, Floats] = {name: np.full(frame.height, np.nan) for name in names}
    origin = min((play.started_ns for play in plays), default=0)
    seconds = {name: (frame[name] - origin).cast(pl.Float64).to_numpy() / 1e9 for name in ("first_ns", "last_ns", "sent_ns", "done_ns")}
    for _, group in frame.select("leg", "arm").with_row_index().group_by("leg", "arm", maintain_order=True):
        at = group["index"].to_numpy()
        found = inflight.shared(
            seconds["first_ns"][at], seconds["last_ns"][at], _floats(frame, "kv_prompt")[at], _floats(frame, "tokens")[at]
        )
        columns["batch_kv_tokens"][at] = found.kv_tokens
        columns["batch_sequences"][at] = found.sequences
        columns["busy_s"][at] = inflight.busy_s(seconds["sent_ns"][at], seconds["done_ns"][at])
    return frame.with_columns(**{name: pl.Series(values) for name, values in columns.items()})


def _ms(ns: pl.Expr) -> pl.Expr:
    return ns.cast(pl.Float64) / 1e6


def _ints(frame: pl.DataFrame, name: str) -> Ints:
    return frame[name].cast(pl.Int64).to_numpy()


def _floats(frame: pl.DataFrame, name: str) -> Floats:
    return frame[name].cast(pl.Float64).to_numpy()
