"""What those who play a run together say to each other: plain data, whoever carries it.

There are two conversations. A dispatcher and its workers (`--workers`) speak of every call:
`Told` goes out, `Done` comes back. A driver and its nodes (`--on`) speak of blocks alone:
each node has a share of the plan and a dispatcher of its own, says `Reached` where that
waits, and goes on with `Go`; no call passes the driver. Getting ready, breaking and being
alive are the same in both. Within a machine, messages are pickles behind their length, over
a socket pair that nobody else has (`Pipe`); from node to node an actor carries them.

A context grows by a few segments a turn and may have hundreds, so only what is
new in it is sent. Both ends keep the last context of each session that is being
played on an arm; what is left of it is sent as a number of leading segments.
"""

import asyncio
import pickle
import platform
import signal
import socket
import struct
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from agentload import __version__
from agentload.dispatch.dispatcher import PlayEnd
from agentload.errors import AgentloadError, first_of
from agentload.live.health import Health
from agentload.live.station import Job
from agentload.model.commands import (
    Cancel,
    Forget,
    Lost,
    Open,
    Outcome,
    Prepare,
    Send,
    Settle,
    Stopped,
)
from agentload.model.trace import Segment

Key = tuple[str, str]
"""Arm and session."""
_LENGTH: Final = struct.Struct("<I")
ALIVE_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Open a journal and get ready; then say Ready."""

    job: Job
    journal: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Do this; of its context only what is new was sent along."""

    command: Prepare | Send
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """Have the disk hold every call that has ended; then say Synced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """Open a journal and get ready to play a share of a plan; then say Ready."""

    job: Job
    workers: int = 1
    done: frozenset[int] = frozenset()
    voided: Mapping[int, int] = field(default_factory=dict)
    folder: Path | None = None
    """Where journals and shards go, seen by every node;
    None: each node keeps its own, and sends its shards.
    """
    share: bytes = b""
    """The node's share of the plan, pickled; its name is the digest of these bytes."""
    name: str = ""
    number: int = 0
    """Of the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """Go on at this instant of the node's clock; pairs that are void are played again."""

    at_ns: int
    void: tuple[tuple[int, str], ...] = ()


Order: TypeAlias = Start | Told | Cancel | Forget | Sync
NodeOrder: TypeAlias = Play | Go | Stopped | Lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The worker takes orders; and who it is."""

    host: str = field(default_factory=platform.node)
    version: str = __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """The worker runs, with or without anything to report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """A watched call streamed: its tokens so far."""

    request_id: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A call is over and written down; its stamps stay behind."""

    request_id: str
    outcome: Outcome
    chunks: int
    prompt_hash: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """What had ended is on the disk; and how the worker has kept up so far."""

    health: Health


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The worker cannot go on, for a reason that the user can mend."""

    message: str
    hint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """What a node measured in one round, as a Parquet file."""

    share: str
    """The name of the share that was played."""
    rows: int
    place: Path | bytes
    """Where it is, or all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The node's dispatcher waits: its round is over, or its
    servers are to be started; all instants are of the node's clock.
    """

    command: Settle | Open
    ends: tuple[PlayEnd, ...]
    health: Health
    """Of the node, since the last time that it was said."""
    shard: Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """Nothing is left to play."""


Report: TypeAlias = Ready | Alive | Streamed | Done | Synced | Broken
NodeReport: TypeAlias = Ready | Alive | Reached | Over | Broken


