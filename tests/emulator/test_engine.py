from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from agentload.emulator.calls import EngineRequest, Finished, FirstToken, Happening, Rejected, Run
from agentload.emulator.engine import Engine
from agentload.model.profile import ArmProfile, Episode, Noise, Speculation
from tests.emulator.arms import small, without_cache

MS = 1_000_000
NOISY = Noise(
    sigma=0.05,
    phi=0.6,
    segment_steps=5,
    tail_share=0.3,
    tail_ms=20,
    restart_sigma=0.02,
    drift_per_hour=1.0,
    episodes=(Episode(from_s=0.5, until_s=1.0, factor=2.0),),
)


def request(name: str, prompt: int, output: int, *, text: str | None = None) -> EngineRequest:
    return EngineRequest(name, ((text or name, prompt),), output)


def run(engine: Engine) -> list[Happening]:
    """Let the engine come to rest."""
    happened = []
    while (at := engine.next_ns()) is not None:
        happened += engine.advance(at)
    return happened


def shown(happened: list[Happening]) -> list[tuple[object, ...]]:
    """Make happenings comparable: arrays as lists."""
    return [
        (
            *(getattr(event, name) for name in ("id", "at_ns")),
            event.token_ns.tolist(),
            event.token_counts.tolist(),
            event.preemptions,
        )
        if isinstance(event, Finished)
        else (type(event).__name__, event.id, event.at_ns)
        for event in happened
    ]


def test_a_lone_call_takes_the_time_that_the_equation_says() -> None:
    engine = Engine(small())
    engine.submit(request("a", 50, 3), 1000)
    # Host 0.5 ms; prefill 2 + max(8 + 1 * (1 - 1/50) * 8/7, 0.1
    # * 50) + 1e-6 * 50 * 50 / 2; decode 10 + 0.001 * context.
    first = 1000 + 500_000 + 11_121_250
    second = first + 10_050_000
    third = second + 10_051_000
    assert shown(run(engine)) == [
        ("FirstToken", "a", first),
        ("a", third, [first, second, third], [1, 1, 1], 0),
    ]


def test_a_long_prompt_is_computed_in_chunks_of_the_token_budget() -> None:
    engine = Engine(small(budget=100))
    engine.submit(request("a", 250, 1), 0)
    chunks = [2 + 10 + 1e-6 * pairs / 2 for pairs in (100 * 100, 100 * 300)] + [
        2 + 9.12 + 1e-6 * (50 * 450) / 2
    ]
    assert run(engine)[0].at_ns == pytest.approx((2.5 + sum(chunks)) * MS, abs=1)


def test_decoding_calls_wait_for_a_chunk_that_shares_their_step() -> None:
    engine = Engine(small())
    engine.submit(request("a", 10, 5), 0)
    engine.advance(25 * MS)
    engine.submit(request("b", 90, 1), 25 * MS)
    (a,) = [event for event in run(engine) if isinstance(event, Finished) and event.id == "a"]
    gaps = np.diff(a.token_ns) / MS
    # The step with the chunk holds 91 tokens: 2 + max(8 +
    # (1 - 1/91) * 8/7, 9.1), and the attention of both.
    assert gaps.tolist() == pytest.approx(
        [10.010, 10.011, 11.130298 + 0.012 + 1e-6 * 90 * 90 / 2, 10.013], abs=1e-4
    )


def test_nobody_is_admitted_beyond_the_most_sequences() -> None:
    engine = Engine(small(seqs=2))
    for name in "abc":
        engine.submit(request(name, 10, 4), 0)
    engine.advance(15 * MS)
    gauges = engine.gauges()
    assert (gauges.running, gauges.waiting) == (2, 1)
    assert [event.id for event in run(engine) if isinstance(event, Finished)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("prompt", "output", "reason"),
    [(990, 11, "exceed the model length of 1000"), (300, 100, "do not fit into the KV pool")],
)
def test_a_call_that_can_never_run_is_rejected_at_once(
    prompt: int, output: int, reason: str
) -> None:
    engine = Engine(small(blocks=63), seed=1)
    engine._scheduler.kv.capacity = 20
    engine.submit(request("a", prompt, output), 77)
    (event,) = engine.advance(engine.next_ns() or 0)
    assert isinstance(event, Rejected)
    assert (event.id, event.at_ns) == ("a", 77)
    assert reason in event.reason


def test_a_full_queue_rejects() -> None:
    arm = small(seqs=1)
    engine = Engine(replace(arm, server=replace(arm.server, max_waiting=1)))
    happened = []
    for at, name in enumerate("abc"):
        happened += engine.advance(at * MS)
        engine.submit(request(name, 10, 50), at * MS)
    happened += run(engine)
    assert [event.id for event in happened if isinstance(event, Rejected)] == ["c"]


