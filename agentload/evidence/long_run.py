"""What a long primed run says of capacity: whether each pool filled, and how many turns held the service level from then on.

A pool is full once as many tokens as it holds were written: what was not found in the cache, and what was answered. Servers count pages
that are kept for later readers as free, so their gauge alone does not see it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from advisor.evidence import Arm, CapacityPoint, Telemetry
from agentload.evidence.plays import Play
from agentload.evidence.telemetry import hit_rate
from agentload.study.kinds import Replay, Study
from agentload.study.parts import Slo
from agentload.study.stored import Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRun:
    """What a run was laid out for."""

    agents: int
    slo: Slo
    fill_minutes: Mapping[str, float] = field(default_factory=dict)
    """By arm: what the plan expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """How far one arm's pool filled in its plays."""

    tokens: float | None
    written: float | None
    """In the play that wrote least; None where the server does not say what it found in its cache."""
    full_from_s: Mapping[int, float]
    """By play that filled it: how long after its begin."""
    share: float
    """Of the time of all plays, with the pool full."""
    is_full: bool | None
    """In every play; None: nobody could tell."""


def long_run(study: Study | None, noted: Notes) -> LongRun | None:
    """Return what a run was laid out for; None for one that is no long run."""
    if not isinstance(study, Replay) or study.capacity is None:
        return None
    return LongRun(agents=study.capacity, slo=study.slo, fill_minutes=noted.fill_minutes)


def pool(arm: Arm, frame: pl.DataFrame, plays: Sequence[Play], figures: Telemetry) -> Pool:
    """Say how far an arm's pool filled; *frame* has all attempts, priming ones included."""
    own = [play for play in plays if play.arm == arm.name and play.left_out is None and play.ended_ns is not None]
    tokens = arm.pool_tokens or arm.expected_pool_tokens
    seconds = {play.number: ((play.ended_ns or play.started_ns) - play.started_ns) / 1e9 for play in own}
    written = {play.number: _written(frame.filter(pl.col("play") == play.number), play) for play in own}
    known = {number: found for number, found in written.items() if found is not None}
    full_from = {} if tokens is None else {number: at for number, found in known.items() if (at := _full_from(found, tokens)) is not None}
    by_tokens = sum(seconds[number] - at for number, at in full_from.items()) / (sum(seconds.values()) or 1.0)
    by_gauge = figures.pool_filled_share or 0.0
    is_seen = bool(figures.preemptions) or by_gauge > 0
    is_told = tokens is not None and len(known) == len(own) > 0
    return Pool(
        tokens=tokens,
        written=min((float(found["written"].max() or 0.0) for found in known.values()), default=None),  # type: ignore[arg-type]  # a float column
        full_from_s=full_from,
        share=max(by_tokens, by_gauge),
        is_full=True if is_seen else len(full_from) == len(own) if is_told else None,
    )


def seen(run: LongRun, arm: str, figures: Telemetry, found: Pool) -> Telemetry:
    """Return an arm's figures with what is known of its pool."""
    share = figures.pool_filled_share if found.is_full is None else found.share
    return replace(figures, pool_filled_share=share, fill_minutes=run.fill_minutes.get(arm))


def point(run: LongRun, arm: str, rows: pl.DataFrame, plays: Sequence[Play], *, figures: Telemetry, found: Pool) -> CapacityPoint:
    """Return the run as one step of a search for capacity: of turns that were released while the pool was full, where it ever was.

    *rows* are the counted ones.
    """
    begins = {play.number: play.start_s + found.full_from_s.get(play.number, 0.0) for play in plays}
    own = rows.filter(pl.col("arm") == arm).with_columns(full_s=pl.col("play").replace_strict(begins, return_dtype=pl.Float64))
    kept = own.filter(pl.col("start_s") >= pl.col("full_s"))
    return CapacityPoint(
        arm=arm,
        agents=run.agents,
        turns=kept.height,
        within_slo=sum(run.slo.holds(*each) for each in kept.select("status", "ttft_ms", "tpot_ms", "turn_ms").iter_rows()),
        minutes=figures.minutes or 0.0,
        pool_filled=found.is_full,
        preemptions=figures.preemptions,
        hit_rate=hit_rate(kept),
    )


def notes(pools: Mapping[str, Pool]) -> Iterator[str]:
    """Say where capacity is not tested, and why."""
    for arm, found in pools.items():
        if found.is_full is None:
            yield f"{arm}: nobody could tell whether the KV pool filled: capacity is not tested"
        elif not found.is_full:
            share = (
                "" if not found.tokens or found.written is None else f" ({found.written / found.tokens:.0%} of {found.tokens:,.0f} tokens)"
            )
            yield f"{arm}: the KV pool never filled{share}: capacity is not tested; play longer, or with more sessions"


def _written(rows: pl.DataFrame, play: Play) -> pl.DataFrame | None:
    """Return how many tokens were written after how many seconds of a play; None where the server says nothing of its cache."""
    answered = rows.filter(pl.col("done_ns").is_not_null() & pl.col("prompt_tokens").is_not_null())
    if not answered.height or answered["cached_tokens"].null_count() == answered.height:
        return None
    new = (pl.col("prompt_tokens") - pl.col("cached_tokens").fill_null(pl.col("prompt_tokens")) + pl.col("tokens").fill_null(0)).cast(
        pl.Float64
    )
    at_s = (pl.col("done_ns") - play.started_ns).cast(pl.Float64) / 1e9
    return answered.select(at_s=at_s, new=new).sort("at_s").select("at_s", written=pl.col("new").cum_sum())


def _full_from(written: pl.DataFrame, tokens: float) -> float | None:
    full = written.filter(pl.col("written") >= tokens)
    return float(full["at_s"][0]) if full.height else None
