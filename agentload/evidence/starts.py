"""What starts of servers add: by the profile that an emulated one follows, else by runs of this database that started theirs again.

A pair's ratio of two arms differs from start to start by what both servers' starts added; its scatter within a start is taken off. Runs of
the same model count, the latest ones; fewer starts than tell a scatter tell nothing, and the policy's assumption holds.
"""

import math
from collections.abc import Sequence
from typing import Final

import duckdb
import numpy as np

from advisor.evidence import StartHistory
from advisor.statistics.starts import ENOUGH_STARTS, Pairs, scatter
from agentload.evidence import plays
from agentload.evidence.servers import Server
from agentload.model.profile import ArmProfile
from agentload.model.rows import RunRow
from agentload.store.runs import restarted, starts
from agentload.study.kinds import Study

EQUAL: Final = ("version", "kv_cache_dtype", "skip_layers", "attention_backend", "flash_version", "max_model_len")
"""Facts of a server that its pace depends on."""
LATEST: Final = 20  # runs: what servers were like years ago says little of a start today

_LEVELS: Final = """
SELECT arm, pair, avg(ln(turn_ms)) FROM turns WHERE run_id = $run AND status = 'ok' AND turn_ms > 0 GROUP BY arm, pair
"""


def of_profile(made: Study | None, profile: ArmProfile | None) -> StartHistory | None:
    """Return what the starts of emulated servers add, as their profile draws it."""
    if profile is None:
        return None
    is_noisy = getattr(getattr(made, "servers", None), "noise", True)
    return StartHistory(spread=profile.noise.restart_sigma if is_noisy else 0.0, source=f"as profile {profile.profile} has it")


def of_history(connection: duckdb.DuckDBPyConnection, run: RunRow) -> StartHistory | None:
    """Return what starts added in other runs of the model, or None where too few were made."""
    names = restarted(connection, model=run.model, but=run.run_id, latest=LATEST)
    known = [found for name in names for found in _of_run(connection, name)]
    freedom = sum(starts - 1 for starts, _ in known)
    if freedom < ENOUGH_STARTS:
        return None
    variance = sum((starts - 1) * spread**2 for starts, spread in known) / freedom / 2  # a ratio has a start on each side
    counted = f"{sum(starts for starts, _ in known)} starts in {len(names)} runs of this database"
    return StartHistory(spread=math.sqrt(variance), source=counted)


def checks_ms(connection: duckdb.DuckDBPyConnection, run: RunRow, server: Server) -> tuple[float, ...]:
    """Return what a short request took after the starts of equal servers in other runs."""
    before = starts(connection, model=run.model, but=run.run_id, latest=LATEST)
    return tuple(float(said["check_ms"]) for said in before if all(said.get(name) == server.facts.get(name) for name in EQUAL))


def _of_run(connection: duckdb.DuckDBPyConnection, run_id: str) -> Sequence[tuple[int, float]]:
    """Return how many starts each arm beside the first had in a run, and what one added to their ratio."""
    began = {(play.arm, play.pair): play.restart for play in plays.counted(plays.plays(connection, run_id))}
    rows = connection.execute(_LEVELS, {"run": run_id}).fetchall()
    levels: dict[str, dict[int, float]] = {}
    for arm, pair, level in rows:
        if (arm, pair) in began:
            levels.setdefault(arm, {})[pair] = level
    arms, out = sorted(levels), []
    for other in arms[1:]:
        first = arms[0]
        shared = sorted(levels[first].keys() & levels[other].keys())
        if len(shared) < ENOUGH_STARTS // 2:
            continue
        found = Pairs(
            values=np.array([levels[other][pair] - levels[first][pair] for pair in shared]),
            start=np.array([began[first, pair] for pair in shared]),
            other_start=np.array([began[other, pair] for pair in shared]),
        )
        if 1 < found.starts < len(shared):
            # With no prior of its own: what these starts showed.
            out.append((found.starts, scatter(found, scale=0.0, worth=0).start))
    return out


def looks(played: Sequence[plays.Play], planned: int | None) -> int:
    """Count how often a run was as long as it was asked to be: once, and once more for each part that went beyond what had been planned."""
    last: dict[int, int] = {}
    for play in plays.counted(played):
        last[play.leg] = max(play.pair, last.get(play.leg, 0))
    count, reached = 1, planned if planned is not None else max(last.values(), default=0) + 1
    for leg in sorted(last):
        if last[leg] >= reached:
            count, reached = count + 1, last[leg] + 1
    return count
