"""Say how well the load generator kept up, and what to know before trusting the figures.

That is blocks left out, turns that failed, prompts that were not as long as requested, and
calls that were all held back by the same time.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import quantiles
from typing import Any, Final, Literal

import duckdb
import polars as pl

from advisor.evidence import ClientHealth
from agentload.evidence.plays import PlayedBlock, plays_table, total, valid_plays
from agentload.evidence.view import RunView
from agentload.model.metrics import p99


def health(
    connection: duckdb.DuckDBPyConnection, view: RunView, rows: pl.DataFrame
) -> tuple[ClientHealth, ...]:
    """Return one health record an arm; *rows* are the counted ones."""
    kept = valid_plays(view.plays)
    legs = {play.leg for play in kept}
    said = [json.loads(row.health) for row in view.legs if row.leg in legs and row.health]
    with plays_table(connection, kept):
        limits = dict(connection.execute(_LIMITED, {"run": view.name}).fetchall())
    records = (
        _health(arm, view.plays, rows.filter(pl.col("arm") == arm), said) for arm in view.arm_names
    )
    return tuple(replace(each, limited_share=limits.get(each.arm)) for each in records)


def _health(
    arm: str, plays: Sequence[PlayedBlock], rows: pl.DataFrame, said: Sequence[Mapping[str, Any]]
) -> ClientHealth:
    own = [play for play in plays if play.arm == arm]
    lags = map(_lag_p99_ms, rows.partition_by("leg"))
    reads = rows.filter(pl.col("coalesced_reads").is_not_null() & (pl.col("chunk_count") > 0))
    return ClientHealth(
        arm=arm,
        # The worst part of the run counts, as each part judged itself (`live.punctuality`).
        send_lag_p99_ms=max((lag for lag in lags if lag is not None), default=None),
        loop_stall_max_ms=_most(said, "loop_stall_max_ms"),
        coalesced_share=max(map(_coalesced_share, reads.partition_by("leg")), default=None),
        clock_steps=_most(said, "clock_steps"),
        dropped_share=_most(said, "dropped_share"),
        stamp_source=_stamp_source(rows),
        read_path=_read_path(said),
        void_blocks=sum(play.is_void for play in own),
        blocks=len(own),
    )


def _stamp_source(rows: pl.DataFrame) -> Literal["kernel", "user"] | None:
    """Say who stamped the chunks; a single user stamp makes all of them as coarse."""
    sources = set(rows.filter(pl.col("chunk_count") > 0)["stamp_source"].unique())
    if "user" in sources:
        return "user"
    return "kernel" if "kernel" in sources else None


def _read_path(said: Sequence[Mapping[str, Any]]) -> Literal["thread", "interpreter"] | None:
    """Say who read the sockets; the interpreter where it did so in any part of the run."""
    paths = {each.get("read_path") for each in said}
    if "interpreter" in paths:
        return "interpreter"
    return "thread" if "thread" in paths else None


def _lag_p99_ms(rows: pl.DataFrame) -> float | None:
    return p99(rows["lag_ms"].drop_nulls().to_list())


def _coalesced_share(reads: pl.DataFrame) -> float:
    return total(reads, "coalesced_reads") / total(reads, "chunk_count")


def _most(said: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = (each.get(name) for each in said)
    return max((float(value) for value in values if value is not None), default=None)


# The share of attempts that were answered 429. A busy server of its own accord says 503
# (vLLM's queue is full); 429 is said by whoever counts requests of a key: in an answer's head,
# or in a stream whose head said 200 (`dispatch.call` puts its code before what it said).
_LIMITED: Final = """
SELECT c.arm, count(*) FILTER (c.http_status = 429 OR (c.status = 'busy' AND starts_with(c.error,
    '429 '))) / count(*)
FROM attempts AS c JOIN plays AS p ON (p.leg, p.arm, p.pair) = (c.leg, c.arm, c.pair)
    AND c.released_ns BETWEEN p.started_ns AND p.ended_ns
