"""Keep which questions a decision asked, and how many minutes each took.

A decision that was stopped or killed resumes from its ledger, so the ledger is stored in the run:
as probe rows, which `ledger` reads in their order. The outcome of a row says what it records:

- "asking": a question began. The row that ends the question has the same key and replaces it; if
  none does, the process was killed, and the question spent its time all the same.
- "asked", "stopped": the question had its answer, or had none and will be asked again.
- "eased": what this run takes over from a run whose load was too heavy, or from the decision
  that this comparison is a part of. "given up": the run that continues in place of this one.
- "apart": the result for an arm that was compared by itself.
- "ended": nothing but the setting that the decision ended with. Every row may keep the setting, for
  whoever reads the run later.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from agentload.decision.apart import Apart
from agentload.decision.lighter import EasedLoad
from agentload.decision.look import Criterion, Look
from agentload.model.record import Record
from agentload.model.rows import ProbeRow
from agentload.store import tables
from agentload.store.database import reading
from agentload.store.loader import keep, load
from agentload.store.places import began, journals
from agentload.verdict.looks import SpeedInterval
from agentload.verdict.policy import DECISION, Setting

GRADED: Final[tuple[Criterion, ...]] = ("canary", "accuracy")
"""Criteria that ask graded questions.

A canary's pace predicts that of the questions about accuracy, and load changes no answer.
"""
LEAST_PACE: Final = 0.02
"""Smallest pace: a lower ratio is of an interruption, or of servers that take no time."""
_NS_PER_MINUTE: Final = 60e9


class LedgerEntry(Record):
    """State one question that was asked: the minutes planned and taken, and what came out."""

    stage: Look
    planned_minutes: float
    minutes: float
    said: str
    intervals: tuple[SpeedInterval, ...] = ()
    """What a look at the pairs found of each arm."""


class Ledger(Record):
    """Hold the questions of one run, in their order."""

    database: Path
    run: str
    asked: tuple[LedgerEntry, ...] = ()
    """Questions that have their answer."""
    lost_minutes: tuple[float, ...] = ()
    """Minutes spent on questions that were stopped, each of which is asked again."""
    aside: str | None = None
    """Why the twins of the arms are set aside; None where they are used."""
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

        A question was planned at its price times the pace of that time.
        """
        priced = taken = 0.0
        pace = 1.0
        for entry in self.asked:
            if entry.stage.criterion in criteria and entry.planned_minutes > 0:
                priced += entry.planned_minutes / pace
                taken += entry.minutes
                pace = max(LEAST_PACE, taken / priced)
        return pace

    def write(
        self,
        outcome: Literal["asking", "asked", "stopped"],
        asked: LedgerEntry,
        *,
        aside: str | None = None,
        setting: Setting | None = None,
    ) -> "Ledger":
        """Write down that a question is asked, or how it ended."""
        # The number is equal when a question begins and when it ends: it is the rows' key.
        key = {"number": len(self.asked) + len(self.lost_minutes)}
        self._keep(outcome, key, asdict(asked) | {"aside": aside}, setting)
        if outcome == "asking":
            return self
        return self.with_entry(outcome, asked, aside=aside)

    def with_entry(
        self, outcome: Literal["asked", "stopped"], entry: LedgerEntry, *, aside: str | None
    ) -> "Ledger":
        """Return the ledger with one more question, which was answered or stopped."""
        if outcome == "asked":
            return replace(self, asked=(*self.asked, entry), aside=aside)
        return replace(self, lost_minutes=(*self.lost_minutes, entry.minutes), aside=aside)

    def end(self, setting: Setting) -> None:
        """Write down the setting that a decision ended with, which has the budget it lacked."""
        self._keep("ended", {"ended": len(self.asked)}, {}, setting)

    def ease(self, step: EasedLoad, *, setting: Setting | None) -> "Ledger":
        """Give up the load of this run; return the ledger of the run that continues with less.

        The load changes neither servers nor their answers, so the checks and the graded questions
        are kept; all other time is lost.
        """
        run = self.run_under(step)
        kept = tuple(each for each in self.asked if each.stage.criterion in ("checks", *GRADED))
        kept_minutes = sum(each.minutes for each in kept)
        eased = Ledger(
            database=self.database,
            run=run,
            asked=kept,
            lost_minutes=(self.minutes - kept_minutes,),
            given_up=(*self.given_up, step),
            apart=self.apart,
        )
        eased._take_over({"eased": step.now}, setting)
        self._keep("given up", {"given_up": step.before}, {"run": run}, setting)
        return eased

    def of_comparison(self, run: str) -> "Ledger":
        """Return the ledger of the run that compares one arm by itself.

        That run takes over the checks; their minutes stay here.
        """
        checks = [each for each in self.asked if each.stage.criterion == "checks"]
        asked = tuple(replace(each, minutes=0.0) for each in checks)
        comparison = Ledger(database=self.database, run=run, asked=asked)
        comparison._take_over({}, None)
        return comparison

    def set_apart(self, found: Apart) -> "Ledger":
        """Write down the result for an arm that was compared by itself."""
        self._keep("apart", {"apart": len(self.apart)}, asdict(found), None)
        return replace(self, apart=(*self.apart, found))

    def _take_over(self, key: Mapping[str, float], setting: Setting | None) -> None:
        """Write down what this run takes over from another."""
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
        kept = {**detail, "setting": setting and msgspec.to_builtins(setting)}
        row = ProbeRow(
            run_id=self.run,
            arm="",
            probe=DECISION,
            at_ns=time.time_ns(),
            settings=json.dumps(key),
            outcome=outcome,
            detail=json.dumps(kept, sort_keys=True),
        )
        keep([row], self.database, run_id=self.run, name=DECISION)


