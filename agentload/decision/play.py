"""Carry a decision out: one question after another, all
kept in one run, until it is made or its budget is spent.
"""

import math
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from advisor.verdict import Decision
from agentload.decision.accuracy import Accuracy, Screen
from agentload.decision.answers import carry_answers
from agentload.decision.apart import Apart, NarrowError, of_arms, without
from agentload.decision.canary import Canary
from agentload.decision.capacity import Capacity
from agentload.decision.checks import Checks
from agentload.decision.forecast import Forecast, Price, forecast
from agentload.decision.larger import enough_minutes
from agentload.decision.ledger import GRADED, Asked, Ledger, ledger
from agentload.decision.level import Level
from agentload.decision.lighter import EasedLoad, LateError, half_of, next_try
from agentload.decision.means import Means, Question
from agentload.decision.pair_load import SPEED_SHARE
from agentload.decision.sequence import PAIRS, TRIED, Criterion, Known, Stage, following, settling
from agentload.decision.speed import NewSizesError, Speed
from agentload.decision.twin import Twins
from agentload.endpoints.read import Emulated
from agentload.errors import AgentloadError, EvidenceError, InterruptError, UsageError
from agentload.model.rows import AnswerRow, BlockRow, ProbeRow
from agentload.report.advise import document_of, keep
from agentload.report.format import typeset
from agentload.report.parts import Document
from agentload.run.capacity import trials
from agentload.run.foreground import Audience
from agentload.run.past import FIRST, began
from agentload.run.prepared import Place, arms_named, endpoints_of
from agentload.run.ready import asked_of, check_client
from agentload.run.record import again, new_run_id
from agentload.run.servers import Sizes, arms_of
from agentload.run.simulate import simulated_id
from agentload.store import runs, tables
from agentload.store.database import reading, writing
from agentload.store.places import journal_folder
from agentload.study.change import extended
from agentload.study.kinds import Decide
from agentload.study.parts import Live, Virtual
from agentload.verdict.verdict import Verdict, verdict, with_question_time

Ending: TypeAlias = Literal["decided", "open", "budget", "stopped", "late"]
"""decided: nothing is open; open: nothing that could be asked would settle it; budget: the next
question costs more than is left; late: this client could not keep up with the smallest load.
"""

SHORTEST_BLOCK_S: Final = 5.0
"""Shorter blocks end before their turns do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a decision ended."""

    run_id: str
    document: Document | None
    asked: tuple[Asked, ...]
    ending: Ending
    left_minutes: float
    wants: tuple[Stage, float] | None = None
    """What is likely to settle it, and its minutes, where the budget did not reach."""
    enough_minutes: float = 0.0
    """The budget that pays for that and for all before it, which a larger budget makes longer."""
    given_up: tuple[EasedLoad, ...] = ()
    """The loads that were given up because requests left late, in their order."""
    late: str | None = None
    """Why nothing could be measured, where even the smallest load was too much for this client."""
    apart: tuple[Apart, ...] = ()
    """The arms that were compared by themselves, in runs of their own."""


