from __future__ import annotations

from pathlib import Path

import pytest

from agentload.endpoints.endpoint import Endpoint, check_environment, checked_url, masked, socket_of, without_credentials, without_user
from agentload.errors import EndpointError
from agentload.live.target import address
from agentload.run.record import again, shown
from agentload.study.document import json_text
from agentload.study.kinds import Replay
from agentload.study.parts import Live, TraceRef


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:secret@host:8000/v1", "http://***@host:8000/v1"),
        ("a=https://me:se%40cret@h/v1,b=http://other/v1", "a=https://***@h/v1,b=http://other/v1"),
        ("http://me:se@cr@et@host:8000/v1, http://h/me@host", "http://***@host:8000/v1, http://h/me@host"),
        ("cannot reach http://token@h/v1/models: refused", "cannot reach http://***@h/v1/models: refused"),
        ("http+unix://%2Frun%2Fs.sock/v1", "http+unix://%2Frun%2Fs.sock/v1"),
    ],
)
def test_a_password_in_a_url_is_never_shown(text: str, shown: str) -> None:
    assert without_user(text) == shown
    assert without_credentials(text) == shown
    assert masked(f"{text} key-of-ours", ("key-of-ours",)) == f"{shown} ***"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no metrics at http://me:secret@h/metrics?token=secret: 403", "no metrics at http://***@h/metrics?*** 403"),
        ("--production 'http://h:9090/federate?match[]=x&token=secret' --db a", "--production 'http://h:9090/federate?***' --db a"),
        ("is it up? try: curl http://h/v1", "is it up? try: curl http://h/v1"),
    ],
)
def test_what_a_url_asks_for_is_not_shown_either_as_it_may_be_a_token(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


def test_the_stored_command_and_study_have_no_password() -> None:
    study = Replay(traces=(TraceRef(path="rag"),), servers=Live(endpoints="a=http://me:secret@h/v1"))
    assert again(study, Path("agentload.duckdb")) == "agentload replay rag --endpoints 'a=http://***@h/v1'"
    assert "secret" not in json_text(shown(study))
    assert Endpoint(name="a", url="http://me:secret@h/v1?token=secret").shown_url == "http://***@h/v1?***"


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
        Endpoint(name="b", url="http://y/v1", key_env="THERE", header_env={"X-Key": "AWAY", "X-Team": "GONE"}),
    ]
    with pytest.raises(EndpointError) as caught:
        check_environment(arms)
    said = "a, b: environment variable GONE is not set; b: environment variable AWAY is not set"
    assert (caught.value.message, caught.value.hint) == (said, "export GONE=… AWAY=…")
    monkeypatch.setenv("GONE", "x")
    monkeypatch.setenv("AWAY", "x")
    check_environment(arms)
