"""Decide on deployments that are drawn: the product decides, and each answer is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import gettempdir
from typing import cast

from advisor.decide import decide
from advisor.loads import FACTORS
from advisor.statistics.carried_loads import INVERSE
from advisor.verdict import Decision
from agentload.decision.agenda import Agenda
from agentload.decision.budget import BudgetLimit
from agentload.decision.carried_load import ORDINARY, LoadTrials
from agentload.decision.forecast import LookPrice
from agentload.decision.known import Known
from agentload.decision.ledger import Ledger, LedgerEntry
from agentload.decision.long_run import KNOWN
from agentload.decision.look import DRAWS, LENGTHS, PAIRS, Criterion, Look
from agentload.decision.play import Deciding
from agentload.decision.twin import Twins
from agentload.evidence.twin import Twin
from agentload.model.profile import ArmProfile
from agentload.run.audience import Audience
from agentload.run.capacity import ArmLoad, arm_loads, search
from agentload.run.find import SearchTrials
from agentload.run.place import StudyPlace
from agentload.run.trial import Trial
from agentload.study.kinds import Decide, Search
from agentload.study.parts import Slo, TraceRef, Virtual
from tests.decision.deployments import BUDGET_MINUTES, POPULATION, UNKNOWN, Drawn


@dataclass(kw_only=True)
class _Asked:
    """A kind of question whose answers are drawn."""

    deciding: DecidingDrawn
    criterion: Criterion

    def price(self, look: Look, _: Known) -> LookPrice:
        """Return what is missing of it."""
        return LookPrice(minutes=self.deciding.minutes(look))

    def ask(self, look: Look, _: Known, __: BudgetLimit) -> float:
        """Take so much more of the deployment into account."""
        deployment, minutes = self.deciding.deployment, self.deciding.minutes(look)
        match look.criterion:
            case "speed":
                deployment.pairs = look.amount
            case "accuracy":
                deployment.items, deployment.lengths = look.amount, look.lengths or LENGTHS
            case "step times":
                self.deciding.has_twins = True
            case _:
                pass
        return minutes

    def said(self, _: Known) -> str:
        """Say nothing."""
        return ""


class _DrawnTwins(Twins):
    """Twins that know what each draw of sessions carries, but for what they miss."""

    def fitted(self) -> Mapping[str, Twin]:
        """Return the arms' names for engines: what they carry is drawn."""
        return {} if self.aside is not None else {arm: cast(Twin, arm) for arm in self.means.arms}


class _DrawnTrials(LoadTrials):
    """The trials of a decision, drawn."""

    deployment: Drawn

    @cached_property
    def _said(self) -> tuple[ArmLoad, ...]:
        said = ((arm, self.deployment.by_long_runs(arm)) for arm in self.twins.fitted())
        return tuple(
            ArmLoad(
                arm=arm, holds=holds, low=holds / (1 + KNOWN), high=holds * (1 + KNOWN), trials=()
            )
            for arm, holds in said
        )

    @property
    def _twins(self) -> dict[str, ArmProfile]:
        """Return the arms' names for engines, as their twins have them."""
        return {arm: cast(ArmProfile, arm) for arm in self.twins.fitted()}

    def _limit(self, twin: ArmProfile, study: Search, near: float, number: int) -> float | None:
        limit = self.deployment.by_twin(cast(str, twin), number)
        return limit if near / ORDINARY < limit < near * ORDINARY else None

    def _stretch(self, twin: ArmProfile, study: Search, limit: float, number: int) -> float | None:
        return INVERSE

    def _expected(
        self, twin: ArmProfile, study: Search, load: int, number: int
    ) -> tuple[float, ...]:
        return self.deployment.on_twin(cast(str, twin), load, number)

    def _share(self, twin: ArmProfile, study: Search, load: int, number: int) -> float:
        return self.deployment.on_twin(cast(str, twin), load, number)[FACTORS.index(1.0)]

    def tried(self, study: Search, trials: SearchTrials, limit: BudgetLimit) -> tuple[ArmLoad, ...]:
        """Play the loads that are asked for, or search."""
        tried: dict[str, tuple[Trial, ...]] = {}
        minutes = study.trial_s / 60
        for arm in self.deployment.carried:
            if trials.loads:
                tried[arm] = tuple(
                    each.of(self.deployment.trial(arm, each.load, each.seed, minutes))
                    for each in trials.loads[arm]
                )
            else:

                def attempt(load: float, number: int, *, arm: str = arm) -> Trial:
                    return self.deployment.trial(arm, load, UNKNOWN + number, minutes)

                tried[arm] = search(
                    arm,
                    attempt,
                    start=8,
                    whole=True,
                    share=study.share,
                    others=tried,
                    most=trials.most,
                )
        before = trials.before
        self.deployment.trials = {arm: (*before.get(arm, ()), *own) for arm, own in tried.items()}
        return arm_loads(self.deployment.trials, share=study.share)

    def say_sizes(self, said: Sequence[ArmLoad]) -> None:
        """Say nothing: no turn is played on a twin that is drawn."""

    def _seed(self, number: int) -> int:
        return number


