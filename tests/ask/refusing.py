"""A server as `transformers serve` is: it lists no models, refuses
every field that it does not know, and says what was recorded.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.live.scripted import END, STREAM, Peer

KNOWN = frozenset(
    {"model", "messages", "tools", "max_tokens", "temperature", "seed", "stream", "stream_options"}
)
STREAMED = (Path(__file__).parents[1] / "fixtures" / "wire" / "transformers_chat.sse").read_bytes()
TOKENS = 6
COUNTED = b'"completion_tokens":%d'


async def refusing(peer: Peer) -> None:
    path = peer.request.line.split()[1]
    if not path.endswith("/chat/completions"):
        status = b"500 Internal Server Error" if path.endswith("/models") else b"404 Not Found"
        await peer.send(b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % status)
    elif unknown := json.loads(peer.request.body).keys() - KNOWN:
        body = json.dumps({"detail": f"Unexpected fields in the request: {unknown}"}).encode()
        head = (
            b"HTTP/1.1 422 Unprocessable Entity\r\ncontent-type: "
            b"application/json\r\ncontent-length: %d\r\n\r\n"
        )
        await peer.send(head % len(body) + body)
    else:
        asked = min(TOKENS, json.loads(peer.request.body)["max_tokens"])
        said = STREAMED.replace(COUNTED % TOKENS, COUNTED % asked)
        await peer.send(STREAM + b"%x\r\n%b\r\n" % (len(said), said) + END)
