"""Keep what was added to a run, so that its report can say how all of it is made again."""

from contextlib import suppress

from agentload.errors import AgentloadError
from agentload.evidence.view import ADDED
from agentload.model.rows import ProbeRow
from agentload.run.place import StudyPlace
from agentload.run.record import without_secrets
from agentload.store import loader, tables
from agentload.store.database import reading
from agentload.study.document import json_text
from agentload.study.kinds import Study


def remember_addition(study: Study, place: StudyPlace) -> None:
    """Keep a study whose rows were added to a run, behind those that were added before.

    Nothing for a study that is a run of its own, or that was added already.
    """
    run, database = place.into, place.database
    if run is None:
        return
    text = json_text(without_secrets(study))
    with suppress(AgentloadError):  # what was measured is stored, whatever can be said of it
        with reading(database) as connection:
            before = tables.rows(connection, ProbeRow, run_id=run, probe=ADDED)
        if text in (row.settings for row in before):
            return
        row = ProbeRow(
            run_id=run, arm="", probe=ADDED, at_ns=len(before), settings=text, outcome="added"
        )
        loader.keep([row], database, run_id=run, name=ADDED)
