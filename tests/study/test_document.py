from __future__ import annotations

import pytest
from hypothesis import given

from agentload.errors import UsageError
from agentload.study.document import builtins, json_text, parse, yaml_text
from agentload.study.kinds import Ask, Replay, Study, Sweep
from agentload.study.parts import Burst, Live, Load, Slo, TraceRef
from tests.study.studies import studies

SIMULATED = "study: 1\nkind: replay\ntraces: rag\n"
ASKED = "study: 1\nkind: ask\nservers: {endpoints: e}\n"
SWEPT = "study: 1\nkind: sweep\nservers: {endpoints: e}\n"
SEARCHED = "study: 1\nkind: search\ntraces: rag\n"
HEAD = "study: 1\nkind: replay\ntraces: rag\nservers: {endpoints: e}\n"


@given(studies())
def test_a_study_that_is_written_is_read_again(study: Study) -> None:
    assert parse(yaml_text(study), at="a.yaml") == study
    assert parse(json_text(study), at="a.json") == study


def test_people_write_quantities_as_they_type_them() -> None:
    load = (
        "{rate_per_s: 2, ramp_s: 5m, burst: 5x10/60, wait_cap_s: {user: 2m}, max_calls: 2k, "
        "cancel_share: 3%}"
    )
    text = f"{HEAD}pairs: 12\nload: {load}\nslo: {{ttft_ms: 2s, tpot_ms: 50}}\n"
    assert parse(text, at="a.yaml") == Replay(
        traces=(TraceRef(path="rag"),),
        servers=Live(endpoints="e"),
        pairs=12,
        load=Load(
            rate_per_s=2.0,
            ramp_s=300.0,
            burst=Burst(factor=5.0, lasts_s=10.0, every_s=60.0),
            wait_cap_s={"user": 120.0},
            max_calls=2000,
            cancel_share=0.03,
        ),
        slo=Slo(ttft_ms=2000.0, tpot_ms=50.0),
    )
    assert parse(
        f"{HEAD}load: {{rate_per_s: 2, burst: {{factor: 5, lasts_s: 10s, every_s: 1m}}}}",
        at="a.yaml",
    ) == Replay(
        traces=(TraceRef(path="rag"),),
        servers=Live(endpoints="e"),
        load=Load(rate_per_s=2.0, burst=Burst(factor=5.0, lasts_s=10.0, every_s=60.0)),
    )


@pytest.mark.parametrize(
    ("contexts", "tokens"),
    [
        ("[8k, 4096, 8k]", (4096, 8192)),
        ("[4k..16k, 100k]", (4096, 8192, 16384, 102400)),
        ("[5000, 300]", (300, 5000)),
        ("4k..16k", (4096, 8192, 16384)),
        ("8k", (8192,)),
        ("2048", (2048,)),
    ],
)
def test_lengths_are_read_from_text_a_number_or_a_list_and_ordered(
    contexts: str, tokens: tuple[int, ...]
) -> None:
    for kind in ("sweep", "ask"):
        made = parse(
            f"study: 1\nkind: {kind}\nservers: {{endpoints: e}}\ncontexts: {contexts}\n",
            at="a.yaml",
        )
        assert isinstance(made, Sweep | Ask)
        assert made.contexts == tokens


