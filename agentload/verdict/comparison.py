"""Compare two runs of the same plan: last night's servers against tonight's.

An arm of the later run is compared with the same arm of the earlier one, turn by turn on the
same bytes. What lies between the runs in time is in the difference, and the document says so.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np

from advisor.decide import decide
from advisor.evidence import Calls, Evidence, Ints
from agentload.errors import EvidenceError
from agentload.model.rows import RunRow
from agentload.store import tables
from agentload.store.database import reading
from agentload.store.runs import run_named
from agentload.study.change import changes
from agentload.study.stored import study_of
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import Verdict, evidence_of

IN_TIME: Final = (
    "The runs were made one after the other: whatever else changed between them is in the "
    "difference"
)
# What has to be equal, in the words of a reader.
_EQUAL: Final = {
    "trace_hash": "trace",
    "model": "model",
    "kind": "kind of evidence",
    "design": "design",
    "seed": "seed",
    "token_rule": "count of tokens",
    "sessions": "set of sessions",
}
_FREE: Final = frozenset({"launch", "swap", "noise", "trace", "slo", "kind of study"})
"""What two studies may differ by: it changes where
and how long servers run, or is compared above.
"""
# A call that failed may have no count, or one of its own; and
# a server's count is the same one however its chunks came.
_RULES: Final = """
SELECT DISTINCT if(token_rule = 'one_a_chunk', 'one a chunk', 'by the server') FROM attempts
WHERE run_id = ? AND status = 'ok' AND token_rule IS NOT NULL ORDER BY ALL
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs of one plan, each gathered once, whichever of their arms are compared."""

    before: Evidence
    after: Evidence
    setting: Setting

    def arm(self, wanted: str | None = None) -> str:
        """Return the arm that is wanted, or the first that both have; raise `EvidenceError`."""
        theirs = [arm.name for arm in self.after.arms]
        common = [arm.name for arm in self.before.arms if arm.name in theirs]
        if not common or (wanted is not None and wanted not in common):
            only = "compare runs with an arm of the same name"
            runs = f"runs {self.before.run} and {self.after.run}"
            raise EvidenceError(
                f"{runs} have no arm '{wanted or theirs[0]}' in common",
                hint=f"both have: {', '.join(common)}" if common else only,
            )
        return wanted or common[0]

    def verdict(self, arm: str) -> Verdict:
        """Decide whether the later run is better or worse than the earlier one on an arm."""
        evidence = joined(self.before, self.after, arm)
        decision = decide(evidence, self.setting.policy)
        return Verdict(decision=decision, evidence=evidence, setting=self.setting)


def comparison(
    database: Path, before: str, after: str, *, setting: Setting, profile: str | None = None
) -> Comparison:
    """Gather what two runs hold; raise `EvidenceError` where they do not follow one plan."""
    with reading(database) as connection:  # kept open: those who open it meanwhile share it
        runs = (run_named(database, before), run_named(database, after))
        if runs[0] == runs[1]:
            both = f"'{before}' and '{after}' both name run {runs[0]}"
            raise EvidenceError(both, hint="--runs BEFORE,AFTER")
        _check_comparable(runs, [_settings(connection, run) for run in runs])
        gathered = partial(evidence_of, connection, setting=setting, profile=profile)
        earlier, later = map(gathered, runs)
    return Comparison(before=earlier, after=later, setting=setting)


def _settings(connection: duckdb.DuckDBPyConnection, run: str) -> dict[str, Any]:
    (row,) = tables.rows(connection, RunRow, run_id=run)
    rules = connection.execute(_RULES, [run]).fetchall()
    sessions = (
        "SELECT count(DISTINCT session), bit_xor(hash(session)) FROM (SELECT DISTINCT session "
        "FROM attempts WHERE run_id = ?)"
    )
    return {
        **{name: getattr(row, name) for name in ("trace_hash", "model", "kind", "design", "seed")},
        "study": study_of(row),
        "token_rule": [rule for (rule,) in rules],
        "sessions": connection.execute(sessions, [run]).fetchone(),
    }


def _check_comparable(runs: tuple[str, str], settings: list[dict[str, Any]]) -> None:
    before, after = settings
    found = [
        f"another {words} ({_both(before[key], after[key])})"
        for key, words in _EQUAL.items()
        if before[key] != after[key] and [] not in (before[key], after[key])
    ]
    then, now = before["study"], after["study"]
    if then is not None and now is not None:
        found += [
            f"{name} differs ({_both(one, other)})"
            for name, one, other in changes(then, now)
            if name not in _FREE
        ]
    for difference in found:
        hint = (
            "replay the later run with the options of the earlier one: agentload runs show --run "
            + runs[0]
        )
        raise EvidenceError(
            f"runs {runs[0]} and {runs[1]} cannot be compared: {difference}", hint=hint
        )


def _both(one: object, other: object) -> str:
    return f"{_short(one)} and {_short(other)}"


def _short(value: object) -> str:
    match value:
        case None:
            text = "none"
        case list():
            text = ", ".join(value)
        case tuple():
            text = str(value[0])
        case _:
            text = str(value)
    return text if len(text) <= 60 else f"{text[:12]}…"


def joined(before: Evidence, after: Evidence, arm: str) -> Evidence:
    """Put one arm of two runs side by side, each called by its
    run; raise `EvidenceError` when too few pairs are left in both.
    """
    _check_pairs(before, after, arm)
    sides = (before, after)
    played = [
        each.calls for each in before.observations if each.calls is not None and len(each.calls)
    ]
    blocks = max(int(calls.block.max()) for calls in played) + 1
    end_s = max(float(calls.start_s.max()) for calls in played)
    observations = [
        replace(each, arm=before.run) for each in before.observations if each.arm == arm
    ]
    observations += [
        replace(
            each,
            arm=after.run,
            calls=None if each.calls is None else _later(each.calls, blocks, end_s),
        )
        for each in after.observations
        if each.arm == arm
    ]
    return replace(
        before,
        run=after.run,
        reference=before.run,
        arms=tuple(replace(side.arm(arm), name=side.run) for side in sides),
        deployment=replace(before.deployment, version=_versions(before, after)),
        observations=tuple(observations),
        server=tuple(
            (side.run, figures) for side in sides for name, figures in side.server if name == arm
        ),
        sweeps=tuple(
            replace(sweep, arm=side.run)
            for side in sides
            for sweep in side.sweeps
            if sweep.arm == arm
        ),
        capacity=tuple(
            replace(point, arm=side.run)
            for side in sides
            for point in side.capacity
            if point.arm == arm
        ),
        twin_changes=(),
        accuracy=(),
        aa=(*before.aa, *after.aa),
        health=tuple(
            replace(each, arm=side.run)
            for side in sides
            for each in side.health
            if each.arm in (None, arm)
        ),
        dated=after.dated,
        notes=(IN_TIME, *(f"{side.run}: {note}" for side in sides for note in side.notes)),
    )


def _check_pairs(before: Evidence, after: Evidence, arm: str) -> None:
    pairs = [
        {
            int(pair)
            for each in side.observations
            if each.arm == arm and each.calls is not None
            for pair in np.unique(each.calls.pair)
        }
        for side in (before, after)
    ]
    common, played = pairs[0] & pairs[1], pairs[0] | pairs[1]
    if len(common) < max(1, len(played) / 2):
        told = " and ".join(
            f"{len(own)} in {side.run}" for own, side in zip(pairs, (before, after), strict=True)
        )
        raise EvidenceError(
            f"runs {before.run} and {after.run} cannot be compared: of {len(played)} block "
            f"pairs {len(common)} are whole in both ({told})",
            hint="agentload runs show --run RUN lists invalid blocks",
        )


def _versions(before: Evidence, after: Evidence) -> str | None:
    versions = [side.deployment.version for side in (before, after)]
    return (
        versions[1]
        if versions[0] == versions[1] or None in versions
        else f"{versions[0]} and {versions[1]}"
    )


def _later(calls: Calls, blocks: int, seconds: float) -> Calls:
    """Move calls behind those of another run: later
    blocks, later instants, another start of the servers.
    """
    other_start: Ints = calls.restart + 1_000_000
    return replace(
        calls, block=calls.block + blocks, start_s=calls.start_s + seconds, restart=other_start
    )
