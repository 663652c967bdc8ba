"""What one execution may take: calls, minutes and dollars of its budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agentload.endpoints.endpoint import Endpoint
from agentload.errors import AgentloadError
from agentload.layout.plan import families
from agentload.model.trace import Session, Trace
from agentload.watch.job import Job

HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """When an execution is stopped, and why."""

    seconds: float
    told: str


def usd_per_hour(job: Job, endpoints: Sequence[Endpoint]) -> float | None:
    """Return what the servers cost while they are measured: the policy's price of a GPU, else the arms file's; None where one has none."""
    total = 0.0
    for endpoint in endpoints:
        price = endpoint.price_per_hour if job.setting.price is None else job.setting.price.usd_per_gpu_hour
        if price is None:
            return None
        total += price * (endpoint.gpus or 1) * len(endpoint.metrics_urls)
    return total


def limit(job: Job, price: float | None, *, is_controlled: bool) -> Limit:
    """Return the tighter one of minutes and dollars; raise `AgentloadError` when dollars are bounded and no price is known."""
    budget, times = job.budget, job.times(is_controlled=is_controlled)
    twice = "" if times == 1 else ", twice for a run with its control"
    by_time = Limit(seconds=60 * budget.minutes * times, told=f"time limit of {budget.minutes:g} minutes{twice}")
    if budget.usd is None:
        return by_time
    if not price:
        raise AgentloadError(
            f"job '{job.name}': budget.usd is {budget.usd:g}, but not every endpoint has a price",
            hint="price_per_hour in the arms file, or price: {usd_per_gpu_hour: 2.5, source: …} in the policy",
        )
    told = f"cost limit of {budget.usd:g} USD{twice}, at {price:g} USD an hour"
    by_cost = Limit(seconds=HOUR_S * budget.usd * times / price, told=told)
    return min(by_time, by_cost, key=lambda each: each.seconds)


def cut(trace: Trace, job: Job, arms: int) -> Trace:
    """Keep the leading sessions that fit the budget of calls; always the same ones, or runs could not be compared."""
    if job.budget.calls is None:
        return trace
    room = job.budget.calls // arms
    kept: list[Session] = []
    for family in families(trace.sessions):
        turns = sum(len(session.turns) for session in family)
        if turns > room:
            break
        kept += family
        room -= turns
    if not kept:
        raise AgentloadError(
            f"job '{job.name}': budget.calls of {job.budget.calls} on {arms} arms is less than the trace's first session",
            hint="raise budget.calls; agentload trace show prints the turns of sessions",
        )
    return Trace(header=trace.header, sessions=tuple(kept))
