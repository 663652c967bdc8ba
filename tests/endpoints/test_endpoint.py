from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from agentload.endpoints.endpoint import (
    Endpoint,
    beginnings,
    check_environment,
    checked_url,
    mask,
    on,
    socket_of,
    without_credentials,
    without_user,
)
from agentload.endpoints.read import read_file
from agentload.errors import EndpointError
from agentload.layout.plan import Scheme, plan
from agentload.live.target import address
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.record import again, without_secrets
from agentload.run.stages import Stage, is_exchanged, stages
from agentload.study.document import json_text
from agentload.study.kinds import Replay
from agentload.study.parts import Live, TraceRef


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:secret@host:8000/v1", "http://***@host:8000/v1"),
        ("a=https://me:se%40cret@h/v1,b=http://other/v1", "a=https://***@h/v1,b=http://other/v1"),
        (
            "http://me:se@cr@et@host:8000/v1, http://h/me@host",
            "http://***@host:8000/v1, http://h/me@host",
        ),
        (
            "cannot reach http://token@h/v1/models: refused",
            "cannot reach http://***@h/v1/models: refused",
        ),
        ("http+unix://%2Frun%2Fs.sock/v1", "http+unix://%2Frun%2Fs.sock/v1"),
    ],
)
def test_a_password_in_a_url_is_never_shown(text: str, shown: str) -> None:
    assert without_user(text) == shown
    assert without_credentials(text) == shown
    assert mask(f"{text} key-of-ours", ("key-of-ours",)) == f"{shown} ***"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "no metrics at http://me:secret@h/metrics?token=secret: 403",
            "no metrics at http://***@h/metrics?*** 403",
        ),
        (
            "--production 'http://h:9090/federate?match[]=x&token=secret' --db a",
            "--production 'http://h:9090/federate?***' --db a",
        ),
        ("is it up? try: curl http://h/v1", "is it up? try: curl http://h/v1"),
    ],
)
def test_what_a_url_asks_for_is_not_shown_either_as_it_may_be_a_token(
    text: str, shown: str
) -> None:
    assert without_credentials(text) == shown


def test_the_stored_command_and_study_have_no_password() -> None:
    study = Replay(
        traces=(TraceRef(path="rag"),), servers=Live(endpoints="a=http://me:secret@h/v1")
    )
    assert (
        again(study, Path("agentload.duckdb"))
        == "agentload replay rag --endpoints 'a=http://***@h/v1'"
    )
    assert "secret" not in json_text(without_secrets(study))
    assert (
        Endpoint(name="a", url="http://me:secret@h/v1?token=secret").shown_url
        == "http://***@h/v1?***"
    )


def test_a_url_of_another_scheme_is_refused_without_its_password() -> None:
    with pytest.raises(EndpointError) as caught:
        checked_url("ftp://me:secret@h", "a")
    assert caught.value.message == "a: 'ftp://***@h' is not an http(s) URL"


@pytest.mark.parametrize("url", ["http://me:secret@h:port/v1", "ftp://me:secret@h/v1"])
def test_a_url_that_is_none_is_told_without_its_password(url: str) -> None:
    with pytest.raises(EndpointError, match=r"://\*\*\*@h") as caught:
        address(url)
    assert "secret" not in caught.value.message


def test_a_unix_socket_is_named_by_its_url() -> None:
    assert socket_of("http+unix://%2Frun%2Fvllm.sock/v1") == "/run/vllm.sock"
    assert socket_of("http://h/v1") is None


def test_all_variables_that_are_not_set_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERE", "x")
    arms = [
        Endpoint(name="a", url="http://x/v1", key_env="GONE"),
        Endpoint(
            name="b",
            url="http://y/v1",
            key_env="THERE",
            header_env={"X-Key": "AWAY", "X-Team": "GONE"},
        ),
    ]
    with pytest.raises(EndpointError) as caught:
        check_environment(arms)
    said = "a, b: environment variable GONE is not set; b: environment variable AWAY is not set"
    assert (caught.value.message, caught.value.hint) == (said, "export GONE=… AWAY=…")
    monkeypatch.setenv("GONE", "x")
    monkeypatch.setenv("AWAY", "x")
    check_environment(arms)


def arm(name: str, url: str = "", **said: object) -> Endpoint:
    # fields as the arms file has them
    return replace(Endpoint(name=name, url=url), **said)  # type: ignore[arg-type]


def read(folder: Path, text: str) -> tuple[Endpoint, ...]:
    (folder / "arms.yaml").write_text(text)
    return read_file(folder / "arms.yaml")


