from __future__ import annotations

from pathlib import Path

import pytest

from agentload.endpoints.arms_file import read_file
from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.errors import EndpointError

FULL = """
model: M
gpu: NVIDIA-H100-80GB-HBM3
price_per_hour: 2.5
arms:
  bf16:
    url: http://127.0.0.1:8000/v1/
    metrics: [http://a:8000/metrics, http://b:8000/metrics]
    key_command: cat /run/token
    tensor_parallel: 2
    gpus: 2
    launch: vllm serve M --port 8000
  fp8:
    url: http://127.0.0.1:8001/v1
    model: N
    launch: {command: [vllm, serve, N], env: {CUDA_VISIBLE_DEVICES: 1}}
    expect: {kv_cache_dtype: fp8, skip_layers: [sliding_window]}
"""


def test_an_arms_file_says_everything_about_its_arms(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(FULL)
    assert read_file(tmp_path / "e.yaml") == (
        Endpoint(
            name="bf16",
            url="http://127.0.0.1:8000/v1",
            model="M",
            metrics=("http://a:8000/metrics", "http://b:8000/metrics"),
            key_command="cat /run/token",
            gpu="NVIDIA-H100-80GB-HBM3",
            gpus=2,
            tensor_parallel=2,
            price_per_hour=2.5,
            launch=Launch(command=("vllm", "serve", "M", "--port", "8000")),
        ),
        Endpoint(
            name="fp8",
            url="http://127.0.0.1:8001/v1",
            model="N",
            gpu="NVIDIA-H100-80GB-HBM3",
            price_per_hour=2.5,
            launch=Launch(command=("vllm", "serve", "N"), env={"CUDA_VISIBLE_DEVICES": "1"}),
            expect={"kv_cache_dtype": "fp8", "skip_layers": ["sliding_window"]},
        ),
    )


def test_the_model_of_the_command_line_wins(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(FULL)
    assert {arm.model for arm in read_file(tmp_path / "e.yaml", model="O")} == {"O"}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ("expect: {dtype: fp8}", "unknown fact 'dtype'"),
        ("gpus: 0", "at least 1, got 0"),
        ("price_per_hour: cheap", "must be a number, got 'cheap'"),
        ("price_per_hour: .nan", "must be a number, got nan"),
        ("price_per_hour: .inf", "must be a number, got inf"),
        ("headers: {Authorization: Bearer abcdefghij}", "headers.Authorization holds a key"),
        ("headers: {X-Key: sk-abcdefghijkl}", "headers.X-Key holds a key"),
        ("headers: {Cookie: abcdefghijkl}", "headers.Cookie holds a key"),
        ("proxy: http://me:abcdefghijkl@proxy:3128", "proxy holds a password"),
        ("launch: vllm serve M --api-key sk-abcdefghijkl", "launch holds a key"),
        ("launch: vllm serve M --api-key abcdefghijkl", "launch holds a key"),
        ("launch: {command: vllm serve M, env: {VLLM_API_KEY: abcdefghijkl}}", "launch.env.VLLM_API_KEY holds a key"),
        ("extra_body: {user_config: {api_key: abcdefghijkl}}", "extra_body.user_config.api_key holds a key"),
        ("counting: words", "token_ids, running_usage, usage, got 'words'"),
        ("connections: many", "session, pool or call, got 'many'"),
        ("gpu_ids: [a]", "list of GPU numbers"),
        ("force_lengths: 1", "true or false"),
        ("launch: {env: {}}", "no command"),
        ('launch: "vllm \'serve"', "No closing quotation"),
        ("metrics: a:8000/metrics", "not an http"),
        ("aliases: [a]", "must be a mapping"),
    ],
)
def test_a_field_that_cannot_be_meant_is_named_and_no_key_is_printed(tmp_path: Path, fields: str, says: str) -> None:
    (tmp_path / "e.yaml").write_text(f"arms:\n  a:\n    url: http://x/v1\n    {fields}\n")
    with pytest.raises(EndpointError, match=says) as caught:
        read_file(tmp_path / "e.yaml")
    assert "arms.a." in caught.value.message
    assert "abcdefghij" not in caught.value.message + str(caught.value.hint)


def test_a_key_may_come_from_a_command_whose_output_stays_secret() -> None:
    assert Endpoint(name="a", url="http://x/v1", key_command="echo expires-soon").request_headers() == {
        "Authorization": "Bearer expires-soon"
    }
    for command in ("sh -c 'echo expires-soon; exit 1'", "true", "no-such-command"):
        with pytest.raises(EndpointError) as caught:
            Endpoint(name="a", url="http://x/v1", key_command=command).key()
        assert "expires-soon" not in caught.value.message
        assert caught.value.__cause__ is None


OPTIONS = """
connections: pool
idle_s: 2
expect_bytes: 65536
replica_headers: [X-Served-By]
header_env: {X-Api-Key: TEAM_KEY}
force_lengths: false
counting: usage
tokenizer: /models/M
config: /models/M
client_certificate: /tls/me.pem
client_key: /tls/me.key
proxy_env: PROXY
key_env: KEY
arms:
  a: {url: "http+unix://%2Frun%2Fvllm.sock/v1", gpu_ids: [0, 1/7]}
  b:
    url: http://b/v1
    key_command: cat /run/token
    proxy: http://proxy:3128
    launch: {command: vllm serve M, env: {CUDA_VISIBLE_DEVICES: "2, 3"}}
"""


def test_every_way_to_reach_a_server_is_a_field_and_an_arms_own_way_wins_over_the_shared_one(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(OPTIONS)
    a, b = read_file(tmp_path / "e.yaml")
    assert (a.connections, a.idle_s, a.expect_bytes, a.replica_headers) == ("pool", 2.0, 65536, ("X-Served-By",))
    assert (a.header_env, a.force_lengths, a.counting) == ({"X-Api-Key": "TEAM_KEY"}, False, "usage")
    assert (a.tokenizer, a.config) == ("/models/M", "/models/M")
    assert (a.client_certificate, a.client_key, a.proxy_env, a.key_env) == ("/tls/me.pem", "/tls/me.key", "PROXY", "KEY")
    assert (b.key_env, b.key_command, b.proxy_env, b.proxy) == (None, "cat /run/token", None, "http://proxy:3128")
    assert (sorted(a.own_gpus), sorted(b.own_gpus)) == (["0", "1/7"], ["2", "3"])


def test_two_ways_to_say_a_key_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text("arms: {a: {url: 'http://x/v1', key_env: A, key_command: b}}")
    with pytest.raises(EndpointError, match="both 'key_env' and 'key_command'"):
        read_file(tmp_path / "e.yaml")


def test_secrets_of_the_environment_are_in_the_headers_and_a_missing_one_names_the_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint(name="a", url="http://x/v1", headers={"X-Team": "t"}, header_env={"X-Api-Key": "TEAM_KEY"})
    with pytest.raises(EndpointError, match="a: environment variable TEAM_KEY is not set"):
        endpoint.own_headers()
    monkeypatch.setenv("TEAM_KEY", "opaque-value")
    assert endpoint.own_headers() == {"X-Team": "t", "X-Api-Key": "opaque-value"}
    assert endpoint.secrets() == ("opaque-value",)