WHERE c.run_id = $run AND c.http_status IS NOT NULL GROUP BY ALL
"""


# A percent or so is the chat template; beyond two
# percent, "a 32k prompt" is no longer what was compared.
MAX_LENGTH_DEVIATION: Final = 0.02
# No tokenizer counts half as many or twice as many: another thing is counted.
ANOTHER_COUNT: Final = 0.4
# Of a first token against the same call on another arm; queues
# and long prefills hold calls back by many different times.
HELD_MS: Final = 300.0
HELD_TIMES: Final = 1.0
HELD_CALLS: Final = 5
ALIKE: Final = 0.2
# Below this, quantiles up to p99 are those of the whole.
MAX_FAILED: Final = 0.01


def notes(plays: Sequence[PlayedBlock], rows: pl.DataFrame) -> tuple[str, ...]:
    """Return one sentence a fact; *rows* are the counted ones."""
    return (*_left_out(plays), *_failures(rows), *_lengths(rows), *_stretched(rows))


def _left_out(plays: Sequence[PlayedBlock]) -> Iterator[str]:
    by_reason: dict[str, list[int]] = {}
    for play in plays:
        if play.left_out is not None:
            by_reason.setdefault(play.left_out, []).append(play.pair)
    for reason, pairs in sorted(by_reason.items()):
        named = ", ".join(map(str, sorted(set(pairs))))
        of = f"pair{'s' if len(set(pairs)) > 1 else ''} {named}"
        yield f"{len(pairs)} of {len(plays)} blocks left out ({of}): {reason}"


def _failures(rows: pl.DataFrame) -> Iterator[str]:
    failed = pl.col("status").ne("ok")
    shares = rows.group_by("workload", "arm").agg(
        share=failed.mean(), how=pl.col("status").filter(failed).unique().sort().str.join(", ")
    )
    told: dict[tuple[str, str, str], list[str]] = {}
    for workload, arm, share, how in (
        shares.filter(pl.col("share") > MAX_FAILED).sort("workload", "arm").iter_rows()
    ):
        many = "every turn" if share == 1.0 else f"{share:.1%} of the turns"
        told.setdefault((workload, many, how), []).append(arm)
    for (workload, many, how), arms in told.items():
        others = "" if many == "every turn" else ": the figures are of the others"
        yield f"{many} of {workload} failed on {', '.join(arms)} ({how}){others}"


def _lengths(rows: pl.DataFrame) -> Iterator[str]:
    known = rows.filter(pl.col("prompt_tokens").is_not_null() & (pl.col("context_tokens") > 0))
    deviation = known.group_by("workload", "arm").agg(
        deviation=(pl.col("prompt_tokens") / pl.col("context_tokens")).median() - 1, calls=pl.len()
    )
    for workload, arm, share, calls in deviation.sort("workload", "arm").iter_rows():
        if abs(share) > MAX_LENGTH_DEVIATION:
            longer = "longer" if share > 0 else "shorter"
            if abs(share) < ANOTHER_COUNT:
                remedy = "give the served model's own tokenizer"
            else:
                remedy = "its usage disagrees with what was sent"
            yield (
                f"{workload} on {arm}: the server counts prompts {abs(share):.1%} {longer} "
                f"than asked (median of {calls:,} calls): {remedy}"
            )


def _stretched(rows: pl.DataFrame) -> Iterator[str]:
    """Report calls that were all held back by about the same time.

    Such a time is that of a gateway that tries an attempt again without reporting it.
    """
    same = ("pair", "session", "turn")
    known = rows.filter(pl.col("status").eq("ok") & pl.col("ttft_ms").is_not_null()).with_columns(
        best=pl.col("ttft_ms").min().over(same), arms=pl.col("arm").n_unique().over(same)
    )
    late = pl.col("ttft_ms") - pl.col("best")
    is_late = (late > HELD_MS) & (late > HELD_TIMES * pl.col("best"))
    found = (
        known.filter(pl.col("arms") > 1)
        .group_by("arm")
        .agg(calls=pl.len(), late=late.filter(is_late))
    )
    for arm, calls, times in found.sort("arm").iter_rows():
        if HELD_CALLS <= len(times) <= calls / 2:
            first, middle, third = quantiles(times, n=4)
            if third - first <= ALIKE * middle:
                yield (
                    f"{arm}: the first token of {len(times)} of {calls:,} calls came about "
                    f"{middle / 1e3:.1f} s later than on another arm, "
                    "each time by as much: something in between may wait and try again"
                )
