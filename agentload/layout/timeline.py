"""Compute when the turns of a family are sent and answered by a server of ordinary speed.

Nobody knows beforehand how long answers take, so one nominal speed is used for every
arm and every server: what is drawn from a timeline is then the same on all of them.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from agentload.model.plan import Load
from agentload.model.record import Record
from agentload.model.trace import Session, Turn, TurnRef, total_tokens

# An ordinary 8B model on one current GPU; printed next to each figure that rests on it.
ASSUMED_TOKEN_S: Final = 0.02
ASSUMED_PREFILL_TOKENS_PER_S: Final = 10_000.0


class ServerPace(Record):
    """Hold the seconds that a server takes for an answer token and for a new prompt token."""

    token_s: float
    prompt_token_s: float


NOMINAL: Final = ServerPace(
    token_s=ASSUMED_TOKEN_S, prompt_token_s=1 / ASSUMED_PREFILL_TOKENS_PER_S
)


def seconds_of(load: Load, session: Session) -> float:
    """Return about how long a session takes, including its waits."""
    return sum(turn_seconds(load, turn) for turn in session.turns)


def turn_seconds(load: Load, turn: Turn, pace: ServerPace = NOMINAL) -> float:
    """Return about how long a turn takes until it is answered.

    Counted from the end of the turn before, with the wait.
    """
    return (
        wait_s(load, turn)
        + turn.output * pace.token_s
        + total_tokens(turn.add) * pace.prompt_token_s
    )


def wait_s(load: Load, turn: Turn) -> float:
    """Return how long a turn waits before it is sent, under the load's rules for waits."""
    rule = load.waits.get(turn.wait or "")
    scaled_s = turn.wait_s * (rule.scale if rule else 1.0)
    if rule and rule.cap_s is not None:
        return min(scaled_s, rule.cap_s)
    return scaled_s


class TurnTiming(Record, kw_only=False):
    """Hold the instants of one turn, in seconds after its family started."""

    sent_s: float
    answered_s: float


Timeline = Mapping[str, tuple[TurnTiming, ...]]
"""The timings of each session's turns, by the session's name.

A turn that nothing ever starts has no timing.
"""


def timeline(family: Sequence[Session], load: Load, pace: ServerPace = NOMINAL) -> Timeline:
    """Return when each turn of a family is sent and answered under a load's waits."""
    found: dict[str, list[TurnTiming]] = {}
    begins: dict[str, float] = {each.session: 0.0 for each in family if each.start_s is not None}
    members = {each.session: each for each in family}
    is_moving = True
    while is_moving:
        is_moving = False
        for session in family:
            if session.session not in begins:
                continue
            timings = found.setdefault(session.session, [])
            before_s = timings[-1].answered_s if timings else begins[session.session]
            for turn in session.turns[len(timings) :]:
                ready_s = _ready_s(turn, before_s, found, members)
                if ready_s is None:
                    break
                timings.append(_timing(turn, ready_s, load, pace))
                before_s = timings[-1].answered_s
                begins |= dict.fromkeys(turn.spawn, before_s)
                is_moving = True
    return {name: tuple(timings) for name, timings in found.items()}


def lasts_s(family: Sequence[Session], timings: Timeline) -> float:
    """Return how long a family has its place in a closed loop, which its first session ends."""
    root = timings.get(family[0].session, ())
    return root[-1].answered_s if root else 0.0


def _timing(turn: Turn, ready_s: float, load: Load, pace: ServerPace) -> TurnTiming:
    sent_s = ready_s + wait_s(load, turn)
    answered_s = ready_s + turn_seconds(load, turn, pace)
    return TurnTiming(sent_s, answered_s)


def _ready_s(
    turn: Turn,
    before_s: float,
    found: Mapping[str, Sequence[TurnTiming]],
    members: Mapping[str, Session],
) -> float | None:
    """Return when everything that a turn waits for is answered.

    None while a turn of its own family that it waits for has no timing.
    """
    ready_s = before_s
    for ref in turn.after:
        if ref.session not in members:
            # A turn of another family: a family is played alone, so there is nothing to wait for.
            continue
        answered_s = _answered_s(ref, found, members)
        if answered_s is None:
            return None
        ready_s = max(ready_s, answered_s)
    return ready_s


def _answered_s(
    ref: TurnRef, found: Mapping[str, Sequence[TurnTiming]], members: Mapping[str, Session]
) -> float | None:
    timings = found.get(ref.session, ())
    turn = ref.place_in(members[ref.session])
    if turn < len(timings):
        return timings[turn].answered_s
    return None
