"""A server in the manner of `transformers serve`: it lists no models, refuses every field that it does not know, ends without a mark."""

from __future__ import annotations

import json
from collections.abc import Collection

from tests.live.scripted import END, STREAM, Answer, Peer

FIELDS_OF_OPENAI = frozenset({"model", "messages", "tools", "max_tokens", "temperature", "seed", "stream", "stream_options"})


def refusing(known: Collection[str], *, tokens: int = 3) -> Answer:
    """Return a server that knows these fields alone."""

    async def answer(peer: Peer) -> None:
        path = peer.request.line.split()[1]
        if not path.endswith("/chat/completions"):
            status = b"500 Internal Server Error" if path.endswith("/models") else b"404 Not Found"
            await peer.send(b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % status)
            return
        if unknown := json.loads(peer.request.body).keys() - set(known):
            body = json.dumps({"detail": f"Unexpected fields in the request: {unknown}"}).encode()
            await peer.send(
                b"HTTP/1.1 422 Unprocessable Content\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            )
            return
        words = [{"choices": [{"index": 0, "delta": {"content": f"w{number} "}}]} for number in range(tokens)]
        usage = {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}
        await peer.send(STREAM)
        await peer.events(*words, {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "usage": usage})
        await peer.send(END)

    return answer
