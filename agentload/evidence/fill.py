"""Say how far a long run filled each arm's KV pool, as one step of a search for capacity.

A pool is full once as many tokens as it holds were written: what was not found
in the cache, and what was answered. Servers count pages that are kept for later
readers as free, so their gauge alone does not see it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import polars as pl

from advisor.evidence import Arm, Telemetry
from advisor.loads import CapacityPoint
from agentload.evidence.plays import PlayedBlock
from agentload.evidence.telemetry import hit_rate
from agentload.model.record import Record
from agentload.study.kinds import Replay

_Written: TypeAlias = pl.DataFrame
"""Tokens that were written (`written`) after so many seconds of a play (`at_s`)."""


class PoolFill(Record):
    """How far one arm's pool filled in its plays."""

    tokens: float | None
    written: float | None
    """In the play that wrote least; None where the
    server does not say what it found in its cache.
    """
    full_from_s: Mapping[int, float]
    """Seconds from the start of each play until the pool was full; without plays that never did."""
    full_share: float
    """Share of the time of all plays in which the pool was full."""
    is_full: bool | None
    """Whether the pool became full in every play; None: nobody could tell."""


def pool_fill(
    arm: Arm, frame: pl.DataFrame, plays: Sequence[PlayedBlock], figures: Telemetry
) -> PoolFill:
    """Say how far an arm's pool filled; *frame* has all attempts, priming ones included."""
    own = [each for each in plays if each.arm == arm.name and each.left_out is None]
    ended = {each.number: each for each in own if each.ended_ns is not None}
    tokens = arm.pool_tokens or arm.expected_pool_tokens
    written = _by_play(frame, ended.values())
    full_from = {} if tokens is None else _full_from(written, tokens)
    by_tokens = _share_of_time(full_from, ended)
    by_gauge = figures.pool_filled_share or 0.0
    is_full: bool | None = None
    if tokens is not None and len(written) == len(ended) > 0:
        is_full = len(full_from) == len(ended)
    if figures.preemptions or by_gauge > 0:
        is_full = True
    return PoolFill(
        tokens=tokens,
        written=min((_total(found) for found in written.values()), default=None),
        full_from_s=full_from,
        full_share=max(by_tokens, by_gauge),
        is_full=is_full,
    )


def point(
    study: Replay,
    arm: str,
    rows: pl.DataFrame,
    plays: Sequence[PlayedBlock],
    *,
    figures: Telemetry,
    pool: PoolFill,
) -> CapacityPoint:
    """Return a long run as one step of a search for capacity.

    Its turns are those released while the pool was full, where it ever was. *rows* are the
    counted ones.
    """
    full_s = {play.number: play.start_s + pool.full_from_s.get(play.number, 0.0) for play in plays}
    own = rows.filter(pl.col("arm") == arm).with_columns(
        full_s=pl.col("play").replace_strict(full_s, return_dtype=pl.Float64)
    )
    kept = own.filter(pl.col("start_s") >= pl.col("full_s"))
    turns = kept.select("status", "ttft_ms", "tpot_ms", "turn_ms").iter_rows()
    return CapacityPoint(
        arm=arm,
        agents=study.capacity or 0,
        turns=kept.height,
        within_slo=sum(study.slo.holds(*turn) for turn in turns),
        minutes=figures.minutes or 0.0,
        pool_filled=pool.is_full,
        preemptions=figures.preemptions,
        hit_rate=hit_rate(kept),
    )


def notes(pools: Mapping[str, PoolFill]) -> Iterator[str]:
    """Say where capacity is not tested, and why."""
    for arm, found in pools.items():
        if found.is_full is None:
            yield f"{arm}: nobody could tell whether the KV pool filled: capacity is not tested"
        elif not found.is_full:
            share = ""
            if found.tokens and found.written is not None:
                share = (
                    f" ({found.written / found.tokens:.0%} of {found.tokens:,.0f} tokens written)"
                )
            yield (
                f"{arm}: the KV pool never filled{share}: capacity is not tested; play longer, "
                "or with more sessions"
            )


def _by_play(frame: pl.DataFrame, plays: Iterable[PlayedBlock]) -> dict[int, _Written]:
    """Return what each play wrote, by its number, where the server reports its cache hits."""
    found = {
        play.number: _written(frame.filter(pl.col("play") == play.number), play) for play in plays
    }
    return {number: each for number, each in found.items() if each is not None}


def _written(rows: pl.DataFrame, play: PlayedBlock) -> _Written | None:
    """Return what a play wrote; None where the server reports nothing of its cache."""
    answered = rows.filter(pl.col("done_ns").is_not_null() & pl.col("prompt_tokens").is_not_null())
    if not answered.height or answered["cached_tokens"].null_count() == answered.height:
        return None
    asked, cached, answer = (
        pl.col(name).cast(pl.Float64) for name in ("prompt_tokens", "cached_tokens", "tokens")
    )
    new = asked - cached.fill_null(asked) + answer.fill_null(0)
    at_s = (pl.col("done_ns") - play.started_ns).cast(pl.Float64) / 1e9
    return (
        answered.select(at_s=at_s, new=new)
        .sort("at_s")
        .select("at_s", written=pl.col("new").cum_sum())
    )


def _total(written: _Written) -> float:
    return float(written["written"].max() or 0.0)  # type: ignore[arg-type]  # a float column


def _full_from(written: Mapping[int, _Written], tokens: float) -> dict[int, float]:
    """Return after how many seconds each play had written *tokens*, of those that did."""
    full_from = {}
    for number, found in written.items():
        full = found.filter(pl.col("written") >= tokens)
        if full.height:
            full_from[number] = float(full["at_s"][0])
    return full_from


def _share_of_time(full_from: Mapping[int, float], ended: Mapping[int, PlayedBlock]) -> float:
    """Return the share of all plays' time that lies after their pools were full."""
    seconds = {
        number: ((play.ended_ns or play.started_ns) - play.started_ns) / 1e9
        for number, play in ended.items()
    }
    full_s = sum(seconds[number] - at_s for number, at_s in full_from.items())
    return full_s / (sum(seconds.values()) or 1.0)
