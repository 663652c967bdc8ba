from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agentload.endpoints.endpoint import Endpoint, Launch, replica_pairs
from agentload.endpoints.read import Emulated, only, read, read_file
from agentload.errors import EndpointError

ARMS = """
model: shared
arms:
  bf16: {url: "http://127.0.0.1:1/v1"}
  fp8: {url: "http://127.0.0.1:2/v1/", model: own, key_env: FP8_KEY, headers: {X-Team: a}, expect: {kv_cache_dtype: fp8}}
"""
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


def test_inline_endpoints_are_names_and_urls() -> None:
    assert read("a=http://127.0.0.1:1/v1, b=https://host/v1/", model="M") == (
        Endpoint(name="a", url="http://127.0.0.1:1/v1", model="M"),
        Endpoint(name="b", url="https://host/v1", model="M"),
    )


def test_a_name_that_is_given_again_is_a_replica_of_its_arm_in_a_line_and_in_a_file(
    tmp_path: Path,
) -> None:
    line = read("a=http://x/v1,a=http://y/v1,b=http://z/v1", model="M")
    first, second = (
        Endpoint(name="a", url=f"http://{host}/v1", model="M", machine=f"replica {n}")
        for n, host in ((1, "x"), (2, "y"))
    )
    assert line == (
        replace(first, replicas=(first, second)),
        Endpoint(name="b", url="http://z/v1", model="M"),
    )
    (tmp_path / "arms.yaml").write_text(
        "model: M\narms:\n  a: {url: ['http://x/v1', {url: 'http://y/v1', log: y.log}]}\n  "
        "b: {url: ['http://z/v1']}"
    )
    logged = replace(second, log="y.log")
    assert read(str(tmp_path / "arms.yaml")) == (replace(first, replicas=(first, logged)), line[1])


@pytest.mark.parametrize(
    ("counts", "pairs"), [((2, 2), 2), ((3, 2), 2), ((2, 1), 0), ((1, 1), 0), ((4, 4, 3), 3)]
)
def test_pairs_of_replicas_are_as_many_as_every_arm_has(
    counts: tuple[int, ...], pairs: int
) -> None:
    text = ",".join(
        f"arm-{arm}=http://host-{arm}-{number}/v1"
        for arm, count in enumerate(counts)
        for number in range(count)
    )
    found = read(text)
    assert isinstance(found, tuple)
    assert replica_pairs(found) == tuple(f"replica {number + 1}" for number in range(pairs))


def test_a_url_alone_gets_a_name() -> None:
    assert read("http://127.0.0.1:1/v1?x=1") == (
        Endpoint(name="arm1", url="http://127.0.0.1:1/v1?x=1"),
    )


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        (
            "bf16=localhost:8000/v1, fp8=http://h:1/v1",
            "bf16=http://localhost:8000/v1,fp8=http://h:1/v1",
        ),
        ("a=h:1,b=h:2", "a=http://h:1/v1,b=http://h:2/v1"),
    ],
)
def test_addresses_without_a_scheme_are_all_said_as_they_can_be_typed(
    typed: str, meant: str
) -> None:
    with pytest.raises(EndpointError, match="is not an http") as error:
        read(typed)
    assert error.value.hint == meant
    assert read(meant)


def test_a_field_that_is_mistyped_is_answered_with_the_one_that_was_meant(tmp_path: Path) -> None:
    (tmp_path / "arms.yaml").write_text("arms: {fp8: {urll: http://127.0.0.1:8001/v1}}")
    with pytest.raises(EndpointError, match="unknown field 'urll'") as error:
        read(str(tmp_path / "arms.yaml"))
    assert error.value.hint == "did you mean url?"


def test_an_arms_file_gives_each_arm_the_shared_model_unless_it_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "arms.yaml").write_text(ARMS)
    bf16, fp8 = read(str(tmp_path / "arms.yaml"))  # type: ignore[misc]  # a file names endpoints
    assert (bf16.model, fp8.model, fp8.url) == ("shared", "own", "http://127.0.0.1:2/v1")
    assert (fp8.key_env, fp8.headers, fp8.expect) == (
        "FP8_KEY",
        {"X-Team": "a"},
        {"kv_cache_dtype": "fp8"},
    )


