"""Estimate what a plan costs before it is played: calls, tokens, and roughly how much time."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush, merge
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from agentload.errors import PlanError
from agentload.layout.nominal import nominal_calls
from agentload.layout.timeline import (
    ASSUMED_PREFILL_TOKENS_PER_S,
    ASSUMED_TOKEN_S,
    NOMINAL,
    ServerPace,
    seconds_of,
    turn_seconds,
    wait_s,
)
from agentload.model.plan import (
    Block,
    Budget,
    ClosedLoop,
    Load,
    OpenLoop,
    Plan,
    Recorded,
    WaitScale,
)
from agentload.model.record import Record
from agentload.model.trace import PRIME, Header, Session, Trace, Turn, total_tokens
from agentload.model.walk import context_tokens
from agentload.tracefile.reuse import BLOCK, IdealCache

LONG_MIN: Final = 60.0
CAPS_S: Final = (600, 300, 120, 60, 30, 10, 5)
"""Caps of a wait that are offered, the longest that is short enough first."""


Prefill: TypeAlias = Callable[[int], float]
"""Seconds that a server takes to read a prompt, by its tokens."""


def assumed_prefill_s(tokens: int) -> float:
    """Return how many seconds an ordinary server takes to read a prompt."""
    return tokens / ASSUMED_PREFILL_TOKENS_PER_S


ANSWER_TOKENS: Final = 64
"""Tokens of a typical graded answer: most caps are far above what is said."""


def asking_s(
    reading_s: float, answers: int, *, arms: int, concurrency: int, thinking_tokens: int = 0
) -> float:
    """Return how many seconds graded questions take, whose contexts a server reads in so many.

    Prompts queue for one GPU and answers share it; each arm has its own GPU. An item is asked of
    one arm after the other, so arms wait for each other only where few items are in flight.
    """
    decoding_s = answers * (ANSWER_TOKENS + thinking_tokens) * ASSUMED_TOKEN_S
    return (reading_s + decoding_s / max(1, concurrency / arms)) * max(1.0, arms / concurrency)


class LongestWait(Record):
    """Name the longest wait of a plan, and the cap that makes the plan short."""

    seconds: float
    kind: str
    session: str
    turn: int
    cap_s: int
    """The longest cap of its kind that keeps the plan within `LONG_MIN`, or the shortest."""
    capped_minutes: float
    """How long the plan takes with that cap."""

    def __str__(self) -> str:
        return (
            f"one {self.kind} wait takes {about(self.seconds / 60)}, before turn {self.turn} of "
            f"session {self.session}: --wait-cap {self.kind}={self.cap_s} shortens the whole "
            f"run to {about(self.capped_minutes)}"
        )


class Cost(Record):
    """Hold the figures of a whole plan."""

    rounds: int
    calls_by_arm: dict[str, int]
    prompt_tokens: int
    output_tokens: int
    minutes: float
    """Rough duration, priming included: from the trace's waits and the assumed speeds."""
    priming_minutes: float = 0.0
    """Part of `minutes` that priming the contexts of windows takes."""
    longest_wait: LongestWait | None = None
    """What makes a long plan long; None where it is short, or not for a wait."""
    assumed: str = (
        f"{ASSUMED_TOKEN_S * 1000:g} ms a token, {ASSUMED_PREFILL_TOKENS_PER_S:,.0f} new "
        "prompt tokens a second"
    )

    def warning(self) -> str | None:
        """Return a warning if a replay will take long; None otherwise.

        Most of a trace is waiting, which its name does not show.
        """
        if self.minutes < LONG_MIN:
            return None
        if self.longest_wait is not None:
            return f"this takes {about(self.minutes)}: {self.longest_wait}"
        return (
            f"this takes {about(self.minutes)}; shorter with --wait-cap user=5, --sessions 16 "
            "or --max-calls (--dry-run says how long)"
        )


def about(minutes: float) -> str:
    """Write a rough duration, in hours from two hours on."""
    if minutes >= 120:
        return f"about {minutes / 60:.0f} h"
    return f"about {max(1, round(minutes))} min"


class _Block(Record, kw_only=False):
    calls: int
    prompt_tokens: int
    output_tokens: int
    seconds: float
    priming_s: float = 0.0


def cost(plan: Plan, *, prefill_s: Prefill = assumed_prefill_s, pace: ServerPace = NOMINAL) -> Cost:
    """Add up what *plan* sends; budgets are upper bounds and are taken into account.

    *prefill_s* is used for priming, *pace* for windows.
    """
    blocks = {
        block.index: _window(plan, block, prefill_s, pace)
        if block.is_window
        else _block(plan, block)
        for block in plan.blocks
    }
    calls = dict.fromkeys(plan.arms, 0)
    prompt = output = 0
    seconds = priming_s = 0.0
    for round_ in plan.rounds:
        for play in round_.plays:
            block = blocks[play.block]
            calls[play.arm] += block.calls
            prompt += block.prompt_tokens
            output += block.output_tokens
        seconds += max((blocks[play.block].seconds for play in round_.plays), default=0.0)
        priming_s += max((blocks[play.block].priming_s for play in round_.plays), default=0.0)
    minutes = (seconds + priming_s) / 60
    return Cost(
        rounds=len(plan.rounds),
        calls_by_arm=calls,
        prompt_tokens=prompt,
        output_tokens=output,
        minutes=minutes,
        priming_minutes=priming_s / 60,
        longest_wait=_longest_wait(plan, minutes) if minutes >= LONG_MIN else None,
    )


