"""Judge whether the KV pool can limit a workload at the user's peak.

It is judged from the contexts that are alive at once and from what the server saw.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from advisor import words
from advisor.case import Room
from advisor.evidence import Calls, Evidence, Telemetry, present
from advisor.policy import Policy
from advisor.statistics.paired import session_numbers
from advisor.verdict import HitCliff

HIT_GAP = 0.05  # hit rate lost against a cache without bounds
LARGER = 1.25  # times the reference's pool, from which an arm shows what more room brings
FULL = 0.95  # usage at which vLLM starts to evict and preempt

MICROSECONDS = 6  # decimals of a second: sums of times miss each other by less


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveContexts:
    """Hold what is in the pool of one replica at the fullest moment."""

    tokens: float
    sessions: float | None  # None: only the tokens are known
    played: float | None = None  # sessions of the replay that were scaled to the user's peak

    def told(self, workload: str | None) -> str:
        """Say in words how many tokens the sessions hold."""
        if self.sessions is None:
            return f"sessions at once hold {self.tokens:,.0f} tokens"
        scaled = "" if self.played is None else f" (scaled from {self.played:,.0f} in the replay)"
        of = "" if workload is None else f" of {workload}"
        at_once = words.quantity(max(1.0, self.sessions), "session")
        verb = "holds" if at_once == "1 session" else "hold"
        return f"{at_once}{of} at once {verb} {self.tokens:,.0f} tokens{scaled}"


def working_set(calls: list[Calls]) -> LiveContexts:
    """Return the largest sum of contexts of sessions alive at the same time.

    A shared prefix counts once for each session.
    """
    numbers, found = [], 0
    for each in calls:
        numbers.append(session_numbers(each) + found)
        found = int(numbers[-1].max()) + 1
    index = np.concatenate(numbers)
    start = np.concatenate([each.start_s for each in calls])
    end = start + np.nan_to_num(np.concatenate([each.turn_ms for each in calls])) / 1e3
    tokens = np.nan_to_num(
        np.concatenate([each.prompt_tokens + each.output_tokens for each in calls])
    )
    first, last, most = np.full(found, np.inf), np.full(found, -np.inf), np.zeros(found)
    np.minimum.at(first, index, start)
    np.maximum.at(last, index, end)
    np.maximum.at(most, index, tokens)
    # Ends come before starts: a session that begins as another ends takes its place.
    moments = np.round(np.concatenate([last, first]), MICROSECONDS)
    order = np.argsort(moments, kind="stable")
    held = np.cumsum(np.concatenate([-most, most])[order])
    count = np.cumsum(np.concatenate([-np.ones(found), np.ones(found)])[order])
    fullest = int(np.argmax(held))
    return LiveContexts(tokens=float(held[fullest]), sessions=float(count[fullest]))


def _replayed(evidence: Evidence, workload: str | None) -> LiveContexts | None:
    calls = evidence.calls_of(evidence.reference, workload)
    return working_set(list(calls.values())) if calls else None


def _alive(
    evidence: Evidence, workload: str | None, whole: LiveContexts | None
) -> LiveContexts | None:
    """Return what one replica holds at the user's peak: as stated, or scaled from the replay.

    Without a peak, what it held in the replay.
    """
    told = [each.working_set_tokens for each in evidence.workloads if workload in (None, each.name)]
    known = [each for each in told if each is not None]
    if known and len(known) == len(told):
        return LiveContexts(tokens=float(sum(known)), sessions=None)
    replayed, peak = (
        whole if workload is None else _replayed(evidence, workload),
        evidence.deployment.peak_agents,
    )
    if replayed is None or whole is None or not replayed.sessions or not whole.sessions:
        return replayed
    replicas = evidence.deployment.replicas
    if peak is None:
        return LiveContexts(
            tokens=replayed.tokens / replicas, sessions=replayed.sessions / replicas
        )
    # Every class grows as the mix does.
    factor = peak / whole.sessions / replicas
    return LiveContexts(
        tokens=factor * replayed.tokens,
        sessions=factor * replayed.sessions,
        played=replayed.sessions,
    )


def _never_full(evidence: Evidence) -> bool:
    """Say whether the reference's pool could hold all that was ever sent, so evicted nothing."""
    figures, pool = evidence.telemetry(None, evidence.reference), evidence.base.pool_tokens
    return (
        figures is not None
        and figures.sent_tokens is not None
        and pool is not None
        and figures.sent_tokens < pool
    )


def _misses_alike(evidence: Evidence, workload: str | None) -> bool:
    """Say whether arms with larger pools hit their caches no more often than the reference.

    Then it is not room that the hits lack.
    """
    reference = evidence.base
    ours = evidence.telemetry(workload, reference.name)
    if ours is None or ours.hit_rate is None or not reference.pool_tokens:
        return False
    larger = [
        arm.name
        for arm in evidence.challengers
        if arm.pool_tokens and arm.pool_tokens >= LARGER * reference.pool_tokens
    ]
    theirs = present(evidence.telemetry(workload, arm) for arm in larger)
    known = present(each.hit_rate for each in theirs)
    return bool(known) and max(known) - ours.hit_rate < HIT_GAP


