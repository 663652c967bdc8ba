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
from itertools import pairwise
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
    fired: list[tuple[float, float | None, _Job]] = []
    for place, job in jobs:
        if str(job.payload.get("kind")) in _NO_AGENT:
            intake.notes.drop("a job that runs a program, not an agent")
            continue
        if job.target == "main":
            intake.notes.drop("the history of the main session that a job runs in")
        rng = Random(f"{seed} {job.id}")
        times = list(_firings(intake, job, place, (from_s, from_s + hours * 3600), rng))
        fired += [(at_s, later_s - at_s, job) for at_s, later_s in pairwise(times)]
        fired += [(at_s, None, job) for at_s in times[-1:]]
    fired.sort(key=itemgetter(0))
    shared = Segment(role="system", tokens=prefix, key="prefix")
    for number, (at_s, deadline_s, job) in enumerate(fired):
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


def _firings(
    intake: Intake, job: _Job, place: str, span_s: tuple[float, float], rng: Random
) -> Iterator[float]:
    plan, (from_s, until_s) = job.schedule, span_s
    match plan.kind:
        case "at":
            at_s = fields.seconds(plan.at)
            times = iter(() if at_s is None else (at_s,))
        case "every" if plan.every_ms is not None and plan.every_ms >= 1000:
            times = _every(plan.every_ms / 1000, (plan.anchor_ms or job.created_ms) / 1000, from_s)
        case "cron":
            times = _cron(intake, plan, place, from_s)
        case "on-exit" | "stream":
            intake.notes.drop("a job fired by an event, not by the clock")
            return
        case _:
            intake.notes.meet(place, "a schedule of an unknown kind")
            return
    most_s = 0.0
    if plan.stagger_ms is not None:
        most_s = plan.stagger_ms / 1000
    elif plan.kind == "cron" and plan.expr.split()[:1] == ["0"]:
        most_s = _STAGGER_S  # many jobs are due at a full hour
    late_s = rng.random() * most_s
    for _, at_s in zip(range(_MOST), times, strict=False):
        if at_s >= until_s:
            return
        if at_s >= from_s:
            yield at_s + late_s


def _every(step_s: float, anchor_s: float, from_s: float) -> Iterator[float]:
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
