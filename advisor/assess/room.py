"""Judge whether the KV pool can limit a workload at the user's peak.

It is judged from the contexts that are alive at once and from what the server saw.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from advisor import words
from advisor.assess.coverage import lengths
from advisor.estimate import present
from advisor.evidence import Calls, Evidence, Telemetry
from advisor.policy import Policy
from advisor.results import Room
from advisor.statistics.groups import group_ends
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
        of = "" if workload is None else f" of {workload}"
        scaled = "" if self.played is None else f" (scaled from {self.played:,.0f} in the replay)"
        at_once = words.quantity(max(1.0, self.sessions), "session")
        verb = "holds" if at_once == "1 session" else "hold"
        return f"{at_once}{of} at once {verb} {self.tokens:,.0f} tokens{scaled}"


def working_set(calls: list[Calls]) -> LiveContexts:
    """Return the largest sum of contexts of sessions alive at the same time.

    A shared prefix counts once for each session.
    """
    numbers = []
    sessions = 0
    for each in calls:
        own = session_numbers(each) + sessions
        numbers.append(own)
        sessions = int(own.max()) + 1
    session_of = np.concatenate(numbers)
    start = np.concatenate([each.start_s for each in calls])
    end = np.concatenate([each.end_s for each in calls])
    tokens = np.nan_to_num(np.concatenate([lengths(each) for each in calls]))
    first, last = group_ends(session_of, start, end)
    _, most = group_ends(session_of, tokens, tokens)
    # Ends come before starts: a session that begins as another ends takes its place.
    moments = np.round(np.concatenate([last, first]), MICROSECONDS)
    order = np.argsort(moments, kind="stable")
    tokens_gained = np.concatenate([-most, most])
    sessions_gained = np.repeat([-1.0, 1.0], sessions)
    held = np.cumsum(tokens_gained[order])
    count = np.cumsum(sessions_gained[order])
    fullest = int(np.argmax(held))
    return LiveContexts(tokens=float(held[fullest]), sessions=float(count[fullest]))


def _replayed(evidence: Evidence, workload: str | None) -> LiveContexts | None:
    calls = evidence.calls_of(evidence.reference, workload)
    if not calls:
        return None
    return working_set(list(calls.values()))


def _alive(
    evidence: Evidence, workload: str | None, whole: LiveContexts | None
) -> LiveContexts | None:
    """Return what one replica holds at the user's peak: as stated, or scaled from the replay.

    Without a peak, what it held in the replay.
    """
    scope = [each for each in evidence.workloads if workload in (None, each.name)]
    stated = present(each.working_set_tokens for each in scope)
    if stated and len(stated) == len(scope):
        return LiveContexts(tokens=float(sum(stated)), sessions=None)
    replayed = whole if workload is None else _replayed(evidence, workload)
    if replayed is None or whole is None or not replayed.sessions or not whole.sessions:
        return replayed
    replicas = evidence.deployment.replicas
    peak = evidence.deployment.peak_agents
    if peak is None:
        tokens = replayed.tokens / replicas
        return LiveContexts(tokens=tokens, sessions=replayed.sessions / replicas)
    # Every class grows as the mix does.
    factor = peak / whole.sessions / replicas
    return LiveContexts(
        tokens=factor * replayed.tokens,
        sessions=factor * replayed.sessions,
        played=replayed.sessions,
    )


def _never_full(evidence: Evidence) -> bool:
    """Say whether the reference's pool could hold all that was ever sent, so evicted nothing."""
    figures = evidence.telemetry(None, evidence.reference)
    pool = evidence.base.pool_tokens
    if figures is None or figures.sent_tokens is None or pool is None:
        return False
    return figures.sent_tokens < pool


def _misses_alike(evidence: Evidence, workload: str | None) -> bool:
    """Say whether arms with larger pools hit their caches no more often than the reference.

    Then it is not room that the hits lack.
    """
    reference = evidence.base
    ours = evidence.telemetry(workload, reference.name)
    if ours is None or ours.hit_rate is None or not reference.pool_tokens:
        return False
    much_larger = LARGER * reference.pool_tokens
    rates = []
    for arm in evidence.challengers:
        theirs = evidence.telemetry(workload, arm.name)
        is_larger = arm.pool_tokens and arm.pool_tokens >= much_larger
        if is_larger and theirs is not None and theirs.hit_rate is not None:
            rates.append(theirs.hit_rate)
    return bool(rates) and max(rates) - ours.hit_rate < HIT_GAP


