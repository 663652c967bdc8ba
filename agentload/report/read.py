"""Read what a report says of a run beyond its evidence.

That is how it was made, what its servers reported, and series for charts.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import duckdb

from agentload.emulator.profile import read
from agentload.endpoints.facts import LASTING, VERIFIES, Facts, changes, reported_facts
from agentload.errors import ProfileError
from agentload.evidence.grades import question_options
from agentload.evidence.plays import PlayedBlock, plays_table, valid_plays
from agentload.evidence.view import ADDED, RunView
from agentload.exposition.scrape import Scrape
from agentload.model.rows import ArmRow, ProbeRow
from agentload.report import format as say
from agentload.report.lookup import by_key
from agentload.report.parts import Block, Made, Retrieval, RunFacts, Served, Timeline, Turn
from agentload.store import tables
from agentload.store.database import reading
from agentload.study.document import json_text
from agentload.study.kinds import Replay, Study
from agentload.study.parts import Virtual
from agentload.study.stored import parse_stored
from agentload.verdict.looks import speed_looks
from agentload.verdict.policy import DECISION, Setting

T = TypeVar("T")
SECOND: Final = 1_000_000_000
_UNDER: Final = {"driver": "driver", "cuda": "CUDA"}
"""What a server says of its machine, and what it is called."""
TURNS: Final = 12
"""Of the session that is shown: as many as a chart has lanes for."""
LENGTHS: Final = 10
"""As many columns as a heat map can label; more lengths than this are gathered at powers of two."""


def facts(
    database: Path,
    view: RunView,
    *,
    production: Scrape | None = None,
    setting: Setting | None = None,
) -> RunFacts:
    """Return the facts of a run of this database, with what production reports and users said."""
    setting = setting or Setting()
    with reading(database) as connection:
        study = view.study()
        return RunFacts(
            made=_how_made(connection, database, view, study),
            study=study,
            additions=_additions(connection, view.name),
            policy_file=setting.name if Path(setting.name).is_file() else None,
            timelines=_timelines(connection, view),
            blocks=_blocks(view.plays),
            session=_session(connection, view.name, valid_plays(view.plays)),
            retrieval=_retrieval(connection, view.name),
            production=production,
            looks=speed_looks(tables.rows(connection, ProbeRow, run_id=view.name, probe=DECISION)),
            unmeasured=_unmeasured_arms(study),
            spelled=setting.spelled,
            budget_s=setting.enough_s or setting.budget_s,
            asked=question_options(connection, view.name, view.arms_asked),
            per_context=setting.per_context,
            price_usd=None if setting.price is None else setting.price.usd_per_gpu_hour,
        )


def _additions(connection: duckdb.DuckDBPyConnection, run: str) -> tuple[Study, ...]:
    """Read what was added to a run, in its order, also since its view was read."""
    rows = tables.rows(connection, ProbeRow, run_id=run, probe=ADDED)
    return tuple(parse_stored(row.settings) for row in rows)


def _unmeasured_arms(study: Study | None) -> tuple[str, ...]:
    """List the arms of a simulated profile that are priors; none where it is gone."""
    if isinstance(study, Replay) and isinstance(study.servers, Virtual):
        with suppress(ProfileError):
            return tuple(arm.name for arm in read(study.servers.profile).arms if arm.synthetic)
    return ()


def _how_made(
    connection: duckdb.DuckDBPyConnection, database: Path, view: RunView, study: Study | None
) -> Made:
    """Return how a run was made."""
    row, legs = view.run, view.legs
    spent = [leg.ended_ns - leg.monotonic_ns for leg in legs if leg.ended_ns is not None]
    traces = [row.trace_name] if row.trace_name else []
    if isinstance(study, Replay):
        traces = [each.path for each in study.traces]
    query = """
        SELECT CASE WHEN contains(session, '/') THEN split_part(session, '/', 1) ELSE '' END AS of,
            count(DISTINCT session)
        FROM attempts WHERE run_id = ? GROUP BY of
    """
    sessions = dict(connection.execute(query, [view.name]).fetchall())
    created = None
    if row.created_ns:  # a simulation has no date: two equal simulations are one run
        created = datetime.fromtimestamp(row.created_ns / SECOND, UTC).date().isoformat()
    return Made(
        run=view.name,
        tool_version=row.version,
        name=row.name,
        model=row.model,
        created=created,
        traces=tuple(map(str, traces)),
        trace_hash=row.trace_hash,
        seed=row.seed,
        design=row.design,
        command=row.command,
        options=row.options if study is None else json_text(study),
        database=str(database),
        hosts=tuple(dict.fromkeys(leg.host for leg in legs)),
        legs=len(legs),
        minutes=sum(spent) / SECOND / 60 if spent else None,
        servers=_servers(view),
        origin=origin(view.notes().source, sessions),
    )


def _servers(view: RunView) -> tuple[Served, ...]:
    said: dict[str, list[Facts]] = by_key(
        (row.arm, json.loads(row.facts)) for row in view.fingerprints
    )
    # An arm may change machines within a run: then its blocks know where it was.
    machines = by_key((block.arm, block.machine) for block in view.blocks if block.machine)
    served = []
    for arm in view.arms:
        machine = ", then ".join(dict.fromkeys(machines.get(arm.arm, ()))) or arm.machine
        served.append(_server_facts(arm, machine, said.get(arm.arm, [])))
    return tuple(served)


def _server_facts(arm: ArmRow, machine: str | None, said: list[Facts]) -> Served:
    """Return what an arm's server *said* it is, each time it was asked."""
    arm_facts = Served(arm=arm.arm, url=arm.url, machine=machine, profile=arm.profile)
    if not said:
        return arm_facts
    first, *later = said
    reported = reported_facts(first)
    lasting = {name: value for name, value in reported.items() if name in LASTING}
    digest = hashlib.sha256(json.dumps(lasting, sort_keys=True).encode())
    is_opaque = not reported.keys() & VERIFIES
    steady = None
    if later and not is_opaque:
        steady = not any(changes(first, each) for each in later)
    versions = lasting.get("settings", {})
    under = [f"{label} {versions[name]}" for name, label in _UNDER.items() if name in versions]
    return replace(
        arm_facts,
        fingerprint=digest.hexdigest()[:12],
        under=say.join(under),
        steady=steady,
        is_opaque=is_opaque,
    )


