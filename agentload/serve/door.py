"""Open and close a server's listening socket, as when a server dies and comes back."""

import asyncio
import logging
import os
import signal
import socket
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from agentload.errors import LaunchError

_BACKLOG: Final = 2048


def _is_of_ours(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (HttpProcessingError, ConnectionError))


LOG: Final = logging.getLogger("agentload.door")
"""Log of a server's own mistakes.

A request that is no HTTP, or has a line that is too long, gets its answer (400) and no traceback;
nor does a client that leaves before its answer starts.
"""
LOG.addFilter(_is_of_ours)


def closing_time(seconds: float | None) -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set, and the clock after this many seconds."""
    loop = asyncio.get_running_loop()
    until = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, until.set)
    if seconds is not None:
        loop.call_later(seconds, until.set)
    return until


class Door:
    """Listen on one address, on and off."""

    def __init__(self, runner: web.AppRunner, *, host: str, port: int) -> None:
        self._runner = runner
        self._host = host
        self._port = port
        self._site: web.SockSite | None = None

    async def open(self) -> str:
        """Start to take connections; return the base URL.

        Raises LaunchError when the port is taken.
        """
        listener = self._listener()
        self._host, self._port = listener.getsockname()[:2]
        self._site = web.SockSite(self._runner, listener, backlog=_BACKLOG)
        await self._site.start()
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    async def slam(self) -> None:
        """Stop listening and abort every connection, as the death of a process does."""
        if self._site is not None:
            await self._site.stop()
            self._site = None
        server = self._runner.server
        for connection in server.connections if server is not None else ():
            if isinstance(connection.transport, asyncio.WriteTransport):
                connection.transport.abort()

    def _listener(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            return socket.create_server((self._host, self._port), family=family, backlog=_BACKLOG)
        except OSError as error:
            reason = error.strerror if error.errno is None else os.strerror(error.errno)
            raise LaunchError(
                f"cannot listen on {self._host}:{self._port}: {reason}",
                hint="choose another --port",
            ) from error
