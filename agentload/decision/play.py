"""Carry out a decision: read the run, play the next question, and repeat.

The loop ends when the verdict stands or the budget is spent.
"""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from agentload.decision.agenda import Agenda
from agentload.decision.answers import carry_answers
from agentload.decision.apart import ApartComparison, NarrowError, left_s, without
from agentload.decision.block_pairs import NewSizesError
from agentload.decision.budget import BudgetLimit, BudgetSpentError
from agentload.decision.checks import server_sizes
from agentload.decision.forecast import Forecast, LookPrice
from agentload.decision.known import Known, knowledge, run_rows
from agentload.decision.larger import enough_minutes
from agentload.decision.ledger import Ledger, LedgerEntry, ledger
from agentload.decision.lighter import EasedLoad, LateError, half_of, next_try
from agentload.decision.look import Criterion, Look
from agentload.decision.means import ENDING_SHARE, Means, replay_begun
from agentload.decision.outcome import DecisionEnding, DecisionOutcome, forget_run, kept_document
from agentload.decision.pair_load import check_decide
from agentload.decision.sequence import settling_look
from agentload.decision.state import AskedLook, DecisionState, speed_intervals
from agentload.decision.user_trace import UserTrace
from agentload.errors import AgentloadError, InterruptError
from agentload.report.format import typeset
from agentload.run.additions import remember_addition
from agentload.run.arms import read_arms
from agentload.run.audience import ENDING_S, Audience
from agentload.run.files import read_traces, trace_hash
from agentload.run.place import StudyPlace
from agentload.run.ready import asked_of, check_client
from agentload.run.record import again, new_run_id
from agentload.run.servers import Sizes
from agentload.run.simulate import simulated_id
from agentload.store.places import began, journals
from agentload.study.kinds import Decide
from agentload.study.parts import Live, Virtual
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import Verdict


