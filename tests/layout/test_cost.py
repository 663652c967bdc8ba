from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from agentload.errors import PlanError
from agentload.layout.cost import Cost, about, cost, ideal_hit_rates, too_long
from agentload.layout.plan import Scheme, plan
from agentload.model.plan import (
    Budget,
    Cache,
    ClosedLoop,
    Design,
    Load,
    OpenLoop,
    Recorded,
    WaitScale,
)
from agentload.model.trace import PRIME, Header, Segment, Session, Trace, Turn

# Contexts of 1,100, 3,100 and 1,100 tokens. At the assumed speeds
# the turns take 0.1 + 0.9 s, 4 + 0.2 + 1.8 s and 0.1 + 0.4 s.
TURNS = (
    Turn(add=(Segment(role="user", tokens=1_000, key="a"),), output=45),
    Turn(add=(Segment(role="tool", tokens=2_000, key="b"),), output=90, wait="tool", wait_s=4.0),
    Turn(keep=1, add=(Segment(role="user", tokens=1_000, key="c"),), output=20),
)
TRACE = Trace(
    header=Header(name="t", prefixes={"P": (Segment(role="system", tokens=100, key="p"),)}),
    sessions=tuple(
        Session(session=f"s{start_s}", workload="w", start_s=start_s, prefix="P", turns=TURNS)
        for start_s in (0.0, 10.0)
    ),
)


def costs(
    load: Load, *, design: Design = "interleaved", pairs: int = 1, warmup: bool = False
) -> Cost:
    return cost(
        plan(
            TRACE,
            ("a", "b"),
            run="r",
            scheme=Scheme(pairs=pairs, blocks=1, design=design, warmup=warmup),
            load=load,
        )
    )


@pytest.mark.parametrize(
    ("load", "seconds"),
    [
        (Load(), 10 + 7.5),
        (Load(arrivals=Recorded(speed=2.0)), 5 + 7.5),
        (Load(arrivals=OpenLoop(rate_per_s=0.5)), 4 + 7.5),
        (Load(arrivals=ClosedLoop(sessions=1)), 15.0),
        (Load(arrivals=ClosedLoop(sessions=2)), 7.5),
        (Load(waits={"tool": WaitScale(scale=0.5)}), 10 + 5.5),
        (Load(waits={"tool": WaitScale(cap_s=1.0)}), 10 + 4.5),
        (Load(waits={"tool": WaitScale(scale=0.5, cap_s=3.0)}), 10 + 5.5),
        (Load(waits={"tool": WaitScale(scale=2.0, cap_s=5.0)}), 10 + 8.5),
        (Load(waits={"user": WaitScale(scale=0.0)}), 10 + 7.5),
    ],
)
def test_a_block_takes_as_long_as_its_last_session_or_the_places_of_a_closed_loop(
    load: Load, seconds: float
) -> None:
    found = costs(load)
    assert (found.rounds, found.calls_by_arm, found.prompt_tokens, found.output_tokens) == (
        2,
        {"a": 6, "b": 6},
        4 * 5_300,
        4 * 155,
    )
    assert found.minutes * 60 == pytest.approx(2 * seconds)


@pytest.mark.parametrize(
    ("budget", "share"),
    [
        (Budget(calls=3), 3 / 6),
        (Budget(calls=60), 1.0),
        (Budget(seconds=7.0), 7 / 17.5),
        (Budget(seconds=70.0), 1.0),
        (Budget(calls=3, seconds=7.0), 7 / 17.5),
        (Budget(calls=3, seconds=9.0), 3 / 6),
        (Budget(tokens=2_182), 2_182 / 10_910),
        (Budget(tokens=10_910), 1.0),
        (Budget(calls=3, tokens=2_182), 2_182 / 10_910),
        (Budget(tokens=8_182, seconds=7.0), 7 / 17.5),
    ],
)
def test_a_budget_holds_in_each_block(budget: Budget, share: float) -> None:
    found = costs(Load(budget=budget))
    assert found.calls_by_arm == {"a": round(6 * share), "b": round(6 * share)}
    assert (found.prompt_tokens, found.output_tokens) == (
        2 * round(2 * 5_300 * share),
        2 * round(2 * 155 * share),
    )
    assert found.minutes * 60 == pytest.approx(2 * 17.5 * share)