class Contexts:
    """One end's memory of what was told or heard last."""

    def __init__(self) -> None:
        self._last: dict[Key, tuple[Segment, ...]] = {}

    def new(self, key: Key, context: tuple[Segment, ...]) -> tuple[int, tuple[Segment, ...]]:
        """Return how many leading segments the other end has, and those behind them."""
        last = self._last.get(key, ())
        self._last[key] = context
        if last is context:
            return len(context), ()
        kept = 0
        for mine, told in zip(context, last, strict=False):
            if (
                mine is not told
                # as good as equal, and compared at once: a
                # context shares its segments with the one before
            ):
                break
            kept += 1
        return kept, context[kept:]

    def whole(self, key: Key, kept: int, new: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """Return the context that the other end means."""
        context = self._last.get(key, ())
        if kept < len(context) or new:
            context = context[:kept] + new
            self._last[key] = context
        return context

    def forget(self, key: Key) -> None:
        """Drop a session whose play is over."""
        self._last.pop(key, None)


class Pipe(asyncio.Protocol):
    """One end. What comes is told as soon as it is whole; what goes never waits for the reader."""

    def __init__(self, heard: Callable[[Any], None], closed: Callable[[], None]) -> None:
        self.heard = heard
        self._closed = closed
        self._got = bytearray()
        self._transport: asyncio.Transport | None = None

    def say(self, message: object) -> None:
        """Send a message; one to an end that is gone is lost, and `closed` is about to say so."""
        assert self._transport is not None
        content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._transport.write(_LENGTH.pack(len(content)) + content)

    def close(self) -> None:
        """Say nothing more; the other end notices when it has heard all."""
        assert self._transport is not None
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Tell every message that is whole."""
        self._got += data
        at = 0
        while (end := _end(self._got, at)) is not None:
            # the other end is this program
            message = pickle.loads(self._got[at + _LENGTH.size : end])  # noqa: S301
            at = end
            self.heard(message)
        del self._got[:at]

    # the protocol's signature
    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Tell that the other end is gone."""
        self._closed()


async def opened(
    sock: socket.socket, heard: Callable[[Any], None], closed: Callable[[], None]
) -> Pipe:
    """Speak over one end of a socket pair."""
    _, pipe = await asyncio.get_running_loop().create_unix_connection(
        lambda: Pipe(heard, closed), sock=sock
    )
    return pipe


def first(sock: socket.socket) -> Any:  # noqa: ANN401  # whatever the other end says
    """Wait for one message, before there is a loop. Raises EOFError when the other end is gone."""
    (length,) = _LENGTH.unpack(_exactly(sock, _LENGTH.size))
    return pickle.loads(_exactly(sock, length))  # noqa: S301  # the other end is this program


def served(work: Callable[[Pipe, Any], Coroutine[Any, Any, None]]) -> None:
    """Be the process that *work*, with its first message, is for;
    the descriptor of its end of a socket pair is the only argument.

    The other end stays open for as long as the process is wanted: when that closes,
    because the run is over or because who opened it died, the process ends by itself.
    """
    for name in (signal.SIGINT, signal.SIGTERM):
        # Who stops a whole group of processes, as systemd does, stops
        # the dispatcher, which lets calls in flight come to their end.
        signal.signal(name, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as sock:
        try:
            begun = first(sock)
        except EOFError:
            return
        asyncio.run(_served(sock, lambda pipe: work(pipe, begun)))


class _OverError(Exception):
    """The other end is closed: drop everything."""


async def _served(sock: socket.socket, work: Callable[[Pipe], Coroutine[Any, Any, None]]) -> None:
    over = asyncio.Event()
    pipe = await opened(sock, lambda _: None, over.set)  # nothing is said to it before it is ready

    async def alive() -> None:
        while True:
            pipe.say(Alive())
            await asyncio.sleep(ALIVE_S)

    async def followed() -> None:
        await over.wait()
        raise _OverError

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(alive())
            tasks.create_task(followed())
            await work(pipe)
    except* _OverError:
        pass
    except* AgentloadError as group:
        broken = first_of(group)
        pipe.say(Broken(message=broken.message, hint=broken.hint))
        pipe.close()
        await over.wait()


def _end(got: bytearray, at: int) -> int | None:
    """Return where the message at *at* ends; None when it is not whole."""
    if len(got) - at < _LENGTH.size:
        return None
    end: int = at + _LENGTH.size + _LENGTH.unpack_from(got, at)[0]
    return end if end <= len(got) else None


def _exactly(sock: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        piece = sock.recv(size - len(got))
        if not piece:
            raise EOFError
        got += piece
    return bytes(got)