@dataclass(kw_only=True)
class Deciding:
    """A decision that is under way.

    What it holds is read from its run, so a process that dies loses only what it was asking.
    """

    study: Decide
    place: Place
    audience: Audience
    run: str = field(init=False)
    means: Means = field(init=False)
    _questions: Mapping[Criterion, Question] = field(init=False)
    _checks: Checks = field(init=False)
    _twins: Twins = field(init=False)
    _canary: Canary = field(init=False)
    _screen: Screen = field(init=False)
    _level: Level = field(init=False)
    _asking: tuple[Stage, float] | None = field(init=False, default=None)
    """With the instant at which it began."""
    _verdict: Verdict | None = field(init=False, default=None)
    """What follows from the run as it was read last."""
    _laid_again: int = field(init=False, default=0)
    """First pairs that were lost before any of their
    calls, since servers turned out to be others.
    """
    _own: "Deciding | None" = field(init=False, default=None)
    """The comparison of an arm by itself, while it is under way."""

    def __post_init__(self) -> None:
        """Read the arms and what was asked before.

        Raises UsageError where there is nothing to decide between.
        """
        study, place = self.study, self.place
        arms = arms_named(study.servers)
        if len(arms) < 2:
            raise UsageError(
                f"a decision needs two arms, got {', '.join(arms)}",
                hint="--endpoints bf16=URL,fp8=URL",
            )
        if study.budget_s < least_s(len(arms)):
            raise UsageError(
                f"--budget {study.budget_s / 60:.3g} min settles nothing",
                hint=f"--budget {math.ceil(least_s(len(arms)) / 60)}m",
            )
        if study.reference not in (None, *arms):
            raise UsageError(
                f"--reference: no arm '{study.reference}'", hint=f"one of: {', '.join(arms)}"
            )
        servers = study.servers
        named = (
            simulated_id(study, arms_of(servers.profile, servers.arms))
            if isinstance(servers, Virtual)
            else new_run_id()
        )
        self.run = place.resume or place.run or named
        before = (
            Ledger(database=place.database, run=self.run)
            if isinstance(servers, Virtual)
            else ledger(place.database, self.run)
        )
        while before.goes_on_as is not None:
            self.run = before.goes_on_as
            self.place = replace(self.place, resume=self.run)
            before = ledger(place.database, self.run)
        self._begin(before)

    def _begin(self, before: Ledger, *, sizes: Mapping[str, Sizes] = MappingProxyType({})) -> None:
        """Get ready to ask what the ledger lacks, of servers whose *sizes* may be known."""
        self._verdict = None
        study = without(self.study, arms_named(self.study.servers), before.apart)
        known = {arm: each for arm, each in sizes.items() if arm in arms_named(study.servers)}
        self.means = Means(
            study=study,
            place=self.place,
            audience=self.audience,
            run=self.run,
            ledger=before,
            sizes=known,
        )
        self._twins = Twins(means=self.means, aside=before.aside)
        self._canary = Canary(means=self.means)
        self._screen = Screen(means=self.means)
        self._level = Level(means=self.means)
        self._checks = Checks(means=self.means, canary=self._canary)
        self._questions = {
            "checks": self._checks,
            "service level": self._level,
            "canary": self._canary,
            "screen": self._screen,
            "speed": Speed(means=self.means),
            "step times": self._twins,
            "capacity": Capacity(means=self.means, twins=self._twins),
            "accuracy": Accuracy(means=self.means),
        }

    @property
    def searches(self) -> bool:
        """Tell whether capacity is part of the answer."""
        return self.study.slo is not None or self.study.agents is not None

    def play(self) -> Outcome:
        """Ask until the decision is made, nothing is left that
        could make it, the budget is spent or somebody stops it.
        """
        if self.means.is_virtual:
            self._forget()
        with self._resumable():
            self._look()
            while True:
                try:
                    with self.means.standing():
                        return self._on_servers()
                except NarrowError as error:
                    ended = self._compared_apart(error)
                    if ended is not None:
                        return ended

    def _on_servers(self) -> Outcome:
        """Ask servers that stay up meanwhile.

        Raises NarrowError where an arm is to be compared by itself first.
        """
        if self.means.ledger.asked:
            self._checks.learn_sizes()
        while True:
            try:
                return self._play()
            except NewSizesError as error:
                self.audience.notice(f"  {error.message}")
                self._laid_again += 1
                self._begin(self.means.ledger, sizes=error.sizes)
            except LateError as error:
                step = half_of(self.means.load, error.message)
                if step is None:
                    self.refresh()
                    return self._ended("late", late=error.message)
                self.audience.notice(f"  {next_try(step)}")
                self._laid_again = 0
                carry_answers(self.place.database, self.run, self.means.ledger.run_under(step))
                before = self.means.ledger.ease(step, setting=self.means.setting)
                self.run = before.run
                self.place = replace(self.place, run=self.run, resume=None)
                self._begin(before, sizes=self.means.sizes)

    def _compared_apart(self, narrow: NarrowError) -> Outcome | None:
        """Compare an arm with the reference alone, and go on
        without it; return how it ended where that ends everything.
        """
        means, minutes = self.means, self._share_minutes
        if 60 * minutes < least_s(2):
            least = math.ceil(
                (least_s(2) * (len(means.arms) - 1) / 60)
                + self.study.budget_s / 60
                - means.left_minutes
            )
            raise UsageError(
                f"{narrow.message}: {minutes:.1f} min to compare it by itself settle nothing",
                hint=f"--budget {least}m",
            )
        self.audience.notice(self._told(narrow))
        study = of_arms(
            means.study, [arm for arm in means.arms if arm in (means.reference, narrow.arm)]
        )
        run = f"{self.run}-{narrow.arm}"
        is_begun = not means.is_virtual and began(self.place.database, run) is not None
        own = Deciding(
            study=extended(study, budget_s=60 * minutes, reference=means.reference),
            place=replace(
                self.place, run=None if is_begun else run, resume=run if is_begun else None
            ),
            audience=self.audience,
        )
        before = own.means.ledger
        own._begin(
            before if before.asked or before.lost_minutes else means.ledger.beside(run),
            sizes=means.sizes,
        )
        self._own = own
        ended = own.play()
        if ended.ending in ("stopped", "late"):
            left_minutes = means.left_minutes - (minutes - ended.left_minutes)
            return replace(
                ended,
                run_id=self.run,
                document=None,
                left_minutes=left_minutes,
                asked=means.ledger.asked,
                apart=means.ledger.apart,
            )
        self._own = None
        found = Apart(
            arm=narrow.arm,
            reference=means.reference,
            window=narrow.window,
            run=ended.run_id,
            minutes=minutes - ended.left_minutes,
            is_decided=ended.ending == "decided",
            headline=None if ended.document is None else ended.document.headline,
        )
        self.audience.notice(f"  {found.said()}")
        self._begin(means.ledger.set_apart(found), sizes=means.sizes)
        return None

    def _told(self, narrow: NarrowError) -> str:
        return (
            f"{narrow.message}: it is compared with {self.means.reference} alone first, within "
            f"{self._share_minutes:.0f} min"
        )

    @property
    def _share_minutes(self) -> float:
        """Return what of the budget an arm has that is
        compared by itself: as much as each of the others.
        """
        return self.means.left_minutes / (len(self.means.arms) - 1)

    def _look(self) -> None:
        """See that this machine can measure. Raises AgentloadError where it cannot."""
        if isinstance(self.study.servers, Live):
            has_emulated = isinstance(endpoints_of(self.study.servers), Emulated)
            asked = asked_of(self.means.most_load, has_emulated=has_emulated)
            check_client(asked, self.audience.notice)

    def _play(self) -> Outcome:
        """Ask under one load. Raises LateError where it is too much for
        this client, NarrowError where an arm comes first by itself.
        """
        known = self.refresh()
        while wanted := self._wanted(known):
            # The first pair is played whatever it takes, but not
            # again and again: what a pair before it took is spent.
            is_first = (
                known is None
                and not self.means.pairs
                and len(self.means.ledger.lost_minutes) == self._laid_again
            )
            affordable = [each for each in wanted if is_first or each[1] <= self.means.left_minutes]
            if not affordable:
                enough = wanted[0][0] if known is None else settling(known, wanted[0][0])
                return self._ended("budget", wants=(enough, self.price(enough).minutes))
            (stage, planned), before = affordable[0], self._amounts(known)
            try:
                minutes = self._ask(stage, planned)
            except (KeyboardInterrupt, InterruptError):
                self.refresh()
                return self._ended("stopped")
            known = self.refresh()
            said = typeset(self._questions[stage.criterion].said(known))
            self._write(
                "asked", Asked(stage=stage, planned_minutes=planned, minutes=minutes, said=said)
            )
            self.audience.notice(f"  {said}")
            after = self._amounts(known).get(stage.criterion)
            if after is not None and after <= before[stage.criterion]:
                return self._ended("open")  # asked again, it would end the same way
        return self._ended("open" if known is not None and known.open else "decided")

    def _amounts(self, known: Known | None) -> dict[Criterion, int]:
        """Return how much there is of what is asked more than once."""
        items, tried = (0, 0) if known is None else (known.items, known.tried)
        return {"speed": self.means.pairs, "accuracy": items, "capacity": tried}

    def _wanted(self, known: Known | None) -> list[tuple[Stage, float]]:
        """Return what could be asked next, and its minutes.

        Raises NarrowError where an arm is to be compared by itself first.
        """
        if self.means.ledger.asked and (narrow := self.means.narrow) is not None:
            raise NarrowError(*narrow)
        return [(stage, self.price(stage).minutes) for stage in self._following(known)]

    def _following(self, known: Known | None) -> Iterator[Stage]:
        if known is None and not self.means.ledger.asked:
            yield Stage(criterion="checks", amount=1)
        else:
            yield from following(
                known,
                capacity=self.searches,
                pairs=self.means.pairs,
                level=self._level.is_wanted,
                cheap=self._cheap(),
            )

    def _cheap(self) -> tuple[Stage, ...]:
        """Return what is asked before speed is refined,
        of what a small share of the budget pays for.
        """
        is_asked = bool(self.means.ledger.looks("canary")) or self._is_asking("canary")
        canary = () if is_asked or self._canary.stage is None else (self._canary.stage,)
        screen = (Stage(criterion="screen", amount=1),) if self._screen.is_wanted else ()
        return (*canary, *screen)

    def _ask(self, stage: Stage, planned: float) -> float:
        """Ask a question, and return the minutes that it took;
        one that does not come to its end is written down as well.
        """
        self.audience.notice(
            f"asking: {told(stage)}, about {max(1, round(planned))} min; "
            f"{self.means.left_minutes:.0f} min left"
        )
        asked, began_s = (
            Asked(stage=stage, planned_minutes=planned, minutes=0.0, said=""),
            time.monotonic(),
        )
        self._asking = stage, began_s
        if self._is_written:
            self.means.ledger.write(
                "asking", asked, aside=self._twins.aside, setting=self.means.setting
            )
        try:
            simulated = self._questions[stage.criterion].ask(stage)
        except BaseException:
            if self._is_written:
                with suppress(
                    AgentloadError
                ):  # the disk may be full, and that is the error already
                    self._write(
                        "stopped", replace(asked, minutes=(time.monotonic() - began_s) / 60)
                    )
            raise
        return (time.monotonic() - began_s) / 60 if simulated is None else simulated

    @contextmanager
    def _resumable(self) -> Iterator[None]:
        """End with the command that resumes the run, where there is one, whatever went wrong."""
        try:
            yield
        except InterruptError:
            raise
        except AgentloadError as error:
            if not self.is_begun:
                raise
            remedy = (
                "fix it, then resume with: "
                f"{again(self.study, self.place.database, resume=self.run)}"
            )
            raise type(error)(error.message, hint=remedy) from error

    def _write(self, outcome: Literal["asked", "stopped"], asked: Asked) -> None:
        self.means.ledger = self.means.ledger.write(
            outcome, asked, aside=self._twins.aside, setting=self.means.setting
        )

    @property
    def is_begun(self) -> bool:
        """Tell whether there is a run that can be gone on with."""
        is_own_begun = self._own is not None and self._own.is_begun
        return not self.means.is_virtual and (
            is_own_begun or began(self.place.database, self.run) is not None
        )

    @property
    def _is_written(self) -> bool:
        """Tell whether questions are written down: from the checks
        on, so that a first pair that is killed took its time.
        """
        return not self.means.is_virtual and (bool(self.means.ledger.asked) or self.is_begun)

    def status(self) -> tuple[str, ...]:
        """Say what is being asked, what is spent, and what is known so far."""
        if self._own is not None:
            return self._own.status()
        if self._asking is None:
            return ()
        stage, began_s = self._asking
        spent = (
            self.study.budget_s / 60 - self.means.left_minutes + (time.monotonic() - began_s) / 60
        )
        said = [each.said for each in self.means.ledger.asked if each.stage.criterion != "checks"]
        return (
            f"{told(stage)} · {spent:.0f} of {self.study.budget_s / 60:.0f} min spent",
            *said[-1:],
        )

    def forecast(self) -> tuple[Forecast, ...]:
        """Return what the budget can settle, between arms that
        are not compared by themselves first: of those it says so.
        """
        whole = self.means.ledger
        while (narrow := self.means.narrow) is not None:
            self.audience.notice(self._told(NarrowError(*narrow)))
            arm, window = narrow
            found = Apart(
                arm=arm,
                reference=self.means.reference,
                window=window,
                run=self.run,
                minutes=self._share_minutes,
                is_decided=False,
                headline=None,
            )
            before = self.means.ledger
            self._begin(replace(before, apart=(*before.apart, found)), sizes=self.means.sizes)
        foretold = self._foretold()
        self._begin(whole, sizes=self.means.sizes)
        return foretold

    def _foretold(self) -> tuple[Forecast, ...]:
        return forecast(
            self.price,
            budget_minutes=self.means.study.budget_s / 60,
            min_change=self.study.min_change,
            accuracy_margin=self.study.accuracy_margin,
            together=self.means.together,
            capacity=self.searches,
            rivals=len(self.means.arms) - 1,
            start_spread=self.means.start_spread,
            level=self._level.is_wanted,
            starts=None if self.means.is_launching else self.means.replicas,
            lengths=self.means.lengths,
            canary=self._canary.stage,
        )

    def price(self, stage: Stage) -> Price:
        """Return what a question takes, beyond what the run has already:
        where some of its kind were asked, at the pace of those.
        """
        found = self._questions[stage.criterion].price(stage)
        return replace(found, minutes=self._pace(stage) * found.minutes)

    def _pace(self, stage: Stage) -> float:
        return self.means.ledger.pace(*GRADED) if stage.criterion in GRADED else 1.0

    def refresh(self) -> Known | None:
        """Read what the run holds, decide, and go by that; None while it holds too little."""
        means = self.means
        if not self.place.database.exists():
            return None
        with reading(self.place.database) as connection:
            blocks = tables.rows(connection, BlockRow, run_id=self.run)
            answers = tables.rows(connection, AnswerRow, run_id=self.run, arm=means.arms[0])
            probes = tables.rows(connection, ProbeRow, run_id=self.run)
        means.pairs, means.invalid = whole_pairs(blocks, means.arms), usual_fault(blocks)
        if not means.pairs:
            return None
        try:
            self._verdict = verdict(
                self.place.database, self.run, setting=means.setting, reference=self.study.reference
            )
        except EvidenceError as error:
            if means.pairs >= PAIRS[0]:
                raise
            means.invalid = error.message
            return None
        decision = self._verdict.decision
        means.findings = decision.findings
        if means.pairs < PAIRS[0] and not is_over(decision, is_compared=not self._cheap()):
            return None
        # A canary's answers count where accuracy asks at the
        # same lengths; by themselves they are no look at it.
        is_asked = bool(means.ledger.looks("accuracy")) or self._is_asking("accuracy")
        means.trials = trials(probes)
        is_searched = any(means.trials.values()) and self._twins.aside is not None
        tried = TRIED[-1] if is_searched else means.draws
        found = knowledge(
            self._verdict, answers if is_asked else (), pairs=means.pairs, tried=tried
        )
        wanted = self._twins.wanted() if self.searches and not tried else 0
        found = replace(found, step_times=wanted, starts=means.replicas)
        means.question_s = self._question_s(found)
        return found

    def _question_s(self, known: Known) -> float | None:
        """Return how long each question takes of those that
        would settle accuracy next; None where none is asked.
        """
        asked = next(
            (stage for stage in self._following(known) if stage.criterion == "accuracy"), None
        )
        if asked is None:
            return None
        last = settling(known, asked)
        starts_minutes = self._pace(last) * self.means.starts_minutes
        return 60 * (self.price(last).minutes - starts_minutes) / (last.amount - known.items)

    def _is_asking(self, criterion: Criterion) -> bool:
        return self._asking is not None and self._asking[0].criterion == criterion

    def _forget(self) -> None:
        """Delete what an equal decision in virtual time left behind: it is made again."""
        folder = journal_folder(self.place.database, self.run)
        if not folder.exists():
            return
        shutil.rmtree(folder)
        if self.place.database.exists():
            with writing(self.place.database) as connection:
                runs.delete(connection, self.run)

    @property
    def _apart_minutes(self) -> float:
        return sum(each.minutes for each in self.means.ledger.apart)

    def _ended(
        self, ending: Ending, *, wants: tuple[Stage, float] | None = None, late: str | None = None
    ) -> Outcome:
        document = None
        if self._verdict is not None:
            if self.means.question_s != self._verdict.setting.question_s:
                self._verdict = with_question_time(self._verdict, question_s=self.means.question_s)
            document = document_of(self._verdict, self.place.database)
            keep(document, self.place.database, setting=self.means.setting)
        return Outcome(
            run_id=self.run,
            document=document,
            asked=self.means.ledger.asked,
            ending=ending,
            left_minutes=self.means.left_minutes,
            wants=wants,
            enough_minutes=0.0
            if wants is None
            else enough_minutes(self.means, self._twins, *wants) + self._apart_minutes,
            given_up=self.means.ledger.given_up,
            late=late,
            apart=self.means.ledger.apart,
        )


