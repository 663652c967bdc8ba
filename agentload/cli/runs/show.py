"""Show a run: its health, arms, how calls ended, latencies, and every block with what voided it.

Rates of a block leave out its drain tail. A chunk gap is what a reader sees, a token latency what the server takes for one token; they
differ where chunks carry several tokens.

For example:

    agentload runs show 20261120-074205-1f3a
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from agentload.cli._output import print_json
from agentload.cli._table import table
from agentload.evidence.gaps import Gaps, gaps
from agentload.store.database import reading
from agentload.store.places import raw_files
from agentload.store.runs import ArmLine, BlockLine, LegLine, RunSummary, summary

ARMS: Final = ("arm", "calls", "ended", "model", "machine", "where")
GAPS: Final = ("workload", "arm", "gaps", "chunk gap p50", "p95", "p99 ms", "token p50", "p95", "p99 ms")
BLOCKS: Final = ("leg", "round", "pair", "block", "arm", "seconds", "drain", "calls", "ok", "tokens/s", "requests/s", "void")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What `--json` prints."""

    summary: RunSummary
    gaps: tuple[Gaps, ...]
    raw: tuple[str, ...] = ()
    """Files with the bytes of calls."""


def run(
    name: Annotated[str, typer.Argument(help="Name of the run, or how it begins.", metavar="RUN")],
    *,
    db: Annotated[Path, typer.Option(help="DuckDB file to read.")] = Path("agentload.duckdb"),
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    with reading(db) as connection:
        found = summary(connection, name)
        shown = Shown(summary=found, gaps=gaps(connection, found.run.run_id))
    raw = raw_files(db, found.run.run_id)
    if json:
        print_json(replace(shown, raw=tuple(str(path) for path in raw)))
        return
    for line in _lines(shown):
        print(line)
    if raw:
        print(f"\nraw bytes of calls ({sum(path.stat().st_size for path in raw) / 1e6:,.1f} MB), a JSON line a call: zstdcat FILE")
        for path in raw:
            print(f"  {path}")


def _lines(shown: Shown) -> Iterator[str]:
    found = shown.summary
    yield f"run {found.run.run_id}: {found.run.name}, {found.run.kind}, {found.run.status}"
    yield f"trace {found.trace or '–'} ({found.trace_hash or '–'}), {found.design or '–'}, seed {found.seed}, agentload {found.version}"
    yield found.command
    yield ""
    yield from _health(found.legs)
    yield ""
    yield from table(ARMS, [_arm(each) for each in found.arms])
    if shown.gaps:
        yield ""
        yield from table(GAPS, [_gaps(each) for each in shown.gaps])
    if found.blocks:
        yield ""
        yield from table(BLOCKS, [_block(each) for each in found.blocks])


def _health(legs: tuple[LegLine, ...]) -> Iterator[str]:
    for leg in legs:
        health = leg.health or {}
        seconds = "" if leg.seconds is None else f" after {leg.seconds:,.1f} s"
        yield f"leg {leg.leg} on {leg.host}: {leg.status}{seconds}"
        figures = (
            ("send lag p99", health.get("send_lag_p99_ms"), "{:.2f} ms"),
            ("loop stall", health.get("loop_stall_max_ms"), "{:.1f} ms"),
            ("coalesced reads", health.get("coalesced_share"), "{:.1%}"),
            ("CPU", health.get("cpu_share"), "{:.0%}"),
            ("busiest second", health.get("cpu_peak_share"), "{:.0%} of a core"),
            ("workers", len(health.get("workers", ())) or None, "{}"),
        )
        known = [f"{name} {form.format(value)}" for name, value, form in figures if value is not None]
        yield "  " + (", ".join(known) if known else "nobody watched the client")
        if health.get("void"):
            yield f"  void: {health['void']}"


def _arm(arm: ArmLine) -> tuple[str, ...]:
    ended = ", ".join(f"{count:,} {status}" for status, count in arm.statuses.items()) or "–"
    calls = f"{sum(arm.statuses.values()):,}"
    return arm.arm, calls, ended, arm.model or "–", arm.machine or "–", arm.url or arm.profile or "–"


def _gaps(found: Gaps) -> tuple[str, ...]:
    return found.workload, found.arm, f"{found.chunks:,}", *(f"{value:,.3f}" for value in (*found.chunk_ms, *found.token_ms))


def _block(block: BlockLine) -> tuple[str, ...]:
    def figure(value: float | None, form: str) -> str:
        return "–" if value is None else form.format(value)

    return (
        str(block.leg),
        str(block.round),
        str(block.pair),
        str(block.block),
        block.arm,
        figure(block.seconds, "{:,.1f}"),
        figure(block.drain_share, "{:.0%}"),
        f"{block.calls:,}",
        f"{block.ok:,}",
        figure(block.output_tokens_per_s, "{:,.1f}"),
        figure(block.requests_per_s, "{:,.2f}"),
        block.void or ("warm-up" if block.warmup else ""),
    )