def test_some_arms_of_a_file_can_be_named_and_one_that_it_has_not_is_an_error(
    tmp_path: Path,
) -> None:
    path = tmp_path / "arms.yaml"
    path.write_text(ARMS)
    # a file names endpoints
    assert read(f"{path}/fp8") == read(str(path))[1:]  # type: ignore[index]
    assert read(f"{path}/fp8+bf16") == read(str(path))
    with pytest.raises(EndpointError, match="has no arm 'int8'") as error:
        read(f"{path}/fp8+int8")
    assert error.value.hint == "it has: bf16, fp8"


@pytest.mark.parametrize(
    ("text", "names", "said"),
    [
        (
            "a=http://h:1/v1, b=http://h:2/v1,c=http://h:3/v1",
            "ac",
            "a=http://h:1/v1,c=http://h:3/v1",
        ),
        ("http://h:1/v1?x=1,http://h:2/v1", ["arm1"], "arm1=http://h:1/v1?x=1"),
        ("of/arms.yaml", "ab", "of/arms.yaml/a+b"),
        ("of/arms.yml/a+b+c", "ac", "of/arms.yml/a+c"),
        ("emulated:llama", "ab", "emulated:llama/a+b"),
        ("emulated:llama/a+b+c", "ab", "emulated:llama/a+b"),
    ],
)
def test_endpoints_can_be_written_with_some_of_their_arms(
    text: str, names: Sequence[str], said: str
) -> None:
    assert only(text, names) == said


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
        ("a=http://[]:8000/v1", "not an http"),
        ("a=http://127.0.0.1:99999/v1", "not an http"),
        ("a=http://127.0.0.1:port/v1", "not an http"),
        ("fp8/tp2=http://x/v1", "endpoint 1: an arm cannot be called 'fp8/tp2'"),
        ("arm2=http://x/v1,http://y/v1", "two endpoints are called 'arm2'"),
        (
            "a=http://x/v1,b=http://z/v1,a=http://x/v1/",
            "replica 1 and replica 2 of a are one server",
        ),
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
        ("arms: {a: {model: m, url: }}", "arms.a has no 'url'"),
        ("arms: {a: {url: 'http://x/v1', port: 1}}", "unknown field 'port'"),
        ("arms: {a: http}", "must be a mapping"),
        (
            "arms: {fp8/tp2: {url: 'http://x/v1'}}",
            "arms.fp8/tp2: an arm cannot be called 'fp8/tp2'",
        ),
        ("arms: {'': {url: 'http://x/v1'}}", "an arm cannot be called ''"),
        ("arms: {a: {url: 'http://[]:8000'}}", "not an http"),
        ("arms: {a: {url: []}}", "a URL for each replica"),
        (
            "arms: {a: {url: ['http://x/v1', ['http://y/v1']]}}",
            "a URL for each replica|not an http",
        ),
        (
            "arms: {a: {url: ['http://x/v1', 'http://x/v1']}}",
            "replica 1 and replica 2 of a are one server",
        ),
        ("arms: {a: {url: ['http://x/v1', {log: y.log}]}}", r"arms.a.url\[1\] has no 'url'"),
        (
            "arms: {a: {url: ['http://x/v1', 'http://y/v1'], machine: m}}",
            "both 'machine' and a list of URLs",
        ),
        (
            "arms: {a: {url: ['http://x/v1', 'http://y/v1'], launch: vllm serve M}}",
            "both 'launch' and a list of URLs",
        ),
    ],
)
def test_an_arms_file_that_cannot_be_read_names_the_place(
    tmp_path: Path, document: str, says: str
) -> None:
    (tmp_path / "arms.yaml").write_text(document)
    with pytest.raises(EndpointError, match=says):
        read(str(tmp_path / "arms.yaml"))


