"""Open, keep and lend the connections of one arm, and keep the cookies of its sessions.

A connection is opened by name resolution, socket, proxy and TLS; the arm's policy says who may
use it again.
"""

import asyncio
import errno
import ipaddress
import socket
import ssl
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from agentload.dispatch.gateway import AnsweringModels
from agentload.errors import LaunchError
from agentload.live.channel import Channel, Link
from agentload.live.stamps import StampClock, stamp_received
from agentload.live.target import SECRET_CHARS, Address, Target, address, basic
from agentload.live.tls import TlsChannel, context

Where = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes] | str
Place = tuple[socket.AddressFamily, Where]
PROXY_HEAD_BYTES = 65536
# How long an address may take to answer where there is another one to
# try: a name may have an IPv6 address that leads nowhere.
NEXT_S = 2.0
TOO_MANY = frozenset({errno.EMFILE, errno.ENFILE})
SECOND: Final = 1_000_000_000
# Cookies of one session; like the characters of each, from RFC 6265, section 6.1
MOST_COOKIES: Final = 50
COOKIE_CHARS: Final = 4096
_ANY: Final = ""


class UnreachableError(Exception):
    """No server could be reached at an address."""


async def places(there: Address) -> list[Place]:
    """Resolve an address; raise `RefusedError` if its name does not resolve."""
    if there.socket is not None:
        return [(socket.AF_UNIX, there.socket)]
    loop = asyncio.get_running_loop()
    try:
        literal = ipaddress.ip_address(there.host)
    except ValueError:
        pass
    else:
        return [
            (socket.AF_INET if literal.version == 4 else socket.AF_INET6, (there.host, there.port))
        ]
    try:
        found = await loop.getaddrinfo(there.host, there.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UnreachableError(
            f"the name '{there.host}' does not resolve: {error.strerror or error}"
        ) from error
    return [(family, place) for family, _, _, _, place in found]


async def _dial(
    target: Target, found: Sequence[Place], *, clock: StampClock, failed: Callable[[Place], None]
) -> Link:
    """Connect to the first of these places that answers; report the others to *failed*.

    The places are the proxy's if the target has one.
    """
    there = target.address
    channel = await _connect(found, clock=clock, failed=failed)
    try:
        if there.scheme == "http":
            return channel
        if target.proxy is not None:
            await _tunnel(channel, there, address(target.proxy))
        secure = TlsChannel(channel, target.tls or context(), host=there.host)
        await secure.handshake()
        return secure
    except (ssl.SSLError, OSError) as error:
        channel.close()
        raise UnreachableError(f"{type(error).__name__} with {channel.peer}: {error}") from error
    except BaseException:
        channel.close()
        raise


async def _connect(
    found: Sequence[Place], *, clock: StampClock, failed: Callable[[Place], None]
) -> Channel:
    loop = asyncio.get_running_loop()
    last: OSError | None = None
    for number, (family, place) in enumerate(found, start=1):
        sock: socket.socket | None = None
        try:
            # raises for a family of addresses that this machine does not have
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            stamp_received(sock)
            if family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(None if number == len(found) else NEXT_S):
                await loop.sock_connect(sock, place)
        except OSError as error:
            if sock is not None:
                sock.close()
            elif error.errno in TOO_MANY:
                raise LaunchError(
                    "too many open files: each connection is one",
                    hint="raise the limit: ulimit -n 65536",
                ) from error
            failed((family, place))
            last = error
            continue
        except BaseException:
            if sock is not None:
                sock.close()
            raise
        return Channel(sock, clock=clock, peer=_peer(place))
    raise UnreachableError(
        f"nobody listens at {_peer(found[-1][1]) if found else 'no address'}: {last}"
    ) from last


async def _tunnel(channel: Channel, there: Address, proxy: Address) -> None:
    # RFC 9110, section 9.3.6. The proxy sends nothing after its head
    # until we do, so no byte of the server's is read here.
    authority = f"{f'[{there.host}]' if ':' in there.host else there.host}:{there.port}"
    credentials = f"Proxy-Authorization: {basic(proxy.user)}\r\n" if proxy.user is not None else ""
    channel.write(
        [f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{credentials}\r\n".encode()]
    )
    answer = b""
    while b"\r\n\r\n" not in answer:
        received = channel.receive()
        if not received:
            await channel.readable()
        for _, data in received:
            if not data or len(answer) > PROXY_HEAD_BYTES:
                raise UnreachableError("the proxy hung up")
            answer += data
    status = answer.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(status) < 2 or not status[1].startswith(b"2"):
        raise UnreachableError(
            f"the proxy refused the tunnel: {answer[:64].decode(errors='replace').splitlines()[0]}"
        )


def _peer(place: Where) -> str:
    if isinstance(place, str):
        return f"unix:{place}"
    host = str(place[0])
    port = int(place[1])
    if ":" in host:
        return f"[{host}]:{port}"
    return f"{host}:{port}"


class Connections:
    """Lend connections to one arm: an idle one where the policy allows, else a new one."""

    def __init__(self, target: Target, *, clock: StampClock) -> None:
        self.target = target
        self.paths: dict[str, str] = {}
        """Where the server redirected a path to, by path."""
        self.ends_with_mark = bool(target.ends_with_mark)
        self.models = AnsweringModels()
        self._clock = clock
        self._idle: defaultdict[str, list[tuple[int, Link]]] = defaultdict(list)
        self._cookies: dict[str, dict[str, str]] = {}
        self._places: list[Place] = []
        self._resolving = asyncio.Lock()

    def idle(self, session: str) -> Link | None:
        """Take an idle connection that is still good; None if there is none."""
        kept = self._idle.get(self._key(session))
        while kept:
            since_ns, link = kept.pop()
            if self._clock.now_ns() - since_ns <= self.target.idle_s * SECOND and _is_quiet(link):
                return link
            link.close()
        return None

    def is_ready(self, session: str) -> bool:
        """Tell whether there is an idle connection that may still be good."""
        kept = self._idle.get(self._key(session))
        return (
            kept is not None
            and len(kept) > 0
            and self._clock.now_ns() - kept[-1][0] <= self.target.idle_s * SECOND
        )

    async def open(self) -> Link:
        """Open a connection; raises `RefusedError`."""
        async with self._resolving:
            if not self._places:
                proxy = self.target.proxy
                self._places = await places(
                    self.target.address if proxy is None else address(proxy)
                )
            found = tuple(self._places)
        try:
            return await _dial(self.target, found, clock=self._clock, failed=self._strike)
        except BaseException:  # also when a time limit cancelled the attempt
            self._places.clear()  # the name may resolve to another machine by now
            raise

    def keep(self, link: Link, session: str) -> None:
        """Take a connection back after a call, or close it if the policy allows no reuse."""
        if self.target.connections == "call":
            link.close()
        else:
            self.hold(link, session)

    def hold(self, link: Link, session: str) -> None:
        """Keep a connection for the next call."""
        self._idle[self._key(session)].append((self._clock.now_ns(), link))

    def sweep(self) -> None:
        """Close the connections that were idle for too long."""
        before_ns = self._clock.now_ns() - round(self.target.idle_s * SECOND)
        for key, kept in list(self._idle.items()):
            for since_ns, link in kept:
                if since_ns < before_ns:
                    link.close()
            kept[:] = [(since_ns, link) for since_ns, link in kept if since_ns >= before_ns]
            if not kept:
                del self._idle[key]

    def forget(self, session: str) -> None:
        """Drop the cookies, and the connections of its own, of a session that has ended."""
        self._cookies.pop(session, None)
        if self.target.connections == "session":
            for _, link in self._idle.pop(session, ()):
                link.close()

    def close(self) -> None:
        """Close every idle connection."""
        for kept in self._idle.values():
            for _, link in kept:
                link.close()
        self._idle.clear()

    def cookies(self, session: str) -> str:
        """Return the value of a session's Cookie header."""
        return "; ".join(
            f"{name}={value}" for name, value in self._cookies.get(session, {}).items()
        )

    def cookie_secrets(self, session: str) -> tuple[str, ...]:
        """Return the values of a session's cookies that must not be written down."""
        return tuple(
            content
            for content in self._cookies.get(session, {}).values()
            if len(content) >= SECRET_CHARS
        )

    def take_cookies(self, session: str, headers: list[tuple[str, str]]) -> None:
        """Keep the cookies of an answer: routers recognise a session by them."""
        for header, value in headers:
            if header != "set-cookie":
                continue
            pair, _, attributes = value.partition(";")
            name, _, content = pair.strip().partition("=")
            if "max-age=0" in attributes.lower().replace(" ", ""):
                self._cookies.get(session, {}).pop(name, None)
            elif len(pair) <= COOKIE_CHARS:
                kept = self._cookies.setdefault(session, {})
                kept[name] = content
                if len(kept) > MOST_COOKIES:
                    del kept[next(iter(kept))]

    def _strike(self, place: Place) -> None:
        # No other connection should wait for this place while another place answers.
        if place in self._places:
            self._places.remove(place)

    def _key(self, session: str) -> str:
        if self.target.connections == "session":
            return session
        return _ANY


def _is_quiet(link: Link) -> bool:
    # An idle server says nothing; bytes or an end mean that this connection is over.
    try:
        return not any(True for _ in link.receive())
    except (OSError, ssl.SSLError):
        return False
