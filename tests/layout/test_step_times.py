from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.errors import PlanError
from agentload.layout.blocks import cut
from agentload.layout.step_times import Bounds, StepGrid, grid, seconds, step_times
from agentload.model.trace import Trace, Turn
from agentload.model.walk import contexts

H100 = Bounds(window=131_072, pool_tokens=420_000, sequences=256, longest=100_000)
CPU = Bounds(window=4096, pool_tokens=30_000, sequences=16, longest=4000, is_small=True)

BOUNDS = st.builds(
    Bounds,
    window=st.integers(9000, 200_000),
    pool_tokens=st.floats(20_000, 2e6),
    sequences=st.integers(1, 512),
    longest=st.integers(100, 200_000),
    is_small=st.booleans(),
)


def turns(trace: Trace) -> list[Turn]:
    return [turn for session in trace.sessions for turn in session.turns]


def test_an_h100_is_asked_about_eighteen_batches_and_lengths_and_a_small_server_a_few() -> None:
    full, small = grid(H100), grid(CPU)
    assert len(full.decode) == 18
    assert {context for context, _ in full.decode} == {1024, 8192, 32768, 100_000}
    assert {batch for context, batch in full.decode if context == 1024} == {
        1,
        2,
        4,
        8,
        9,
        16,
        17,
        32,
        64,
    }
    assert full.mixed == ((8192, 8, 8192), (8192, 32, 8192))
    assert (
        max(batch for _, batch in small.decode),
        max(context for context, _ in small.decode),
    ) == (4, 1024)


@given(BOUNDS)
def test_every_point_fits_the_window_the_pool_and_the_batch(bounds: Bounds) -> None:
    try:
        found = grid(bounds)
    except PlanError:
        return
    for context, batch in found.decode:
        assert context + found.steps < bounds.window
        assert batch <= bounds.sequences
        assert batch * (context + found.steps) <= bounds.pool_tokens
    assert all(
        cached + new < bounds.window and cached + new < bounds.pool_tokens
        for cached, new in found.prefill
    )


def test_a_server_with_room_for_one_length_is_refused() -> None:
    with pytest.raises(PlanError, match="leave no room for step times at two lengths"):
        grid(Bounds(window=2048, pool_tokens=4000, sequences=16, longest=2000))


def test_contexts_that_the_user_never_reaches_are_not_filled() -> None:
    assert (
        max(
            context
            for context, _ in grid(
                Bounds(window=131_072, pool_tokens=420_000, sequences=256, longest=9000)
            ).decode
        )
        == 8192
    )


def test_one_point_is_played_at_a_time_and_each_sequence_behind_a_prefix_of_its_own() -> None:
    found = StepGrid(
        decode=((1024, 1), (1024, 4), (8192, 2)),
        prefill=((0, 512), (16384, 16)),
        mixed=((8192, 2, 2048),),
        steps=100,
    )
    trace = step_times(found, seed=0)
    (block,) = cut(trace.sessions, 1)
    assert tuple(block.sessions) == tuple(trace.sessions)
    waits = {
        (session.session, number): turn.after
        for session in trace.sessions
        for number, turn in enumerate(session.turns)
    }
    together = [refs for refs in waits.values() if refs]
    assert list(waits.values()).count(()) == 1, (
        "all but the very first turn wait for the point before theirs"
    )
    assert all((ref.session, ref.turn) in waits for refs in together for ref in refs)
    decoding = [turn for turn in turns(trace) if turn.output == 100]
    assert len(decoding) == 1 + 4 + 2 + 2
    firsts = [session.turns[0].add[0] for session in trace.sessions]
    assert len({segment.key for segment in firsts}) == len(firsts)
    sizes = {
        session.session: [sum(s.tokens for s in each) for each in contexts(trace.header, session)]
        for session in trace.sessions
    }
    assert sizes["decode-1024-0"] == [1024, 1040, 1040], (
        "every turn goes on behind the cached prefix alone"
    )
    assert sizes["prefill-16384"] == [16384, 16400]


def test_a_prompt_joins_a_batch_that_has_begun_to_decode() -> None:
    found = StepGrid(decode=((1024, 1), (8192, 2)), prefill=(), mixed=((8192, 2, 2048),), steps=100)
    sessions = {session.session: session for session in step_times(found, seed=0).sessions}
    (joining,) = sessions["mixed-8192-2"].turns
    beside = sessions["decode-8192-0"].turns[-1]
    assert joining.after == beside.after
    assert (joining.wait_s > 0, beside.wait_s) == (True, 0)


def test_a_play_takes_as_long_as_its_prefixes_and_its_steps() -> None:
    found = StepGrid(decode=((1000, 2), (1000, 4)), prefill=((500, 100),), mixed=(), steps=50)
    took = seconds(
        found,
        decode_s=lambda batch, context: batch * context / 1e6,
        prefill_s=lambda tokens: tokens**2 / 1e6,
    )
    assert took == pytest.approx(4 * 1.0 + 0.25 + (0.36 - 0.25) + 50 * (0.002 + 0.004))
