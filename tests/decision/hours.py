"""Hours of a closed loop in virtual time, without noise: what
windows of a trace, and decisions that rest on them, should say.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from agentload.emulator.steptime import off
from agentload.layout.plan import Scheme, plan
from agentload.layout.traces import another
from agentload.model.profile import ArmProfile
from agentload.model.rows import CallRow
from agentload.model.trace import Session, Trace
from agentload.model.walk import families
from agentload.study.parts import Load
from agentload.virtual.shell import Shell

WARM_SHARE: Final = 1 / 3
"""Of the time: until sessions are spread over their turns."""
USER_WAIT_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A turn of the closed loop: both its arms' latencies, and its context."""

    context: int
    log_ratio: float


def mixed(trace: Trace, rounds: int) -> Iterator[Session]:
    """Yield the sessions of a trace over and over,
    each round in another order and with new content.
    """
    rng, groups = Random(0), list(families(trace.sessions))
    for copy in range(rounds):
        for family in sorted(groups, key=lambda _: rng.random()):
            yield from another(family, copy)


def steady_calls(
    trace: Trace,
    arms: Mapping[str, ArmProfile],
    *,
    sessions: int,
    seconds: float,
    user_wait_s: float | None = USER_WAIT_S,
) -> dict[str, list[CallRow]]:
    """Play a closed loop of the whole trace, and return each arm's calls
    while the load is steady; with None users wait as in the trace.
    """
    load = Load(
        sessions=sessions,
        wait_cap_s={} if user_wait_s is None else {"user": user_wait_s},
        duration_s=seconds,
    ).planned()
    calls_a_round = sum(len(session.turns) for session in trace.sessions)
    rounds = (
        math.ceil(sessions * seconds / calls_a_round) + 1
    )  # no call takes less than a second on average
    many = Trace(header=trace.header, sessions=tuple(mixed(trace, rounds)))
    made = plan(many, tuple(arms), run="truth", scheme=Scheme(pairs=1), load=load)
    calls: dict[str, list[CallRow]] = {arm: [] for arm in arms}
    quiet = {name: off(arm) for name, arm in arms.items()}
    for row in Shell(made, quiet, seed=0, sample_s=seconds).play():
        if isinstance(row, CallRow):
            calls[row.arm].append(row)
    warm_ns = WARM_SHARE * seconds * 1e9
    begins = {arm: min((row.released_ns for row in rows), default=0) for arm, rows in calls.items()}
    return {
        arm: [row for row in rows if not row.tail and row.released_ns - begins[arm] > warm_ns]
        for arm, rows in calls.items()
    }


def timed(reference: Sequence[CallRow], other: Sequence[CallRow]) -> Iterator[Timed]:
    """Yield the turns that both arms answered."""
    known = {
        (row.session, row.turn): row
        for row in other
        if row.status == "ok" and row.done_ns is not None
    }
    for row in reference:
        same = known.get((row.session, row.turn))
        if same is None or row.status != "ok" or row.done_ns is None or same.done_ns is None:
            continue
        took, takes = row.done_ns - row.released_ns, same.done_ns - same.released_ns
        yield Timed(context=row.context_tokens, log_ratio=math.log(takes / took))
