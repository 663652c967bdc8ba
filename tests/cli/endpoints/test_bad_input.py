"""Whatever is wrong with an endpoint, the error names
the arm and says what to do next; no secret is in it.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agentload.cli import main as cli
from tests.live.certificates import Certificates, made

pytestmark = pytest.mark.loopback
KEY = "plainkeyword"

Answer = tuple[int, str, str]
"""Status, content type, body."""
MODELS: Answer = (
    200,
    "application/json",
    json.dumps({"data": [{"id": "org/served"}, {"id": "org/other"}]}),
)
HTML: Answer = (200, "text/html", "<html><body>Please log in</body></html>")


@contextmanager
def serving(
    answer: Callable[[str, str], Answer], *, tls: ssl.SSLContext | None = None
) -> Iterator[int]:
    """Answer GETs by path and key until the block ends; yields the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, body = answer(self.path, self.headers.get("Authorization", ""))
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # clients that hang up are what is tested
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Return `agentload endpoints check` on an arms file with one arm called fp8."""

    def run(url: str, *options: str, fields: str = "") -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "e.yaml").write_text(f"arms:\n  fp8:\n    url: {url}\n{fields}")
        monkeypatch.setattr(sys, "argv", ["agentload", "endpoints", "check", "e.yaml", *options])
        code = cli.main()
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def said(err: str) -> tuple[str, str]:
    lines = err.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["error", "hint"], err
    return lines[0].removeprefix("error: "), lines[1].removeprefix("hint: ")


def closed() -> int:
    with socket.create_server(("127.0.0.1", 0)) as there:
        return int(there.getsockname()[1])


def test_nothing_listens_there(check: Callable[..., tuple[int, str, str]]) -> None:
    port = closed()
    code, _, err = check(f"http://127.0.0.1:{port}/v1")
    error, hint = said(err)
    assert code == 1
    assert error == f"fp8: cannot reach http://127.0.0.1:{port}/v1/models: Connection refused"
    assert hint == f"is the server up? try: curl http://127.0.0.1:{port}/v1/models"


@pytest.mark.parametrize(
    ("answer", "error", "hint"),
    [
        (
            (404, "text/plain", "no"),
            "fp8: URL/models answers 404",
            "is this the base URL of an OpenAI-compatible API, with its /v1?",
        ),
        (
            HTML,
            "fp8: URL/models does not answer JSON",
            "is this a web page, a proxy's login, or another port of the server?",
        ),
        (
            (200, "application/json", "[]"),
            "fp8: URL/models lists no models",
            "is this the base URL of an OpenAI-compatible API?",
        ),
        (
            (401, "application/json", "{}"),
            "fp8: URL/models refuses the key (401)",
            "is the key that KEY holds the one of this server?",
        ),
        (
            (502, "text/html", "bad"),
            "fp8: URL/models answers 502",
            "is this the base URL of an OpenAI-compatible API, with its /v1?",
        ),
    ],
)
def test_another_server_or_the_wrong_key(
    check: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    error: str,
    hint: str,
) -> None:
    monkeypatch.setenv("KEY", KEY)
    with serving(lambda *_: answer) as port:
        url = f"http://127.0.0.1:{port}/v1"
        code, out, err = check(url, fields="    key_env: KEY\n")
    assert (code, said(err)) == (1, (error.replace("URL", url), hint))
    assert KEY not in out + err


def test_a_server_that_wants_a_key_where_none_was_given(
    check: Callable[..., tuple[int, str, str]],
) -> None:
    with serving(lambda *_: (401, "application/json", "{}")) as port:
        _, _, err = check(f"http://127.0.0.1:{port}/v1")
    assert said(err)[1] == "--api-key-env NAME_OF_THE_VARIABLE"


def test_a_key_that_is_not_in_the_environment(
    check: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KEY", raising=False)
    code, _, err = check("http://127.0.0.1:9/v1", fields="    key_env: KEY\n")
    assert (code, said(err)) == (1, ("fp8: environment variable KEY is not set", "export KEY=…"))


def test_a_model_that_is_not_served_is_answered_with_those_that_are(
    check: Callable[..., tuple[int, str, str]],
) -> None:
    with serving(lambda *_: MODELS) as port:
        code, _, err = check(f"http://127.0.0.1:{port}/v1", "--model", "org/serve")
        url = f"http://127.0.0.1:{port}/v1"
        assert (code, said(err)) == (
            1,
            (f"fp8: {url} does not serve 'org/serve'", "--model one of: org/served, org/other"),
        )
        code, _, err = check(url)
        assert (code, said(err)) == (
            1,
            ("fp8: serves 2 models", "--model one of: org/served, org/other"),
        )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return made(tmp_path_factory.mktemp("tls"))


def test_a_certificate_that_nobody_signed(
    check: Callable[..., tuple[int, str, str]], certificates: Certificates
) -> None:
    with serving(lambda *_: MODELS, tls=certificates.server_context()) as port:
        url = f"https://127.0.0.1:{port}/v1"
        code, _, err = check(url, "--model", "org/served")
        error, hint = said(err)
        assert code == 1
        assert error.startswith(f"fp8: {url}/models: ")
        assert "certificate verify failed" in error
        assert hint == "give the server's own authority with `ca_file` in the arms file"
        code, _, err = check(
            url, "--model", "org/served", fields=f"    ca_file: {certificates.authority}\n"
        )
        assert (code, err) == (0, "")
        code, _, err = check(url, fields="    ca_file: nowhere.pem\n")
        assert said(err)[0].startswith("fp8: the TLS files nowhere.pem cannot be used")


def test_a_server_that_wants_to_know_who_we_are(
    check: Callable[..., tuple[int, str, str]], certificates: Certificates
) -> None:
    own = f"    ca_file: {certificates.authority}\n"
    shown = (
        f"    client_certificate: {certificates.certificate('client')}\n    client_key: "
        f"{certificates.key('client')}\n"
    )
    with serving(lambda *_: MODELS, tls=certificates.server_context(asks_client=True)) as port:
        code, _, err = check(f"https://127.0.0.1:{port}/v1", "--model", "org/served", fields=own)
        assert (code, said(err)[0].partition(" ")[0]) == (1, "fp8:")
        assert said(err)[1] == (
            "does the server ask who you are? `client_certificate` and `client_key` in the "
            "arms file"
        )
        code, _, err = check(
            f"https://127.0.0.1:{port}/v1", "--model", "org/served", fields=own + shown
        )
    assert (code, err) == (0, "")


def test_the_scheme_of_another_port(check: Callable[..., tuple[int, str, str]]) -> None:
    with serving(lambda *_: MODELS) as port:
        code, _, err = check(f"https://127.0.0.1:{port}/v1")
    error, hint = said(err)
    assert (code, error.partition(" ")[0]) == (1, "fp8:")
    assert hint == f"does this port speak TLS? try http://127.0.0.1:{port}/v1/models"


def test_a_port_that_speaks_something_else(check: Callable[..., tuple[int, str, str]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]

        def greet() -> None:
            peer, _ = there.accept()
            peer.sendall(b"220 mail ready\r\n")
            peer.close()

        thread = threading.Thread(target=greet)
        thread.start()
        code, _, err = check(f"http://127.0.0.1:{port}/v1")
        thread.join()
    error, _ = said(err)
    assert (code, error.startswith(f"fp8: cannot reach http://127.0.0.1:{port}/v1/models: ")) == (
        1,
        True,
    )


def test_metrics_that_are_blocked_are_told_and_stop_nothing(
    check: Callable[..., tuple[int, str, str]],
) -> None:
    with serving(
        lambda path, _: MODELS if path.endswith("/models") else (403, "text/plain", "no")
    ) as port:
        code, out, _ = check(f"http://127.0.0.1:{port}/v1", "--model", "org/served")
        url = f"http://127.0.0.1:{port}/metrics"
    assert code == 0
    assert (
        f"caveat: fp8: no metrics at {url}: KV usage, preemptions and requests of others "
        "are not seen"
    ) in out
    assert f"not read: {url}: 403" in out
