from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from agentload.endpoints import launch
from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.endpoints.launch import (
    LaunchedServer,
    check_apart,
    is_healthy,
    restartable_server,
    run_servers,
    start,
    telling,
)
from agentload.errors import LaunchError


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "LOOK_S", 0.02)


# A server with an engine that would outlive it: in a session of its own, or in
# the server's group with an environment that tells nothing, as vLLM's engines
# have. The server heeds SIGTERM unless told not to.
SERVER = """
import http.server, signal, subprocess, sys
port, stubborn = int(sys.argv[1]), sys.argv[2] == "stubborn"
engine = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
own = sys.argv[2] != "titled"
child = subprocess.Popen([sys.executable, "-c", engine], start_new_session=own, env=None if own else {})
print("engine", child.pid, flush=True)
if stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def arm(kind: str = "plain", *, name: str = "a") -> Endpoint:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return Endpoint(
        name=name,
        url=f"http://127.0.0.1:{port}/v1",
        launch=Launch(command=(sys.executable, "-c", SERVER, str(port), kind)),
    )


@pytest.mark.loopback
@pytest.mark.parametrize("kind", ["plain", "stubborn", "titled"])
def test_a_stopped_server_takes_its_orphaned_engine_along(tmp_path: Path, kind: str) -> None:
    running = start(arm(kind), logs=tmp_path)
    assert len(running.survivors()) == 2
    killed = running.stop(patience_s=0.2)
    assert running.survivors() == ()
    assert len(killed) == (2 if kind == "stubborn" else 1)
    assert (tmp_path / "a.log").read_text().startswith("engine ")


@pytest.mark.loopback
@pytest.mark.parametrize(("said", "mask"), [("0022", 0o022), (None, 0o077)])
def test_a_server_has_the_umask_of_its_user_and_not_the_one_for_our_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None, mask: int
) -> None:
    if said is None:
        monkeypatch.delenv("AGENTLOAD_UMASK", raising=False)
    else:
        monkeypatch.setenv("AGENTLOAD_UMASK", said)
    before = os.umask(0o077)
    try:
        running = start(arm(), logs=tmp_path)
        found = Path(f"/proc/{running.pid}/status").read_text()
        running.stop()
    finally:
        os.umask(before)
    assert f"Umask:\t{mask:04o}" in found
    assert (tmp_path / "a.log").stat().st_mode & 0o777 == 0o600


@pytest.mark.loopback
def test_servers_run_for_as_long_as_the_block_and_end_with_an_error_in_it_too(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    servers: dict[str, LaunchedServer] = {}

    def interrupted() -> None:
        with run_servers(
            [arm(name="a"), arm(name="b")], logs=tmp_path, notice=said.append
        ) as running:
            servers.update(running)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(servers) == ["a", "b"]
    assert all(running.survivors() == () for running in servers.values())
    assert [line.split(":")[0] for line in said] == ["a", "a", "b", "b", "b", "a"]


@pytest.mark.loopback
def test_servers_that_start_together_are_all_begun_before_one_is_waited_for(tmp_path: Path) -> None:
    said: list[str] = []
    arms = [arm(name="a"), arm(name="b")]
    with run_servers(arms, logs=tmp_path, notice=said.append, together=True) as running:
        assert list(running) == ["a", "b"]
    told = [re.findall(r"\w+", line)[:2] for line in said]
    begun = [["a", "starting"], ["b", "starting"]]
    assert told == [*begun, ["a", "ready"], ["b", "ready"], ["b", "stopped"], ["a", "stopped"]]


def stat(pid: int) -> list[str]:
    """Return a process's state, parent and so on; Z: it has ended."""
    path = Path(f"/proc/{pid}/stat")
    return path.read_text().rpartition(")")[2].split() if path.exists() else ["Z"]


@pytest.mark.loopback
def test_a_server_that_is_kept_is_started_again_when_it_has_died_and_only_then(
    tmp_path: Path,
) -> None:
    with restartable_server(arm(), logs=tmp_path, start_s=30) as server:
        server.up()
        server.up()
        assert server.last_words() is None
        engine = int((tmp_path / "start-001" / "a.log").read_text().split()[1])
        os.kill(int(stat(engine)[1]), signal.SIGKILL)
        assert server.last_words() == "ended with code -9"
        server.up()
        assert server.last_words() is None
        assert stat(engine)[0] == "Z"  # it outlived its server, and would have held the memory
    assert sorted(each.name for each in tmp_path.iterdir()) == ["start-001", "start-002"]


@pytest.mark.loopback
@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("", ""),
        ("starting\n\nready\n", ""),
        (
            (
                "ERROR: a request failed\nready\ntorch.OutOfMemoryError: 2 GiB\nRuntimeError: "
                "engine died\nshutting down\n"
            ),
            "torch.OutOfMemoryError: 2 GiB",
        ),
        ("RuntimeError: first\nRuntimeError: last\nshutting down", "RuntimeError: last"),
    ],
)
def test_the_line_that_says_best_why_a_server_died_is_told(log: str, told: str) -> None:
    assert telling(log) == told


@pytest.mark.loopback
def test_a_server_that_dies_at_its_start_is_told_with_its_log(tmp_path: Path) -> None:
    dies = Endpoint(
        name="a",
        url="http://127.0.0.1:9/v1",
        launch=Launch(command=(sys.executable, "-c", "raise SystemExit('no such model')")),
    )
    with pytest.raises(LaunchError, match="ended with code 1:\nno such model"):
        start(dies, logs=tmp_path)


