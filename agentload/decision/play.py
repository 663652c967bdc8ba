"""Carry a decision out: one question after another, all kept in one run, until it is made or its budget is spent."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

import msgspec

from advisor.policy import Policy
from advisor.policy import Slo as Level
from agentload.decision.forecast import Forecast, Price, forecast
from agentload.decision.sequence import PAIRS, Known, Stage, following
from agentload.decision.twin import Twinning
from agentload.endpoints.read import Emulated
from agentload.errors import EndpointError, InterruptError, UsageError
from agentload.layout.cost import cost
from agentload.layout.plan import of_study
from agentload.layout.traces import Repeated
from agentload.model.profile import Price as GpuPrice
from agentload.model.rows import AnswerRow, BlockRow, ProbeRow, RunRow
from agentload.model.trace import Trace
from agentload.report.advise import advise, keep
from agentload.report.parts import Document
from agentload.report.policy import Load as Peak
from agentload.report.policy import Setting
from agentload.run import foreground
from agentload.run.files import read_traces
from agentload.run.foreground import Audience
from agentload.run.past import FIRST, began
from agentload.run.prepared import Place, endpoints_of, evaluation, prepared, simulation
from agentload.run.questions import Generated, asking_of, questions_cost
from agentload.run.record import again, new_run_id
from agentload.run.servers import arms_of
from agentload.run.simulate import simulated_id
from agentload.run.simulated_answers import answer_all, answering
from agentload.store import tables
from agentload.store.database import reading
from agentload.study.kinds import Ask, Decide, Replay, Search
from agentload.study.parts import Live, Load, Slo, Virtual
from agentload.study.stored import study_of

Ending: TypeAlias = Literal["decided", "open", "budget", "stopped"]
"""decided: nothing is open; open: nothing that could be asked would settle it; budget: the next question costs more than is left."""

SESSIONS: Final = 8
USER_WAIT_S: Final = 5.0
TRIALS: Final = 8
"""Of a search, on each arm."""
SHORTEST_TRIAL_S: Final = 20.0
SHORTEST_BLOCK_S: Final = 5.0
"""Shorter blocks end before their turns do."""
START_S: Final = 90.0
"""What a start of a server takes, before one was seen."""
SPEED_SHARE: Final = 1 / 3
CAPACITY_SHARE: Final = 0.4
"""Of the budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question that was asked: what it was expected to take, what it took, and what it said."""

    stage: Stage
    planned_minutes: float
    minutes: float
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a decision ended."""

    run_id: str
    document: Document | None
    asked: tuple[Asked, ...]
    ending: Ending
    left_minutes: float
    wants: tuple[Stage, float] | None = None
    """What would have been asked next, and its minutes, where the budget did not reach."""


