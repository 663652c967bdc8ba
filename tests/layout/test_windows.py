"""Windows: where they begin, what they hold, and that every one of them plays to its end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.errors import PlanError
from agentload.layout.carried import carry
from agentload.layout.nominal import nominal_calls
from agentload.layout.steady import Steady, steady
from agentload.layout.timeline import lasts_s, timeline
from agentload.layout.windows import (
    BEYOND_S,
    check_room,
    held_tokens,
    most_windows,
    windows,
    windows_played,
)
from agentload.layout.windows import _alive as alive
from agentload.layout.windows import _followers as followers
from agentload.layout.windows import _instant as instant
from agentload.model.plan import (
    Arrivals,
    Budget,
    ClosedLoop,
    Foretelling,
    Load,
    OpenLoop,
    Plan,
    Play,
    Recorded,
    Round,
)
from agentload.model.trace import PRIME, UNDER_WAY, Segment, Session, Trace, Turn, TurnRef
from tests.dispatch.playing import S, play, took
from tests.growth import least_cpu_s
from tests.layout.family_draws import HEADER, traces

ARRIVALS = st.sampled_from(
    (
        ClosedLoop(sessions=1),
        ClosedLoop(sessions=3),
        OpenLoop(rate_per_s=0.2),
        OpenLoop(rate_per_s=2.0),
        Recorded(),
        Recorded(speed=2.0),
    )
)
SEEDS = st.integers(0, 3)


def load_of(arrivals: Arrivals, seconds: float = 6.0) -> Load:
    return Load(arrivals=arrivals, budget=Budget(seconds=seconds))


def talk(
    name: str,
    *seconds: float,
    start_s: float = 0.0,
    prefix: str | None = None,
    keys: str | None = None,
) -> Session:
    """Return a session whose answers take so long."""
    turns = tuple(
        Turn(
            add=(Segment(role="user", tokens=100, key=f"{keys or name}.{place}"),),
            output=round(each * 50),
        )
        for place, each in enumerate(seconds)
    )
    return Session(session=name, workload="w", turns=turns, start_s=start_s, prefix=prefix)


def trace_of(*sessions: Session) -> Trace:
    return Trace(header=HEADER, sessions=sessions)


def played_plan(stock: Steady, *, number: int, pairs: int, seed: int = 0) -> Plan:
    laid = windows(stock, number=number, pairs=pairs, seed=seed)
    rounds = tuple(
        Round(index=each.index, plays=(Play(block=each.index, arm="a", pair=each.index, salt="s"),))
        for each in laid.blocks
    )
    return Plan(
        run="run",
        seed=seed,
        header=HEADER,
        arms=("a",),
        blocks=laid.blocks,
        rounds=rounds,
        load=laid.load,
    )


# --- where windows begin ---


@given(layouts=st.integers(1, 30), seed=SEEDS)
def test_instants_of_a_layout_are_equal_steps_and_none_comes_twice(layouts: int, seed: int) -> None:
    found = sorted(instant(pair, layouts, seed) for pair in range(layouts))
    assert all(0 <= each < 1 for each in found)
    assert all(b - a == pytest.approx(1 / layouts) for a, b in pairwise(found))


@given(layouts=st.integers(1, 12), rounds=st.integers(2, 4), seed=SEEDS)
def test_after_all_were_used_others_between_them_follow(
    layouts: int, rounds: int, seed: int
) -> None:
    found = [instant(pair, layouts, seed) for pair in range(rounds * layouts)]
    assert len({round(each, 9) for each in found}) == len(found)


@given(slots=st.integers(1, 8), pair=st.integers(0, 9), seed=SEEDS)
def test_the_windows_of_a_pair_lie_in_equal_steps_of_session_time(
    slots: int, pair: int, seed: int
) -> None:
    stock = steady(
        trace_of(*(talk(f"s{place}", 1.0 + place, 3.0) for place in range(5))),
        load_of(ClosedLoop(sessions=slots)),
    )
    ends = [0.0, *stock.ends_s]
    found = sorted(ends[place] + at_s for place, at_s in alive(stock, instant(pair, 4, seed)))
    assert len(found) == slots
    assert all(b - a == pytest.approx(stock.line.seconds / slots) for a, b in pairwise(found))


@given(seed=st.integers(0, 50))
def test_a_family_is_met_in_proportion_to_its_time(seed: int) -> None:
    lasting = (2.0, 4.0, 14.0)
    stock = steady(
        trace_of(*(talk(f"s{each:g}", each) for each in lasting)), load_of(ClosedLoop(sessions=2))
    )
    met = Counter(place for pair in range(50) for place, _ in alive(stock, instant(pair, 50, seed)))
    assert all(abs(met[place] - 100 * each / 20.0) <= 2 for place, each in enumerate(lasting))


@pytest.mark.parametrize("arrivals", [ClosedLoop(sessions=3), OpenLoop(rate_per_s=0.5), Recorded()])
def test_the_windows_of_a_pair_do_not_depend_on_how_many_pairs_there_are(
    arrivals: Arrivals,
) -> None:
    stock = steady(
        trace_of(*(talk(f"s{place}", 2.0, 3.0, 9.0, start_s=5.0 * place) for place in range(6))),
        load_of(arrivals),
    )
    few, many = (windows(stock, number=6, pairs=pairs, seed=3) for pairs in (2, 9))
    assert [tuple(each.sessions) for each in few.blocks] == [
        tuple(each.sessions) for each in many.blocks[:2]
    ]
    assert few.load == many.load


def test_open_arrivals_find_as_many_alive_as_arrive_while_one_lasts() -> None:
    stock = steady(
        trace_of(*(talk(f"s{place}", 4.0, 6.0) for place in range(10))),
        load_of(OpenLoop(rate_per_s=0.7)),
    )
    counts = [len(list(alive(stock, instant(pair, 20, 0)))) for pair in range(20)]
    assert sum(counts) / 20 == pytest.approx(0.7 * 10.0, rel=0.05)


def test_recorded_arrivals_find_alive_who_was_at_that_time() -> None:
    stock = steady(
        trace_of(talk("a", 10.0), talk("b", 10.0, start_s=5.0), talk("c", 2.0, start_s=30.0)),
        load_of(Recorded()),
    )
    # From 0 s to 5 s a call is sent in the 6 s behind; of the time before,
    # and between 15 s and 30 s, 6 s count as a wait for who comes.
    assert stock.line.seconds == pytest.approx(17.0)
    ((place, at_s),) = alive(stock, 8.0 / 17)
    assert place == 0
    assert at_s == pytest.approx(2.0)
    for place, nobody_is_there in ((0, 2.0 / 17), (2, 13.0 / 17)):
        assert list(alive(stock, nobody_is_there)) == []
        comes, in_s = next(followers(stock, nobody_is_there, 0, 0))
        assert comes == place
        assert in_s == pytest.approx(0.0, abs=1e-5)


def test_recorded_arrivals_have_no_window_in_which_nothing_is_sent() -> None:
    stock = steady(
        trace_of(*(talk(f"s{place}", 4.0, 3.0, start_s=3600.0 * place) for place in range(4))),
        load_of(Recorded()),
    )
    laid = windows(stock, number=windows_played(stock, 12), pairs=12, seed=0)
    played = [nominal_calls(HEADER, block, laid.load) for block in laid.blocks]
    assert all(any(each.counts for each in calls) for calls in played)


# --- what they meet ---


@pytest.mark.parametrize("wait_s", [0.0, 2.0, 6.0, 600.0])
def test_a_call_is_met_equally_often_however_long_its_session_waits_for_it(wait_s: float) -> None:
    asked = talk("s", *[1.0] * 30)
    waits = replace(
        asked,
        turns=tuple(
            replace(turn, wait="tool", wait_s=wait_s * (place == 15))
            for place, turn in enumerate(asked.turns)
        ),
    )
    stock = steady(trace_of(waits), load_of(ClosedLoop(sessions=1)))
    laid = windows(stock, number=300, pairs=300, seed=0)
    calls = (
        call
        for block in laid.blocks
        for call in nominal_calls(HEADER, block, laid.load)
        if call.counts
    )
    met = Counter(str(call.turn.add[0].key).partition("#")[0] for call in calls)
    usual = sum(met[f"s.{place}"] for place in range(8, 15)) / 7
    assert met["s.15"] == pytest.approx(usual, rel=0.1)


def test_sessions_whose_contexts_are_alike_lie_side_by_side() -> None:
    kinds = [replace(talk(f"s{place}", *[1.0] * (1 + place % 3))) for place in range(9)]
    stock = steady(trace_of(*kinds), load_of(ClosedLoop(sessions=1)))
    assert [len(family[0].turns) for family in stock.families] == [1, 1, 1, 2, 2, 2, 3, 3, 3]


@given(seed=SEEDS)
def test_those_that_follow_spread_over_all_sessions(seed: int) -> None:
    stock = steady(
        trace_of(*(talk(f"s{place}", 1.0) for place in range(12))), load_of(ClosedLoop(sessions=1))
    )
    second = {
        place for pair in range(24) for place, _ in islice(followers(stock, 0.5, pair, seed), 1, 2)
    }
    assert len(second) >= 11


# --- how many ---


def test_there_are_no_more_windows_than_the_trace_has_time_for() -> None:
    stock = steady(
        trace_of(*(talk(f"s{place}", 10.0) for place in range(6))), load_of(ClosedLoop(sessions=2))
    )
    assert most_windows(stock) == 10
    assert [windows_played(stock, pairs) for pairs in (1, 4, 5, 50)] == [2, 8, 10, 10]
    check_room(stock, 10)
    for number in (1, 11):
        with pytest.raises(PlanError):
            check_room(stock, number)


def test_a_trace_shorter_than_a_window_still_has_one_for_each_session() -> None:
    stock = steady(trace_of(talk("s", 2.0)), load_of(ClosedLoop(sessions=3), seconds=60.0))
    assert windows_played(stock, 8) == 3
    check_room(stock, 3)


def test_a_trace_without_sessions_is_refused() -> None:
    with pytest.raises(PlanError, match="no session"):
        steady(trace_of(), load_of(ClosedLoop(sessions=1)))


# --- what they hold ---


@settings(max_examples=settings().max_examples // 4)
@given(trace=traces(), arrivals=ARRIVALS, seed=SEEDS)
def test_windows_play_to_their_end(trace: Trace, arrivals: Arrivals, seed: int) -> None:
    stock = steady(trace, load_of(arrivals))
    made = played_plan(stock, number=12, pairs=2, seed=seed)
    log = play(made, took(0.3))
    assert not log.skipped
    assert all(end.is_whole for end in log.ends)
    for block, end in zip(made.blocks, log.ends, strict=True):
        sent = [each for each in log.sent if each.pair == block.index]
        primes = [turn for each in block.sessions for turn in each.turns if turn.event == PRIME]
        assert end.primed_ns is not None
        first = [each for each in sent if each.released_ns < end.primed_ns]
        assert len(first) == len(primes)
        assert all(each.call.output == 1 and each.call.prime for each in first)
        assert not [
            each
            for each in sent[len(first) :]
            if each.call.output == 1 and each.call.turn == 0 and each.call.prime and not each.tail
        ]
        counting = [each for each in sent if not each.call.prime]
        assert all(each.released_ns < end.primed_ns + 6 * S for each in counting)


@given(trace=traces(), arrivals=ARRIVALS, seed=SEEDS)
def test_only_what_different_sessions_share_is_shared(
    trace: Trace, arrivals: Arrivals, seed: int
) -> None:
    for block in windows(steady(trace, load_of(arrivals)), number=12, pairs=2, seed=seed).blocks:
        owners: dict[object, set[str]] = {}
        names: Counter[str] = Counter()
        for session in islice(block.sessions, 100):
            names[session.session] += 1
            for turn in session.turns:
                for segment in turn.add:
                    if not session.session.startswith("prefix "):
                        owners.setdefault(segment.key, set()).add(session.session)
        assert set(names.values()) == {1}
        shared = {segment.key for segment in HEADER.prefixes["P"]}
        quoted = {key for key in owners if str(key).partition("#")[0].endswith("quoted")}
        assert all(len(held) == 1 for key, held in owners.items() if key not in shared | quoted)


@given(trace=traces(), copies=st.integers(0, 2), at_s=st.sampled_from((0.0, 0.4, 3.0, 11.0)))
def test_a_family_with_new_content_is_carried_by_its_own_times(
    trace: Trace, copies: int, at_s: float
) -> None:
    stock = steady(trace, load_of(ClosedLoop(sessions=1)))
    for place in range(len(stock.families)):
        family = stock.fresh(place, Counter({place: copies}))
        own = carry(HEADER, family, timeline(family, stock.load), at_s=at_s)
        assert stock.from_then_on(place, at_s, Counter({place: copies})) == own


def test_a_session_in_two_slots_has_new_content_in_the_second() -> None:
    stock = steady(trace_of(talk("s", 5.0, 5.0)), load_of(ClosedLoop(sessions=2)))
    first, second, *_ = windows(stock, number=2, pairs=1, seed=0).blocks[0].sessions
    assert (first.turns[0].event, second.turns[0].event) == (PRIME, PRIME)
    keys = [
        {
            segment.key
            for turn in each.turns
            for segment in turn.add
            if not str(segment.key).endswith("~1")
        }
        for each in (first, second)
    ]
    assert not keys[0] & keys[1]


def test_shared_words_stay_shared_between_sessions_in_the_middle() -> None:
    """Two sessions of a trace that hold the same document still do."""
    stock = steady(
        trace_of(talk("a", 5.0, 5.0, keys="document"), talk("b", 5.0, 5.0, keys="document")),
        load_of(ClosedLoop(sessions=2)),
    )
    first, second, *_ = windows(stock, number=2, pairs=1, seed=0).blocks[0].sessions
    assert first.turns[0].add[0].key == second.turns[0].add[0].key


def test_sessions_are_primed_by_when_they_were_served_last() -> None:
    waiting = [
        Session(
            session=f"w{seconds:g}",
            workload="w",
            start_s=0.0,
            turns=(Turn(add=(), output=1), Turn(add=(), output=1, wait="tool", wait_s=seconds)),
        )
        for seconds in (20.0, 1000.0, 100.0)
    ]
    stock = steady(trace_of(*waiting), load_of(ClosedLoop(sessions=8)))
    block = windows(stock, number=8, pairs=1, seed=1).blocks[0]
    primed = [
        each.session.partition("#")[0] for each in block.sessions if each.turns[0].event == PRIME
    ]
    assert len(primed) == 8
    found = sorted(alive(stock, instant(0, 1, 1)), key=lambda each: -each[1])
    assert primed == [waiting[place].session for place, _ in found]


def test_prefixes_that_no_primed_context_holds_are_primed_before_all() -> None:
    stock = steady(
        trace_of(
            talk("long", 400.0, 400.0), *(talk(f"s{place}", 1.0, prefix="P") for place in range(3))
        ),
        load_of(ClosedLoop(sessions=1), seconds=900.0),
    )
    first = next(iter(windows(stock, number=1, pairs=1, seed=0).blocks[0].sessions))
    assert (first.session, first.prefix, first.turns[0].event) == ("prefix P", "P", PRIME)


@pytest.mark.parametrize("arrivals", [OpenLoop(rate_per_s=0.5), Recorded()])
def test_prefixes_of_those_that_arrive_are_primed_too(arrivals: Arrivals) -> None:
    stock = steady(
        trace_of(
            talk("long", 30.0, 30.0),
            *(talk(f"s{place}", 1.0, prefix="P", start_s=3.0 * place + 3.0) for place in range(15)),
        ),
        load_of(arrivals),
    )
    for block in windows(stock, number=5, pairs=5, seed=0).blocks:
        sessions = list(block.sessions)
        has_it = any(each.prefix == "P" for each in sessions)
        assert has_it == any(
            each.prefix == "P" and each.turns[0].event == PRIME for each in sessions
        )


def test_a_family_that_waits_for_another_does_not_wait_in_a_window() -> None:
    """Windows play families alone: what one waits for or quotes of another was said before."""
    other = TurnRef(session="a", turn=0)
    quoted = Segment(role="tool", tokens=30, key="q", source=other)
    waits = Session(
        session="b",
        workload="w",
        start_s=1.0,
        turns=(Turn(add=(quoted,), output=50, after=(other,)), Turn(add=(), output=50)),
    )
    stock = steady(trace_of(talk("a", 3.0), waits), load_of(ClosedLoop(sessions=2)))
    log = play(played_plan(stock, number=2, pairs=3))
    assert not log.skipped
    assert {each.call.session.partition("#")[0] for each in log.sent} == {"a", "b"}


def test_a_trace_that_was_primed_itself_can_be_windowed() -> None:
    split = replace(
        talk("s", 1.0, 2.0, 2.0),
        turns=(Turn(add=(), output=1, event=PRIME), *talk("s", 2.0, 2.0).turns),
    )
    stock = steady(trace_of(split), load_of(ClosedLoop(sessions=2)))
    log = play(played_plan(stock, number=2, pairs=2), took(0.3))
    assert not log.skipped
    assert all(end.primed_ns is not None for end in log.ends)


def test_a_window_in_which_nothing_is_alive_begins_at_once() -> None:
    stock = steady(
        trace_of(talk("a", 1.0), talk("b", 1.0, start_s=50.0)), load_of(Recorded(), seconds=30.0)
    )
    seed = next(seed for seed in range(99) if 30 / 60 < instant(0, 1, seed) < 60 / 60)
    log = play(played_plan(stock, number=1, pairs=1, seed=seed))
    assert [each.call.session for each in log.sent] == ["b"]
    assert log.ends[0].primed_ns == 0


def test_what_arrives_keeps_its_distance_from_the_clock() -> None:
    stock = steady(
        trace_of(talk("a", 20.0), talk("b", 1.0, start_s=15.0)), load_of(Recorded(), seconds=10.0)
    )
    # Instants that count: from −10 s to 0 s, and from 5 s to 15 s.
    seed = next(seed for seed in range(99) if 13 / 20 < instant(0, 1, seed) < 17 / 20)
    log = play(played_plan(stock, number=1, pairs=1, seed=seed), took(2.0))
    at_s = instant(0, 1, seed) * 20.0 - 5.0
    begins = next(each for each in log.sent if each.call.session == "b")
    assert log.ends[0].primed_ns == 2 * S
    assert (begins.due_ns - 2 * S) / S == pytest.approx(15.0 - at_s, abs=0.05)


@pytest.mark.slow
def test_a_window_of_many_arrivals_takes_time_in_proportion_to_them() -> None:
    def seconds(arrivals: int) -> float:
        sessions = (talk(f"s{place}", 1.0, start_s=float(place)) for place in range(arrivals))
        stock = steady(trace_of(*sessions), load_of(Recorded()))
        assert stock.line.seconds > 0
        return least_cpu_s(lambda: list(alive(stock, 0.5)))

    assert seconds(16_000) < 24 * seconds(2_000)


def test_a_session_of_many_turns_is_laid_out_in_proportion_to_them() -> None:
    def seconds(turns: int) -> float:
        trace = trace_of(talk("a", *[1.0] * turns), talk("b", 1.0))
        load = load_of(ClosedLoop(sessions=2))
        assert [len(family[0].turns) for family in steady(trace, load).families] == [1, turns]
        return least_cpu_s(lambda: steady(trace, load))

    assert seconds(6_000) < 24 * seconds(750)


@pytest.mark.slow
@given(trace=traces(), sessions=st.integers(1, 4))
def test_what_windows_hold_grows_with_sessions(trace: Trace, sessions: int) -> None:
    few, more = (
        held_tokens(steady(trace, load_of(ClosedLoop(sessions=number))), seed=0)
        for number in (sessions, 4 * sessions)
    )
    assert 0 <= few <= more


def test_followers_last_beyond_the_window_even_on_a_fast_server() -> None:
    stock = steady(
        trace_of(*(talk(f"s{place}", 2.0) for place in range(3))), load_of(ClosedLoop(sessions=2))
    )
    sessions = windows(stock, number=2, pairs=1, seed=0).blocks[0].sessions
    assert (
        sum(lasts_s([each], timeline([each], stock.load)) for each in sessions)
        > 4 * 2 * (6.0 + BEYOND_S) - 10
    )


def test_block_sessions_may_be_read_again() -> None:
    stock = steady(
        trace_of(*(talk(f"s{place}", 2.0, 3.0) for place in range(3))),
        load_of(ClosedLoop(sessions=2)),
    )
    block = windows(stock, number=2, pairs=1, seed=0).blocks[0]
    assert list(block.sessions) == list(block.sessions)
    assert UNDER_WAY in {turn.event for each in block.sessions for turn in each.turns}


# --- what is known before they begin ---


@pytest.mark.parametrize("quotes", [False, True])
def test_what_a_block_needs_is_told_by_the_sessions_that_it_is_likely_to_play_unless_others_quote_answers(
    *, quotes: bool
) -> None:
    source = TurnRef(session="a", turn=0) if quotes else None
    first = talk("a", *[4.0] * 5)
    quoting = replace(first.turns[3], add=(Segment(role="user", tokens=5, key="q", source=source),))
    trace = trace_of(
        replace(first, turns=(*first.turns[:3], quoting, first.turns[4])), talk("b", 4.0, 4.0)
    )
    laid = windows(steady(trace, load_of(ClosedLoop(sessions=2))), number=4, pairs=2, seed=0)
    for block in laid.blocks:
        assert isinstance(block.sessions, Foretelling)
        told, every = ([*block.sessions.telling()], [*block.sessions])
        assert told == every[: len(told)]
        assert (len(told) < len(every)) is not quotes
        assert all(turn.event != PRIME for session in every[len(told) :] for turn in session.turns)