@pytest.mark.loopback
def test_a_key_in_the_end_of_a_log_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "plainkeyword")
    launch = Launch(
        command=("sh", "-c", "echo got $KEY for http://me:secret@h/v1?token=secret; exit 1")
    )
    dies = Endpoint(name="a", url="http://127.0.0.1:9/v1", key_env="KEY", launch=launch)
    with pytest.raises(LaunchError) as caught:
        start(dies, logs=tmp_path)
    assert (
        caught.value.message == "a: the server ended with code 1:\ngot *** for http://***@h/v1?***"
    )


@pytest.mark.loopback
def test_a_server_that_is_never_healthy_is_stopped(tmp_path: Path) -> None:
    sleeps = Endpoint(
        name="a",
        url="http://127.0.0.1:9/v1",
        launch=Launch(command=("sh", "-c", "echo $$; exec sleep 60")),
    )
    with pytest.raises(LaunchError, match="not healthy in time"):
        start(sleeps, logs=tmp_path, start_s=0.3)
    assert stat(int((tmp_path / "a.log").read_text()))[0] == "Z"


@pytest.mark.loopback
def test_a_second_ctrl_c_while_a_server_takes_its_time_to_end_kills_it(tmp_path: Path) -> None:
    running = start(arm("stubborn"), logs=tmp_path)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            running.stop()
    finally:
        signal.signal(signal.SIGALRM, before)
    until = time.monotonic() + 30
    while running.survivors() and time.monotonic() < until:
        time.sleep(0.01)
    assert running.survivors() == ()


@pytest.mark.loopback
@pytest.mark.parametrize("said", [b"SSH-2.0-other\r\n", b""], ids=["another protocol", "nothing"])
def test_a_port_that_speaks_no_http_is_taken_and_never_healthy(tmp_path: Path, said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:

        def greet() -> None:
            for _ in range(2 if said else 4):  # a question without an answer is asked once more
                peer, _ = there.accept()
                peer.recv(4096)
                peer.sendall(said)
                peer.close()

        greeting = threading.Thread(target=greet, daemon=True)
        greeting.start()
        other = Endpoint(
            name="a",
            url=f"http://127.0.0.1:{there.getsockname()[1]}/v1",
            launch=Launch(command=("true",)),
        )
        assert not is_healthy(other)
        with pytest.raises(LaunchError, match="something answers at"):
            start(other, logs=tmp_path)
        greeting.join()


@pytest.mark.loopback
def test_a_log_that_cannot_be_written_is_not_blamed_on_the_command(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(LaunchError, match="a: cannot write its log"):
        start(
            Endpoint(name="a", url="http://127.0.0.1:9/v1", launch=Launch(command=("true",))),
            logs=tmp_path / "logs",
        )


@pytest.mark.loopback
def test_a_port_that_is_taken_and_a_command_that_is_missing_are_told_before_anything_starts(
    tmp_path: Path,
) -> None:
    running = start(first := arm(), logs=tmp_path)
    try:
        with pytest.raises(LaunchError, match=r"answers at .* already"):
            start(first, logs=tmp_path)
    finally:
        running.stop(patience_s=1)
    with pytest.raises(LaunchError, match="cannot start 'no-such-server'"):
        start(
            Endpoint(
                name="a", url="http://127.0.0.1:9/v1", launch=Launch(command=("no-such-server",))
            ),
            logs=tmp_path,
        )
    with pytest.raises(LaunchError, match="has no 'launch'"):
        start(Endpoint(name="a", url="http://127.0.0.1:9/v1"), logs=tmp_path)


def serving(
    name: str, *flags: str, gpus: str | None = None, before: tuple[str, ...] = ("vllm",)
) -> Endpoint:
    env = {} if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus}
    return Endpoint(
        name=name,
        url="http://127.0.0.1:9/v1",
        launch=Launch(command=(*before, "serve", "M", *flags), env=env),
    )


@pytest.fixture(autouse=True)
def machine_with_gpus(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "DEVICES", (tmp_path_factory.getbasetemp(),))


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (serving("a"), serving("b"), "the first GPU"),
        (serving("a", gpus="0,1"), serving("b", gpus="1, 2"), "GPU 1"),
        (
            serving("a", gpus="0"),
            serving("b", before=("env", "CUDA_VISIBLE_DEVICES=0", "/opt/bin/vllm")),
            "GPU 0",
        ),
    ],
)
def test_servers_that_would_take_the_same_memory_are_refused_before_one_starts(
    one: Endpoint, other: Endpoint, shared: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with (
        pytest.raises(LaunchError, match=f"'a' and 'b' would each take the memory of {shared}$"),
        run_servers([one, other], logs=tmp_path_factory.getbasetemp()),
    ):
        pass


@pytest.mark.parametrize(
    "arms",
    [
        [serving("a", gpus="0"), serving("b", gpus="1")],
        [serving("a"), serving("b", "--gpu-memory-utilization=0.4")],
        [serving("a", "--kv_cache_memory_bytes", "4G"), serving("b")],
        [serving("a"), serving("b", before=("transformers",))],
        [
            serving("a", before=("ssh", "left", "vllm")),
            serving("b", before=("ssh", "right", "vllm")),
        ],
        [serving("a"), Endpoint(name="b", url="http://127.0.0.1:9/v1")],
    ],
)
def test_servers_that_are_apart_bounded_or_of_another_kind_are_left_alone(
    arms: list[Endpoint],
) -> None:
    check_apart(arms)


def test_without_gpus_nothing_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "DEVICES", ())
    check_apart([serving("a"), serving("b")])