def test_the_key_is_read_when_it_is_needed_and_missing_keys_name_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
        assert {(each.model, each.key_env, each.tokenizer) for each in found} == {
            ("M", "K", "t.json")
        }


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
        (
            "launch: {command: vllm serve M, env: {VLLM_API_KEY: abcdefghijkl}}",
            "launch.env.VLLM_API_KEY holds a key",
        ),
        (
            "extra_body: {user_config: {api_key: abcdefghijkl}}",
            "extra_body.user_config.api_key holds a key",
        ),
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
def test_a_field_that_cannot_be_meant_is_named_and_no_key_is_printed(
    tmp_path: Path, fields: str, says: str
) -> None:
    (tmp_path / "e.yaml").write_text(f"arms:\n  a:\n    url: http://x/v1\n    {fields}\n")
    with pytest.raises(EndpointError, match=says) as caught:
        read_file(tmp_path / "e.yaml")
    assert "arms.a." in caught.value.message
    assert "abcdefghij" not in caught.value.message + str(caught.value.hint)


def test_a_key_may_come_from_a_command_whose_output_stays_secret() -> None:
    assert Endpoint(
        name="a", url="http://x/v1", key_command="echo expires-soon"
    ).request_headers() == {"Authorization": "Bearer expires-soon"}
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


def test_every_way_to_reach_a_server_is_a_field_and_an_arms_own_way_wins_over_the_shared_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "e.yaml").write_text(OPTIONS)
    a, b = read_file(tmp_path / "e.yaml")
    assert (a.connections, a.idle_s, a.expect_bytes, a.replica_headers) == (
        "pool",
        2.0,
        65536,
        ("X-Served-By",),
    )
    assert (a.header_env, a.force_lengths, a.counting) == (
        {"X-Api-Key": "TEAM_KEY"},
        False,
        "usage",
    )
    assert (a.tokenizer, a.config) == ("/models/M", "/models/M")
    assert (a.client_certificate, a.client_key, a.proxy_env, a.key_env) == (
        "/tls/me.pem",
        "/tls/me.key",
        "PROXY",
        "KEY",
    )
    assert (b.key_env, b.key_command, b.proxy_env, b.proxy) == (
        None,
        "cat /run/token",
        None,
        "http://proxy:3128",
    )
    assert (sorted(a.own_gpus), sorted(b.own_gpus)) == (["0", "1/7"], ["2", "3"])


def test_two_ways_to_say_a_key_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text("arms: {a: {url: 'http://x/v1', key_env: A, key_command: b}}")
    with pytest.raises(EndpointError, match="both 'key_env' and 'key_command'"):
        read_file(tmp_path / "e.yaml")


def test_secrets_of_the_environment_are_in_the_headers_and_a_missing_one_names_the_arm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoint = Endpoint(
        name="a", url="http://x/v1", headers={"X-Team": "t"}, header_env={"X-Api-Key": "TEAM_KEY"}
    )
    with pytest.raises(EndpointError, match="a: environment variable TEAM_KEY is not set"):
        endpoint.own_headers()
    monkeypatch.setenv("TEAM_KEY", "opaque-value")
    assert endpoint.own_headers() == {"X-Team": "t", "X-Api-Key": "opaque-value"}
    assert endpoint.secrets() == ("opaque-value",)


def test_one_server_typed_twice_is_no_comparison(tmp_path: Path) -> None:
    with pytest.raises(
        EndpointError, match=r"^bf16 and fp8 are one server: http://127.0.0.1:8000/v1$"
    ) as error:
        read("bf16=http://127.0.0.1:8000/v1,fp8=http://127.0.0.1:8000/v1/")
    assert error.value.hint is not None
    assert error.value.hint.startswith("--aa bf16 plays a server twice")
    apart = "arms: {a: {url: http://h:1/v1, model: one}, b: {url: http://h:1/v1, model: two}}"
    (tmp_path / "arms.yaml").write_text(apart)
    # a file names arms
    assert len(read(str(tmp_path / "arms.yaml"))) == 2  # type: ignore[arg-type]
