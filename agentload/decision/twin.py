"""Ask for the step times of each arm, and fit twins to them:
engines in virtual time that play the user's sessions for nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from agentload.decision.forecast import STEP_TIMES, Price
from agentload.decision.means import Means
from agentload.decision.sequence import REPEATS, Known, Stage
from agentload.errors import PlanError, ProfileError
from agentload.evidence.twin import Twin, bounds, repeats, twins
from agentload.layout.plan import plan, with_starts
from agentload.layout.step_times import Grid, grid, seconds, step_times
from agentload.model import apart
from agentload.model.plan import ClosedLoop, Load, Plan
from agentload.model.rows import BlockRow, CallRow
from agentload.run import foreground
from agentload.run.past import beside, taken
from agentload.run.play import Playing
from agentload.run.prepared import endpoints_of, launching
from agentload.run.servers import arms_of, reached
from agentload.run.simulate import quiet
from agentload.store.database import reading
from agentload.store.loader import keep
from agentload.study.kinds import Replay
from agentload.study.parts import Live, Virtual
from agentload.virtual.shell import Shell

LEG: Final = 2
"""Of what is simulated beside a run, whose own time begins
at 0 as well; it is no part that the run's evidence counts.
"""


@dataclass(kw_only=True)
class Twins:
    """The twins of a decision's arms: how their step
    times are measured, and what is fitted to them.
    """

    means: Means
    aside: str | None = None
    """Why there are none, or why they are not believed."""
    _fitted: Mapping[str, Twin] = field(default_factory=dict)

    def wanted(self) -> int:
        """Return how often the grid is still to be played on each arm."""
        if self._grid is None or self.aside is not None:
            return 0
        with reading(self.means.place.database) as connection:
            return max(
                0, self.most(self.means.study.budget_s) - repeats(connection, self.means.run)
            )

    def most(self, budget_s: float) -> int:
        """Return how often the grid is played on each arm in
        all: as often as a share of such a budget has time for.
        """
        affordable = (
            STEP_TIMES * budget_s / 60 / self.price(Stage(criterion="step times", amount=1)).minutes
        )
        return min(REPEATS, math.floor(affordable) or round(affordable))

    def price(self, stage: Stage) -> Price:
        """Return about how long it takes to play the grid so many times."""
        if self._grid is None:
            return Price(minutes=0.0)
        once_s = seconds(self._grid, decode_s=self.means.decode_s, prefill_s=self.means.prefill_s)
        return Price(
            minutes=stage.amount * len(self.means.arms) * once_s / 60 + self.means.starts_minutes
        )

    def ask(self, stage: Stage) -> float | None:
        """Play the grid beside the run."""
        assert self._grid is not None
        means, trace = self.means, step_times(self._grid, seed=self.means.study.seed)
        pairs = taken(means.place.database, means.run) + stage.amount
        load = Load(arrivals=ClosedLoop(sessions=sum(1 for _ in trace.sessions)))
        whole = plan(
            trace,
            means.arms,
            run=means.run,
            seed=means.study.seed,
            pairs=pairs,
            blocks=1,
            load=load,
        )
        made = beside(whole, means.place.database)
        match means.study.servers:
            case Virtual() as servers:
                return self._simulate(made, servers)
            case Live() as servers:
                self._play(made, servers, stage.amount)
                return None

    def said(self, _: Known | None) -> str:
        """Say how well the twins predict what was left out of their fits."""
        errors = (
            (name, each.fitted.itl_error, each.fitted.ttft_error)
            for name, each in self.fitted().items()
        )
        said = "; ".join(
            f"{name}: token latency {itl.median:.1%}, TTFT {ttft.median:.1%}"
            for name, itl, ttft in errors
        )
        return (
            f"twins miss what was left out of their fits by {said} (medians)"
            if said
            else "there is no twin"
        )

    def fitted(self) -> Mapping[str, Twin]:
        """Return the twin of each arm; nothing where they are set aside."""
        if self.aside is None and not self._fitted:
            try:
                self._fitted = twins(self.means.place.database, self.means.run)
            except ProfileError as error:
                self.set_aside(error.message)
        return {} if self.aside is not None else self._fitted

    def set_aside(self, why: str) -> None:
        """Do without twins from here on."""
        self.aside = why
        self.means.audience.notice(f"  no twin: {why}; capacity is searched instead")

    @cached_property
    def _grid(self) -> Grid | None:
        try:
            return grid(
                bounds(self.means.place.database, self.means.run, longest=self.means.longest)
            )
        except (ProfileError, PlanError) as error:
            self.set_aside(error.message)
            return None

    def _simulate(self, made: Plan, servers: Virtual) -> float:
        chosen = arms_of(servers.profile, servers.arms)
        arms = {arm.name: arm for arm in chosen} if servers.noise else quiet(chosen)
        rows = [
            row
            for row in Shell(made, arms, seed=made.seed, leg=LEG).play()
            if isinstance(row, BlockRow | CallRow)
        ]
        keep(rows, self.means.place.database, run_id=self.means.run, name=apart.STEP_TIMES)
        return max(row.ended_ns or 0 for row in rows if isinstance(row, BlockRow)) / 60e9

    def _play(self, made: Plan, servers: Live, plays: int) -> None:
        means, starting = self.means, launching(servers)
        with reached(endpoints_of(servers), noise=servers.noise, seed=made.seed) as found:
            playing = Playing(
                study=Replay(
                    traces=means.study.traces,
                    servers=servers,
                    pairs=plays,
                    seed=made.seed,
                    request=means.study.request,
                    timeouts=means.study.timeouts,
                    on_dead="stop",
                ),
                plan=made if starting is None else with_starts(made, 1),
                endpoints=found,
                database=means.place.database,
                trace_hash=apart.STEP_TIMES,
                into=means.run,
                launching=starting,
            )
            ended = foreground.played(playing, means.audience)
        means.concluded(ended)
        if ended.health.void is not None:
            self.set_aside(f"timings are invalid: {ended.health.void}")
