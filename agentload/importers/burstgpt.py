"""BurstGPT traces: one request a row, with its time, lengths
and, from version 1.2 on, its session and how long it took.

Timestamp,[Session ID,Elapsed time,]Model,Request tokens,Response tokens,Total tokens,Log Type.
Contents have no identity: a later request of a session is assumed to contain the one before and its
answer if it is long enough, otherwise to start a new context. Rows with an empty answer are failed
requests and are skipped. system=N: the first N tokens of every prompt are the same system prompt.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from agentload.importers.parts import Head, Intake, requests, rows
from agentload.plugins import Count, Seconds

FILES: Final = ("*.csv",)
LICENCE: Final = (
    "the public BurstGPT traces are CC-BY 4.0 (HPMLL/BurstGPT): attribute them and cite their paper"
)


class _Row(msgspec.Struct):
    stamp: Seconds = msgspec.field(name="Timestamp")
    prompt: Count = msgspec.field(name="Request tokens")
    output: Count = msgspec.field(name="Response tokens")
    model: str | None = msgspec.field(name="Model", default=None)
    session: str | None = msgspec.field(name="Session ID", default=None)
    elapsed_s: Seconds | None = msgspec.field(name="Elapsed time", default=None)


def sniff(head: Head) -> float:
    """Look for the columns of lengths."""
    return 1.0 if head.has_columns("timestamp", "request tokens", "response tokens") else 0.0


@requests.reader(requests.sessions, workload="burstgpt", holds="unknown")
def sessions(intake: Intake, *, system: Count = 0) -> Iterator[requests.SizedCall]:
    """Yield a session for each session id, and for each row without one."""
    for path in intake.files:
        for place, row in rows(path, _Row, intake.notes):
            if not row.output or not row.prompt:
                intake.notes.drop("a failed request: no answer")
                continue
            yield requests.SizedCall(
                session=requests.session_name(row.session, place),
                at_s=row.stamp,
                place=place,
                prompt=row.prompt,
                output=row.output,
                pieces=requests.leading(system, row.prompt),
                api_s=row.elapsed_s,
                model=row.model,
            )
