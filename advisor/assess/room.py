"""Judge whether the KV pool can limit a workload at all, from what is alive at once and from what the server saw."""

from __future__ import annotations

import numpy as np

from advisor.case import Room
from advisor.evidence import Calls, Evidence, Telemetry
from advisor.policy import Policy
from advisor.statistics.matching import session_numbers

HIT_GAP = 0.05  # cached share lost against a cache without bounds
FULL = 0.95  # usage at which vLLM starts to evict and preempt


def working_set(calls: list[Calls]) -> float:
    """Return the largest sum of contexts of sessions alive at the same time; shared prefixes count once for each."""
    numbers, found = [], 0
    for each in calls:
        numbers.append(session_numbers(each) + found)
        found = int(numbers[-1].max()) + 1
    index = np.concatenate(numbers)
    start = np.concatenate([each.start_s for each in calls])
    end = start + np.nan_to_num(np.concatenate([each.turn_ms for each in calls])) / 1e3
    tokens = np.nan_to_num(np.concatenate([each.prompt_tokens + each.output_tokens for each in calls]))
    first, last, most = np.full(found, np.inf), np.full(found, -np.inf), np.zeros(found)
    np.minimum.at(first, index, start)
    np.maximum.at(last, index, end)
    np.maximum.at(most, index, tokens)
    order = np.argsort(np.concatenate([first, last]), kind="stable")
    return float(np.cumsum(np.concatenate([most, -most])[order]).max())


def _told(evidence: Evidence, workload: str | None) -> float | None:
    told = [each.working_set_tokens for each in evidence.workloads if workload in (None, each.name)]
    known = [each for each in told if each is not None]
    if known and len(known) == len(told):
        return float(sum(known))
    names = [each.name for each in evidence.workloads if workload in (None, each.name)]
    calls = [found for name in names if (found := evidence.calls(name, evidence.reference)) is not None]
    return working_set(calls) if calls else None


def _never_full(evidence: Evidence) -> bool:
    """Say whether the reference's pool could hold all that was ever sent: then it never had to let go of a token."""
    figures, pool = evidence.telemetry(None, evidence.reference), evidence.arm(evidence.reference).pool_tokens
    return figures is not None and figures.sent_tokens is not None and pool is not None and figures.sent_tokens < pool


def _strain(figures: Telemetry | None, *, never_full: bool) -> str | None:
    """Return what the server's own figures say against slack, if anything."""
    if figures is None:
        return None
    if figures.preemptions:
        return f"{figures.preemptions:.0f} preemptions"
    if figures.peak_kv_usage is not None and figures.peak_kv_usage >= FULL:
        return f"KV usage peaked at {figures.peak_kv_usage:.0%}"
    # A cache keeps whole blocks only: short prompts hit less than they could in a pool of any size.
    if never_full:
        return None
    if figures.hit_rate is not None and figures.ideal_hit_rate is not None and figures.ideal_hit_rate - figures.hit_rate >= HIT_GAP:
        return f"the cache hits {figures.hit_rate:.0%} of the prompt where {figures.ideal_hit_rate:.0%} could hit"
    return None


def room(evidence: Evidence, policy: Policy, workload: str | None) -> Room:
    """Return the room of *workload* (None: whole mix) on the reference's pool."""
    tokens, pool = _told(evidence, workload), evidence.arm(evidence.reference).pool_tokens
    strain = _strain(evidence.telemetry(workload, evidence.reference), never_full=_never_full(evidence))
    if strain is not None:
        return Room(workload=workload, state="binds", reason=strain, working_set_tokens=tokens)
    if tokens is None or not pool:
        unknown = "working set" if tokens is None else "pool size"
        return Room(workload=workload, state="unknown", reason=f"{unknown} of {evidence.reference} unknown", working_set_tokens=tokens)
    share = tokens / pool
    told = f"sessions alive at once hold {tokens:,.0f} tokens, {share:.0%} of the pool of {evidence.reference}"
    return Room(workload=workload, state="binds" if share >= policy.capacity_binds_at else "slack", reason=told, working_set_tokens=tokens)


def rooms(evidence: Evidence, policy: Policy) -> tuple[Room, ...]:
    """Return the room of the whole mix and of each workload."""
    return tuple(room(evidence, policy, workload) for workload in (None, *(each.name for each in evidence.workloads)))
