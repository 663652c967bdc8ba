"""AgentX's rules, as blocks are laid out by them, on small random trees."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise, takewhile

import pytest
from hypothesis import given, settings

from agentload.layout.agentx import RULES, Rules, ruled_blocks
from agentload.layout.timeline import timeline
from agentload.model.plan import Budget, ClosedLoop, Load, Plan, Play, Round
from agentload.model.trace import PRIME, Segment, Session, Trace, Turn
from agentload.model.walk import families
from tests.dispatch.playing import Log, S, play, took
from tests.layout.family_draws import HEADER, traces

SLOTS = 3
QUICK = Rules(name="quick", lasts_s=20.0, turns=4)
LOAD = Load(arrivals=ClosedLoop(sessions=SLOTS), budget=Budget(seconds=QUICK.lasts_s))


def laid(trace: Trace, *, pair: int = 0) -> list[Session]:
    """Return the first sessions of a block: all that it may play would be thousands."""
    blocks = ruled_blocks(QUICK, trace, LOAD, pairs=pair + 1, seed=0).blocks
    return list(islice(blocks[pair].sessions, 600))


def played(trace: Trace, *, load: Load = LOAD) -> Log:
    made = ruled_blocks(QUICK, trace, load, pairs=1, seed=0)
    plan = Plan(
        run="run",
        seed=0,
        header=trace.header,
        arms=("a",),
        blocks=made.blocks,
        rounds=(Round(index=0, plays=(Play(block=0, arm="a", pair=0, salt="s"),)),),
        load=made.load,
    )
    return play(plan, took(0.5))


def talk(name: str, *waits: float) -> Session:
    """Return a session whose turns wait so long."""
    turns = tuple(
        Turn(
            add=(Segment(role="user", tokens=10, key=f"{name}.{place}"),),
            output=50,
            wait="user",
            wait_s=each,
        )
        for place, each in enumerate(waits)
    )
    return Session(session=name, workload="w", turns=turns, start_s=0.0, prefix="P")


LONG_TALKS = tuple(talk(f"s{place}", *[6.0] * 20) for place in range(5))
LONG = Trace(header=HEADER, sessions=LONG_TALKS)


def primes(session: Session) -> int:
    return sum(1 for _ in takewhile(lambda turn: turn.event == PRIME, session.turns))


def test_each_slot_takes_its_primer_and_the_turns_of_one_token_before_the_clock() -> None:
    begun = laid(LONG)[:SLOTS]
    assert [primes(each) for each in begun] == [1 + QUICK.turns] * SLOTS
    assert {turn.output for each in begun for turn in each.turns[: 1 + QUICK.turns]} == {1}
    first = played(LONG).sent
    assert all(each.call.prime for each in first[: SLOTS * (1 + QUICK.turns)])
    assert not first[SLOTS * (1 + QUICK.turns)].call.prime


def test_a_tree_with_few_turns_leaves_its_own_to_the_others() -> None:
    trace = Trace(header=HEADER, sessions=(talk("short", 1, 1), *LONG_TALKS[:2]))
    begun = laid(trace)[:SLOTS]
    assert sum(map(primes, begun)) == SLOTS * (1 + QUICK.turns)
    assert all(primes(each) < len(each.turns) for each in begun)


def test_slots_begin_in_the_middle_half_of_a_session_with_equal_chance() -> None:
    trace = Trace(header=HEADER, sessions=tuple(talk(f"s{n}", *[9.0] * 40) for n in range(6)))
    (family,) = families(islice(trace.sessions, 1))
    sent = [each.sent_s for each in timeline(family, LOAD)["s0"]]
    shares, names = [], Counter[str]()
    for pair in range(40):
        for each in laid(trace, pair=pair)[:SLOTS]:
            turns = 40 - (len(each.turns) - 1)
            shares.append(sent[turns - 1] / sent[-1])
            names[each.session.partition("#")[0]] += 1
    assert min(shares) == pytest.approx(0.25, abs=0.05)
    assert max(shares) == pytest.approx(0.75, abs=0.05)
    assert all(10 <= count <= 30 for count in names.values()), names


def test_every_session_is_played_once_before_any_comes_again() -> None:
    names = [each.session.partition("#")[0] for each in laid(LONG)]
    for start in range(0, len(names) - 5, 5):
        assert len({*names[start : start + 5]}) == 5


@settings(max_examples=25)
@given(trace=traces())
def test_no_two_plays_of_a_tree_share_content(trace: Trace) -> None:
    keys: dict[object, str] = {}
    for family in families(laid(trace)):
        assert all(each.prefix is None for each in family)
        name = family[0].session
        for session in family:
            for turn in session.turns:
                for segment in turn.add:
                    assert keys.setdefault(segment.key, name) == name


@pytest.mark.slow
@settings(max_examples=25)
@given(trace=traces())
def test_every_block_primes_first_and_plays_to_its_end(trace: Trace) -> None:
    found = played(trace)
    assert not found.skipped
    (end,) = found.ends
    assert end.primed_ns is not None
    for each in found.done:
        if each.sent_ns < end.primed_ns:
            assert each.send.call.prime
    counting = [each for each in found.done if not each.send.call.prime]
    assert all(each.sent_ns >= end.primed_ns for each in counting)
    assert end.drain_ns is not None
    assert end.drain_ns >= end.primed_ns + QUICK.lasts_s * S


@pytest.mark.slow
@settings(max_examples=25)
@given(trace=traces())
def test_no_more_trees_are_under_way_than_there_are_slots(trace: Trace) -> None:
    root, left = {}, Counter[str]()
    for family in families(laid(trace)):
        for session in family:
            root[session.session] = family[0].session
            left[family[0].session] += len(session.turns)
    under_way: set[str] = set()
    done = played(trace).done
    assert {each.send.call.session for each in done} <= root.keys()
    events = [(each.sent_ns, 1, each) for each in done]
    ends = [(each.ended_ns, 0, each) for each in done]
    for _, is_sent, each in sorted((*events, *ends), key=lambda event: event[:2]):
        tree = root[each.send.call.session]
        if is_sent:
            under_way.add(tree)
            assert len(under_way) <= SLOTS
        else:
            left[tree] -= 1
            if not left[tree]:
                under_way.discard(tree)


def test_the_load_is_idle_for_ten_seconds_at_most_and_waits_keep_their_order() -> None:
    sessions = tuple(talk(f"s{n}", *[200.0 + 7 * n] * 12) for n in range(SLOTS))
    load = replace(LOAD, budget=Budget(seconds=200.0))
    found = played(Trace(header=HEADER, sessions=sessions), load=load)
    (end,) = found.ends
    assert end.primed_ns is not None
    calls = [each for each in found.done if each.sent_ns >= end.primed_ns]
    gaps = [b.sent_ns - a.ended_ns for a, b in pairwise(sorted(calls, key=lambda c: c.sent_ns))]
    assert max(gaps) == 10 * S
    # Waits of a session still differ as they were recorded: what is due moves all together.
    assert any(0 < gap < 10 * S for gap in gaps)


def test_both_editions_say_how_long_they_last() -> None:
    assert {name: (each.lasts_s, each.turns) for name, each in RULES.items()} == {
        "agentx": (3600.0, 10),
        "agentx-fast": (1200.0, 1),
    }
