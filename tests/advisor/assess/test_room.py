"""Whether the pool can limit a load at the user's peak."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from advisor.assess import room
from advisor.assess.room import hit_cliff
from advisor.decide import decide
from advisor.deployment import Deployment
from advisor.evidence import Calls, Evidence
from advisor.policy import Policy
from advisor.results import Room
from tests.advisor.cases import H100, bare, compared, observed
from tests.advisor.worlds import Noise, simulated_calls

FROM_23 = " (80% from about 23 sessions on)"


def _sixteen_sessions() -> Calls:
    calls = simulated_calls(
        np.random.default_rng(1), pairs=1, sessions=16, turns=1, effect=0.0, noise=Noise()
    )[0]
    return replace(
        calls,
        start_s=np.arange(16.0),
        turn_ms=np.full(16, 60_000.0),
        prompt_tokens=np.full(16, 14_800.0),
        output_tokens=np.full(16, 200.0),
    )


def test_a_session_that_begins_as_another_ends_is_not_alive_beside_it() -> None:
    calls = _sixteen_sessions()
    in_turn = replace(calls, start_s=0.1 * np.arange(16.0), turn_ms=np.full(16, 100.0))
    assert room.working_set([in_turn]) == room.LiveContexts(tokens=15_000.0, sessions=1.0)
    overlapping = replace(in_turn, turn_ms=np.full(16, 101.0))
    assert room.working_set([overlapping]).sessions == 2


def _evidence(*, peak: int | None, replicas: int = 1) -> Evidence:
    calls = _sixteen_sessions()
    deployment = Deployment(
        version="0.33.0", gpu=H100, machines=("a",), peak_agents=peak, replicas=replicas
    )
    return bare(observations=observed(calls, calls, idle=False), deployment=deployment)


def _room(evidence: Evidence) -> Room:
    return room.rooms(evidence, Policy())[0]


@pytest.mark.parametrize(
    ("peak", "replicas", "state", "reason"),
    [
        (
            None,
            1,
            "slack",
            (
                "16 sessions at once hold 240,000 tokens, 57% of the pool of bf16 (80% from "
                "about 23 sessions on)"
            ),
        ),
        (
            42,
            1,
            "binds",
            (
                "42 sessions at once hold 630,000 tokens (scaled from 16 in the replay), 1.5 times "
                "the pool of a replica of bf16"
            ),
        ),
        (
            42,
            2,
            "slack",
            (
                "21 sessions at once hold 315,000 tokens (scaled from 16 in the replay), 75% "
                f"of the pool of a replica of bf16{FROM_23}"
            ),
        ),
    ],
)
def test_the_pool_is_held_against_the_users_peak_and_not_against_the_replay(
    peak: int | None, replicas: int, state: str, reason: str
) -> None:
    found = _room(_evidence(peak=peak, replicas=replicas))
    assert (found.state, found.reason) == (state, reason)


def test_no_difference_says_from_how_many_agents_on_the_pool_decides() -> None:
    evidence = compared(effect=0.0, pairs=24, noise=Noise(call=0.02, wander=0.005, block=0.002))
    (server,) = decide(
        replace(evidence, deployment=replace(evidence.deployment, peak_agents=None))
    ).server
    assert server.verdict == "no difference"
    (reason,) = re.findall(r"\(80% from about (\d+) sessions on\)", server.pays.reason)
    assert (
        f"a load of about {reason} sessions at once: 80% of bf16's KV pool, from where it counts "
        "as the bottleneck"
    ) in server.flips


@pytest.mark.parametrize(("apart_s", "alive"), [(5.1, 1.0), (4.9, 2.0), (2.6, 2.0), (2.4, 3.0)])
def test_sessions_are_alive_together_until_the_last_byte_of_their_turns(
    apart_s: float, alive: float
) -> None:
    calls = _sixteen_sessions()
    timed = replace(calls, start_s=apart_s * np.arange(16.0), turn_ms=np.full(16, 5000.0))
    found = room.working_set([timed])
    assert (found.sessions, found.tokens) == (alive, alive * 15_000.0)


@pytest.mark.parametrize(
    ("lost", "cliff"),
    [
        # what the smallest load loses already is no cliff
        ({4: 0.10, 8: 0.11, 16: 0.12}, None),
        ({4: 0.01, 8: 0.02, 12: 0.30, 16: 0.60}, (12, 8)),
        # one unlucky draw in the middle is no cliff either
        ({4: 0.01, 8: 0.20, 12: 0.02, 16: 0.60}, (16, 12)),
        ({4: 0.50}, None),
    ],
)
def test_a_hit_rate_falls_off_where_every_larger_load_loses_more(
    lost: dict[int, float], cliff: tuple[int, int] | None
) -> None:
    tried = [(float(load), 0.9 - gap, 0.9) for load, gap in lost.items()]
    found = hit_cliff("bf16", None, tried)
    assert (None if found is None else (found.agents, found.kept_at)) == cliff


def test_trials_of_one_load_are_one_point_and_those_without_hits_none() -> None:
    tried = [(4.0, 0.9, 0.9), (8.0, 0.9, 0.9), (8.0, 0.5, 0.9), (2.0, None, 0.9)]
    found = hit_cliff("bf16", "chat", tried)
    assert found is not None
    assert (found.agents, found.hit_rate, found.kept_at) == (8, 0.7, 4)
