from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentload.cli import launch
from agentload.cli.endpoints import check, init
from agentload.endpoints.arms_file import read_file
from agentload.endpoints.commands import planned
from agentload.errors import EndpointError, GateError, UsageError
from agentload.experiment.arms import arms_of
from agentload.serve.processes import Servers, start


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with start(arms_of("llama-3.1-8b-h100", ["bf16", "fp8"]), noise=False) as running:
        yield running


def test_the_file_that_init_writes_reads_back_as_what_launch_would_print(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init.run(model="org/M", out=tmp_path / "e.yaml", max_model_len=8192)
    assert [(arm.name, arm.url, arm.expect, arm.launch) for arm in read_file(tmp_path / "e.yaml")] == [
        (arm.name, arm.url, arm.expect, arm.launch) for arm in planned("org/M", length=8192)
    ]
    with pytest.raises(UsageError, match="exists"):
        init.run(model="org/M", out=tmp_path / "e.yaml")
    launch.run(endpoints=tmp_path / "e.yaml", print_=True, only="fp8")
    assert "vllm serve org/M --port 8001 --max-model-len 8192 --kv-cache-dtype fp8" in capsys.readouterr().out


def test_a_model_whose_config_is_here_and_has_no_windows_gets_no_arm_that_skips_them(tmp_path: Path) -> None:
    config = {"num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 256, "max_position_embeddings": 8192}
    (tmp_path / "config.json").write_text(json.dumps(config))
    init.run(model=str(tmp_path), out=tmp_path / "e.yaml")
    assert [arm.name for arm in read_file(tmp_path / "e.yaml")] == ["bf16", "fp8", "bf16-same-backend"]


@pytest.mark.loopback
def test_check_shows_what_servers_say_and_fails_on_a_wrong_label(
    servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(f"arms:\n  one: {{url: '{servers.urls['fp8']}', expect: {{kv_cache_dtype: fp8}}}}\n")
    check.run(str(file))
    assert capsys.readouterr().out.splitlines()[1].split()[::2][:2] == ["one", "fp8"]
    file.write_text(f"arms:\n  one: {{url: '{servers.urls['bf16']}', expect: {{kv_cache_dtype: fp8}}}}\n")
    with pytest.raises(GateError, match="one: kv_cache_dtype: expected fp8"):
        check.run(str(file), json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["arms"]["one"]["pool_tokens"]


@pytest.mark.loopback
def test_a_model_that_is_not_served_is_told_with_those_that_are(servers: Servers) -> None:
    with pytest.raises(EndpointError, match="does not serve 'other'") as caught:
        check.run(f"a={servers.urls['bf16']}", model="other")
    assert "--model one of:" in str(caught.value.hint)


def test_launch_prints_a_plan_without_an_arms_file_and_refuses_unknown_forms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    launch.run(print_=True)
    assert capsys.readouterr().out.count("vllm serve MODEL") == 4
    with pytest.raises(UsageError, match="--format"):
        launch.run(print_=True, format_="helm")
    with pytest.raises(EndpointError, match="no such file"):
        launch.run()