def _blocks(played: Sequence[PlayedBlock]) -> tuple[Block, ...]:
    blocks = []
    for play in played:
        if play.ended_ns is not None:
            lasted_s = (play.ended_ns - play.started_ns) / SECOND
            block = Block(
                arm=play.arm,
                pair=play.pair,
                start_s=play.start_s,
                end_s=play.start_s + lasted_s,
                invalid=play.left_out,
            )
            blocks.append(block)
    return tuple(blocks)


_SESSION: Final = """
    WITH whole AS (
        SELECT a.* FROM attempts AS a JOIN plays AS p ON (p.leg, p.arm, p.pair) = (a.leg, a.arm,
            a.pair)
            AND a.released_ns BETWEEN p.started_ns AND p.ended_ns
        WHERE a.run_id = $run AND NOT a.prime AND a.retry_of IS NULL
    ), shown AS (
        SELECT pair, session FROM whole
        GROUP BY pair, session HAVING bool_and(done_ns IS NOT NULL)
        ORDER BY count(DISTINCT arm) DESC, least(count(*) / count(DISTINCT arm), $most) DESC,
            sum(done_ns - released_ns) DESC, pair, session
        LIMIT 1
    ), since_due AS (
        SELECT *, first_value(due_ns) OVER (PARTITION BY arm ORDER BY turn) AS first_due_ns
        FROM whole JOIN shown USING (pair, session)
    )
    SELECT arm, turn, status, prompt_tokens, cached_tokens, output_tokens,
        (due_ns - first_due_ns) / 1e9 AS due_s,
        (released_ns - first_due_ns) / 1e9 AS released_s,
        (coalesce(first_ns, done_ns) - first_due_ns) / 1e9 AS first_s,
        (done_ns - first_due_ns) / 1e9 AS done_s
    FROM since_due ORDER BY arm, turn
"""
"""The session to show: finished by most arms, with the most turns a chart can show, the longest."""