def test_a_prompt_that_was_seen_before_comes_from_the_cache_in_whole_blocks() -> None:
    engine = Engine(small())
    engine.submit(request("a", 90, 2, text="same"), 0)
    run(engine)
    engine.submit(EngineRequest("b", (("same", 90), ("new", 9)), 2), 500 * MS)
    first, done = run(engine)
    assert isinstance(first, FirstToken)
    assert isinstance(done, Finished)
    assert (first.cached_tokens, done.cached_tokens, done.prompt_tokens) == (80, 80, 99)
    gauges = engine.gauges()
    assert (gauges.prefix_queries, gauges.prefix_hits, gauges.prompt_tokens_computed) == (
        189,
        80,
        109,
    )


def test_a_whole_hit_still_computes_its_last_block() -> None:
    engine = Engine(small())
    for name in "ab":
        engine.submit(request(name, 96, 2, text="same"), 0)
    assert [event.cached_tokens for event in run(engine) if isinstance(event, FirstToken)] == [
        0,
        80,
    ]


def test_an_answer_that_is_named_can_be_hit_by_the_next_turn() -> None:
    engine = Engine(small())
    engine.submit(EngineRequest("a", (("user", 40),), 41, answer="reply"), 0)
    run(engine)
    engine.submit(EngineRequest("b", (("user", 40), ("reply", 41), ("more", 20)), 1), 900 * MS)
    # The KV of the last token was never computed: 80 tokens are, five blocks.
    first = run(engine)[0]
    assert isinstance(first, FirstToken)
    assert (first.id, first.cached_tokens) == ("b", 80)


def test_without_caching_nothing_is_hit() -> None:
    engine = Engine(without_cache(small()))
    for start in (0, 500 * MS):
        engine.submit(request(str(start), 90, 2, text="same"), start)
        run(engine)
    assert engine.gauges().prefix_hits == 0


def test_the_call_that_was_admitted_last_is_preempted_and_loses_no_token() -> None:
    engine = Engine(without_cache(small(blocks=12, max_len=190)))
    for name in "ab":
        engine.submit(request(name, 80, 40), 0)
    done = {event.id: event for event in run(engine) if isinstance(event, Finished)}
    assert [(name, done[name].preemptions, len(done[name].token_ns)) for name in "ab"] == [
        ("a", 0, 40),
        ("b", 1, 40),
    ]
    assert done["a"].at_ns < done["b"].at_ns
    assert (np.diff(done["b"].token_ns) > 0).all()
    gauges = engine.gauges()
    assert (gauges.preemptions, gauges.generation_tokens, gauges.kv_usage) == (1, 80, 0.0)


def test_an_aborted_call_says_nothing_more_and_frees_its_blocks_after_the_step() -> None:
    engine = Engine(small())
    for name in "ab":
        engine.submit(request(name, 50, 30), 0)
    engine.advance(55 * MS)
    stamps, counts = engine.emitted("a")
    assert len(stamps) == len(counts) == 4
    engine.abort("a", 55 * MS)
    assert engine.emitted("a")[0].size == 0
    assert {event.id for event in run(engine)} == {"b"}
    gauges = engine.gauges()
    assert (gauges.running, gauges.kv_usage, gauges.generation_tokens) == (0, 0.0, 35)


@pytest.mark.parametrize("at_ms", [0, 1, 4])
def test_a_call_can_be_aborted_before_it_runs(at_ms: int) -> None:
    engine = Engine(small(seqs=1))
    engine.submit(request("a", 50, 3), 0)
    engine.submit(request("b", 50, 3), 0)
    engine.advance(at_ms * MS)
    engine.abort("b", at_ms * MS)
    assert {event.id for event in run(engine)} == {"a"}


def test_emissions_in_flight_are_what_the_finished_call_reports() -> None:
    engine = Engine(small())
    engine.submit(request("a", 50, 10), 0)
    seen: list[int] = []
    done: list[Finished] = []
    while (at := engine.next_step_ns()) is not None:
        done += [event for event in engine.advance(at) if isinstance(event, Finished)]
        seen = max(seen, engine.emitted("a")[0].tolist(), key=len)
    assert seen == done[0].token_ns.tolist()[:9]


def test_a_restart_loses_every_call_and_the_cache() -> None:
    engine = Engine(small())
    engine.submit(request("a", 90, 30, text="same"), 0)
    engine.advance(100 * MS)
    engine.restart()
    assert (engine.next_ns(), engine.gauges().running) == (None, 0)
    engine.submit(request("b", 90, 1, text="same"), 200 * MS)
    assert [event.cached_tokens for event in run(engine) if isinstance(event, FirstToken)] == [0]


def test_the_prefix_cache_is_only_reset_when_nothing_runs() -> None:
    engine = Engine(small())
    engine.submit(request("a", 90, 30, text="same"), 0)
    engine.advance(50 * MS)
    assert not engine.reset_prefix_cache()
    run(engine)
    assert engine.reset_prefix_cache()
    engine.submit(request("b", 90, 1, text="same"), 900 * MS)
    assert [event.cached_tokens for event in run(engine) if isinstance(event, FirstToken)] == [0]


def test_instants_are_those_of_the_shells_axis_however_large() -> None:
    starts = (0, 10**18)
    ends = []
    for start in starts:
        engine = Engine(small())
        engine.advance(start)
        engine.submit(request("a", 50, 3), start)
        ends.append(run(engine)[-1].at_ns - start)
    assert ends[0] == ends[1]


