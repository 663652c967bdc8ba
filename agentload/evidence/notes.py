"""What a reader has to know before trusting the figures: blocks left out, turns that failed, prompts that were not as long as asked."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import quantiles
from typing import Final

import polars as pl

from agentload.evidence.plays import Play

# The rest of a percent is the chat template; beyond two, "a 32k prompt" is no longer what was compared.
MAX_LENGTH_DEVIATION: Final = 0.02
# No tokenizer counts half as many or twice as many: another thing is counted.
ANOTHER_COUNT: Final = 0.4
# Of a first token against the same call on another arm; queues and long prefills hold calls back by many different times.
HELD_MS: Final = 300.0
HELD_TIMES: Final = 1.0
HELD_CALLS: Final = 5
ALIKE: Final = 0.2
# Below this, quantiles up to p99 are those of the whole.
MAX_FAILED: Final = 0.01


def notes(plays: Sequence[Play], rows: pl.DataFrame) -> tuple[str, ...]:
    """Return one sentence a fact; *rows* are the counted ones."""
    return (*_left_out(plays), *_failures(rows), *_lengths(rows), *_stretched(rows))


def _left_out(plays: Sequence[Play]) -> Iterator[str]:
    reasons = Counter(play.left_out for play in plays if play.left_out is not None)
    for reason, count in sorted(reasons.items()):
        yield f"{count} of {len(plays)} blocks left out: {reason}"


def _failures(rows: pl.DataFrame) -> Iterator[str]:
    failed = pl.col("status").ne("ok")
    shares = rows.group_by("workload", "arm").agg(share=failed.mean(), how=pl.col("status").filter(failed).unique().sort().str.join(", "))
    told: dict[tuple[str, str, str], list[str]] = {}
    for workload, arm, share, how in shares.filter(pl.col("share") > MAX_FAILED).sort("workload", "arm").iter_rows():
        told.setdefault((workload, f"{share:.1%}", how), []).append(arm)
    for (workload, share, how), arms in told.items():
        yield f"{share} of the turns of {workload} failed on {', '.join(arms)} ({how}): the figures are of the others"


def _lengths(rows: pl.DataFrame) -> Iterator[str]:
    known = rows.filter(pl.col("prompt_tokens").is_not_null() & (pl.col("context_tokens") > 0))
    deviation = known.group_by("workload", "arm").agg(
        deviation=(pl.col("prompt_tokens") / pl.col("context_tokens")).median() - 1, calls=pl.len()
    )
    for workload, arm, share, calls in deviation.sort("workload", "arm").iter_rows():
        if abs(share) > MAX_LENGTH_DEVIATION:
            longer = "longer" if share > 0 else "shorter"
            remedy = "give the served model's own tokenizer" if abs(share) < ANOTHER_COUNT else "its usage disagrees with what was sent"
            yield (
                f"{workload} on {arm}: the server counts prompts {abs(share):.1%} {longer} than asked (median of {calls:,} calls): {remedy}"
            )


def _stretched(rows: pl.DataFrame) -> Iterator[str]:
    """Tell of calls that were held back by one and the same time: an attempt that a gateway made again and told nobody of."""
    same = ("pair", "session", "turn")
    known = rows.filter(pl.col("status").eq("ok") & pl.col("ttft_ms").is_not_null()).with_columns(
        best=pl.col("ttft_ms").min().over(same), arms=pl.col("arm").n_unique().over(same)
    )
    late = pl.col("ttft_ms") - pl.col("best")
    is_late = (late > HELD_MS) & (late > HELD_TIMES * pl.col("best"))
    found = known.filter(pl.col("arms") > 1).group_by("arm").agg(calls=pl.len(), late=late.filter(is_late))
    for arm, calls, times in found.sort("arm").iter_rows():
        if HELD_CALLS <= len(times) <= calls / 2:
            first, middle, third = quantiles(times, n=4)
            if third - first <= ALIKE * middle:
                yield (
                    f"{arm}: the first token of {len(times)} of {calls:,} calls came about {middle / 1e3:.1f} s later than on another arm, "
                    "each time by as much: something in between may wait and try again"
                )
