"""State how a decision ended; keep its document, and delete what an equal one left."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

from agentload.decision.apart import Apart
from agentload.decision.ledger import LedgerEntry
from agentload.decision.lighter import EasedLoad
from agentload.decision.look import Look
from agentload.model.record import Record
from agentload.report.advise import document_of, keep
from agentload.report.parts import Document
from agentload.store import runs
from agentload.store.database import writing
from agentload.store.places import journal_folder
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import Verdict, with_question_pace

DecisionEnding: TypeAlias = Literal["decided", "open", "budget", "stopped", "late"]
"""How a decision ended.

decided: nothing is open; open: nothing that could be asked would settle it; budget: the next
question costs more than is left; late: this client could not keep up with the smallest load.
"""


class DecisionOutcome(Record):
    """State how a decision ended, and what it asked until then."""

    run_id: str
    document: Document | None
    asked: tuple[LedgerEntry, ...]
    ending: DecisionEnding
    left_minutes: float
    wants: tuple[Look, float] | None = None
    """Look that is likely to settle it, and its minutes, where the budget did not reach."""
    enough_minutes: float = 0.0
    """Minutes of the budget that pays for that look and, made longer by it, all before."""
    given_up: tuple[EasedLoad, ...] = ()
    """Loads that were given up because requests left late, in their order."""
    late: str | None = None
    """Why nothing could be measured, where even the smallest load was too much to send."""
    apart: tuple[Apart, ...] = ()
    """Arms that were compared by themselves, in runs of their own."""


def kept_document(found: Verdict, database: Path, setting: Setting) -> Document:
    """Make the document of a verdict, and keep it with the run.

    Further questions take as long as the setting says.
    """
    if setting.question_pace != found.setting.question_pace:
        found = with_question_pace(found, pace=setting.question_pace)
    document = document_of(replace(found, setting=setting), database)
    keep(document, database, setting=setting)
    return document


def forget_run(database: Path, run: str) -> None:
    """Delete what an equal decision in virtual time left: it is made again."""
    folder = journal_folder(database, run)
    if not folder.exists():
        return
    shutil.rmtree(folder)
    if database.exists():
        with writing(database) as connection:
            runs.delete(connection, run)
