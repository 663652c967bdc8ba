"""Read the pages from a pair of blocks down to one call.

A pair's sessions on each arm, a session's calls, a call's tokens one by one.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

import duckdb

from agentload.model.record import Record
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.spec import ChartAxis, Plot, Series, every
from agentload.report.labels import SLOTS
from agentload.store.runs import BlockLine, RunSummary, summary
from agentload.ui.pages import records
from agentload.ui.pages.run import run_named
from agentload.ui.source import NotFoundError, Query

SESSIONS: Final = 200
"""Sessions of a pair that are listed, those that differ most first."""
_NO_PAIR: Final = -1
CHUNKS: Final = 500
"""Rows of a call's table of chunks."""

_SESSIONS: Final = """
SELECT session, any_value(workload) AS workload, arm, count(*) AS calls,
    count_if(status = 'ok') AS ok,
    sum(turn_ms) AS task_ms, median(ttft_ms) AS ttft_ms
FROM turns WHERE run_id = $run AND pair = $pair AND NOT prime AND ($workload = ''
    OR workload = $workload)
GROUP BY session, arm ORDER BY session
"""
_TURNS: Final = """
SELECT request_id, leg, pair, block, arm, workload, session, turn, attempt, status, prime,
    since_ns, due_ns, released_ns, sent_ns, first_ns,
    done_ns, ttft_ms, tpot_ms, turn_ms, lag_ms, context_tokens, prompt_tokens, cached_tokens,
        asked_tokens, output_tokens, finish_reason,
    error, http_status, gateway, replica, stamp_source, chunk_ns, chunk_tokens
FROM turns WHERE run_id = $run AND pair = $pair AND session = $session
    ORDER BY list_position($arms, arm), leg, turn, attempt, released_ns
"""
_CALL: Final = (
    "SELECT pair, session, turn, arm FROM attempts WHERE run_id = $run AND request_id = $call"
)


class SessionOnArm(Record):
    """A session as one arm played it."""

    session: str
    workload: str
    arm: str
    calls: int
    ok: int
    task_ms: float | None
    ttft_ms: float | None

    @property
    def failed(self) -> int:
        """Count the calls that did not end well."""
        return self.calls - self.ok


class SessionLine(Record):
    """A session on each arm of its pair, in their order; None where an arm did not play it."""

    session: str
    workload: str
    cells: tuple[SessionOnArm | None, ...]

    @property
    def changes(self) -> tuple[float | None, ...]:
        """Return how much longer each arm took than the first; None if a call failed."""
        first, *others = self.cells
        return tuple(_change(first, each) for each in others)

    @property
    def compared(self) -> tuple[tuple[SessionOnArm | None, float | None], ...]:
        """Pair each arm's play with its change from the first arm."""
        return tuple(zip(self.cells, (None, *self.changes), strict=True))

    @property
    def largest(self) -> float:
        """Return the largest change to either side."""
        return max((abs(each) for each in self.changes if each is not None), default=0.0)


class PairPage(Record):
    """The data of the page."""

    run: RunSummary
    pair: int
    workload: str
    arms: tuple[str, ...]
    slots: dict[str, int]
    blocks: tuple[BlockLine, ...]
    sessions: tuple[SessionLine, ...]
    total: int
    chart: Plot | None
    before: int | None
    after: int | None


class Attempt(Record):
    """One attempt of a call."""

    request_id: str
    leg: int
    pair: int
    block: int
    arm: str
    workload: str
    session: str
    turn: int
    attempt: int
    status: str
    prime: bool
    since_ns: int
    due_ns: int
    released_ns: int
    sent_ns: int | None
    first_ns: int | None
    done_ns: int | None
    ttft_ms: float | None
    tpot_ms: float | None
    turn_ms: float | None
    lag_ms: float | None
    context_tokens: int
    prompt_tokens: int | None
    cached_tokens: int | None
    asked_tokens: int
    output_tokens: int | None
    finish_reason: str | None
    error: str | None
    http_status: int | None
    gateway: str | None
    replica: str | None
    stamp_source: str
    chunk_ns: tuple[int, ...] | None
    chunk_tokens: tuple[int, ...] | None

    def chunks(self) -> tuple["ChunkLine", ...]:
        """Return what arrived when, on the clock of the call."""
        if not self.chunk_ns:
            return ()
        at = [(each - self.since_ns) / 1e6 for each in self.chunk_ns]
        counts = self.chunk_tokens or (1,) * len(at)
        lines = []
        before_ms: float | None = None
        for at_ms, count in zip(at, counts, strict=True):
            gap_ms = None if before_ms is None else at_ms - before_ms
            lines.append(ChunkLine(at_ms=at_ms, gap_ms=gap_ms, tokens=count))
            before_ms = at_ms
        return tuple(lines)


class Bar(Record):
    """A call within its session.

    Its start, and how long it waited, read and wrote, as shares of the longest arm's time.
    """

    turn: Attempt
    start: float
    held: float
    first: float
    wrote: float


