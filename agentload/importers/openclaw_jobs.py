"""OpenClaw's job list (cron/jobs.json): when its scheduled jobs fire, as sessions of one call each.

{"version": 1, "jobs": [{"id", "enabled", "schedule": {"kind": "at" | "every" | "cron",
...}, "sessionTarget", "payload": {"message"}}]}. For a day (or `hours`) after the list's
latest change, every firing is a session: the agent's prefix of `prefix` tokens, equal for
all, and the job's message, answered by `output` tokens; both are judgement, since the
list does not have them (transcripts of the runs do: format openclaw). Jobs on the hour
start within 5 minutes of it, as OpenClaw staggers them, unless they are exact. The next
firing is the deadline. The history of jobs in the main session is not in the list either.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, pairwise
from operator import itemgetter
from random import Random
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from agentload.importers.parts import Head, Intake, JsonRecord, fields
from agentload.model.trace import Segment, Session, Turn
from agentload.plugins import Count, Positive

FILES: Final = ("jobs.json",)

# OpenClaw docs/automation/cron-jobs.md: full hours are staggered by up to 5 minutes unless exact
_STAGGER_S: Final = 300.0
_NO_AGENT: Final = frozenset({"command", "script"})
"""Kinds of payload that make no call."""
_MOST: Final = 100_000
"""Limit on firings of one job: a job every second for a day is a mistake."""


class _Schedule(msgspec.Struct):
    kind: str = ""
    at: Any = None
    every_ms: float | None = msgspec.field(name="everyMs", default=None)
    anchor_ms: float | None = msgspec.field(name="anchorMs", default=None)
    expr: str = ""
    tz: str | None = None
    stagger_ms: float | None = msgspec.field(name="staggerMs", default=None)


class _Job(msgspec.Struct):
    id: str
    schedule: _Schedule
    enabled: bool = True
    created_ms: float = msgspec.field(name="createdAtMs", default=0.0)
    updated_ms: float = msgspec.field(name="updatedAtMs", default=0.0)
    target: str = msgspec.field(name="sessionTarget", default="isolated")
    payload: JsonRecord = {}


class _List(msgspec.Struct):
    jobs: list[_Job]


def sniff(head: Head) -> float:
    """Look for jobs with a schedule."""
    if head.has("jobs") and b'"schedule"' in head.bytes:
        return 0.9
    return 0.0


def sessions(
    intake: Intake,
    *,
    hours: Positive = 24,
    prefix: Positive = 16_000,
    output: Positive = 300,
    seed: Count = 0,
) -> Iterator[Session]:
    """Yield a session for each firing."""
    jobs = []
    for place, found in intake.records(_List):
        jobs += [(place, job) for job in found.jobs if job.enabled]
    changed_ms = [max(job.created_ms, job.updated_ms) for _, job in jobs]
    from_s = max(changed_ms, default=0.0) / 1000
    intake.notes.estimate("prefix and answer of a job's run: `prefix` and `output` tokens")
    firings: list[tuple[float, float | None, _Job]] = []
    for place, job in jobs:
        if str(job.payload.get("kind")) in _NO_AGENT:
            intake.notes.drop("a job that runs a program, not an agent")
            continue
        if job.target == "main":
            intake.notes.drop("the history of the main session that a job runs in")
        rng = Random(f"{seed} {job.id}")
        times = list(_times(intake, job, place, rng, from_s=from_s, until_s=from_s + hours * 3600))
        # An answer is due before the job fires again.
        firings += [(at_s, next_s - at_s, job) for at_s, next_s in pairwise(times)]
        firings += [(at_s, None, job) for at_s in times[-1:]]
    firings.sort(key=itemgetter(0))
    shared = Segment(role="system", tokens=prefix, key="prefix")
    for number, (at_s, deadline_s, job) in enumerate(firings):
        text = str(job.payload.get("message") or job.payload.get("text") or "")
        tokens = max(1, intake.length(text))
        asked = Segment(role="user", tokens=tokens, key=intake.name("user", text))
        turn = Turn(add=(shared, asked), output=output, deadline_s=deadline_s)
        yield Session(
            session=f"s{number}",
            workload="openclaw-cron",
            turns=(turn,),
            start_s=round(at_s - from_s, 3),
        )


def _times(
    intake: Intake, job: _Job, place: str, rng: Random, *, from_s: float, until_s: float
) -> Iterator[float]:
    """Yield when a job fires within a span of time, late by its own share of the stagger."""
    late_s = rng.random() * _stagger_s(job.schedule)
    for at_s in islice(_due_times(intake, job, place, from_s), _MOST):
        if at_s >= until_s:
            return
        if at_s >= from_s:
            yield at_s + late_s


def _stagger_s(plan: _Schedule) -> float:
    """Return by how much a job may be late, so that not all fire at once."""
    if plan.stagger_ms is not None:
        return plan.stagger_ms / 1000
    is_at_full_hour = plan.kind == "cron" and plan.expr.split()[:1] == ["0"]
    return _STAGGER_S if is_at_full_hour else 0.0


def _due_times(intake: Intake, job: _Job, place: str, from_s: float) -> Iterator[float]:
    """Yield when a job is due by its schedule; an endless one begins about *from_s*."""
    plan = job.schedule
    match plan.kind:
        case "at":
            at_s = fields.seconds(plan.at)
            if at_s is not None:
                yield at_s
        case "every" if plan.every_ms is not None and plan.every_ms >= 1000:
            anchor_s = (plan.anchor_ms or job.created_ms) / 1000
            yield from _every(plan.every_ms / 1000, anchor_s, from_s)
        case "cron":
            yield from _cron(intake, plan, place, from_s)
        case "on-exit" | "stream":
            intake.notes.drop("a job fired by an event, not by the clock")
        case _:
            intake.notes.meet(place, "a schedule of an unknown kind")


def _every(step_s: float, anchor_s: float, from_s: float) -> Iterator[float]:
    """Yield the instants of a fixed step from an anchor, those from *from_s* on."""
    number = max(0, -(-(from_s - anchor_s) // step_s))
    while True:
        yield anchor_s + number * step_s
        number += 1


def _cron(intake: Intake, plan: _Schedule, place: str, from_s: float) -> Iterator[float]:
    try:
        zone: tzinfo = ZoneInfo(plan.tz) if plan.tz else UTC
        # cronsim yields times after the one it is given.
        for at in CronSim(plan.expr, datetime.fromtimestamp(from_s, zone) - timedelta(minutes=1)):
            yield at.timestamp()
    except (CronSimError, ZoneInfoNotFoundError, ValueError, OverflowError, OSError):
        intake.notes.meet(place, "an unreadable schedule")