TWO = """
model: M
arms:
  bf16: {machines: {m1: http://a:8000/v1, m2: {url: http://b:8000/v1, log: b.log}}, expect: {kv_cache_dtype: auto}}
  fp8: {machines: {m1: http://a:8001/v1, m2: http://b:8001/v1}}
"""


def test_an_arm_may_have_a_server_on_each_machine(tmp_path: Path) -> None:
    bf16, fp8 = read(tmp_path, TWO)
    assert [(place.machine, place.url, place.log, place.model) for place in bf16.places] == [
        ("m1", "http://a:8000/v1", None, "M"),
        ("m2", "http://b:8000/v1", "b.log", "M"),
    ]
    assert (bf16.url, bf16.machine) == ("http://a:8000/v1", "m1")
    assert beginnings((bf16, fp8)) == ("m1", "m2")
    assert on(fp8, "m2", (bf16, fp8)).url == "http://b:8001/v1"


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("{machines: {m1: http://a/v1}}", "two names or more"),
        ("{machines: [http://a/v1, http://b/v1]}", "two names or more"),
        (
            "{url: http://a/v1, machines: {m1: http://a/v1, m2: http://b/v1}}",
            "both 'machines' and 'url'",
        ),
        ("{machines: {m1: http://a/v1, m2: ftp://b/v1}}", "machines.m2"),
    ],
)
def test_machines_that_make_no_sense_are_refused(tmp_path: Path, entry: str, says: str) -> None:
    with pytest.raises(EndpointError, match=says):
        read(tmp_path, f"arms: {{a: {entry}}}")


def test_arms_on_other_machines_than_the_rest_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EndpointError, match="not every arm"):
        beginnings((*read(tmp_path, TWO), arm("other", "http://c/v1")))


@pytest.mark.parametrize(
    ("arms", "names"),
    [
        ((arm("a", "http://h1:8000/v1"), arm("b", "http://h2:8000/v1")), ("h1", "h2")),
        ((arm("a", "http://h1:8000/v1"), arm("b", "http://h1:8001/v1")), ("h1:8000", "h1:8001")),
        (
            (arm("a", "http://h1:8000/v1", machine="left"), arm("b", "http://h2:8000/v1")),
            ("left", "h2"),
        ),
        (
            (
                arm("a", "http://127.0.0.1:5/v1", profile="p/a"),
                arm("b", "http://127.0.0.1:6/v1", profile="p/b"),
            ),
            ("m1", "m2"),
        ),
    ],
)
def test_machines_that_nobody_named_go_by_their_address(
    arms: tuple[Endpoint, ...], names: tuple[str, ...]
) -> None:
    assert beginnings(arms) == names


def test_two_servers_of_one_machine_keep_their_own_address() -> None:
    arms = (
        arm("bf16", "http://h1:8000/v1", machine="box"),
        arm("fp8", "http://h1:8001/v1", machine="box"),
    )
    assert beginnings(arms) == ("box", "box")
    assert tuple(on(each, "box", arms) for each in arms) == arms


def halves(arms: tuple[Endpoint, ...]) -> tuple[Stage, ...]:
    turns = (Turn(add=(Segment(role="user", tokens=3, key="u"),), output=1),)
    sessions = tuple(
        Session(session=f"s{i}", workload="w", start_s=0.0, turns=turns) for i in range(2)
    )
    names, machines = [each.name for each in arms], beginnings(arms)
    trace = Trace(header=Header(name="t"), sessions=sessions)
    return stages(
        plan(
            trace,
            names,
            run="r",
            scheme=Scheme(pairs=2, design="parallel", machines=machines, swap=True),
        ),
        arms,
    )


def test_an_exchanged_arm_keeps_its_configuration_and_takes_the_place() -> None:
    bf16 = arm(
        "bf16",
        "http://h1:8000/v1",
        metrics=("http://h1:9/metrics",),
        expect={"kv_cache_dtype": "auto"},
        gpu="old card",
    )
    fp8 = arm("fp8", "http://h2:8000/v1", expect={"kv_cache_dtype": "fp8"}, gpu="new card")
    before, after = halves((bf16, fp8))
    assert (
        [each.url for each in before.endpoints],
        dict(before.taken_from),
        set(before.pairs),
    ) == ([bf16.url, fp8.url], {}, {0})
    assert (dict(after.taken_from), set(after.pairs)) == ({"bf16": "fp8", "fp8": "bf16"}, {1})
    moved = after.endpoints[0]
    assert (moved.name, moved.url, moved.machine, moved.gpu, moved.metrics) == (
        "bf16",
        fp8.url,
        "h2",
        "new card",
        (),
    )
    assert moved.expect == {"kv_cache_dtype": "auto"}