class SessionPage(Record):
    """The data of the page."""

    run: RunSummary
    pair: int
    session: str
    workload: str
    slots: dict[str, int]
    bars: tuple[Bar, ...]
    seconds: float


class ChunkLine(Record):
    """What arrived at one moment."""

    at_ms: float
    gap_ms: float | None
    tokens: int


class CallPage(Record):
    """The data of the page."""

    run: RunSummary
    turn: Attempt
    slots: dict[str, int]
    twins: tuple[Attempt, ...]
    """The same turn on other arms, and its other attempts."""
    chunks: tuple[ChunkLine, ...]
    total: int
    charts: tuple[Plot, ...]
    before: Attempt | None
    after: Attempt | None


def pair(connection: duckdb.DuckDBPyConnection, query: Query) -> PairPage:
    """Read a pair of blocks; raise `NotFoundError` if the run has none of that number."""
    overview, slots = _overview(connection, query)
    number = query.number("pair", otherwise=_NO_PAIR)
    pairs = sorted({each.pair for each in overview.blocks})
    if number not in pairs:
        raise NotFoundError(
            f"run {overview.run.run_id} has no pair {query.word('pair')}",
            hint=f"its pairs: {', '.join(map(str, pairs))}",
        )
    workload = query.word("workload")
    rows = records(
        connection, SessionOnArm, _SESSIONS, run=overview.run.run_id, pair=number, workload=workload
    )
    arms = tuple(arm for arm in slots if any(each.arm == arm for each in rows))
    by_session: dict[str, dict[str, SessionOnArm]] = {}
    for each in rows:
        by_session.setdefault(each.session, {})[each.arm] = each
    lines = []
    for name, own in by_session.items():
        played = next(iter(own.values()))
        cells = tuple(map(own.get, arms))
        lines.append(SessionLine(session=name, workload=played.workload, cells=cells))
    lines.sort(key=lambda line: line.largest, reverse=True)
    place = pairs.index(number)
    return PairPage(
        run=overview,
        pair=number,
        workload=workload,
        arms=arms,
        slots=slots,
        blocks=tuple(each for each in overview.blocks if each.pair == number),
        sessions=tuple(lines[:SESSIONS]),
        total=len(lines),
        chart=_differences(lines, arms, slots),
        before=pairs[place - 1] if place else None,
        after=pairs[place + 1] if place + 1 < len(pairs) else None,
    )


def session(connection: duckdb.DuckDBPyConnection, query: Query) -> SessionPage:
    """Read the calls of a session in one pair, on every arm.

    Raise `NotFoundError` if there are none.
    """
    overview, slots = _overview(connection, query)
    turns = _turns(
        connection,
        overview,
        slots,
        pair=query.number("pair", otherwise=_NO_PAIR),
        session=query.word("session"),
    )
    begins: dict[str, int] = {}
    for each in turns:
        begins[each.arm] = min(each.since_ns, begins.get(each.arm, each.since_ns))
    lasted = [(each.done_ns or each.released_ns) - begins[each.arm] for each in turns]
    whole = max(lasted) or 1
    return SessionPage(
        run=overview,
        pair=turns[0].pair,
        session=turns[0].session,
        workload=turns[0].workload,
        slots=slots,
        bars=tuple(_bar(each, begins[each.arm], whole) for each in turns),
        seconds=whole / 1e9,
    )


def call(connection: duckdb.DuckDBPyConnection, query: Query) -> CallPage:
    """Read one call with its tokens, and the same turn on other arms.

    Raise `NotFoundError` if there is none of that name.
    """
    overview, slots = _overview(connection, query)
    asked = {"run": overview.run.run_id, "call": query.word("call")}
    found = connection.execute(_CALL, asked).fetchone()
    if found is None:
        raise NotFoundError(
            f"run {overview.run.run_id} has no call '{query.word('call')}'",
            hint="its calls are listed by pair and session",
        )
    number, name, at, arm = found
    turns = _turns(connection, overview, slots, pair=number, session=name)
    own = next(each for each in turns if each.request_id == asked["call"])
    line = [each for each in turns if each.arm == arm and each.leg == own.leg]
    place = line.index(own)
    twins = tuple(each for each in turns if each.turn == at and each is not own)
    chunks = own.chunks()
    return CallPage(
        run=overview,
        turn=own,
        slots=slots,
        twins=twins,
        chunks=chunks[:CHUNKS],
        total=len(chunks),
        charts=tuple(_timeline(own, twins, slots)) if chunks else (),
        before=line[place - 1] if place else None,
        after=line[place + 1] if place + 1 < len(line) else None,
    )


def _overview(
    connection: duckdb.DuckDBPyConnection, query: Query
) -> tuple[RunSummary, dict[str, int]]:
    """Return the run that a page is about, and the colour of each arm by its number."""
    overview = summary(connection, run_named(connection, query.name))
    # Of a damaged journal, blocks may name arms that no row describes.
    described = [each.arm for each in overview.arms]
    played = [each.arm for each in overview.blocks]
    arms = dict.fromkeys((*described, *played))
    return overview, {arm: place % SLOTS for place, arm in enumerate(arms)}


