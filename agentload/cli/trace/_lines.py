"""Show a trace on a terminal: tables, and a line of blocks for what goes up and down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from agentload.cli._table import table
from agentload.cli.trace._seen import Seen
from agentload.report.format import number
from agentload.tracefile.load import DECODE_TOKENS_PER_S, PREFILL_TOKENS_PER_S, Load
from agentload.tracefile.overview import SHARES, Overview, Summary

_BLOCKS: Final = "▁▂▃▄▅▆▇█"


def lines(seen: Seen) -> Iterator[str]:
    """Yield what is shown, line by line."""
    found = seen.overview
    yield f"{seen.name} (seed {seen.seed}): {counted(found.sessions, 'session')}{_spawned(found)}, {counted(found.turns, 'call')}"
    if len(found.workloads) > 1:
        yield ", ".join(f"{name} {number(count)}" for name, count in sorted(found.workloads.items()))
    yield ""
    head = ("lengths in tokens", "count", *(f"q{share * 100:g}" for share in SHARES), "mean")
    yield from table(
        head, [field_row(name, found.fields[name]) for name in sorted(found.fields, key=lambda name: name.partition("@")[::-1])]
    )
    yield ""
    yield from table(
        ("context at call", *(number(growth.call) for growth in found.growth)),
        [
            ("sessions", *(number(growth.sessions) for growth in found.growth)),
            ("q50", *(number(growth.q50) for growth in found.growth)),
            ("q90", *(number(growth.q90) for growth in found.growth)),
        ],
    )
    yield ""
    yield from _over_time(found, seen.load)
    yield ""
    events = ", ".join(f"{event or 'plain calls'} {percent(reuse.share)}" for event, reuse in sorted(found.reuse_by_event.items()))
    yield f"reuse, nothing forgotten  {percent(found.reuse.share)}{f' ({events})' if len(found.reuse_by_event) > 1 else ''}"
    for tokens, share in seen.load.hits.items():
        yield f"reuse, {number(tokens)} tokens kept  {percent(share)}"
    if seen.arms:
        yield ""
        yield from table(
            ("arm", "KV bytes/token", "pool tokens", "reuse", "calls hold at most", "sessions hold at most"),
            [
                (
                    arm.arm,
                    number(arm.kv_bytes_per_token),
                    number(arm.pool_tokens),
                    percent(arm.hit_ratio),
                    gib(arm.running_gib),
                    gib(arm.live_gib),
                )
                for arm in seen.arms
            ],
        )


def sparkline(values: Sequence[float]) -> str:
    """Draw values as blocks of eight heights, the largest full."""
    top = max(values, default=0)
    return "".join(_BLOCKS[min(7, int(8 * value / top))] if top else _BLOCKS[0] for value in values)


def _over_time(found: Overview, load: Load) -> Iterator[str]:
    rate = (found.sessions - found.spawned) / found.last_start_s if found.last_start_s else 0.0
    spread = "" if found.arrivals_cv is None else f", CV of the gaps {found.arrivals_cv:.2f}"
    yield f"starts           {sparkline(found.arrivals)}  {rate:.3g} a second over {duration(found.last_start_s)}{spread}"
    if not load.calls:
        return
    over = duration(load.span_s * len(load.running))
    yield f"calls at once    {sparkline(load.running)}  at most {number(max(load.running))} over {over}"
    yield f"their tokens     {sparkline(load.running_tokens)}  at most {number(max(load.running_tokens))}"
    yield f"session tokens   {sparkline(load.live_tokens)}  at most {number(max(load.live_tokens))}"
    partly = f"the first {counted(load.calls, 'call')}, " if load.calls < found.turns else ""
    yield f"({partly}each at {PREFILL_TOKENS_PER_S:,.0f} prompt and {DECODE_TOKENS_PER_S:g} output tokens a second, no queue)"


def field_row(name: str, summary: Summary) -> tuple[str, ...]:
    """Print a field's figures, as many as `SHARES` and two more."""
    figures = (_figure(name, value) for value in (*summary.quantiles, summary.mean))
    unit = " (s)" if name.startswith("wait") else ""
    return (f"{name}{unit}", number(summary.count), *figures)


def _figure(name: str, value: float) -> str:
    if name.startswith("thinking"):
        return f"{value:.2f}"
    return f"{value:,.2f}" if name.startswith("wait") and value < 10 else number(value)


def _spawned(found: Overview) -> str:
    return f" ({number(found.spawned)} of them spawned)" if found.spawned else ""


def counted(count: int, word: str) -> str:
    """Print a count of something."""
    return f"{number(count)} {word}{'' if count == 1 else 's'}"


def percent(share: float) -> str:
    """Print a share."""
    return f"{100 * share:.1f}%"


def gib(size: float) -> str:
    """Print an amount of memory."""
    return f"{size:,.1f} GiB"


def duration(seconds: float) -> str:
    """Print a span of time in the unit that suits it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"