def ledger(database: Path, run: str) -> Ledger:
    """Read what was asked in a run.

    A question during which the process was killed is closed here: it took until its journals were
    last written.
    """
    last_ns = max((path.stat().st_mtime_ns for path in journals(database, run)), default=0)
    rows = _rows(database, run)
    read = Ledger(database=database, run=run)
    if not rows and (first := began(database, run)) is not None:  # killed during its first question
        return replace(read, lost_minutes=(_minutes(first.created_ns, last_ns),))
    for row in sorted(rows, key=lambda row: row.at_ns):
        read = _with_row(read, row, last_ns=last_ns)
    return read


def _rows(database: Path, run: str) -> Sequence[ProbeRow]:
    """Return a ledger's rows; those that a journal holds alone are first loaded."""
    written = [path for path in journals(database, run) if path.stem == DECISION]
    if written:
        load(written, database)
    if not database.exists():
        return ()
    with reading(database) as connection:
        return tables.rows(connection, ProbeRow, run_id=run, probe=DECISION)


def _minutes(start_ns: int, end_ns: int) -> float:
    return max(0, end_ns - start_ns) / _NS_PER_MINUTE


def _with_row(before: Ledger, row: ProbeRow, *, last_ns: int) -> Ledger:
    """Return a ledger with what one more row of its run says."""
    detail = json.loads(row.detail or "{}")
    setting = detail.pop("setting", None)
    match row.outcome:
        case "given up":
            return replace(before, goes_on_as=detail["run"])
        case "ended":
            return before
        case "eased":
            return replace(
                before,
                given_up=msgspec.convert(detail["loads"], tuple[EasedLoad, ...]),
                asked=msgspec.convert(detail["asked"], tuple[LedgerEntry, ...]),
                lost_minutes=tuple(detail["lost"]),
                apart=msgspec.convert(detail["apart"], tuple[Apart, ...]),
            )
        case "apart":
            return replace(before, apart=(*before.apart, Apart(**detail)))
        case "asked" | "stopped" as outcome:
            aside = detail.pop("aside")
            return before.with_entry(outcome, msgspec.convert(detail, LedgerEntry), aside=aside)
        case _:  # "asking", which no ending replaced: the process was killed
            aside = detail.pop("aside")
            entry = msgspec.convert(detail, LedgerEntry)
            killed = replace(entry, minutes=_minutes(row.at_ns, last_ns))
            judged = setting and msgspec.convert(setting, Setting)
            return before.write("stopped", killed, aside=aside, setting=judged)
