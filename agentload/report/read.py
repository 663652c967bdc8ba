"""Read what a report says of a run beyond its evidence: how it was made, what its servers said, series for charts."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import duckdb

from agentload.endpoints.facts import LASTING, Facts, changed, told
from agentload.exposition.scrape import Scrape
from agentload.report import format as say
from agentload.report.parts import Made, Retrieval, RunFacts, Served, Timeline
from agentload.store.database import reading
from agentload.study.document import json_text
from agentload.study.kinds import Replay, Study
from agentload.study.stored import notes, stored

SECOND: Final = 1_000_000_000
# An arm may change machines within a run: then its blocks know where it was.
_ARMS: Final = """
WITH places AS (
    SELECT arm, string_agg(machine, ', then ' ORDER BY first) AS machine
    FROM (SELECT arm, machine, min((leg, started_ns)) AS first FROM blocks WHERE run_id = $run AND machine IS NOT NULL GROUP BY ALL)
    GROUP BY arm
)
SELECT a.arm, url, coalesce(p.machine, a.machine), profile FROM arms AS a LEFT JOIN places AS p USING (arm)
WHERE a.run_id = $run ORDER BY position
"""
_SAID: Final = "SELECT arm, facts FROM fingerprints WHERE run_id = ? ORDER BY leg, at_ns, round"

LENGTHS: Final = 10
"""As many columns as a heat map can label; more lengths than this are gathered at powers of two."""


def facts(database: Path, run: str, *, production: Scrape | None = None) -> RunFacts:
    """Read the facts of a run, with what production tells beside them; raise `StoreError` if the database has no such run."""
    with reading(database) as connection:
        made, study = _made(connection, database, run)
        return RunFacts(
            made=made,
            study=study,
            timelines=_timelines(connection, run),
            retrieval=_retrieval(connection, run),
            production=production,
        )


def _made(connection: duckdb.DuckDBPyConnection, database: Path, run: str) -> tuple[Made, Study | None]:
    query = "SELECT version, name, created_ns, trace_name, trace_hash, seed, design, command, options, study FROM runs WHERE run_id = ?"
    row = connection.execute(query, [run]).fetchone()
    assert row is not None, run
    version, name, created_ns, trace, trace_hash, seed, design, command, options, text = row
    legs = connection.execute("SELECT host, ended_ns - monotonic_ns FROM legs WHERE run_id = ? ORDER BY leg", [run]).fetchall()
    spent = [length for _, length in legs if length is not None]
    study = stored(text, command=command, options=options, design=design, seed=seed)
    traces = [each.path for each in study.traces] if isinstance(study, Replay) else [trace] if trace else []
    query = "SELECT CASE WHEN contains(session, '/') THEN split_part(session, '/', 1) ELSE '' END AS of, count(DISTINCT session) "
    sessions = dict(connection.execute(query + "FROM calls_row WHERE run_id = ? GROUP BY of", [run]).fetchall())
    made = Made(
        run=run,
        tool_version=version,
        name=name,
        # A simulation has no date: asked for twice, it is one run.
        created=datetime.fromtimestamp(created_ns / SECOND, UTC).date().isoformat() if created_ns else None,
        traces=tuple(str(each) for each in traces),
        trace_hash=trace_hash,
        seed=seed,
        design=design,
        command=command,
        options=options if study is None else json_text(study),
        database=str(database),
        hosts=tuple(dict.fromkeys(str(host) for host, _ in legs)),
        legs=len(legs),
        minutes=sum(spent) / SECOND / 60 if spent else None,
        servers=_servers(connection, run),
        origin=origin(notes(options).source, sessions),
    )
    return made, study


def _servers(connection: duckdb.DuckDBPyConnection, run: str) -> tuple[Served, ...]:
    said: dict[str, list[Facts]] = {}
    for arm, text in connection.execute(_SAID, [run]).fetchall():
        said.setdefault(arm, []).append(json.loads(text))
    arms = connection.execute(_ARMS, {"run": run}).fetchall()
    return tuple(_served(arm, url, machine, profile, said.get(arm, [])) for arm, url, machine, profile in arms)


def _served(arm: str, url: str | None, machine: str | None, profile: str | None, said: list[Facts]) -> Served:
    lasting = {name: value for name, value in told(said[0]).items() if name in LASTING} if said else {}
    digest = hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()[:12] if said else None
    steady = not any(changed(said[0], each) for each in said[1:]) if len(said) > 1 else None
    return Served(arm=arm, url=url, machine=machine, profile=profile, fingerprint=digest, steady=steady)


def _timelines(connection: duckdb.DuckDBPyConnection, run: str) -> tuple[Timeline, ...]:
    # Legs have a monotonic clock each; the wall clock says how far apart they are.
    query = """
        SELECT arm, name, (at_ns - monotonic_ns + wall_ns - first_value(wall_ns) OVER (ORDER BY leg)) / 1e9 AS second, value
        FROM samples JOIN legs USING (run_id, leg)
        WHERE run_id = ? AND name IN ('kv_usage', 'preemptions', 'running')
        ORDER BY arm, second
    """
    seen: dict[str, dict[str, dict[float, float]]] = {}
    for arm, name, second, value in connection.execute(query, [run]).fetchall():
        # A server of several engines reports each: the pool is as full as its fullest part, preemptions add up.
        at = seen.setdefault(arm, {}).setdefault(name, {})
        at[second] = max(at.get(second, 0.0), value) if name == "kv_usage" else at.get(second, 0.0) + value
    return tuple(_timeline(arm, names) for arm, names in seen.items() if "kv_usage" in names)


def _timeline(arm: str, seen: Mapping[str, Mapping[float, float]]) -> Timeline:
    usage, preemptions, running = seen["kv_usage"], seen.get("preemptions", {}), seen.get("running", {})
    seconds = tuple(usage)
    known = tuple(preemptions.get(second, math.nan) for second in seconds)
    counted = _increments(known) if preemptions and not any(map(math.isnan, known)) else ()
    return Timeline(
        arm=arm,
        seconds=seconds,
        kv_usage=tuple(usage.values()),
        preemptions=counted,
        running=tuple(running.get(second, 0.0) for second in seconds) if running else (),
    )


def _increments(counts: Iterable[float]) -> tuple[float, ...]:
    """Return a counter's growth since its first value; a value below the one before is a restart from zero."""
    out: list[float] = []
    before: float | None = None
    total = 0.0
    for count in counts:
        if before is not None:
            total += count - before if count >= before else count
        before = count
        out.append(total)
    return tuple(out)


