"""What a plan costs before it is played: calls, tokens, and roughly how long."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentload.model.plan import Block, ClosedLoop, Load, OpenLoop, Plan, Recorded
from agentload.model.trace import Session, Turn

# An ordinary 8B model on one current GPU; said beside the figure that rests on it.
ASSUMED_TOKEN_S = 0.02
ASSUMED_PREFILL_TOKENS_PER_S = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Figures of a whole plan."""

    rounds: int
    calls_by_arm: dict[str, int]
    prompt_tokens: int
    output_tokens: int
    minutes: float
    """Rough: from the trace's waits and the assumed speeds."""
    assumed: str = field(default=f"{ASSUMED_TOKEN_S * 1000:g} ms a token, {ASSUMED_PREFILL_TOKENS_PER_S:,.0f} new prompt tokens a second")


@dataclass(frozen=True, slots=True)
class _Block:
    calls: int
    prompt_tokens: int
    output_tokens: int
    seconds: float


def cost(plan: Plan) -> Cost:
    """Add up what *plan* sends; budgets are upper bounds and are taken into account."""
    blocks = {block.index: _block(plan, block) for block in plan.blocks}
    calls = dict.fromkeys(plan.arms, 0)
    prompt = output = 0
    seconds = 0.0
    for round_ in plan.rounds:
        for play in round_.plays:
            block = blocks[play.block]
            calls[play.arm] += block.calls
            prompt += block.prompt_tokens
            output += block.output_tokens
        seconds += max((blocks[play.block].seconds for play in round_.plays), default=0.0)
    return Cost(rounds=len(plan.rounds), calls_by_arm=calls, prompt_tokens=prompt, output_tokens=output, minutes=seconds / 60)


def _block(plan: Plan, block: Block) -> _Block:
    calls = prompt = output = 0
    longest = busy = 0.0
    sessions = 0
    for session in block.sessions:
        sessions += 1
        contexts = _contexts(plan, session)
        calls += len(session.turns)
        prompt += sum(contexts)
        output += sum(turn.output for turn in session.turns)
        seconds = seconds_of(plan.load, session)
        busy += seconds
        longest = max(longest, _start_s(plan.load, session, sessions) + seconds)
    if isinstance(plan.load.arrivals, ClosedLoop):
        longest = busy / min(plan.load.arrivals.sessions, max(1, sessions))
    budget = plan.load.budget
    share = min(1.0, budget.calls / calls) if budget.calls and calls else 1.0
    if budget.seconds and longest * share > budget.seconds:
        share = budget.seconds / longest
    longest *= share
    return _Block(round(calls * share), round(prompt * share), round(output * share), longest)


def _contexts(plan: Plan, session: Session) -> list[int]:
    lengths = [s.tokens for s in plan.header.prefixes.get(session.prefix or "", ())]
    out = []
    for turn in session.turns:
        lengths = lengths if turn.keep is None else lengths[: turn.keep]
        lengths = lengths + [s.tokens for s in turn.add]
        out.append(sum(lengths))
    return out


def seconds_of(load: Load, session: Session) -> float:
    """Return about how long a session takes, its waits included."""
    return sum(turn_seconds(load, turn) for turn in session.turns)


def turn_seconds(load: Load, turn: Turn) -> float:
    """Return about how long it takes until a turn is answered, from the end of the one before it."""
    rule = load.waits.get(turn.wait or "")
    wait_s = turn.wait_s * (rule.scale if rule else 1.0)
    wait_s = min(wait_s, rule.cap_s) if rule and rule.cap_s is not None else wait_s
    return wait_s + turn.output * ASSUMED_TOKEN_S + sum(s.tokens for s in turn.add) / ASSUMED_PREFILL_TOKENS_PER_S


def _start_s(load: Load, session: Session, position: int) -> float:
    match load.arrivals:
        case Recorded(speed=speed):
            return (session.start_s or 0.0) / speed
        case OpenLoop(rate_per_s=rate):
            return position / rate
        case ClosedLoop():
            return 0.0
