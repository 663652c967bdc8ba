"""Find how much load an arm carries within service levels: which
loads are tried, what they say together, and trials in virtual time.

Every trial is a new draw of sessions: which of them run decides what an arm carries by a
fifth, and a search that believed a single trial would find its luck. Loads are doubled
until one breaks and halved until one holds; from there on a curve through all trials of
all arms says where the limit may lie, and the next load is taken from what it leaves open.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

from agentload.dispatch.arrivals import seeded
from agentload.evidence.capacity import PROBE, VOID, Step, fit, next_search
from agentload.layout.plan import limits_of, plan
from agentload.layout.windows import Steady, windows
from agentload.model.metrics import clock_start
from agentload.model.plan import Budget, ClosedLoop, OpenLoop, Plan
from agentload.model.profile import ArmProfile
from agentload.model.rows import BlockRow, ProbeRow
from agentload.model.trace import Trace
from agentload.run.trial import Tally, Trial, broken_level
from agentload.store.database import reading
from agentload.store.loader import keep
from agentload.study.kinds import Search, What
from agentload.study.parts import Slo
from agentload.study.quantity import LIMITS
from agentload.virtual.shell import Shell

LARGEST: Final = 1 << 14
FEWEST: Final = 6
"""Trials of an arm: with fewer nobody knows how far draws of sessions lie apart."""
MOST: Final = 16
"""Trials of an arm beyond those that bracket its limit."""
WIDTH: Final = 0.16
"""Half width at which a search ends: the ratio of two such arms is known within a quarter."""
OPEN: Final = (0.5, 0.9, 0.2)
"""Where in what is left open the next load is taken: below, at and above the limit, by turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The load that an arm carries, with the ends of its interval;
    None: nothing held, nothing broke, or a trial that says nothing.
    """

    arm: str
    holds: float | None
    low: float | None
    high: float | None
    trials: tuple[Trial, ...]

    @property
    def void(self) -> Trial | None:
        """Return the trial that ended the search because it says nothing of the server."""
        return next((trial for trial in self.trials if trial.void is not None), None)

    @property
    def broken(self) -> Trial | None:
        """Return the trial of the smallest load that did not hold."""
        return min(
            (trial for trial in self.trials if trial.trouble is not None),
            key=lambda trial: trial.load,
            default=None,
        )


class _EndError(Exception):
    """Nothing more is tried: a trial says nothing, and others
    would not either, or there were as many as were asked for.
    """


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
    """Try loads until the limit of *arm* is known well enough, or
    *most* were; a void trial ends the search once a load has held.

    Before that, smaller ones are tried: what was too
    much for the client may be little for the server.

    *attempt* is told which draw of sessions it is; trials of
    *others* say how steep the curve is and how far draws lie apart.
    """
    trials: list[Trial] = []

    def holds(load: float) -> bool:
        trials.append(attempt(load, len(trials)))
        is_void = trials[-1].void is not None
        if (is_void and any(each.trouble is None and each.void is None for each in trials)) or len(
            trials
        ) == most:
            raise _EndError
        return not is_void and trials[-1].trouble is None

    with suppress(_EndError):
        has_held = False
        for load in _doubling(start):
            if not holds(load):
                break
            has_held = True
        else:
            return tuple(trials)
        if not has_held and not any(holds(load) for load in _halving(start, whole=whole)):
            return tuple(trials)
        for _, probability in zip(range(most or MOST), cycle(OPEN), strict=False):
            known = fit(_telling({**others, arm: trials}), share=share)
            if len(trials) >= FEWEST and known.limit(arm).is_within(width):
                break
            load = known.at(arm, probability)
            holds(max(1.0, float(round(load))) if whole else float(f"{load:.3g}"))
    return tuple(trials)


def settled(tried: Mapping[str, Sequence[Trial]], *, share: float) -> tuple[Found, ...]:
    """Return what the trials of all arms say together of each."""
    told = _telling(tried)
    known = fit(told, share=share) if told else None
    found = []
    for arm, trials in tried.items():
        error = max((each.error for each in trials), default=0.0)
        limit = known.limit(arm).widened(error) if known is not None and arm in told else None
        holds, low, high = (
            (None, None, None)
            if limit is None
            else (limit.value or None, limit.low or None, limit.high)
        )
        found.append(
            Found(
                arm=arm,
                holds=holds,
                low=low,
                high=high,
                trials=tuple(sorted(trials, key=lambda trial: trial.load)),
            )
        )
    return tuple(found)


def _telling(tried: Mapping[str, Sequence[Trial]]) -> dict[str, list[Step]]:
    """Return what each arm's trials say, of those that say something."""
    told: dict[str, list[Step]] = {}
    for arm, trials in tried.items():
        if own := [each for each in trials if each.void is None]:
            told[arm] = [
                (each.load, each.turns, each.within, each.trouble, each.worth) for each in own
            ]
    return told


