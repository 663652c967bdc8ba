"""Open a connection to an arm: name, socket, proxy, TLS."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import ssl
from collections.abc import Callable, Sequence

from agentload.errors import LaunchError
from agentload.live import stamps
from agentload.live.address import Address, address
from agentload.live.channel import Channel, Link
from agentload.live.clock import Clock
from agentload.live.target import Target, basic
from agentload.live.tls import TlsChannel, context

Where = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes] | str
Place = tuple[socket.AddressFamily, Where]
PROXY_HEAD_BYTES = 65536
NEXT_S = 2.0  # for a place to answer, where there is another one: a name may have an IPv6 address that leads nowhere
TOO_MANY = frozenset({errno.EMFILE, errno.ENFILE})


class RefusedError(Exception):
    """Nobody could be reached at an address."""


async def places(there: Address) -> list[Place]:
    """Resolve an address; raise `RefusedError` when its name means nothing."""
    if there.socket is not None:
        return [(socket.AF_UNIX, there.socket)]
    loop = asyncio.get_running_loop()
    try:
        literal = ipaddress.ip_address(there.host)
    except ValueError:
        pass
    else:
        return [(socket.AF_INET if literal.version == 4 else socket.AF_INET6, (there.host, there.port))]
    try:
        found = await loop.getaddrinfo(there.host, there.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise RefusedError(f"the name '{there.host}' does not resolve: {error.strerror or error}") from error
    return [(family, place) for family, _, _, _, place in found]


async def dial(target: Target, found: Sequence[Place], *, clock: Clock, failed: Callable[[Place], None]) -> Link:
    """Connect to the first of these places that answers, which are the proxy's when there is one; tell *failed* those that do not."""
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
        raise RefusedError(f"{type(error).__name__} with {channel.peer}: {error}") from error
    except BaseException:
        channel.close()
        raise


async def _connect(found: Sequence[Place], *, clock: Clock, failed: Callable[[Place], None]) -> Channel:
    loop = asyncio.get_running_loop()
    last: OSError | None = None
    for number, (family, place) in enumerate(found, start=1):
        sock: socket.socket | None = None
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)  # refuses a family that this machine does not speak
            sock.setblocking(False)
            stamps.stamp_received(sock)
            if family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(None if number == len(found) else NEXT_S):
                await loop.sock_connect(sock, place)
        except OSError as error:
            if sock is not None:
                sock.close()
            elif error.errno in TOO_MANY:
                raise LaunchError("too many open files: each connection is one", hint="raise the limit: ulimit -n 65536") from error
            failed((family, place))
            last = error
            continue
        except BaseException:
            if sock is not None:
                sock.close()
            raise
        return Channel(sock, clock=clock, peer=_peer(place))
    raise RefusedError(f"nobody listens at {_peer(found[-1][1]) if found else 'no address'}: {last}") from last


async def _tunnel(channel: Channel, there: Address, proxy: Address) -> None:
    # RFC 9110, section 9.3.6. Nothing follows the proxy's head until we speak, so what is read ends with it.
    authority = f"{f'[{there.host}]' if ':' in there.host else there.host}:{there.port}"
    credentials = f"Proxy-Authorization: {basic(proxy.user)}\r\n" if proxy.user is not None else ""
    channel.write([f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{credentials}\r\n".encode()])
    answer = b""
    while b"\r\n\r\n" not in answer:
        got = channel.receive()
        if got is None:
            await channel.readable()
            continue
        if not got[1] or len(answer) > PROXY_HEAD_BYTES:
            raise RefusedError("the proxy hung up")
        answer += got[1]
    status = answer.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(status) < 2 or not status[1].startswith(b"2"):
        raise RefusedError(f"the proxy refused the tunnel: {answer[:64].decode(errors='replace').splitlines()[0]}")


def _peer(place: Where) -> str:
    if isinstance(place, str):
        return f"unix:{place}"
    host, port = str(place[0]), int(place[1])
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