def least_s(arms: int) -> float:
    """Return the least budget that may settle something between so many arms."""
    return SHORTEST_BLOCK_S * PAIRS[2] * arms / SPEED_SHARE


def whole_pairs(blocks: Iterable[BlockRow], arms: Sequence[str]) -> int:
    """Return how many block pairs every arm has played, and none of them in vain."""
    played = defaultdict[int, set[str]](set)
    for row in blocks:
        if row.void is None and 0 <= row.pair < FIRST:
            played[row.pair].add(row.arm)
    return sum(played_by >= set(arms) for played_by in played.values())


def usual_fault(blocks: Iterable[BlockRow]) -> str | None:
    """Return why blocks are invalid: the reason that most of them have."""
    reasons = Counter(row.void for row in blocks if row.void is not None)
    return next((reason for reason, _ in reasons.most_common(1)), None)


def knowledge(found: Verdict, answers: Iterable[AnswerRow], *, pairs: int, tried: int) -> Known:
    """Return what follows from a verdict and from the answers of one arm."""
    items = {(row.task, row.context_tokens, row.depth, row.item, row.repetition) for row in answers}
    lengths = {context for _, context, *_ in items}
    return Known(
        decision=found.decision,
        pairs=pairs,
        items=len(items),
        lengths=tuple(sorted(lengths)),
        tried=tried,
    )