def _strain(figures: Telemetry | None, *, has_room: bool) -> str | None:
    """Return what in the server's figures shows that the pool limits, if anything."""
    if figures is None:
        return None
    if figures.preemptions:
        return f"{figures.preemptions:.0f} preemptions"
    if figures.peak_kv_usage is not None and figures.peak_kv_usage >= FULL:
        return f"KV usage peaked at {figures.peak_kv_usage:.0%}"
    hit, ideal = figures.hit_rate, figures.ideal_hit_rate
    # A cache keeps whole blocks only: short prompts hit less than they could in a pool of any size.
    if has_room or hit is None or ideal is None:
        return None
    if ideal - hit < HIT_GAP:
        return None
    return f"the cache hits {hit:.0%} of the prompt where {ideal:.0%} could hit"


def _room(
    evidence: Evidence, policy: Policy, workload: str | None, whole: LiveContexts | None
) -> Room:
    """Return the room on the reference's pool; *whole* is what the mix held in the replay."""
    alive = _alive(evidence, workload, whole)
    pool = evidence.base.pool_tokens
    unknown = "working set" if alive is None else "pool size"
    room = Room(
        workload=workload,
        state="unknown",
        reason=f"{unknown} of {evidence.reference} unknown",
        working_set_tokens=None if alive is None else alive.tokens,
    )
    has_room = _never_full(evidence) or _misses_alike(evidence, workload)
    strain = _strain(evidence.telemetry(workload, evidence.reference), has_room=has_room)
    if strain is not None:
        return replace(room, state="binds", reason=strain)
    if alive is None or not pool:
        return room
    share = alive.tokens / pool
    binds_at = policy.capacity_binds_at
    pool_of = "the pool of" if alive.played is None else "the pool of a replica of"
    part = f"{words.part_of(share)} {pool_of} {evidence.reference}"
    reason = f"{alive.told(workload)}, {part}"
    if share >= binds_at:
        return replace(room, state="binds", reason=reason)
    if not alive.sessions or share <= 0:
        return replace(room, state="slack", reason=reason)
    binds_from = math.ceil(alive.sessions * binds_at / share)
    reason = f"{reason} ({binds_at:.0%} from about {binds_from:,} sessions on)"
    return replace(room, state="slack", reason=reason, binds_from=binds_from)


def rooms(evidence: Evidence, policy: Policy) -> tuple[Room, ...]:
    """Return the room that the whole mix, and each workload, has on the reference's pool."""
    whole = _replayed(evidence, None)
    scopes = (None, *(each.name for each in evidence.workloads))
    return tuple(_room(evidence, policy, workload, whole) for workload in scopes)


HitRates: TypeAlias = tuple[float, float | None, float | None]
"""Sessions at once, the hit rate, and that of a cache that loses nothing of a session."""


def hit_cliff(arm: str, workload: str | None, tried: Iterable[HitRates]) -> HitCliff | None:
    """Return from how many sessions at once the hit rate falls off; None where it does not.

    It does where every load from there on hits `HIT_GAP` less than it could; what the smallest load
    loses already is the server's way to keep blocks, and no lack of room.
    """
    rates = defaultdict[float, list[tuple[float, float]]](list)
    for load, found, ideal in tried:
        if found is not None and ideal is not None:
            rates[load].append((found, ideal))
    loads = sorted(rates)
    means = [np.mean(rates[load], axis=0).tolist() for load in loads]
    lost = [ideal - found for found, ideal in means]
    # From the largest load down to the first that loses no more than the smallest.
    fallen = len(loads)
    while fallen and lost[fallen - 1] - lost[0] >= HIT_GAP:
        fallen -= 1
    if fallen in (0, len(loads)):
        return None
    hit_rate, ideal_hit_rate = means[fallen]
    return HitCliff(
        arm=arm,
        workload=workload,
        agents=loads[fallen],
        hit_rate=hit_rate,
        ideal_hit_rate=ideal_hit_rate,
        kept_at=loads[fallen - 1],
    )


def hit_cliffs(evidence: Evidence) -> tuple[HitCliff, ...]:
    """Return where the hit rate of each arm falls off, by what was searched."""
    tried = defaultdict[tuple[str, str | None], list[HitRates]](list)
    for each in evidence.capacity:
        rates = (each.agents, each.hit_rate, each.ideal_hit_rate)
        tried[each.arm, each.workload].append(rates)
    cliffs = [hit_cliff(arm, workload, rates) for (arm, workload), rates in tried.items()]
    return tuple(present(cliffs))
