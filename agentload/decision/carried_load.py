"""Ask how much load each arm carries: a few trials around what the twins say, or a search.

A twin is free, so it plays the trace with its waits, draw after draw of its sessions, until the
load is known that it carries in the long run. Servers then play a few draws each, the same on every
arm, at and above what the twin carries *of that draw*: there most must hold, above it must break.
The draw of sessions moves a trial's limit by a fifth, and moves that of a twin which is a few
percent wrong alike: so a trial with a twin says far more of the long run than a trial by itself.
What is measured decides: the twin plays each trial again with shorter and longer steps, and the
step times that make it do what its arm did say what the arm carries. A twin is set aside where its
arm does otherwise; those trials are lost. Without twins the load is searched.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final

import msgspec

from advisor.loads import FACTORS, TwinReplay
from agentload.decision.budget import BudgetLimit
from agentload.decision.forecast import LookPrice
from agentload.decision.known import Known
from agentload.decision.long_run import long_run
from agentload.decision.look import DRAWS, Look
from agentload.decision.means import USUAL, Means
from agentload.decision.own_load import OwnLoad, lasting_s, rows
from agentload.decision.sequence import reasons
from agentload.decision.twin import Twins
from agentload.dispatch.arrivals import rng_of
from agentload.emulator.steptime import slower_arm
from agentload.evidence.capacity import OF_THE_TURNS, TWINS
from agentload.layout.windows import held_tokens
from agentload.model.plan import ClosedLoop
from agentload.model.profile import ArmProfile, StepTime
from agentload.model.record import Record
from agentload.run import door
from agentload.run.capacity import START, ArmLoad, Chosen, arm_loads, search, simulate_trial
from agentload.run.find import SearchTrials, require_found
from agentload.run.trial import Trial, trouble
from agentload.store.loader import keep
from agentload.study.kinds import Search
from agentload.study.parts import Live, Load
from agentload.study.quantity import LIMITS

BRACKET_SHARE: Final = 0.4
"""Share of the budget that the measured trials take."""
BRACKET_S: Final = (20.0, 90.0)
"""Seconds of a measured trial, at least and at most.

A larger budget pays for more trials, until capacity is settled.
"""
MISSES: Final = 3.0
"""How many times as many turns miss as may, on a twin at the larger load of a draw, at least.

The smaller load is the limit, for below it nearly all turns hold, which says little of where they
cease to. Right beyond it a few dozen turns distinguish little, and far beyond it a twin whose share
falls too fast or too slowly asks for other step times.
"""
LONGER: Final = 24
MANY: Final = 16
"""Times that a trial of a twin is longer than a measured one, up to `MANY` sessions.

Long trials scatter less: eight times took twice as much computing for what these tell.
"""
CANDIDATES: Final = 3
"""Draws of sessions that are looked at, at most, for each one that is measured."""
ORDINARY: Final = 1.5
"""Factor to the long run's limit beyond which a draw says little of the long run."""
STRETCHED: Final = 1.1
"""Factor on the step times of a twin whose limits say how those times move them."""
FEWER: Final = 0.15
MORE: Final = 0.03
"""Share of the turns within the limits that a twin may be off by: at its limit, and beyond.

At ordinary slopes an arm that carries a tenth less than its twin holds a tenth fewer turns there.
"""
TRIALS: Final = 8
"""Trials of a search on each arm."""


class Bracket(Record):
    """Hold what was measured at and above what the twins say."""

    said: tuple[ArmLoad, ...]
    trials: Mapping[str, tuple[Trial, ...]]
    share: float

    @property
    def failed(self) -> str | None:
        """Which arm did not do what its twin says, over all trials of a side; None: all did."""
        for found in self.said:
            limit, trials = found.holds or 0.0, self.trials[found.arm]
            if void := next((each.void for each in trials if each.void is not None), None):
                return f"{found.arm}: {void}"
            # A load may be a limit to the last digit.
            surely = limit * (1 + 1e-9)
            low = [each for each in trials if each.load * (each.worth or 1.0) <= surely]
            high = [each for each in trials if each not in low]
            if (worst := self._trouble(low, share=self.share - FEWER)) is not None:
                return f"{found.arm} does not carry the {limit:.1f} agents of its twin ({worst})"
            if self._trouble(high, share=min(1.0, self.share + MORE)) is None:
                carried = min((each.load * (each.worth or 1.0) for each in high), default=limit)
                return f"{found.arm} carries {carried:.1f} agents, and its twin {limit:.1f}"
        return None

    def _trouble(self, trials: Sequence[Trial], *, share: float) -> str | None:
        """Return why a load did not hold, by its turns or else by most trials; None: it held."""
        if sum(each.within for each in trials) < share * sum(each.turns for each in trials):
            return "slo"
        own = [each.trouble for each in trials if each.trouble not in OF_THE_TURNS]
        return own[0] if 2 * len(own) > len(trials) else None