class DecidingDrawn(Deciding):
    """A decision on a deployment that is drawn: its
    sequence, its trials and its advisor are the product's.
    """

    def __init__(self, deployment: Drawn, *, budget_minutes: float = BUDGET_MINUTES) -> None:
        """Decide between the arms of a deployment."""
        self.deployment, self.decision, self.has_twins = deployment, None, False
        study = Decide(
            traces=(TraceRef(path="chat"),),
            servers=Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8")),
            budget_s=60 * budget_minutes,
            slo=Slo(ttft_ms=2000.0, tpot_ms=40.0) if deployment.is_searching else None,
            agents=400 if deployment.is_searching else None,
        )
        super().__init__(
            study=study,
            place=StudyPlace(database=Path(gettempdir()) / "never-written.duckdb", run="drawn"),
            audience=Audience(),
        )
        self._agenda = _DrawnAgenda(self)

    decision: Decision | None

    def minutes(self, stage: Look) -> float:
        """Return what a question takes."""
        prices, deployment = POPULATION["minutes"], self.deployment
        match stage.criterion:
            case "speed":
                each = prices["pair"] + (prices["start"] if deployment.in_turn is None else 0.0)
                return float(each * (stage.amount - deployment.pairs))
            case "accuracy":
                return float(prices["question"] * (stage.amount - deployment.items))
            case "step times":
                return float(prices["step times"])
            case "canary":
                return float(prices["canary"])
            case _:
                return 0.0

    def _know(self, asking: Criterion | None = None) -> None:
        """Decide on what was asked for."""
        deployment, twins = self.deployment, self._agenda.twins
        self.known = Known(ledger=self.known.ledger, pairs=deployment.pairs)
        if not deployment.pairs:
            return
        self.decision = decide(deployment.evidence(), self.means.setting().policy)
        found = replace(self.known, decision=self.decision, trials=deployment.trials)
        if deployment.pairs < PAIRS[0] and found.undecided:
            return
        self.known = replace(
            found,
            items=deployment.items,
            lengths=deployment.lengths if deployment.items else (),
            draws_asked=found.draws if twins.aside is None else DRAWS[-1],
            grid_plays_wanted=int(deployment.is_searching and not self.has_twins),
            starts=deployment.in_turn or 1,
        )

    def _write(self, outcome: object, entry: LedgerEntry) -> None:
        before = self.known.ledger
        self.known = replace(self.known, ledger=replace(before, asked=(*before.asked, entry)))


class _DrawnAgenda(Agenda):
    """The questions of a decision whose answers are drawn."""

    def __init__(self, deciding: DecidingDrawn) -> None:
        """Draw the answers to all of them."""
        super().__init__(deciding.means, aside=None, learn=lambda _: None)
        self.twins = _DrawnTwins(means=deciding.means)
        trials = _DrawnTrials(means=deciding.means, twins=self.twins)
        trials.deployment = deciding.deployment
        for kind in self.of:
            self.of[kind] = _Asked(deciding=deciding, criterion=kind)
        self.of["capacity"] = trials

    def cheap(self, asked: Ledger, asking: Criterion | None = None) -> tuple[Look, ...]:
        """Return a canary: it takes its time, and finds nothing in arms of which none is broken."""
        return () if asked.looks("canary") else (Look(criterion="canary", amount=36),)