def _retrieval(connection: duckdb.DuckDBPyConnection, run: str) -> tuple[Retrieval, ...]:
    query = """
        SELECT arm, task, context_tokens, round(10 * depth) / 10 AS tenth, count_if("right"), count(*)
        FROM answers WHERE run_id = ? AND depth IS NOT NULL AND "right" IS NOT NULL
        GROUP BY ALL ORDER BY ALL
    """
    rows = connection.execute(query, [run]).fetchall()
    lengths = {row[2] for row in rows}
    cells: dict[tuple[str, str, float, float], tuple[int, int]] = {}
    for arm, task, length, depth, right, items in rows:
        column = float(length) if len(lengths) <= LENGTHS else float(2 ** round(math.log2(length)))
        known = cells.get((arm, task, column, depth), (0, 0))
        cells[arm, task, column, depth] = (known[0] + right, known[1] + items)
    return tuple(
        Retrieval(arm=arm, task=task, context_tokens=length, depth=depth, right=right, items=items)
        for (arm, task, length, depth), (right, items) in cells.items()
    )


def origin(source: Mapping[str, Any], sessions: Mapping[str, int]) -> str | None:
    """Say it by what the trace's header holds, or each of several traces' under its name; None where it does not say.

    `sessions` are how many were played, under the trace's name where there are several, and else under "".
    """
    if not source:
        return None
    told = [_one(source, sum(sessions.values()))] if "importer" in source or "workload" in source else []
    told += [] if told else [_one(each, sessions.get(name, 0)) for name, each in source.items() if isinstance(each, dict)]
    return " and ".join(dict.fromkeys(each for each in told if each)) or None


def _one(source: Mapping[str, Any], sessions: int) -> str | None:
    degraded = ", degraded" if "degraded" in source else ""
    match source.get("importer"), source.get("workload"):
        case "prometheus", _:
            return f"fitted to a server's metrics{degraded}"
        case str() as format, _:
            return f"replayed from {format} import of {say.plural(sessions, 'session')}{degraded}"
        case _, str() as workload:
            return f"synthetic workload {workload}{degraded}"
        case _:
            return None
