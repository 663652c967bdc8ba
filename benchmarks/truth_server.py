"""A server that knows when it really wrote each chunk: raw
sockets, bytes encoded beforehand, a clock read around each write.

Each POST is answered with a stream of vLLM's form: the first token so long after the request
was read, the others at a fixed pace. GET /truth hands out the log: for every finished stream
when its request had arrived (as the kernel says: how soon this server reads it is no error of
the client), and when each of its writes began and ended. Any other GET names the only model.
"""

import argparse
import select
import socket
import struct
import sys
import time
from collections import deque

import msgspec

clock = time.monotonic_ns
MS = 1_000_000
SO_TIMESTAMPNS = 35
timespec = struct.Struct("@ll").unpack_from
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: "
    b"chunked\r\n\r\n"
)
_LIST = msgspec.json.encode(
    {"object": "list", "data": [{"id": "truth", "object": "model", "created": 1, "owned_by": "us"}]}
)
MODELS = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(_LIST),
    _LIST,
)
WORDS = ("status", " escape", " closed", " public", " numerator", " the", " of", " unit")


def event(payload: bytes) -> bytes:
    """Return an event in an HTTP chunk of its own."""
    text = b"data: " + payload + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(text), text)


def chunk(delta: object, *, finish: str | None = None, ids: list[int] | None = None) -> bytes:
    """Return one event of a chat stream."""
    choice = {
        "index": 0,
        "delta": delta,
        "logprobs": None,
        "finish_reason": finish,
        "token_ids": ids,
    }
    base = {
        "id": "chatcmpl-b297d69da46c331f",
        "object": "chat.completion.chunk",
        "created": 1795177583,
        "model": "truth",
    }
    return event(msgspec.json.encode({**base, "choices": [choice]}))


def writes(tokens: int) -> list[bytes]:
    """Return what each write of a stream sends: head, role and first
    token together, then one token each, the end with the last.
    """
    out = [
        chunk(
            {"content": WORDS[index % len(WORDS)]},
            finish="length" if index == tokens - 1 else None,
            ids=[index],
        )
        for index in range(tokens)
    ]
    out[0] = HEAD + chunk({"role": "assistant", "content": ""}) + out[0]
    usage = {"prompt_tokens": 100, "total_tokens": 100 + tokens, "completion_tokens": tokens}
    base = {
        "id": "chatcmpl-b297d69da46c331f",
        "object": "chat.completion.chunk",
        "created": 1795177583,
        "model": "truth",
    }
    out[-1] += (
        event(msgspec.json.encode({**base, "choices": [], "usage": usage}))
        + event(b"[DONE]")
        + b"0\r\n\r\n"
    )
    return out


class Stream:
    """One answer under way."""

    __slots__ = ("after", "arrived_ns", "before", "due", "id", "sock")

    def __init__(self, sock: socket.socket, id: str, arrived_ns: int, due: int) -> None:
        self.sock = sock
        self.id = id
        self.arrived_ns = arrived_ns
        self.due = due
        self.before: list[int] = []
        self.after: list[int] = []


class TruthServer:
    """Serve from one thread; due times are kept in two queues that are in order by themselves."""

    def __init__(self, *, tokens: int, ttft_ms: float, period_ms: float) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._writes = writes(tokens)
        self._ttft_ns, self._period_ns = round(ttft_ms * MS), round(period_ms * MS)
        self._poll = select.epoll()
        self._connections: dict[int, tuple[socket.socket, bytearray]] = {}
        self._first: deque[Stream] = deque()
        self._next: deque[Stream] = deque()
        self._wall_ahead_ns = time.time_ns() - clock()
        self._log: list[tuple[str, int, list[int], list[int]]] = []

    def serve(self) -> None:
        """Serve until killed."""
        self.listening.setblocking(False)
        self._poll.register(self.listening, select.EPOLLIN)
        while True:
            self._write_due(self._first)
            self._write_due(self._next)
            dues = [queue[0].due for queue in (self._first, self._next) if queue]
            # select() waits to the µs, epoll only to the ms.
            wait_s = max(0.0, (min(dues) - clock()) / 1e9) if dues else None
            if select.select([self._poll.fileno()], [], [], wait_s)[0]:
                for file, _ in self._poll.poll(0):
                    self._heard(file)

    def _write_due(self, queue: deque[Stream]) -> None:
        while queue and queue[0].due <= clock():
            stream = queue.popleft()
            data = self._writes[len(stream.before)]
            try:
                stream.before.append(clock())
                stream.sock.sendall(data)
                stream.after.append(clock())
            except OSError:
                continue
            if len(stream.before) < len(self._writes):
                stream.due += self._period_ns
                self._next.append(stream)
            else:
                self._log.append((stream.id, stream.arrived_ns, stream.before, stream.after))

    def _heard(self, file: int) -> None:
        if file == self.listening.fileno():
            while True:
                try:
                    sock, _ = self.listening.accept()
                except BlockingIOError:
                    return
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                self._connections[sock.fileno()] = (sock, bytearray())
                self._poll.register(sock, select.EPOLLIN)
        sock, got = self._connections[file]
        try:
            data, ancillary, _, _ = sock.recvmsg(1 << 20, 64)
        except OSError:
            data, ancillary = b"", []
        arrived_ns = read_ns = clock()
        for _, kind, stamp in ancillary:
            if kind == SO_TIMESTAMPNS:
                seconds, nanoseconds = timespec(stamp)
                arrived_ns = seconds * 1_000_000_000 + nanoseconds - self._wall_ahead_ns
        if not data:
            self._poll.unregister(sock)
            del self._connections[file]
            sock.close()
            return
        got += data
        head, blank, body = bytes(got).partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:])
        }
        if not blank or len(body) < int(headers.get("content-length", 0)):
            return
        got.clear()
        if lines[0].startswith("GET /truth "):
            self._tell(sock)
        elif not lines[0].startswith("POST"):
            sock.sendall(MODELS)
        else:
            self._first.append(
                Stream(sock, headers.get("x-request-id", ""), arrived_ns, read_ns + self._ttft_ns)
            )

    def _tell(self, sock: socket.socket) -> None:
        log = msgspec.msgpack.encode(self._log)
        self._log.clear()
        sock.setblocking(True)
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(log), log))


def main() -> None:
    """Print the port, then serve."""
    options = argparse.ArgumentParser()
    options.add_argument("--tokens", type=int, default=100)
    options.add_argument("--ttft-ms", type=float, default=50)
    options.add_argument("--period-ms", type=float, default=20)
    server = TruthServer(**vars(options.parse_args()))
    sys.stdout.write(f"{server.listening.getsockname()[1]}\n")
    sys.stdout.flush()
    server.serve()


if __name__ == "__main__":
    main()
