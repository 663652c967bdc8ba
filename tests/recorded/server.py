"""An OpenAI-compatible server whose answers depend on
the request alone, and that remembers what it was asked.

Also a program, `python -m tests.recorded.server --port 8000 --kv fp8`, which
ignores every other option: an arms file can launch it in the place of a vLLM.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "recorded"
SALTED = 40  # a salt takes the place of eight words of five bytes
PACE_S = 0.003  # chunks that share a read say nothing of the time between them


class Server(ThreadingHTTPServer):
    """One server; `port` is its own choice where 0 was given."""

    daemon_threads = True

    def __init__(self, *, kv: str = "auto", port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.kv = kv
        self.port = self.server_address[1]
        self.started_s = time.time()
        self.done: Counter[str] = Counter()
        self.seen: set[str] = set()
        self.requests: list[dict[str, Any]] = []
        self.lock = threading.Lock()

    def metrics(self) -> str:
        labels = f'engine="0",model_name="{MODEL}"'
        config = f'block_size="16",cache_dtype="{self.kv}",enable_prefix_caching="True",engine="0",num_gpu_blocks="65536"'
        lines = [
            f"process_start_time_seconds {self.started_s}",
            f"vllm:cache_config_info{{{config}}} 1.0",
        ]
        lines += [
            f"vllm:{name}{{{labels}}} 0.0"
            for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        ]
        counters = (
            "prefix_cache_queries",
            "prefix_cache_hits",
            "prompt_tokens",
            "generation_tokens",
            "num_preemptions",
        )
        lines += [f"vllm:{name}_total{{{labels}}} {self.done[name]}.0" for name in counters]
        lines += [
            (
                f'vllm:request_success_total{{{labels},finished_reason="length"}} '
                f"{self.done['length']}.0"
            )
        ]
        return "\n".join(lines) + "\n"


class Handler(BaseHTTPRequestHandler):
    """Speak as much of vLLM's API as agentload asks for."""

    protocol_version = "HTTP/1.1"
    server: Server
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._remember({})
        match self.path.partition("?")[0]:
            case "/v1/models":
                self._json(
                    {
                        "object": "list",
                        "data": [{"id": MODEL, "object": "model", "max_model_len": 65536}],
                    }
                )
            case "/version":
                self._json({"version": "0.32.0"})
            case "/health":
                self._send(b"", "text/plain")
            case "/metrics":
                self._send(self.server.metrics().encode(), "text/plain; version=0.0.4")
            case _:
                self._json({"error": {"message": "Not Found", "code": 404}}, 404)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(raw or b"{}")
        self._remember(body)
        match self.path:
            case "/tokenize":
                count = _words(body)
                self._json({"count": count, "max_model_len": 65536, "tokens": list(range(count))})
            case "/v1/chat/completions":
                self._complete(body)
            case _:
                self._json({"error": {"message": "Not Found", "code": 404}}, 404)

    def _complete(self, body: dict[str, Any]) -> None:
        prompt = json.dumps([body.get("messages"), body.get("tools")])
        ids = [
            int.from_bytes(hashlib.sha256(f"{prompt}{n}".encode()).digest()[:2])
            for n in range(body.get("max_tokens") or 16)
        ]
        said, prompt_tokens = [f"w{each} " for each in ids], _words(body)
        with self.server.lock:
            cached = prompt_tokens // 16 * 16 if prompt in self.server.seen else 0
            self.server.seen.add(prompt)
            self.server.done.update(
                {
                    "prefix_cache_queries": prompt_tokens,
                    "prefix_cache_hits": cached,
                    "prompt_tokens": prompt_tokens,
                }
            )
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": len(ids),
            "total_tokens": prompt_tokens + len(ids),
        }
        # one more level
        usage |= {"prompt_tokens_details": {"cached_tokens": cached}}  # type: ignore[dict-item]
        head = {"id": "chatcmpl-1", "created": 1, "model": MODEL}
        if body.get("stream"):
            self._stream(self._chunks(body, head, ids, said, usage))
        else:
            message = {"role": "assistant", "content": "".join(said)}
            choice = {"index": 0, "message": message, "finish_reason": "length"}
            self._json({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        with self.server.lock:
            self.server.done.update({"length": 1, "generation_tokens": len(ids)})

    def _chunks(
        self, body: Any, head: Any, ids: list[int], said: list[str], usage: Any
    ) -> Iterator[str]:
        head = {**head, "object": "chat.completion.chunk"}
        yield json.dumps(
            {
                **head,
                "choices": [
                    {
                        "index": 0,
                        "delta": {"role": "assistant", "content": ""},
                        "finish_reason": None,
                    }
                ],
            }
        )
        for number, (token, word) in enumerate(zip(ids, said, strict=True), 1):
            choice = {
                "index": 0,
                "delta": {"content": word},
                "finish_reason": "length" if number == len(ids) else None,
            }
            yield json.dumps(
                {
                    **head,
                    "choices": [
                        choice | ({"token_ids": [token]} if body.get("return_token_ids") else {})
                    ],
                }
            )
        if (body.get("stream_options") or {}).get("include_usage"):
            yield json.dumps({**head, "choices": [], "usage": usage})
        yield "[DONE]"

    def _stream(self, events: Iterator[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            data = f"data: {event}\n\n".encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            time.sleep(PACE_S)
        self.wfile.write(b"0\r\n\r\n")

    def _json(self, content: object, status: int = 200) -> None:
        self._send(json.dumps(content).encode(), "application/json", status)

    def _send(self, data: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _remember(self, body: dict[str, Any]) -> None:
        with self.server.lock:
            self.server.requests.append(
                {
                    "request": f"{self.command} {self.path}",
                    "headers": dict(self.headers.items()),
                    "body": _digested(body),
                }
            )


def _words(body: dict[str, Any]) -> int:
    texts = [json.dumps(body["tools"])] if body.get("tools") else []
    texts += [body["prompt"]] if isinstance(body.get("prompt"), str) else []
    for message in body.get("messages") or []:
        content = message.get("content") or ""
        texts += (
            [content] if isinstance(content, str) else [part.get("text") or "" for part in content]
        )
    return sum(len(text.split()) for text in texts)


def _digested(body: dict[str, Any]) -> dict[str, Any]:
    """Put digests and lengths in the place of texts, as far as no salt reaches."""
    found = dict(body)
    if messages := body.get("messages"):
        first = messages[0]
        content = first.get("content")
        rest = [
            {**first, "content": content[SALTED:]} if isinstance(content, str) else first,
            *messages[1:],
        ]
        found["messages"] = (
            f"{len(messages)} of {_digest(messages)[0]} bytes, behind the salt {_digest(rest)[1]}"
        )
    for name in ("tools", "prompt"):
        if name in body:
            found[name] = "{} bytes, {}".format(*_digest(body[name]))
    return found


def _digest(content: object) -> tuple[int, str]:
    text = json.dumps(content).encode()
    return len(text), hashlib.sha256(text).hexdigest()[:12]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--kv", default="auto")
    options, _ = parser.parse_known_args()
    Server(kv=options.kv, port=options.port).serve_forever()
