"""What a call took: every quantity of one row, defined once.

The view `turns` of the database says the same, and a test holds it equal.

A turn's clock starts when its first attempt was due, in an open loop: whatever delays it is
the server's. In a closed loop, or under a cap on calls in flight, we hold turns back
ourselves, and the clock starts when the first attempt was released. It stops at the last byte.
"""

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, TypeVar

from agentload.model.commands import Status
from agentload.model.plan import ClosedLoop, Load
from agentload.model.rows import CallRow

ClockStart: TypeAlias = Literal["due", "released"]

MS = 1e6
T = TypeVar("T", int, float)


def clock_start(load: Load) -> ClockStart:
    """Return where the clocks of a load's turns start."""
    if load.max_in_flight is not None or isinstance(load.arrivals, ClosedLoop):
        return "released"
    return "due"


class Clock:
    """Say when the clock of each row's turn started; rows come
    in their order, so that a retry finds the attempt before it.
    """

    def __init__(self, start: ClockStart = "due") -> None:
        self._start = start
        self._failed_ns: dict[str, int] = {}

    def since_ns(self, row: CallRow) -> int:
        """Return when the clock started: for the first attempt of the turn."""
        own_ns = row.due_ns if self._start == "due" else row.released_ns
        since_ns = (
            own_ns
            if row.retry_of is None
            else min(own_ns, self._failed_ns.pop(row.retry_of, own_ns))
        )
        if row.status not in {"ok", "not_sent"}:
            self._failed_ns[row.request_id] = since_ns
        return since_ns


def ttft_ms(row: CallRow, since_ns: int) -> float | None:
    """Return the time to the first token of any kind."""
    if row.first_ns is None:
        return None
    return (row.first_ns - since_ns) / MS


def tpot_ms(row: CallRow) -> float | None:
    """Return the mean time per output token after the first
    chunk; None where nothing came after it, or nothing later.

    A first chunk of several tokens says nothing of the time
    between them: only those after it took `last_ns - first_ns`.
    """
    tokens = row.output_tokens
    of_first = 1
    if row.chunks is not None and len(row.chunks):
        counts = row.chunks.token_counts()
        tokens = sum(counts) if tokens is None else tokens
        of_first = counts[0]
    if row.first_ns is None or row.last_ns is None or tokens is None or tokens <= of_first:
        return None
    if row.last_ns > row.first_ns:
        return (row.last_ns - row.first_ns) / MS / (tokens - of_first)
    return None


def turn_ms(row: CallRow, since_ns: int) -> float | None:
    """Return the time to the last byte of the answer."""
    if row.done_ns is None:
        return None
    return (row.done_ns - since_ns) / MS


def lag_ns(row: CallRow) -> int | None:
    """Return how late the attempt left by our fault.

    The time that opening its connection took is no delay of ours, but to begin with that late is.
    """
    if row.sent_ns is None:
        return None
    opened_ns = row.released_ns if row.opened_ns is None else row.opened_ns
    began_ns = row.released_ns if row.dialled_ns is None else max(row.released_ns, row.dialled_ns)
    return row.sent_ns - row.released_ns - max(0, opened_ns - began_ns)


def lag_ms(row: CallRow) -> float | None:
    """Return how late the attempt left by our fault, in ms."""
    lag = lag_ns(row)
    return None if lag is None else lag / MS


NOT_OUTCOMES: Final[frozenset[Status]] = frozenset({"cancelled", "stopped"})
"""By plan or by the user, not by the server: no outcome of the turn."""


def is_outcome(row: CallRow) -> bool:
    """Tell whether an attempt says something of its server,
    provided that none follows it and that its block counts.
    """
    return not row.prime and row.status not in NOT_OUTCOMES


def p99(values: Sequence[T]) -> T | None:
    """Return the lower of the two values around the 99th
    percentile: of fewer than 100, the upper is the single worst.
    """
    if values:
        return sorted(values)[int(0.99 * (len(values) - 1))]
    return None
