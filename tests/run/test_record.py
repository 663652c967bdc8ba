"""What is stored of a run, which older databases hold as well: names and values stay."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity
from agentload.layout.plan import Scheme, plan
from agentload.model.plan import Plan
from agentload.model.rows import ArmRow, RunRow
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.ask import Eval
from agentload.run.play import Playing
from agentload.run.questions import asking, catalog_questions
from agentload.run.record import PlayedOn, arm_row, counter_rows, fingerprint, run_row
from agentload.study.argv import build_study
from agentload.study.change import extend
from agentload.study.kinds import Ask, Replay, Sweep
from agentload.study.parts import Live, TraceRef
from agentload.study.stored import Notes, study_of
from tests.layout.test_plan import swapped
from tests.study.words import split

TURNS = (
    Turn(add=(Segment(role="system", tokens=128, key="s"),), output=64),
    Turn(add=(Segment(role="user", tokens=64, key="u"),), output=1),
)
TRACE = Trace(
    header=Header(name="t", seed=1, source=(("workload", '"chat"'),)),
    sessions=(Session(session="s", workload="w", start_s=0.0, turns=TURNS),),
)
NOTES = Notes(calls={"a": 4}, caveats=("c",))
STUDY = Replay(
    traces=(TraceRef(path="t"),),
    servers=Live(endpoints="a=http://me:secret@h/v1,b=http://h:2/v1"),
    pairs=2,
    seed=5,
)


def described(made: Plan, *, notes: Notes = NOTES) -> RunRow:
    return replace(
        run_row(
            made.run,
            STUDY,
            plan=made,
            trace_hash="h",
            created_ns=7,
            command="agentload replay t",
            notes=notes,
            on=PlayedOn(kind="measured", model="m", cache_block=64),
        ),
        name="n",
    )


def test_a_run_is_described_once_with_its_study_what_was_found_out_and_where_its_trace_came_from() -> (
    None
):
    found = described(plan(TRACE, ("a", "b"), run="r", seed=5, scheme=Scheme(pairs=2)))
    assert replace(found, version="", options="", study=None) == RunRow(
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
    # The second context has 192 tokens, of which an empty
    # cache finds 128 (and of the first none): 128 of 320.
    assert json.loads(found.options) == {
        "calls": {"a": 4},
        "caveats": ["c"],
        "rounds": 4,
        "ideal_hit_rates": {"w": 0.4},
        "source": {"workload": "chat"},
    }
    assert study_of(found) == extend(STUDY, endpoints="a=http://***@h/v1,b=http://h:2/v1")


def test_where_each_arm_ran_is_kept_of_a_run_whose_arms_changed_machines() -> None:
    assert json.loads(described(swapped(pairs=2)).options)["machines"] == [
        {"a": "m1", "b": "m2"},
        {"a": "m2", "b": "m1"},
    ]


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
    assert [
        (row.leg, row.arm, row.name, row.value) for row in counter_rows("r", 3, endpoint, said)
    ] == [(3, "a", "prompt_tokens", 5.0)]
    assert list(counter_rows("r", 3, endpoint, replace(said, replicas=0))) == []


def test_what_a_server_is_is_kept_for_the_moment_and_the_round_it_was_asked_at() -> None:
    said = Identity(models=("m",), version="0.32", replicas=2)
    found = fingerprint("r", 2, "a", said, moment="after", round_=4)
    assert (found.run_id, found.leg, found.arm, found.moment, found.round) == (
        "r",
        2,
        "a",
        "after",
        4,
    )
    assert json.loads(found.facts) == json.loads(json.dumps(said.facts()))


@pytest.mark.parametrize(
    ("study", "into", "goes_on"),
    [
        (STUDY, None, "replay t --endpoints e --pairs 2 --seed 5 --resume r"),
        (
            Sweep(servers=Live(endpoints="e"), contexts=(1024, 2048)),
            None,
            "sweep --endpoints e --contexts 1k..2k",
        ),
        (
            Sweep(servers=Live(endpoints="e"), contexts=(1024, 2048)),
            "r",
            "sweep --endpoints e --contexts 1k..2k --into r",
        ),
    ],
)
def test_a_command_that_can_go_on_with_a_run_says_which_and_others_are_typed_again(
    study: Replay | Sweep, into: str | None, goes_on: str
) -> None:
    made = plan(TRACE, ("a", "b"), run="r", seed=5, scheme=Scheme(pairs=2))
    own = extend(study, endpoints="e")
    playing = Playing(
        study=own,
        plan=made,
        endpoints=(),
        database=Path("agentload.duckdb"),
        trace_hash="h",
        into=into,
    )
    assert playing.goes_on == f"agentload {goes_on}"
    elsewhere = replace(playing, database=Path("d.duckdb")).goes_on
    assert "--db d.duckdb" in elsewhere
    assert build_study(*split(shlex.split(elsewhere)[1:])) == own


def test_an_evaluation_is_gone_on_with_and_one_that_joined_a_run_is_typed_again() -> None:
    asked = catalog_questions(
        asking(tasks=["needle"], contexts=[4096], depths=1, items=1, repetitions=1, seed=0)
    )
    study = Ask(servers=Live(endpoints="e"), tasks=("needle",))
    made = Eval(
        run="r",
        study=study,
        asked=asked,
        endpoints=(),
        database=Path("agentload.duckdb"),
        notes=Notes(),
    )
    assert made.goes_on_by == "agentload eval --endpoints e --tasks needle --resume r"
    assert (
        replace(made, mode="join").goes_on_by
        == "agentload eval --endpoints e --tasks needle --into r"
    )
