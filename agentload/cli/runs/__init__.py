"""Look at stored runs, bring journals in, and delete what is not needed."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from agentload.cli._options import DB, Database, Run
from agentload.cli._print import ABSENT, figure, notice, print_json, print_table, table
from agentload.errors import AgentloadError, StoreError, UsageError
from agentload.report.format import when
from agentload.store import runs as stored
from agentload.store.codec import Damage
from agentload.store.database import reading, writing
from agentload.store.places import journal_folder, journalled_runs, journals, raw_files
from agentload.store.runs import (
    ArmLine,
    BlockLine,
    LegLine,
    RunLine,
    RunSummary,
    find_run,
    lines,
    run_named,
    summary,
)

if TYPE_CHECKING:
    from agentload.evidence.gaps import Gaps

ARMS: Final = ("arm", "calls", "ended", "model", "machine", "where")
GAPS: Final = ("workload", "arm", "gaps", "ITL p50", "p95", "p99 ms", "TPOT p50", "p95", "p99 ms")
BLOCKS: Final = (
    "part",
    "round",
    "pair",
    "block",
    "arm",
    "seconds",
    "drain",
    "calls",
    "ok",
    "tokens/s",
    "requests/s",
    "invalid",
)


def list_(
    *, database: Database = DB, json: Annotated[bool, "Print the runs as JSON."] = False
) -> None:
    """List the runs of a database, in the order in which they were stored.

    For example:

        agentload runs list agentload.duckdb
    """
    with reading(database) as connection:
        runs = lines(connection)
    if json:
        print_json(runs)
        return
    head = (
        "run",
        "kind",
        "started (UTC)",
        "name",
        "arms",
        "blocks",
        "invalid",
        "calls",
        "ok",
        "status",
    )
    print_table(head, [_run(each) for each in runs])
    for name in sorted(set(journalled_runs(database)) - {each.run_id for each in runs}):
        notice(f"not loaded yet: {name} (agentload runs load {name} --db {database})")


def _run(run: RunLine) -> tuple[str, ...]:
    ok = f"{run.ok / run.calls:.1%}" if run.calls else ABSENT
    return (
        run.run_id,
        run.kind,
        when(run.created_ns),
        run.name,
        ",".join(run.arms),
        str(run.blocks),
        str(run.void_blocks),
        f"{run.calls:,}",
        ok,
        run.status,
    )


def show(
    database: Database = DB,
    older: Annotated[str | None, typer.Argument(hidden=True)] = None,
    *,
    run: Run = None,
    json: Annotated[bool, "Print it as JSON."] = False,
) -> None:
    """Show a run: its health, arms, how calls ended,
    latencies, and every block with what made it invalid.

    Rates of a block leave out its drain tail. A chunk gap is what a reader sees, a token
    latency what the server takes for one token; they differ where chunks carry several tokens.

    For example:

        agentload runs show agentload.duckdb --run 20261120-074205-1f3a
    """
    if run is None and (older is not None or not (database.exists() or database.suffix)):
        database, run = (database, older) if older is not None else (DB, str(database))
        notice(f"note: a run is named by an option now: agentload runs show {database} --run {run}")
    from agentload.evidence.gaps import gaps

    name = run_named(database, run)
    with reading(database) as connection:
        found = summary(connection, name)
        between = gaps(connection, found.run.run_id)
    raw = raw_files(database, found.run.run_id)
    if json:
        print_json({"summary": found, "gaps": between, "raw": [str(path) for path in raw]})
        return
    print(*_lines(found, between), sep="\n")
    if raw:
        print(
            f"\nraw bytes of calls ({sum(path.stat().st_size for path in raw) / 1e6:,.1f} "
            "MB), a JSON line a call: zstdcat FILE"
        )
        for path in raw:
            print(f"  {path}")


def _lines(found: RunSummary, between: "Sequence[Gaps]") -> Iterator[str]:
    yield f"run {found.run.run_id}: {found.run.name}, {found.run.kind}, {found.run.status}"
    trace = f"{found.trace or ABSENT} ({found.trace_hash or ABSENT})"
    design = found.design or ABSENT
    yield f"trace {trace}, {design}, seed {found.seed}, agentload {found.version}"
    yield found.command
    yield ""
    yield from _health(found.legs)
    yield ""
    yield from table(ARMS, [_arm(each) for each in found.arms])
    if between:
        yield ""
        yield from table(GAPS, [_gaps(each) for each in between])
    if found.blocks:
        yield ""
        yield from table(BLOCKS, [_block(each) for each in found.blocks])


def _gaps(each: "Gaps") -> tuple[str, ...]:
    times_ms = (f"{value:,.3f}" for value in (*each.chunk_ms, *each.token_ms))
    return (each.workload, each.arm, f"{each.chunks:,}", *times_ms)


def _health(legs: tuple[LegLine, ...]) -> Iterator[str]:
    for leg in legs:
        health = leg.health or {}
        seconds = "" if leg.seconds is None else f" after {leg.seconds:,.1f} s"
        yield f"part {leg.leg} on {leg.host}: {leg.status}{seconds}"
        figures = (
            ("send lag p99", health.get("send_lag_p99_ms"), "{:.2f} ms"),
            ("loop stall", health.get("loop_stall_max_ms"), "{:.1f} ms"),
            ("coalesced reads", health.get("coalesced_share"), "{:.1%}"),
            ("CPU", health.get("cpu_share"), "{:.0%}"),
            ("busiest second", health.get("cpu_peak_share"), "{:.0%} of a core"),
            ("read by", health.get("read_path"), "{}"),
            ("workers", len(health.get("workers", ())) or None, "{}"),
        )
        known = [
            f"{name} {form.format(value)}" for name, value, form in figures if value is not None
        ]
        yield "  " + (", ".join(known) if known else "client load was not monitored")
        if health.get("void"):
            yield f"  invalid: {health['void']}"


def _arm(arm: ArmLine) -> tuple[str, ...]:
    ended = ", ".join(f"{count:,} {status}" for status, count in arm.statuses.items()) or ABSENT
    calls = f"{sum(arm.statuses.values()):,}"
    return (
        arm.arm,
        calls,
        ended,
        arm.model or ABSENT,
        arm.machine or ABSENT,
        arm.url or arm.profile or ABSENT,
    )


def _block(block: BlockLine) -> tuple[str, ...]:
    return (
        str(block.leg),
        str(block.round),
        str(block.pair),
        str(block.block),
        block.arm,
        figure(block.seconds, ",.1f"),
        figure(block.drain_share, ".0%"),
        f"{block.calls:,}",
        f"{block.ok:,}",
        figure(block.output_tokens_per_s, ",.1f"),
        figure(block.requests_per_s, ",.2f"),
        block.void or ("warm-up" if block.warmup else ""),
    )


def load(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Runs, journal files, or folders of journals.", metavar="RUN"),
    ] = None,
    *,
    db: Annotated[Path, "DuckDB file; it is made if it does not exist."] = DB,
    json: Annotated[bool, "Print what was loaded as JSON."] = False,
) -> None:
    """Load journals into a database: what a crash or a
    busy database left behind, or a whole database again.

    Names runs whose journals are next to the database, journal files, or
    folders of them; without any, all journals next to the database. Rows that
    are there already stay as they are, so loading twice does no harm.

    For example:

        agentload runs load 20261120-074205-1f3a

        agentload runs load old.journal/20261120-074205-1f3a --db new.duckdb
    """
    wanted = {name: _files(name, db) for name in names or journalled_runs(db)}
    if not wanted:
        raise StoreError(
            f"no journals next to {db}",
            hint="name a journal file or folder: agentload runs load FILE --db DATABASE",
        )
    from agentload.store import loader

    found = {name: loader.load(files, db) for name, files in wanted.items()}
    if json:
        print_json(
            [
                {"name": name, "calls": each.calls, "stamps": each.stamps, "faults": each.faults}
                for name, each in found.items()
            ]
        )
        return
    for name, each in found.items():
        print(f"{name}: {each.calls:,} calls, {each.stamps:,} stamps loaded")
        for path, fault in each.faults:
            print(f"  {path}: {_damage_text(fault)}")


def _files(name: str, database: Path) -> tuple[Path, ...]:
    path = Path(name)
    found = journals(database, name)
    if not found and path.is_file():
        found = (path,)
    if not found:  # a name that is no folder has nothing below it
        found = tuple(sorted(path.rglob("*.journal")))
    if not found:
        known = ", ".join(journalled_runs(database)[-8:])
        hint = f"there are: {known}" if known else "name a journal file or folder"
        raise StoreError(f"no journals of a run '{name}' next to {database}", hint=hint)
    return found


def _damage_text(fault: Damage) -> str:
    """Say what a damaged journal lost."""
    match fault.kind:
        case "torn":
            return (
                f"the last {fault.length:,} bytes were cut by a crash, or are being written "
                "just now"
            )
        case "damaged":
            return (
                f"{fault.length:,} bytes from byte {fault.offset:,} on are damaged; what is "
                "whole around them was loaded"
            )


def delete(
    names: Annotated[
        list[str], typer.Argument(help="Names of runs, or how they start.", metavar="RUN")
    ],
    *,
    db: Annotated[Path, "DuckDB file to delete from."] = DB,
    keep_journals: Annotated[bool, "Delete rows only."] = False,
    yes: Annotated[bool, "Do not ask."] = False,
    json: Annotated[bool, "Print what was deleted as JSON."] = False,
) -> None:
    """Delete runs: their rows in the database and the journals next to it.

    Asks first, unless --yes is given. With --keep-journals,
    `agentload runs load RUN` can bring a run back.

    For example:

        agentload runs delete 20261120-074205-1f3a
    """
    with reading(db) as connection:
        runs = {each.run_id: each for each in (find_run(connection, name) for name in names)}
    if not yes:
        _ask(", ".join(f"{each.run_id} ({each.calls:,} calls)" for each in runs.values()))
    deleted = []
    for line in runs.values():
        with writing(db) as connection:
            stored.delete(connection, line.run_id)
        files = () if keep_journals else journals(db, line.run_id)
        if files:
            shutil.rmtree(journal_folder(db, line.run_id))
        deleted.append({"run_id": line.run_id, "calls": line.calls, "journals": len(files)})
        if not json:
            print(
                f"deleted {line.run_id}: {line.calls:,} calls, {len(files)} "
                f"journal{'' if len(files) == 1 else 's'}"
            )
    if json:
        print_json(deleted)


def _ask(what: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError("nobody to ask whether to delete", hint="--yes deletes without asking")
    if not typer.confirm(f"delete {what}?", err=True):
        raise AgentloadError("nothing was deleted")