def _strain(figures: Telemetry | None, *, has_room: bool) -> str | None:
    """Return what in the server's figures shows that the pool limits, if anything."""
    if figures is None:
        return None
    if figures.preemptions:
        return f"{figures.preemptions:.0f} preemptions"
    if figures.peak_kv_usage is not None and figures.peak_kv_usage >= FULL:
        return f"KV usage peaked at {figures.peak_kv_usage:.0%}"
    # A cache keeps whole blocks only: short prompts hit less than they could in a pool of any size.
    if has_room:
        return None
    if (
        figures.hit_rate is not None
        and figures.ideal_hit_rate is not None
        and figures.ideal_hit_rate - figures.hit_rate >= HIT_GAP
    ):
        return (
            f"the cache hits {figures.hit_rate:.0%} of the prompt where "
            f"{figures.ideal_hit_rate:.0%} could hit"
        )
    return None


def _room(
    evidence: Evidence, policy: Policy, workload: str | None, whole: LiveContexts | None
) -> Room:
    alive, pool = _alive(evidence, workload, whole), evidence.base.pool_tokens
    tokens = None if alive is None else alive.tokens
    has_room = _never_full(evidence) or _misses_alike(evidence, workload)
    strain = _strain(evidence.telemetry(workload, evidence.reference), has_room=has_room)
    if strain is not None:
        return Room(workload=workload, state="binds", reason=strain, working_set_tokens=tokens)
    if alive is None or not pool:
        unknown = "working set" if alive is None else "pool size"
        return Room(
            workload=workload,
            state="unknown",
            reason=f"{unknown} of {evidence.reference} unknown",
            working_set_tokens=tokens,
        )
    share = alive.tokens / pool
    told = f"{alive.told(workload)}, {words.part_of(share)} the pool of {evidence.reference}"
    if share >= policy.capacity_binds_at:
        return Room(workload=workload, state="binds", reason=told, working_set_tokens=tokens)
    binds_from = (
        math.ceil(alive.sessions * policy.capacity_binds_at / share)
        if alive.sessions and share > 0
        else None
    )
    until = (
        ""
        if binds_from is None
        else f" ({policy.capacity_binds_at:.0%} from about {binds_from:,} sessions on)"
    )
    return Room(
        workload=workload,
        state="slack",
        reason=f"{told}{until}",
        working_set_tokens=tokens,
        binds_from=binds_from,
    )


def rooms(evidence: Evidence, policy: Policy) -> tuple[Room, ...]:
    """Return the room that the whole mix, and each workload, has on the reference's pool."""
    whole = _replayed(evidence, None)
    return tuple(
        _room(evidence, policy, workload, whole)
        for workload in (None, *(each.name for each in evidence.workloads))
    )


Tried: TypeAlias = tuple[float, float | None, float | None]
"""Sessions at once, the hit rate, and that of a cache that loses nothing of a session."""


def hit_cliff(arm: str, workload: str | None, tried: Iterable[Tried]) -> HitCliff | None:
    """Return from how many sessions at once the hit rate falls off; None where it does not.

    It does where every load from there on hits `HIT_GAP` less than it could; what the smallest load
    loses already is the server's way to keep blocks, and no lack of room.
    """
    by_load: dict[float, list[tuple[float, float]]] = defaultdict(list)
    for load, found, ideal in tried:
        if found is not None and ideal is not None:
            by_load[load].append((found, ideal))
    means = {load: np.mean(by_load[load], axis=0) for load in sorted(by_load)}
    loads = list(means)
    lost = [float(ideal - found) for found, ideal in means.values()]
    fallen = len(loads)
    while fallen and lost[fallen - 1] - lost[0] >= HIT_GAP:
        fallen -= 1
    if not fallen or fallen == len(loads):
        return None
    found, ideal = means[loads[fallen]]
    return HitCliff(
        arm=arm,
        workload=workload,
        agents=loads[fallen],
        hit_rate=float(found),
        ideal_hit_rate=float(ideal),
        kept_at=loads[fallen - 1],
    )


def hit_cliffs(evidence: Evidence) -> tuple[HitCliff, ...]:
    """Return where the hit rate of each arm falls off, by what was searched."""
    tried: dict[tuple[str, str | None], list[Tried]] = defaultdict(list)
    for each in evidence.capacity:
        tried[each.arm, each.workload].append((each.agents, each.hit_rate, each.ideal_hit_rate))
    return tuple(present(hit_cliff(*scope, points) for scope, points in tried.items()))