def test_a_key_that_goes_with_the_server_is_said_for_each_address(tmp_path: Path) -> None:
    both = (
        "{{machines: {{m1: {{url: http://h1/v1, key_env: {key}}}, m2: {{url: http://h2/v1, "
        "key_env: {key}}}}}}}"
    )
    arms = read(
        tmp_path, f"arms: {{bf16: {both.format(key='ONE')}, fp8: {both.format(key='TWO')}}}"
    )
    before, after = (
        [(each.name, each.url, each.key_env) for each in half.endpoints] for half in halves(arms)
    )
    assert before == [("bf16", "http://h1/v1", "ONE"), ("fp8", "http://h2/v1", "TWO")]
    assert after == [("bf16", "http://h2/v1", "ONE"), ("fp8", "http://h1/v1", "TWO")]
    assert halves(arms)[1].taken_from == {"bf16": "fp8", "fp8": "bf16"}


def test_whoever_goes_to_another_address_shows_what_that_asks_for_and_asks_as_before() -> None:
    """What a new field of an arm belongs to is decided here."""
    of_the_address: dict[str, Any] = {
        "url": "http://h2:8000/v1",
        "key_env": "KEY_OF_H2",
        "key_command": "key of h2",
        "headers": {"x-tenant": "h2"},
        "header_env": {"x-gate": "GATE_OF_H2"},
        "ca_file": "h2.pem",
        "client_certificate": "us-at-h2.pem",
        "client_key": "us-at-h2.key",
        "proxy": "http://p2",
        "proxy_env": "PROXY_OF_H2",
        "idle_s": 2.0,
        "expect_bytes": 2,
        "replica_headers": ("x-h2",),
        "metrics": ("http://h2:9/metrics",),
        "log": "h2.log",
        "gpu": "card of h2",
        "gpu_ids": ("2",),
        "gpu_metrics": "http://h2:8/metrics",
        "price_per_hour": 2.0,
    }
    first, second = (
        arm("a", "http://h1:8000/v1", machine="m1"),
        arm("b", **of_the_address, machine="m2"),
    )
    moved, kept = on(first, "m2", (first, second)), on(second, "m1", (first, second))
    assert moved == replace(second, name="a")
    assert kept == replace(first, name="b")
    of_the_arm = {
        "name",
        "model",
        "aliases",
        "extra_body",
        "force_lengths",
        "counting",
        "connections",
        "tokenizer",
        "config",
        "profile",
        "expect",
        "answer_s",
    }
    of_the_arm |= {"gpus", "tensor_parallel", "data_parallel", "launch"}
    assert {each.name for each in fields(Endpoint)} == of_the_address.keys() | of_the_arm | {
        "machine",
        "places",
        "replicas",
    }
    settled = {name: object() for name in of_the_arm - {"name"}}
    assert {
        name: getattr(on(arm("a", "http://h1/v1", **settled), "m2", (first, second)), name)
        for name in settled
    } == settled


BF16, FP8 = (
    {"kv_cache_dtype": "bfloat16", "process_start_s": 1.0},
    {"kv_cache_dtype": "fp8", "process_start_s": 2.0},
)


@pytest.mark.parametrize(
    ("arm_said", "there", "now", "is_done"),
    [
        (BF16, FP8, FP8, False),  # nobody did anything
        (BF16, FP8, BF16 | {"process_start_s": 9.0}, True),
        (BF16, FP8, FP8 | {"process_start_s": 9.0}, False),  # started again, as it was
        (
            BF16,
            BF16,
            BF16 | {"process_start_s": 1.0},
            False,
        ),  # two equal servers: only a new start tells
        (BF16, BF16, BF16 | {"process_start_s": 9.0}, True),
        (
            BF16,
            FP8,
            {"kv_cache_dtype": "bfloat16"},
            True,
        ),  # it does not say when it was started, but what it is
    ],
)
def test_a_server_is_exchanged_when_it_is_another_process_of_the_right_kind(
    arm_said: dict[str, object], there: dict[str, object], now: dict[str, object], *, is_done: bool
) -> None:
    assert is_exchanged(arm_said, there, now) == is_done


def test_an_exchange_that_nothing_shows_is_not_guessed_at() -> None:
    with pytest.raises(EndpointError, match="cannot be seen"):
        is_exchanged(
            {"kv_cache_dtype": "auto"}, {"kv_cache_dtype": "auto"}, {"kv_cache_dtype": "auto"}
        )
