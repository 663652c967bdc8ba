"""Keep what was asked so far, and what it took.

The ledger is stored in the run, so that a decision that was stopped or killed resumes there.
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
from agentload.decision.look import Criterion, Look
from agentload.model.rows import ProbeRow
from agentload.run.past import began
from agentload.store import tables
from agentload.store.database import reading
from agentload.store.loader import keep, load
from agentload.store.places import journals
from agentload.verdict.looks import SpeedInterval
from agentload.verdict.policy import DECISION, Setting

GRADED: Final[tuple[Criterion, ...]] = ("canary", "accuracy")
"""Criteria whose questions are all of one kind.

A canary's pace predicts that of the questions about accuracy, and load changes no answer.
"""
LEAST_PACE: Final = 0.02
"""Smallest pace: a lower ratio is of an interruption, or of servers that take no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """State one question that was asked: its expected minutes, its minutes, and what it said."""

    stage: Look
    planned_minutes: float
    minutes: float
    said: str
    intervals: tuple[SpeedInterval, ...] = ()
    """What a look at the pairs found of each arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Hold the questions of a run, in their order."""

    database: Path
    run: str
    asked: tuple[LedgerEntry, ...] = ()
    """Questions that came to their end."""
    lost_minutes: tuple[float, ...] = ()
    """Minutes spent on questions that did not, and were asked again."""
    aside: str | None = None
    """Why the twins of the arms are not used; None where they are."""
    given_up: tuple[EasedLoad, ...] = ()
    """Loads that were given up before this one, in their order."""
    goes_on_as: str | None = None
    """Run in which the decision continued, where this one's load was given up."""
    apart: tuple[Apart, ...] = ()
    """Arms that were compared by themselves; their minutes are spent elsewhere."""

    @property
    def minutes(self) -> float:
        """Minutes that were spent."""
        return sum(each.minutes for each in self.asked) + sum(self.lost_minutes)

    def looks(self, criterion: str) -> dict[int, float]:
        """Return the minutes of each look at a criterion, by the amount that there was then."""
        return {
            each.stage.amount: each.minutes
            for each in self.asked
            if each.stage.criterion == criterion
        }

    def pace(self, *criteria: str) -> float:
        """Return the ratio of minutes taken to minutes priced for these criteria; 1 before any.

        A question's planned minutes are its price times the pace at that time, so they are
        divided by that pace again.
        """
        priced = took = 0.0
        pace = 1.0
        for each in self.asked:
            if each.stage.criterion in criteria and each.planned_minutes > 0:
                priced = priced + each.planned_minutes / pace
                took = took + each.minutes
                pace = max(LEAST_PACE, took / priced)
        return pace

    def write(
        self,
        outcome: Literal["asking", "asked", "stopped"],
        asked: LedgerEntry,
        *,
        aside: str | None = None,
        setting: Setting | None = None,
    ) -> "Ledger":
        """Write down that a question is asked, and then how it ended.

        If the process is killed in between, the question has spent its time all the same. The
        *setting* of the decision is kept next to it, for whoever reads the run later.
        """
        # Part of the row's key: how a question ended replaces the row that says it is asked.
        number = {"number": len(self.asked) + len(self.lost_minutes)}
        self._keep(outcome, number, asdict(asked) | {"aside": aside}, setting)
        if outcome == "asking":
            return self
        return self.with_entry(outcome, asked, aside=aside)

    def with_entry(
        self, outcome: Literal["asked", "stopped"], entry: LedgerEntry, *, aside: str | None
    ) -> "Ledger":
        """Return the ledger with one more question, which came to its end or was stopped."""
        if outcome == "asked":
            return replace(self, asked=(*self.asked, entry), aside=aside)
        return replace(self, lost_minutes=(*self.lost_minutes, entry.minutes), aside=aside)

    def end(self, setting: Setting) -> None:
        """Write down the setting that a decision ended with, and so the budget that it lacked."""
        self._keep("ended", {"ended": len(self.asked)}, {}, setting)

    def ease(self, step: EasedLoad, *, setting: Setting | None) -> "Ledger":
        """Give up the load of this run; return the ledger of the run that continues with less.

        Servers and their answers are what they were, so neither checks nor graded questions are
        asked again; all other time is lost.
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
        made._take_over({"eased": step.now}, setting)
        self._keep("given up", {"given_up": step.before}, {"run": run}, setting)
        return made

    def of_comparison(self, run: str) -> "Ledger":
        """Return the ledger of a comparison of its own.

        Checks are not asked again there; they are paid for here.
        """
        checks = [each for each in self.asked if each.stage.criterion == "checks"]
        asked = tuple(replace(each, minutes=0.0) for each in checks)
        made = Ledger(database=self.database, run=run, asked=asked)
        made._take_over({}, None)
        return made

    def set_apart(self, found: Apart) -> "Ledger":
        """Write down the result for an arm that was compared by itself."""
        self._keep("apart", {"apart": len(self.apart)}, asdict(found), None)
        return replace(self, apart=(*self.apart, found))

    def _take_over(self, key: Mapping[str, float], setting: Setting | None) -> None:
        """Write down what this run takes over from another, such as that of a heavier load."""
        said = {
            "loads": self.given_up,
            "asked": self.asked,
            "lost": self.lost_minutes,
            "apart": self.apart,
        }
        self._keep("eased", key, msgspec.to_builtins(said), setting)

    def run_under(self, step: EasedLoad) -> str:
        """Return the name of the run that continues with a lighter load."""
        stem = self.run.removesuffix(self.given_up[-1].suffix) if self.given_up else self.run
        return f"{stem}{step.suffix}"

    def _keep(
        self,
        outcome: str,
        key: Mapping[str, float],
        detail: Mapping[str, Any],
        setting: Setting | None,
    ) -> None:
        told = {**detail, "setting": setting and msgspec.to_builtins(setting)}
        row = ProbeRow(
            run_id=self.run,
            arm="",
            probe=DECISION,
            at_ns=time.time_ns(),
            settings=json.dumps(key),
            outcome=outcome,
            detail=json.dumps(told, sort_keys=True),
        )
        keep([row], self.database, run_id=self.run, name=DECISION)


def ledger(database: Path, run: str) -> Ledger:
    """Read what was asked in a run.

    A question that was killed is closed here: it took until its journals were last written. One
    that ended is in the journal before it is in the database, which is brought up to it.
    """
    rows: Sequence[ProbeRow] = ()
    written = [path for path in journals(database, run) if path.stem == DECISION]
    if written:
        load(written, database)
    if database.exists():
        with reading(database) as connection:
            rows = tables.rows(connection, ProbeRow, run_id=run, probe=DECISION)
    made = Ledger(database=database, run=run)
    last_ns = max((path.stat().st_mtime_ns for path in journals(database, run)), default=0)
    if not rows and (first := began(database, run)) is not None:  # killed during its first question
        return replace(made, lost_minutes=(max(0, last_ns - first.created_ns) / 60e9,))
    for row in sorted(rows, key=lambda row: row.at_ns):
        made = _with_row(made, row, last_ns=last_ns)
    return made


def _with_row(made: Ledger, row: ProbeRow, *, last_ns: int) -> Ledger:
    """Return a ledger with what one more row of its run says."""
    found = json.loads(row.detail or "{}")
    setting = found.pop("setting", None)
    match row.outcome:
        case "given up":
            return replace(made, goes_on_as=found["run"])
        case "ended":
            return made
        case "eased":
            return replace(
                made,
                given_up=msgspec.convert(found["loads"], tuple[EasedLoad, ...]),
                asked=msgspec.convert(found["asked"], tuple[LedgerEntry, ...]),
                lost_minutes=tuple(found["lost"]),
                apart=msgspec.convert(found["apart"], tuple[Apart, ...]),
            )
        case "apart":
            return replace(made, apart=(*made.apart, Apart(**found)))
        case "asked" | "stopped" as outcome:
            aside = found.pop("aside")
            return made.with_entry(outcome, msgspec.convert(found, LedgerEntry), aside=aside)
        case _:  # "asking", which no ending replaced: the process was killed
            aside = found.pop("aside")
            killed_minutes = max(0, last_ns - row.at_ns) / 60e9
            entry = replace(msgspec.convert(found, LedgerEntry), minutes=killed_minutes)
            judged = setting and msgspec.convert(setting, Setting)
            return made.write("stopped", entry, aside=aside, setting=judged)
