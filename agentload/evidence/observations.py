"""Turn rows into the advisor's columns: of calls, of controls, and of context sweeps.

A call shares its server: KV tokens and sequences of the whole batch while it decoded, and its
share of the busy time. Each is a sum over calls of something linear in time between a start
and an end. All starts and ends are sorted once; between two of them the sum is a line, so its
integral up to each of them is one cumulative sum, and a mean over a call is a difference.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import numpy as np
import polars as pl

from advisor.evidence import AaControl, Calls, ContextSweep, Floats, Ints
from agentload.evidence.plays import PlayedBlock
from agentload.evidence.servers import ArmServer
from agentload.model.apart import CONTEXT_SWEEP, STEP_TIMES
from agentload.model.controls import is_control, original
from agentload.model.metrics import NOT_OUTCOMES

READ: Final = (
    "workload", "arm", "leg", "status", "http_status", "tail", "play", "pair", "machine",
    "session", "turn", "restart", "start_s",
    "ttft_ms", "tpot_ms", "turn_ms", "lag_ms", "hit_rate",
    "prompt_tokens", "context_tokens", "cached_tokens", "asked_tokens", "tokens",
    "batch_kv_tokens", "batch_sequences", "busy_s",
    "sent_ns", "first_ns", "chunk_count", "coalesced_reads", "stamp_source", "began_ns", "done_ns",
    "turns_left", "right",
)  # fmt: skip


def last_attempts(frame: pl.DataFrame) -> pl.DataFrame:
    """Keep the last attempt of every turn that is evidence, sorted.

    Equal rows thus give equal evidence.
    """
    # A play is one arm's, so numbers alone sort the rows of every
    # workload and arm, and nothing is carried along that nobody reads.
    kept = (
        pl.col("counts")
        & pl.col("is_last")
        & ~pl.col("prime")
        & ~pl.col("status").is_in(NOT_OUTCOMES)
    )
    return (
        frame.filter(kept)
        .select(READ)
        .sort("play", "session", "turn")
        .with_columns(wait_s=_waited())
    )


def _waited() -> pl.Expr:
    """Return the seconds from the end of the turn before to the start of each turn.

    Null where that turn is not there.
    """
    before = [pl.col(name).shift(1).over("play", "session") for name in ("turn", "done_ns")]
    waited = (pl.col("began_ns") - before[1]).cast(pl.Float64) / 1e9
    return pl.when(pl.col("turn") - before[0] == 1).then(waited)


def _is_lost() -> pl.Expr:
    """Return whether a call that was sent ended in an error; a request refused as it is did not."""
    was_sent = ~pl.col("status").is_in(["ok", "not_sent"])
    is_refused = (pl.col("status") == "http_error") & (
        pl.col("http_status") < HTTPStatus.INTERNAL_SERVER_ERROR
    )
    return was_sent & ~is_refused.fill_null(value=False)


def calls(rows: pl.DataFrame, machines: Sequence[str]) -> Calls:
    """Turn the rows of one workload on one arm into the advisor's columns.

    *machines* are numbered as the advisor numbers them.
    """
    cached = rows["cached_tokens"].null_count() < rows.height
    return Calls(
        restart=_ints(rows, "restart"),
        pair=_ints(rows, "pair"),
        block=_ints(rows, "play"),
        session=_ints(rows, "session"),
        turn=_ints(rows, "turn"),
        start_s=_floats(rows, "start_s"),
        ok=rows["status"].eq("ok").to_numpy(),
        lost=rows.select(_is_lost()).to_series().to_numpy(),
        ttft_ms=_floats(rows, "ttft_ms"),
        tpot_ms=_floats(rows, "tpot_ms"),
        turn_ms=_floats(rows, "turn_ms"),
        prompt_tokens=_floats(rows, "prompt_tokens"),
        output_tokens=_floats(rows, "tokens"),
        computed_tokens=_floats(rows, "prompt_tokens") - _floats(rows, "cached_tokens")
        if cached
        else None,
        asked_tokens=_floats(rows, "asked_tokens"),
        batch_kv_tokens=_floats(rows, "batch_kv_tokens"),
        machine=None
        if rows["machine"].has_nulls()
        else rows["machine"].replace_strict(list(machines), range(len(machines))).to_numpy(),
        tail=rows["tail"].to_numpy(),
        wait_s=_floats(rows, "wait_s"),
        turns_left=_floats(rows, "turns_left"),
        right=_floats(rows, "right"),
    )


def with_batches(frame: pl.DataFrame, plays: Sequence[PlayedBlock]) -> pl.DataFrame:
    """Add the batch that every attempt shared its server with.

    All that was in flight counts, whether or not it is evidence itself.
    """
    names = ("batch_kv_tokens", "batch_sequences", "busy_s")
    columns: dict[str, Floats] = {name: np.full(frame.height, np.nan) for name in names}
    kv_prompt = _floats(
        frame.select(pl.coalesce("prompt_tokens", "context_tokens")), "prompt_tokens"
    )
    origin = min((play.started_ns for play in plays), default=0)
    seconds = {
        name: (frame[name] - origin).cast(pl.Float64).to_numpy() / 1e9
        for name in ("first_ns", "last_ns", "sent_ns", "done_ns")
    }
    for _, group in (
        frame.select("leg", "arm").with_row_index().group_by("leg", "arm", maintain_order=True)
    ):
        at = group["index"].to_numpy()
        kv, sequences = batch_means(
            seconds["first_ns"][at],
            seconds["last_ns"][at],
            kv_prompt[at],
            _floats(frame, "tokens")[at],
        )
        columns["batch_kv_tokens"][at], columns["batch_sequences"][at] = kv, sequences
        columns["busy_s"][at] = busy_s(seconds["sent_ns"][at], seconds["done_ns"][at])
    return frame.with_columns(**{name: pl.Series(values) for name, values in columns.items()})


def _ints(frame: pl.DataFrame, name: str) -> Ints:
    return frame[name].cast(pl.Int64).to_numpy()


def _floats(frame: pl.DataFrame, name: str) -> Floats:
    return frame[name].cast(pl.Float64).to_numpy()


def sweep_and_workloads(counted: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the calls of a context sweep, and those of the workloads.

    Of a run that is a sweep alone, both are the same calls.
    """
    workload = pl.col("workload")
    swept = counted.filter(workload.eq(CONTEXT_SWEEP))
    others = counted.filter(~workload.is_in([CONTEXT_SWEEP, STEP_TIMES]))
    return swept, others if others.height else swept