def test_arms_that_play_at_once_take_the_time_of_one_and_a_warm_up_is_played_too() -> None:
    at_once, warmed = costs(Load(), design="parallel", pairs=3), costs(Load(), pairs=3, warmup=True)
    assert (at_once.rounds, at_once.calls_by_arm) == (3, {"a": 18, "b": 18})
    assert (warmed.rounds, warmed.calls_by_arm) == (8, {"a": 24, "b": 24})
    assert [found.minutes * 60 for found in (at_once, warmed)] == pytest.approx(
        [3 * 17.5, 8 * 17.5]
    )


def test_what_the_minutes_rest_on_is_said() -> None:
    assert costs(Load()).assumed == "20 ms a token, 10,000 new prompt tokens a second"


def trace(sessions: int) -> Trace:
    prefix = (Segment(role="system", tokens=160, key="sys"),)

    def talk(name: str) -> Session:
        turns = (
            Turn(add=(Segment(role="user", tokens=160, key=f"{name}.0"),), output=16),
            Turn(add=(Segment(role="user", tokens=160, key=f"{name}.1"),), output=16),
        )
        return Session(session=name, workload="chat", start_s=0.0, prefix="P", turns=turns)

    return Trace(
        header=Header(name="t", prefixes={"P": prefix}),
        sessions=tuple(talk(f"s{i}") for i in range(sessions)),
    )


@pytest.mark.parametrize(
    ("sessions", "pairs", "cache", "rate"),
    [
        (1, 1, "cold", 320 / 800),  # the second turn finds the first
        (2, 1, "cold", (320 + 160 + 320) / 1600),  # the second session finds the prefix
        (2, 2, "cold", 320 / 800),  # a pair each: nobody finds the other's
        (1, 2, "warm", (320 + 320 + 480) / 1600),  # the second pair finds all of the first
    ],
)
def test_the_ideal_is_what_an_empty_cache_of_each_pair_could_find(
    sessions: int, pairs: int, cache: Cache, rate: float
) -> None:
    made = plan(trace(sessions), ["a", "b"], run="r", scheme=Scheme(pairs=pairs, cache=cache))
    assert ideal_hit_rates(made) == {"chat": pytest.approx(rate)}


@pytest.mark.parametrize(("block", "rate"), [(None, 320 / 800), (128, 256 / 800), (512, 0.0)])
def test_a_cache_of_larger_blocks_finds_less(block: int | None, rate: float) -> None:
    assert ideal_hit_rates(plan(trace(1), ["a"], run="r", scheme=Scheme(pairs=1)), block=block) == {
        "chat": pytest.approx(rate)
    }


def test_a_block_of_a_closed_loop_lasts_at_least_as_long_as_its_longest_session() -> None:
    first = next(iter(TRACE.sessions))
    brief, long = (replace(first, session=f"s{turns}", turns=TURNS * turns) for turns in (1, 4))
    made = plan(
        replace(TRACE, sessions=(brief, brief, long)),
        ("a",),
        run="r",
        scheme=Scheme(pairs=1, blocks=1),
        load=Load(arrivals=ClosedLoop(sessions=16)),
    )
    assert cost(made).minutes * 60 == pytest.approx(4 * 7.5)


@pytest.mark.parametrize(
    ("minutes", "said"),
    [
        (0.2, "about 1 min"),
        (26.4, "about 26 min"),
        (119.0, "about 119 min"),
        (1095.0, "about 18 h"),
    ],
)
def test_long_durations_are_told_in_hours(minutes: float, said: str) -> None:
    assert about(minutes) == said


@pytest.mark.parametrize(("minutes", "is_told"), [(59.0, False), (60.0, True)])
# a case
def test_a_long_replay_is_told_with_what_makes_it_shorter(minutes: float, is_told: bool) -> None:  # noqa: FBT001
    told = Cost(
        rounds=12, calls_by_arm={"a": 1}, prompt_tokens=1, output_tokens=1, minutes=minutes
    ).warning()
    assert (told is not None) == is_told
    assert told is None or told.startswith("this takes about 60 min; shorter with --wait-cap")


