"""Write what was decided on a run, or between two, as a document, and store it."""

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from agentload import __version__
from agentload.errors import AgentloadError
from agentload.evidence.view import RunView
from agentload.exposition.scrape import Scrape
from agentload.model.rows import VerdictRow
from agentload.report.document import document
from agentload.report.parts import Document, RunFacts
from agentload.report.read import facts
from agentload.report.render import render
from agentload.store import loader, tables
from agentload.store.database import reading
from agentload.verdict.comparison import comparison
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import Verdict, verdict

JOURNAL: Final = "verdicts"


def advise(
    database: Path,
    run: str | None,
    *,
    setting: Setting,
    reference: str | None = None,
    profile: str | None = None,
    production: Scrape | None = None,
) -> Document:
    """Decide on a run, as `verdict` does, and return the document.

    `production` is what a server there reports: the run's load is compared with it.
    """
    found = verdict(database, run, setting=setting, reference=reference, profile=profile)
    return document_of(found, database, production=production)


def document_of(found: Verdict, database: Path, *, production: Scrape | None = None) -> Document:
    """Say the verdict on a run, with the facts that its database holds."""
    known = facts(database, found.view, production=production, setting=found.setting)
    return document(found.decision, found.evidence, known, policy=found.setting.policy)


def compare(
    database: Path,
    before: str,
    after: str,
    *,
    setting: Setting,
    arm: str | None = None,
    profile: str | None = None,
) -> Document:
    """Say whether *after* is better or worse than *before* on one arm.

    By default the arm is the first that both have.
    """
    both = comparison(database, before, after, setting=setting, profile=profile)
    chosen = both.arm(arm)
    found = both.verdict(chosen)
    known = _facts(database, both.views, chosen)
    return document(found.decision, found.evidence, known, policy=setting.policy)


def _facts(database: Path, views: tuple[RunView, RunView], arm: str) -> RunFacts:
    """Join the facts of both runs about the arm.

    How the later run was made counts; servers and series are named after their run.
    """
    sides = tuple((view.name, facts(database, view)) for view in views)
    servers = tuple(
        replace(each, arm=run)
        for run, side in sides
        for each in side.made.servers
        if each.arm == arm
    )
    timelines = tuple(
        replace(each, arm=run) for run, side in sides for each in side.timelines if each.arm == arm
    )
    later = sides[1][1]
    return RunFacts(
        made=replace(later.made, servers=servers, compared_with=views[0].name),
        study=later.study,
        timelines=timelines,
    )


def keep(document: Document, database: Path, *, setting: Setting) -> None:
    """Store a decision as a row of `verdicts`, unless the last row there is equal.

    The journal is written first, so that a database can be built again.
    """
    row = VerdictRow(
        run_id=document.run,
        at_ns=time.time_ns(),
        policy=setting.name,
        decision=render(document, "json"),
        headline=document.headline,
        verdict=document.decision.choice.verdict,
        version=__version__,
    )
    with reading(database) as connection:
        before = tables.rows(connection, VerdictRow, run_id=row.run_id, policy=row.policy)
    if before and before[-1] == replace(row, at_ns=before[-1].at_ns):
        return
    loader.keep([row], database, run_id=document.run, name=JOURNAL)


def settle(database: Path, run: str) -> None:
    """Decide on a run that has ended and store the decision, for lists to show.

    Nothing where there is too little to decide on.
    """
    with suppress(AgentloadError):  # what was measured is stored, whatever can be said of it
        keep(advise(database, run, setting=Setting()), database, setting=Setting())
