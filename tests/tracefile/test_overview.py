from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.model.trace import Header, Role, Segment, Session, Trace, Turn, TurnRef
from agentload.tracefile.load import calls_of, load
from agentload.tracefile.overview import ContextGrowth, FieldSummary, PrefixReuse, overview
from agentload.tracefile.reuse import BLOCK, Chain, ChainLink, PoolCache

HEADER = Header(name="x", prefixes={"p": (Segment(role="system", tokens=1_000, key="sys"),)})


def said(tokens: int, key: str, role: Role = "user") -> Segment:
    return Segment(role=role, tokens=tokens, key=key)


def turn(key: str, *, tokens: int = 1_000, output: int = 40, **fields: Any) -> Turn:
    return Turn(add=(said(tokens, key),), output=output, **fields)


def session(name: str, *turns: Turn, start_s: float | None = 0.0) -> Session:
    return Session(session=name, workload=name[0], turns=turns, start_s=start_s, prefix="p")


def trace(*sessions: Session) -> Trace:
    return Trace(header=HEADER, sessions=sessions)


def test_a_trace_is_summed_up() -> None:
    found = overview(
        trace(
            session(
                "a1",
                turn("a1.0", output=100),
                turn("a1.1", wait="user", wait_s=9.0, spawn=("b1",), output=60),
            ),
            session("b1", turn("b1.0", event="report"), start_s=None),
            session("a2", turn("a2.0"), start_s=10.0),
        )
    )
    assert (found.sessions, found.spawned, found.turns, found.last_start_s) == (3, 1, 4, 10.0)
    assert (found.workloads, found.events) == ({"a": 2, "b": 1}, {"report": 1})
    assert found.fields["output"] == FieldSummary(
        count=3, mean=200 / 3, quantiles=(40, 40, 60, 100, 100, 100, 100)
    )
    assert found.growth == (
        ContextGrowth(call=1, sessions=3, q50=2_000, q90=2_000),
        ContextGrowth(call=2, sessions=1, q50=3_000, q90=3_000),
    )
    # The second session knows the prefix, to whole blocks of 16 tokens;
    # the second call of the first knows the first's 2,000 tokens.
    assert found.reuse_by_event == {
        "": PrefixReuse(tokens=7_000, known=2_000 + 992, share=2_992 / 7_000),
        "report": PrefixReuse(tokens=2_000, known=992, share=992 / 2_000),
    }
    assert (sum(found.arrivals), found.arrivals[0], found.arrivals[-1], found.arrivals_cv) == (
        2,
        1,
        1,
        None,
    )


def test_an_empty_trace_is_summed_up_too() -> None:
    assert overview(trace()).sessions == 0
    assert load(trace(), pools=(100,)).calls == 0


def calls(*sessions: Session) -> list[tuple[str, int, float]]:
    return [
        (call.session.session, call.number, round(call.start_s, 3))
        for call in calls_of(trace(*sessions))
    ]


def test_calls_start_when_what_they_wait_for_is_complete() -> None:
    """A call of 1,000 new tokens and 40 of output takes 0.1 and 1 seconds."""
    assert calls(
        session(
            "a",
            turn("a0", spawn=("b",)),
            turn("a1", after=(TurnRef(session="b", turn=-1),), wait="tool", wait_s=2.0),
        ),
        session("b", turn("b0"), turn("b1"), start_s=None),
        session("c", turn("c0"), start_s=1.05),
    ) == [("a", 0, 0.0), ("c", 0, 1.05), ("b", 0, 1.1), ("b", 1, 2.2), ("a", 1, 5.3)]


def test_a_call_that_waits_for_a_later_session_starts_after_it() -> None:
    assert calls(
        session("a", turn("a0", after=(TurnRef(session="b", turn=0),))),
        session("b", turn("b0"), turn("b1"), start_s=3.0),
    ) == [("b", 0, 3.0), ("a", 0, 4.1), ("b", 1, 4.1)]


def test_a_call_that_waits_for_what_never_comes_is_left_out() -> None:
    assert calls(
        session("a", turn("a0", after=(TurnRef(session="b", turn=0),))), session("c", turn("c0"))
    ) == [("c", 0, 0.0)]


def test_what_overlaps_is_held_at_once() -> None:
    found = load(
        trace(
            session("a", turn("a0"), turn("a1", wait="user", wait_s=8.0)),
            session("b", turn("b0"), start_s=0.5),
        )
    )
    assert found.calls == 3
    assert found.span_s * len(found.running) == pytest.approx(10.2)
    assert (max(found.running), found.running[20], found.running[-1]) == (2, 0, 1)
    assert max(found.running_tokens) == 2 * 2_040
    # Between its calls a session still wants its 2,000 tokens kept.
    assert (found.live_tokens[20], found.live_tokens[-1]) == (2_000, 3_000)


def test_a_pool_forgets_what_was_used_longest_ago_from_the_end_of_a_context_on() -> None:
    pool = PoolCache(2_500)
    one, other = (Chain(HEADER, session(name, turn(name))).turn(0) for name in ("a", "b"))
    assert [pool.call(places) for places in (one, one, other, one, other)] == [
        0,
        2_000,
        992,
        992,
        992,
    ]


def test_a_pool_that_holds_everything_knows_what_an_ideal_cache_knows() -> None:
    sessions = [
        session(f"a{number}", turn(f"{number}.0"), turn(f"{number}.1"), start_s=float(number))
        for number in range(9)
    ]
    found = load(trace(*sessions), pools=(10, 10**6))
    assert found.hits == {10: 0.0, 10**6: pytest.approx(overview(trace(*sessions)).reuse.share)}


class FlatPool:
    """The same cache as a plain list of all that is kept, which every call goes through."""

    def __init__(self, tokens: int) -> None:
        self.room, self.kept = tokens, OrderedDict[int, int]()

    def call(self, places: Sequence[ChainLink]) -> int:
        known = sum(
            place.tokens for place in takewhile(lambda place: place.identity in self.kept, places)
        )
        for place in reversed(places):
            if place.identity not in self.kept:
                self.kept[place.identity] = place.tokens
                self.room -= place.tokens
            self.kept.move_to_end(place.identity)
        while self.room < 0:
            self.room += self.kept.popitem(last=False)[1]
        return known // BLOCK * BLOCK


@given(
    st.integers(0, 400),
    st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 120)), min_size=1, max_size=8),
        min_size=1,
        max_size=40,
    ),
)
def test_a_pool_forgets_as_a_list_of_all_that_was_used_would(
    size: int, contexts: list[list[tuple[int, int]]]
) -> None:
    pool, flat = PoolCache(size), FlatPool(size)
    for context in contexts:
        turns = Turn(add=tuple(said(tokens, f"k{key}") for key, tokens in context), output=1)
        places = Chain(
            Header(name="x"), Session(session="s", workload="w", turns=(turns,), start_s=0.0)
        ).turn(0)
        assert pool.call(places) == flat.call(places)


def test_a_long_session_takes_as_long_as_its_turns() -> None:
    """Eight times the turns took 64 times as long: each call went through all of its context."""

    def seconds(turns: int) -> float:
        long = trace(session("a", *(turn(f"a.{number}", tokens=10) for number in range(turns))))
        began = time.process_time()
        load(long, pools=(5_000,))
        return time.process_time() - began

    assert seconds(4_000) < 24 * max(seconds(500), 0.002)