@dataclass(slots=True, kw_only=True)
class Deciding:
    """A decision that is under way. What it holds is read from its run, so a process that dies loses only what it was asking."""

    study: Decide
    place: Place
    audience: Audience
    run: str = field(init=False)
    spent_s: float = field(init=False, default=0.0)
    _load: Load = field(init=False)
    _twins: Twinning = field(init=False)
    _asked: list[Asked] = field(init=False, default_factory=list)
    _document: Document | None = field(init=False, default=None)
    """What follows from the run as it was read last."""

    def __post_init__(self) -> None:
        """Read the trace and the arms. Raises UsageError where there is nothing to decide between."""
        self._load = self._laid()
        if len(self.arms) < 2:
            raise UsageError(f"a decision needs two arms, got {', '.join(self.arms)}", hint="--endpoints bf16=URL,fp8=URL")
        least_s = SHORTEST_BLOCK_S * PAIRS[2] * len(self.arms) / SPEED_SHARE
        if self.study.budget_s < least_s:
            raise UsageError(f"--budget {self.study.budget_s / 60:.3g} min settles nothing", hint=f"--budget {math.ceil(least_s / 60)}m")
        if self.study.reference not in (None, *self.arms):
            raise UsageError(f"--reference: no arm '{self.study.reference}'", hint=f"one of: {', '.join(self.arms)}")
        servers = self.study.servers
        named = simulated_id(self.study, arms_of(servers.profile, servers.arms)) if isinstance(servers, Virtual) else new_run_id()
        self.run = self.place.resume or self.place.run or named
        self._twins = Twinning(study=self.study, arms=self.arms, place=self.place, audience=self.audience, run=self.run)

    @property
    def arms(self) -> tuple[str, ...]:
        """Return the names of the arms."""
        match self.study.servers:
            case Virtual(profile=profile, arms=names):
                return tuple(arm.name for arm in arms_of(profile, names))
            case Live() as servers:
                found = endpoints_of(servers)
                if isinstance(found, Emulated):
                    return tuple(arm.name for arm in arms_of(found.profile, found.arms))
                return tuple(endpoint.name for endpoint in found)

    @property
    def setting(self) -> Setting:
        """Return what the user decides on beyond the run."""
        said, slo = self.study, self.study.slo
        levels = () if slo is None else (Level(ttft_ms=slo.ttft_ms, tpot_ms=slo.tpot_ms, turn_ms=slo.turn_ms),)
        return Setting(
            policy=Policy(planned_looks=True, min_change=said.min_change, accuracy_margin=said.accuracy_margin, slos=levels),
            load=Peak(peak_agents=said.agents),
            price=None if said.price_usd is None else GpuPrice(usd_per_gpu_hour=said.price_usd, source="--price"),
            name="decide",
        )

    @property
    def searches(self) -> bool:
        """Tell whether capacity is part of the answer."""
        return self.study.slo is not None or self.study.agents is not None

    def play(self) -> Outcome:
        """Ask until the decision is made, nothing is left that could make it, the budget is spent or somebody stops it."""
        known = self.known()
        while (stage := following(known, capacity=self.searches)) is not None:
            left = self.study.budget_s / 60 - self.spent_s / 60
            price = self.price(stage).minutes
            if price > left and self._asked:
                return self._ended("budget", wants=(stage, price))
            self.audience.notice(f"asking: {told(stage)}, about {max(1, round(price))} min; {left:.0f} min left")
            began_s = time.monotonic()
            try:
                minutes = self._ask(stage)
            except (KeyboardInterrupt, InterruptError):
                return self._ended("stopped")
            except EndpointError as error:
                remedy = f"fix it, then resume with: {again(self.study, self.place.database, resume=self.run)}"
                raise EndpointError(error.message, hint=remedy if began(self.place.database, self.run) else error.hint) from error
            if minutes is None:
                minutes = (time.monotonic() - began_s) / 60
            self.spent_s += 60 * minutes
            known = self.known()
            said = self._twins.described() if stage.criterion == "step times" else _said(stage, known)
            self._asked.append(Asked(stage=stage, planned_minutes=price, minutes=minutes, said=said))
            self.audience.notice(f"  {said}")
        return self._ended("open" if known is not None and known.open else "decided")

    def forecast(self) -> tuple[Forecast, ...]:
        """Return what the budget can settle."""
        servers = self.study.servers
        return forecast(
            self.price,
            budget_minutes=self.study.budget_s / 60,
            min_change=self.study.min_change,
            accuracy_margin=self.study.accuracy_margin,
            capacity=self.searches,
            starts_each_pair=isinstance(servers, Live) and servers.launch,
        )

    def known(self) -> Known | None:
        """Read what the run holds, and decide on it; None while it holds too little."""
        if not self.place.database.exists():
            return None
        with reading(self.place.database) as connection:
            blocks = tables.rows(connection, BlockRow, run_id=self.run)
            answers = tables.rows(connection, AnswerRow, run_id=self.run)
            probes = tables.rows(connection, ProbeRow, run_id=self.run)
        arms = self.arms
        played = defaultdict[int, set[str]](set)
        for row in blocks:
            if row.void is None and 0 <= row.pair < FIRST:
                played[row.pair].add(row.arm)
        pairs = sum({*arms} <= each for each in played.values())
        if pairs < PAIRS[0]:
            return None
        self._document = advise(self.place.database, self.run, setting=self.setting, reference=self.study.reference)
        given = {(row.task, row.context_tokens, row.item, row.repetition) for row in answers if row.arm == arms[0]}
        return Known(
            decision=self._document.decision,
            pairs=pairs,
            items=len(given),
            lengths=tuple(sorted({context for _, context, _, _ in given})),
            is_searched=(is_searched := any(row.probe == "capacity" for row in probes)),
            step_times=self._twins.left() if self.searches and not is_searched else 0,
        )

    def price(self, stage: Stage) -> Price:
        """Return what a question takes, beyond what the run has already."""
        arms = self.arms
        match stage.criterion:
            case "speed":
                trace = self._wide(read_traces(self.study.traces)[0])
                whole = cost(of_study(self._replay(stage.amount), trace, arms, run="", blocks=PAIRS[0]))
                played = max((each.stage.amount for each in self._asked if each.stage.criterion == "speed"), default=0)
                took = sum(each.minutes for each in self._asked if each.stage.criterion == "speed")
                # What pairs took is known once some were played.
                minutes = took / played * (stage.amount - played) if played else whole.minutes
                servers = self.study.servers
                if not played and isinstance(servers, Live) and servers.launch:
                    minutes += stage.amount * len(arms) * START_S / 60
                return Price(minutes=minutes, calls=sum(whole.calls_by_arm.values()), tokens=whole.prompt_tokens + whole.output_tokens)
            case "step times":
                return Price(minutes=self._twins.minutes(stage.amount))
            case "capacity":
                return Price(minutes=self._twins.bracket_minutes or self._search_minutes)
            case "accuracy":
                study = self._questions(stage)
                expected = questions_cost(
                    Generated(asking=asking_of(study)), arms=len(arms), concurrency=study.concurrency, thinking_tokens=0
                )
                share = 1 - self._items() / stage.amount
                return Price(
                    minutes=expected.minutes * share,
                    calls=round(expected.questions * share),
                    tokens=round(expected.prompt_tokens * share),
                )

    def _ask(self, stage: Stage) -> float | None:
        """Carry a question out; return the minutes of virtual time that it took, None where the clock tells."""
        is_virtual = isinstance(self.study.servers, Virtual)
        match stage.criterion:
            case "speed" if is_virtual:
                made = simulation(self._replay(stage.amount), replace(self.place, run=self.run), blocks=PAIRS[0], laid=self._wide)
                before = self._played_minutes()
                foreground.simulate(made, self.audience)
                return self._played_minutes() - before
            case "speed":
                self._play(stage.amount)
            case "step times":
                return self._twins.measure(stage.amount)
            case "capacity":
                planned = self._capacity()
                return planned if is_virtual else None
            case "accuracy" if is_virtual:
                price = self.price(stage).minutes
                answer_all(answering(self._questions(stage), self._beside()))
                return price
            case "accuracy":
                with evaluation(self._questions(stage), self._beside()) as (asking_of, _):
                    ended = foreground.asked(asking_of, self.audience)
                foreground.concluded(ended.run_id, self.place, self.audience, load_error=ended.load_error)
                if ended.left:
                    raise InterruptError("stopped")
        return self.price(stage).minutes if is_virtual else None

    def _capacity(self) -> float:
        """Measure what the twins say, or search where they say nothing, or what is wrong; return the minutes that are planned for that."""
        planned, search = self._twins.bracket_minutes, self._search_minutes
        found = self._twins.bracket()
        if found is not None and found.failed is None:
            return planned
        spent = 0.0 if found is None else planned
        if found is not None and spent + search > (self.study.budget_s - self.spent_s) / 60:
            self.audience.notice(f"  a search would take {search:.0f} min, more than is left: the trials around what the twins say stand")
            return spent
        foreground.require(foreground.searched(self._search(), self._beside(), self.audience))
        return spent + search

    def _play(self, pairs: int) -> None:
        is_begun = began(self.place.database, self.run) is not None
        place = replace(self.place, run=None if is_begun else self.run, resume=self.run if is_begun else None)
        with prepared(self._replay(pairs), place, notice=self.audience.notice, laid=self._wide) as made:
            ended = foreground.measure(made, place, self.audience)
        foreground.concluded(ended.run_id, place, self.audience, load_error=ended.load_error)
        if ended.was_stopped:
            raise InterruptError("stopped")

    def _beside(self) -> Place:
        return Place(database=self.place.database, into=self.run)

    def _replay(self, pairs: int) -> Replay:
        study = self.study
        return Replay(traces=study.traces, servers=study.servers, tokenizer=study.tokenizer, pairs=pairs, load=self._load, seed=study.seed)

    def _search(self) -> Search:
        study = self.study
        slo = study.slo or Slo(ttft_ms=2000.0, tpot_ms=100.0)
        waits = Load(wait_cap_s=self._load.wait_cap_s, wait_scale=self._load.wait_scale)
        return Search(traces=study.traces, servers=study.servers, load=waits, trial_s=self._trial_s(), slo=slo, seed=study.seed)

    def _questions(self, stage: Stage) -> Ask:
        study = self.study
        return Ask(servers=study.servers, contexts=stage.lengths, items=stage.amount, seed=study.seed, tokenizer=study.tokenizer)

    @property
    def _search_minutes(self) -> float:
        return len(self.arms) * TRIALS * self._trial_s() / 60

    def _trial_s(self) -> float:
        return max(SHORTEST_TRIAL_S, CAPACITY_SHARE * self.study.budget_s / (TRIALS * len(self.arms)))

    def _items(self) -> int:
        return max((each.stage.amount for each in self._asked if each.stage.criterion == "accuracy"), default=0)

    def _played_minutes(self) -> float:
        if not self.place.database.exists():
            return 0.0
        with reading(self.place.database) as connection:
            ended = [row.ended_ns or 0 for row in tables.rows(connection, BlockRow, run_id=self.run) if row.pair < FIRST]
        return max(ended, default=0) / 60e9

    def _wide(self, trace: Trace, _: int = 0) -> Trace:
        """Return a trace with sessions enough to keep as many going in every block as the load asks for: the same ones with new content."""
        wanted = 2 * PAIRS[0] * (self._load.sessions or 0)
        rounds = -(-wanted // max(1, sum(1 for _ in trace.sessions)))
        return Trace(header=trace.header, sessions=Repeated(trace, rounds)) if rounds > 1 else trace

    def _laid(self) -> Load:
        """Return the load that pairs are played under: some sessions at once, users who answer soon, and no block longer than fits."""
        if self.place.resume is not None:
            with reading(self.place.database) as connection:
                first = next((study_of(row) for row in tables.rows(connection, RunRow, run_id=self.place.resume)), None)
            if isinstance(first, Replay):
                return first.load
        load = self.study.load
        if (load.sessions, load.rate_per_s, load.speed) == (None, None, 1.0):
            load = msgspec.structs.replace(load, sessions=SESSIONS)
        if not load.wait_cap_s and not load.wait_scale:
            load = msgspec.structs.replace(load, wait_cap_s={"user": USER_WAIT_S})
        if load.duration_s is None:
            longest = SPEED_SHARE * self.study.budget_s / (PAIRS[2] * len(self.arms))
            load = msgspec.structs.replace(load, duration_s=float(round(longest)))
        return load

    def _ended(self, ending: Ending, *, wants: tuple[Stage, float] | None = None) -> Outcome:
        if self._document is not None:
            keep(self._document, self.place.database, setting=self.setting)
        left = (self.study.budget_s - self.spent_s) / 60
        return Outcome(run_id=self.run, document=self._document, asked=tuple(self._asked), ending=ending, left_minutes=left, wants=wants)


def _said(stage: Stage, known: Known | None) -> str:
    """Say what is known of each arm by what was asked last."""
    if known is None:
        return f"fewer than {PAIRS[0]} pairs count so far"
    legs = {each.arm: {"speed": each.pays, "capacity": each.capacity or each.pays, "accuracy": each.safe} for each in known.challengers}
    return "; ".join(f"{arm}: {own[stage.criterion].reason}" for arm, own in legs.items())


def told(stage: Stage) -> str:
    """Say what a question is."""
    match stage.criterion:
        case "speed":
            return f"speed, {stage.amount} block pairs"
        case "step times":
            return "step times, that twins of the arms are fitted to"
        case "capacity":
            return "capacity, how many agents one GPU carries"
        case "accuracy":
            return f"accuracy, {stage.amount:,} paired questions"
