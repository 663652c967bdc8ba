from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.matrix.faults import last_words, look_at
from agentload.matrix.past import Fault

VLLM = """\
(APIServer pid=7) INFO 11-21 23:00:00 [api_server.py:1] vLLM API server version 0.32.0
(EngineCore pid=9) ERROR 11-21 23:00:05 [core.py:99] Traceback (most recent call last):
(EngineCore pid=9) ERROR 11-21 23:00:05 [core.py:99] ValueError: No common block size for 7
(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
DEAD = VLLM.replace(
    "RuntimeError: Engine core initialization failed. See root cause above.",
    "EngineDeadError: EngineCore encountered an issue.",
)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (VLLM, "ValueError: No common block size for 7"),
        (DEAD, "ValueError: No common block size for 7"),
        (
            "usage: vllm serve [options]\nvllm serve: error: unrecognized arguments: --frob\n\n",
            "vllm serve: error: unrecognized arguments: --frob",
        ),
        ("starting\nKilled\n", "Killed"),
        ("", "it logged nothing"),
    ],
)
def test_a_server_that_ended_is_quoted_with_the_cause_that_it_told(log: str, said: str) -> None:
    assert last_words(log) == said


# A server that comes up, says which kernel it chose,
# and does with its first question what it is told.
SERVER = """
import http.server, json, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        found = {"/health": "{}", "/v1/models": json.dumps({"data": [{"id": "m", "max_model_len": 4096}]})}.get(self.path)
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write((found or "").encode())

    def do_POST(self):
        if "dies" in sys.argv:
            print("ValueError: no kernel for this head size", flush=True)
            os._exit(3)
        self.send_error(400)

    def log_message(self, *_):
        pass

print("INFO 11-21 23:00:00 [cuda.py:1] Using FLASH_ATTN attention backend", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def server(*words: str, **expect: object) -> Endpoint:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    launch = Launch(command=(sys.executable, "-c", SERVER, port, *words))
    return Endpoint(name="a", url=f"http://127.0.0.1:{port}/v1", launch=launch, expect=expect)


@pytest.mark.slow
@pytest.mark.loopback
@pytest.mark.parametrize(
    ("words", "expect", "said"),
    [
        ((), {}, None),
        ((), {"max_model_len": 8192}, "max_model_len"),
        ((), {"backend": "FLASHINFER"}, "backend"),  # which the log alone tells
        (("dies",), {}, "ValueError: no kernel for this head size"),
    ],
)
def test_a_server_that_comes_up_is_met_as_a_replay_meets_it(
    tmp_path: Path, words: tuple[str, ...], expect: dict[str, object], said: str | None
) -> None:
    found = look_at(server(*words, **expect), is_launched=True, logs=tmp_path, start_s=20)
    if said is None:
        assert found is None
    else:
        assert isinstance(found, Fault)
        assert said in found.said