def _turns(
    connection: duckdb.DuckDBPyConnection, overview: RunSummary, slots: dict[str, int], **where: Any
) -> tuple[Attempt, ...]:
    found = records(connection, Attempt, _TURNS, run=overview.run.run_id, arms=list(slots), **where)
    if not found:
        raise NotFoundError(
            f"pair {where['pair']} has no session '{where['session']}'",
            hint="its sessions are listed on the pair's page",
        )
    return found


def _change(first: SessionOnArm | None, other: SessionOnArm | None) -> float | None:
    """Return by how much longer a session took than on the *first* arm.

    None where an arm did not finish all of its calls, or the first took no time.
    """
    if first is None or other is None or not first.task_ms or other.task_ms is None:
        return None
    ended_well = first.ok == first.calls == other.ok == other.calls
    if not ended_well:
        return None
    return other.task_ms / first.task_ms - 1


def _differences(
    lines: Sequence[SessionLine], arms: Sequence[str], slots: dict[str, int]
) -> Plot | None:
    """Draw how much longer each session took than on the first arm."""
    drawn = []
    for place, arm in enumerate(arms[1:]):
        changes = [(each.session, each.changes[place]) for each in lines]
        known = [(name, change) for name, change in changes if change is not None]
        points = []
        for number, (name, change) in enumerate(every(known), start=1):
            tip = f"{name} on {labels.arm(arm)}: {say.relative(change)}"
            points.append((number, 100 * change, tip))
        drawn.append(Series.of(labels.arm(arm), slots[arm], "points", points))
    if not any(each.xs for each in drawn):
        return None
    return Plot(
        name="sessions",
        title=f"Task latency of each session, compared with {labels.arm(arms[0])}",
        caption=(
            "One mark for each session that ended well on both arms, the largest "
            "differences first; higher is slower."
        ),
        x=ChartAxis(label="session", quantity="count", whole=True),
        y=ChartAxis(label="change, %", quantity="percent"),
        series=tuple(drawn),
    )


def _bar(turn: Attempt, begins_ns: int, whole_ns: int) -> Bar:
    ends = turn.done_ns or turn.released_ns
    first = turn.first_ns or ends
    held = max(0, turn.released_ns - turn.since_ns)
    return Bar(
        turn=turn,
        start=(turn.since_ns - begins_ns) / whole_ns,
        held=held / whole_ns,
        first=max(0, first - turn.released_ns) / whole_ns,
        wrote=max(0, ends - first) / whole_ns,
    )


def _timeline(own: Attempt, twins: Sequence[Attempt], slots: dict[str, int]) -> Iterator[Plot]:
    """Draw when tokens came, and the gaps between them.

    The call is drawn with the same turn on other arms.
    """
    order = list(slots)
    others = [each for each in twins if each.chunk_ns and each.arm != own.arm]
    shown = sorted((own, *others), key=lambda each: order.index(each.arm))
    came = [_came(each, slots[each.arm]) for each in shown]
    gaps = [_gaps(each, slots[each.arm]) for each in shown]
    x = ChartAxis(label="seconds since the clock's start", quantity="seconds", low=0.0)
    yield Plot(
        name="tokens",
        title="Tokens as they came",
        caption=(
            "The first step is the first token. Other arms show the same turn, on the same "
            "bytes where histories are fixed."
        ),
        x=x,
        y=ChartAxis(label="tokens so far", quantity="count", low=0.0),
        series=tuple(came),
    )
    if any(each.xs for each in gaps):
        yield Plot(
            name="gaps",
            title="Time between chunks",
            caption="A chunk may hold several tokens; a gap far above the others is a stall.",
            x=x,
            y=ChartAxis(label="ms", quantity="ms", low=0.0),
            series=tuple(gaps),
        )


def _came(turn: Attempt, slot: int) -> Series:
    """Return how many tokens had come by each chunk."""
    chunks = turn.chunks()
    totals = accumulate(chunk.tokens for chunk in chunks)
    steps = []
    for chunk, total in every(tuple(zip(chunks, totals, strict=True))):
        came = f"{say.plural(total, 'token')} after {say.duration(chunk.at_ms)}"
        steps.append((chunk.at_ms / 1000, total, f"{turn.arm}: {came}"))
    return Series.of(turn.arm, slot, "steps", steps)


def _gaps(turn: Attempt, slot: int) -> Series:
    """Return how long each chunk came after the one before."""
    gaps = [(chunk.at_ms, chunk.gap_ms) for chunk in turn.chunks()]
    known = [(at, gap) for at, gap in gaps if gap is not None]
    points = []
    for at, gap in every(known):
        waited = f"{say.duration(gap)} before the chunk at {say.duration(at)}"
        points.append((at / 1000, gap, f"{turn.arm}: {waited}"))
    return Series.of(turn.arm, slot, "points", points)
