"""A server that means ill: one way to answer wrongly
a mode, each with the ends that its calls may have.

python -m tests.live.hostile    # prints its port, serves
until its standard input ends; the path names the mode: /MODE/v1
"""

import asyncio
import json
import sys

from tests.live import (  # noqa: F401  # whose modes are among those
    hostile_edges,
    hostile_events,
    hostile_http,
    hostile_odds,
    hostile_proxies,
    hostile_rare,
)
from tests.live.hostility import MODES, NESTED, TIMED_OUT
from tests.live.scripted import Peer, serving

__all__ = ["MODES", "NESTED", "TIMED_OUT"]


async def _serve() -> None:
    async def answer(peer: Peer) -> None:
        await MODES[peer.request.line.split()[1].split("/")[1]].answer(peer)

    async with serving(answer) as server:
        sys.stdout.write(json.dumps({"port": server.port}) + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        server.failures.clear()


if __name__ == "__main__":
    asyncio.run(_serve())
