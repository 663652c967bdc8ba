from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.dispatch.arrivals import rng_of
from agentload.dispatch.stretches import stretches, where
from agentload.errors import PlanError
from agentload.layout.blocks import cut, dependency_groups
from agentload.layout.plan import (
    MOST_PAIRS,
    Scheme,
    balanced_orders,
    of_study,
    plan,
    starts_of,
    with_starts,
)
from agentload.layout.traces import sweep
from agentload.model.plan import Design, Plan
from agentload.model.trace import Header, Segment, Session, Trace, Turn, TurnRef
from agentload.study.kinds import Replay
from agentload.study.parts import Load as StudiedLoad
from agentload.study.parts import Virtual


def session(
    name: str,
    turns: int = 2,
    *,
    start_s: float | None = 0.0,
    spawn: tuple[str, ...] = (),
    after: tuple[TurnRef, ...] = (),
) -> Session:
    first = Turn(
        add=(Segment(role="user", tokens=3, key=name),), output=1, spawn=spawn, after=after
    )
    rest = tuple(Turn(add=(), output=1) for _ in range(turns - 1))
    return Session(session=name, workload="w", start_s=start_s, turns=(first, *rest))


def trace(*sessions: Session) -> Trace:
    return Trace(header=Header(name="t"), sessions=sessions)


@pytest.mark.parametrize(
    ("pairs", "says"), [(0, ">= 1"), (MOST_PAIRS + 1, "<= 100,000, got 100,001")]
)
def test_pairs_that_nobody_can_mean_are_refused_before_they_are_laid_out(
    pairs: int, says: str
) -> None:
    with pytest.raises(PlanError, match=says):
        plan(trace(session("a")), ["x", "y"], run="r", scheme=Scheme(pairs=pairs))


def test_sessions_that_need_each_other_stay_together() -> None:
    sessions = (
        session("a", spawn=("b",)),
        session("b", start_s=None),
        session("c"),
        session("d", after=(TurnRef(session="c", turn=0),)),
    )
    assert [[s.session for s in family] for family in dependency_groups(sessions)] == [
        ["a", "b"],
        ["c", "d"],
    ]


def test_blocks_are_neighbours_in_time_of_about_equal_size_and_start_at_zero() -> None:
    blocks = cut([session(f"s{i}", start_s=float(i)) for i in range(12)], 4)
    assert [[s.session for s in b.sessions] for b in blocks] == [
        [f"s{i + k}" for k in range(3)] for i in (0, 3, 6, 9)
    ]
    assert all(next(iter(b.sessions)).start_s == 0.0 for b in blocks)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_every_session_is_in_exactly_one_block(count: int) -> None:
    rng = Random(count)
    sessions = [session(f"s{i}", rng.randint(1, 30), start_s=float(i)) for i in range(20)]
    blocks = cut(sessions, count)
    assert len(blocks) == count
    assert Counter(s.session for b in blocks for s in b.sessions) == Counter(
        s.session for s in sessions
    )
    assert all(list(b.sessions) for b in blocks)


def test_every_second_pair_mirrors_the_one_before_it() -> None:
    orders = balanced_orders(("a", "b", "c"), 6, Random(1))
    assert all(orders[i + 1] == tuple(reversed(orders[i])) for i in (0, 2, 4))
    assert {o[0] for o in (balanced_orders(("a", "b"), 2, Random(s))[0] for s in range(20))} == {
        "a",
        "b",
    }


def test_a_seed_draws_the_same_orders_for_ever_so_that_a_run_can_be_resumed() -> None:
    made = plan(
        trace(*(session(f"s{i}") for i in range(4))),
        ("a", "b", "c"),
        run="r",
        seed=7,
        scheme=Scheme(pairs=4),
    )
    assert [
        "".join(p.arm for r in made.rounds for p in r.plays if p.pair == pair) for pair in range(4)
    ] == ["cab", "bac", "abc", "cba"]


def test_an_interleaved_plan_plays_each_pair_on_each_arm_in_its_own_round_with_one_salt() -> None:
    made = plan(
        trace(*(session(f"s{i}", start_s=float(i)) for i in range(8))),
        ("a", "b"),
        run="r",
        scheme=Scheme(pairs=4),
    )
    assert [len(r.plays) for r in made.rounds] == [1] * 8
    plays = [p for r in made.rounds for p in r.plays]
    assert {(p.pair, p.salt) for p in plays} == {(i, f"r/{i}") for i in range(4)}
    assert Counter((p.pair, p.arm) for p in plays) == Counter(
        (i, arm) for i in range(4) for arm in "ab"
    )