def _longest_wait(plan: Plan, minutes: float) -> LongestWait | None:
    """Return the longest wait of a plan; None where no cap of its kind halves the plan."""
    waits = (
        (wait_s(plan.load, turn), turn.wait or "", session.session, number)
        for block in plan.blocks
        for session in block.sessions
        for number, turn in enumerate(session.turns, 1)
    )
    seconds, kind, session, turn = max(waits, default=(0.0, "", "", 0))
    if plan.load.budget != Budget() or not kind:
        return None
    for cap_s in CAPS_S:
        rule = replace(plan.load.waits.get(kind, WaitScale()), cap_s=float(cap_s))
        capped = replace(plan.load, waits={**plan.load.waits, kind: rule})
        capped_minutes = _played_minutes(plan, capped)
        if capped_minutes < LONG_MIN:
            break
    if capped_minutes > minutes / 2:
        return None
    return LongestWait(
        seconds=seconds,
        kind=kind,
        session=session,
        turn=turn,
        cap_s=cap_s,
        capped_minutes=capped_minutes,
    )


def _played_minutes(plan: Plan, load: Load) -> float:
    """Return how long a plan without windows takes under a load without a budget."""
    seconds = {block.index: _played_s(load, block) for block in plan.blocks}
    rounds = (
        max((seconds[play.block] for play in round_.plays), default=0.0) for round_ in plan.rounds
    )
    return sum(rounds) / 60


def _window(plan: Plan, block: Block, prefill_s: Prefill, pace: ServerPace) -> _Block:
    """Add up what a window sends at *pace*.

    A window lasts until its last call that counts is answered; priming comes on top.
    """
    calls = nominal_calls(plan.header, block, plan.load, pace)
    counting = [call for call in calls if call.counts]
    primes = [call for call in calls if call.turn.event == PRIME]
    prompts = sum(total_tokens(call.context) for call in calls)
    seconds = plan.load.budget.seconds or max((call.sent_s for call in counting), default=0.0)
    return _Block(
        calls=len(counting),
        prompt_tokens=prompts,
        output_tokens=sum(call.turn.output for call in calls),
        seconds=max((call.answered_s for call in counting), default=seconds),
        priming_s=_priming_s(plan.header, (call.session for call in primes), prefill_s),
    )


def _priming_s(header: Header, primed: Iterable[Session], prefill_s: Prefill) -> float:
    """Return how long priming calls take one after the other; a shared prefix is read once."""
    cache = IdealCache()
    seconds = 0.0
    for session in primed:
        tokens, known = next(cache.calls(header, session))
        seconds += prefill_s(tokens) - prefill_s(known)
    return seconds


def _block(plan: Plan, block: Block) -> _Block:
    calls = prompt = output = 0
    for session in block.sessions:
        calls += len(session.turns)
        prompt += sum(context_tokens(plan.header, session))
        output += sum(turn.output for turn in session.turns)
    longest = _played_s(plan.load, block)
    budget = plan.load.budget
    share = 1.0
    for most, planned in ((budget.calls, calls), (budget.tokens, prompt + output)):
        if most and planned > most:
            share = min(share, most / planned)
    if budget.seconds and longest * share > budget.seconds:
        share = budget.seconds / longest
    longest *= share
    if budget.seconds and share < 1.0:
        longest = max(longest, _last_s(plan.load, block, budget.seconds))
    return _Block(round(calls * share), round(prompt * share), round(output * share), longest)


def _played_s(load: Load, block: Block) -> float:
    """Return about how long a block takes whose calls are all played."""
    longest = busy = 0.0
    for position, session in enumerate(block.sessions, 1):
        seconds = seconds_of(load, session)
        busy += seconds
        longest = max(longest, _start_s(load, session, position) + seconds)
    if isinstance(load.arrivals, ClosedLoop):
        return max(longest, busy / load.arrivals.sessions)
    return longest


def _last_s(load: Load, block: Block, seconds: float) -> float:
    """Return about when the last call ends of those sent in the first *seconds* of a block."""
    is_closed = isinstance(load.arrivals, ClosedLoop)
    queue = iter(block.sessions if is_closed else ())
    going: list[tuple[float, int, Iterator[Turn]]]
    if isinstance(load.arrivals, ClosedLoop):
        going = [(0.0, place, iter(())) for place in range(load.arrivals.sessions)]
    else:
        going = [
            (_start_s(load, session, place + 1), place, iter(session.turns))
            for place, session in enumerate(block.sessions)
        ]
    heapify(going)
    last_s = 0.0
    while going:
        at_s, place, turns = heappop(going)
        turn = next(turns, None)
        if turn is not None and at_s + wait_s(load, turn) < seconds:
            at_s += turn_seconds(load, turn)
            last_s = max(last_s, at_s)
            heappush(going, (at_s, place, turns))
        elif turn is None:
            session = next(queue, None)
            if session is not None:
                heappush(going, (at_s, place, iter(session.turns)))
    return last_s