def plays_under_load(
    plays: Sequence[PlayedBlock], played: pl.DataFrame, counted: pl.DataFrame
) -> tuple[PlayedBlock, ...]:
    """Leave out the plays of what was measured apart, such as sweeps.

    Their calls ran as no user's do, and say nothing of a server under load.
    """
    alone = set(played["play"]) - set(counted["play"])
    return tuple(play for play in plays if play.number not in alone)


def sweeps(swept: pl.DataFrame, arms: Sequence[str]) -> tuple[ContextSweep, ...]:
    """Return one sweep for each arm that has calls of one."""
    alone = swept.filter(pl.col("status").eq("ok") & pl.col("tpot_ms").is_not_null())
    by_arm = ((arm, alone.filter(pl.col("arm").eq(arm))) for arm in arms)
    return tuple(_sweep(arm, own) for arm, own in by_arm if own.height)


def _sweep(arm: str, own: pl.DataFrame) -> ContextSweep:
    prompt = own.with_columns(tokens_in=pl.coalesce("prompt_tokens", "context_tokens"))
    cached = own["cached_tokens"].null_count() < own.height
    return ContextSweep(
        arm=arm,
        pair=own["pair"].cast(pl.Int64).to_numpy(),
        users=np.ones(own.height, dtype=np.int64),
        context_tokens=_floats(prompt, "tokens_in") + _floats(own, "tokens") / 2,
        itl_ms=_floats(own, "tpot_ms"),
        ttft_ms=_floats(own, "ttft_ms"),
        prompt_tokens=_floats(prompt, "tokens_in"),
        computed_tokens=_floats(prompt, "tokens_in") - _floats(own, "cached_tokens")
        if cached
        else None,
    )


