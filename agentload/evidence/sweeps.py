"""The calls of a context sweep as the advisor's columns: one row a call that ran alone."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from advisor.evidence import Floats, Sweep
from agentload.evidence.plays import Play
from agentload.model.apart import CONTEXT_SWEEP, STEP_TIMES


def parted(counted: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the calls of a context sweep, and those of the workloads: of a run that is a sweep alone, the same calls."""
    workload = pl.col("workload")
    swept, others = counted.filter(workload.eq(CONTEXT_SWEEP)), counted.filter(~workload.is_in([CONTEXT_SWEEP, STEP_TIMES]))
    return swept, others if others.height else swept


def without(plays: Sequence[Play], played: pl.DataFrame, counted: pl.DataFrame) -> tuple[Play, ...]:
    """Leave out the plays of what was measured apart: its calls ran as no user's do, and say nothing of a server under load."""
    alone = set(played["play"]) - set(counted["play"])
    return tuple(play for play in plays if play.number not in alone)


def sweeps(swept: pl.DataFrame, arms: Sequence[str]) -> tuple[Sweep, ...]:
    """Return a sweep an arm that has calls of one."""
    alone = swept.filter(pl.col("status").eq("ok") & pl.col("tpot_ms").is_not_null())
    return tuple(_sweep(arm, own) for arm in arms if (own := alone.filter(pl.col("arm").eq(arm))).height)


def _sweep(arm: str, own: pl.DataFrame) -> Sweep:
    prompt = own.with_columns(tokens_in=pl.coalesce("prompt_tokens", "context_tokens"))
    cached = own["cached_tokens"].null_count() < own.height
    return Sweep(
        arm=arm,
        pair=own["pair"].cast(pl.Int64).to_numpy(),
        users=np.ones(own.height, dtype=np.int64),
        context_tokens=_floats(prompt, "tokens_in") + _floats(own, "tokens") / 2,
        itl_ms=_floats(own, "tpot_ms"),
        ttft_ms=_floats(own, "ttft_ms"),
        prompt_tokens=_floats(prompt, "tokens_in"),
        computed_tokens=_floats(prompt, "tokens_in") - _floats(own, "cached_tokens") if cached else None,
    )


def _floats(frame: pl.DataFrame, name: str) -> Floats:
    return frame[name].cast(pl.Float64).to_numpy()
