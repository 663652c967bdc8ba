"""Hold what every question of a decision is asked with.

That is the trace, the arms, the load, and the run that keeps the answers.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Final

import msgspec
from msgspec import field

from advisor.legs import questions
from advisor.loads import POOL_HOLDS
from advisor.policy import Policy
from advisor.policy import ServiceLimits as Level
from agentload.decision.apart import narrowest
from agentload.decision.known import Known
from agentload.decision.ledger import Ledger
from agentload.decision.lighter import EasedLoad, load_after
from agentload.decision.look import Look
from agentload.decision.pace import Rates
from agentload.decision.pair_load import SESSIONS, Surroundings, pair_load, windows_of
from agentload.decision.user_trace import UserTrace
from agentload.endpoints.endpoint import replica_pairs
from agentload.errors import PlanError
from agentload.evidence.starts import of_profile
from agentload.layout.steady import Steady
from agentload.layout.timeline import ServerPace
from agentload.layout.windows import held_tokens
from agentload.model.profile import Price as GpuPrice
from agentload.model.record import Record
from agentload.model.shape import TraceShape
from agentload.model.trace import Trace
from agentload.run.arms import Arms, read_arms
from agentload.run.audience import Audience
from agentload.run.place import StudyPlace
from agentload.run.servers import Sizes, profiled_sizes, window
from agentload.store.places import began, journals
from agentload.study.kinds import Ask, Decide, Replay, Search
from agentload.study.parts import Live, Load, Slo, Timeouts, Virtual
from agentload.study.stored import study_of
from agentload.verdict.policy import Setting
from agentload.verdict.policy import UserLoad as Peak

START_S: Final = 90.0
"""Assumed seconds that a server takes to start."""
SILENT_SHARE: Final = 0.1
"""Share of the budget after which a silent server will not answer."""
ENDING_SHARE: Final = 0.04
"""Share of the budget that answers in flight have to end, once it is spent."""
ANSWER_SHARE: Final = 0.25
"""Share of the budget after which an answer leaves no time for a second pair of two arms."""
TOGETHER: Final = 4
"""Graded questions behind one context, where the context has room for them."""
USUAL: Final = Slo(ttft_ms=2000.0, tpot_ms=100.0)
"""Service level where the user names a peak and no level."""


class Means(Record, dict=True):
    """Hold the study of a decision, and what it is carried out with."""

    study: Decide
    place: StudyPlace
    audience: Audience
    run: str
    user: UserTrace
    """Trace whose sessions are played."""
    given_up: tuple[EasedLoad, ...] = ()
    """Loads that this client could not send in time."""
    missing_s: float = 0.0
    """Seconds of the study's budget that are already spent.

    The comparison of another arm took them.
    """
    began: Replay | None = None
    """Replay with which the pairs of a resumed decision began."""
    learned: Mapping[str, Sizes] = field(default_factory=dict)
    """How much each arm's server holds and takes, once the servers were asked."""
    laid_again: int = 0
    """First pairs that were lost before any of their calls."""

    @cached_property
    def servers(self) -> Arms:
        """Arms, with their profiles or their endpoints."""
        return read_arms(self.study.servers)

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return self.servers.names

    @property
    def searches(self) -> bool:
        """Whether capacity is part of the answer."""
        return self.study.slo is not None or self.study.agents is not None

    @cached_property
    def rates(self) -> Rates:
        """Speeds of the arms: by their profiles where virtual or emulated."""
        return Rates(profiles=self.servers.profiles)

    @cached_property
    def pace(self) -> ServerPace:
        """Pace at which pairs are played."""
        sessions = self.load.sessions or SESSIONS
        return self.rates.pace(self.trace, self.shapes, self.load, sessions)

    @cached_property
    def sizes(self) -> Mapping[str, Sizes]:
        """How much each arm's server holds and takes, as far as that is known."""
        if not self.is_virtual:
            return self.learned
        return {each.name: profiled_sizes(each) for each in self.rates.profiles}

    @property
    def is_virtual(self) -> bool:
        """Whether no server is asked and time is virtual."""
        return isinstance(self.study.servers, Virtual)

    @property
    def is_launching(self) -> bool:
        """Whether servers are started for their blocks."""
        return isinstance(self.study.servers, Live) and self.study.servers.launch

    @cached_property
    def replicas(self) -> int:
        """Number of pairs of replicas; 1 where an arm has one server.

        Pairs take turns on them; each counts as a start of the servers.
        """
        return len(replica_pairs(self.servers.endpoints)) or 1

    @property
    def start_spread(self) -> float:
        """Spread that a start adds to an arm's latencies, by the profile or as assumed."""
        found = [of_profile(self.study, each) for each in self.rates.profiles]
        known = [each.spread for each in found if each is not None]
        return max(known, default=Policy().start_spread)

    def left_minutes(self, ledger: Ledger) -> float:
        """Return the minutes of the budget that are left after what a ledger holds."""
        return (self.study.budget_s - self.missing_s) / 60 - ledger.minutes

    def is_unbounded(self, known: Known) -> bool:
        """Tell whether the next pair is the first, which is played whatever it takes.

        It is so played once only: not after an earlier pair has spent time, nor after the
        comparison of another arm took more than its share.
        """
        lost = len(known.ledger.lost_minutes)
        return not self.missing_s and not known.pairs and lost == self.laid_again

    @property
    def starts_minutes(self) -> float:
        """Assumed minutes to start every server; 0 where servers run all the time."""
        return len(self.arms) * START_S / 60 if self.is_launching else 0.0

    @property
    def beside(self) -> StudyPlace:
        """Place of what is asked after the first pairs: it is added to the run."""
        return StudyPlace(database=self.place.database, into=self.run)

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Keep emulated servers up while the context is open: a new start is another server."""
        if not self.servers.is_emulated:
            yield
            return
        assert isinstance(self.study.servers, Live)
        with self.servers.up(noise=self.study.servers.noise, seed=self.study.seed):
            yield

    @property
    def trace(self) -> Trace:
        """Sessions of the user, as far as all arms take them."""
        return self.user.up_to(self.cut, narrowest=self._narrowest)

    @property
    def stock(self) -> Steady:
        """Sessions of `trace` laid out once, with the waits that users have."""
        return self.user.stock(self.cut, narrowest=self._narrowest)

    @cached_property
    def pair_stock(self) -> Steady:
        """Sessions of `trace` as pairs play them."""
        return self.stock.under(self.load.planned())

    @cached_property
    def cut(self) -> int | None:
        """Longest context that is played, in tokens; None: no limit.

        It is the shortest window of an arm where calls need more, else what the user says.
        """
        if self.began is not None:
            return self.began.load.max_context_tokens
        limit = self._limit
        is_cut = limit is not None and self.longest > limit
        return limit if is_cut else self.study.load.max_context_tokens

    @property
    def cut_said(self) -> str:
        """Sentence on how far sessions are played, and because of which arm."""
        return (
            f"sessions are played up to {self.cut:,} tokens, the most that {self._narrowest} takes"
        )

    @property
    def _narrowest(self) -> str:
        """Arm with the shortest window."""
        return min(self._limits, key=self._limits.__getitem__, default="one of the servers")

    @property
    def reference(self) -> str:
        """Arm in use."""
        return self.study.reference or self.arms[0]

    def narrow(self, pairs: int) -> tuple[str, int] | None:
        """Return the arm to compare by itself, with its window; None if none is, or after pairs."""
        if self.began is not None or pairs:
            return None
        return narrowest(self.arms, self._limits, reference=self.reference, longest=self.longest)

    @property
    def is_cut(self) -> bool:
        """Whether calls are left out that some arm does not take."""
        return self.cut != self.study.load.max_context_tokens

    @property
    def longest(self) -> int:
        """Tokens of the longest context of the trace, its answer included."""
        return self.user.longest

    @property
    def shapes(self) -> tuple[TraceShape, ...]:
        """Shapes of the calls of the user's trace, also of those longer than an arm takes."""
        return self.user.shapes

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Lengths at which answers are compared: those of the calls, up to the known window."""
        return questions.lengths((each.context_tokens for each in self.shapes), window=self._limit)

    @property
    def together(self) -> int:
        """Questions behind one context, before answers show how alike they are.

        The context is read once for all of them.
        """
        return TOGETHER if self.lengths[0] >= questions.SHORTEST else 1

    @property
    def _limit(self) -> int | None:
        """Longest context that all arms take; None where unknown."""
        return min(self._limits.values(), default=None)

    @cached_property
    def _limits(self) -> dict[str, int]:
        """Longest context of each arm, where a server, profile or arms file states it."""
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
        """Load that pairs are played under."""
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
        """Load before the servers have said what fits their pools."""
        load = self.study.load
        is_said = (load.sessions, load.rate_per_s, load.speed) != (None, None, 1.0)
        return load_after(
            load if is_said else msgspec.structs.replace(load, sessions=SESSIONS), self.given_up
        )

    @cached_property
    def windows(self) -> int:
        """Number of windows of the trace that pairs are played on."""
        return windows_of(self.pair_stock) if self.began is None else self.began.windows or 0

    @property
    def silent_s(self) -> float:
        """Seconds that the budget has for a server that is gone, or accepts and never answers."""
        return SILENT_SHARE * self.study.budget_s

    @property
    def call_timeouts(self) -> Timeouts:
        """How long timed calls may take: a stream that drips without end is never silent."""
        given, silent_s = self.study.timeouts, self.silent_s
        return msgspec.structs.replace(
            given,
            first_timeout_s=min(given.first_timeout_s, silent_s),
            idle_timeout_s=min(given.idle_timeout_s, silent_s),
            total_timeout_s=min(given.total_timeout_s, ANSWER_SHARE * self.study.budget_s),
        )

    def patience(self, usual_s: float, *, expected_s: float = 0.0) -> Timeouts:
        """Return how long one of several untimed questions may take.

        That is the budget's share for a silent server, or longer where all of them together were
        expected to take *expected_s*; never longer than without a budget: the *usual_s* of those
        who ask, where the user gives no timeout.
        """
        given, most_s = self.study.timeouts, max(self.silent_s, expected_s)
        alone_s = usual_s if given == Timeouts() else given.total_timeout_s
        return msgspec.structs.replace(given, total_timeout_s=min(alone_s, most_s))

    def questions(self, look: Look) -> Ask:
        """Return the study that asks a look's graded questions, at its lengths."""
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
        """Tokens of contexts that the windows of pairs hold at once."""
        return held_tokens(self.pair_stock, seed=self.study.seed)

    def overfills(self, tokens: float) -> bool:
        """Tell whether some arm's pool does not hold contexts of this many *tokens*."""
        return any(
            each.pool is not None and tokens > POOL_HOLDS * each.pool
            for each in self.sizes.values()
        )

    def search(self, trial_s: float) -> Search:
        """Return a search for the load within the service level, with the waits of users."""
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
            timeouts=self.call_timeouts,
        )

    def setting(self, *, question_pace: float | None = None) -> Setting:
        """Return what the user decides on beyond the run.

        Further questions take *question_pace* times what is assumed.
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
            question_pace=question_pace,
            per_context=self.together,
            budget_s=study.budget_s,
            price=price,
            name="decide",
        )


def replay_begun(place: StudyPlace) -> Replay | None:
    """Return how the pairs of a resumed run were played; None where there were none.

    Raises PlanError where there is no such run.
    """
    if place.resume is None:
        return None
    row = began(place.database, place.resume)  # the journal is there before any database
    # A run killed before its first pair has what its checks left, and no load yet.
    if row is None and not journals(place.database, place.resume):
        raise PlanError(
            f"no journal of run {place.resume} beside {place.database}",
            hint=f"agentload runs list {place.database}",
        )
    first = None if row is None else study_of(row)
    return first if isinstance(first, Replay) else None