def _session(
    connection: duckdb.DuckDBPyConnection, run: str, played: Sequence[PlayedBlock]
) -> tuple[Turn, ...]:
    """Read the turns of the session to show, arm by arm; none without a finished session."""
    with plays_table(connection, played):
        return _records(connection.execute(_SESSION, {"run": run, "most": TURNS}), Turn)


_TIMELINES: Final = """
    SELECT arm, (wall_ns - $origin_ns) / 1e9 AS second,
        max(value) FILTER (name = 'kv_usage') AS kv_usage,
        sum(value) FILTER (name = 'preemptions') AS preemptions,
        sum(value) FILTER (name = 'running') AS running
    FROM readings WHERE run_id = $run AND name IN ('kv_usage', 'preemptions', 'running')
    GROUP BY arm, second HAVING kv_usage IS NOT NULL ORDER BY arm, second
"""
"""Legs have a monotonic clock each; the wall clock says how far apart they are. A server of several
engines reports each: the pool is as full as its fullest part, preemptions add up.
"""


def _timelines(connection: duckdb.DuckDBPyConnection, view: RunView) -> tuple[Timeline, ...]:
    origin_ns = view.legs[0].wall_ns if view.legs else 0
    rows = connection.execute(_TIMELINES, {"run": view.name, "origin_ns": origin_ns}).fetchall()
    by_arm = by_key((arm, sample) for arm, *sample in rows)
    return tuple(_timeline(arm, samples) for arm, samples in by_arm.items())


def _timeline(arm: str, samples: Sequence[Sequence[float | None]]) -> Timeline:
    """Return an arm's samples as series; one that the server does not report is empty."""
    seconds, usage, preemptions, running = zip(*samples, strict=True)
    says_running = any(each is not None for each in running)
    return Timeline(
        arm=arm,
        seconds=seconds,
        kv_usage=usage,
        preemptions=() if None in preemptions else _increments(preemptions),
        running=tuple(each or 0.0 for each in running) if says_running else (),
    )


def _increments(counts: Iterable[float]) -> tuple[float, ...]:
    """Return a counter's growth since its first value.

    A value below the one before is a restart from zero.
    """
    out: list[float] = []
    before: float | None = None
    total = 0.0
    for count in counts:
        if before is not None:
            total += count - before if count >= before else count
        before = count
        out.append(total)
    return tuple(out)


_RETRIEVAL: Final = """
    WITH answered AS (
        SELECT arm, task, context_tokens AS length, round(10 * depth) / 10 AS tenth, "right"
        FROM graded WHERE run_id = $run AND depth IS NOT NULL AND "right" IS NOT NULL
    )
    SELECT arm, task, tenth AS depth, count_if("right") AS right, count(*) AS items,
        CASE WHEN (SELECT count(DISTINCT length) FROM answered) > $most
            THEN 2.0 ** round(log2(length)) ELSE length::DOUBLE END AS context_tokens
    FROM answered
    GROUP BY arm, task, depth, context_tokens ORDER BY arm, task, min(length), depth
"""


def _retrieval(connection: duckdb.DuckDBPyConnection, run: str) -> tuple[Retrieval, ...]:
    return _records(connection.execute(_RETRIEVAL, {"run": run, "most": LENGTHS}), Retrieval)


def _records(found: duckdb.DuckDBPyConnection, kind: Callable[..., T]) -> tuple[T, ...]:
    """Return the rows of a query as records, whose fields are its columns."""
    names = [column[0] for column in found.description]
    return tuple(kind(**dict(zip(names, row, strict=True))) for row in found.fetchall())


def origin(source: Mapping[str, Any], sessions: Mapping[str, int]) -> str | None:
    """Say where the sessions came from, by the header of each trace; None if it does not say.

    *source* is the trace's header, or by name the headers of several. *sessions* are how many were
    played, under the trace's name where there are several, and else under "".
    """
    if not source:
        return None
    told: list[str | None] = []
    if "importer" in source or "workload" in source:
        told.append(_one(source, sum(sessions.values())))
    else:
        for name, each in source.items():
            if isinstance(each, dict):
                told.append(_one(each, sessions.get(name, 0)))
    return say.join(dict.fromkeys(told), " and ") or None


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
