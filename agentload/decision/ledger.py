"""What was asked so far, and what it took.

It lies in the run, so that a decision goes on where it was stopped or killed.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from agentload.decision.apart import Apart
from agentload.decision.lighter import EasedLoad
from agentload.decision.sequence import Criterion, Stage
from agentload.model.rows import ProbeRow
from agentload.run.past import began
from agentload.store import tables
from agentload.store.database import reading
from agentload.store.loader import keep
from agentload.store.places import journals
from agentload.verdict.policy import DECISION, Setting

EASED: Final = "eased"
GIVEN_UP: Final = "given up"
APART: Final = "apart"
GRADED: Final[tuple[Criterion, ...]] = ("canary", "accuracy")
"""Questions of one kind: what a canary took says what
later ones take, and no load changes their answers.
"""
LEAST_PACE: Final = 0.02
"""Less was interrupted, or played by servers that take no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question that was asked: what it was expected to take, what it took, and what it said."""

    stage: Stage
    planned_minutes: float
    minutes: float
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The questions of a run, in their order."""

    database: Path
    run: str
    asked: tuple[Asked, ...] = ()
    """Those that came to their end."""
    lost_minutes: tuple[float, ...] = ()
    """What was spent on those that did not, and were asked again."""
    aside: str | None = None
    """Why the twins are set aside."""
    given_up: tuple[EasedLoad, ...] = ()
    """The loads that were given up before this one, in their order."""
    goes_on_as: str | None = None
    """The run that the decision went on as, where this one's load was given up."""
    apart: tuple[Apart, ...] = ()
    """The arms that were compared by themselves; their minutes are spent elsewhere."""

    @property
    def minutes(self) -> float:
        """Return what was spent."""
        return sum(each.minutes for each in self.asked) + sum(self.lost_minutes)

    def looks(self, criterion: str) -> dict[int, float]:
        """Return the minutes of each look at a criterion, by how much there was in all."""
        return {
            each.stage.amount: each.minutes
            for each in self.asked
            if each.stage.criterion == criterion
        }

    def pace(self, *criteria: str) -> float:
        """Return how many times the minutes that a price is made of were
        taken by what was asked of these criteria; 1 before any was.

        Each was planned at the pace of those before it.
        """
        priced = took = 0.0
        pace = 1.0
        for each in self.asked:
            if each.stage.criterion in criteria and each.planned_minutes > 0:
                priced, took = priced + each.planned_minutes / pace, took + each.minutes
                pace = max(LEAST_PACE, took / priced)
        return pace

    def write(
        self,
        outcome: Literal["asking", "asked", "stopped"],
        asked: Asked,
        *,
        aside: str | None = None,
        setting: Setting | None = None,
    ) -> "Ledger":
        """Write down that a question is asked, and then how it ended:
        should nobody live to do so, its time was spent all the same.

        The *setting* that it is decided with lies beside it, for whoever reads the run later.
        """
        number = {"number": len(self.asked) + len(self.lost_minutes)}
        self._keep(outcome, number, asdict(asked) | {"aside": aside}, setting)
        match outcome:
            case "asked":
                return replace(self, asked=(*self.asked, asked), aside=aside)
            case "stopped":
                return replace(self, lost_minutes=(*self.lost_minutes, asked.minutes), aside=aside)
            case "asking":
                return self

    def ease(self, step: EasedLoad, *, setting: Setting | None) -> "Ledger":
        """Give the load of this run up; return the ledger of the run that goes on with less.

        Servers and their answers are what they were, so neither checks
        nor graded questions are asked again; all other time is spent.
        """
        run = self.run_under(step)
        kept = tuple(each for each in self.asked if each.stage.criterion in ("checks", *GRADED))
        lost = self.minutes - sum(each.minutes for each in kept)
        made = Ledger(
            database=self.database,
            run=run,
            asked=kept,
            lost_minutes=(lost,),
            aside=None,
            given_up=(*self.given_up, step),
            apart=self.apart,
        )
        made._begin({"eased": step.now}, setting)
        self._keep(GIVEN_UP, {"given_up": step.before}, {"run": run}, setting)
        return made

    def beside(self, run: str) -> "Ledger":
        """Return the ledger of a comparison of its own, in which
        checks are not asked again; they are paid for here.
        """
        made = Ledger(
            database=self.database,
            run=run,
            asked=tuple(replace(each, minutes=0.0) for each in self._checks),
        )
        made._begin({}, None)
        return made

    def set_apart(self, found: Apart) -> "Ledger":
        """Write down what came of an arm that was compared by itself."""
        self._keep(APART, {"apart": len(self.apart)}, asdict(found), None)
        return replace(self, apart=(*self.apart, found))

    @property
    def _checks(self) -> tuple[Asked, ...]:
        return tuple(each for each in self.asked if each.stage.criterion == "checks")

    def _begin(self, settings: Mapping[str, float], setting: Setting | None) -> None:
        """Write down what a run begins with that has another before it."""
        said = {
            "loads": self.given_up,
            "asked": self.asked,
            "lost": self.lost_minutes,
            "apart": self.apart,
        }
        self._keep(EASED, settings, msgspec.to_builtins(said), setting)

    def run_under(self, step: EasedLoad) -> str:
        """Return the run that goes on with a lighter load."""
        stem = self.run.removesuffix(self.given_up[-1].suffix) if self.given_up else self.run
        return f"{stem}{step.suffix}"

    def _keep(
        self,
        outcome: str,
        settings: Mapping[str, float],
        detail: Mapping[str, Any],
        setting: Setting | None,
    ) -> None:
        told = {**detail, "setting": setting and msgspec.to_builtins(setting)}
        row = ProbeRow(
            run_id=self.run,
            arm="",
            probe=DECISION,
            at_ns=time.time_ns(),
            settings=json.dumps(settings),
            outcome=outcome,
            detail=json.dumps(told, sort_keys=True),
        )
        keep([row], self.database, run_id=self.run, name=DECISION)


