"""Read figures from the servers' own samples while blocks were played.

Cache hits come from what servers reported for each call, where they did.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import duckdb
import polars as pl

from advisor.evidence import Phase, Telemetry
from agentload.evidence.plays import PlayedBlock, plays_table, total, valid_plays
from agentload.model.controls import control_of
from agentload.store.runs import sample_names

# tokens with which a request's first tool or message
# begins, whatever its words: a block or two may be cached
BEFORE_SALT: Final = 32
# a pool is as good as full a little below 1: a request that needs more than is left waits
FULL: Final = 0.95
PHASES: Final[Mapping[str, str]] = {
    "queue": "queue_s",
    "prefill": "prefill_s",
    "decode": "decode_s",
    "first-token": "ttft_s",
    "token": "itl_s",
    "answer": "e2e_s",
}
"""Histograms of samples, by the phase of a request that each times."""

# An arm idles while the other one plays: gauges count inside
# plays alone, counters where a play lies between two samples.
# Where contexts were primed, a counter's two samples both come after that: no call
# that was only to fill the cache is in the means beside the timings, which leave it out.
_QUERY: Final = """
WITH own AS (
    SELECT leg, arm, name, at_ns, value, lag(value) OVER series AS before, lag(at_ns)
        OVER series AS before_ns,
        lead(at_ns) OVER series AS next_ns
    FROM readings WHERE run_id = $run WINDOW series AS (PARTITION BY leg, arm, name, labels
        ORDER BY at_ns)
),
inside AS (
    SELECT own.*, least(coalesce(next_ns, p.ended_ns), p.ended_ns) - at_ns AS lasts_ns
    FROM own JOIN plays AS p ON (p.leg, p.arm) = (own.leg, own.arm) AND at_ns BETWEEN p.clock_ns
        AND p.ended_ns
),
gauges AS (
    SELECT arm, name, max(value) AS highest,
        sum(lasts_ns) FILTER (value >= $full) / nullif(sum(lasts_ns), 0) AS full_share FROM inside
            GROUP BY ALL
),
counters AS (
    SELECT arm, name, sum(CASE WHEN value < before THEN value ELSE value - before END) AS counted
    FROM own WHERE before IS NOT NULL AND EXISTS (
        FROM plays AS p WHERE (p.leg, p.arm) = (own.leg, own.arm) AND p.started_ns < own.at_ns
            AND p.ended_ns > own.before_ns
            AND (p.clock_ns = p.started_ns OR p.clock_ns <= own.before_ns)
    ) GROUP BY ALL
)
SELECT arm, name, highest, full_share, counted FROM gauges FULL JOIN counters USING (arm, name)
"""


def of_servers(
    connection: duckdb.DuckDBPyConnection,
    run_id: str,
    arms: Sequence[str],
    plays: Sequence[PlayedBlock],
    rows: pl.DataFrame,
    *,
    is_cold: bool,
) -> tuple[tuple[str, Telemetry], ...]:
    """Return the figures of each arm's whole server; *rows* are the counted ones."""
    kept = valid_plays(plays)
    samples = _samples(connection, run_id, kept)
    sent = _sent(connection, run_id)
    out = []
    for arm in arms:
        own = samples.get(arm, _Samples())
        lasted_ns = (
            (play.ended_ns or play.clock_ns) - play.clock_ns for play in kept if play.arm == arm
        )
        calls = rows.filter(pl.col("arm") == arm)
        told = hit_rate(calls)
        figures = Telemetry(
            peak_kv_usage=own["kv_usage"].highest,
            pool_filled_share=own["kv_usage"].full_share or 0.0 if "kv_usage" in own else None,
            preemptions=own["preemptions"].counted,
            minutes=sum(lasted_ns) / 1e9 / 60,
            # Samples do not start and end with the blocks; what
            # servers reported for each call is of those that count.
            hit_rate=told if told is not None else _ratio(own, "prefix_hits", "prefix_queries"),
            external_hit_rate=_ratio(own, "external_hits", "external_queries"),
            rejections=own["rejections"].counted,
            phases=tuple(_phases(own)),
            impossible_hits=_impossible_hits(calls) if is_cold else None,
            running_max=own["running"].highest,
            waiting_max=own["waiting"].highest,
            acceptance_rate=_ratio(own, "accepted_tokens", "draft_tokens"),
            sent_tokens=sent.get(arm, 0.0) + sent.get(control_of(arm), 0.0),
        )
        out.append((arm, figures))
    return tuple(out)


