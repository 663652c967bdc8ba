"""Look through a block before its clock starts, as that takes a while and must delay no call."""

from typing import Final

from agentload.dispatch.arrivals import SECOND
from agentload.dispatch.intake import intake
from agentload.model.plan import Block, Foretelling, Plan
from agentload.model.record import Record
from agentload.model.trace import PRIME, Session

# On a local network; where connecting takes longer, the call waits, and its row says so.
CONNECT_NS: Final = SECOND // 50
TOKEN_NS: Final = 100  # to render one token on a busy core
MOST_NS: Final = 5 * SECOND


class Foresight(Record):
    """Hold what must be known of a block before it starts."""

    quoted: frozenset[tuple[str, int]]
    """Turns whose answers a later call quotes, as (session, turn); turn -1 is the last."""
    primes: int
    """Number of priming calls, all of which are answered before the block's clock starts."""
    lead_ns: int
    """Time to prepare the calls that the block starts with, and those that may follow."""


def foresight(plan: Plan, block: Block) -> Foresight:
    """Look through a block's sessions for quoted turns, priming calls and the lead time."""
    quoted: set[tuple[str, int]] = set()
    primes = 0
    sessions = block.sessions
    told = sessions.telling() if isinstance(sessions, Foretelling) else sessions
    for session in told:
        for turn in session.turns:
            quoted |= {
                (each.source.session, each.source.turn)
                for each in turn.add
                if each.source is not None
            }
            primes += block.is_window and turn.event == PRIME
    if block.lead_ns is not None:
        return Foresight(quoted=frozenset(quoted), primes=primes, lead_ns=block.lead_ns)
    begun = intake(plan, block, started_ns=0)
    first = [session for session, start_ns in begun.take(0) if start_ns is not None]
    tokens = sum(_first_tokens(plan, session) for session in (*first, *begun.followers()))
    return Foresight(
        quoted=frozenset(quoted),
        primes=primes,
        lead_ns=min(CONNECT_NS + TOKEN_NS * tokens, MOST_NS),
    )


def _first_tokens(plan: Plan, session: Session) -> int:
    prefix = plan.header.prefixes.get(session.prefix or "", ())
    return sum(segment.tokens for segment in (*prefix, *session.turns[0].add))
