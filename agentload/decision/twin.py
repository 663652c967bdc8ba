"""Ask for the step times of each arm, and fit twins to them.

Twins are engines in virtual time that play the user's sessions at no cost.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from agentload.decision.budget import BudgetLimit, require_whole
from agentload.decision.forecast import STEP_TIMES_SHARE, LookPrice
from agentload.decision.known import Known
from agentload.decision.look import REPEATS, Look
from agentload.decision.means import Means
from agentload.errors import PlanError, ProfileError
from agentload.evidence.twin import Twin, bounds, twins
from agentload.layout.plan import Scheme, plan, with_starts
from agentload.layout.step_times import StepGrid, grid, seconds, step_times
from agentload.model import apart
from agentload.model.plan import ClosedLoop, Load, Plan
from agentload.model.rows import BlockRow, CallRow
from agentload.run import door
from agentload.run.past import added_pairs, added_plan
from agentload.run.simulate import without_noise
from agentload.store.loader import keep
from agentload.study.kinds import Replay
from agentload.study.parts import Live, Virtual
from agentload.virtual.shell import Shell

LEG: Final = 2
"""Number of the part that simulated rows are added to a run as.

Their time begins at 0, as that of the run's own part does. No row describes this part, so that
evidence leaves its blocks out.
"""


@dataclass(kw_only=True)
class Twins:
    """Measure the step times of a decision's arms, and fit twins to them: a `QuestionKind`."""

    means: Means
    aside: str | None = None
    """Why there are no twins, or why they are not believed; None: they are used."""
    _fitted: Mapping[str, Twin] = field(default_factory=dict)

    def wanted(self, played: int) -> int:
        """Return how often the grid is still to be played on each arm after *played* times."""
        if self._grid is None or self.aside is not None:
            return 0
        return max(0, self.most_plays(self.means.study.budget_s) - played)

    def most_plays(self, budget_s: float) -> int:
        """Return how often the grid, where there is one, is played on each arm in all.

        A share of the budget pays for whole plays; for more than half of a play there is one.
        """
        affordable = STEP_TIMES_SHARE * budget_s / 60 / self._minutes(1)
        return min(REPEATS, math.floor(affordable) or round(affordable))

    def price(self, look: Look, _: Known) -> LookPrice:
        """Return about how long the plays of the grid take."""
        return LookPrice(minutes=self._minutes(look.amount))

    def _minutes(self, plays: int) -> float:
        means = self.means
        if self._grid is None:
            return 0.0
        once_s = seconds(self._grid, decode_s=means.rates.decode_s, prefill_s=means.rates.prefill_s)
        return plays * len(means.arms) * once_s / 60 + means.starts_minutes

    def ask(self, look: Look, _: Known, limit: BudgetLimit) -> float | None:
        """Play the grid, and add it to the run; return its minutes where time was virtual."""
        assert self._grid is not None
        means = self.means
        trace = step_times(self._grid, seed=self.means.study.seed)
        load = Load(arrivals=ClosedLoop(sessions=sum(1 for _ in trace.sessions)))
        whole = plan(
            trace,
            means.arms,
            run=means.run,
            seed=means.study.seed,
            scheme=Scheme(
                pairs=added_pairs(means.place.database, means.run) + look.amount, blocks=1
            ),
            load=load,
        )
        # `whole` starts from the first added pair; what was played before is left out.
        made = added_plan(whole, means.place.database)
        match means.study.servers:
            case Virtual() as servers:
                return self._simulate(made, servers)
            case Live() as servers:
                started = with_starts(made, restarts=1) if servers.launch else made
                self._play(started, servers, look.amount, limit)
                return None

    def said(self, _: Known) -> str:
        """Say how well the twins predict what was left out of their fits."""
        said = []
        for name, each in self.fitted().items():
            itl, ttft = each.fitted.itl_error.median, each.fitted.ttft_error.median
            said.append(f"{name}: TPOT {itl:.1%}, TTFT {ttft:.1%}")
        if not said:
            return "there is no twin"
        return f"simulated twins: median prediction error of held-out calls: {'; '.join(said)}"

    def fitted(self) -> Mapping[str, Twin]:
        """Return the twin of each arm, fitted once; none where they are set aside, as by a fit."""
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
    def _grid(self) -> StepGrid | None:
        """The calls to play; None where there can be none, which sets the twins aside."""
        try:
            return grid(
                bounds(self.means.place.database, self.means.run, longest=self.means.longest)
            )
        except (ProfileError, PlanError) as error:
            self.set_aside(error.message)
            return None

    def _simulate(self, made: Plan, servers: Virtual) -> float:
        chosen = self.means.servers.profiles
        arms = {arm.name: arm for arm in chosen} if servers.noise else without_noise(chosen)
        rows = [
            row
            for row in Shell(made, arms, seed=made.seed, leg=LEG).play()
            if isinstance(row, BlockRow | CallRow)
        ]
        keep(rows, self.means.place.database, run_id=self.means.run, name=apart.STEP_TIMES)
        return max(row.ended_ns or 0 for row in rows if isinstance(row, BlockRow)) / 60e9

    def _play(self, made: Plan, servers: Live, plays: int, limit: BudgetLimit) -> None:
        study = Replay(
            traces=self.means.study.traces,
            servers=servers,
            pairs=plays,
            seed=made.seed,
            request=self.means.study.request,
            timeouts=self.means.call_timeouts,
            on_dead="stop",
        )
        means = self.means
        ended = door.carry_out_plan(
            made, study, means.place.database, limit.limited_audience(), trace_hash=apart.STEP_TIMES
        )
        require_whole(means, ended, limit)
        if ended.health.void is not None:
            self.set_aside(f"timings are invalid: {ended.health.void}")