def controls(
    counted: pl.DataFrame, machines: Sequence[str], servers: Sequence[ArmServer]
) -> tuple[AaControl, ...]:
    """Return the calls of each control with those of the arm that it copies.

    Each also says whether the two had servers and machines of their own.
    """
    began = {each.arm: each.facts.get("process_start_s") for each in servers}
    groups = counted.partition_by("workload", "arm", as_dict=True)
    return tuple(
        AaControl(
            workload=workload,
            first=calls(groups[workload, original(arm)], machines),
            second=calls(groups[workload, arm], machines),
            across_machines=_on(groups[workload, original(arm)]) != _on(groups[workload, arm]),
            across_starts=began.get(arm) != began.get(original(arm)),
        )
        for workload, arm in sorted(groups)
        if is_control(arm) and (workload, original(arm)) in groups
    )


def _on(rows: pl.DataFrame) -> set[str | None]:
    """Return the machines that carried these calls."""
    return set(rows["machine"].unique())


class Intervals:
    """All starts and ends of intervals, in order of time."""

    def __init__(self, start_s: Floats, end_s: Floats) -> None:
        instants = np.concatenate([start_s, end_s])
        self._order = np.argsort(instants, kind="stable")
        self._rank = np.empty_like(self._order)  # where each start, then each end, is in `seconds`
        self._rank[self._order] = np.arange(instants.size)
        self.seconds: Floats = instants[self._order]
        self.length: Floats = end_s - start_s
        # from each instant to the next
        self.gaps: Floats = np.diff(self.seconds, append=self.seconds[-1:])

    def running(self, at_start: Floats) -> Floats:
        """Return, from each instant to the next, the sum of *at_start* over open intervals."""
        return np.cumsum(np.concatenate([at_start, -at_start])[self._order])

    def integral(self, area: Floats) -> Floats:
        """Return for each interval the sum of the *area* within it, from instant to instant."""
        until: Floats = np.concatenate([[0.0], np.cumsum(area[:-1])])
        count = self.length.size
        return until[self._rank[count:]] - until[self._rank[:count]]


def batch_means(
    first_s: Floats, last_s: Floats, prompt_tokens: Floats, output_tokens: Floats
) -> tuple[Floats, Floats]:
    """Return the mean KV tokens and sequences of the batch while each call decoded.

    A call decodes from its first token to its last; NaN where it did not. A sequence holds its
    prompt at the first token and grows evenly to its end.
    """
    kv = np.full(first_s.size, np.nan)
    sequences = np.full(first_s.size, np.nan)
    decodes = np.isfinite(first_s + last_s + prompt_tokens + output_tokens) & (last_s > first_s)
    if not decodes.any():
        return kv, sequences
    origin = first_s[decodes].min()  # squares of large instants would cost digits
    start = first_s[decodes] - origin
    end = last_s[decodes] - origin
    line = Intervals(start, end)
    growth = output_tokens[decodes] / line.length
    level = line.running(prompt_tokens[decodes] - growth * start)
    slope = line.running(growth)
    kv[decodes] = (
        line.integral((level + slope * (line.seconds + line.gaps / 2)) * line.gaps) / line.length
    )
    sequences[decodes] = line.integral(line.running(np.ones(start.size)) * line.gaps) / line.length
    return kv, sequences


def busy_s(sent_s: Floats, done_s: Floats) -> Floats:
    """Return each call's share of the seconds in which its server was busy.

    The calls held at an instant share it equally; 0 for a call that was never held.
    """
    out = np.zeros(sent_s.size)
    held = np.isfinite(sent_s + done_s) & (done_s > sent_s)
    if held.any():
        line = Intervals(sent_s[held], done_s[held])
        open_calls = np.rint(line.running(np.ones(int(held.sum()))))
        out[held] = line.integral(
            np.divide(line.gaps, open_calls, out=np.zeros_like(open_calls), where=open_calls > 0)
        )
    return out
