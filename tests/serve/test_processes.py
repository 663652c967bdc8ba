import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from agentload.errors import LaunchError
from agentload.serve import processes
from agentload.serve.server import ServerOptions
from tests.conftest import Spawn
from tests.serve.arms import arm

pytestmark = pytest.mark.loopback

PARENT = """
import sys, time
from agentload.serve import processes
from tests.serve.arms import arm
servers = processes.start([arm()])
print(servers.servers[0].pid, flush=True)
time.sleep(60)
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().split(")")[1].split()[0] != "Z"


def test_each_arm_has_a_server_of_its_own_until_stopped(tmp_path: Path) -> None:
    with processes.start(
        [arm(name="one"), arm(name="two")],
        ServerOptions(truth=tmp_path / "truth.jsonl"),
        logs=tmp_path,
    ) as running:
        assert [(server.arm, server.profile, server.model) for server in running.servers] == [
            ("one", "synthetic", "tiny"),
            ("two", "synthetic", "tiny"),
        ]
        for server in running.servers:
            with urlopen(server.url + "/models", timeout=30) as answer:
                assert json.load(answer)["data"][0]["id"] == "tiny"
            assert is_alive(server.pid)
        assert running.dead() == ()
        assert list(running.urls) == ["one", "two"]
    assert not any(is_alive(server.pid) for server in running.servers)
    assert "GPU KV cache size: " in (tmp_path / "one.log").read_text()
    assert {file.name for file in tmp_path.iterdir()} == {
        "one.log",
        "two.log",
        "truth-one.jsonl",
        "truth-two.jsonl",
    }


@pytest.mark.slow
def test_a_server_ends_by_itself_when_its_parent_is_killed(spawn: Spawn) -> None:
    parent = spawn([sys.executable, "-c", PARENT])
    assert parent.stdout
    pid = int(parent.stdout.readline())
    assert is_alive(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    give_up = time.monotonic() + 30
    while is_alive(pid) and time.monotonic() < give_up:
        time.sleep(0.02)
    assert not is_alive(pid)


def test_a_taken_port_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            LaunchError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"
        ) as caught:
            processes.start([arm()], ServerOptions(port=port))
    assert caught.value.hint == "choose another --port"


def test_a_truth_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        LaunchError, match=r"synthetic/plain: No such file or directory: .*nowhere/truth\.jsonl"
    ):
        processes.start([arm()], ServerOptions(truth=tmp_path / "nowhere" / "truth.jsonl"))
