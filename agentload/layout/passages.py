"""Choose prompts and places of a screen: a trace's longest contexts, at its calls' lengths."""

from collections.abc import Sequence
from heapq import nlargest
from itertools import islice
from typing import Final

from agentload.errors import PlanError
from agentload.layout.traces import repeat
from agentload.model.record import Record
from agentload.model.trace import Header, Segment, Trace, total_tokens
from agentload.model.walk import contexts

PROMPTS: Final = 8
"""Number of prompts; with fewer no test passes, where several lengths are screened."""
PLACES: Final = 6
"""Number of places in each length; the last is at its end."""
SHORTEST: Final = 1024


class Passages(Record):
    """Hold the prompts and lengths on which an arm is screened."""

    header: Header
    contexts: tuple[tuple[Segment, ...], ...]
    lengths: tuple[int, ...]
    is_own: bool
    """Whether the prompts are the user's own, not drawn words."""


def ladder(shortest: int, longest: int) -> tuple[int, ...]:
    """Return lengths that double, up to *longest*."""
    out = [SHORTEST]
    while out[-1] * 2 <= shortest:
        out[0] *= 2
    while out[-1] * 2 <= longest:
        out.append(out[-1] * 2)
    if longest >= SHORTEST:
        return tuple(out)
    return (longest,)


def places(length: int, block: int) -> tuple[int, ...]:
    """Return how many tokens are before each place of a length, last place first.

    That is whole blocks, and one token more, which is computed.
    """
    step = max(block, length // 16)
    found = ((length - 1 - number * step) // block * block + 1 for number in range(PLACES))
    return tuple(dict.fromkeys(each for each in found if each > 1))


def own_passages(trace: Trace) -> Passages:
    """Return the longest contexts of a trace's longest sessions, at the lengths of its calls.

    A short trace is repeated.
    """
    session_count = sum(1 for _ in islice(trace.sessions, PROMPTS))
    rounds = -(-PROMPTS // max(1, session_count))
    sessions = repeat(trace, rounds) if rounds > 1 else trace.sessions
    calls: list[int] = []
    found: list[tuple[int, int, tuple[Segment, ...]]] = []
    for session in sessions:
        sent = [_without_images(context) for context in contexts(trace.header, session)]
        sizes = [total_tokens(context) for context in sent]
        calls += sizes
        if sizes:
            largest = max(sizes)
            found.append((largest, len(found), sent[sizes.index(largest)]))
    if not calls:
        raise PlanError("the trace has no call to screen with", hint="agentload trace show")
    fewest = sorted(calls)[len(calls) // 10]
    lengths = ladder(fewest, max(calls))
    return Passages(
        header=trace.header,
        contexts=tuple(each for *_, each in nlargest(PROMPTS, found)),
        lengths=lengths,
        is_own=True,
    )


def _without_images(context: Sequence[Segment]) -> tuple[Segment, ...]:
    return tuple(each for each in context if each.role != "image")


def random_passages(lengths: tuple[int, ...], *, seed: int) -> Passages:
    """Return drawn words at chosen lengths, for a screen without a trace."""
    most = max(lengths)
    texts = tuple(
        (Segment(role="user", tokens=most, key=f"screen{number}"),) for number in range(PROMPTS)
    )
    return Passages(
        header=Header(name="drawn", seed=seed), contexts=texts, lengths=lengths, is_own=False
    )
