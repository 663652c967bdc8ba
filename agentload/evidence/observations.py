"""Rows as columns of observations: one row a turn, for one workload on one arm."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from advisor.evidence import Calls, Floats, Ints
from agentload.evidence import inflight
from agentload.evidence.plays import Play

# By plan or by the user, not by the server: no outcome of the turn.
NOT_OUTCOMES: Final = ("cancelled", "stopped")

READ: Final = (
    "workload", "arm", "status", "tail", "play", "pair", "machine", "session", "turn", "restart", "start_s", "ttft_ms", "tpot_ms",
    "turn_ms", "lag_ms", "hit_rate",
    "gap_p99_ms", "prompt_tokens", "context_tokens", "cached_tokens", "asked_tokens", "tokens", "batch_kv_tokens", "batch_sequences",
    "busy_s", "sent_ns", "first_ns", "chunk_count", "coalesced_reads", "stamp_source",
)  # fmt: skip


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


def with_batches(frame: pl.DataFrame, plays: Sequence[Play]) -> pl.DataFrame:
    """Add what every attempt shared its server with: all that was in flight counts, whether or not it is evidence itself."""
    names = ("batch_kv_tokens", "batch_sequences", "busy_s")
    columns: dict[str, Floats] = {name: np.full(frame.height, np.nan) for name in names}
    kv_prompt = _floats(frame.select(pl.coalesce("prompt_tokens", "context_tokens")), "prompt_tokens")
    origin = min((play.started_ns for play in plays), default=0)
    seconds = {name: (frame[name] - origin).cast(pl.Float64).to_numpy() / 1e9 for name in ("first_ns", "last_ns", "sent_ns", "done_ns")}
    for _, group in frame.select("leg", "arm").with_row_index().group_by("leg", "arm", maintain_order=True):
        at = group["index"].to_numpy()
        found = inflight.shared(seconds["first_ns"][at], seconds["last_ns"][at], kv_prompt[at], _floats(frame, "tokens")[at])
        columns["batch_kv_tokens"][at] = found.kv_tokens
        columns["batch_sequences"][at] = found.sequences
        columns["busy_s"][at] = inflight.busy_s(seconds["sent_ns"][at], seconds["done_ns"][at])
    return frame.with_columns(**{name: pl.Series(values) for name, values in columns.items()})


def _ints(frame: pl.DataFrame, name: str) -> Ints:
    return frame[name].cast(pl.Int64).to_numpy()


def _floats(frame: pl.DataFrame, name: str) -> Floats:
    return frame[name].cast(pl.Float64).to_numpy()