def test_a_parallel_plan_plays_all_arms_at_once_and_a_sequential_one_arm_after_arm() -> None:
    made = trace(*(session(f"s{i}") for i in range(4)))
    assert [
        [p.arm for p in r.plays]
        for r in plan(made, ("a", "b"), run="r", scheme=Scheme(pairs=2, design="parallel")).rounds
    ] == [["a", "b"]] * 2
    sequential = plan(made, ("a", "b"), run="r", scheme=Scheme(pairs=2, design="sequential"))
    assert [p.arm for r in sequential.rounds for p in r.plays] == ["a", "a", "b", "b"]


def test_fewer_blocks_than_pairs_repeat_under_another_salt() -> None:
    made = plan(trace(session("only")), ("a",), run="r", scheme=Scheme(pairs=3))
    assert [(p.block, p.salt) for r in made.rounds for p in r.plays] == [
        (0, "r/0"),
        (0, "r/1"),
        (0, "r/2"),
    ]
    warm = plan(trace(session("only")), ("a",), run="r", scheme=Scheme(pairs=2, cache="warm"))
    assert {p.salt for r in warm.rounds for p in r.plays} == {"r/warm"}


def test_a_run_that_is_given_more_pairs_begins_with_those_it_had() -> None:
    made = trace(*(session(f"s{n}") for n in range(9)))
    first, more = (
        plan(made, ("a", "b"), run="r", seed=3, scheme=Scheme(pairs=pairs, blocks=3, warmup=True))
        for pairs in (3, 7)
    )
    assert [r.plays for r in more.rounds[: len(first.rounds)]] == [r.plays for r in first.rounds]
    assert [p.block for r in more.rounds[len(first.rounds) :] for p in r.plays] == [
        0,
        0,
        1,
        1,
        2,
        2,
        0,
        0,
    ]


@pytest.mark.parametrize(("arms", "pairs"), [((), 1), (("a", "a"), 1), (("a",), 0)])
def test_an_impossible_plan_is_refused(arms: tuple[str, ...], pairs: int) -> None:
    with pytest.raises(PlanError):
        plan(trace(session("s")), arms, run="r", scheme=Scheme(pairs=pairs))


def test_a_control_has_prompts_of_its_own_so_that_it_finds_nothing_of_its_twin_in_the_cache() -> (
    None
):
    made = plan(trace(session("s")), ("a", "a@aa"), run="r", scheme=Scheme(pairs=2, warmup=True))
    plays = [p for r in made.rounds for p in r.plays]
    assert {(p.pair, p.salt) for p in plays} == {(-1, "r/-1"), (0, "r/0"), (1, "r/1")}
    assert {(p.arm, p.own_salt) for p in plays} == {("a", ""), ("a@aa", "a@aa")}


SESSIONS = tuple(
    Session(
        session=f"s{i}",
        workload="w",
        start_s=float(i),
        turns=(Turn(add=(Segment(role="user", tokens=3, key=f"{i}"),), output=1),),
    )
    for i in range(8)
)
TRACE = Trace(header=Header(name="t"), sessions=SESSIONS)


def swapped(
    design: Design = "parallel", *, pairs: int = 4, warmup: bool = False, began: int | None = None
) -> Plan:
    machines = ("m1", "m2")
    return plan(
        TRACE,
        ("a", "b"),
        run="r",
        scheme=Scheme(
            pairs=pairs, design=design, machines=machines, swap=True, warmup=warmup, blocks=began
        ),
    )


@pytest.mark.parametrize("design", ["parallel", "interleaved"])
def test_arms_change_machines_half_way_and_no_pair_is_torn(design: Design) -> None:
    before, after = stretches(swapped(design).rounds)
    assert (where(before), where(after)) == ({"a": "m1", "b": "m2"}, {"a": "m2", "b": "m1"})
    assert [
        {play.pair for each in stretch for play in each.plays} for stretch in (before, after)
    ] == [{0, 1}, {2, 3}]


def test_a_swapped_run_grows_by_whole_runs_of_it_and_begins_where_its_servers_are() -> None:
    """What was played stays, the first new pairs need no exchange,
    and each machine has had each arm as often as the other.
    """
    first, grown = swapped("interleaved"), swapped("interleaved", pairs=12, began=4)
    assert grown.rounds[: len(first.rounds)] == first.rounds
    stays = [
        ({play.pair for each in stretch for play in each.plays}, where(stretch)["a"])
        for stretch in stretches(grown.rounds)
    ]
    assert stays == [({0, 1}, "m1"), ({2, 3, 4, 5}, "m2"), ({6, 7, 8, 9}, "m1"), ({10, 11}, "m2")]
    with pytest.raises(
        PlanError, match="as many pairs on each machine, and began with 4, got 6"
    ) as caught:
        swapped(pairs=6, began=4)
    assert caught.value.hint == "--pairs 8"


