"""Ask how much load each arm carries: a few trials on both
sides of what the twins say, or a search where there are none.

A twin is free, so it plays the trace with the waits it has, draw after draw of its sessions, until
the load is known that it carries in the long run. Servers then play a few draws each, the same on
every arm, below and above what the twin carries *of that draw*: below it must hold, above it must
break. Which sessions were drawn moves a trial's limit by a fifth, and moves that of a twin which is
a few percent wrong alike: so a trial says far more of the long run than it would by itself. What is
measured decides. A twin is set aside where its arm does otherwise, and has cost those trials.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Final

import msgspec

from agentload.decision.forecast import Price
from agentload.decision.means import USUAL, Means
from agentload.decision.own_load import OwnLoad, lasting_s, rows
from agentload.decision.sequence import TRIED, Known, Stage, reasons
from agentload.decision.twin import Twins
from agentload.dispatch.arrivals import seeded
from agentload.evidence.capacity import OF_THE_TURNS, TWINS
from agentload.evidence.twin import Twin
from agentload.layout.windows import held_tokens
from agentload.model.plan import ClosedLoop
from agentload.run import foreground
from agentload.run.capacity import START, Chosen, Found, Loads, played, search, settled
from agentload.run.trial import Trial, trouble
from agentload.store.loader import keep
from agentload.study.kinds import Search
from agentload.study.parts import Live, Load
from agentload.study.quantity import LIMITS

BRACKET_SHARE: Final = 0.4
"""Of the budget."""
BRACKET_S: Final = (20.0, 90.0)
"""Length of a measured trial, at least and at most: with a
larger budget there are more of them, until capacity is settled.
"""
BELOW: Final = 0.9
ABOVE: Final = 1.2
"""At 1.1 most turns still hold, and the few dozen of
a trial do not tell that from a load that is carried.
"""
LONGER: Final = 8
MANY: Final = 16
"""How many times as long as a measured trial a twin's is, of up to so many sessions."""
FREE: Final = 40
"""Trials of a twin at most, and how well it then knows its limit."""
KNOWN: Final = 0.06
CANDIDATES: Final = 3
"""Draws of sessions looked at for each that is measured, at most."""
ORDINARY: Final = 1.5
"""A draw whose limit is further than this factor from the long run's says little of it."""
ALLOWED: Final = 0.03
"""By how much the share of turns within the limits may miss its level before a twin is wrong."""
TRIALS: Final = 8
"""Of a search, on each arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """What was measured on both sides of what the twins say."""

    said: tuple[Found, ...]
    trials: Mapping[str, tuple[Trial, ...]]
    share: float

    @property
    def failed(self) -> str | None:
        """Say which arm did not do what its twin says,
        all trials of a side together; None: all did.
        """
        for found in self.said:
            limit, trials = found.holds or 0.0, self.trials[found.arm]
            if void := next((each.void for each in trials if each.void is not None), None):
                return f"{found.arm}: {void}"
            low = [each for each in trials if each.load * (each.worth or 1.0) <= limit]
            high = [each for each in trials if each not in low]
            if (worst := self._trouble(low, share=self.share - ALLOWED)) is not None:
                return (
                    f"{found.arm} does not carry {BELOW * limit:.1f} agents, and its twin "
                    f"carries {limit:.1f} ({worst})"
                )
            if self._trouble(high, share=min(1.0, self.share + ALLOWED)) is None:
                return f"{found.arm} carries {ABOVE * limit:.1f} agents, and its twin {limit:.1f}"
        return None

    def _trouble(self, trials: Sequence[Trial], *, share: float) -> str | None:
        """Return what kept a load from holding: what its turns say,
        or else the trouble of its server in most of the trials.
        """
        if sum(each.within for each in trials) < share * sum(each.turns for each in trials):
            return "slo"
        own = [each.trouble for each in trials if each.trouble not in OF_THE_TURNS]
        return own[0] if 2 * len(own) > len(trials) else None


@dataclass(kw_only=True)
class Capacity:
    """The trials of a decision."""

    means: Means
    twins: Twins
    _unmet: bool = False
    _is_sized: bool = False
    _draws: list[tuple[int, tuple[float, ...]]] = field(default_factory=list)
    """Those worth measuring, with the load that each arm's twin carries of it."""

    def price(self, stage: Stage) -> Price:
        """Return what the trials take that were not made yet."""
        trials = TRIALS if self.twins.aside is not None else 2 * (stage.amount - self.means.draws)
        return Price(
            minutes=len(self.means.arms) * trials * self._trial_s / 60 + self.means.starts_minutes
        )

    def ask(self, stage: Stage) -> float | None:
        """Measure what the twins say, or search where they say nothing, or what is wrong."""
        planned = self.price(stage).minutes
        found = self.bracket(stage.amount)
        if found is not None and found.failed is None:
            self.say_sizes(found.said)
        spent = planned if found is not None else 0.0
        if found is None or found.failed is not None:
            searching = self.price(stage).minutes
            if found is not None and spent + searching > self.means.left_minutes:
                self.means.audience.notice(
                    f"  a search would take {searching:.0f} min, more than is left: the "
                    "trials that were made stand"
                )
            else:
                tried = self.tried(self.means.search(self._trial_s), most=TRIALS)
                foreground.require(tried)
                spent += sum(len(each.trials) for each in tried) * self._trial_s / 60
                self._unmet = all(each.holds is None and each.void is None for each in tried)
        return spent if self.means.is_virtual else None

    def said(self, known: Known | None) -> str:
        """Say how many agents each arm carries."""
        if self._unmet:
            return (
                f"no arm holds {LIMITS.write(self.means.study.slo or USUAL)} even with one "
                "session: relax --slo"
            )
        return (
            ""
            if known is None
            else reasons(known, lambda verdict: verdict.capacity or verdict.pays)
        )

    @property
    def _trial_s(self) -> float:
        trials = len(self.means.arms) * (2 * TRIED[0] if self.twins.aside is None else TRIALS)
        return max(
            BRACKET_S[0], min(BRACKET_S[1], BRACKET_SHARE * self.means.study.budget_s / trials)
        )

    def tried(
        self,
        study: Search,
        *,
        loads: Mapping[str, Loads] = MappingProxyType({}),
        most: int | None = None,
    ) -> tuple[Found, ...]:
        """Try these loads on each arm besides those before, or
        search where there are none, and keep what was found.
        """
        means = self.means
        return foreground.searched(
            study,
            means.beside,
            means.audience,
            loads=loads,
            most=most,
            before=means.trials if loads else {},
        )

    def bracket(self, draws: int) -> Bracket | None:
        """Measure trials below and above what the twins say, and keep
        them as a search; None without twins, or where they find no limit.
        """
        fitted = self.twins.fitted()
        said = self._said
        if not said:
            return None
        if any(each.high is None for each in said):
            self.twins.set_aside("its load within the service level has no end")
            return None
        if any(each.low is None for each in said):
            self.twins.set_aside("not even one session is within the service level on it")
            return None
        self.means.audience.notice("  " + "; ".join(map(self._told, said)))
        study = self.means.search(self._trial_s)
        asked = self._chosen(fitted, study, said, draws)
        if len(self._draws) < draws:
            self.twins.set_aside(
                f"by the twins themselves trials of {self._trial_s:.0f} s are too short to "
                "see that limit"
            )
            return None
        measured = self.tried(study, loads=asked)
        found = Bracket(
            said=said, trials={each.arm: each.trials for each in measured}, share=study.share
        )
        if found.failed is not None:
            self.twins.set_aside(found.failed)
        return found

    @cached_property
    def _said(self) -> tuple[Found, ...]:
        """Return the load that each twin carries in the long
        run, over draws of sessions that all of them play.
        """
        study = self.means.search(self._trial_s)
        tried: dict[str, tuple[Trial, ...]] = {}

        def attempt(twin: Twin, size: float, number: int) -> Trial:
            # Of many sessions a short draw is an ordinary one already.
            longer = self.means.search(self._trial_s * max(1.0, min(LONGER, LONGER * MANY / size)))
            return self._on(twin, longer, size, number)

        for name, twin in self.twins.fitted().items():
            tried[name] = search(
                name,
                partial(attempt, twin),
                start=START[study.find],
                whole=True,
                share=study.share,
                others=tried,
                most=FREE,
                width=KNOWN,
            )
        return settled(tried, share=study.share) if tried else ()

    def _chosen(
        self, fitted: Mapping[str, Twin], study: Search, said: Sequence[Found], draws: int
    ) -> dict[str, list[Chosen]]:
        """Return what is measured of each arm: draws that were not, the
        same on all, at loads around what the arm's twin carries of it.
        """
        for number in range(self._draws[-1][0] + 1 if self._draws else 0, CANDIDATES * draws):
            limits = [
                self._limit(fitted[each.arm], study, each.holds or 1.0, number) for each in said
            ]
            known = tuple(limit for limit in limits if limit is not None)
            if len(known) == len(said):
                self._draws.append((number, known))
            if len(self._draws) == draws:
                break
        chosen: dict[str, list[Chosen]] = {}
        for place, each in enumerate(said):
            error = math.log((each.high or 1.0) / (each.low or 1.0)) / 2
            chosen[each.arm] = [
                Chosen(
                    load=float(load),
                    seed=self._seed(number),
                    worth=(each.holds or 1.0) / limits[place],
                    error=error,
                )
                for number, limits in self._draws[self.means.draws :]
                for load in around(limits[place])
            ]
        return chosen

    def _limit(self, twin: Twin, study: Search, near: float, number: int) -> float | None:
        """Return the load that a twin carries of one draw; None
        where that is far from what it carries in the long run.
        """
        shares: dict[int, float] = {}

        def share(load: int) -> float:
            if load not in shares:
                trial = self._on(twin, study, load, number)
                shares[load] = trial.share if trial.trouble in (None, "slo") else 0.0
            return shares[load]

        low, high = max(1, math.floor(near / ORDINARY)), math.ceil(near * ORDINARY)
        if share(low) < study.share or share(high) >= study.share:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if share(middle) >= study.share else (low, middle)
        return low + (share(low) - study.share) / (share(low) - share(high))

    def say_sizes(self, said: Sequence[Found]) -> None:
        """Play long runs of the twins once, at the user's own load
        and at that of the pairs, each where a pool does not hold it.
        """
        if self._is_sized:
            return
        self._is_sized = True
        means, fitted = self.means, {name: each.arm for name, each in self.twins.fitted().items()}
        reference = means.study.reference or means.arms[0]
        carried = next((math.floor(each.holds or 0.0) for each in said if each.arm == reference), 0)
        peak, sessions = means.study.agents, means.load.sessions
        loads = []
        if peak is not None and carried:
            agents = math.ceil(peak / math.ceil(peak / carried))
            crowd = replace(means.stock.load, arrivals=ClosedLoop(sessions=agents))
            if means.overfills(held_tokens(means.stock.under(crowd), seed=means.study.seed)):
                study = means.search(lasting_s(means.stock, agents))
                loads.append(OwnLoad(agents=agents, is_own=True, study=study, stock=means.stock))
        if sessions is not None and means.overfills(means.held_tokens):
            stock = means.stock.under(self._with_waits_of_pairs.planned())
            study = msgspec.structs.replace(
                means.search(lasting_s(stock, sessions)), load=self._with_waits_of_pairs
            )
            loads.append(OwnLoad(agents=sessions, is_own=False, study=study, stock=stock))
        found = [each for load in loads for each in load.changes(fitted, reference=reference)]
        keep(rows(found, run_id=means.run), means.place.database, run_id=means.run, name=TWINS)

    @property
    def _with_waits_of_pairs(self) -> Load:
        load = self.means.load
        return Load(
            wait_cap_s=load.wait_cap_s,
            wait_scale=load.wait_scale,
            max_context_tokens=load.max_context_tokens,
        )

    def _told(self, found: Found) -> str:
        assert found.holds is not None
        line = (
            f"{found.arm}'s twin carries {found.holds:.1f} agents [{found.low:.1f}, "
            f"{found.high:.1f}]"
        )
        peak = self.means.study.agents
        return (
            line
            if peak is None
            else f"{line}, {math.ceil(peak / max(1, math.floor(found.holds)))} replicas for {peak}"
        )

    def _seed(self, number: int) -> int:
        return seeded(self.means.study.seed, "twin", number).getrandbits(32)

    def _on(self, twin: Twin, study: Search, size: float, number: int) -> Trial:
        """Play a draw on a twin, and judge it as the arm is
        judged: live, by the server's own trouble as well.
        """
        trial = played(study, self.means.stock, twin.arm, size, seed=self._seed(number))
        return (
            replace(trial, trouble=trouble(trial, study.share))
            if isinstance(study.servers, Live)
            else trial
        )


def around(limit: float) -> tuple[int, int]:
    """Return the loads on both sides of a limit; next to a small one they are its neighbours."""
    low = max(1, math.floor(BELOW * limit))
    return low, max(low + 1, math.ceil(ABOVE * limit))
