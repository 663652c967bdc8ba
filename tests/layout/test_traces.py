from __future__ import annotations

import json

from agentload.layout.plan import Scheme, plan
from agentload.layout.traces import merge, sweep
from agentload.model.trace import Header, Segment, Session, Trace, Turn, TurnRef


def trace(name: str, *starts: float) -> Trace:
    prefix = (Segment(role="system", tokens=10, key="sys"),)
    sessions = []
    for i, start in enumerate(starts):
        turn = Turn(
            add=(Segment(role="user", tokens=3, key="u", source=TurnRef(session=f"c{i}", turn=0)),),
            output=1,
            spawn=(f"c{i}",),
        )
        late = Turn(add=(), output=1, after=(TurnRef(session=f"c{i}", turn=-1),))
        sessions.append(
            Session(session=f"s{i}", workload=name, start_s=start, prefix="P", turns=(turn, late))
        )
        sessions.append(Session(session=f"c{i}", workload=name, turns=(Turn(add=(), output=1),)))
    return Trace(header=Header(name=name, seed=1, prefixes={"P": prefix}), sessions=tuple(sessions))


def numbered(name: str) -> Trace:
    """Return a trace whose content is known by block ids, as public ones are."""
    turns = (Turn(add=(Segment(role="user", tokens=3 * 64, key=(0, 3)),), output=1),)
    return Trace(
        header=Header(name=name),
        sessions=(Session(session="s", workload=name, start_s=0.0, turns=turns),),
    )


def test_one_trace_stays_as_it_is() -> None:
    only = trace("a", 0.0)
    assert merge([only]) is only


def test_traces_are_joined_by_start_with_children_behind_their_parents() -> None:
    both = merge([trace("a", 0.0, 4.0), trace("b", 1.0)])
    assert [s.session for s in both.sessions] == ["a/s0", "a/c0", "b/s0", "b/c0", "a/s1", "a/c1"]
    assert [s.session for s in both.sessions] == [s.session for s in both.sessions]


def test_names_keys_and_references_stay_apart() -> None:
    both = merge([trace("a", 0.0), trace("b", 1.0)])
    assert {name: segments[0].key for name, segments in both.header.prefixes.items()} == {
        "a/P": "a/sys",
        "b/P": "b/sys",
    }
    parent = next(s for s in both.sessions if s.session == "b/s0")
    assert parent.prefix == "b/P"
    assert parent.turns[0].spawn == ("b/c0",)
    assert parent.turns[0].add[0].source == TurnRef(session="b/c0", turn=0)
    assert parent.turns[1].after == (TurnRef(session="b/c0", turn=-1),)


def test_each_of_several_traces_is_still_known_to_come_from_where_it_came() -> None:
    imported = Trace(
        header=Header(name="mine", source=(("importer", '"pi"'), ("files", "2"))), sessions=()
    )
    both = merge(
        [imported, Trace(header=Header(name="rag", source=(("workload", '"rag"'),)), sessions=())]
    )
    assert {name: json.loads(said) for name, said in both.header.source} == {
        "mine": {"importer": "pi", "files": 2},
        "rag": {"workload": "rag"},
    }


def test_block_ids_of_two_traces_are_not_the_same_blocks() -> None:
    imported = [numbered(name) for name in ("a", "b")]
    first, second = [session.turns[0].add[0].key for session in merge(imported).sessions]
    assert first == (0, 3)
    assert first != second


def test_each_block_holds_every_length_once_in_its_own_order_and_no_content_twice() -> None:
    made = plan(
        sweep((1024, 2048, 4096, 8192), pairs=6, output=16, seed=1),
        ["a", "b"],
        run="r",
        scheme=Scheme(pairs=6),
    )
    orders = [
        tuple(turn.add[0].tokens for session in block.sessions for turn in session.turns)
        for block in made.blocks
    ]
    assert {tuple(sorted(order)) for order in orders} == {(1024, 2048, 4096, 8192)}
    assert len(orders) == 6
    assert len(set(orders)) > 1
    keys = [
        turn.add[0].key
        for block in made.blocks
        for session in block.sessions
        for turn in session.turns
    ]
    assert len(set(keys)) == 24