@given(
    pairs=st.integers(1, 40),
    replicas=st.integers(2, 5),
    arms=st.sampled_from([("a", "b"), ("a", "b", "c")]),
    seed=st.integers(0, 99),
)
def test_pairs_take_turns_on_replicas_and_both_orders_do_on_each(
    pairs: int, replicas: int, arms: tuple[str, ...], seed: int
) -> None:
    names = [f"replica {number + 1}" for number in range(replicas)]
    made = plan(TRACE, arms, run="r", scheme=Scheme(pairs=pairs, replicas=names), seed=seed)
    on: dict[int, set[str | None]] = {}
    orders: dict[int, list[str]] = {}
    for each in made.rounds:
        (play,) = each.plays
        on.setdefault(play.pair, set()).add(play.machine)
        orders.setdefault(play.pair, []).append(play.arm)
    assert on == {pair: {names[pair % replicas]} for pair in range(pairs)}
    assert all(sorted(each) == list(arms) for each in orders.values())
    for pair in range(pairs - replicas):
        if pair // replicas % 2 == 0:
            assert orders[pair + replicas] == orders[pair][::-1]
    assert [len(each) for each in stretches(made.rounds)] == [len(arms)] * pairs
    longer = plan(
        TRACE,
        arms,
        run="r",
        scheme=Scheme(pairs=pairs + 3, replicas=names, blocks=pairs),
        seed=seed,
    )
    assert (
        longer.rounds[: len(made.rounds)]
        == plan(TRACE, arms, run="r", scheme=Scheme(pairs=pairs, replicas=names), seed=seed).rounds
    )


def orders_of(arms: Sequence[str], *, replicas: int, pairs: int) -> list[tuple[str, ...]]:
    """Return the order in which each pair of a plan runs its arms."""
    names = [f"replica {number + 1}" for number in range(replicas)]
    made = plan(
        TRACE,
        arms,
        run="r",
        scheme=Scheme(pairs=pairs, replicas=names if replicas > 1 else ()),
        seed=7,
    )
    plays = [play for round_ in made.rounds for play in round_.plays]
    return [tuple(play.arm for play in plays if play.pair == pair) for pair in range(pairs)]


def test_no_arm_of_three_stays_in_the_middle_of_all_pairs_on_eight_replicas() -> None:
    orders = orders_of(("a", "b", "c"), replicas=8, pairs=32)
    for first in (0, 16):
        own = orders[first : first + 16]
        assert set(Counter(order[1] for order in own).values()) == {4, 8}
        assert all(order == own[number ^ 1][::-1] for number, order in enumerate(own))
        assert own[8:] == [order[::-1] for order in own[:8]]