def _sent(connection: duckdb.DuckDBPyConnection, run_id: str) -> dict[str, float]:
    """Add up the tokens of every attempt on each arm, of warm-ups and invalid blocks too.

    All of them go through the server's cache.
    """
    query = """
        SELECT arm, sum(coalesce(prompt_tokens, context_tokens)::BIGINT + coalesce(output_tokens,
            0))::DOUBLE FROM attempts
        WHERE run_id = ? AND sent_ns IS NOT NULL GROUP BY arm
    """
    return dict(connection.execute(query, [run_id]).fetchall())


def of_workload(
    rows: pl.DataFrame, ideal_hit_rate: float | None, *, is_part: bool
) -> Telemetry | None:
    """Return the hit rates of one workload on one arm.

    A part of the plan may hit more than the whole plan could, and a window counts no priming
    call: then the ideal rate is no bound, and left out.
    """
    found = hit_rate(rows)
    if is_part and found is not None and ideal_hit_rate is not None and found > ideal_hit_rate:
        ideal_hit_rate = None
    if found is None and ideal_hit_rate is None:
        return None
    return Telemetry(hit_rate=found, ideal_hit_rate=ideal_hit_rate)


class _Figures(NamedTuple):
    highest: float | None = None
    full_share: float | None = None
    counted: float | None = None


class _Samples(dict[str, _Figures]):
    """The figures of an arm by what was sampled; none of what was not."""

    def __missing__(self, _name: str) -> _Figures:
        return _Figures()


def _samples(
    connection: duckdb.DuckDBPyConnection, run_id: str, plays: Sequence[PlayedBlock]
) -> Mapping[str, _Samples]:
    found: dict[str, _Samples] = {}
    if not sample_names(connection, run_id):
        return found
    with plays_table(connection, plays):
        for arm, name, *figures in connection.execute(
            _QUERY, {"run": run_id, "full": FULL}
        ).fetchall():
            found.setdefault(arm, _Samples())[name] = _Figures(*figures)
    return found


def _ratio(samples: _Samples, part: str, whole: str) -> float | None:
    some = samples[part].counted
    all_ = samples[whole].counted
    if all_ and some is not None:
        return some / all_
    return None


def _phases(samples: _Samples) -> Iterator[Phase]:
    for name, histogram in PHASES.items():
        mean_s = _ratio(samples, f"{histogram}_sum", f"{histogram}_count")
        count = samples[f"{histogram}_count"].counted
        if mean_s is not None and count:
            yield Phase(name=name, mean_ms=1e3 * mean_s, count=round(count))


def hit_rate(rows: pl.DataFrame) -> float | None:
    """Return the share of prompt tokens that was cached, of calls whose server says so."""
    known = rows.filter(pl.col("hit_rate").is_not_null())
    if known.height:
        return total(known, "cached_tokens") / total(known, "prompt_tokens")
    return None


def _impossible_hits(rows: pl.DataFrame) -> float | None:
    """Count the cached tokens of each play's first call, whose salt no call had before.

    Calls that were sent before any had an answer may be served in any order: only if each
    of them hit, the first one did. What the server's chat template puts before the salt is
    the same in every request and may well be cached, as is how the first schema begins.
    """
    first = rows.filter(
        pl.col("cached_tokens").is_not_null()
        & (pl.col("sent_ns") <= pl.col("first_ns").min().over("play")).fill_null(value=True)
    )
    if not first.height:
        return None
    template = (pl.col("prompt_tokens") - pl.col("context_tokens")).clip(lower_bound=0)
    least = first.group_by("play").agg((pl.col("cached_tokens") - template).min().alias("hits"))
    return total(least.filter(pl.col("hits") > BEFORE_SALT), "hits")
