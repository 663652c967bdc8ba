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
        ("headers: {Authorization: Bearer abcdefghij}", "headers holds a key"),
        ("headers: {X-Key: sk-abcdefghijkl}", "headers holds a key"),
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
