from __future__ import annotations

from pathlib import Path

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.read import Emulated, read
from agentload.errors import EndpointError

ARMS = """
model: shared
arms:
  bf16: {url: "http://127.0.0.1:1/v1"}
  fp8: {url: "http://127.0.0.1:2/v1/", model: own, key_env: FP8_KEY, headers: {X-Team: a}, expect: {kv_cache_dtype: fp8}}
"""


def test_inline_endpoints_are_names_and_urls() -> None:
    assert read("a=http://127.0.0.1:1/v1, b=https://host/v1/", model="M") == (
        Endpoint(name="a", url="http://127.0.0.1:1/v1", model="M"),
        Endpoint(name="b", url="https://host/v1", model="M"),
    )


def test_a_url_alone_gets_a_name() -> None:
    assert read("http://127.0.0.1:1/v1?x=1") == (Endpoint(name="arm1", url="http://127.0.0.1:1/v1?x=1"),)


def test_an_arms_file_gives_each_arm_the_shared_model_unless_it_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "arms.yaml").write_text(ARMS)
    bf16, fp8 = read(str(tmp_path / "arms.yaml"))  # type: ignore[misc]  # a file names endpoints
    assert (bf16.model, fp8.model, fp8.url) == ("shared", "own", "http://127.0.0.1:2/v1")
    assert (fp8.key_env, fp8.headers, fp8.expect) == ("FP8_KEY", {"X-Team": "a"}, {"kv_cache_dtype": "fp8"})


@pytest.mark.parametrize(
    ("text", "emulated"),
    [
        ("emulated:llama", Emulated(profile="llama", arms=())),
        ("emulated:llama/fp8", Emulated(profile="llama", arms=("fp8",))),
        ("emulated:llama/bf16+fp8", Emulated(profile="llama", arms=("bf16", "fp8"))),
    ],
)
def test_emulated_endpoints_name_a_profile_and_arms(text: str, emulated: Emulated) -> None:
    assert read(text) == emulated


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a=", "empty"),
        ("a=ftp://x/v1", "not an http"),
        ("a=http://x/v1,a=http://y/v1", "two endpoints are called 'a'"),
        ("nowhere.yaml", "no such file"),
    ],
)
def test_endpoints_that_cannot_be_read_say_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(EndpointError, match=says) as caught:
        read(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("arms: [", "not YAML"),
        ("model: m", "'arms' must map"),
        ("arms: {a: {model: m}}", "arms.a has no 'url'"),
        ("arms: {a: {url: 'http://x/v1', port: 1}}", "unknown field 'port'"),
        ("arms: {a: http}", "must be a mapping"),
    ],
)
def test_an_arms_file_that_cannot_be_read_names_the_place(tmp_path: Path, document: str, says: str) -> None:
    (tmp_path / "arms.yaml").write_text(document)
    with pytest.raises(EndpointError, match=says):
        read(str(tmp_path / "arms.yaml"))


def test_the_key_is_read_when_it_is_needed_and_missing_keys_name_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint(name="a", url="http://x/v1", key_env="SOME_KEY")
    with pytest.raises(EndpointError, match="SOME_KEY"):
        endpoint.request_headers()
    monkeypatch.setenv("SOME_KEY", "secret")
    assert endpoint.request_headers() == {"Authorization": "Bearer secret"}
    assert "secret" not in repr(endpoint)


def test_options_hold_for_inline_endpoints_and_win_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "arms.yaml").write_text(ARMS)
    for text in ("a=http://127.0.0.1:1/v1", str(tmp_path / "arms.yaml")):
        found = read(text, model="M", key_env="K", tokenizer="t.json")
        assert isinstance(found, tuple)
        assert {(each.model, each.key_env, each.tokenizer) for each in found} == {("M", "K", "t.json")}