def test_turns_that_are_longer_than_the_models_window_are_named_before_the_run() -> None:
    def alike(*lengths: int) -> tuple[Session, ...]:
        turns = [
            Turn(add=(Segment(role="user", tokens=tokens, key=f"u{tokens}"),), output=100)
            for tokens in lengths
        ]
        return tuple(
            Session(session=str(number), workload="w", start_s=0.0, turns=(turn,))
            for number, turn in enumerate(turns)
        )

    header = Header(name="t")
    assert too_long(header, alike(900, 500), 1000) is None
    assert too_long(header, alike(901, 500), None) is None
    with pytest.raises(
        PlanError,
        match=r"^1 of 2 turns \(50%\) need more than the 1,000 tokens that the model takes$",
    ) as error:
        too_long(header, alike(901, 500), 1000)
    assert error.value.hint == "--max-context 1000 ends sessions before them, or another trace"
    said = too_long(header, alike(901, *[500] * 30), 1000)
    assert said is not None
    assert said.startswith(
        "1 of 31 turns (3%) need more than the 1,000 tokens that the model takes, and will "
        "be refused: --max-context 1000"
    )
    whole = too_long(header, alike(901, *[500] * 30), 1000, may_cut=False)
    assert (whole or "").endswith(
        "refused: servers with a larger --max-model-len, or a trace whose sessions fit"
    )


@pytest.mark.parametrize(
    ("arrivals", "sent_until", "lasts"),
    [
        (Recorded(), 10.5, 11.0),
        (Recorded(), 16.0, 17.0),
        (ClosedLoop(sessions=2), 5.5, 7.0),
        (ClosedLoop(sessions=2), 4.0, 4.0),
    ],
)
def test_a_block_lasts_until_the_last_call_has_ended_that_was_sent_in_its_time(
    arrivals: Recorded | ClosedLoop, sent_until: float, lasts: float
) -> None:
    assert costs(
        Load(arrivals=arrivals, budget=Budget(seconds=sent_until))
    ).minutes * 60 == pytest.approx(2 * lasts)


def test_what_primed_contexts_begin_with_is_read_once() -> None:
    def primed(name: str) -> Session:
        turns = (
            Turn(add=(Segment(role="user", tokens=320, key=name),), output=1, event=PRIME),
            Turn(add=(), output=16),
        )
        return Session(session=name, workload="chat", start_s=0.0, prefix="P", turns=turns)

    whole = Trace(header=trace(1).header, sessions=(primed("s0"), primed("s1")))
    made = plan(
        whole,
        ("bf16",),
        run="r",
        seed=0,
        scheme=Scheme(pairs=1, blocks=1),
        load=Load(arrivals=ClosedLoop(sessions=2), budget=Budget(seconds=9.0)),
    )
    window = replace(made, blocks=tuple(replace(each, is_window=True) for each in made.blocks))
    assert 60 * cost(window, prefill_s=float).priming_minutes == pytest.approx(160 + 320 + 320)


@pytest.mark.parametrize(
    ("wait", "load", "said"),
    [
        ("user", Load(), "user=600 shortens the whole run to about 20 min"),
        (
            "user",
            Load(waits={"user": WaitScale(scale=0.5)}),
            "user=600 shortens the whole run to about 20 min",
        ),
        ("user", Load(waits={"user": WaitScale(cap_s=60)}), None),
        ("user", Load(budget=Budget(seconds=3_600)), None),
        (None, Load(), None),
    ],
)
def test_a_wait_that_makes_a_replay_long_is_named_with_a_cap_that_makes_it_short(
    wait: Literal["user"] | None, load: Load, said: str | None
) -> None:
    late = replace(TURNS[1], wait=wait, wait_s=20_000.0)
    trace = Trace(
        header=TRACE.header,
        sessions=tuple(
            replace(session, turns=(TURNS[0], late)) if session.session == "s10.0" else session
            for session in TRACE.sessions
        ),
    )
    made = plan(trace, ("a", "b"), run="r", scheme=Scheme(pairs=1, blocks=1), load=load)
    warning = cost(made).warning() or ""
    assert ("one user wait" in warning) == (said is not None)
    if said is not None:
        assert "before turn 2 of session s10.0: --wait-cap " + said in warning
