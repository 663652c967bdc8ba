"""What an entry of a jobs file means: every field of it,
what is meant where it is silent, and what cannot be meant.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.policy import Policy
from agentload.errors import AgentloadError
from agentload.model.plan import Arrivals, ClosedLoop, Load, OpenLoop, Recorded
from agentload.study.kinds import Replay
from agentload.study.parts import Live, TraceRef
from agentload.study.parts import Load as StudiedLoad
from agentload.verdict.policy import Setting
from agentload.watch.job import Job, JobBudget, Notify, in_fields, job
from agentload.watch.schedule import Schedule

LEAST: dict[str, object] = {
    "traces": ["demo-rag"],
    "endpoints": "a=http://h:1/v1",
    "schedule": {"cron": "0 3 * * *"},
}


def test_an_entry_that_says_the_least_means_this(tmp_path: Path) -> None:
    assert job("nightly", LEAST, at=tmp_path / "jobs.yaml") == Job(
        name="nightly",
        study=Replay(
            traces=(TraceRef(path="demo-rag"),),
            servers=Live(
                endpoints="a=http://h:1/v1",
                model=None,
                api_key_env=None,
                force=True,
                logs=str(tmp_path / "logs"),
            ),
            pairs=6,
            load=StudiedLoad(),
            seed=0,
            on_dead="stop",
        ),
        schedule=Schedule(cron="0 3 * * *", time_zone="UTC", stagger_s=0.0),
        budget=JobBudget(calls=None, minutes=60.0, usd=None),
        setting=Setting(),
        metrics=("turn_ms",),
        noise=0.015,
        reference=None,
        control=True,
        keep_runs=None,
        notify=Notify(junit=None, webhook_env=None, always=False),
        spec=json.dumps(LEAST, separators=(",", ":")),
    )


def test_an_entry_that_says_all_means_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").touch()
    entry: dict[str, object] = {
        "traces": ["mine.jsonl", "demo-chat"],
        "endpoints": "arms.yaml",
        "schedule": {"cron": "30 2 * * 1-5", "time_zone": "Europe/Berlin", "stagger_s": 60.0},
        "model": "m",
        "api_key_env": "KEY",
        "pairs": 4,
        "load": {
            "sessions": 8,
            "max_in_flight": 4,
            "wait_cap_s": {"user": 5.0},
            "wait_scale": {"tool": 0.5},
        },
        "seed": 7,
        "budget": {"calls": 900, "minutes": 30.0, "usd": 2.5},
        "policy": {"min_change": 0.05},
        "metrics": ["ttft_ms", "tpot_ms"],
        "noise": 0.02,
        "reference": "r1",
        "control": False,
        "retention": {"runs": 9},
        "notify": {"junit": "j.xml", "webhook_env": "HOOK", "always": True},
    }
    assert job("nightly", entry, at=tmp_path / "jobs.yaml") == Job(
        name="nightly",
        study=Replay(
            traces=(TraceRef(path=str(tmp_path / "mine.jsonl")), TraceRef(path="demo-chat")),
            servers=Live(
                endpoints=str(tmp_path / "arms.yaml"),
                model="m",
                api_key_env="KEY",
                force=True,
                logs=str(tmp_path / "logs"),
            ),
            pairs=4,
            load=StudiedLoad(
                sessions=8, max_in_flight=4, wait_cap_s={"user": 5.0}, wait_scale={"tool": 0.5}
            ),
            seed=7,
            on_dead="stop",
        ),
        schedule=Schedule(cron="30 2 * * 1-5", time_zone="Europe/Berlin", stagger_s=60.0),
        budget=JobBudget(calls=900, minutes=30.0, usd=2.5),
        setting=Setting(
            policy=Policy(min_change=0.05), name=f"{tmp_path / 'jobs.yaml'}: job 'nightly': policy"
        ),
        metrics=("ttft_ms", "tpot_ms"),
        noise=0.02,
        reference="r1",
        control=False,
        keep_runs=9,
        notify=Notify(junit=tmp_path / "j.xml", webhook_env="HOOK", always=True),
        spec=json.dumps(entry, separators=(",", ":")),
    )


@pytest.mark.parametrize(
    ("load", "arrivals"),
    [
        ({}, Recorded(speed=1.0)),
        ({"speed": 2.0}, Recorded(speed=2.0)),
        ({"sessions": 3}, ClosedLoop(sessions=3)),
        ({"rate_per_s": 0.5}, OpenLoop(rate_per_s=0.5)),
    ],
)
def test_a_load_is_recorded_closed_or_open(
    tmp_path: Path, load: dict[str, object], arrivals: Arrivals
) -> None:
    assert job(
        "nightly", LEAST | {"load": load}, at=tmp_path / "jobs.yaml"
    ).study.load.planned() == Load(arrivals=arrivals)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"pairs": 2}, "pairs must be >= 3: fewer have no interval"),
        ({"pairs": 3}, None),
        ({"swap": True}, "`swap` exchanges the arms alone: set control: false"),
        ({"swap": True, "control": False}, None),
        ({"traces": []}, "traces names at least one"),
        ({"metrics": []}, "metrics names at least one, each once"),
        ({"metrics": ["ttft_ms", "ttft_ms"]}, "metrics names at least one, each once"),
        ({"budget": {"calls": 0}}, "budget.calls must be >= 1"),
        ({"budget": {"calls": 1}}, None),
        ({"budget": {"minutes": 0}}, "budget.minutes must be positive"),
        ({"budget": {"minutes": 0.5}}, None),
        ({"budget": {"usd": 0}}, "budget.usd must be positive"),
        ({"budget": {"usd": 0.1}}, None),
        ({"noise": 0}, "noise must be positive"),
        ({"retention": {"runs": 1}}, "retention.runs must be >= 2: the reference and the latest"),
        ({"retention": {"runs": 2}}, None),
        ({"load": {"speed": 0}}, "load.speed must be positive, got 0"),
        ({"load": {"rate_per_s": 0}}, "load.rate_per_s must be positive, got 0"),
        ({"load": {"sessions": 0}}, "load.sessions must be >= 1, got 0"),
        ({"load": {"max_in_flight": 0}}, "load.max_in_flight must be >= 1, got 0"),
        ({"load": {"sessions": 1, "max_in_flight": 1}}, None),
        (
            {"load": {"wait_scale": {"tool": -0.1}}},
            "load.wait_scale must be zero or more, got -0.1",
        ),
        (
            {"load": {"wait_cap_s": {"tool": -0.1}}},
            "load.wait_cap_s must be zero or more, got -0.1",
        ),
        ({"load": {"wait_scale": {"tool": 0}, "wait_cap_s": {"tool": 0}}}, None),
    ],
)
def test_a_number_that_cannot_be_meant_is_refused_at_its_bound(
    tmp_path: Path, entry: dict[str, object], says: str | None
) -> None:
    said = None
    try:
        job("nightly", LEAST | entry, at=tmp_path / "jobs.yaml")
    except AgentloadError as error:
        said = error.message
    assert said == (says and f"{tmp_path / 'jobs.yaml'}: job 'nightly': {says}")


def test_every_path_of_a_job_is_one_beside_the_jobs_file(tmp_path: Path) -> None:
    made = job(
        "nightly",
        LEAST | {"traces": ["gone.jsonl"], "tokenizer": "t/tokenizer.json", "logs": "out"},
        at=tmp_path / "jobs.yaml",
    )
    assert made.traces == (str(tmp_path / "gone.jsonl"),)
    assert made.study.tokenizer == str(tmp_path / "t" / "tokenizer.json")
    assert made.study.servers == Live(
        endpoints="a=http://h:1/v1", force=True, logs=str(tmp_path / "out")
    )


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (
            {"on_dead": "wait"},
            "on_dead is stop: what follows a server's death is the next execution",
        ),
        (
            {"on_dead": "skip"},
            "on_dead is stop: what follows a server's death is the next execution",
        ),
        ({"force": False}, "force is true: a job measures a server that has changed, and says so"),
        ({"force": True}, None),
        ({"servers": "foo"}, "servers: Expected `object`, got `str`"),
        ({"servers": {"model": "m"}, "on_dead": "stop"}, None),
    ],
)
def test_what_a_job_would_not_do_is_refused(
    tmp_path: Path, entry: dict[str, object], says: str | None
) -> None:
    said = None
    try:
        job("nightly", LEAST | entry, at=tmp_path / "jobs.yaml")
    except AgentloadError as error:
        said = error.message
    assert said == (says and f"{tmp_path / 'jobs.yaml'}: job 'nightly': {says}")


@pytest.mark.parametrize(
    ("load", "says"),
    [
        (
            {"sessions": 1, "rate_per_s": 1},
            "load.sessions (closed loop) and load.rate_per_s (open loop) exclude each other",
        ),
        ({"ramp_s": 5.0}, "load.ramp_s needs a load to rise to"),
    ],
)
def test_a_load_that_contradicts_itself_is_refused(
    tmp_path: Path, load: dict[str, object], says: str
) -> None:
    with pytest.raises(AgentloadError) as caught:
        job("nightly", LEAST | {"load": load}, at=tmp_path / "jobs.yaml")
    assert caught.value.message.endswith(says)


@pytest.mark.parametrize(
    ("name", "is_taken"),
    [
        ("a", True),
        ("nightly-rag-2", True),
        ("a" * 52, True),
        ("a" * 53, False),
        ("-a", False),
        ("a-", False),
        ("A", False),
        ("", False),
    ],
)
def test_a_name_is_one_that_files_and_schedulers_take(
    tmp_path: Path, name: str, *, is_taken: bool
) -> None:
    try:
        taken = job(name, LEAST, at=tmp_path / "jobs.yaml").name
    except AgentloadError:
        taken = None
    assert taken == (name if is_taken else None)


def test_a_control_doubles_what_an_execution_may_take(tmp_path: Path) -> None:
    made = job("nightly", LEAST, at=tmp_path / "jobs.yaml")
    assert (made.times(is_controlled=True), made.times(is_controlled=False), made.longest_s) == (
        2,
        1,
        7200.0,
    )
    assert job("nightly", LEAST | {"control": False}, at=tmp_path / "jobs.yaml").longest_s == 3600.0


@pytest.mark.parametrize(
    ("entry", "hint"),
    [
        ({"sessions": 2}, "sessions is a field of a section: load: {sessions: …}"),
        ({"temperature": 0}, "temperature is a field of a section: request: {temperature: …}"),
        ({"shedule": 1}, "agentload watch --help shows a jobs file"),
    ],
)
def test_a_field_that_lies_outside_its_section_is_told_where_it_belongs(
    tmp_path: Path, entry: dict[str, object], hint: str
) -> None:
    with pytest.raises(AgentloadError, match="unknown field") as error:
        job("nightly", LEAST | entry, at=tmp_path / "jobs.yaml")
    assert error.value.hint == hint


@pytest.mark.parametrize(
    ("said", "written"),
    [
        (
            "--wait-cap user=300 shortens the whole run to about 50 min",
            "load: {wait_cap_s: {user: 300}} shortens the whole run to about 50 min",
        ),
        ("shorter with --sessions 16 or --max-calls", "shorter with load: {sessions: 16} or load.max_calls"),
        ("--pairs 3, or a larger trace", "pairs: 3, or a larger trace"),
        ("--rate 0.5 --burst 5x10/60", "load: {rate_per_s: 0.5, burst: 5x10/60}"),
        ("--rate 0.5 --ramp 60, or --rate inf", "load: {rate_per_s: 0.5, ramp_s: 60}, or load: {rate_per_s: inf}"),
        ("--wait-cap user=5,tool=2 --pairs 3", "load: {wait_cap_s: {user: 5, tool: 2}}, pairs: 3"),
        ("leave out --swap and --launch", "leave out swap and launch"),
        ("a shorter --duration", "a shorter load.duration_s"),
        ("--restarts 1 to 12 needs servers", "restarts 1 to 12 needs servers"),
        ("vllm serve MODEL --port 8000", "vllm serve MODEL --port 8000"),
    ],
)  # fmt: skip
def test_options_of_a_study_are_said_as_fields_of_a_jobs_file(said: str, written: str) -> None:
    assert in_fields(said) == written
