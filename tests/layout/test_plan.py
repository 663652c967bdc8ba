from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from agentload.errors import PlanError
from agentload.layout.plan import balanced_orders, cut, families, plan
from agentload.model.trace import Header, Segment, Session, Trace, Turn, TurnRef


def session(
    name: str, turns: int = 2, *, start_s: float | None = 0.0, spawn: tuple[str, ...] = (), after: tuple[TurnRef, ...] = ()
) -> Session:
    first = Turn(add=(Segment(role="user", tokens=3, key=name),), output=1, spawn=spawn, after=after)
    rest = tuple(Turn(add=(), output=1) for _ in range(turns - 1))
    return Session(session=name, workload="w", start_s=start_s, turns=(first, *rest))


def trace(*sessions: Session) -> Trace:
    return Trace(header=Header(name="t"), sessions=sessions)


def test_sessions_that_need_each_other_stay_together() -> None:
    sessions = (session("a", spawn=("b",)), session("b", start_s=None), session("c"), session("d", after=(TurnRef(session="c", turn=0),)))
    assert [[s.session for s in family] for family in families(sessions)] == [["a", "b"], ["c", "d"]]


def test_blocks_are_neighbours_in_time_of_about_equal_size_and_start_at_zero() -> None:
    blocks = cut([session(f"s{i}", start_s=float(i)) for i in range(12)], 4)
    assert [[s.session for s in b.sessions] for b in blocks] == [[f"s{i + k}" for k in range(3)] for i in (0, 3, 6, 9)]
    assert all(next(iter(b.sessions)).start_s == 0.0 for b in blocks)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_every_session_is_in_exactly_one_block(count: int) -> None:
    rng = Random(count)
    sessions = [session(f"s{i}", rng.randint(1, 30), start_s=float(i)) for i in range(20)]
    blocks = cut(sessions, count)
    assert len(blocks) == count
    assert Counter(s.session for b in blocks for s in b.sessions) == Counter(s.session for s in sessions)
    assert all(list(b.sessions) for b in blocks)


def test_every_second_pair_mirrors_the_one_before_it() -> None:
    orders = balanced_orders(("a", "b", "c"), 6, Random(1))
    assert all(orders[i + 1] == tuple(reversed(orders[i])) for i in (0, 2, 4))
    assert {o[0] for o in (balanced_orders(("a", "b"), 2, Random(s))[0] for s in range(20))} == {"a", "b"}


def test_a_seed_draws_the_same_orders_for_ever_so_that_a_run_can_be_resumed() -> None:
    made = plan(trace(*(session(f"s{i}") for i in range(4))), ("a", "b", "c"), run="r", seed=7, pairs=4)
    assert ["".join(p.arm for r in made.rounds for p in r.plays if p.pair == pair) for pair in range(4)] == ["cab", "bac", "abc", "cba"]


def test_an_interleaved_plan_plays_each_pair_on_each_arm_in_its_own_round_with_one_salt() -> None:
    made = plan(trace(*(session(f"s{i}", start_s=float(i)) for i in range(8))), ("a", "b"), run="r", pairs=4)
    assert [len(r.plays) for r in made.rounds] == [1] * 8
    plays = [p for r in made.rounds for p in r.plays]
    assert {(p.pair, p.salt) for p in plays} == {(i, f"r/{i}") for i in range(4)}
    assert Counter((p.pair, p.arm) for p in plays) == Counter((i, arm) for i in range(4) for arm in "ab")


def test_a_parallel_plan_plays_all_arms_at_once_and_a_sequential_one_arm_after_arm() -> None:
    made = trace(*(session(f"s{i}") for i in range(4)))
    assert [[p.arm for p in r.plays] for r in plan(made, ("a", "b"), run="r", pairs=2, design="parallel").rounds] == [["a", "b"]] * 2
    sequential = plan(made, ("a", "b"), run="r", pairs=2, design="sequential")
    assert [p.arm for r in sequential.rounds for p in r.plays] == ["a", "a", "b", "b"]


def test_fewer_blocks_than_pairs_repeat_under_another_salt() -> None:
    made = plan(trace(session("only")), ("a",), run="r", pairs=3)
    assert [(p.block, p.salt) for r in made.rounds for p in r.plays] == [(0, "r/0"), (0, "r/1"), (0, "r/2")]
    warm = plan(trace(session("only")), ("a",), run="r", pairs=2, cache="warm")
    assert {p.salt for r in warm.rounds for p in r.plays} == {"r/warm"}


def test_a_run_that_is_given_more_pairs_begins_with_those_it_had() -> None:
    made = trace(*(session(f"s{n}") for n in range(9)))
    first, more = (plan(made, ("a", "b"), run="r", seed=3, pairs=pairs, blocks=3, warmup=True) for pairs in (3, 7))
    assert [r.plays for r in more.rounds[: len(first.rounds)]] == [r.plays for r in first.rounds]
    assert [p.block for r in more.rounds[len(first.rounds) :] for p in r.plays] == [0, 0, 1, 1, 2, 2, 0, 0]


@pytest.mark.parametrize(("arms", "pairs"), [((), 1), (("a", "a"), 1), (("a",), 0)])
def test_an_impossible_plan_is_refused(arms: tuple[str, ...], pairs: int) -> None:
    with pytest.raises(PlanError):
        plan(trace(session("s")), arms, run="r", pairs=pairs)


def test_a_control_has_prompts_of_its_own_so_that_it_finds_nothing_of_its_twin_in_the_cache() -> None:
    made = plan(trace(session("s")), ("a", "a@aa"), run="r", pairs=2, warmup=True)
    plays = [p for r in made.rounds for p in r.plays]
    assert {(p.pair, p.salt) for p in plays} == {(-1, "r/-1"), (0, "r/0"), (1, "r/1")}
    assert {(p.arm, p.mark) for p in plays} == {("a", ""), ("a@aa", "a@aa")}
