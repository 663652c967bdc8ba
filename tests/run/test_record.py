"""What is stored of a run, which older databases hold as well: names and values stay."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity
from agentload.layout.plan import plan, with_starts
from agentload.model.plan import Budget, Burst, ClosedLoop, Load, OpenLoop, Plan, WaitScale
from agentload.model.rows import ArmRow, RunRow
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.record import arm_row, conditions, fingerprint, run_row, scraped
from tests.layout.test_swap import swapped

TURNS = (
    Turn(add=(Segment(role="system", tokens=128, key="s"),), output=64),
    Turn(add=(Segment(role="user", tokens=64, key="u"),), output=1),
)
TRACE = Trace(
    header=Header(name="t", seed=1, source=(("workload", '"chat"'),)),
    sessions=(Session(session="s", workload="w", start_s=0.0, turns=TURNS),),
)
UNBOUND = {"calls": None, "tokens": None, "seconds": None}
AS_RECORDED = {
    "arrivals": {"kind": "Recorded", "speed": 1.0},
    "waits": {},
    "max_in_flight": None,
    "budget": UNBOUND,
    "cancel_share": 0.0,
    "history": "fixed",
    "retries": 0,
}


def planned(load: Load | None = None, *, pairs: int = 2, cache: str = "cold") -> Plan:
    made = plan(TRACE, ("a", "b"), run="r", seed=5, pairs=pairs, load=load)
    return replace(made, cache="warm") if cache == "warm" else made


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (planned(), {"load": AS_RECORDED, "cache": "cold", "rounds": 4}),
        (planned(pairs=3, cache="warm"), {"load": AS_RECORDED, "cache": "warm", "rounds": 6}),
        (with_starts(planned()), {"load": AS_RECORDED, "cache": "cold", "rounds": 4, "starts": 4}),
        (
            swapped(pairs=2),
            {"load": AS_RECORDED, "cache": "cold", "rounds": 2, "machines": [{"a": "m1", "b": "m2"}, {"a": "m2", "b": "m1"}]},
        ),
        (
            planned(
                Load(
                    arrivals=OpenLoop(
                        rate_per_s=2.0, cv=0.5, ramp_s=3.0, ramp_from_per_s=0.1, burst=Burst(factor=4.0, seconds=5.0, every_s=60.0)
                    ),
                    waits={"tool": WaitScale(scale=0.5, cap_s=9.0)},
                    max_in_flight=8,
                    budget=Budget(calls=7, tokens=8, seconds=9.0),
                    cancel_share=0.1,
                    history="live",
                    retries=2,
                )
            ),
            {
                "load": {
                    "arrivals": {
                        "kind": "OpenLoop",
                        "rate_per_s": 2.0,
                        "cv": 0.5,
                        "ramp_s": 3.0,
                        "ramp_from_per_s": 0.1,
                        "burst": {"factor": 4.0, "seconds": 5.0, "every_s": 60.0},
                    },
                    "waits": {"tool": {"scale": 0.5, "cap_s": 9.0}},
                    "max_in_flight": 8,
                    "budget": {"calls": 7, "tokens": 8, "seconds": 9.0},
                    "cancel_share": 0.1,
                    "history": "live",
                    "retries": 2,
                },
                "cache": "cold",
                "rounds": 4,
            },
        ),
        (
            planned(Load(arrivals=ClosedLoop(sessions=3, ramp_s=1.0))),
            {"load": {**AS_RECORDED, "arrivals": {"kind": "ClosedLoop", "sessions": 3, "ramp_s": 1.0}}, "cache": "cold", "rounds": 4},
        ),
    ],
)
def test_what_each_leg_of_a_run_has_in_common_is_stored_by_these_names(made: Plan, expected: dict[str, object]) -> None:
    assert conditions(made) == expected


def test_a_run_is_described_once_with_its_plan_its_settings_and_where_its_trace_came_from() -> None:
    found = run_row(
        planned(),
        kind="measured",
        name="n",
        trace_hash="h",
        model="m",
        created_ns=7,
        command="agentload replay t",
        settings={"pairs": 2},
        cache_block=64,
    )
    assert replace(found, version="", options="") == RunRow(
        run_id="r",
        kind="measured",
        name="n",
        created_ns=7,
        trace_name="t",
        trace_hash="h",
        model="m",
        design="interleaved",
        seed=5,
        version="",
        command="agentload replay t",
        options="",
    )
    # The second context has 192 tokens, of which an empty cache finds 128 (and of the first none): 128 of 320.
    assert json.loads(found.options) == {
        "pairs": 2,
        "load": AS_RECORDED,
        "cache": "cold",
        "rounds": 4,
        "ideal_hit_rates": {"w": 0.4},
        "source": {"workload": "chat"},
    }


def test_an_arm_is_described_without_its_headers_and_its_key() -> None:
    endpoint = Endpoint(
        name="a",
        url="http://user:secret@h:1/v1",
        headers={"X-Team": "secret"},
        key_env="KEY",
        machine="m1",
        expect={"kv_cache_dtype": "fp8"},
        gpu="H100",
        gpus=2,
        price_per_hour=2.5,
        tensor_parallel=2,
    )
    found = arm_row("r", 1, endpoint, "m", Identity(models=("m",), emulated="p/a"))
    assert found == ArmRow(
        run_id="r",
        arm="a",
        position=1,
        url=endpoint.shown_url,
        model="m",
        machine="m1",
        profile="p/a",
        expected='{"kv_cache_dtype": "fp8"}',
        gpu="H100",
        gpus=2,
        usd_per_gpu_hour=2.5,
        tensor_parallel=2,
        data_parallel=endpoint.data_parallel,
        shape=None,
    )
    assert "secret" not in repr(found)


def test_counters_are_kept_where_every_replica_told_and_levels_of_an_idle_server_never() -> None:
    endpoint = Endpoint(name="a", url="http://h:1/v1")
    said = Identity(models=("m",), counters={"prompt_tokens": 5.0, "kv_usage": 0.0, "waiting": 0.0})
    assert [(row.leg, row.arm, row.name, row.value) for row in scraped("r", 3, endpoint, said)] == [(3, "a", "prompt_tokens", 5.0)]
    assert list(scraped("r", 3, endpoint, replace(said, replicas=0))) == []


def test_what_a_server_is_is_kept_for_the_moment_and_the_round_it_was_asked_at() -> None:
    said = Identity(models=("m",), version="0.32", replicas=2)
    found = fingerprint("r", 2, "a", said, moment="after", round_=4)
    assert (found.run_id, found.leg, found.arm, found.moment, found.round) == ("r", 2, "a", "after", 4)
    assert json.loads(found.facts) == json.loads(json.dumps(said.facts()))
