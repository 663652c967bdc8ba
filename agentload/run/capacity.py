"""Find how much load an arm carries within service levels.

The module chooses the loads to try, fits one curve to all trials, and plays trials in virtual time.
Every trial is a new draw of sessions: the draw alone moves the load that an arm carries by a fifth,
so a search that believed a single trial would find its luck. Loads are doubled until one breaks and
halved until one holds; from there on the curve through all trials of all arms says where the limit
may lie, and the next load is taken from the range that is still open.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

from agentload.dispatch.arrivals import rng_of
from agentload.evidence.capacity import (
    OF_THE_TURNS,
    PROBE,
    VOID,
    Tried,
    TwinReplay,
    carried_loads,
    fit,
    next_search,
    replay_of,
)
from agentload.layout.plan import Scheme, limits_of, plan
from agentload.layout.steady import Steady
from agentload.layout.windows import windows
from agentload.model.metrics import clock_start
from agentload.model.plan import Budget, ClosedLoop, OpenLoop, Plan
from agentload.model.profile import ArmProfile
from agentload.model.record import Record
from agentload.model.rows import BlockRow, ProbeRow
from agentload.model.trace import Trace
from agentload.run.trial import Trial, TrialTally, broken_level
from agentload.store.database import reading
from agentload.store.loader import keep
from agentload.study.kinds import Search, What
from agentload.study.parts import Slo
from agentload.study.quantity import LIMITS
from agentload.virtual.shell import Shell

LARGEST: Final = 1 << 14
FEWEST: Final = 6
"""Fewest trials of an arm: fewer do not show how far draws of sessions differ."""
MOST: Final = 16
"""Most trials of an arm after those that bracket its limit."""
WIDTH: Final = 0.16
"""Half width at which a search ends: the ratio of two such arms is known within a quarter."""
OPEN: Final = (0.5, 0.9, 0.2)
"""Quantiles of the limit at which the next load is taken, by turns: at, above, below."""


class ArmLoad(Record):
    """State the load that an arm carries, with the ends of its interval.

    None: nothing held, nothing broke, or no trial is valid.
    """

    arm: str
    holds: float | None
    low: float | None
    high: float | None
    trials: tuple[Trial, ...]

    @property
    def void(self) -> Trial | None:
        """Invalid trial of the smallest load, which says nothing of the server; else None."""
        return next((trial for trial in self.trials if trial.void is not None), None)

    @property
    def broken(self) -> Trial | None:
        """Trial of the smallest load that did not hold; None without one."""
        return min(
            (trial for trial in self.trials if trial.trouble is not None),
            key=lambda trial: trial.load,
            default=None,
        )


class _EndError(Exception):
    """End a search: a trial is invalid and others would be too, or enough were made."""


def search(
    arm: str,
    attempt: Callable[[float, int], Trial],
    *,
    start: float,
    whole: bool,
    share: float,
    others: Mapping[str, Sequence[Trial]] = MappingProxyType({}),
    most: int | None = None,
    width: float = WIDTH,
) -> tuple[Trial, ...]:
    """Try loads until the limit of *arm* is known well enough, or *most* loads were tried.

    An invalid trial ends the search once a load has held. Before that, smaller loads are tried: too
    much for the client may be little for the server. *attempt* takes a load and the number of its
    trial; trials of *others* say how steep the curve is and how far draws of sessions differ.
    """
    made = _Search(arm=arm, attempt=attempt, whole=whole, most=most)
    with suppress(_EndError):
        if made.is_bracketed(start):
            made.narrow(others, share=share, width=width)
    return tuple(made.trials)


@dataclass(slots=True, kw_only=True)
class _Search:
    """Hold the trials of one arm while its limit is searched."""

    arm: str
    attempt: Callable[[float, int], Trial]
    whole: bool
    most: int | None
    trials: list[Trial] = field(default_factory=list)

    def holds(self, load: float) -> bool:
        """Try a load. Raises _EndError where no further trial is to be made."""
        has_held = any(each.trouble is None and each.void is None for each in self.trials)
        trial = self.attempt(load, len(self.trials))
        self.trials.append(trial)
        is_void = trial.void is not None
        if (is_void and has_held) or len(self.trials) == self.most:
            raise _EndError
        return not is_void and trial.trouble is None

    def is_bracketed(self, start: float) -> bool:
        """Double loads until one breaks, or halve them until one holds; tell whether both did."""
        larger = _doubling(start)
        first = next(larger, None)
        if first is None:
            return False
        if self.holds(first):
            return any(not self.holds(load) for load in larger)
        return any(map(self.holds, _halving(start, whole=self.whole)))

    def narrow(self, others: Mapping[str, Sequence[Trial]], *, share: float, width: float) -> None:
        """Try loads from the range in which the limit may lie, until that is narrow enough."""
        for _, probability in zip(range(self.most or MOST), cycle(OPEN), strict=False):
            known = fit(_telling({**others, self.arm: self.trials}), share=share)
            is_known = known.limit(self.arm).is_within(width)
            if is_known and len(self.trials) >= FEWEST:
                return
            load = known.at(self.arm, probability)
            self.holds(max(1.0, float(round(load))) if self.whole else float(f"{load:.3g}"))


def arm_loads(tried: Mapping[str, Sequence[Trial]], *, share: float) -> tuple[ArmLoad, ...]:
    """Return the load that each arm carries, from one fit to the trials of all arms."""
    known = carried_loads(_telling(tried), share=share)
    found = []
    for arm, trials in tried.items():
        limit = known.get(arm)
        holds, low, high = (
            (None, None, None)
            if limit is None
            else (limit.value or None, limit.low or None, limit.high)
        )
        found.append(
            ArmLoad(
                arm=arm,
                holds=holds,
                low=low,
                high=high,
                trials=tuple(sorted(trials, key=lambda trial: trial.load)),
            )
        )
    return tuple(found)


def _telling(tried: Mapping[str, Sequence[Trial]]) -> dict[str, list[Tried]]:
    """Return the valid trials of each arm, as steps for the fit."""
    told: dict[str, list[Tried]] = {}
    for arm, trials in tried.items():
        if own := [each for each in trials if each.void is None]:
            told[arm] = [_step(each) for each in own]
    return told


def _step(trial: Trial) -> Tried:
    return Tried.of(
        trial.load,
        trial.turns,
        trial.within,
        None if trial.trouble in OF_THE_TURNS else trial.trouble,
        worth=trial.worth,
        error=trial.error,
        replay=trial.replay,
    )


def rows(
    found: ArmLoad,
    *,
    run_id: str,
    at_ns: int,
    study: Search,
    classes: Collection[str],
    probe: str = PROBE,
) -> Iterator[ProbeRow]:
    """Yield the trials of a search for concurrency as rows to keep with a run.

    *at_ns* is the time of all rows, *classes* are the classes of the sessions that ran.
    """
    slo = "" if study.slo is None else LIMITS.write(study.slo)
    for number, trial in enumerate(found.trials):
        # Rows are distinguished by their settings, and one load is tried more than once.
        settings = {
            "agents": round(trial.load),
            "slo": slo,
            "share": study.share,
            "classes": sorted(classes),
            "trial": number,
        }
        detail = asdict(trial) | {"minutes": study.trial_s / 60}
        yield ProbeRow(
            run_id=run_id,
            arm=found.arm,
            probe=probe,
            at_ns=at_ns,
            settings=json.dumps(settings, sort_keys=True),
            outcome=VOID if trial.void is not None else trial.trouble or "ok",
            detail=json.dumps(detail, sort_keys=True),
        )


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


def trials(kept: Iterable[ProbeRow]) -> dict[str, tuple[Trial, ...]]:
    """Read the trials of each arm from the latest search kept with a run."""
    searches = [row for row in kept if row.probe == PROBE]
    last_ns = max((row.at_ns for row in searches), default=0)
    found: dict[str, tuple[Trial, ...]] = {}
    for row in searches:
        if row.at_ns == last_ns:
            detail = json.loads(row.detail or "{}")
            del detail["minutes"]
            detail["replay"] = replay_of(detail)
            found[row.arm] = (*found.get(row.arm, ()), Trial(**detail))
    return found


def keep_searches(
    found: Sequence[ArmLoad],
    database: Path,
    *,
    run: str,
    at_ns: int | None,
    study: Search,
    classes: Collection[str],
    probe: str = PROBE,
) -> None:
    """Keep searches with a run, in place of earlier ones.

    *at_ns* is None for simulated searches, which have no date, only a number after earlier ones.
    """
    if at_ns is None:
        with reading(database) as connection:
            at_ns = next_search(connection, run)
    steps = (
        row
        for each in found
        for row in rows(each, run_id=run, at_ns=at_ns, study=study, classes=classes, probe=probe)
    )
    keep(steps, database, run_id=run, name="capacity")


START: dict[What, float] = {"max-concurrency": 8, "max-rate": 0.5}


class Chosen(Record):
    """Name a load to try, with the seed of its sessions and what a twin says of those."""

    load: float
    seed: int
    worth: float
    error: float
    replay: TwinReplay | None = None

    def of(self, trial: Trial) -> Trial:
        """Return *trial* with what a twin says of its sessions."""
        return replace(trial, worth=self.worth, error=self.error, replay=self.replay)


Loads: TypeAlias = Sequence[Chosen]
"""Loads to try in place of a search."""


Attempt: TypeAlias = Callable[[float, int], Trial]
"""Plays one load; the seed draws the sessions, where the trial begins, and the noise."""


def try_loads(
    study: Search,
    arm: str,
    attempt: Attempt,
    *,
    start: float,
    others: Mapping[str, Sequence[Trial]] = MappingProxyType({}),
    loads: Loads = (),
    most: int | None = None,
) -> tuple[Trial, ...]:
    """Try *loads* on an arm until a trial is invalid; without loads, search its limit.

    The limit is the largest load within the service level.
    """
    if not loads:
        return search(
            arm,
            lambda load, number: attempt(load, trial_seed(study, arm, number)),
            start=start,
            whole=study.find == "max-concurrency",
            share=study.share,
            others=others,
            most=most,
        )
    trials: list[Trial] = []
    for each in loads:
        trials.append(each.of(attempt(each.load, each.seed)))
        if trials[-1].void is not None:
            break
    return tuple(trials)


def simulate_trial(study: Search, stock: Steady, arm: ArmProfile, load: float, seed: int) -> Trial:
    """Play one load in virtual time; the first quarter is left out: queues build up."""
    made = trial_plan(study, stock, arm.name, load, run=f"find-{load:g}", seed=seed)
    rows = list(
        Shell(made, {arm.name: arm}, seed=seed, sample_s=max(1.0, study.trial_s / 60)).play()
    )
    begun_ns = next(row.primed_ns or 0 for row in rows if isinstance(row, BlockRow))
    tally = TrialTally(
        study.slo or Slo(), begun_ns=begun_ns, seconds=study.trial_s, start=clock_start(made.load)
    )
    for row in rows:
        tally.add(row)
    trial = tally.trial(load, share=study.share)
    return replace(trial, trouble=broken_level(trial, study.share))


def trial_plan(study: Search, stock: Steady, arm: str, size: float, *, run: str, seed: int) -> Plan:
    """Lay out a trial: a window with *size* sessions at once, or *size* new ones a second.

    The seed draws where in the trace the window begins.
    """
    is_closed = study.find == "max-concurrency"
    arrivals = ClosedLoop(sessions=round(size)) if is_closed else OpenLoop(rate_per_s=size)
    load = replace(study.load.planned(), arrivals=arrivals, budget=Budget(seconds=study.trial_s))
    laid = windows(stock.under(load), number=1, pairs=1, seed=seed)
    limits = limits_of(study.timeouts)
    trace = Trace(header=stock.header, sessions=())
    return plan(
        trace,
        [arm],
        run=run,
        seed=seed,
        scheme=Scheme(pairs=1),
        load=laid.load,
        limits=limits,
        laid=laid.blocks,
    )


def trial_seed(study: Search, arm: str, number: int) -> int:
    """Return the seed of a trial, which draws the sessions, where they begin, and the noise.

    A study with windows repeats that many draws, the same on every arm.
    """
    if study.windows is not None:
        return rng_of(study.seed, "window", number % study.windows).getrandbits(32)
    return rng_of(study.seed, "trial", arm, number).getrandbits(32)
