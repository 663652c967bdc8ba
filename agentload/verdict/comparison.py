"""Compare two runs of the same plan: last night's servers with tonight's.

An arm of the later run is compared with the same arm of the earlier one, turn by turn on the same
bytes. Whatever changed between the runs is in the difference, and the document says so.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import duckdb
import numpy as np

from advisor.decide import decide
from advisor.evidence import Calls, ClientHealth, ContextSweep, Evidence, Ints, Observation
from advisor.loads import CapacityPoint
from agentload.errors import EvidenceError
from agentload.evidence.view import RunView, run_view
from agentload.model.record import Record
from agentload.store.database import reading
from agentload.store.runs import run_named
from agentload.study.change import changes
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import Verdict, evidence_of

IN_TIME: Final = (
    "The runs were made one after the other: whatever else changed between them is in the "
    "difference"
)
# Fields that have to be equal, each in the words of a reader.
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
"""Fields by which two studies may differ.

They change where and how long servers run, or are compared above.
"""
# A call that failed may have no count of tokens, or one of another rule; and a server
# that counts has one rule, however its chunks came.
_RULES: Final = """
SELECT DISTINCT if(token_rule = 'one_a_chunk', 'one a chunk', 'by the server') FROM attempts
WHERE run_id = ? AND status = 'ok' AND token_rule IS NOT NULL ORDER BY ALL
"""


_Row = TypeVar("_Row", CapacityPoint, ClientHealth, Observation, ContextSweep)


class Comparison(Record):
    """Hold two runs of one plan, each gathered once, for any arms that are compared."""

    views: tuple[RunView, RunView]
    """Views of the earlier and the later run."""
    before: Evidence
    after: Evidence
    setting: Setting

    def arm(self, wanted: str | None = None) -> str:
        """Return the arm *wanted*, or the first that both have.

        Raises `EvidenceError` where the runs do not share the arm.
        """
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
        evidence = side_by_side(self.before, self.after, arm)
        decision = decide(evidence, self.setting.policy)
        return Verdict(
            view=self.views[1], decision=decision, evidence=evidence, setting=self.setting
        )


def comparison(
    database: Path, before: str, after: str, *, setting: Setting, profile: str | None = None
) -> Comparison:
    """Gather what two runs hold; raise `EvidenceError` where they do not follow one plan."""
    with reading(database) as connection:  # kept open: those who open it meanwhile share it
        runs = (run_named(database, before), run_named(database, after))
        if runs[0] == runs[1]:
            both = f"'{before}' and '{after}' both name run {runs[0]}"
            raise EvidenceError(both, hint="--runs BEFORE,AFTER")
        views = (run_view(connection, runs[0]), run_view(connection, runs[1]))
        _check_comparable(runs, [_settings(connection, view) for view in views])
        gathered = partial(evidence_of, connection, setting=setting, profile=profile)
        earlier, later = map(gathered, views)
    return Comparison(views=views, before=earlier, after=later, setting=setting)


def _settings(connection: duckdb.DuckDBPyConnection, view: RunView) -> dict[str, Any]:
    row, run = view.run, view.name
    rules = connection.execute(_RULES, [run]).fetchall()
    sessions = (
        "SELECT count(DISTINCT session), bit_xor(hash(session)) FROM (SELECT DISTINCT session "
        "FROM attempts WHERE run_id = ?)"
    )
    (counted,) = connection.execute(sessions, [run]).fetchall()
    return {
        **{name: getattr(row, name) for name in ("trace_hash", "model", "kind", "design", "seed")},
        "study": view.study(),
        "token_rule": [rule for (rule,) in rules],
        "sessions": counted,
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
    if len(text) <= 60:
        return text
    return f"{text[:12]}…"


def side_by_side(before: Evidence, after: Evidence, arm: str) -> Evidence:
    """Put one arm of two runs side by side, each called by its run.

    Raises `EvidenceError` when too few pairs are left in both.
    """
    _check_pairs(before, after, arm)
    sides = (before, replace(after, observations=_behind(before, after.observations)))
    return replace(
        before,
        run=after.run,
        reference=before.run,
        arms=tuple(replace(side.arm(arm), name=side.run) for side in sides),
        deployment=replace(before.deployment, version=_versions(before, after)),
        observations=_of_arm(arm, [(side.run, side.observations) for side in sides]),
        server=tuple(
            (side.run, figures) for side in sides for name, figures in side.server if name == arm
        ),
        sweeps=_of_arm(arm, [(side.run, side.sweeps) for side in sides]),
        capacity=_of_arm(arm, [(side.run, side.capacity) for side in sides]),
        twin_changes=(),
        accuracy=(),
        aa=(*before.aa, *after.aa),
        health=_of_arm(arm, [(side.run, side.health) for side in sides]),
        dated=after.dated,
        notes=(IN_TIME, *(f"{side.run}: {note}" for side in sides for note in side.notes)),
    )


def _of_arm(arm: str, sides: Iterable[tuple[str, Iterable[_Row]]]) -> tuple[_Row, ...]:
    """Return the rows of an arm, or of all arms, in these runs, each called by its run."""
    return tuple(
        replace(each, arm=run) for run, rows in sides for each in rows if each.arm in (None, arm)
    )


def _behind(before: Evidence, observations: Iterable[Observation]) -> tuple[Observation, ...]:
    """Move the calls of these observations to after those of the earlier run."""
    seen = [each.calls for each in before.observations]
    played = [calls for calls in seen if calls is not None and len(calls)]
    blocks = max(int(calls.block.max()) for calls in played) + 1
    end_s = max(float(calls.start_s.max()) for calls in played)
    return tuple(
        replace(each, calls=None if each.calls is None else _later(each.calls, blocks, end_s))
        for each in observations
    )


def _check_pairs(before: Evidence, after: Evidence, arm: str) -> None:
    pairs = [_pairs(side, arm) for side in (before, after)]
    common = pairs[0] & pairs[1]
    played = pairs[0] | pairs[1]
    if len(common) < max(1, len(played) / 2):
        told = " and ".join(
            f"{len(own)} in {side.run}" for own, side in zip(pairs, (before, after), strict=True)
        )
        raise EvidenceError(
            f"runs {before.run} and {after.run} cannot be compared: of {len(played)} block "
            f"pairs {len(common)} are whole in both ({told})",
            hint="agentload runs show --run RUN lists invalid blocks",
        )


def _pairs(side: Evidence, arm: str) -> set[int]:
    own = [each.calls for each in side.observations if each.arm == arm]
    return set().union(*(np.unique(calls.pair).tolist() for calls in own if calls is not None))


def _versions(before: Evidence, after: Evidence) -> str | None:
    then, now = before.deployment.version, after.deployment.version
    if then is None or now is None or then == now:
        return now
    return f"{then} and {now}"


def _later(calls: Calls, blocks: int, seconds: float) -> Calls:
    """Move calls to after those of another run.

    They have later blocks, later instants, and another start of the servers.
    """
    other_start: Ints = calls.restart + 1_000_000
    return replace(
        calls, block=calls.block + blocks, start_s=calls.start_s + seconds, restart=other_start
    )