def _start_s(load: Load, session: Session, position: int) -> float:
    match load.arrivals:
        case Recorded(speed=speed):
            return (session.start_s or 0.0) / speed
        case OpenLoop(rate_per_s=rate):
            return position / rate
        case ClosedLoop():
            return 0.0


def fill_s(trace: Trace, load: Load, pool_tokens: float) -> float | None:
    """Return when a trace in a closed loop has filled a KV pool, in s; None if it never does.

    The speeds are those that `cost` assumes.
    """
    assert isinstance(load.arrivals, ClosedLoop)
    queue = iter(trace.sessions)
    told = set[str]()
    written = 0
    slots = [_slot(trace, load, queue, told) for _ in range(load.arrivals.sessions)]
    for at_s, tokens in merge(*slots):
        written += tokens
        if written >= pool_tokens:
            return at_s
    return None


def _slot(
    trace: Trace, load: Load, queue: Iterator[Session], told: set[str]
) -> Iterator[tuple[float, int]]:
    """Yield the end of each call of one slot and the tokens it wrote; a prefix counts once."""
    at_s = 0.0
    for session in queue:
        name = session.prefix or ""
        new = 0
        if name not in told:
            new = total_tokens(trace.header.prefixes.get(name, ()))
        told.add(name)
        for turn in session.turns:
            at_s += turn_seconds(load, turn)
            yield at_s, new + total_tokens(turn.add) + turn.output
            new = 0


MOST_REFUSED: Final = 0.05
"""Largest share of turns that may be longer than the model takes.

With more turns refused, another load is played, and its figures are invalid.
"""


def too_long(
    header: Header, sessions: Iterable[Session], window: int | None, *, may_cut: bool = True
) -> str | None:
    """Return how many turns are longer than a model's *window*, as a sentence; None if none.

    Without *may_cut* sessions have to be played whole, so that other servers or sessions are named.
    Raises PlanError where they are more than `MOST_REFUSED` of all turns.
    """
    if window is None:
        return None
    asked = islice(
        (
            tokens + turn.output
            for one in sessions
            for tokens, turn in zip(context_tokens(header, one), one.turns, strict=True)
        ),
        MOST_CALLS,
    )
    found = [needed > window for needed in asked]
    if not any(found):
        return None
    said = (
        f"{sum(found):,} of {len(found):,} turns ({sum(found) / len(found):.0%}) need more than "
        f"the {window:,} tokens that the model takes"
    )
    remedy = f"--max-context {window} ends sessions before them, or another trace"
    if not may_cut:
        remedy = "servers with a larger --max-model-len, or a trace whose sessions fit"
    if sum(found) > MOST_REFUSED * len(found):
        raise PlanError(said, hint=remedy)
    return f"{said}, and will be refused: {remedy}"


# A second's work; beyond, the figure is left out rather than waited for.
MOST_CALLS: Final = 50_000


class _Look(NamedTuple):
    """What a call finds in a cache."""

    workload: str
    tokens: int
    known: int
    """Tokens of the prompt that the cache holds."""
    counts: bool = True


def _looks(plan: Plan, block: Block, cache: IdealCache) -> Iterator[_Look]:
    """Yield what the calls of a block find in a cache, in about the order of their sending."""
    if not block.is_window:
        for session in block.sessions:
            for tokens, known in cache.calls(plan.header, session):
                yield _Look(session.workload, tokens, known)
        return
    going: dict[str, Iterator[tuple[int, int]]] = {}
    for call in nominal_calls(plan.header, block, plan.load):
        session = call.session
        calls = going.setdefault(session.session, cache.calls(plan.header, session))
        tokens, known = next(calls)
        yield _Look(session.workload, tokens, known, call.counts)


def ideal_hit_rates(plan: Plan, *, block: int | None = None) -> dict[str, float]:
    """Return the ideal hit rate: the share of prompt tokens that could be found, by workload.

    Cold pairs each start with an empty cache, warm pairs share one. *block* is the number of tokens
    in a block of the server's cache: only whole blocks are kept, so large ones hold nothing of a
    short prompt.
    """
    block = block or BLOCK
    known: Counter[str] = Counter()
    total: Counter[str] = Counter()
    cache = IdealCache(block=block)
    calls = 0
    blocks = {block.index: block for block in plan.blocks}
    plays = [play for round_ in plan.rounds for play in round_.plays]
    for play in plays:
        if play.arm != plan.arms[0] or play.warmup:
            continue
        if plan.cache != "warm":
            cache = IdealCache(block=block)
        played = blocks[play.block]
        for look in _looks(plan, played, cache):
            calls += 1
            if calls > MOST_CALLS and not played.is_window:
                return {}
            if look.counts:
                total[look.workload] += look.tokens
                known[look.workload] += look.known
    return {
        workload: known[workload] / tokens for workload, tokens in sorted(total.items()) if tokens
    }
