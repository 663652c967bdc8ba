"""Say how turn latencies compare under loads that no pair was played under.

The figures come from long runs of the arms' twins, which ask no server. Pairs are played at a load
that both KV pools hold, with users who answer at once. The user's own servers carry as many agents
as their share of the peak, who wait as long as they do. Where a pool is full there, only hours show
how large a change is, and no server is measured for hours.
"""

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Final, TypeAlias

import numpy as np
import scipy

from advisor.estimate import Estimate
from advisor.loads import TwinChange
from agentload.dispatch.arrivals import rng_of
from agentload.evidence.capacity import TWINS
from agentload.layout.steady import Steady
from agentload.model.profile import ArmProfile
from agentload.model.record import Record
from agentload.model.rows import CallRow, ProbeRow
from agentload.run.capacity import trial_plan
from agentload.study.kinds import Search
from agentload.virtual.shell import Shell

DRAWS: Final = 6
"""Runs of each load: fewer do not show their scatter."""
LASTS_S: Final = (600.0, 3600.0)
"""Seconds of a run, at least and at most."""
CALLS: Final = 1500
"""Calls of a run, about: where sessions answer at once, an hour has ten thousand."""
WARM_SHARE: Final = 1 / 4
"""Share of a run's time that is left out: a full pool then holds what it holds for hours."""
LEVEL: Final = 0.95
KEPT: Final = 0.75
"""Share of the end of the interval that is given as a bound.

Sessions of hours are not steady after one hour, and showed a fifth too much.
"""

Turns: TypeAlias = Mapping[tuple[str, int], int]
"""Nanoseconds that turns took, by session and number."""


class OwnLoad(Record):
    """State how many agents a replica has, and how their sessions wait."""

    agents: int
    is_own: bool
    """Whether the load is that of the user's peak; False: that of the pairs."""
    study: Search
    """Search whose trials last as long as a run."""
    stock: Steady

    def changes(self, twins: Mapping[str, ArmProfile], *, reference: str) -> Iterator[TwinChange]:
        """Yield a bound on the change of turn latency on each twin but the reference's.

        Turns are compared one by one in the same sessions. A twin that shares no turn with the
        reference's in some run has no change.
        """
        drawn = [self._turns(twins, draw) for draw in range(DRAWS)]
        for arm in twins:
            ratios = [_log_ratios(turns[reference], turns[arm]) for turns in drawn]
            if arm != reference and all(ratios):
                found = _estimate(ratios)
                relative = found.as_bound((KEPT * (found.low or 0.0), KEPT * (found.high or 0.0)))
                yield TwinChange(arm=arm, agents=self.agents, is_own=self.is_own, relative=relative)

    def _turns(self, twins: Mapping[str, ArmProfile], draw: int) -> dict[str, Turns]:
        """Return how long each turn took on each twin, once the load is steady."""
        seed = rng_of(self.study.seed, "own load", draw).getrandbits(32)
        found: dict[str, Turns] = {}
        for name, arm in twins.items():
            made = trial_plan(self.study, self.stock, name, self.agents, run="own load", seed=seed)
            rows = [
                row
                for row in Shell(made, {name: arm}, seed=seed, sample_s=self.study.trial_s).play()
                if isinstance(row, CallRow)
            ]
            begin_ns = min((row.released_ns for row in rows if not row.prime), default=0)
            warm_ns = begin_ns + WARM_SHARE * self.study.trial_s * 1e9
            found[name] = {
                (row.session, row.turn): row.done_ns - row.released_ns
                for row in rows
                if row.status == "ok"
                and row.done_ns is not None
                and not row.prime
                and not row.tail
                and row.released_ns >= warm_ns
            }
        return found


def lasting_s(stock: Steady, agents: int) -> float:
    """Return the seconds of a run of these agents: an hour, or less if that has many calls."""
    calls = sum(len(session.turns) for family in stock.families for session in family)
    seconds = CALLS * stock.ends_s[-1] / (agents * calls)
    return max(LASTS_S[0], min(LASTS_S[1], seconds))


def _log_ratios(reference: Turns, other: Turns) -> list[float]:
    return [math.log(other[turn] / took) for turn, took in reference.items() if turn in other]


def _estimate(drawn: Sequence[Sequence[float]]) -> Estimate:
    """Return the mean change over all calls, with its error from run to run.

    Each call weighs the same, as it does in hours of load.
    """
    sums = np.array([sum(each) for each in drawn])
    counts = np.array([len(each) for each in drawn])
    mean = sums.sum() / counts.sum()
    error = float(np.std((sums - mean * counts) / counts.mean(), ddof=1)) / math.sqrt(len(drawn))
    wide = float(scipy.special.stdtrit(len(drawn) - 1, 0.5 + LEVEL / 2)) * error
    value, low, high = (math.expm1(each) for each in (mean, mean - wide, mean + wide))
    return Estimate(
        value=value,
        low=low,
        high=high,
        n=len(drawn),
        unit="relative",
        method=f"mean log ratio of the same turns in {len(drawn)} runs on twins of both arms",
        level=LEVEL,
    )


def rows(found: Iterable[TwinChange], *, run_id: str) -> Iterator[ProbeRow]:
    """Yield the rows of the changes to keep with a run."""
    for each in found:
        yield ProbeRow(
            run_id=run_id,
            arm=each.arm,
            probe=TWINS,
            at_ns=time.time_ns(),
            settings=json.dumps({"agents": each.agents, "is_own": each.is_own}, sort_keys=True),
            outcome="ok",
            detail=json.dumps(asdict(each.relative), sort_keys=True),
        )