def test_all_defaults_are_written_out() -> None:
    text = yaml_text(Replay(traces=(TraceRef(path="rag"),), servers=Live(endpoints="e")))
    assert "pairs: 6\n" in text
    assert "  first_timeout_s: 600.0\n" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: replay", "a.yaml: 'study' must be 1, got None"),
        ("study: 2\nkind: replay", "a.yaml: 'study' must be 1, got 2"),
        ("study: 1\nkind: x", "a.yaml: no kind of study 'x'"),
        ("[1", "a.yaml:1: not YAML: "),
        ("3", "a.yaml: a study is a mapping of fields, got int"),
        (HEAD + "pairz: 3", "a.yaml: Object contains unknown field `pairz`"),
        (HEAD + "load: {bogus: 3}", "a.yaml: load: Object contains unknown field `bogus`"),
        (HEAD + "pairs: 0", "a.yaml: pairs must be >= 1, got 0"),
        (HEAD + "pairs: 1" + 40 * "0", "a.yaml: pairs is a whole number of 64 bits, got 1000"),
        (HEAD + "pairs: [3]", "a.yaml: pairs: Expected `int`, got `array`"),
        (
            HEAD + "load: {ramp_s: 5x}",
            "a.yaml: load.ramp_s takes a time such as 90, 90s or 1.5m, got '5x'",
        ),
        (
            HEAD + "load: {sessions: 1, rate_per_s: 3}",
            "a.yaml: load.sessions (closed loop) and load.rate_per_s (open loop) exclude each other",
        ),
        (HEAD + "design: zz", "a.yaml: design is interleaved, parallel or sequential, got 'zz'"),
        (
            HEAD + "load: {wait_cap_s: {lunch: 3}}",
            "a.yaml: load.wait_cap_s: Invalid enum value 'lunch'",
        ),
        (
            HEAD + "load: {wait_scale: {user: -0.1}}",
            "a.yaml: load.wait_scale must be zero or more, got -0.1",
        ),
        (
            HEAD + "load: {wait_cap_s: {user: -3s}}",
            "a.yaml: load.wait_cap_s must be zero or more, got -3",
        ),
        (
            HEAD + "load: {rate_per_s: 1, burst: {factor: 0, lasts_s: 1, every_s: 2}}",
            "a.yaml: load.burst: factor must be positive, got 0",
        ),
        (
            HEAD + "load: {rate_per_s: 1, burst: {factor: 2, lasts_s: 1, every_s: 0}}",
            "a.yaml: load.burst: every_s must be positive, got 0",
        ),
        (
            HEAD + "load: {rate_per_s: 1, burst: {factor: 2, lasts_s: 2s, every_s: 2}}",
            "a.yaml: load.burst is FACTORxSECONDS/EVERY with fewer seconds than every, got '2x2/2'",
        ),
        (
            HEAD + "load: {rate_per_s: 1, burst: {lasts_s: 5x}}",
            "a.yaml: load.burst.lasts_s takes a time such as 90, 90s or 1.5m, got '5x'",
        ),
        (HEAD + "slo: {ttft_ms: .nan}", "a.yaml: slo: ttft_ms must be finite, got nan"),
        (HEAD + "slo: {tpot_ms: 0}", "a.yaml: slo: tpot_ms must be positive, got 0"),
        (
            SIMULATED + "servers: {profile: p, machines: {m1: -1}}",
            "a.yaml: servers.machines must be positive, got -1",
        ),
        (
            SIMULATED + "servers: {profile: p, machines: {m1: .nan}}",
            "a.yaml: servers.machines must be finite, got nan",
        ),
        (SIMULATED + "servers: {profile: p}\ntraces: []", "a.yaml: traces names at least one"),
        (ASKED + "tasks: []", "a.yaml: tasks names at least one"),
        (ASKED + "contexts: []", "a.yaml: contexts: '' is no length of 1 to 16,777,216 tokens"),
        (
            ASKED + "contexts: [4k, 0]",
            "a.yaml: contexts: '0' is no length of 1 to 16,777,216 tokens",
        ),
        (
            ASKED + "contexts: [true]",
            "a.yaml: contexts: 'True' is no length of 1 to 16,777,216 tokens",
        ),
        (ASKED + "contexts: {a: 1}", "a.yaml: contexts: Expected `array`, got `object`"),
        (
            SWEPT + "contexts: [5, 3]",
            "a.yaml: contexts: '5' is no length of 64 to 16,777,216 tokens",
        ),
        (
            SEARCHED + "servers: {endpoints: e}\nfind: max-rate",
            "a.yaml: servers are searched for max-concurrency",
        ),
        (
            SEARCHED + "servers: {endpoints: e}\nload: {sessions: 3}",
            "a.yaml: a search decides by itself how many sessions run",
        ),
        (
            HEAD + "windows: 8\nblocks: 2",
            "a.yaml: blocks cuts the trace, and windows draws from all of it",
        ),
        (HEAD + "windows: 8\nload: {sessions: 2, ramp_s: 5}", "a.yaml: windows begin at full load"),
        (HEAD + "benchmark: agentx", "a.yaml: benchmark needs its slots"),
        (
            HEAD + "benchmark: agentx\nload: {sessions: 2, ramp_s: 5}",
            "a.yaml: benchmark draws from all of the trace and begins at full load",
        ),
        (
            HEAD + "benchmark: agentx\nwindows: 8\nload: {sessions: 2}",
            "a.yaml: benchmark lays out its own windows",
        ),
        (HEAD + "windows: 8\ncapacity: 2", "a.yaml: capacity lays out its own windows"),
        (
            HEAD + "load: {wait_cap_s: {user: .inf}}",
            "a.yaml: load.wait_cap_s must be finite, got inf",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(text, at="a.yaml")
    assert error.value.message.startswith(message)
    assert error.value.hint


@pytest.mark.parametrize(
    "said",
    [
        "workers: 2\ntokenizer: t.json\non_dead: stop\nrequest: {temperature: 0.7}",
        "timeouts: {idle_timeout_s: 3}",
    ],
)
def test_what_means_nothing_to_a_profile_is_read_all_the_same(said: str) -> None:
    simulated = parse(SIMULATED + "servers: {profile: p}\n" + said, at="a.yaml")
    live = parse(HEAD + said, at="a.yaml")
    assert builtins(simulated) | {"servers": None} == builtins(live) | {"servers": None}
    assert parse(json_text(simulated), at="a.yaml") == simulated
