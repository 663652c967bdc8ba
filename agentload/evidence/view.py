"""Read one run as its small tables hold it.

They say how it was made, who served it, what was asked next to it, and when each arm played. A
view is read once. Everything else that evidence, a verdict or a report takes from these tables is
computed from it; only calls, chunks, answers and samples, which are many, are queried where they
are used.
"""

from typing import Final

import duckdb

from agentload.errors import EvidenceError
from agentload.evidence.plays import PlayedBlock, plays
from agentload.evidence.servers import ArmServer, servers
from agentload.model.controls import is_control
from agentload.model.record import Record
from agentload.model.rows import ArmRow, BlockRow, FingerprintRow, LegRow, ProbeRow, RunRow
from agentload.store import tables
from agentload.study.kinds import Ask, Study
from agentload.study.stored import Notes, notes, study_of

ADDED: Final = "added"
"""Probe that keeps each study whose rows were added to a run."""


class RunView(Record):
    """Rows of one run, each kind in its table's order."""

    run: RunRow
    legs: tuple[LegRow, ...]
    arms: tuple[ArmRow, ...]
    fingerprints: tuple[FingerprintRow, ...]
    blocks: tuple[BlockRow, ...]
    probes: tuple[ProbeRow, ...]
    plays: tuple[PlayedBlock, ...]
    """Blocks in order of time, each with its reason not to count."""

    @property
    def name(self) -> str:
        """Return the run's name in its tables."""
        return self.run.run_id

    @property
    def arm_names(self) -> list[str]:
        """Return the arms under comparison in their order, without controls."""
        return [row.arm for row in self.arms if not is_control(row.arm)]

    def study(self) -> Study | None:
        """Read the stored study; None where an older version stored none.

        Raises UsageError for one of a newer version.
        """
        return study_of(self.run)

    @property
    def arms_asked(self) -> tuple[str, ...]:
        """Name the arms that questions go to: second copies only where the run is about these."""
        is_ask = isinstance(self.study(), Ask)
        return tuple(row.arm for row in self.arms if is_ask or not is_control(row.arm))

    def notes(self) -> Notes:
        """Read what was noted when the run started."""
        return notes(self.run.options)

    def servers(self) -> tuple[ArmServer, ...]:
        """Describe each arm's server, controls included, in the order of the arms."""
        return servers(self.arms, self.fingerprints)

    def probes_of(self, probe: str) -> tuple[ProbeRow, ...]:
        """Return the rows that one probe stored, the oldest first."""
        return tuple(row for row in self.probes if row.probe == probe)


def run_view(connection: duckdb.DuckDBPyConnection, run_id: str) -> RunView:
    """Read a run's small tables; raise `EvidenceError` where the database has no such run."""
    run = next(iter(tables.rows(connection, RunRow, run_id=run_id)), None)
    if run is None:
        raise EvidenceError(f"no run '{run_id}' in the database", hint="agentload runs list")
    legs = tables.rows(connection, LegRow, run_id=run_id)
    arms = tables.rows(connection, ArmRow, run_id=run_id)
    fingerprints = tables.rows(connection, FingerprintRow, run_id=run_id)
    blocks = tables.rows(connection, BlockRow, run_id=run_id)
    return RunView(
        run=run,
        legs=legs,
        arms=arms,
        fingerprints=fingerprints,
        blocks=blocks,
        probes=tables.rows(connection, ProbeRow, run_id=run_id),
        plays=plays(legs, arms, fingerprints, blocks),
    )
