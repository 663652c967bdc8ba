"""What every question of a decision is asked with: the trace,
the arms, the load, and the run that keeps the answers.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import msgspec

from advisor.evidence import POOL_HOLDS
from advisor.legs import questions
from advisor.policy import Policy
from advisor.policy import Slo as Level
from agentload.decision.apart import narrowest
from agentload.decision.ledger import Ledger
from agentload.decision.lighter import EasedLoad, load_after
from agentload.decision.look import Look
from agentload.decision.pace import Rates
from agentload.decision.pair_load import SESSIONS, Surroundings, pair_load, windows_of
from agentload.decision.user_trace import UserTrace
from agentload.endpoints.endpoint import replica_pairs
from agentload.errors import PlanError
from agentload.evidence.starts import of_profile
from agentload.layout.timeline import Pace
from agentload.layout.windows import Steady, held_tokens
from agentload.model.profile import Price as GpuPrice
from agentload.model.shape import TraceShape
from agentload.model.trace import Trace
from agentload.run.arms import Arms, read_arms
from agentload.run.audience import Audience
from agentload.run.past import began
from agentload.run.place import Place
from agentload.run.servers import Sizes, profiled_sizes, window
from agentload.store.places import journals
from agentload.study.kinds import Ask, Decide, Replay, Search
from agentload.study.parts import Live, Load, Slo, Virtual
from agentload.study.stored import study_of
from agentload.verdict.policy import Load as Peak
from agentload.verdict.policy import Setting

START_S: Final = 90.0
TOGETHER: Final = 4
"""Questions behind one context, where that has room for them."""
USUAL: Final = Slo(ttft_ms=2000.0, tpot_ms=100.0)
"""Where the user names a peak and no service level."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """The study of a decision, and what it is carried out with."""

    study: Decide
    place: Place
    audience: Audience
    run: str
    user: UserTrace
    """Whose sessions are played."""
    given_up: tuple[EasedLoad, ...] = ()
    """The loads that this client could not send in time."""
    missing_s: float = 0.0
    """What the budget lacks of what pairs are laid out for,
    where a comparison of another arm took more than its share.
    """
    began: Replay | None = None
    """How the pairs of a decision that is resumed were played."""
    learned: Mapping[str, Sizes] = field(default_factory=dict)
    """How much each arm's server holds and takes, once the servers were asked."""

    @cached_property
    def servers(self) -> Arms:
        """Return the arms, with their profiles or their endpoints."""
        return read_arms(self.study.servers)

    @property
    def arms(self) -> tuple[str, ...]:
        """Return the arms' names."""
        return self.servers.names

    @cached_property
    def rates(self) -> Rates:
        """Return how fast the arms are: those of a
        profile, in virtual time or emulated, as it says.
        """
        return Rates(profiles=self.servers.profiles)

    @cached_property
    def pace(self) -> Pace:
        """Return how fast pairs are played."""
        sessions = self.load.sessions or SESSIONS
        return self.rates.pace(self.trace, self.shapes, self.load, sessions)

    @cached_property
    def sizes(self) -> Mapping[str, Sizes]:
        """Return how much each arm's server holds and takes, as far as that is known."""
        if not self.is_virtual:
            return self.learned
        return {each.name: profiled_sizes(each) for each in self.rates.profiles}

    @property
    def is_virtual(self) -> bool:
        """Tell whether no server is asked and no clock tells."""
        return isinstance(self.study.servers, Virtual)

    @property
    def is_launching(self) -> bool:
        """Tell whether servers are started for their blocks."""
        return isinstance(self.study.servers, Live) and self.study.servers.launch

    @cached_property
    def replicas(self) -> int:
        """Count the pairs of replicas, each a start that
        pairs take turns on; 1 where an arm has one server.
        """
        return len(replica_pairs(self.servers.endpoints)) or 1

    @property
    def start_spread(self) -> float:
        """Return what a start adds to an arm's latencies:
        as the profile has it, or as is assumed of servers.
        """
        found = [of_profile(self.study, each) for each in self.rates.profiles]
        known = [each.spread for each in found if each is not None]
        return max(known, default=Policy().start_spread)

    def left_minutes(self, ledger: Ledger) -> float:
        """Return what the questions of a ledger leave of the budget."""
        return (self.study.budget_s - self.missing_s) / 60 - ledger.minutes

    @property
    def starts_minutes(self) -> float:
        """Return what a start of every server takes before
        one was seen; 0 where they run all the time.
        """
        return len(self.arms) * START_S / 60 if self.is_launching else 0.0

    @property
    def beside(self) -> Place:
        """Return where what is asked after the first pairs is kept."""
        return Place(database=self.place.database, into=self.run)

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Keep emulated servers up for as long as the block: one that
        is started for every question is another server each time.
        """
        if not self.servers.is_emulated:
            yield
            return
        assert isinstance(self.study.servers, Live)
        with self.servers.up(noise=self.study.servers.noise, seed=self.study.seed):
            yield

    @property
    def trace(self) -> Trace:
        """Return the user's sessions as far as all arms take them."""
        return self.user.up_to(self.cut, narrowest=self._narrowest)

    @property
    def stock(self) -> Steady:
        """Return these sessions laid out once, with the waits that users have."""
        return self.user.stock(self.cut, narrowest=self._narrowest)

    @cached_property
    def pair_stock(self) -> Steady:
        """Return these sessions as pairs play them."""
        return self.stock.under(self.load.planned())

    @cached_property
    def cut(self) -> int | None:
        """Return what sessions end before: the shortest
        window where calls need more, or what the user says.
        """
        if self.began is not None:
            return self.began.load.max_context_tokens
        window = self._window
        return (
            self.study.load.max_context_tokens
            if window is None or self.longest <= window
            else window
        )

    @property
    def cut_said(self) -> str:
        """Say how far sessions are played, and because of which arm."""
        return (
            f"sessions are played up to {self.cut:,} tokens, the most that {self._narrowest} takes"
        )

    @property
    def _narrowest(self) -> str:
        """Return the arm with the shortest window."""
        return min(self._windows, key=self._windows.__getitem__, default="one of the servers")

    @property
    def reference(self) -> str:
        """Return the arm in use."""
        return self.study.reference or self.arms[0]

    def narrow(self, pairs: int) -> tuple[str, int] | None:
        """Return an arm that is to be compared by itself, and its
        window; None where there is none, or *pairs* were played.
        """
        if self.began is not None or pairs:
            return None
        return narrowest(self.arms, self._windows, reference=self.reference, longest=self.longest)

    @property
    def is_cut(self) -> bool:
        """Tell whether calls are left out that some arm does not take."""
        return self.cut != self.study.load.max_context_tokens

    @property
    def longest(self) -> int:
        """Return the longest context of the trace, its answer included."""
        return self.user.longest

    @property
    def shapes(self) -> tuple[TraceShape, ...]:
        """Return what the calls of the user's trace are like,
        also of those that are longer than an arm takes.
        """
        return self.user.shapes

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Return the lengths at which answers are compared: those of
        the trace's own calls, as far as the servers' window is known.
        """
        return questions.lengths((each.context_tokens for each in self.shapes), window=self._window)

    @property
    def together(self) -> int:
        """Return how many questions stand behind one context, which
        is read once for them, before answers show how alike they are.
        """
        return TOGETHER if self.lengths[0] >= questions.SHORTEST else 1

    @property
    def _window(self) -> int | None:
        """Return the longest context that all arms take; None where nobody tells."""
        return min(self._windows.values(), default=None)

    @cached_property
    def _windows(self) -> dict[str, int]:
        """Return the longest context that each arm takes, of
        those of which a server, a profile or the arms file tells.
        """
        known = [(arm, each.window) for arm, each in self.sizes.items()]
        known += [(arm.name, arm.server.max_model_len) for arm in self.rates.profiles]
        known += [(arm.name, window((), [arm])) for arm in self.servers.endpoints]
        shortest: dict[str, int] = {}
        for arm, tokens in known:
            if tokens is not None:
                shortest[arm] = min(tokens, shortest.get(arm, tokens))
        return shortest

    @cached_property
    def load(self) -> Load:
        """Return the load that pairs are played under."""
        if self.began is not None:
            return self.began.load
        known = [each.pool for each in self.sizes.values() if each.pool is not None]
        into = Surroundings(
            budget_s=self.study.budget_s,
            arms=len(self.arms),
            pool_tokens=min(known, default=None),
            prefill_s=self.rates.prefill_s,
            seed=self.study.seed,
        )
        said = msgspec.structs.replace(self.study.load, max_context_tokens=self.cut)
        return load_after(pair_load(said, self.stock, into), self.given_up)

    @property
    def most_load(self) -> Load:
        """Return the load before the servers have said what fits their pools."""
        load = self.study.load
        is_said = (load.sessions, load.rate_per_s, load.speed) != (None, None, 1.0)
        return load_after(
            load if is_said else msgspec.structs.replace(load, sessions=SESSIONS), self.given_up
        )

    @cached_property
    def windows(self) -> int:
        """Return how many windows of the trace pairs are played on."""
        return windows_of(self.pair_stock) if self.began is None else self.began.windows or 0

    def questions(self, look: Look) -> Ask:
        """Return this many graded questions at a look's lengths."""
        study = self.study
        return Ask(
            servers=study.servers,
            contexts=look.lengths,
            items=look.amount,
            per_context=self.together,
            seed=study.seed,
            tokenizer=study.tokenizer,
            request=study.request,
            timeouts=study.timeouts,
        )

    @cached_property
    def held_tokens(self) -> float:
        """Return what the windows of pairs hold of contexts at once."""
        return held_tokens(self.pair_stock, seed=self.study.seed)

    def overfills(self, tokens: float) -> bool:
        """Tell whether some arm's pool does not hold contexts of so many tokens."""
        return any(
            each.pool is not None and tokens > POOL_HOLDS * each.pool
            for each in self.sizes.values()
        )

    def search(self, trial_s: float) -> Search:
        """Return a search for the load within the service level, with the waits that users have."""
        study, load = self.study, self.study.load
        waits = Load(
            wait_cap_s=load.wait_cap_s, wait_scale=load.wait_scale, max_context_tokens=self.cut
        )
        return Search(
            traces=study.traces,
            servers=study.servers,
            load=waits,
            trial_s=trial_s,
            slo=study.slo or USUAL,
            seed=study.seed,
            request=study.request,
            timeouts=study.timeouts,
        )

    def setting(self, *, question_s: float | None = None) -> Setting:
        """Return what the user decides on beyond the run,
        further questions taking so many seconds each.
        """
        study, slo = self.study, self.study.slo
        levels = []
        if slo is not None:
            levels = [Level(ttft_ms=slo.ttft_ms, tpot_ms=slo.tpot_ms, turn_ms=slo.turn_ms)]
        price = None
        if study.price_usd is not None:
            price = GpuPrice(usd_per_gpu_hour=study.price_usd, source="--price")
        return Setting(
            policy=Policy(
                planned_looks=True,
                min_change=study.min_change,
                accuracy_margin=study.accuracy_margin,
                slos=tuple(levels),
                decide_by=study.decide_by,
            ),
            load=Peak(peak_agents=study.agents),
            question_s=question_s,
            price=price,
            name="decide",
        )


def replay_begun(place: Place) -> Replay | None:
    """Return how the pairs of a run that is resumed were played; None where there were none.

    Raises PlanError where there is no such run.
    """
    if place.resume is None:
        return None
    row = began(place.database, place.resume)  # which is there before any database is
    # Killed before its first pair, it has what its checks left and no load yet.
    if row is None and not journals(place.database, place.resume):
        raise PlanError(
            f"no journal of run {place.resume} beside {place.database}",
            hint=f"agentload runs list {place.database}",
        )
    first = None if row is None else study_of(row)
    return first if isinstance(first, Replay) else None
