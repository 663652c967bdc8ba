from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentload.cli.endpoints import check, init
from agentload.cli.servers import launch
from agentload.endpoints.commands import Pins, launch_plan
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.read import read_file
from agentload.errors import EndpointError, GateError, UsageError
from agentload.run.servers import arms_of
from agentload.serve.processes import Servers, start
from agentload.serve.server import ServerOptions


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with start(
        arms_of("llama-3.1-8b-h100", ["bf16", "fp8"]), ServerOptions(noise=False)
    ) as running:
        yield running


CALIBRATED = "fp8-calibrated"
PLAIN = {
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "hidden_size": 256,
    "max_position_embeddings": 8192,
}


def written(arms: tuple[Endpoint, ...]) -> list[tuple[object, ...]]:
    return [(arm.name, arm.url, arm.expect, arm.launch) for arm in arms]


def test_the_file_that_init_writes_reads_back_as_what_launch_would_print(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    init(model="org/M", out=tmp_path / "e.yaml", max_model_len=8192)
    would = launch_plan("org/M", pins=Pins(max_model_len=8192))
    assert written(read_file(tmp_path / "e.yaml")) == written(
        tuple(arm for arm in would if arm.name != CALIBRATED)
    )
    with pytest.raises(UsageError, match="exists"):
        init(model="org/M", out=tmp_path / "e.yaml")
    launch(endpoints=tmp_path / "e.yaml", print_=True, only="fp8")
    assert (
        "vllm serve org/M --port 8001 --max-model-len 8192 --kv-cache-dtype fp8"
        in capsys.readouterr().out
    )


def test_calibrated_weights_are_an_arm_once_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    init(model="org/M", out=Path("e.yaml"))
    assert "  # fp8-calibrated:\n" in Path("e.yaml").read_text()
    Path("calibrate/M-fp8-kv-tensor").mkdir(parents=True)
    init(model="org/M", out=Path("e.yaml"), force=True)
    assert written(read_file(Path("e.yaml"))) == written(launch_plan("org/M"))


def test_a_folder_with_a_space_in_its_name_is_served_whole(tmp_path: Path) -> None:
    init(model="./my models/llama", out=tmp_path / "e.yaml")
    first = read_file(tmp_path / "e.yaml")[0].launch
    assert first is not None
    assert first.command[:3] == ("vllm", "serve", "./my models/llama")


def test_a_model_whose_config_is_here_and_has_no_windows_gets_no_arm_that_skips_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    init(model=str(tmp_path), out=tmp_path / "e.yaml")
    assert [arm.name for arm in read_file(tmp_path / "e.yaml")] == [
        "bf16",
        "fp8",
        "bf16-same-backend",
    ]


def test_launch_prints_no_arm_that_skips_windows_where_the_model_has_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    launch(print_=True, model=str(tmp_path), max_model_len=4096, batched_tokens=2048)
    printed = capsys.readouterr().out
    assert "sliding_window" not in printed
    assert printed.count("--max-model-len 4096 --max-num-batched-tokens 2048") == 4


@pytest.mark.loopback
def test_check_shows_what_servers_say_and_fails_on_a_wrong_label(
    servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(
        f"arms:\n  one: {{url: '{servers.urls['fp8']}', expect: {{kv_cache_dtype: fp8}}}}\n"
    )
    check(str(file))
    assert capsys.readouterr().out.splitlines()[1].split()[::2][:2] == ["one", "fp8"]
    file.write_text(
        f"arms:\n  one: {{url: '{servers.urls['bf16']}', expect: {{kv_cache_dtype: fp8}}}}\n"
    )
    with pytest.raises(GateError, match="one: kv_cache_dtype: expected fp8"):
        check(str(file), json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["arms"]["one"]["pool_tokens"]


@pytest.mark.loopback
def test_a_model_that_is_not_served_is_told_with_those_that_are(servers: Servers) -> None:
    with pytest.raises(EndpointError, match="does not serve 'other'") as caught:
        check(f"a={servers.urls['bf16']}", model="other")
    assert "--model one of:" in str(caught.value.hint)


def test_launch_prints_a_plan_without_an_arms_file_and_starts_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    launch(print_=True)
    printed = capsys.readouterr().out
    assert printed.count("vllm serve MODEL") == 4
    assert "vllm serve ./calibrate/MODEL-fp8-kv-tensor" in printed
    with pytest.raises(EndpointError, match="no such file"):
        launch()


def test_launch_prints_the_file_that_is_here_unless_a_model_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("endpoints.yaml").write_text("arms: {a: {url: 'http://127.0.0.1:9/v1'}}")
    launch(print_=True)
    assert "started elsewhere" in capsys.readouterr().out
    launch(print_=True, model="org/M")
    assert "vllm serve org/M" in capsys.readouterr().out
    with pytest.raises(UsageError, match="both an arms file and --model"):
        launch(endpoints=Path("endpoints.yaml"), print_=True, model="org/M")