def test_drafts_that_are_kept_make_emissions_of_several_tokens() -> None:
    engine = Engine(small(drafts=Speculation(drafts=3, acceptance=0.8)))
    engine.submit(request("a", 50, 200), 0)
    (done,) = [event for event in run(engine) if isinstance(event, Finished)]
    counts = done.token_counts.tolist()
    assert (sum(counts), counts[0], max(counts)) == (200, 1, 4)
    assert len(counts) == len(done.token_ns)
    # Expected tokens a step: 1 + 0.8 + 0.64 + 0.512.
    assert 199 / (len(counts) - 1) == pytest.approx(2.952, rel=0.15)


CALLS = st.lists(
    st.tuples(
        st.integers(0, 400),  # ms since the one before
        st.lists(st.tuples(st.sampled_from("xyz"), st.integers(1, 60)), min_size=1, max_size=3),
        st.integers(1, 60),
        st.one_of(st.none(), st.integers(0, 500)),  # aborted so many ms after it was sent
    ),
    min_size=1,
    max_size=12,
)
MACHINES = st.sampled_from(
    [
        small(),
        small(blocks=20, max_len=240, noise=NOISY),
        without_cache(small(blocks=20, max_len=240, seqs=4)),
        small(blocks=30, max_len=240, drafts=Speculation(drafts=2, acceptance=0.7), noise=NOISY),
    ]
)


def play(
    arm: ArmProfile, calls: list[tuple[int, list[Run], int, int | None]], looks: list[int]
) -> list[tuple[object, ...]]:
    """Play calls; between commands, look at the engine so many times, which cuts its jumps."""
    engine = Engine(arm, seed=3)
    script: list[tuple[int, int, str]] = []
    at = 0
    for index, (wait, _, _, abort) in enumerate(calls):
        at += wait
        script.append((at * MS, index, "submit"))
        if abort is not None:
            script.append(((at + abort) * MS + 1, index, "abort"))
    happened: list[Happening] = []
    now = 0
    for instant, index, what in sorted(script):
        for part in looks:
            happened += engine.advance(now + (instant - now) * part // 100)
            engine.gauges()
            engine.emitted("0")
            engine.next_step_ns()
        happened += engine.advance(instant)
        now = instant
        if what == "submit":
            engine.submit(
                EngineRequest(str(index), tuple(calls[index][1]), calls[index][2]), instant
            )
        else:
            engine.abort(str(index), instant)
    while (nxt := engine.next_step_ns() if looks else engine.next_ns()) is not None:
        happened += engine.advance(nxt)
        if looks:
            engine.gauges()
    assert engine.gauges().kv_usage == 0.0
    assert engine._scheduler.steps.batch.context == engine._scheduler.steps.batch.size == 0
    return shown(happened)


@given(
    arm=MACHINES,
    calls=CALLS,
    looks=st.lists(st.integers(0, 100), min_size=1, max_size=4).map(sorted),
)
def test_steps_jumped_at_once_equal_single_steps_bit_for_bit(
    arm: ArmProfile, calls: list[tuple[int, list[Run], int, int | None]], looks: list[int]
) -> None:
    whole = play(arm, calls, [])
    assert play(arm, calls, looks) == whole
    ended = {event[0] for event in whole if event[0] not in {"FirstToken", "Rejected"}}
    for index, (_, _, output, abort) in enumerate(calls):
        if abort is None:
            assert str(index) in ended
        if str(index) in ended:
            (counts,) = [event[3] for event in whole if event[0] == str(index)]
            # events are rows of objects
            assert sum(counts) == output  # type: ignore[call-overload]


@given(arm=MACHINES, calls=CALLS)
def test_playing_from_end_to_end_of_calls_equals_playing_event_by_event(
    arm: ArmProfile, calls: list[tuple[int, list[Run], int, int | None]]
) -> None:
    engine = Engine(arm, seed=3)
    happened: list[Happening] = []
    at = 0
    for index, (wait, content, output, _) in enumerate(calls):
        at += wait * MS
        while (following := engine.next_ns()) is not None and following <= at:
            some = engine.advance_to_end(at)
            ends = {event.at_ns for event in some if not isinstance(event, FirstToken)}
            assert len(ends) <= 1  # whoever hears of an end may act before anything that follows it
            assert all(event.at_ns <= end for event in some for end in ends)
            happened += some
        engine.advance(at)
        engine.submit(EngineRequest(str(index), tuple(content), output), at)
    while engine.next_ns() is not None:
        happened += engine.advance_to_end(1 << 62)
    assert shown(happened) == play(
        arm, [(wait, content, output, None) for wait, content, output, _ in calls], []
    )


@settings(max_examples=30, deadline=None)
@given(arm=MACHINES, calls=CALLS)
def test_equal_seeds_give_equal_bytes(
    arm: ArmProfile, calls: list[tuple[int, list[Run], int, int | None]]
) -> None:
    assert play(arm, calls, []) == play(arm, calls, [])
