from __future__ import annotations

from itertools import islice

import pytest

from agentload.errors import UsageError
from agentload.layout.cost import fill_s
from agentload.layout.long_run import long_run
from agentload.layout.traces import repeat
from agentload.layout.windows import Laid
from agentload.model.plan import Budget, ClosedLoop, Load, OpenLoop
from agentload.model.trace import PRIME, Header, Segment, Session, Trace, Turn


def said(tokens: int, key: str) -> Segment:
    return Segment(role="user", tokens=tokens, key=key)


def talk(name: str, turns: int = 6) -> Session:
    made = tuple(
        Turn(
            add=(said(1_000, f"{name}.{turn}"),),
            output=50,
            wait="user" if turn else None,
            wait_s=9.0 if turn else 0,
        )
        for turn in range(turns)
    )
    return Session(session=name, workload="chat", start_s=0.0, prefix="P", turns=made)


TRACE = Trace(
    header=Header(name="t", prefixes={"P": (said(500, "sys"),)}),
    sessions=(talk("a"), talk("b"), talk("c", 2)),
)


def laid(load: Load, *, agents: int, pairs: int = 2) -> Laid:
    return long_run(TRACE, load, agents=agents, pairs=pairs, seed=1, pools={}).laid


def test_each_pair_is_a_window_of_its_own_in_which_so_many_sessions_are_kept_going() -> None:
    made = laid(Load(), agents=4)
    assert (made.load.arrivals, made.load.budget.seconds) == (ClosedLoop(sessions=4), 1800.0)
    assert [block.is_window for block in made.blocks] == [True, True]
    first, second = (tuple(islice(block.sessions, 5)) for block in made.blocks)
    assert first != second
    assert PRIME in {session.turns[0].event for session in first}


def test_sessions_do_not_run_out_before_the_run_is_over() -> None:
    made = laid(Load(budget=Budget(seconds=600)), agents=4)
    mean_s = (2 * (6 * 1.1 + 45) + 2 * 1.1 + 9) / 3
    assert sum(1 for _ in made.blocks[0].sessions) >= 4 * 600 / mean_s * 4


def test_a_pool_is_full_when_as_many_tokens_as_it_holds_were_written() -> None:
    turns = (
        Turn(add=(said(1_000, "a.0"),), output=50),
        Turn(add=(said(1_000, "a.1"),), output=50, wait="user", wait_s=9.0),
    )
    trace = Trace(
        header=TRACE.header,
        sessions=(Session(session="a", workload="chat", start_s=0.0, prefix="P", turns=turns),),
    )
    load = Load(arrivals=ClosedLoop(sessions=1))
    assert fill_s(trace, load, 1_550) == pytest.approx(1.1)
    assert fill_s(trace, load, 1_551) == pytest.approx(11.2)
    assert fill_s(trace, load, 1e12) is None


SLOW, FAST, ENDLESS = 300_000.0, 1_000.0, 1e12


@pytest.mark.parametrize(
    ("given_s", "lasted_s", "pools", "lasts_minutes", "because"),
    [
        (
            None,
            None,
            {"a": FAST, "b": None},
            30,
            "the least that tells anything; --duration SECONDS says otherwise",
        ),
        (
            None,
            None,
            {"a": FAST, "b": SLOW},
            60,
            "3 times what the slowest pool takes to fill; --duration SECONDS says otherwise",
        ),
        (
            None,
            None,
            {"a": ENDLESS},
            30,
            "the least that tells anything; --duration SECONDS says otherwise",
        ),
        (600, None, {"a": SLOW}, 10, "as --duration says"),
        (None, 1200, {"a": SLOW}, 20, "as the run began"),
    ],
)
def test_a_block_lasts_as_long_as_somebody_says_else_as_its_pools_need(
    given_s: float | None,
    lasted_s: float | None,
    pools: dict[str, float | None],
    lasts_minutes: float,
    because: str,
) -> None:
    load = Load(budget=Budget(seconds=given_s))
    made = long_run(TRACE, load, agents=2, pairs=1, seed=1, pools=pools, lasted_s=lasted_s)
    assert made.laid.load.budget.seconds == lasts_minutes * 60
    assert (made.fills.lasts_minutes, made.fills.because) == (lasts_minutes, because)
    assert ("--duration 3420, or more sessions" in (made.fills.warning() or "")) == (
        pools["a"] == SLOW
    )


@pytest.mark.parametrize(
    ("load", "agents"),
    [
        (Load(arrivals=OpenLoop(rate_per_s=1)), 4),
        (Load(arrivals=ClosedLoop(sessions=2)), 4),
        (Load(), 0),
    ],
)
def test_a_load_of_its_own_is_refused_beside_it(load: Load, agents: int) -> None:
    with pytest.raises(UsageError, match="--capacity"):
        laid(load, agents=agents)


def test_each_round_is_new_content_and_shares_within_itself_what_was_shared() -> None:
    def session(name: str, *keys: str | tuple[int, int]) -> Session:
        add = tuple(Segment(role="user", tokens=128, key=key) for key in keys)
        return Session(session=name, workload="w", start_s=0.0, turns=(Turn(add=add, output=1),))

    trace = Trace(
        header=Header(name="t"),
        sessions=(session("s0", (7, 2), "own"), session("s1", (7, 2), "other")),
    )
    played = [[part.key for part in each.turns[0].add] for each in repeat(trace, 3)]
    shared, texts = [keys[0] for keys in played], [keys[1] for keys in played]
    assert shared[::2] == shared[1::2]
    assert len(set(shared)) == 3
    assert texts == ["own", "other", "own#1", "other#1", "own#2", "other#2"]
