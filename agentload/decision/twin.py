"""Say where capacity is worth measuring: the user's sessions on twins of the arms, then a trial on each side of what they say.

A twin is free, so it plays the trace with the waits it has, draw after draw of its sessions, the same draws on every arm. Servers then play
a few trials each, of draws that the twins say are ordinary ones: below the limit, which must hold, and above it, which must break. What is
measured decides; a twin that is wrong has cost those trials, and is set aside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from agentload.decision.sequence import REPEATS
from agentload.dispatch.arrivals import seeded
from agentload.errors import InterruptError, PlanError, ProfileError
from agentload.evidence.capacity import OF_THE_TURNS
from agentload.evidence.twin import Twin, bounds, repeats, twins
from agentload.layout.cost import ASSUMED_PREFILL_TOKENS_PER_S, ASSUMED_TOKEN_S
from agentload.layout.plan import plan, with_starts
from agentload.layout.step_times import Grid, grid, seconds, step_times
from agentload.model.apart import STEP_TIMES
from agentload.model.plan import ClosedLoop, Load, Plan
from agentload.model.rows import BlockRow, CallRow
from agentload.model.trace import Trace
from agentload.model.walk import contexts
from agentload.run import foreground
from agentload.run.capacity import START, Found, keep, played, search, settled
from agentload.run.files import read_traces
from agentload.run.foreground import Audience
from agentload.run.past import beside, taken
from agentload.run.play import Playing
from agentload.run.prepared import Place, endpoints_of, launching
from agentload.run.servers import arms_of, reached
from agentload.run.simulate import quiet
from agentload.run.trial import Trial, trouble
from agentload.store.database import reading
from agentload.study.kinds import Decide, Replay, Search
from agentload.study.parts import Live, Slo, Virtual
from agentload.study.parts import Load as Played
from agentload.virtual.shell import Shell

SHARE: Final = 0.15
"""Of the budget that step times may take."""
BRACKET_SHARE: Final = 0.4
BRACKET_S: Final = (20.0, 300.0)
"""Length of a measured trial, at least and at most."""
BELOW: Final = 0.9
ABOVE: Final = 1.1
LONGER: Final = 8
"""How many times as long as a measured trial a twin's is."""
DRAWS: Final = 8
"""Of sessions, from which those are taken that are played on servers."""
ALLOWED: Final = 0.03
"""By how much the share of turns within the limits may miss its level before a twin is wrong: a few draws differ by as much."""
MEASURED: Final = 2
"""Draws that are played on servers at each load: of a single trial nobody knows how far draws lie apart."""
LEG: Final = 2
"""Of what is simulated beside a run, whose own time begins at 0 as well; it is no part that the run's evidence counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """What was measured on both sides of what the twins say."""

    said: tuple[Found, ...]
    trials: Mapping[str, tuple[Trial, ...]]
    share: float

    @property
    def failed(self) -> str | None:
        """Say which arm did not do what its twin says, all trials of a load together; None: all did."""
        for arm, trials in self.trials.items():
            if void := next((each.void for each in trials if each.void is not None), None):
                return f"{arm}: {void}"
            low, high = (tuple(each for each in trials if each.load == load) for load in sorted({each.load for each in trials}))
            if (worst := self._trouble(low, share=self.share - ALLOWED)) is not None:
                return f"{arm} does not carry {low[0].load:.0f} agents as its twin does ({worst})"
            if self._trouble(high, share=min(1.0, self.share + ALLOWED)) is None:
                return f"{arm} carries {high[0].load:.0f} agents, and its twin does not"
        return None

    def _trouble(self, trials: Sequence[Trial], *, share: float) -> str | None:
        """Return what kept a load from holding: what its turns say, or else the trouble of its server in most of the trials."""
        if sum(each.within for each in trials) < share * sum(each.turns for each in trials):
            return "slo"
        own = [each.trouble for each in trials if each.trouble not in OF_THE_TURNS]
        return own[0] if 2 * len(own) > len(trials) else None


@dataclass(slots=True, kw_only=True)
class Twinning:
    """The twins of a decision's arms: how their step times are measured, what they say, and what is measured of that."""

    study: Decide
    arms: tuple[str, ...]
    place: Place
    audience: Audience
    run: str
    _refused: bool = field(init=False, default=False)
    _grid: Grid | None = field(init=False, default=None)
    _twins: Mapping[str, Twin] = field(init=False, default_factory=dict)

    def left(self) -> int:
        """Return how often the grid is still to be played on each arm: in all as often as the budget has time for; 0 without twins."""
        if self._laid() is None:
            return 0
        wanted = max(1, min(REPEATS, math.floor(SHARE * self.study.budget_s / 60 / self.minutes(1))))
        with reading(self.place.database) as connection:
            return max(0, wanted - repeats(connection, self.run))

    def minutes(self, plays: int) -> float:
        """Return about how long it takes to play the grid so many times."""
        found = self._laid()
        assert found is not None
        once_s = seconds(found, token_s=ASSUMED_TOKEN_S, prefill_tokens_per_s=ASSUMED_PREFILL_TOKENS_PER_S)
        return plays * len(self.arms) * once_s / 60

    def measure(self, plays: int) -> float | None:
        """Play the grid beside the run; return the minutes of virtual time, None where the clock tells."""
        found = self._laid()
        assert found is not None
        trace = step_times(found, seed=self.study.seed)
        pairs = taken(self.place.database, self.run) + plays
        load = Load(arrivals=ClosedLoop(sessions=sum(1 for _ in trace.sessions)))
        whole = plan(trace, self.arms, run=self.run, seed=self.study.seed, pairs=pairs, whole=True, load=load)
        made = beside(whole, self.place.database)
        match self.study.servers:
            case Virtual() as servers:
                return self._simulate(made, servers)
            case Live() as servers:
                self._play(made, servers, plays)
                return None

    def described(self) -> str:
        """Say how well the twins predict what was left out of their fits."""
        errors = ((name, each.fitted.itl_error, each.fitted.ttft_error) for name, each in self._fitted().items())
        said = "; ".join(f"{name}: token latency {itl.median:.1%}, TTFT {ttft.median:.1%}" for name, itl, ttft in errors)
        return f"twins miss what was left out by {said} (medians)" if said else "no twin"

    @property
    def trial_s(self) -> float:
        """Return the length of a measured trial."""
        least, most = BRACKET_S
        return max(least, min(most, BRACKET_SHARE * self.study.budget_s / self._trials))

    @property
    def bracket_minutes(self) -> float:
        """Return how long the measured trials take; 0 without twins."""
        return 0.0 if self._refused else self._trials * self.trial_s / 60

    @property
    def _trials(self) -> int:
        return 2 * MEASURED * len(self.arms)

    def bracket(self) -> Bracket | None:
        """Measure trials below and above what the twins say, and keep them as a search; None without twins, or where they find no limit."""
        fitted = self._fitted()
        said = self._said(fitted)
        if not said:
            return None
        if any(each.holds is None or each.high is None for each in said):
            self._refuse("its load within the service level has no end")
            return None
        loads = {each.arm: around(each) for each in said}
        self.audience.notice("  " + "; ".join(map(self._told, said)))
        study, trace = self._search(self.trial_s), self._trace()
        margins = {self._seed(number): self._margin(fitted, study, trace, loads, number) for number in range(DRAWS)}
        seeds = sorted(margins, key=margins.__getitem__)[-MEASURED:]
        if margins[seeds[0]] < 0:
            self._refuse(f"by the twins themselves trials of {self.trial_s:.0f} s are too short to see that limit")
            return None
        asked = {arm: tuple((float(load), seed) for load in both for seed in seeds) for arm, both in loads.items()}
        measured = foreground.searched(study, Place(database=self.place.database, into=self.run), self.audience, loads=asked)
        found = Bracket(said=said, trials={each.arm: each.trials for each in measured}, share=study.share)
        if found.failed is not None:
            self._refuse(found.failed)
        return found

    def _fitted(self) -> Mapping[str, Twin]:
        if not self._refused and not self._twins:
            try:
                self._twins = twins(self.place.database, self.run)
            except ProfileError as error:
                self._refuse(error.message)
        return {} if self._refused else self._twins

    def _said(self, fitted: Mapping[str, Twin]) -> tuple[Found, ...]:
        """Return the load that each twin carries, over draws of sessions that all of them play."""
        study, trace = self._search(LONGER * self.trial_s), self._trace()
        tried: dict[str, tuple[Trial, ...]] = {}
        for name, twin in fitted.items():
            attempt = partial(self._on, twin, study, trace)
            tried[name] = search(name, attempt, start=START[study.find], whole=True, share=study.share, others=tried)
        return settled(tried, share=study.share) if tried else ()

    def _told(self, found: Found) -> str:
        assert found.holds is not None
        assert found.low is not None
        assert found.high is not None
        line = f"{found.arm}'s twin carries {found.holds:.1f} agents [{found.low:.1f}, {found.high:.1f}]"
        peak = self.study.agents
        return line if peak is None else f"{line}, {math.ceil(peak / max(1, math.floor(found.holds)))} replicas for {peak}"

    def _refuse(self, why: str) -> None:
        self._refused = True
        self.audience.notice(f"  no twin: {why}; capacity is searched instead")

    def _laid(self) -> Grid | None:
        if self._grid is None and not self._refused:
            trace = self._trace()
            calls = (each for session in trace.sessions for each in zip(contexts(trace.header, session), session.turns, strict=True))
            longest = max(sum(segment.tokens for segment in context) + turn.output for context, turn in calls)
            try:
                self._grid = grid(bounds(self.place.database, self.run, longest=longest))
            except (ProfileError, PlanError) as error:
                self._refuse(error.message)
        return self._grid

    def _simulate(self, made: Plan, servers: Virtual) -> float:
        chosen = arms_of(servers.profile, servers.arms)
        arms = {arm.name: arm for arm in chosen} if servers.noise else quiet(chosen)
        rows = [row for row in Shell(made, arms, seed=made.seed, leg=LEG).play() if isinstance(row, BlockRow | CallRow)]
        keep(rows, self.place.database, run_id=self.run, name=STEP_TIMES)
        return max(row.ended_ns or 0 for row in rows if isinstance(row, BlockRow)) / 60e9

    def _play(self, made: Plan, servers: Live, plays: int) -> None:
        starting = launching(servers)
        with reached(endpoints_of(servers), noise=servers.noise, seed=made.seed) as found:
            playing = Playing(
                study=Replay(traces=self.study.traces, servers=servers, pairs=plays, seed=made.seed),
                plan=made if starting is None else with_starts(made, 1),
                endpoints=found,
                database=self.place.database,
                trace_hash=STEP_TIMES,
                into=self.run,
                launching=starting,
            )
            ended = foreground.played(playing, self.audience)
        foreground.concluded(ended.run_id, self.place, self.audience, load_error=ended.load_error)
        if ended.was_stopped:
            raise InterruptError("stopped")
        if ended.health.void is not None:
            self._refuse(f"timings are invalid: {ended.health.void}")

    def _trace(self) -> Trace:
        return read_traces(self.study.traces, max_context_tokens=self.study.load.max_context_tokens)[0]

    def _search(self, trial_s: float) -> Search:
        said = self.study
        load = said.load
        waits = Played(wait_cap_s=load.wait_cap_s, wait_scale=load.wait_scale, max_context_tokens=load.max_context_tokens)
        slo = said.slo or Slo(ttft_ms=2000.0, tpot_ms=100.0)
        return Search(traces=said.traces, servers=said.servers, load=waits, trial_s=trial_s, slo=slo, seed=said.seed)

    def _seed(self, number: int) -> int:
        return seeded(self.study.seed, "twin", number).getrandbits(32)

    def _on(self, twin: Twin, study: Search, trace: Trace, size: float, number: int) -> Trial:
        """Play a draw on a twin, and judge it as the arm is judged: live, by the server's own trouble as well."""
        trial = played(study, trace, twin.arm, size, seed=self._seed(number))
        return replace(trial, trouble=trouble(trial, study.share)) if isinstance(study.servers, Live) else trial

    def _margin(self, fitted: Mapping[str, Twin], study: Search, trace: Trace, loads: Mapping[str, tuple[int, int]], number: int) -> float:
        """Return by how much a draw does what it should on the twin that is nearest to not doing it."""
        margins = []
        for arm, (low, high) in loads.items():
            below, above = (self._on(fitted[arm], study, trace, load, number) for load in (low, high))
            margins += [below.share - study.share if below.trouble in (None, "slo") else -1.0]
            margins += [study.share - above.share if above.trouble in (None, "slo") else 1.0]
        return min(margins)


def around(found: Found) -> tuple[int, int]:
    """Return the loads on both sides of a limit; next to a small one they are its neighbours."""
    assert found.holds is not None
    low = max(1, math.floor(BELOW * found.holds))
    return low, max(low + 1, math.ceil(ABOVE * found.holds))
