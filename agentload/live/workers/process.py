"""Run the process of a node until its starter closes the other end of the pipe, or dies."""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

from agentload.errors import AgentloadError, first_of
from agentload.live.workers.messages import Alive, BrokenNode
from agentload.live.workers.pipe import Pipe, connect, receive

ALIVE_S: Final = 0.5
Work: TypeAlias = Callable[[Pipe], Coroutine[Any, Any, None]]
"""The first message: the function to run. Later orders go to the pipe's `on_message`."""


class _OverError(Exception):
    """The other end is closed: drop everything."""


def main() -> None:
    """Run the function sent as first message; the argument is a descriptor of a socket pair."""
    for name in (signal.SIGINT, signal.SIGTERM):
        # A signal to a whole group of processes, as systemd sends it, also reaches the dispatcher,
        # which lets calls in flight come to their end.
        signal.signal(name, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as sock:
        try:
            work: Work = receive(sock)
        except EOFError:
            return
        asyncio.run(_do(work, sock))


async def _do(work: Work, sock: socket.socket) -> None:
    over = asyncio.Event()
    pipe = await connect(sock, lambda _: None, over.set)  # nothing is sent to it before it is ready

    async def say_alive() -> None:
        while True:
            pipe.say(Alive())
            await asyncio.sleep(ALIVE_S)

    async def follow() -> None:
        await over.wait()
        raise _OverError

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(say_alive())
            tasks.create_task(follow())
            await work(pipe)
    except* _OverError:
        pass
    except* AgentloadError as group:
        broken = first_of(group)
        pipe.say(BrokenNode(message=broken.message, hint=broken.hint))
        pipe.close()
        await over.wait()


if __name__ == "__main__":
    main()
