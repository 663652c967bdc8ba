import os
import signal
import sys
from pathlib import Path

import pytest

from agentload.cli import servers
from agentload.cli.servers import _names, emulate
from agentload.errors import AgentloadError, ProfileError, UsageError
from tests.conftest import Spawn

pytestmark = pytest.mark.loopback


def test_a_profile_is_served_by_a_process_for_each_arm(capsys: pytest.CaptureFixture[str]) -> None:
    emulate("llama-3.1-8b-h100", port=0, seconds=0.1)
    bf16, fp8, _, ready_made = capsys.readouterr().out.splitlines()
    urls = [line.split()[1] for line in (bf16, fp8)]
    assert [line.split()[0] for line in (bf16, fp8)] == ["bf16", "fp8"]
    assert ready_made == f"--endpoints bf16={urls[0]},fp8={urls[1]} --model llama-3.1-8b"


def test_one_arm_is_served_here_and_logs_as_vllm_does(capsys: pytest.CaptureFixture[str]) -> None:
    emulate("llama-3.1-8b-h100/fp8", port=0, seconds=0.05)
    out, log = capsys.readouterr()
    assert out == ""
    assert "GPU KV cache size: " in log
    assert log.endswith("INFO:     Application startup complete.\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("llama-3.1-8b-h100", ("llama-3.1-8b-h100", ())),
        ("llama-3.1-8b-h100/fp8", ("llama-3.1-8b-h100", ("fp8",))),
        ("profiles/llama-3.1-8b-h100.yaml", ("profiles/llama-3.1-8b-h100.yaml", ())),
        ("profiles/llama-3.1-8b-h100.yaml/fp8", ("profiles/llama-3.1-8b-h100.yaml", ("fp8",))),
    ],
)
def test_a_profile_may_be_a_path_and_an_arm_follows_the_last_slash(
    text: str, expected: tuple[str, tuple[str, ...]]
) -> None:
    assert _names(text) == expected


def test_an_unknown_profile_or_arm_is_told_with_those_that_exist() -> None:
    with pytest.raises(AgentloadError, match="no profile 'nope'"):
        emulate("nope", port=0)
    with pytest.raises(ProfileError, match="no arm 'fp9'") as caught:
        emulate("llama-3.1-8b-h100/fp9", port=0)
    assert caught.value.hint == "it has: bf16, fp8"


def test_a_script_of_faults_is_checked_before_any_server_starts(tmp_path: Path) -> None:
    script = tmp_path / "faults.yaml"
    script.write_text("faults: [{kind: nope}]")
    with pytest.raises(
        ProfileError, match=r"faults\.yaml: faults\[0\]\.kind: no such fault: there are busy, "
    ):
        emulate("llama-3.1-8b-h100", port=0, faults=script)


@pytest.mark.slow
def test_ctrl_c_stops_all_servers_without_a_word(spawn: Spawn) -> None:
    process = spawn(
        [sys.executable, "-m", "agentload", "emulate", "llama-3.1-8b-h100", "--port", "0"]
    )
    assert process.stdout
    pids = [int(process.stdout.readline().split()[-1]) for _ in range(2)]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_key_that_clients_must_send_may_stand_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[str | None] = []
    monkeypatch.setattr(servers, "serve", lambda arm, options, **_: taken.append(options.api_key))
    monkeypatch.setenv("SECRET_OF_OURS", "plainkeyword")
    emulate("llama-3.1-8b-h100/fp8", api_key_env="SECRET_OF_OURS")
    emulate("llama-3.1-8b-h100/fp8", api_key="typed")
    emulate("llama-3.1-8b-h100/fp8")
    assert taken == ["plainkeyword", "typed", None]


def test_a_variable_without_a_key_and_two_keys_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMPTY", "")
    for name in ("EMPTY", "NO_SUCH_VARIABLE"):
        with pytest.raises(
            AgentloadError, match=f"environment variable {name} is not set"
        ) as caught:
            emulate("llama-3.1-8b-h100", api_key_env=name)
        assert caught.value.hint == f"export {name}=…"
    with pytest.raises(UsageError, match="--api-key and --api-key-env"):
        emulate("llama-3.1-8b-h100", api_key="a", api_key_env="EMPTY")
