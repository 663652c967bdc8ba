"""What every question of a decision is asked with: the trace,
the arms, the load, and the run that keeps the answers.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Protocol

import msgspec

from advisor.evidence import POOL_HOLDS
from advisor.legs import questions
from advisor.policy import Policy
from advisor.policy import Slo as Level
from advisor.verdict import Finding
from agentload.decision.apart import narrowest
from agentload.decision.forecast import Price
from agentload.decision.ledger import Ledger
from agentload.decision.lighter import load_after
from agentload.decision.pair_load import SESSIONS, Surroundings, pair_load, windows_of
from agentload.decision.sequence import Known, Stage
from agentload.emulator.steptime import decode_s, prefill_s
from agentload.endpoints.endpoint import replica_pairs
from agentload.endpoints.read import Emulated
from agentload.errors import EndpointError, InterruptError, PlanError
from agentload.evidence.starts import of_profile
from agentload.layout.cost import assumed_prefill_s
from agentload.layout.coverage import trace_shapes
from agentload.layout.timeline import ASSUMED_TOKEN_S, NOMINAL, Pace, turn_seconds, wait_s
from agentload.layout.traces import shortened
from agentload.layout.windows import Steady, held_tokens, steady
from agentload.model.profile import ArmProfile
from agentload.model.profile import Price as GpuPrice
from agentload.model.shape import TraceShape
from agentload.model.trace import Trace
from agentload.model.walk import context_tokens
from agentload.run.files import read_traces
from agentload.run.foreground import Audience, concluded
from agentload.run.past import began
from agentload.run.play import Played
from agentload.run.prepared import Place, arms_named, endpoints_of
from agentload.run.servers import Sizes, arms_of, profiled_sizes, reached, window
from agentload.run.trial import Trial
from agentload.store.places import journals
from agentload.study.kinds import Ask, Decide, Replay, Search
from agentload.study.parts import Live, Load, Slo, Virtual
from agentload.study.stored import study_of
from agentload.verdict.policy import Load as Peak
from agentload.verdict.policy import Setting

LEAVE_OUT: Final = "leave that arm out to decide between the others on all of the trace"
START_S: Final = 90.0
CHUNK: Final = 1024
"""New tokens of a prompt behind a context, of which the time for one is taken."""
ROUNDS: Final = 4
"""Of working out how many answers come at once from how long they take, which depends on that."""
TOGETHER: Final = 4
"""Questions behind one context, where that has room for them."""
USUAL: Final = Slo(ttft_ms=2000.0, tpot_ms=100.0)
"""Where the user names a peak and no service level."""


class Question(Protocol):
    """One kind of question: what it takes, how it is asked, and what was learnt."""

    def price(self, stage: Stage, /) -> Price:
        """Return what it takes, beyond what the run has already."""
        ...

    def ask(self, stage: Stage, /) -> float | None:
        """Carry it out; return the minutes of virtual
        time that it took, None where the clock tells.
        """
        ...

    def said(self, known: Known | None, /) -> str:
        """Say what is known by it now."""
        ...


@dataclass(kw_only=True)
class Means:
    """The study of a decision, and what is read of it once."""

    study: Decide
    place: Place
    audience: Audience
    run: str
    ledger: Ledger
    """What was asked so far."""
    pairs: int = 0
    """Block pairs that count so far."""
    trials: Mapping[str, Sequence[Trial]] = field(default_factory=dict)
    """Those of loads around what twins carry, of each arm."""
    invalid: str | None = None
    """Why others do not: what was said most often."""
    sizes: Mapping[str, Sizes] = field(default_factory=dict)
    """How much each arm's server holds and takes, once the servers were asked."""
    question_s: float | None = None
    """Seconds that each of the questions takes that
    would settle accuracy; None before that is known.
    """
    findings: tuple[Finding, ...] = ()
    """What rules found when the run was read last, even where that is too little to decide on."""
    arms: tuple[str, ...] = field(init=False)
    _cuts: dict[int, Trace] = field(default_factory=dict)
    _stocks: dict[int | None, Steady] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the arms' names."""
        self.arms = arms_named(self.study.servers)
        if isinstance(self.study.servers, Virtual):
            self.sizes = {each.name: profiled_sizes(each) for each in self.profiles}

    @cached_property
    def profiles(self) -> tuple[ArmProfile, ...]:
        """Return the arms of a profile, in virtual time or emulated; nothing of real servers."""
        servers = self.study.servers
        if isinstance(servers, Virtual):
            return arms_of(servers.profile, servers.arms)
        found = endpoints_of(servers)
        return arms_of(found.profile, found.arms) if isinstance(found, Emulated) else ()

    def prefill_s(self, tokens: int) -> float:
        """Return how long a prompt takes to be read, by the
        slowest profile, or by what is assumed of servers.
        """
        return max(
            (prefill_s(each, tokens) for each in self.profiles), default=assumed_prefill_s(tokens)
        )

    def decode_s(self, batch: int, context: int) -> float:
        """Return how long a step takes, likewise."""
        return max(
            (decode_s(each, batch, context) for each in self.profiles), default=ASSUMED_TOKEN_S
        )

    @cached_property
    def pace(self) -> Pace:
        """Return how fast pairs are played, by the profiles: behind
        contexts of the trace, as many answers at once as its waits leave.
        """
        if not self.profiles:
            return NOMINAL
        calls = sum(each.calls for each in self.shapes)
        context = round(
            sum(each.calls * statistics.fmean(each.context_tokens) for each in self.shapes) / calls
        )
        prompts_s = (
            prefill_s(each, context + CHUNK) - prefill_s(each, context) for each in self.profiles
        )
        found, load = (
            Pace(token_s=ASSUMED_TOKEN_S, prompt_token_s=statistics.fmean(prompts_s) / CHUNK),
            self.load.planned(),
        )
        turns = [turn for session in self.trace.sessions for turn in session.turns]
        waits_s = sum(wait_s(load, turn) for turn in turns)
        for _ in range(ROUNDS):
            answers_s = sum(turn_seconds(load, turn, found) for turn in turns) - waits_s
            at_once = max(
                1, round((self.load.sessions or SESSIONS) * answers_s / (answers_s + waits_s))
            )
            found = replace(
                found,
                token_s=statistics.fmean(
                    decode_s(each, at_once, context) for each in self.profiles
                ),
            )
        return found

    @property
    def draws(self) -> int:
        """Return how many draws of sessions each arm has played, at two loads each."""
        return min(map(len, self.trials.values()), default=0) // 2

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
        found = endpoints_of(self.study.servers) if isinstance(self.study.servers, Live) else ()
        return 1 if isinstance(found, Emulated) else len(replica_pairs(found)) or 1

    @property
    def start_spread(self) -> float:
        """Return what a start adds to an arm's latencies:
        as the profile has it, or as is assumed of servers.
        """
        known = [
            found.spread
            for each in self.profiles
            if (found := of_profile(self.study, each)) is not None
        ]
        return max(known, default=Policy().start_spread)

    @property
    def left_minutes(self) -> float:
        """Return what is left of the budget."""
        return self.study.budget_s / 60 - self.ledger.minutes

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
        found = endpoints_of(self.study.servers) if isinstance(self.study.servers, Live) else ()
        if not isinstance(found, Emulated):
            yield
            return
        assert isinstance(self.study.servers, Live)
        with reached(found, noise=self.study.servers.noise, seed=self.study.seed):
            yield

    def concluded(self, ended: Played) -> None:
        """Raise what a part of the run ends with: that a server is
        gone, that it was stopped, or that the database lacks it.
        """
        concluded(ended.run_id, self.place, self.audience, load_error=ended.load_error)
        if ended.died:
            raise EndpointError(f"{', '.join(ended.died)} stopped answering", hint="start it again")
        if ended.was_stopped:
            raise InterruptError("stopped")

    @cached_property
    def whole(self) -> Trace:
        """Return the user's sessions with the waits that they have, read once.

        Raises PlanError where none of them is short enough.
        """
        most = self.study.load.max_context_tokens
        found = read_traces(self.study.traces, max_context_tokens=most)[0]
        sessions = tuple(found.sessions)
        if not sessions and most is not None:
            raise PlanError(
                f"every session begins with more than the {most:,} tokens of --max-context",
                hint="a larger --max-context",
            )
        return Trace(header=found.header, sessions=sessions)

    @property
    def trace(self) -> Trace:
        """Return the user's sessions as far as all arms take them."""
        if not self.is_cut or self.cut is None:
            return self.whole
        if self.cut not in self._cuts:
            kept = tuple(shortened(self.whole, self.cut))
            if not kept:
                raise PlanError(
                    f"every session begins with more than the {self.cut:,} tokens that "
                    f"{self._narrowest} takes",
                    hint=LEAVE_OUT,
                )
            self._cuts[self.cut] = Trace(header=self.whole.header, sessions=kept)
        return self._cuts[self.cut]

    @property
    def stock(self) -> Steady:
        """Return these sessions laid out once, with the waits that users have."""
        if self.cut not in self._stocks:
            self._stocks[self.cut] = steady(self.trace, self.study.load.planned())
        return self._stocks[self.cut]

    @cached_property
    def pair_stock(self) -> Steady:
        """Return these sessions as pairs play them."""
        return self.stock.under(self.load.planned())

    @property
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

    @property
    def narrow(self) -> tuple[str, int] | None:
        """Return an arm that is to be compared by itself, and its
        window; None where there is none, or pairs were played.
        """
        if self.began is not None or self.pairs:
            return None
        return narrowest(self.arms, self._windows, reference=self.reference, longest=self.longest)

    @property
    def is_cut(self) -> bool:
        """Tell whether calls are left out that some arm does not take."""
        return self.cut != self.study.load.max_context_tokens

    @cached_property
    def longest(self) -> int:
        """Return the longest context of the trace, its answer included."""
        calls = (
            each
            for session in self.whole.sessions
            for each in zip(context_tokens(self.whole.header, session), session.turns, strict=True)
        )
        return max(tokens + turn.output for tokens, turn in calls)

    @cached_property
    def shapes(self) -> tuple[TraceShape, ...]:
        """Return what the calls of the user's trace are like,
        also of those that are longer than an arm takes.
        """
        return trace_shapes(self.whole, self.study.load.planned())

    @property
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

    @property
    def _windows(self) -> dict[str, int]:
        """Return the longest context that each arm takes, of
        those of which a server, a profile or the arms file tells.
        """
        known = [(arm, each.window) for arm, each in self.sizes.items()]
        known += [(arm.name, arm.server.max_model_len) for arm in self.profiles]
        if isinstance(self.study.servers, Live) and not isinstance(
            found := endpoints_of(self.study.servers), Emulated
        ):
            known += [(arm.name, window((), [arm])) for arm in found]
        shortest: dict[str, int] = {}
        for arm, tokens in known:
            if tokens is not None:
                shortest[arm] = min(tokens, shortest.get(arm, tokens))
        return shortest

    @cached_property
    def began(self) -> Replay | None:
        """Return how the pairs of a decision that is resumed were played; None of a new one."""
        if self.place.resume is None:
            return None
        row = began(self.place.database, self.place.resume)  # which is there before any database is
        # Killed before its first pair, it has what its checks left and no load yet.
        if row is None and not journals(self.place.database, self.place.resume):
            raise PlanError(
                f"no journal of run {self.place.resume} beside {self.place.database}",
                hint=f"agentload runs list {self.place.database}",
            )
        first = None if row is None else study_of(row)
        return first if isinstance(first, Replay) else None

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
            prefill_s=self.prefill_s,
            seed=self.study.seed,
        )
        said = msgspec.structs.replace(self.study.load, max_context_tokens=self.cut)
        return load_after(pair_load(said, self.stock, into), self.ledger.given_up)

    @property
    def most_load(self) -> Load:
        """Return the load before the servers have said what fits their pools."""
        load = self.study.load
        is_said = (load.sessions, load.rate_per_s, load.speed) != (None, None, 1.0)
        return load_after(
            load if is_said else msgspec.structs.replace(load, sessions=SESSIONS),
            self.ledger.given_up,
        )

    @cached_property
    def windows(self) -> int:
        """Return how many windows of the trace pairs are played on."""
        return windows_of(self.pair_stock) if self.began is None else self.began.windows or 0

    def questions(self, stage: Stage) -> Ask:
        """Return this many graded questions at a stage's lengths."""
        study = self.study
        return Ask(
            servers=study.servers,
            contexts=stage.lengths,
            items=stage.amount,
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

    @property
    def setting(self) -> Setting:
        """Return what the user decides on beyond the run."""
        study, slo = self.study, self.study.slo
        levels = (
            ()
            if slo is None
            else (Level(ttft_ms=slo.ttft_ms, tpot_ms=slo.tpot_ms, turn_ms=slo.turn_ms),)
        )
        return Setting(
            policy=Policy(
                planned_looks=True,
                min_change=study.min_change,
                accuracy_margin=study.accuracy_margin,
                slos=levels,
                decide_by=study.decide_by,
            ),
            load=Peak(peak_agents=study.agents),
            question_s=self.question_s,
            price=None
            if study.price_usd is None
            else GpuPrice(usd_per_gpu_hour=study.price_usd, source="--price"),
            name="decide",
        )
