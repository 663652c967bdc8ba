"""What is known of a block before its clock starts:
finding it out takes a while, and must delay no call.
"""

from dataclasses import dataclass
from typing import Final

from agentload.dispatch.arrivals import SECOND
from agentload.dispatch.intake import intake
from agentload.model.plan import Block, Foretelling, Plan
from agentload.model.trace import PRIME, Session

CONNECT_NS: Final = (
    SECOND // 50
)  # on a local network; where it takes longer, the call waits for it and says so
TOKEN_NS: Final = 100  # to render one, on a busy core
MOST_NS: Final = 5 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Foresight:
    """What a block needs before it begins."""

    quoted: frozenset[tuple[str, int]]
    """Turns whose answers a later call quotes, by session; -1 is its last."""
    primes: int
    """Calls that prime contexts, all of which are answered before the block's clock starts."""
    lead_ns: int
    """What making ready the calls takes that the block
    begins with, and those that may follow any of them.
    """


def foresight(plan: Plan, block: Block) -> Foresight:
    """Look through a block's sessions."""
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
