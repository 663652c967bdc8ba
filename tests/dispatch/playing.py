"""An instant, honest shell for dispatcher tests: every call takes the time that a function says.

No clock, no sockets.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from agentload.dispatch.dispatcher import Dispatcher, PlayEnd
from agentload.model.commands import (
    Cancel,
    Command,
    Ended,
    Event,
    Finish,
    Forget,
    Halt,
    Open,
    Opened,
    Outcome,
    Prepare,
    Reply,
    Send,
    Settle,
    Settled,
    Skip,
    Started,
    Wake,
    Woke,
)
from agentload.model.plan import Block, Load, Plan, Play, Round
from agentload.model.trace import Header, Segment, Session

S = 1_000_000_000
START = 20 * S


@dataclass(frozen=True, slots=True)
class Done:
    send: Send
    sent_ns: int
    ended_ns: int
    outcome: Outcome


@dataclass(slots=True)
class Log:
    done: list[Done] = field(default_factory=list)
    sent: list[Send] = field(default_factory=list)
    skipped: list[Send] = field(default_factory=list)
    prepared: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    forgotten: list[tuple[str, str, int]] = field(default_factory=list)
    opened: list[tuple[int, str]] = field(default_factory=list)
    ends: list[PlayEnd] = field(default_factory=list)
    peak: dict[str, int] = field(default_factory=dict)
    finished_ns: int | None = None
    commands: int = 0


def took(seconds: float) -> Callable[[Send, int], Outcome]:
    """Answer every call after the same time."""

    def outcome(send: Send, sent_ns: int) -> Outcome:
        return Outcome(
            status="ok",
            sent_ns=sent_ns,
            done_ns=sent_ns + round(seconds * S),
            reply=Reply(text="said", tokens=1),
        )

    return outcome


def play(  # noqa: C901, PLR0912  # one match over the closed list of commands reads best whole
    plan: Plan,
    serve: Callable[[Send, int], Outcome] | None = None,
    *,
    inject: dict[int, Event] | None = None,
    void: dict[int, tuple[tuple[int, str], ...]] | None = None,
    done: tuple[int, ...] = (),
    prepares: bool = False,
    lead_ns: int = 0,
) -> Log:
    """Play *plan*; *inject* replaces the n-th event; *void* answers the n-th Settle."""
    serve = serve or took(0.1)
    dispatcher = Dispatcher(plan, done=done, prepares=prepares, lead_ns=lead_ns)
    log = Log()
    heap: list[tuple[int, int, Event]] = [(0, 0, Started(at_ns=0))]
    flight: dict[str, int] = {}
    arms: dict[str, str] = {}
    why: dict[str, Halt] = {}
    wake: int | None = None
    settles = 0
    for count in range(1_000_000):
        if log.finished_ns is not None:
            break
        event: Event
        if wake is not None and (not heap or wake < heap[0][0]):
            now, event, wake = wake, Woke(at_ns=wake), None
        else:
            now, _, event = heapq.heappop(heap)
        if isinstance(event, Ended):
            flight[arms[event.request_id]] -= 1
            if event.request_id in why:
                event = replace(event, outcome=replace(event.outcome, status=why[event.request_id]))
        commands: tuple[Command, ...] = dispatcher.handle(event)
        if inject and count in inject:
            commands += dispatcher.handle(inject[count])
        log.commands += len(commands)
        for order, command in enumerate(commands):
            match command:
                case Send():
                    outcome = serve(command, now)
                    ended_ns = outcome.done_ns if outcome.done_ns is not None else now
                    log.sent.append(command)
                    log.done.append(Done(command, now, ended_ns, outcome))
                    flight[command.arm] = flight.get(command.arm, 0) + 1
                    log.peak[command.arm] = max(log.peak.get(command.arm, 0), flight[command.arm])
                    arms[command.request_id] = command.arm
                    ended = Ended(at_ns=ended_ns, request_id=command.request_id, outcome=outcome)
                    heapq.heappush(heap, (ended_ns, 1 + log.commands * 100 + order, ended))
                case Skip(send=send):
                    log.skipped.append(send)
                case Forget(arm=arm, session=session):
                    log.forgotten.append((arm, session, now))
                case Prepare(request_id=name):
                    log.prepared.append(name)
                case Cancel(request_id=name):
                    log.cancelled.append(name)
                    why[name] = command.why
                case Wake(at_ns=at_ns):
                    assert at_ns > now
                    wake = at_ns
                case Settle():
                    log.ends.extend(dispatcher.ended_plays())
                    heapq.heappush(
                        heap, (now, 0, Settled(at_ns=now, void=(void or {}).get(settles, ())))
                    )
                    settles += 1
                case Open():
                    log.opened.append((command.round, "+".join(command.arms)))
                    heapq.heappush(heap, (now + START, 0, Opened(at_ns=now + START)))
                case Finish():
                    log.finished_ns = now
    assert log.finished_ns is not None, "the dispatcher never finished"
    return log


def one_block(
    sessions: tuple[Session, ...],
    *,
    load: Load | None = None,
    arms: tuple[str, ...] = ("a",),
    pairs: int = 1,
    seed: int = 0,
) -> Plan:
    """Plan one block on every arm, *pairs* times."""
    rounds = tuple(
        Round(
            index=pair * len(arms) + i,
            plays=(Play(block=0, arm=arm, pair=pair, salt=f"salt{pair}"),),
        )
        for pair in range(pairs)
        for i, arm in enumerate(arms)
    )
    return Plan(
        run="run",
        seed=seed,
        header=Header(name="t", prefixes={"P": (said("system", 10, "sys"),)}),
        arms=arms,
        blocks=(Block(index=0, sessions=sessions),),
        rounds=rounds,
        load=load or Load(),
    )


def said(role: str, tokens: int, key: str) -> Segment:
    """Make a segment."""
    # tests name roles freely
    return Segment(role=role, tokens=tokens, key=key)  # type: ignore[arg-type]