@dataclass(kw_only=True)
class Deciding:
    """Carry out one decision.

    Its state is read from its run, so a process that dies loses only what it was asking.
    """

    study: Decide
    place: StudyPlace
    audience: Audience
    run: str = field(init=False)
    means: Means = field(init=False)
    known: Known = field(init=False)
    _user: UserTrace = field(init=False)
    _agenda: Agenda = field(init=False)
    _asking: tuple[Look, LookPrice, float] | None = field(init=False, default=None)
    """Question that is being asked, with its price and the instant at which it began."""
    _since_s: float = field(init=False)
    """When the last question had ended: what is computed after it is spent with the next one."""
    _verdict: Verdict | None = field(init=False, default=None)
    """Verdict on the run as it was read last."""
    _laid_again: int = field(init=False, default=0)
    """First pairs that were lost before any of their calls: servers turned out to be others."""
    _own: "Deciding | None" = field(init=False, default=None)
    """Comparison of an arm by itself, while it is under way."""

    def __post_init__(self) -> None:
        """Read the arms and what was asked before.

        Raises UsageError where there is nothing to decide between.
        """
        check_decide(self.study)
        self.audience = self.audience.hearing_once()
        servers, database = self.study.servers, self.place.database
        named = self.place.resume or self.place.run
        self._user = UserTrace(self.study)
        if isinstance(servers, Virtual):
            self.run = named or simulated_id(
                self.study,
                read_arms(servers).profiles,
                trace_hash=trace_hash(read_traces(self.study.traces)[1]),
            )
            self._begin(Ledger(database=database, run=self.run))
            return
        self.run = named or new_run_id()
        before = ledger(database, self.run)
        while before.goes_on_as is not None:
            self.run = before.goes_on_as
            self.place = replace(self.place, resume=self.run)
            before = ledger(database, self.run)
        self._begin(before)

    def _begin(self, before: Ledger, *, sizes: Mapping[str, Sizes] = MappingProxyType({})) -> None:
        """Get ready to ask what the ledger lacks, of servers whose *sizes* may be known."""
        self._verdict = None
        self._since_s = time.monotonic()
        self.known = Known(ledger=before)
        study = without(self.study, read_arms(self.study.servers).names, before.apart)
        arms = read_arms(study.servers).names
        self.means = Means(
            study=study,
            place=self.place,
            audience=self.audience,
            run=self.run,
            user=self._user,
            given_up=before.given_up,
            missing_s=max(0.0, study.budget_s - left_s(self.study, before.apart)),
            began=replay_begun(self.place),
            learned={arm: each for arm, each in sizes.items() if arm in arms},
            laid_again=self._laid_again,
        )
        self._agenda = Agenda(self.means, aside=before.aside, learn=self.learn)

    def learn(self, sizes: Mapping[str, Sizes]) -> None:
        """Ask from here on with what servers say that they hold and take."""
        self.means = replace(self.means, learned=sizes)
        self._agenda = self._agenda.asked_with(self.means)

    @property
    def _setting(self) -> Setting:
        return self.means.setting(question_pace=self.known.question_pace)

    @property
    def left_minutes(self) -> float:
        """Minutes that are left of the budget."""
        return self.means.left_minutes(self.known.ledger)

    def play(self) -> DecisionOutcome:
        """Ask until the decision is made or open, the budget is spent, or somebody stops it."""
        if self.means.is_virtual:
            forget_run(self.place.database, self.run)
        with self._resumable():
            self._check_client()
            while True:
                try:
                    with self.means.standing():
                        return self._on_servers()
                except NarrowError as error:
                    ended = self._compare_apart(error)
                    if ended is not None:
                        return ended

    def _on_servers(self) -> DecisionOutcome:
        """Ask servers that stay up meanwhile.

        Raises NarrowError where an arm is to be compared by itself first.
        """
        if self.known.ledger.asked and not self.means.is_virtual:
            self.learn(server_sizes(self.means))
        while True:
            try:
                return self._under_one_load()
            except NewSizesError as error:
                self.audience.notice(f"  {error.message}")
                self._laid_again += 1
                self._begin(self.known.ledger, sizes=error.sizes)
            except LateError as error:
                step = half_of(self.means.load, error.message)
                if step is None:
                    self._know()
                    return self._ended("late", late=error.message)
                self._ease(step)

    def _under_one_load(self) -> DecisionOutcome:
        """Read the run, choose the next question, play it, and repeat under one load.

        Raises LateError where the load is too much for this client.
        """
        self._know()
        while offers := self._offers():
            left_minutes = self._left_s() / 60
            affordable = [
                each for each in offers if self._is_first() or each[1].minutes <= left_minutes
            ]
            if not affordable:
                enough = settling_look(self.known, offers[0][0])
                return self._ended("budget", wants=(enough, self.price(enough).minutes))
            (look, price), before = affordable[0], self.known
            try:
                minutes = self._ask(look, price)
            except (KeyboardInterrupt, InterruptError):
                self._know(asking=look.criterion)
                return self._ended("stopped")
            except BudgetSpentError as error:
                self.audience.notice(f"  {error.message}")
                lost_minutes = self.known.ledger.minutes - before.ledger.minutes
                self._know(asking=look.criterion)
                enough = settling_look(self.known, look)
                minutes = self.price(enough).minutes
                if look.criterion == "speed":  # pairs take longer than was forecast
                    minutes *= max(1.0, lost_minutes / price.minutes)
                return self._ended("budget", wants=(enough, minutes))
            self._know(asking=look.criterion)
            self._write_answer(look, price.minutes, minutes)
            had, has = before.amount(look.criterion), self.known.amount(look.criterion)
            if had is not None and has is not None and has <= had:
                return self._ended("open")  # the same question would end the same way
        return self._ended("open" if self.known.undecided else "decided")

    def _is_first(self) -> bool:
        """Tell whether the first pair comes next, which is played whatever it takes."""
        return self.known.decision is None and self.means.is_unbounded(self.known)

    def _offers(self) -> list[tuple[Look, LookPrice]]:
        """Return what could be asked next, each with its price.

        Raises NarrowError where an arm is to be compared by itself first.
        """
        if self.known.ledger.asked and (narrow := self.means.narrow(self.known.pairs)) is not None:
            raise NarrowError(*narrow)
        looks = self._agenda.next_looks(self.known)
        return [(look, self.price(look)) for look in looks]

    def price(self, look: Look) -> LookPrice:
        """Return what a question takes beyond what the run has already."""
        return self._agenda.price(look, self.known)

    def _know(self, asking: Criterion | None = None) -> None:
        """Read what the run holds, and derive what follows.

        *asking* is the criterion of a question that was asked and is not in the ledger yet.
        """
        means, before, asks = self.means, self.known.ledger, self._agenda
        rows = run_rows(
            self.place.database,
            self.run,
            arms=means.arms,
            reference=self.study.reference,
            setting=self._setting,
        )
        self._verdict = rows.verdict or self._verdict
        found = knowledge(
            rows,
            before,
            counts_answers=asking == "accuracy" or bool(before.looks("accuracy")),
            is_compared=not asks.cheap(before, asking),
            has_twins=asks.twins.aside is None,
            starts=means.replicas,
        )
        if found.decision is not None:
            if means.searches and not found.draws_asked:
                found = replace(found, grid_plays_wanted=asks.twins.wanted(rows.grid_plays))
            found = replace(found, question_pace=asks.question_pace(found))
        self.known = found

    def _ask(self, look: Look, price: LookPrice) -> float:
        """Ask a question, and return the minutes that it took.

        A question that does not come to its end is written down as well.
        """
        calls = "" if not price.calls else f", {price.calls:,} calls"
        self.audience.say_step(
            f"asking: {look.title}, about {max(1, round(price.minutes))} min{calls}; "
            f"{self._left_s() / 60:.0f} min left"
        )
        entry = LedgerEntry(stage=look, planned_minutes=price.minutes, minutes=0.0, said="")
        began_s, limit = self._since_s, self._limit(look)
        self._asking = look, price, began_s
        if self._is_written:
            self._write("asking", entry)
        try:
            simulated = self._agenda.of[look.criterion].ask(look, self.known, limit)
        except BaseException as error:
            if self._is_written:
                with suppress(
                    AgentloadError
                ):  # the disk may be full, and that is the error already
                    self._write("stopped", replace(entry, minutes=_minutes_since(began_s)))
            if limit.is_spent and isinstance(error, KeyboardInterrupt | InterruptError):
                raise BudgetSpentError(
                    f"the budget ended {look.what}: what is not whole does not count"
                ) from error
            raise
        finally:
            self._since_s = time.monotonic()
        return (self._since_s - began_s) / 60 if simulated is None else simulated

    def _left_s(self) -> float:
        """Return the seconds that a question has: what was computed before it is spent as well."""
        computed_s = 0.0 if self.means.is_virtual else time.monotonic() - self._since_s
        return 60 * self.left_minutes - computed_s

    def _limit(self, look: Look) -> BudgetLimit:
        """Return what ends a question with the budget.

        Pairs have the share of a silent server beyond it, for half a pair says nothing. A first one
        whose servers are started for it has no limit, as nobody knows how long they take to start.
        """
        means = self.means
        left_s = self._left_s() + (means.silent_s if look.criterion == "speed" else 0.0)
        is_starting = means.is_launching and means.is_unbounded(self.known)
        if means.is_virtual or (is_starting and look.criterion == "speed"):
            left_s = math.inf
        return BudgetLimit(
            audience=means.audience,
            ends_s=time.monotonic() + left_s,
            ending_s=min(ENDING_S, ENDING_SHARE * self.study.budget_s),
        )

    def _write_answer(self, look: Look, planned: float, minutes: float) -> None:
        """Write down what a question said, and notice it."""
        said = typeset(self._agenda.of[look.criterion].said(self.known))
        found = tuple(speed_intervals(self.known)) if look.criterion == "speed" else ()
        entry = LedgerEntry(
            stage=look, planned_minutes=planned, minutes=minutes, said=said, intervals=found
        )
        self._write("asked", entry)
        self._asking = None
        possible = {each.arm: ", ".join(each.possible) for each in found if each.is_open}
        rest = "; ".join(f"still possible for {arm}: {words}" for arm, words in possible.items())
        self.audience.say_step(f"  {said}{f'; {rest}' if rest else ''}")

    def _write(self, outcome: Literal["asking", "asked", "stopped"], entry: LedgerEntry) -> None:
        before, aside = self.known.ledger, self._agenda.twins.aside
        written = before.write(outcome, entry, aside=aside, setting=self._setting)
        self.known = replace(self.known, ledger=written)

    @contextmanager
    def _resumable(self) -> Iterator[None]:
        """Add the command that resumes the run, where there is one, to any error or Ctrl-C."""
        try:
            yield
        except (KeyboardInterrupt, AgentloadError) as error:
            is_said = isinstance(error, InterruptError) and self._own is None
            if is_said or not self.is_begun:
                raise
            resume = f"resume with: {again(self.study, self.place.database, resume=self.run)}"
            if isinstance(error, KeyboardInterrupt | InterruptError):  # once more, while deciding
                stored = f"run {self.run} was stopped; what was measured is stored"
                raise InterruptError(stored, hint=resume) from error
            raise type(error)(error.message, hint=f"fix it, then {resume}") from error

    @property
    def is_begun(self) -> bool:
        """Whether there is a run that can be resumed."""
        if self.means.is_virtual:
            return False
        is_own_begun = self._own is not None and self._own.is_begun
        return is_own_begun or began(self.place.database, self.run) is not None

    @property
    def _is_written(self) -> bool:
        """Whether questions are written down: from the checks on, so a killed pair counts."""
        return not self.means.is_virtual and (bool(self.known.ledger.asked) or self.is_begun)

    def state(self) -> DecisionState:
        """Return what was asked, what is being asked, what is spent, and what is known so far."""
        if self._own is not None:
            return self._own.state()
        asking = None
        if self._asking is not None:
            look, price, began_s = self._asking
            asking = AskedLook(look=look, price=price, minutes=_minutes_since(began_s))
        budget, asked = self.study.budget_s / 60, self.known.ledger.asked
        took = asking.minutes if asking is not None and not self.means.is_virtual else 0.0
        return DecisionState(
            asked=asked,
            asking=asking,
            spent_minutes=budget - self.left_minutes + took,
            budget_minutes=budget,
            intervals=tuple(each for entry in asked for each in entry.intervals),
            searches_capacity=self.means.searches,
        )

    def forecast(self) -> tuple[Forecast, ...]:
        """Return what the budget can settle between arms that are not compared by themselves.

        The others are announced.
        """
        whole, sizes = self.known.ledger, self.means.sizes
        while (narrow := self.means.narrow(self.known.pairs)) is not None:
            comparison = self._comparison(NarrowError(*narrow))
            self.audience.notice(comparison.announcement)
            found = comparison.ended(
                run=self.run, left_minutes=0.0, is_decided=False, headline=None
            )
            before = self.known.ledger
            self._begin(replace(before, apart=(*before.apart, found)), sizes=sizes)
        foretold = self._agenda.forecast(self.known)
        self._begin(whole, sizes=sizes)
        return foretold

    def _comparison(self, narrow: NarrowError) -> ApartComparison:
        others = len(self.means.arms) - 1
        return ApartComparison(
            narrow=narrow,
            reference=self.means.reference,
            run=f"{self.run}-{narrow.arm}",
            minutes=self.left_minutes / others,
        )

    def _compare_apart(self, narrow: NarrowError) -> DecisionOutcome | None:
        """Compare an arm with the reference alone, and continue without it.

        Returns how the decision ended if the comparison ends everything, else None.
        """
        means, comparison = self.means, self._comparison(narrow)
        comparison.check_room(
            others=len(means.arms) - 1, spent_minutes=self.study.budget_s / 60 - self.left_minutes
        )
        self.audience.notice(comparison.announcement)
        run = comparison.run
        is_begun = not means.is_virtual and bool(journals(self.place.database, run))
        self._own = own = Deciding(
            study=comparison.study(means.study, means.arms),
            place=replace(
                self.place, run=None if is_begun else run, resume=run if is_begun else None
            ),
            audience=self.audience,
        )
        before, asked = own.known.ledger, self.known.ledger
        is_new = not before.asked and not before.lost_minutes
        own._begin(asked.of_comparison(run) if is_new else before, sizes=means.sizes)
        ended = own.play()
        if ended.ending in ("stopped", "late"):
            took = comparison.minutes - ended.left_minutes
            return replace(
                ended,
                run_id=self.run,
                document=None,
                left_minutes=self.left_minutes - took,
                asked=asked.asked,
                apart=asked.apart,
            )
        self._own = None
        found = comparison.ended(
            run=ended.run_id,
            left_minutes=ended.left_minutes,
            is_decided=ended.ending == "decided",
            headline=None if ended.document is None else ended.document.headline,
        )
        self.audience.notice(f"  {found.said()}")
        self._begin(asked.set_apart(found), sizes=means.sizes)
        return None

    def _ease(self, step: EasedLoad) -> None:
        """Continue under a lighter load, in a run of its own that keeps the answers."""
        self.audience.notice(f"  {next_try(step)}")
        self._laid_again = 0
        before, sizes = self.known.ledger, self.means.sizes
        carry_answers(self.place.database, self.run, before.run_under(step))
        eased = before.ease(step, setting=self._setting)
        self.run = eased.run
        self.place = replace(self.place, run=self.run, resume=None)
        self._begin(eased, sizes=sizes)

    def _check_client(self) -> None:
        """Check that this machine can measure.

        Raises AgentloadError where it cannot.
        """
        if isinstance(self.study.servers, Live):
            has_emulated = self.means.servers.is_emulated
            asked = asked_of(self.means.most_load, has_emulated=has_emulated)
            check_client(asked, self.audience.notice)

    def _ended(
        self,
        ending: DecisionEnding,
        *,
        wants: tuple[Look, float] | None = None,
        late: str | None = None,
    ) -> DecisionOutcome:
        asked, found, enough, setting = self.known.ledger, self._verdict, 0.0, self._setting
        if asked.asked:
            remember_addition(self.study, self.means.beside)
        if wants is not None:
            enough = enough_minutes(self.means, self._agenda.twins, self.known, *wants)
            enough += sum(each.minutes for each in asked.apart)
            setting = replace(setting, enough_s=60.0 * math.ceil(enough))
            if found is not None:
                asked.end(setting)
        return DecisionOutcome(
            run_id=self.run,
            document=None if found is None else kept_document(found, self.place.database, setting),
            asked=asked.asked,
            ending=ending,
            left_minutes=self.left_minutes,
            wants=wants,
            enough_minutes=enough,
            given_up=asked.given_up,
            late=late,
            apart=asked.apart,
        )


def _minutes_since(instant_s: float) -> float:
    return (time.monotonic() - instant_s) / 60