@dataclass(kw_only=True)
class LoadTrials:
    """Run the trials of a decision."""

    means: Means
    twins: Twins
    _unmet: bool = False
    _is_sized: bool = False
    _draws: list[tuple[int, tuple[float, ...]]] = field(default_factory=list)
    """Draws worth measuring: number, and the load that each arm's twin carries of the draw."""
    _played: dict[tuple[str, StepTime | None, float, float, int], Trial] = field(
        default_factory=dict
    )
    """Trials on twins, by arm, step times, duration, load and draw: each is played once."""

    def price(self, look: Look, known: Known) -> LookPrice:
        """Return what the trials take that were not made yet."""
        trials = TRIALS if self.twins.aside is not None else 2 * (look.amount - known.draws)
        minutes = len(self.means.arms) * trials * self._trial_s / 60
        return LookPrice(minutes=minutes + self.means.starts_minutes)

    def ask(self, look: Look, known: Known, limit: BudgetLimit) -> float | None:
        """Measure around what the twins say; search where they say nothing or are wrong."""
        means, spent = self.means, 0.0
        planned = self.price(look, known).minutes
        found = self.bracket(look.amount, known, limit)
        if found is not None:
            spent = planned
            if found.failed is None:
                self.say_sizes(found.said)
        if found is None or found.failed is not None:
            searching = self.price(look, known).minutes
            if found is not None and spent + searching > means.left_minutes(known.ledger):
                means.audience.notice(
                    f"  a search would take {searching:.0f} min, more than is left: the "
                    "trials that were made stand"
                )
            else:
                spent += self._search(limit)
        return spent if means.is_virtual else None

    def _search(self, limit: BudgetLimit) -> float:
        """Search the load that each arm carries; return the minutes that the trials took."""
        tried = self.tried(self.means.search(self._trial_s), SearchTrials(most=TRIALS), limit)
        require_found(tried)
        self._unmet = all(each.holds is None and each.void is None for each in tried)
        return sum(len(each.trials) for each in tried) * self._trial_s / 60

    def said(self, known: Known) -> str:
        """Say how many agents each arm carries."""
        if self._unmet:
            return (
                f"no arm holds {LIMITS.write(self.means.study.slo or USUAL)} even with one "
                "session: relax --slo"
            )
        return reasons(known, lambda verdict: verdict.capacity or verdict.pays)

    @property
    def _trial_s(self) -> float:
        trials = len(self.means.arms) * (2 * DRAWS[0] if self.twins.aside is None else TRIALS)
        return max(
            BRACKET_S[0], min(BRACKET_S[1], BRACKET_SHARE * self.means.study.budget_s / trials)
        )

    def tried(self, study: Search, trials: SearchTrials, limit: BudgetLimit) -> tuple[ArmLoad, ...]:
        """Make these trials on each arm, and keep what was found."""
        return door.carry_out(
            study, self.means.beside, limit.limited_audience(), adapt=lambda _: trials
        )

    def bracket(self, draws: int, known: Known, limit: BudgetLimit) -> Bracket | None:
        """Measure trials at and above what the twins say, and keep them as a search.

        None without twins, or where they find no limit.
        """
        said = self._said
        if not said:
            return None
        if any(each.high is None for each in said):
            self.twins.set_aside("its load within the service level has no end")
            return None
        if any(each.low is None for each in said):
            self.twins.set_aside("not even one session is within the service level on it")
            return None
        carried = "; ".join(
            f"{each.arm}'s twin carries {each.holds:.1f} agents [{each.low:.1f}, {each.high:.1f}]"
            for each in said
        )
        self.means.audience.notice(f"  {carried}")
        study = self.means.search(self._trial_s)
        self._draw(study, said, draws)
        if len(self._draws) < draws:
            self.twins.set_aside(
                f"by the twins themselves trials of {self._trial_s:.0f} s are too short to "
                "see that limit"
            )
            return None
        loads = self._chosen(study, said, first=known.draws)
        measured = self.tried(study, SearchTrials(loads=loads, before=known.trials), limit)
        trials = {each.arm: each.trials for each in measured}
        found = Bracket(said=said, trials=trials, share=study.share)
        if found.failed is not None:
            self.twins.set_aside(found.failed)
        return found

    @property
    def _twins(self) -> dict[str, ArmProfile]:
        """Engine of each arm's twin."""
        return {name: each.arm for name, each in self.twins.fitted().items()}

    @cached_property
    def _said(self) -> tuple[ArmLoad, ...]:
        """Load that each twin carries in the long run, over draws that all of them play."""
        study = self.means.search(self._trial_s)
        tried: dict[str, tuple[Trial, ...]] = {}
        for name, twin in self._twins.items():
            tried[name] = search(
                name,
                partial(self._play_long, twin),
                start=START[study.find],
                whole=True,
                share=study.share,
                others=tried,
            )
        roughly = arm_loads(tried, share=study.share) if tried else ()
        return tuple(self._in_long_run(each) for each in roughly)

    def _play_long(self, twin: ArmProfile, size: float, number: int) -> Trial:
        """Play a long draw; with many sessions, a short one is an ordinary one already."""
        longer = max(1.0, min(LONGER, LONGER * MANY / size))
        return self._on(twin, self.means.search(self._trial_s * longer), size, number)

    def _in_long_run(self, roughly: ArmLoad) -> ArmLoad:
        """Return the load that a twin carries in the long run, which is known *roughly*."""
        twin = self._twins[roughly.arm]
        if roughly.holds is None or roughly.high is None:
            return roughly

        def play(load: int, number: int) -> tuple[int, int]:
            trial = self._play_long(twin, load, number)
            return max(1, trial.turns), trial.within if trial.trouble in OF_THE_TURNS else 0

        found = long_run(play, roughly.holds, share=self.means.search(self._trial_s).share)
        if found is None:
            return roughly
        ends = math.exp(found.error)
        return replace(roughly, holds=found.load, low=found.load / ends, high=found.load * ends)

    def _draw(self, study: Search, said: Sequence[ArmLoad], draws: int) -> None:
        """Draw sessions until enough draws are worth measuring, or too many were looked at."""
        twins = self._twins
        for number in range(self._draws[-1][0] + 1 if self._draws else 0, CANDIDATES * draws):
            limits = [
                self._limit(twins[each.arm], study, each.holds or 1.0, number) for each in said
            ]
            known = tuple(limit for limit in limits if limit is not None)
            if len(known) == len(said):
                self._draws.append((number, known))
            if len(self._draws) == draws:
                return

    def _chosen(
        self, study: Search, said: Sequence[ArmLoad], *, first: int
    ) -> dict[str, list[Chosen]]:
        """Return the loads to measure on each arm, for the draws from the *first* on."""
        chosen: dict[str, list[Chosen]] = defaultdict(list)
        for draw, (number, limits) in enumerate(self._draws[first:], first):
            for found, limit in zip(said, limits, strict=True):
                twin = self._twins[found.arm]
                # How step times move a limit is seen in the first draws.
                is_early = draw < DRAWS[0]
                stretch = self._stretch(twin, study, limit, number) if is_early else None
                share = partial(self._share, twin, study, number=number)
                for load in around(limit, share, wanted=study.share):
                    expected = self._expected(twin, study, load, number)
                    chosen[found.arm].append(
                        Chosen(
                            load=float(load),
                            seed=self._seed(number),
                            worth=(found.holds or 1.0) / limit,
                            error=math.log((found.high or 1.0) / (found.low or 1.0)) / 2,
                            replay=TwinReplay(
                                expected=expected, carried=found.holds or 1.0, stretch=stretch
                            ),
                        )
                    )
        return chosen

    def _expected(
        self, twin: ArmProfile, study: Search, load: int, number: int
    ) -> tuple[float, ...]:
        """Return the shares of turns within the level on a twin, at its step times by `FACTORS`."""
        slower = (slower_arm(twin, factor) for factor in FACTORS)
        return tuple(self._share(each, study, load, number) for each in slower)

    def _stretch(self, twin: ArmProfile, study: Search, limit: float, number: int) -> float | None:
        """Return by how much the log of the *limit* of a draw changes with that of step times."""
        found = self._limit(slower_arm(twin, STRETCHED), study, limit, number)
        return None if found is None else math.log(found / limit) / math.log(STRETCHED)

    def _share(self, twin: ArmProfile, study: Search, load: int, number: int) -> float:
        """Return the share of turns within the level on a twin; none are where it is in trouble."""
        trial = self._on(twin, study, load, number)
        return trial.share if trial.trouble in OF_THE_TURNS else 0.0

    def _limit(self, twin: ArmProfile, study: Search, near: float, number: int) -> float | None:
        """Return the load that a twin carries of one draw; None if it is far from *near*."""
        low, high = max(1, math.floor(near / ORDINARY)), math.ceil(near * ORDINARY)
        share = partial(self._share, twin, study, number=number)
        if share(low) < study.share or share(high) >= study.share:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if share(middle) >= study.share:
                low = middle
            else:
                high = middle
        return low + (share(low) - study.share) / (share(low) - share(high))

    def say_sizes(self, said: Sequence[ArmLoad]) -> None:
        """Play long runs of the twins once, at the user's own load and at that of the pairs.

        Each is played only where a pool does not hold the load.
        """
        if self._is_sized:
            return
        self._is_sized = True
        means = self.means
        loads = [*self._load_at_peak(said), *self._load_of_pairs()]
        found = [
            each for load in loads for each in load.changes(self._twins, reference=means.reference)
        ]
        keep(rows(found, run_id=means.run), means.place.database, run_id=means.run, name=TWINS)

    def _load_at_peak(self, said: Sequence[ArmLoad]) -> Iterator[OwnLoad]:
        """Yield the agents per reference replica at the user's peak, if they overfill a pool."""
        means, peak = self.means, self.means.study.agents
        holds = [each.holds or 0.0 for each in said if each.arm == means.reference]
        carried = math.floor(holds[0]) if holds else 0
        if peak is None or not carried:
            return
        agents = math.ceil(peak / math.ceil(peak / carried))
        crowd = replace(means.stock.load, arrivals=ClosedLoop(sessions=agents))
        if means.overfills(held_tokens(means.stock.under(crowd), seed=means.study.seed)):
            study = means.search(lasting_s(means.stock, agents))
            yield OwnLoad(agents=agents, is_own=True, study=study, stock=means.stock)

    def _load_of_pairs(self) -> Iterator[OwnLoad]:
        """Yield the sessions of block pairs, with their waits, if they overfill a pool."""
        means, played = self.means, self.means.load
        if played.sessions is None or not means.overfills(means.held_tokens):
            return
        waits = Load(
            wait_cap_s=played.wait_cap_s,
            wait_scale=played.wait_scale,
            max_context_tokens=played.max_context_tokens,
        )
        stock = means.stock.under(waits.planned())
        whole = means.search(lasting_s(stock, played.sessions))
        study = msgspec.structs.replace(whole, load=waits)
        yield OwnLoad(agents=played.sessions, is_own=False, study=study, stock=stock)

    def _seed(self, number: int) -> int:
        return rng_of(self.means.study.seed, "twin", number).getrandbits(32)

    def _on(self, twin: ArmProfile, study: Search, size: float, number: int) -> Trial:
        """Play a draw on a twin, and judge the twin as the arm is judged.

        Live, that includes the server's own trouble.
        """
        key = twin.name, twin.step, study.trial_s, size, number
        if key not in self._played:
            trial = simulate_trial(study, self.means.stock, twin, size, seed=self._seed(number))
            if isinstance(study.servers, Live):
                trial = replace(trial, trouble=trouble(trial, study.share))
            self._played[key] = trial
        return self._played[key]


def around(limit: float, share: Callable[[int], float], *, wanted: float) -> tuple[int, int]:
    """Return a limit and a load beyond it at which a twin's *share* of turns tells most.

    Loads are in whole agents; *wanted* is the share at the limit.
    """
    low = max(1, math.floor(limit))
    most = max(low + 1, math.ceil(ORDINARY * limit))
    few = 1 - MISSES * (1 - wanted)
    return low, next((load for load in range(low + 1, most) if share(load) <= few), most)