def ledger(database: Path, run: str) -> Ledger:
    """Read what was asked in a run.

    A question that was killed is closed here: it took until the last row that it left behind.
    """
    rows: Sequence[ProbeRow] = ()
    if database.exists():
        with reading(database) as connection:
            rows = tables.rows(connection, ProbeRow, run_id=run, probe=DECISION)
    made = Ledger(database=database, run=run)
    last_ns = max((path.stat().st_mtime_ns for path in journals(database, run)), default=0)
    if not rows and (first := began(database, run)) is not None:  # killed over its first question
        return replace(made, lost_minutes=(max(0, last_ns - first.created_ns) / 60e9,))
    for row in sorted(rows, key=lambda row: row.at_ns):
        found = json.loads(row.detail or "{}")
        if row.outcome == GIVEN_UP:
            made = replace(made, goes_on_as=found["run"])
            continue
        if row.outcome == EASED:
            made = replace(
                made,
                given_up=msgspec.convert(found["loads"], tuple[EasedLoad, ...]),
                asked=msgspec.convert(found["asked"], tuple[Asked, ...]),
                lost_minutes=tuple(found["lost"]),
                apart=msgspec.convert(found["apart"], tuple[Apart, ...]),
            )
            continue
        if row.outcome == APART:
            found.pop("setting")
            made = replace(made, apart=(*made.apart, Apart(**found)))
            continue
        aside, stage, setting = found.pop("aside"), found.pop("stage"), found.pop("setting", None)
        asked = Asked(stage=Stage(**stage | {"lengths": tuple(stage["lengths"])}), **found)
        match row.outcome:
            case "asked":
                made = replace(made, asked=(*made.asked, asked), aside=aside)
            case "stopped":
                made = replace(made, lost_minutes=(*made.lost_minutes, asked.minutes), aside=aside)
            case _:
                ended = replace(asked, minutes=max(0, last_ns - row.at_ns) / 60e9)
                made = made.write(
                    "stopped",
                    ended,
                    aside=aside,
                    setting=setting and msgspec.convert(setting, Setting),
                )
    return made