@pytest.mark.parametrize(("arms", "replicas"), [("ab", 8), ("abc", 1), ("abc", 4), ("abcd", 8)])
def test_pairs_of_other_numbers_of_arms_and_replicas_share_the_order_of_two_turns(
    arms: str, replicas: int
) -> None:
    pairs = 4 * replicas
    drawn = balanced_orders(arms, pairs + 2 * replicas, rng_of(7, "order"))
    turns = [divmod(pair, replicas) for pair in range(pairs)]
    shared = [drawn[2 * (turn // 2) + (turn + place) % 2] for turn, place in turns]
    assert orders_of(arms, replicas=replicas, pairs=pairs) == shared


def test_each_replica_is_warmed_up_once_and_no_arm_stays_on_one() -> None:
    made = plan(
        TRACE,
        ("a", "b"),
        run="r",
        scheme=Scheme(pairs=5, warmup=True, replicas=["replica 1", "replica 2"]),
    )
    warm = [(play.pair, play.machine) for each in made.rounds for play in each.plays if play.warmup]
    assert warm == [(-1, "replica 1")] * 2 + [(-2, "replica 2")] * 2
    in_turn = Scheme(replicas=["replica 1", "replica 2"])
    sequential = replace(in_turn, design="sequential")
    with_a_swap = replace(in_turn, pairs=6, swap=True, machines=("m1", "m2"))
    for fixed in (sequential, with_a_swap):
        with pytest.raises(PlanError, match="take turns on replicas"):
            plan(TRACE, ("a", "b"), run="r", scheme=fixed)


def test_no_two_arms_are_ever_on_one_machine() -> None:
    for round_ in swapped().rounds:
        machines = [play.machine for play in round_.plays]
        assert len(set(machines)) == len(machines) == 2


def test_a_server_that_was_moved_is_warmed_up_again_under_a_salt_of_its_own() -> None:
    warmed = [
        (play.machine, play.arm, play.salt)
        for r in swapped(warmup=True).rounds
        for play in r.plays
        if play.warmup
    ]
    assert warmed == [
        ("m1", "a", "r/-1"),
        ("m2", "b", "r/-1"),
        ("m2", "a", "r/-2"),
        ("m1", "b", "r/-2"),
    ]


def test_a_plan_without_a_swap_is_one_stretch() -> None:
    still = plan(
        TRACE, ("a", "b"), run="r", scheme=Scheme(pairs=4, design="parallel", machines=("m1", "m2"))
    )
    assert [where(stretch) for stretch in stretches(still.rounds)] == [{"a": "m1", "b": "m2"}]
    unnamed = plan(TRACE, ("a", "b"), run="r", scheme=Scheme(pairs=4))
    assert [where(stretch) for stretch in stretches(unnamed.rounds)] == [{"a": None, "b": None}]


@pytest.mark.parametrize(
    ("arms", "machines", "pairs", "design", "says"),
    [
        (("a", "b", "c"), ("m1", "m2", "m3"), 4, "parallel", "exchanges two arms, got 3"),
        (("a", "b"), ("m1", "m1"), 4, "parallel", "a machine of its own"),
        (("a", "b"), (), 4, "parallel", "got none"),
        (("a", "b"), ("m1", "m2"), 5, "parallel", "as many pairs on each machine, got 5"),
        (("a", "b"), ("m1", "m2"), 4, "sequential", "side by side"),
    ],
)
def test_what_one_change_cannot_balance_is_refused(
    arms: tuple[str, ...], machines: tuple[str, ...], pairs: int, design: Design, says: str
) -> None:
    with pytest.raises(PlanError, match=says):
        plan(
            TRACE,
            arms,
            run="r",
            scheme=Scheme(pairs=pairs, design=design, machines=machines, swap=True),
        )


def swept(pairs: int) -> Plan:
    return plan(
        sweep((64, 128), pairs=pairs, output=1, seed=0),
        ("a", "b", "c"),
        run="r",
        scheme=Scheme(pairs=pairs),
    )


def rounds(found: Plan) -> list[tuple[int | None, str, int]]:
    return [(round_.start, play.arm, play.pair) for round_ in found.rounds for play in round_.plays]


def test_each_pair_has_a_start_of_each_server_in_the_order_that_was_drawn() -> None:
    before = swept(4)
    found = with_starts(before)
    assert [(arm, pair) for _, arm, pair in rounds(found)] == [
        (arm, pair) for _, arm, pair in rounds(before)
    ]
    assert [start for start, _, _ in rounds(found)] == list(range(12))
    assert [round_.index for round_ in found.rounds] == list(range(12))
    assert (starts_of(before), starts_of(found)) == (0, 12)


def test_pairs_that_share_a_start_are_played_together_and_the_next_start_mirrors_the_order() -> (
    None
):
    found = rounds(with_starts(swept(5), 2))
    first = [arm for _, arm, _ in found[:9:3]]
    assert found == [
        *[(start, arm, pair) for start, arm in enumerate(first) for pair in (0, 1, 2)],
        *[(start + 3, arm, pair) for start, arm in enumerate(reversed(first)) for pair in (3, 4)],
    ]


def test_what_cannot_be_divided_is_told() -> None:
    for restarts in (0, 4):
        with pytest.raises(PlanError, match="3 pairs cannot be divided"):
            with_starts(swept(3), restarts)
    trace = sweep((64,), pairs=2, output=1, seed=0)
    for other in (
        plan(trace, ("a", "b"), run="r", scheme=Scheme(pairs=2, warmup=True)),
        plan(trace, ("a", "b"), run="r", scheme=Scheme(pairs=2, design="parallel")),
    ):
        with pytest.raises(PlanError, match="interleaved and without a warm-up"):
            with_starts(other)


def test_servers_that_are_started_in_turn_cannot_change_machines() -> None:
    trace = sweep((64,), pairs=4, output=1, seed=0)
    swapped = plan(
        trace, ("a", "b"), run="r", scheme=Scheme(pairs=4, machines=("m1", "m2"), swap=True)
    )
    with pytest.raises(PlanError, match="--swap needs servers that run all the time"):
        with_starts(swapped)


def test_a_load_that_no_block_can_hold_is_an_error_before_the_run() -> None:
    eight = trace(*(session(f"s{number}") for number in range(8)))

    def asked(sessions: int, pairs: int) -> Plan:
        servers = Virtual(profile="p")
        study = Replay(traces=(), servers=servers, pairs=pairs, load=StudiedLoad(sessions=sessions))
        return of_study(study, eight, ["a"], run="r")

    with pytest.raises(
        PlanError,
        match=r"--sessions 32 is never reached: the trace has fewer sessions, in 6 blocks of at "
        r"most 2",
    ) as error:
        asked(32, 6)
    assert error.value.hint is not None
    assert error.value.hint.startswith("--capacity 32 starts sessions again")
    with pytest.raises(
        PlanError, match=r"--sessions 9 is never reached: the trace has fewer sessions$"
    ):
        asked(9, 1)
    assert asked(8, 1).blocks
    assert asked(2, 6).blocks