def is_over(decision: Decision, *, is_compared: bool) -> bool:
    """Tell whether every arm has a verdict that a rule or the service
    level alone is enough for: one pair says nothing of speed.

    Arms are the same where their answers were compared as well, or cannot be.
    """
    words = ("avoid", "no difference") if is_compared else ("avoid",)
    ended = {each.arm for each in decision.findings if each.asks_for in words}
    ended |= {each.arm for each in decision.service_levels if each.state == "no"}
    challengers = {each.arm for each in decision.server if each.verdict != "test further"}
    return len(challengers) == len(decision.server) and (None in ended or challengers <= ended)


def told(stage: Stage) -> str:
    """Say what a question is."""
    match stage.criterion:
        case "checks":
            return "checks, whether a comparison can work"
        case "service level":
            return "service level, whether a single session meets it"
        case "speed":
            return f"speed, {stage.amount} block pair{'' if stage.amount == 1 else 's'}"
        case "step times":
            return "step times, that twins of the arms are fitted to"
        case "capacity":
            return f"capacity, {stage.amount} draws of sessions"
        case "canary":
            return f"canary, {stage.amount} questions at the longest contexts"
        case "screen":
            return "a screen of the answers, whether they are broken"
        case "accuracy":
            return f"accuracy, {stage.amount:,} paired questions"
