"""The ideal hit ratio is what a cache without bounds would do, token by token."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from agentload.importers.parts.reuse import BlockReuse
from agentload.model.trace import Segment, Session, Turn
from tests.importers.importing import ideal, ideal_of, sent

BLOCK = 4
named = st.builds(
    Segment, role=st.just("user"), tokens=st.integers(0, 11), key=st.sampled_from("abc")
)
numbered = st.builds(
    Segment,
    role=st.just("user"),
    tokens=st.integers(1, 11),
    key=st.tuples(st.integers(0, 3), st.just(3)),
)
turns = st.builds(
    Turn,
    add=st.lists(named | numbered, max_size=4).map(tuple),
    output=st.just(1),
    keep=st.none() | st.integers(0, 3),
)
session = st.builds(
    Session,
    session=st.just("s"),
    workload=st.just("w"),
    turns=st.lists(turns, min_size=1, max_size=4).map(tuple),
)


def measured(sessions: list[Session], *, limit: int = 1 << 20) -> BlockReuse:
    reuse = BlockReuse(BLOCK, limit=limit)
    for each in sessions:
        trail = reuse.trail()
        for turn in each.turns:
            trail.call(turn.add, keep=turn.keep)
    return reuse


@given(st.lists(session, min_size=1, max_size=4))
def test_hits_are_the_full_blocks_that_an_earlier_call_had(sessions: list[Session]) -> None:
    found = measured(sessions)
    total = sum(
        segment.tokens for each in sessions for context in sent(each) for segment in context
    )
    assert found.prompt_tokens == total
    assert found.ratio == (ideal_of(sessions, BLOCK) if total else None)


def test_the_length_of_a_partial_block_is_not_the_id_of_another() -> None:
    run = Segment(role="user", tokens=8, key=(3, 3))
    first = Turn(add=(replace(run, tokens=6), replace(run, tokens=2)), output=1)
    second = Turn(add=(run, replace(run, key=(2, 3))), output=1, keep=0)
    assert measured([Session(session="s", workload="w", turns=(first, second))]).hit_tokens == BLOCK


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(1, BLOCK)),
        min_size=1,
        max_size=6,
    )
)
def test_ids_of_blocks_are_counted_like_their_tokens(calls: list[tuple[list[int], int]]) -> None:
    reuse = BlockReuse(BLOCK)
    said: list[list[tuple[object, int]]] = []
    for ids, last in calls:
        tokens = BLOCK * (len(ids) - 1) + last
        reuse.trail().blocks(ids, tokens)
        said.append([(ids[number // BLOCK], number % BLOCK) for number in range(tokens)])
    assert reuse.ratio == ideal(said, BLOCK)


def test_ids_of_two_scopes_are_different_blocks() -> None:
    reuse = BlockReuse(BLOCK)
    for scope in (0, 1, 1):
        reuse.trail(scope).blocks([1, 2], 8)
    assert reuse.hit_tokens == 8


def test_nothing_is_known_of_an_empty_source() -> None:
    assert BlockReuse(BLOCK).ratio is None


def test_a_full_book_goes_on_by_sampling_and_stays_near_the_truth() -> None:
    """40,000 distinct blocks, each seen twice, in a book of 2,000:
    the ratio is 50%, within five standard errors of sampling.
    """
    reuse = BlockReuse(1, limit=2_000)
    for _ in range(2):
        for number in range(400):
            reuse.trail().blocks(list(range(1 + number * 100, 101 + number * 100)), 100)
    assert not reuse.is_exact
    assert reuse.ratio is not None
    assert abs(reuse.ratio - 0.5) < 5 * 0.5 / 1_000**0.5
