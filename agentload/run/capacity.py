"""Find how much load an arm carries within service levels: double until it breaks, then halve the interval."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from agentload.evidence.capacity import PROBE, VOID, next_search
from agentload.model.rows import ProbeRow
from agentload.run.trial import Trial
from agentload.store.database import reading
from agentload.store.journal import Writer
from agentload.store.loader import load
from agentload.store.places import journal_folder
from agentload.study.kinds import Search
from agentload.study.quantity import LIMITS

TOLERANCE: Final = 0.05  # stop when the bracket is this narrow: closer than runs repeat
LARGEST: Final = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The largest load that held, and the smallest that did not; None where the search met its own bound, or a trial that says nothing."""

    arm: str
    holds: float | None
    breaks: float | None
    trials: tuple[Trial, ...]

    @property
    def void(self) -> Trial | None:
        """Return the trial that ended the search because it says nothing of the server."""
        return next((trial for trial in self.trials if trial.void is not None), None)

    @property
    def broken(self) -> Trial | None:
        """Return the smallest trial that did not hold."""
        return next((trial for trial in self.trials if trial.load == self.breaks), None)


class _VoidError(Exception):
    """A trial says nothing: whatever is tried after it would not either."""


def search(arm: str, attempt: Callable[[float], Trial], *, start: float, whole: bool) -> Found:
    """Bracket the largest load that is no trouble, then narrow the bracket; a void trial ends the search where it is."""
    trials: dict[float, Trial] = {}

    def holds(load: float) -> bool:
        if load not in trials:
            trials[load] = attempt(load)
        if trials[load].void is not None:
            raise _VoidError
        return trials[load].trouble is None

    low, high = None, None
    with suppress(_VoidError):
        for load in _doubling(start):
            if holds(load):
                low = load
            else:
                high = load
                break
        if low is None:
            for load in _halving(start, whole=whole):
                if holds(load):
                    low = load
                    break
                high = load
        while low is not None and high is not None and not _is_narrow(low, high, whole=whole):
            middle = float(math.floor((low + high) / 2)) if whole else (low + high) / 2
            low, high = (middle, high) if holds(middle) else (low, middle)
    return Found(arm=arm, holds=low, breaks=high, trials=tuple(trials[load] for load in sorted(trials)))


def rows(found: Found, *, run_id: str, at_ns: int, study: Search, classes: Collection[str]) -> Iterator[ProbeRow]:
    """Return the steps of a search for concurrency as rows beside a run; *at_ns* is that of all of them, *classes* whose sessions ran."""
    slo = "" if study.slo is None else LIMITS.write(study.slo)
    for trial in found.trials:
        settings = {"agents": round(trial.load), "slo": slo, "classes": sorted(classes)}
        detail = asdict(trial) | {"minutes": study.trial_s / 60, "held": found.holds is not None and trial.load <= found.holds}
        yield ProbeRow(
            run_id=run_id,
            arm=found.arm,
            probe=PROBE,
            at_ns=at_ns,
            settings=json.dumps(settings, sort_keys=True),
            outcome=VOID if trial.void is not None else trial.trouble or "ok",
            detail=json.dumps(detail, sort_keys=True),
        )


def _is_narrow(low: float, high: float, *, whole: bool) -> bool:
    return high - low <= max(1.0 if whole else 0.0, TOLERANCE * low)


def _doubling(start: float) -> Iterator[float]:
    load = start
    while load <= LARGEST:
        yield load
        load *= 2


def _halving(start: float, *, whole: bool) -> Iterator[float]:
    load = start / 2
    while load >= (1 if whole else 1e-3):
        yield float(math.floor(load)) if whole else load
        load /= 2


def keep(rows: Iterable[ProbeRow], database: Path, *, run_id: str, name: str) -> None:
    """Write the rows into a journal of their own, and load it."""
    path = journal_folder(database, run_id) / f"{name}.journal"
    path.parent.mkdir(parents=True, exist_ok=True)
    with Writer(path) as journal:
        for row in rows:
            journal.append(row)
    load([path], database)


def keep_searches(found: Sequence[Found], database: Path, *, run: str, at_ns: int | None, study: Search, classes: Collection[str]) -> None:
    """Keep searches beside a run, where they take the place of those before; a simulated one has no date, only its place behind them."""
    if at_ns is None:
        with reading(database) as connection:
            at_ns = next_search(connection, run)
    steps = (row for each in found for row in rows(each, run_id=run, at_ns=at_ns, study=study, classes=classes))
    keep(steps, database, run_id=run, name="capacity")