def rows(
    found: Found,
    *,
    run_id: str,
    at_ns: int,
    study: Search,
    classes: Collection[str],
    probe: str = PROBE,
) -> Iterator[ProbeRow]:
    """Return the steps of a search for concurrency as rows beside a
    run; *at_ns* is that of all of them, *classes* whose sessions ran.
    """
    slo = "" if study.slo is None else LIMITS.write(study.slo)
    for number, trial in enumerate(found.trials):
        # Rows are told apart by their settings, and one load is tried more than once.
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
    """Read the trials of each arm in the search that was made last beside a run."""
    searches = [row for row in kept if row.probe == PROBE]
    last_ns = max((row.at_ns for row in searches), default=0)
    found: dict[str, tuple[Trial, ...]] = {}
    for row in searches:
        if row.at_ns == last_ns:
            detail = json.loads(row.detail or "{}")
            del detail["minutes"]
            found[row.arm] = (*found.get(row.arm, ()), Trial(**detail))
    return found


def keep_searches(
    found: Sequence[Found],
    database: Path,
    *,
    run: str,
    at_ns: int | None,
    study: Search,
    classes: Collection[str],
    probe: str = PROBE,
) -> None:
    """Keep searches beside a run, where they take the place of those
    before; a simulated one has no date, only its place behind them.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A load that is tried, with the seed of its draw of sessions and what those are worth."""

    load: float
    seed: int
    worth: float
    error: float

    def of(self, trial: Trial) -> Trial:
        """Return the trial that was made of it."""
        return replace(trial, worth=self.worth, error=self.error)


Loads: TypeAlias = Sequence[Chosen]
"""What is tried, and nothing else."""


def find(
    study: Search,
    stock: Steady,
    arm: ArmProfile,
    *,
    others: Mapping[str, Sequence[Trial]] = MappingProxyType({}),
    loads: Loads = (),
    most: int | None = None,
) -> tuple[Trial, ...]:
    """Try numbers of sessions, or of session starts a second, to
    find the most that *arm* carries within the service level.

    Each load is played for a trial of virtual time, the
    first quarter of which is left out: queues build up.
    """
    if loads:
        return tuple(
            each.of(played(study, stock, arm, each.load, seed=each.seed)) for each in loads
        )
    is_closed = study.find == "max-concurrency"
    return search(
        arm.name,
        lambda size, number: played(study, stock, arm, size, seed=drawn(study, arm.name, number)),
        start=START[study.find],
        whole=is_closed,
        share=study.share,
        others=others,
        most=most,
    )


def played(study: Search, stock: Steady, arm: ArmProfile, size: float, *, seed: int) -> Trial:
    """Play one load for a trial of virtual time; the seed draws
    which sessions run, where the trial begins, and the noise.
    """
    made = trial_plan(study, stock, arm.name, size, run=f"find-{size:g}", seed=seed)
    rows = list(
        Shell(made, {arm.name: arm}, seed=seed, sample_s=max(1.0, study.trial_s / 60)).play()
    )
    begun_ns = next(row.primed_ns or 0 for row in rows if isinstance(row, BlockRow))
    tally = Tally(
        study.slo or Slo(), begun_ns=begun_ns, seconds=study.trial_s, start=clock_start(made.load)
    )
    for row in rows:
        tally.add(row)
    trial = tally.trial(size, share=study.share)
    return replace(trial, trouble=broken_level(trial, study.share))


def trial_plan(study: Search, stock: Steady, arm: str, size: float, *, run: str, seed: int) -> Plan:
    """Lay a trial of a load out: a window in which so many sessions
    are kept going, or begin each second; the seed draws where it lies.
    """
    is_closed = study.find == "max-concurrency"
    arrivals = ClosedLoop(sessions=round(size)) if is_closed else OpenLoop(rate_per_s=size)
    load = replace(study.load.planned(), arrivals=arrivals, budget=Budget(seconds=study.trial_s))
    laid = windows(stock.under(load), number=1, pairs=1, seed=seed)
    limits = limits_of(study.timeouts)
    trace = Trace(header=stock.header, sessions=())
    return plan(
        trace, [arm], run=run, seed=seed, pairs=1, load=laid.load, limits=limits, laid=laid.blocks
    )


def drawn(study: Search, arm: str, number: int) -> int:
    """Return the seed of a trial: each is a new draw
    of sessions, of where they begin, and of the noise.
    """
    if study.windows is not None:
        return seeded(study.seed, "window", number % study.windows).getrandbits(32)
    return seeded(study.seed, "trial", arm, number).getrandbits(32)
