"""The open connections of one arm, kept and handed out by its policy; and what a session's cookies are."""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from typing import Final

from agentload.live.address import address
from agentload.live.channel import Link
from agentload.live.clock import Clock
from agentload.live.dial import Place, dial, places
from agentload.live.target import SECRET_CHARS, Target

SECOND: Final = 1_000_000_000
_ANY: Final = ""


class Connections:
    """Lend connections to one arm: an idle one where the policy allows, else a new one."""

    def __init__(self, target: Target, *, clock: Clock) -> None:
        self.target = target
        self.paths: dict[str, str] = {}
        """Where the server redirected a path to."""
        self.ends_with_mark = bool(target.ends_with_mark)
        self._clock = clock
        self._idle: defaultdict[str, list[tuple[int, Link]]] = defaultdict(list)
        self._cookies: dict[str, dict[str, str]] = {}
        self._places: list[Place] = []
        self._resolving = asyncio.Lock()

    def idle(self, session: str) -> Link | None:
        """Take an idle connection that is still good."""
        kept = self._idle.get(self._key(session))
        while kept:
            since_ns, link = kept.pop()
            if self._clock.now_ns() - since_ns <= self.target.idle_s * SECOND and _is_quiet(link):
                return link
            link.close()
        return None

    def is_ready(self, session: str) -> bool:
        """Tell whether an idle connection is there that may still be good."""
        kept = self._idle.get(self._key(session))
        return kept is not None and len(kept) > 0 and self._clock.now_ns() - kept[-1][0] <= self.target.idle_s * SECOND

    async def open(self) -> Link:
        """Open a connection; raises `RefusedError`."""
        async with self._resolving:
            if not self._places:
                proxy = self.target.proxy
                self._places = await places(self.target.address if proxy is None else address(proxy))
            found = tuple(self._places)
        try:
            return await dial(self.target, found, clock=self._clock, failed=self._strike)
        except BaseException:  # a limit struck, too
            self._places.clear()  # the name may mean another machine by now
            raise

    def keep(self, link: Link, session: str) -> None:
        """Take a connection back for further calls, as far as the policy goes."""
        if self.target.connections == "call":
            link.close()
        else:
            self.hold(link, session)

    def hold(self, link: Link, session: str) -> None:
        """Keep a connection for the next call."""
        self._idle[self._key(session)].append((self._clock.now_ns(), link))

    def sweep(self) -> None:
        """Close what was idle for too long."""
        before_ns = self._clock.now_ns() - round(self.target.idle_s * SECOND)
        for key, kept in list(self._idle.items()):
            for since_ns, link in kept:
                if since_ns < before_ns:
                    link.close()
            kept[:] = [(since_ns, link) for since_ns, link in kept if since_ns >= before_ns]
            if not kept:
                del self._idle[key]

    def forget(self, session: str) -> None:
        """Drop what is kept for a session that has ended."""
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
        """Return the Cookie header of a session."""
        return "; ".join(f"{name}={value}" for name, value in self._cookies.get(session, {}).items())

    def cookie_secrets(self, session: str) -> tuple[str, ...]:
        """Return what of a session's cookies must not be shown."""
        return tuple(content for content in self._cookies.get(session, {}).values() if len(content) >= SECRET_CHARS)

    def take_cookies(self, session: str, headers: list[tuple[str, str]]) -> None:
        """Keep the cookies of an answer: routers know their sessions by them."""
        for header, value in headers:
            if header != "set-cookie":
                continue
            pair, _, attributes = value.partition(";")
            name, _, content = pair.strip().partition("=")
            if "max-age=0" in attributes.lower().replace(" ", ""):
                self._cookies.get(session, {}).pop(name, None)
            else:
                self._cookies.setdefault(session, {})[name] = content

    def _strike(self, place: Place) -> None:
        # No other connection is to wait for it, as long as one of the others answers.
        if place in self._places:
            self._places.remove(place)

    def _key(self, session: str) -> str:
        return session if self.target.connections == "session" else _ANY


def _is_quiet(link: Link) -> bool:
    # An idle server says nothing; bytes or an end mean that this connection is over.
    try:
        return link.receive() is None
    except (OSError, ssl.SSLError):
        return False
